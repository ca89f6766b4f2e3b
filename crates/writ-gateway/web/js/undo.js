// The way back from what was done: one tap while its time lasts, later a question.

import { announce } from "./announce.js";
import { request } from "./api.js";
import { el } from "./dom.js";
import { moment } from "./format.js";

/** How often the time that is left is shown anew, in milliseconds. */
const TICK = 1_000;

/** Minutes and seconds until a moment: `4:59`. */
const left = (until) => {
  const seconds = Math.max(0, Math.ceil((until.getTime() - Date.now()) / 1_000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
};

/** A button that takes back what was done, and what came of it. */
export function wayBack(undo) {
  const until = moment(undo.until);
  const said = el("span", { className: "note", role: "status" });
  const time = el("span", { className: "time-left", "aria-hidden": "true" });
  const word = el("span", {});
  const button = el("button", { type: "button", className: "secondary small", data: { undo: undo.attempt } }, word, time);
  const node = el("div", { className: "way-back" }, button, said);
  let timer = 0;
  const show = () => {
    const inTime = until !== null && Date.now() < until.getTime();
    word.textContent = inTime ? "Undo" : "Ask to undo";
    time.textContent = inTime ? ` ${left(until)}` : "";
    if (!inTime || !node.isConnected) clearInterval(timer);
  };
  timer = setInterval(show, TICK);
  word.textContent = "Undo";
  button.addEventListener("click", async () => {
    button.disabled = true;
    said.textContent = "";
    try {
      const answer = await request(`/api/v1/undo/${encodeURIComponent(undo.attempt)}`, { method: "POST" });
      if (answer.state === "asked") {
        said.textContent = "Its time was over: it is asked above.";
      } else if (answer.exit === "done") {
        clearInterval(timer);
        node.replaceChildren(el("span", { className: "note", role: "status" }, "Undone."));
        announce("Undone");
        return;
      } else {
        said.textContent = answer.text;
      }
    } catch (error) {
      said.textContent = `${error.message} ${error.hint ?? ""}`.trim();
    }
    button.disabled = false;
  });
  queueMicrotask(show);
  return node;
}
