// Keyboard shortcuts, and the list of them.

import { byId, el } from "./dom.js";

/** The keys, and what each does; the page's own surfaces have Alt and their number. */
const KEYS = [
  [["Enter"], "Send the message"],
  [["Shift", "Enter"], "Start a new line"],
  [["Esc"], "Stop what runs, or close what is open"],
  [["Alt", "N"], "Begin a new conversation"],
  [["Alt", "K"], "Search conversations"],
  [["Alt", "R"], "Rename this conversation, or choose its agent and model"],
  [["Alt", "P"], "Show the plan of this conversation"],
  [["Alt", "1"], "Chat; 2 Review, 3 Activity, 4 Work, 5 Agents, 6 Memory, 7 Settings"],
  [["?"], "Show this list"],
];

const TYPED_IN = "input, textarea, select, [contenteditable]";

/**
 * Listens for shortcuts. `actions`: `create()`, `search()`, `rename()`, `plan()`, and `stop()`, which answers whether something ran.
 */
export function listenKeys(actions) {
  byId("shortcut-list").replaceChildren(...KEYS.flatMap(([keys, what]) => [
    el("dt", {}, keys.flatMap((key, n) => (n === 0 ? [el("kbd", {}, key)] : [" + ", el("kbd", {}, key)]))),
    el("dd", {}, what),
  ]));
  byId("shortcuts-button").addEventListener("click", () => byId("shortcuts").showModal());
  const byAlt = { n: actions.create, k: actions.search, r: actions.rename, p: actions.plan };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.isComposing || event.defaultPrevented) return;
    const open = document.querySelector("dialog[open]") !== null;
    const typing = event.target instanceof Element && event.target.closest(TYPED_IN) !== null;
    // The letter of the key, whatever Alt makes of it on this keyboard.
    const letter = event.code.startsWith("Key") ? event.code.slice(3).toLowerCase() : "";
    if (event.altKey && !event.shiftKey && byAlt[letter] && !open) {
      event.preventDefault();
      byAlt[letter]();
    } else if (event.key === "?" && !event.altKey && !typing && !open) {
      event.preventDefault();
      byId("shortcuts").showModal();
    } else if (event.key === "Escape" && !open && document.body.dataset.surface === "stream" && actions.stop()) {
      event.preventDefault();
    }
  });
}
