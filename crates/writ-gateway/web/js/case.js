// One case: its conversation, who held it when, and what a person can do with it.

import { announce } from "./announce.js";
import { request, withQuery } from "./api.js";
import { caseActions } from "./caseactions.js";
import { traffic } from "./agents.js";
import { byId, el } from "./dom.js";
import { caseState, fleetPath } from "./fleet.js";
import { foreign, oneLine } from "./foreign.js";
import { clock, day, moment } from "./format.js";

/** How often an open case is looked at, in milliseconds. */
const EVERY = 2_000;
/** The newest messages that are in view. */
const MAX_MESSAGES = 200;

/** The words of the changes that end a holder's time. */
const CHANGES = {
  assigned: "given to another",
  renewed: "key renewed",
  escalated: "passed on",
  rerouted: "taken from it",
  queued: "put into the queue",
  taken: "taken by a person",
  handed_back: "handed back",
  closed: "closed",
};

const SENDERS = { guest: "Guest", router: "Router" };

/** The sender of a message in words. */
function sender(from) {
  const name = String(from ?? "");
  if (Object.hasOwn(SENDERS, name)) return SENDERS[name];
  const [, kind, who] = /^(agent|person) (.+)$/s.exec(name) ?? [];
  if (!kind) return oneLine(name, 80);
  return `${kind === "agent" ? "Agent" : "Person"} ${oneLine(who, 60)}`;
}

const kindOf = (from) => /^(guest|router|agent|person)/.exec(String(from ?? ""))?.[1] ?? "other";

function message(one) {
  const at = moment(one.at);
  return el("li", { className: "case-message", data: { from: kindOf(one.from), n: one.n } },
    el("p", { className: "note" }, el("strong", {}, sender(one.from)), " ", el("time", { dateTime: at?.toISOString() ?? "" }, at ? clock(at) : "")),
    foreign(one.text));
}

/** A time in which somebody had access, with the entry that says so. */
function holder(interval) {
  const [since, until] = [moment(interval.since), moment(interval.until)];
  const key = interval.holder.task ? `under the key ${String(interval.holder.task).slice(0, 16)}` : "a person, without a key";
  const end = until ? `${clock(until)}: ${CHANGES[interval.ended_by] ?? oneLine(interval.ended_by, 40)}` : "now";
  const why = interval.reason ? ` (${oneLine(interval.reason)})` : "";
  return el("li", { className: "case-holder" },
    el("p", {}, el("strong", {}, oneLine(interval.holder.name, 60)), ` ${since ? clock(since) : ""} to ${end}${why}`),
    el("p", { className: "note" }, `${since ? `${day(since)}, ` : ""}entry ${interval.began}, ${key}`));
}

/** A person's reading of the conversation, with the entry that says so. */
function reading(one) {
  const at = moment(one.at);
  return el("li", { className: "case-holder" },
    el("p", {}, el("strong", {}, oneLine(one.person, 60)), ` read the conversation ${at ? clock(at) : ""}`),
    el("p", { className: "note" }, `${at ? `${day(at)}, ` : ""}entry ${one.entry}`));
}

export class CaseSheet {
  #fleet;
  #dialog = byId("case");
  #id = null;
  #timer = null;
  /** Counts what was opened, so that answers about an earlier case are not shown in a later one. */
  #opened = 0;
  #last = 0;
  #isOpen = true;
  #held = null;
  #actions = null;
  /** The name of the last agent that held it. */
  #earlier = null;

  constructor(fleet) {
    this.#fleet = fleet;
    this.#dialog.addEventListener("close", () => {
      clearTimeout(this.#timer);
      this.#opened += 1;
      this.#id = null;
    });
  }

  /** Brings a case into view. */
  open(id) {
    this.#opened += 1;
    this.#id = id;
    this.#last = 0;
    this.#isOpen = true;
    this.#held = null;
    this.#actions = null;
    this.#earlier = null;
    for (const part of ["case-facts", "case-messages", "case-holders", "case-actions"]) byId(part).replaceChildren();
    byId("case-note").textContent = "Loading.";
    byId("case-earlier").hidden = true;
    byId("case-wrong").hidden = true;
    this.show();
    if (!this.#dialog.open) this.#dialog.showModal();
    byId("case-body").focus({ preventScroll: true });
    this.#look();
  }

  /** Shows what the fleet says of it now. */
  show() {
    if (this.#id === null) return;
    const one = this.#fleet.find(this.#id);
    const state = this.#isOpen ? one?.state ?? null : "closed";
    byId("case-title").textContent = one ? `Case ${oneLine(one.capability, 60)}` : "Case";
    const since = moment(one?.since);
    const facts = [
      ["State", state === null ? "not listed" : caseState(state)],
      ["Holder", one?.holder ? `${oneLine(one.holder, 60)}${since ? ` since ${clock(since)}` : ""}` : "no one"],
      ["Reason", one?.reason ? oneLine(one.reason, 2_000) : null],
      ["Traffic", one ? traffic(one).join(", ") || null : null],
      ["Token", one ? oneLine(one.case_token, 100) : null],
      ["Case", this.#id],
    ];
    byId("case-facts").replaceChildren(...facts.filter(([, value]) => value !== null).flatMap(([name, value]) => [el("dt", {}, name), el("dd", { data: { fact: name } }, value)]));
    this.#showActions(state);
    const held = JSON.stringify([state, one?.holder, one?.since]);
    if (held !== this.#held) {
      this.#held = held;
      this.#readHolders();
    }
  }

  #showActions(state) {
    const place = byId("case-actions");
    // What is being written stays, unless it cannot be done any more.
    if (this.#actions?.state === state) return;
    const changed = this.#actions?.isWriting() === true;
    const focused = place.contains(document.activeElement);
    this.#actions = caseActions(this.#id, state, {
      agents: () => this.#fleet.status.agents,
      earlier: () => this.#earlier,
      done: (text) => this.#done(text),
    });
    place.replaceChildren(this.#actions.node);
    if (changed) place.prepend(el("p", { className: "problem", role: "alert" }, `Not sent: the case has changed, it is ${caseState(state ?? "closed")} now.`));
    if (focused) (place.querySelector("button") ?? byId("case-body")).focus({ preventScroll: true });
  }

  #done(text) {
    byId("case-note").textContent = text;
    announce(text);
    this.#held = null;
    this.#fleet.refresh();
    this.#look();
  }

  async #look() {
    clearTimeout(this.#timer);
    const opened = this.#opened;
    try {
      // The rest of a long conversation comes page by page.
      while ((await this.#readMessages(opened)) > 0);
    } catch (error) {
      if (opened !== this.#opened) return;
      byId("case-note").textContent = `${error.message} ${error.hint ?? ""}`.trim();
    }
    if (opened !== this.#opened) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#look(), EVERY);
  }

  async #readMessages(opened) {
    const page = await request(withQuery(fleetPath("messages"), { case: this.#id, after: this.#last }));
    if (opened !== this.#opened) return 0;
    const fresh = page.messages.filter((one) => one.n > this.#last);
    const list = byId("case-messages");
    const body = byId("case-body");
    const follows = this.#last === 0 || body.scrollHeight - body.scrollTop - body.clientHeight < 40;
    list.append(...fresh.map(message));
    while (list.childElementCount > MAX_MESSAGES) {
      list.firstElementChild.remove();
      byId("case-earlier").hidden = false;
    }
    this.#last = fresh.at(-1)?.n ?? this.#last;
    byId("case-earlier").textContent = `Earlier messages: writ fleet messages ${this.#id}`;
    const note = byId("case-note");
    if (note.textContent === "Loading.") note.textContent = "";
    if (fresh.length > 0 && follows) list.lastElementChild.scrollIntoView({ block: "nearest" });
    if (page.is_open !== this.#isOpen) {
      this.#isOpen = page.is_open;
      this.show();
    }
    return page.messages.length;
  }

  /** Reads who held it when, from the ledger. */
  async #readHolders() {
    const opened = this.#opened;
    let access;
    try {
      access = await request(withQuery(fleetPath("access"), { case: this.#id }));
    } catch {
      // Read again with the next change.
      if (opened === this.#opened) this.#held = null;
      return;
    }
    if (opened !== this.#opened) return;
    this.#earlier = access.holders.findLast((interval) => interval.holder.task)?.holder.name ?? null;
    byId("case-holders").replaceChildren(...access.holders.map(holder), ...(access.readings ?? []).map(reading));
    const wrong = byId("case-wrong");
    wrong.hidden = access.contradictions.length === 0;
    wrong.textContent = `The ledger contradicts itself at ${access.contradictions.map((entry) => `entry ${entry}`).join(", ")}.`;
  }
}
