// The way back from what was done: one tap while its time lasts, later a question. What can be taken back is asked of the
// server, so that it is there after a reload, in another tab, and for what nobody was asked about.

import { announce } from "./announce.js";
import { request } from "./api.js";
import { byId, el } from "./dom.js";
import { moment, plural } from "./format.js";

/** How often the time that is left is shown anew, in milliseconds. */
const TICK = 1_000;

/** The rows in view, by what they undo: each stays the same while it is there. */
const rows = new Map();
let ticking = null;

/** Minutes and seconds until a moment: `4:59`. */
const left = (until) => {
  const seconds = Math.max(0, Math.ceil((until.getTime() - Date.now()) / 1_000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
};

/** Reads what can be taken back, and shows it. */
export async function showUndos() {
  let list;
  try {
    ({ undos: list } = await request("/api/v1/undo"));
  } catch {
    return;
  }
  const known = new Set(list.map((undo) => undo.attempt));
  // One that is being looked at stays until it has been: its time may just be over.
  for (const [attempt, row] of rows) if (!known.has(attempt) && !row.node.contains(document.activeElement)) rows.delete(attempt);
  for (const undo of list) if (!rows.has(undo.attempt)) rows.set(undo.attempt, wayBack(undo));
  const nodes = [...rows.values()].map((row) => row.node);
  const place = byId("undo-list");
  if (nodes.length !== place.childElementCount || nodes.some((node, n) => place.children[n] !== node)) place.replaceChildren(...nodes);
  byId("undo").hidden = rows.size === 0;
  if (rows.size > 0) ticking ??= setInterval(tick, TICK);
}

function tick() {
  for (const row of rows.values()) row.show();
  if (rows.size === 0) {
    clearInterval(ticking);
    ticking = null;
  }
}

function wayBack(undo) {
  const until = moment(undo.until);
  const said = el("span", { className: "note", role: "status" });
  const time = el("span", { className: "time-left", "aria-hidden": "true" });
  const word = el("span", {});
  const what = `${plural(undo.files, "file")} in ${undo.project}`;
  const button = el("button", { type: "button", className: "secondary small", "aria-label": `Undo: ${what}`, data: { undo: undo.attempt } }, word, time);
  const node = el("li", { className: "way-back" }, el("span", {}, what), button, said);
  const show = () => {
    const inTime = until !== null && Date.now() < until.getTime();
    word.textContent = inTime ? "Undo" : "Ask to undo";
    time.textContent = inTime ? ` ${left(until)}` : "";
  };
  button.addEventListener("click", async () => {
    button.disabled = true;
    said.textContent = "";
    try {
      const answer = await request(`/api/v1/undo/${encodeURIComponent(undo.attempt)}`, { method: "POST" });
      if (answer.state === "asked") said.textContent = "It is asked above.";
      else if (answer.exit === "done") {
        rows.delete(undo.attempt);
        announce(`Undone: ${what}`);
      } else said.textContent = answer.text;
    } catch (error) {
      said.textContent = `${error.message} ${error.hint ?? ""}`.trim();
    }
    button.disabled = false;
    await showUndos();
  });
  show();
  return { node, show };
}
