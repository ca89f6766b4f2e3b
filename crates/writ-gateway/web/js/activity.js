// Activity: the ledger as a timeline, newest first.

import { Refused, request, withQuery } from "./api.js";
import { append, byId, el } from "./dom.js";
import { clock, day, event, EVENTS, moment, plural, state } from "./format.js";
import { origins } from "./origins.js";

/** Entries of one page. */
const PAGE = 50;
/** How long typing must rest before it is searched for, in milliseconds. */
const REST = 250;

export class Activity {
  #session;
  #range = null;
  #oldest = null;
  #newest = null;
  #day = null;
  /** The rows that others join, by what their entries are about. */
  #calls = new Map();
  #timer = null;
  /** Counts the reads, so that an old answer does not overtake a new one. */
  #read = 0;
  #loaded = false;

  /** `session` answers with the session in view. */
  constructor(session) {
    this.#session = session;
    byId("filter-event").append(el("option", { value: "" }, "All events"), ...Object.entries(EVENTS).map(([name, text]) => el("option", { value: name }, text)));
    byId("filters").addEventListener("submit", (submit) => {
      submit.preventDefault();
      this.reload();
    });
    for (const id of ["filter-event", "filter-session"]) byId(id).addEventListener("change", () => this.reload());
    byId("filter-text").addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.reload(), REST);
    });
    byId("older").addEventListener("click", () => this.#older());
    byId("range-clear").addEventListener("click", () => {
      this.#range = null;
      this.reload();
    });
  }

  /** Shows the entries that a reply rests on. */
  showRange(from, to) {
    this.#range = { from, to };
    byId("filters").reset();
    this.reload();
  }

  /** Comes into view: reads what is new. */
  shown() {
    if (!this.#loaded) this.reload();
    else this.#newer();
  }

  /** Something has happened: the timeline follows, unless somebody reads in it. */
  grown() {
    const reads = document.querySelector("#timeline details[open]") || byId("activity-scroll").scrollTop > 0;
    if (this.#loaded && !this.#range && !reads) this.#newer();
  }

  async reload() {
    const read = ++this.#read;
    this.#loaded = true;
    const range = byId("range");
    range.hidden = this.#range === null;
    if (this.#range) byId("range-text").textContent = `Sources of the reply: entries ${this.#range.from} to ${this.#range.to}`;
    const answer = await this.#fetch(this.#range ? { before: this.#range.to + 1 } : {});
    if (!answer || read !== this.#read) return;
    // What somebody has opened meanwhile stays open.
    const key = (node) => node.dataset.seq ?? `call ${node.dataset.call}`;
    const open = [...document.querySelectorAll("#timeline details[open]")].map(key);
    byId("timeline").replaceChildren();
    this.#oldest = this.#newest = this.#day = null;
    this.#calls.clear();
    this.#append(answer);
    for (const node of document.querySelectorAll("#timeline details")) node.open = open.includes(key(node));
    byId("activity-scroll").scrollTop = 0;
  }

  async #older() {
    const read = ++this.#read;
    const answer = await this.#fetch({ before: this.#oldest });
    if (answer && read === this.#read) this.#append(answer);
  }

  /** Reads anew if something has come. */
  async #newer() {
    if (this.#range) {
      this.#range = null;
      return this.reload();
    }
    const answer = await this.#fetch({});
    if (answer && (answer.entries[0]?.seq ?? null) !== this.#newest) return this.reload();
    return undefined;
  }

  async #fetch(more) {
    const text = byId("filter-text").value.trim();
    const session = byId("filter-session").value === "this" ? this.#session() : "";
    const query = { limit: PAGE, event: byId("filter-event").value, session, q: text, ...more };
    const note = byId("activity-note");
    try {
      const answer = await request(withQuery("/api/v1/ledger", query));
      answer.entries.sort((a, b) => b.seq - a.seq);
      if (Number.isInteger(answer.size)) byId("ledger-size").textContent = plural(answer.size, "entry", "entries");
      return answer;
    } catch (error) {
      note.textContent = error instanceof Refused ? `${error.message} ${error.hint}` : "The ledger could not be read.";
      return null;
    }
  }

  #append(answer) {
    const from = this.#range?.from ?? -1;
    const entries = answer.entries.filter((entry) => entry.seq >= from);
    for (const entry of entries) this.#row(entry);
    const last = answer.entries.at(-1);
    if (last) this.#oldest = last.seq;
    this.#newest ??= answer.entries[0]?.seq ?? null;
    const whole = answer.entries.length < PAGE || (last && last.seq <= Math.max(from, 0));
    byId("older").hidden = whole;
    const none = byId("timeline").childElementCount === 0;
    byId("activity-note").textContent = none ? "No entry matches." : "";
  }

  #row(entry) {
    const call = entry.payload?.attempt ?? entry.payload?.ask;
    const joined = call ? this.#calls.get(call) : undefined;
    if (joined) {
      joined.add(entry);
      // What was asked before it was done is part of the same row.
      if (entry.payload.approval) this.#calls.set(entry.payload.approval, joined);
      return;
    }
    const at = moment(entry.at);
    const date = at ? day(at) : "";
    if (date !== this.#day) {
      this.#day = date;
      byId("timeline").append(el("h2", { className: "label day" }, date), el("ol", { className: "entries" }));
    }
    const first = row(entry, at);
    byId("timeline").lastElementChild.append(first);
    if (call) this.#calls.set(call, new Call(first, entry));
  }
}

/** The entries of one call of a tool or a model, as one row that opens: the newest says how it went. */
class Call {
  #node;
  #entries;
  #list = null;

  constructor(node, entry) {
    this.#node = node;
    this.#entries = [entry];
  }

  /** An older entry of the same call. */
  add(entry) {
    this.#entries.push(entry);
    if (this.#list === null) this.#gather();
    this.#list.append(row(entry, moment(entry.at)));
    const { title, summary } = telling(this.#entries);
    this.#node.querySelector(".call > summary .event").textContent = title;
    this.#node.querySelector(".call > summary .entry-summary").textContent = summary;
  }

  #gather() {
    const newest = this.#entries[0];
    const at = moment(newest.at);
    const inner = this.#node.firstElementChild;
    this.#list = el("ol", { className: "entries of-call" });
    const node = el("details", { className: "call", data: { event: newest.event, call: newest.seq } }, head(newest, at), this.#list);
    this.#node.replaceChildren(node);
    this.#list.append(el("li", {}, inner));
  }
}

/** What a call was, and how it went, from its entries, newest first. */
function telling(entries) {
  const of = (name) => entries.find((entry) => entry.event === name);
  const [intent, asked, ended] = [of("intent"), of("asked"), of("outcome") ?? of("applied") ?? of("answered") ?? of("model_called")];
  const act = intent ?? asked ?? entries.at(-1);
  const went = ended ? how(ended) : intent ? "under way" : "open";
  const title = of("model_called") ? "Model call" : intent ? "Call" : event(act.event);
  const summary = ended?.event === "outcome" && ended.summary ? `${act.summary ?? ""} \u2192 ${ended.summary}` : act.summary ?? "";
  return { title: `${title}: ${went}`, summary };
}

/** How it ended, from the entry that says so. */
function how({ event: name, payload }) {
  if (name === "outcome") return state(payload?.outcome);
  if (name === "model_called") return payload?.error ? "failed" : "done";
  return event(name).toLowerCase();
}

function head(entry, at) {
  return el("summary", {},
    el("span", { className: "dot", "aria-hidden": "true" }),
    el("time", { dateTime: at?.toISOString() ?? "" }, at ? clock(at) : ""),
    el("span", { className: "event" }, event(entry.event)),
    el("span", { className: "entry-summary" }, entry.summary ?? ""),
    entry.taint === "external" ? el("span", { className: "taint", title: "Depends on external content" }, "external") : null,
  );
}

function row(entry, at) {
  const body = el("div", { className: "entry-body" });
  const details = el("details", { className: "entry", data: { event: entry.event, seq: entry.seq } }, head(entry, at), body);
  details.addEventListener("toggle", () => {
    if (details.open && body.childElementCount === 0) fill(body, entry);
  });
  return el("li", {}, details);
}

/** Entries that rest on others. */
const LABELLED = new Set(["received", "intent", "outcome", "asked", "replied"]);

/** What an entry says, in full; built when it is looked at. */
function fill(body, entry) {
  const facts = [["Entry", entry.seq], ["Conversation", entry.session], ["Turn", entry.turn]];
  append(body, [
    el("dl", { className: "entry-facts" }, facts.filter(([, value]) => value !== null && value !== undefined).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))])),
    el("pre", { tabIndex: 0, role: "region", "aria-label": "The entry's content" }, el("code", {}, JSON.stringify(entry.payload, null, 2))),
    LABELLED.has(entry.event) ? origins(`ledger/${encodeURIComponent(entry.seq)}`, "Sources") : null,
    el("a", { className: "quiet small button", href: `api/v1/ledger/${encodeURIComponent(entry.seq)}/proof`, download: `writ-proof-${entry.seq}.json` }, "Download proof"),
  ]);
}
