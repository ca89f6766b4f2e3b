// Context: what the model of a conversation sees, what each part costs, what is new since the last turn, and what stays.

import { announce } from "./announce.js";
import { request } from "./api.js";
import { byId, el } from "./dom.js";
import { oneLine } from "./foreign.js";
import { dollars, plural, thousands } from "./format.js";

const ZONES = {
  system: "Always there",
  memory: "Memories",
  chronicle: "Conversation",
  workspace: "Work of the turn",
  current: "The message",
};

const LEFT = {
  summarised: "A summary stands for it",
  carried: "Stands beside the summary",
  shortened: "Shortened",
  left_out: "Left out of the next request",
};

/** What makes an item the same in two views. */
const identity = (item) => (item.row === null ? `${item.zone}/${item.source}/${item.begins}` : `row ${item.row}`);

const sum = (items, field) => items.reduce((whole, item) => whole + (item[field] ?? 0), 0);
const path = (session, more = "") => `/api/v1/sessions/${encodeURIComponent(session)}/context${more}`;

export class ContextSheet {
  #session;
  /** The context after the last turn that has ended here, and after the one before, by conversation. */
  #now = new Map();
  #before = new Map();
  #busy = false;

  /** `session()` answers with the conversation in view. */
  constructor(session) {
    this.#session = session;
    byId("context-button").addEventListener("click", () => this.open());
  }

  /** A turn has ended: what was in the context until then is what the next one is compared with. */
  async ended() {
    const session = this.#session();
    let view;
    try {
      view = await request(path(session));
    } catch {
      return;
    }
    const known = this.#now.get(session);
    if (known) this.#before.set(session, known);
    this.#now.set(session, new Set(view.items.map(identity)));
    if (byId("context").open) await this.#read();
  }

  async open() {
    byId("context-body").replaceChildren(el("p", { className: "note" }, "Looking."));
    byId("context").showModal();
    await this.#read();
  }

  async #read() {
    const session = this.#session();
    let view;
    let diff;
    try {
      [view, diff] = await Promise.all([request(path(session)), request(path(session, "/diff"))]);
    } catch (error) {
      byId("context-body").replaceChildren(el("p", { className: "problem", role: "alert" }, [error.message, error.hint].filter(Boolean).join(" ")));
      return;
    }
    // Another conversation came into view meanwhile.
    if (session !== this.#session()) return;
    byId("context-body").replaceChildren(this.#head(view), ...this.#zones(view), ...this.#left(view, diff), ...compactions(view));
  }

  #head(view) {
    const share = view.budget > 0 ? Math.round((100 * view.used) / view.budget) : 0;
    const meter = el("progress", { max: Math.max(1, view.budget), value: view.used, "aria-label": `${share} % of the budget is used` });
    const facts = [
      view.model ? oneLine(view.model, 80) : "no model",
      `${thousands(view.used)} of ${thousands(view.budget)} tokens`,
      view.cost_micro_usd === null ? "its price is not known" : `${dollars(view.cost_micro_usd)} to send it once, uncached`,
      `profile ${oneLine(view.profile, 40)}`,
      view.taint === "external" ? "depends on external content" : null,
    ];
    const said = el("p", { className: "note", role: "status", id: "context-said" });
    const compact = el("button", { type: "button", className: "secondary small", id: "context-compact", onclick: () => this.#compact(said, view) }, "Summarise what is older");
    const compared = this.#before.has(view.session) ? "Marked as new: what came with the last turn." : "After the next turn, what is new is marked.";
    return el("div", { className: "context-head" }, meter, el("p", { className: "facts" }, facts.filter(Boolean).join(" \u00b7 ")),
      el("p", { className: "note" }, `Above ${thousands(view.compacts_above)} tokens the older part is summarised; nothing of the history is deleted. ${compared}`), compact, said);
  }

  #zones(view) {
    const before = this.#before.get(view.session);
    const fresh = (item) => before !== undefined && !before.has(identity(item));
    return Object.keys(ZONES).flatMap((zone) => {
      const items = view.items.filter((item) => item.zone === zone);
      if (items.length === 0) return [];
      const added = items.filter(fresh).length;
      const facts = [plural(items.length, "part"), `${thousands(sum(items, "tokens"))} tokens`, view.cost_micro_usd === null ? null : dollars(sum(items, "cost_micro_usd")), added > 0 ? `${added} new` : null];
      return el("details", { className: "zone", open: zone !== "system", data: { zone } },
        el("summary", {}, el("strong", {}, ZONES[zone]), el("span", { className: "note" }, facts.filter(Boolean).join(" \u00b7 "))),
        el("ul", { className: "parts" }, items.map((item) => this.#item(view, item, fresh(item)))));
    });
  }

  #item(view, item, isNew) {
    const facts = [oneLine(item.source, 60), `${thousands(item.tokens)} tokens`, item.cost_micro_usd === null ? null : dollars(item.cost_micro_usd), isNew ? "new" : null, item.taint === "external" ? "external" : null];
    return el("li", { data: { row: item.row ?? "", fresh: String(isNew), pinned: String(item.pinned) } },
      el("span", { className: "part-begins", dir: "auto" }, oneLine(item.begins || item.source, 160)),
      el("span", { className: "note" }, facts.filter(Boolean).join(" \u00b7 ")),
      item.row === null ? null : this.#pin(view.session, item.row, view.pins.includes(item.row), item.begins));
  }

  #pin(session, row, pinned, begins) {
    return el("button", { type: "button", className: "quiet small", "aria-pressed": String(pinned), data: { pin: row }, onclick: (event) => this.#keep(session, row, pinned, event.currentTarget) },
      pinned ? "Unpin" : "Pin", el("span", { className: "visually-hidden" }, `: ${oneLine(begins, 60)}`));
  }

  async #keep(session, row, pinned, button) {
    button.disabled = true;
    try {
      await request(`/api/v1/context/${pinned ? "unpin" : "pin"}`, { method: "POST", body: { session, row } });
      announce(pinned ? "It may leave with the others" : "It stays in the context");
      await this.#read();
      byId("context-body").querySelector(`[data-pin="${row}"]`)?.focus();
    } catch (error) {
      button.disabled = false;
      byId("context-said").textContent = [error.message, error.hint].filter(Boolean).join(" ");
    }
  }

  #left(view, diff) {
    if (diff.changed.length === 0) return [];
    const rows = diff.changed.map((message) => el("li", { data: { row: message.row, left: message.state } },
      el("span", { className: "part-begins", dir: "auto" }, oneLine(message.begins, 160)),
      el("span", { className: "note" }, LEFT[message.state] ?? message.state),
      this.#pin(view.session, message.row, view.pins.includes(message.row), message.begins)));
    const more = diff.more > 0 ? el("li", { className: "note" }, `${plural(diff.more, "older message")} not listed here.`) : null;
    return [el("details", { className: "zone", data: { zone: "left" } },
      el("summary", {}, el("strong", {}, "Not there word for word"), el("span", { className: "note" }, `${diff.whole} of ${plural(diff.messages, "message")} stand there whole`)),
      el("ul", { className: "parts" }, rows, more))];
  }

  async #compact(said, view) {
    if (this.#busy) return;
    this.#busy = true;
    said.textContent = "Summarising.";
    try {
      const { compaction } = await request(`/api/v1/sessions/${encodeURIComponent(view.session)}/compact`, { method: "POST" });
      const text = compaction ? `${plural(compaction.messages, "message")} summarised: ${thousands(compaction.tokens_before)} tokens became ${thousands(compaction.tokens_after)}.` : "There is nothing older to summarise.";
      announce(text);
      await this.#read();
      byId("context-said").textContent = text;
    } catch (error) {
      said.textContent = [error.message, error.hint].filter(Boolean).join(" ");
    }
    this.#busy = false;
  }
}

function compactions(view) {
  return view.compactions.map((one) => el("details", { className: "zone", data: { zone: "compaction" } },
    el("summary", {}, el("strong", {}, `Summary ${one.number}`), el("span", { className: "note" }, `${plural(one.messages, "message")} \u00b7 ${thousands(one.tokens_before)} to ${thousands(one.tokens_after)} tokens \u00b7 by ${oneLine(one.by, 60)}`)),
    el("p", { className: "foreign", dir: "auto" }, oneLine(one.summary, 4_000))));
}
