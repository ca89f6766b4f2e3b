// What a person can do with a case: approve, answer, take over, hand back, close.

import { request } from "./api.js";
import { el } from "./dom.js";
import { fleetPath } from "./fleet.js";
import { oneLine } from "./foreign.js";

/** The longest text that the server takes, in bytes. */
const MAX_TEXT = 64 * 1024;

const bytes = (text) => new TextEncoder().encode(text).length;

const QUEUED = ["approve", "answer", "take", "back", "close"];
/** The actions that the router takes in each state. */
const ALLOWED = {
  queued: QUEUED,
  "held by a person": ["answer", "back", "close"],
  held: ["take", "close"],
  open: ["close"],
  escalating: ["close"],
};

const ACTIONS = {
  approve: { label: "Approve", style: "primary", what: "It goes on with an agent, which is told that a person approves.", send: "Approve" },
  answer: { label: "Answer", style: "secondary", what: "The guest reads your text. The case stays where it is.", send: "Send" },
  take: { label: "Take over", style: "secondary", what: "You hold it. An agent that holds it now loses its key at once.", send: "Take over" },
  back: { label: "Hand back", style: "secondary", what: "An agent goes on, under a key of its own and with your note.", send: "Hand back" },
  close: { label: "Close", style: "danger", what: "It ends. An agent that holds it loses its key at once.", send: "Close the case" },
};

/** What is sent for an action, and what is said when it is done. */
const REQUESTS = {
  approve: ({ target, text }) => ["back", { target, note: text === "" ? "approved" : `approved: ${text}` }, "Approved: an agent goes on."],
  answer: ({ text }) => ["answer", { text }, "The answer is sent."],
  take: () => ["take", undefined, "You hold the case."],
  back: ({ target, text }) => ["back", { target, note: text === "" ? "handed back" : text }, "Handed back."],
  close: ({ text }) => ["close", { reason: text }, "The case is closed."],
};

/** The actions of a case in this state: buttons, and the form of the one that was chosen. */
export function caseActions(id, state, { agents, earlier, done }) {
  const node = el("div", { className: "case-choices" });
  let writing = false;
  const choose = () => {
    writing = false;
    const names = ALLOWED[state] ?? [];
    node.replaceChildren(...names.map((name, n) => choice(name, n, () => write(name))));
  };
  const write = (name) => {
    writing = true;
    const { form, focus } = step(name, { agents: agents(), earlier: earlier() }, { id, back: () => again(name), done: (text) => { again(name); done(text); } });
    node.replaceChildren(form);
    focus.focus({ preventScroll: true });
    form.scrollIntoView({ block: "nearest" });
  };
  const again = (name) => {
    choose();
    node.querySelector(`[data-act="${name}"]`)?.focus({ preventScroll: true });
  };
  choose();
  return { node, state, isWriting: () => writing };
}

function choice(name, n, act) {
  const { label, style, what } = ACTIONS[name];
  const described = `case-choice-${n}`;
  return el("div", { className: "choice" },
    el("button", { type: "button", className: style, onclick: act, "aria-describedby": described, data: { act: name } }, label),
    el("span", { className: "consequence", id: described }, what));
}

/** Agents and roles that a case can go to; the one that asked comes first. */
function targets(agents, earlier) {
  const names = new Set(agents.flatMap((agent) => [agent.name, ...(agent.roles ?? [])]));
  const known = [...names].toSorted();
  const back = earlier !== null && names.has(earlier);
  const option = (value, text) => el("option", { value }, text);
  return [
    back ? option(earlier, `${oneLine(earlier, 60)}, which had it last`) : null,
    option("", "Any agent that can do it"),
    ...known.filter((name) => !back || name !== earlier).map((name) => option(name, oneLine(name, 60))),
  ].filter((one) => one !== null);
}

/** The second step of an action: what it needs besides, and one more tap. */
function step(name, { agents, earlier }, { id, back, done }) {
  const { what, send, style } = ACTIONS[name];
  const target = name === "approve" || name === "back" ? el("select", {}, targets(agents, earlier)) : null;
  const words = { approve: "A note for the agent (optional)", answer: "Your answer to the guest", back: "A note for the agent (optional)", close: "Reason, for the record (optional)" }[name];
  const text = words ? el("textarea", { rows: name === "answer" ? 4 : 2, "aria-label": words, placeholder: words, required: name === "answer" }) : null;
  const said = el("p", { className: "problem", role: "alert", hidden: true });
  const yes = el("button", { type: "submit", className: style === "danger" ? "danger" : "primary" }, send);
  const no = el("button", { type: "button", className: "quiet", onclick: back }, "Back");
  const fail = (why) => {
    said.textContent = why;
    said.hidden = false;
    yes.disabled = false;
  };
  const submit = async (event) => {
    event.preventDefault();
    const written = text?.value.trim() ?? "";
    if (name === "answer" && written === "") return fail("There is nothing to send.");
    if (bytes(written) > MAX_TEXT) return fail("This is too long: send it in parts.");
    yes.disabled = true;
    const [verb, body, told] = REQUESTS[name]({ target: target?.value || null, text: written });
    try {
      await request(fleetPath(verb), { method: "POST", body: { case: id, ...body } });
    } catch (error) {
      const lost = error.status === 0 ? " It may have been done: the case shows it." : "";
      return fail(`Not done: ${error.message}${lost} ${error.hint ?? ""}`.trim());
    }
    return done(told);
  };
  const form = el("form", { className: "step", "aria-label": ACTIONS[name].label, onsubmit: submit, data: { step: name } },
    el("p", { className: "consequence" }, what),
    target ? el("label", { className: "field" }, el("span", {}, "To"), target) : null,
    text,
    said,
    el("div", { className: "actions" }, no, yes));
  return { form, focus: text ?? yes };
}
