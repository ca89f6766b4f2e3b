// What of this conversation waits for an answer, above the message box: answers are given at the cards, and what is written
// below is a message.

import { byId, el } from "./dom.js";
import { plural } from "./format.js";

/** Open cards that are named; more are told as a number. */
const MAX_NAMED = 3;

export class OpenCards {
  #cards = new Map();
  #find;

  /** `find` answers with the node of the turn that has asked. */
  constructor(find) {
    this.#find = find;
  }

  clear() {
    this.#cards.clear();
    this.#show();
  }

  /** The session is joined: these are open, and no others. */
  only(open) {
    for (const ask of this.#cards.keys()) if (!open.includes(ask)) this.#cards.delete(ask);
    this.#show();
  }

  /** A card; one of the history is open only where it was listed. */
  add(ask, text, isOpen) {
    if (!isOpen || this.#cards.has(ask)) return;
    this.#cards.set(ask, text);
    this.#show();
  }

  remove(ask) {
    if (this.#cards.delete(ask)) this.#show();
  }

  #show() {
    const place = byId("open-cards");
    place.hidden = this.#cards.size === 0;
    const named = [...this.#cards].slice(0, MAX_NAMED);
    const more = this.#cards.size - named.length;
    place.replaceChildren(
      el("p", { className: "note" }, `${plural(this.#cards.size, "question")} of this conversation ${this.#cards.size === 1 ? "waits" : "wait"} for your answer. What you write here is a message.`),
      el("ul", {}, named.map(([ask, text]) => el("li", {}, el("button", { type: "button", className: "quiet small", data: { openAsk: ask }, onclick: () => this.#go(ask) }, text)))),
      ...(more > 0 ? [el("p", { className: "note" }, `and ${more} more`)] : []));
  }

  /** Brings the card into view: a gate stands in its turn, the others in Review. */
  #go(ask) {
    const gate = this.#find(ask)?.querySelector(`.gate[data-ask="${CSS.escape(ask)}"]`);
    if (gate) gate.scrollIntoView({ block: "center" });
    else location.hash = `#/review?ask=${encodeURIComponent(ask)}`;
  }
}
