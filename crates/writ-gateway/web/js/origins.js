// Why something was asked, said or done: what it rests on, entry by entry, read when somebody looks.

import { request } from "./api.js";
import { el } from "./dom.js";
import { event } from "./format.js";

const TRUST = {
  owner: "the owner's own words alone",
  auth: "words of a known author: the agent, or a person who is not the owner",
  external: "unverified content",
};

/** What is known of a step, in a sentence. */
function rests(step) {
  const more = [step.outside ? "from outside the sandbox" : "", step.private ? "private" : ""].filter((part) => part !== "");
  return [`Depends on ${TRUST[step.taint] ?? step.taint}`, ...more].join(", ");
}

/** Where a value came from: who or what brought it, and what was touched for it. */
function brought({ origin, detail, entry }) {
  const by = origin === "message" ? "A message" : origin === "model" ? "The model" : origin;
  return el("li", {}, detail === "" ? by : `${by}: ${detail}`, Number.isInteger(entry) ? el("span", { className: "note" }, ` entry ${entry}`) : null);
}

function row(step) {
  const name = step.entry === null ? "What is asked" : `${event(step.event)}, entry ${step.entry}`;
  const sources = step.sources.length > 0 ? el("ul", { className: "brought" }, step.sources.map(brought)) : null;
  return el("li", {}, el("strong", {}, name), el("p", {}, `${rests(step)}.`), sources, step.truncated ? el("p", { className: "note" }, "It had more sources than are stored.") : null);
}

/** A disclosure with what an ask (`approvals/…`) or an entry (`ledger/…`) rests on. */
export function origins(path, title) {
  const body = el("div", { className: "origins-body" });
  const node = el("details", { className: "what origins" }, el("summary", {}, title), body);
  let known = false;
  node.addEventListener("toggle", async () => {
    if (!node.open || known) return;
    known = true;
    const note = el("p", { className: "note", role: "status" }, "Loading.");
    body.replaceChildren(note);
    try {
      const { rests_on: steps, more } = await request(`/api/v1/${path}/rests-on`);
      if (steps.length === 0) note.textContent = "It has no sources: it came from Writ itself, or its content was erased.";
      else body.replaceChildren(el("ol", { className: "steps" }, steps.map(row)), ...(more ? [el("p", { className: "note" }, "There is more, which is not followed.")] : []));
    } catch (error) {
      // Looked up again when it is opened again.
      known = false;
      body.replaceChildren(el("p", { className: "problem", role: "alert" }, `It could not be looked up: ${error.message}`));
    }
  });
  return node;
}
