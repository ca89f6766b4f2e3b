// Memory: what is remembered, found by its words, changed and put aside; and what waits for the person's word.

import { announce } from "./announce.js";
import { request, withQuery } from "./api.js";
import { byId, el } from "./dom.js";
import { foreign, oneLine } from "./foreign.js";
import { moment, plural, when } from "./format.js";

/** Memories that are listed at once. */
const MAX_LISTED = 200;
/** How long to wait after a key before memories are searched, in milliseconds. */
const SEARCH_REST = 250;

const said = (error) => [error.message, error.hint].filter(Boolean).join(" ");

export class Memory {
  #changed;
  #pending = { pending: [], questions: [] };
  #timer = null;
  /** Counts the readings, so that an old answer does not overtake a new one. */
  #readings = 0;
  /** The note about the memory that was put aside last: it stands, whatever is read meanwhile, until other words are searched. */
  #aside = "";

  /** `changed` is called when the number of memories that wait has changed. */
  constructor(changed) {
    this.#changed = changed;
    byId("memory-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#aside = "";
      this.show();
    });
    byId("memory-text").addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#aside = "";
      this.#timer = setTimeout(() => this.show(), SEARCH_REST);
    });
  }

  /** The number of memories and questions that wait. */
  get waiting() {
    return this.#pending.pending.length + this.#pending.questions.length;
  }

  // --- What waits ---

  /** Reads what waits, and shows it in Review. */
  async look() {
    let pending;
    try {
      pending = await request("/api/v1/memory/pending");
    } catch {
      return;
    }
    const before = JSON.stringify(this.#pending);
    this.#pending = pending;
    if (JSON.stringify(pending) === before) return;
    const rows = [
      ...pending.questions.map((question) => this.#card(question.id, question.text, question.reason, question.other)),
      ...pending.pending.map((memory) => this.#card(memory.id, memory.text, memory.taint === "external" ? "It is from outside." : "It was noticed.", null)),
    ];
    byId("memories-pending").replaceChildren(...rows);
    byId("memories-part").hidden = rows.length === 0;
    this.#changed();
  }

  #card(id, text, reason, other) {
    const answer = (confirm) => this.#answer(id, confirm);
    return el("li", { className: "memory-card", data: { memory: id } },
      foreign(text),
      other ? el("p", { className: "note" }, "It contradicts: ", el("q", { dir: "auto" }, oneLine(other.text))) : null,
      el("p", { className: "note" }, oneLine(reason)),
      el("div", { className: "actions" },
        el("button", { type: "button", className: "quiet small", data: { answer: "no" }, onclick: () => answer(false) }, "No", el("span", { className: "visually-hidden" }, `: ${oneLine(text, 60)}`)),
        el("button", { type: "button", className: "secondary small", data: { answer: "yes" }, onclick: () => answer(true) }, "Yes, remember it", el("span", { className: "visually-hidden" }, `: ${oneLine(text, 60)}`))));
  }

  async #answer(id, confirm) {
    try {
      await request("/api/v1/memory/confirm", { method: "POST", body: { id, confirm } });
      byId("memories-said").textContent = "";
      announce(confirm ? "It is remembered" : "It is not remembered");
    } catch (error) {
      byId("memories-said").textContent = said(error);
    }
    await this.look();
  }

  // --- The list ---

  /** Whether a memory is being changed: what is typed there is not replaced by an answer about the list. */
  get #editing() {
    return byId("memory-list").querySelector(".memory-edit") !== null;
  }

  /** Shows the newest memories, or those that fit the words; `anew` also where one is being changed. */
  async show(anew = false) {
    if (this.#editing && !anew) return;
    const reading = ++this.#readings;
    const words = byId("memory-text").value.trim();
    let found;
    try {
      found = await request(words === "" ? withQuery("/api/v1/memory", { limit: MAX_LISTED }) : withQuery("/api/v1/memory/search", { query: words, limit: MAX_LISTED }));
    } catch (error) {
      byId("memory-note").textContent = said(error);
      return;
    }
    if (reading !== this.#readings || (this.#editing && !anew)) return;
    byId("memory-size").textContent = plural(found.hits.length, "memory", "memories");
    byId("memory-note").textContent = this.#aside || found.note || (found.hits.length > 0 ? "" : words === "" ? "Nothing is remembered yet." : "Nothing fits these words.");
    byId("memory-list").replaceChildren(...found.hits.map((memory) => this.#row(memory)));
  }

  #row(memory) {
    const at = moment(memory.at);
    const facts = [memory.kind, memory.trust, memory.taint === "external" ? "from outside" : null, memory.secret ? "secret" : null, at ? when(at) : null, ...(memory.reasons ?? []).map((reason) => oneLine(reason, 80))];
    const node = el("li", { className: "memory-row", data: { memory: memory.id } });
    const problem = el("p", { className: "note", role: "status" });
    const actions = el("div", { className: "actions" },
      memory.taint === "external" ? null : el("button", { type: "button", className: "quiet small", data: { edit: memory.id }, onclick: () => this.#edit(node, memory) }, "Edit", el("span", { className: "visually-hidden" }, `: ${oneLine(memory.text, 60)}`)),
      el("button", { type: "button", className: "quiet small", data: { forget: memory.id }, onclick: () => this.#forget(memory, problem) }, "Forget", el("span", { className: "visually-hidden" }, `: ${oneLine(memory.text, 60)}`)));
    node.append(foreign(memory.text), el("p", { className: "note" }, facts.filter(Boolean).join(" \u00b7 ")), actions, problem);
    return node;
  }

  #edit(node, memory) {
    const box = el("textarea", { rows: 3, maxLength: 8_000, value: memory.text, "aria-label": "Text of the memory" });
    const problem = el("p", { className: "note", role: "status" });
    const form = el("form", { className: "memory-edit" }, box,
      el("div", { className: "actions" }, el("button", { type: "button", className: "quiet small", onclick: () => this.show(true) }, "Back"), el("button", { type: "submit", className: "secondary small" }, "Save")), problem);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      try {
        await request("/api/v1/memory/edit", { method: "POST", body: { id: memory.id, text: box.value.trim() } });
        announce("The memory is changed");
        await this.show(true);
      } catch (error) {
        problem.textContent = said(error);
      }
    });
    node.replaceChildren(form);
    box.focus();
  }

  async #forget(memory, problem) {
    try {
      await request("/api/v1/memory/set-aside", { method: "POST", body: { id: memory.id } });
      this.#aside = `"${oneLine(memory.text, 80)}" is put aside and not found any more. In a terminal, \u201cwrit memory undo\u201d brings it back and \u201cwrit memory forget ${memory.id}\u201d erases it.`;
      await this.show();
      announce("It is forgotten");
    } catch (error) {
      problem.textContent = said(error);
    }
  }
}
