// Review: what waits for an answer, one card at a time.

import { announce } from "./announce.js";
import { request } from "./api.js";
import { byId, el, icon, ICONS } from "./dom.js";
import { follows, moment, plural, risk, until } from "./format.js";
import { showCadence } from "./cadence.js";
import { showGroups } from "./groups.js";
import { showInForce } from "./inforce.js";
import { confirmSlide, confirmTap, elsewhere, needs, outlives } from "./ladder.js";
import { origins } from "./origins.js";
import * as passkey from "./passkey.js";
import { counts, fits, plain, shown } from "./shown.js";
import { showUndos } from "./undo.js";

/** Decisions of this visit that stay in view. */
const MAX_DECIDED = 5;
/** How often cards are looked for that other sessions have asked, in milliseconds. */
const LOOK = 15_000;
/** Marks for the queue's density; more than these are told as a number. */
const MAX_TICKS = 12;

/** What a standing approval from this page allows, as the server signs it: how often, and for how long in seconds. */
const USES = 10;
const SECS = 7 * 86_400;

const LABELS = { approve: "Approve", approve_values: "Approve, and these values are mine", approve_host: "Approve and trust this host", deny: "Deny" };
/** The same where there is little room, and what it covers stands above it. */
const SHORT = { approve_task: "Approve later ones too", approve_standing: "Allow within limits" };
/** An answer with how far it reaches, in a word. */
const kind = (choice) => ((choice.scope ?? "once") === "once" ? choice.decision : `${choice.decision}_${choice.scope}`);
const word = (decision) => LABELS[decision] ?? decision.charAt(0).toUpperCase() + decision.slice(1).replaceAll("_", " ");

/** What an answer to a card is called, with how often and how long it holds. */
function label(decision, card) {
  const within = (uses, secs) => `(${plural(uses, "time")}, ${span(secs)})`;
  if (decision === "approve_task" && card.task) {
    const what = card.action === "write_file" ? "Also approve later changes to this folder, unseen" : "Also approve similar requests, unseen";
    return `${what} ${within(card.task.uses, card.task.secs)}`;
  }
  if (decision === "approve_standing" && card.standing) {
    return `Allow this exact request ${within(Math.min(USES, card.standing.max_uses), Math.min(SECS, card.standing.max_secs))}`;
  }
  return word(decision);
}

/** A time in the largest unit that fits. */
function span(secs) {
  const units = [[86_400, "day"], [3_600, "hour"], [60, "minute"]];
  const [size, unit] = units.find(([size]) => secs > size && secs % size === 0) ?? [60, "minute"];
  return plural(Math.max(1, Math.round(secs / size)), unit);
}

const REASONS = ["Not needed", "Wrong target", "Too risky", "Do it another way"];

export class Review {
  /** The open asks in the order in which they were asked. */
  #asks = new Map();
  /** The card in view. */
  #current = null;
  /** The answer that is under way: the card and what was said. */
  #answering = null;
  #connection;
  #decided = [];
  #passkeys = null;
  /** Whether somebody has come with a code and touched nothing yet: they are shown the form, however much comes above it. */
  #brought = false;
  #changed;
  #nameOf;
  #open;

  /** `nameOf` names a conversation, `open` brings it into view. */
  constructor(connection, changed, { nameOf, open }) {
    this.#connection = connection;
    this.#nameOf = nameOf;
    this.#open = open;
    this.#changed = changed;
    setInterval(() => {
      if (!document.hidden && connection.open) this.refresh();
    }, LOOK);
    for (const touch of ["pointerdown", "keydown", "wheel", "click", "submit"]) {
      addEventListener(touch, () => { this.#brought = false; }, { passive: true });
    }
    new ResizeObserver(() => this.#toKeys()).observe(byId("card-place"));
    byId("keys").addEventListener("toggle", () => this.#showKeys());
    byId("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#enrol();
    });
  }

  get count() {
    return this.#asks.size;
  }

  /** Returns true while there is something to look at: a card, or what came of the last one. */
  get inView() {
    return this.count > 0 || !byId("just-decided").hidden;
  }

  /** What came of the last card has been seen. */
  dismiss() {
    byId("just-decided").hidden = true;
    this.#changed();
  }

  isOpen(ask) {
    return this.#asks.has(ask);
  }

  /** Reads what is open from the server. */
  async refresh() {
    let answer;
    try {
      answer = await request("/api/v1/approvals");
    } catch {
      return;
    }
    showInForce();
    showCadence(() => this.refresh());
    showUndos();
    const open = (answer.asks ?? []).filter((card) => card.state === "open");
    const known = new Set(open.map((card) => card.ask_id));
    let other = false;
    for (const id of this.#asks.keys()) {
      if (!known.has(id) && this.#answering?.card.ask_id !== id) other = this.#asks.delete(id) || other;
    }
    for (const card of open) other = this.#add(card) || other;
    if (other || !this.#current) this.#show();
    this.#toKeys();
  }

  async refreshKeys() {
    this.#passkeys = passkey.supported() ? await passkey.list().catch(() => null) : null;
    byId("keys").hidden = this.#passkeys === null;
    this.#toKeys();
  }

  /** Shows where a passkey is added, with the code that a link has brought. */
  code(code) {
    byId("key-code").value = code;
    byId("keys").open = true;
    this.#brought = true;
    this.#toKeys();
  }

  /** Whoever came with a code sees where it goes, also when cards and keys come only then; from the first touch on they look where they like. */
  #toKeys() {
    if (!this.#brought || byId("keys").hidden) return;
    byId("key-form").scrollIntoView({ block: "center" });
    const nowhere = [null, document.body].includes(document.activeElement);
    if (nowhere) byId("key-add").focus({ preventScroll: true });
  }

  /** Brings a card into view, if it is open. */
  show(ask) {
    const card = this.#asks.get(ask);
    if (!card || this.#answering) return;
    this.#current = card;
    byId("card-place").replaceChildren();
    this.#show();
  }

  /** Takes up a card that has just been asked. */
  asked(card) {
    if (!this.#add(card)) return;
    announce(`Waits for your answer: ${card.intent}`);
    this.#show();
  }

  /** Hears that an ask was answered or has ended, here or elsewhere. */
  resolved(frame) {
    const card = this.#asks.get(frame.ask_id);
    const mine = this.#answering?.card.ask_id === frame.ask_id;
    if (card) this.#remember(card, frame);
    else this.#update(frame);
    this.#asks.delete(frame.ask_id);
    if (mine) this.#answering = null;
    if (card) this.#show();
    // What was done may be undone, and may have put an approval for the task in force.
    if (frame.state === "applied") {
      showInForce();
      showUndos();
    }
  }

  /** Hears an error; answers whether it was meant for an answer that is under way. */
  refused(frame) {
    // What concerns messages names them.
    if (!this.#answering || (frame.answers ?? []).length > 0) return false;
    const { card } = this.#answering;
    this.#answering = null;
    this.#fail(card, frame.text, frame.hint);
    this.refresh();
    return true;
  }

  /** The connection was lost: what was under way is looked up again when it is back. */
  disconnected() {
    if (!this.#answering) return;
    this.#answering = null;
    this.#show();
  }

  #add(card) {
    if (card.state !== "open" || this.#asks.has(card.ask_id)) return false;
    this.#asks.set(card.ask_id, card);
    return true;
  }

  #queue() {
    return [...this.#asks.values()].sort((a, b) => a.asked_at - b.asked_at || (a.ask_id < b.ask_id ? -1 : 1));
  }

  #show() {
    const queue = this.#queue();
    // The card that one reads stays where it is, whatever comes.
    const card = this.#asks.get(this.#current?.ask_id) ?? queue[0] ?? null;
    const place = byId("card-place");
    if (card?.ask_id !== this.#current?.ask_id || place.childElementCount === 0 || !this.#answering) {
      const same = card && card.ask_id === this.#current?.ask_id && place.childElementCount > 0;
      const focused = place.contains(document.activeElement);
      this.#current = card;
      if (!same) {
        place.replaceChildren(...(card ? [this.#card(card)] : []));
        byId("review-scroll").scrollTop = 0;
        if (focused) (place.querySelector("h2") ?? byId("review-title")).focus();
      }
    }
    this.#around(queue, card);
    this.#changed();
  }

  #around(queue, card) {
    const rest = queue.filter((other) => other !== card);
    showGroups(queue.map((other) => other.ask_id), () => this.refresh());
    byId("review-empty").hidden = card !== null;
    byId("next").hidden = rest.length === 0;
    byId("stack").replaceChildren(...rest.map((other) => el("li", { className: "waiting-card" }, badge(other.risk), el("span", { className: "intent" }, other.intent))));
    const density = byId("density");
    density.hidden = queue.length < 2;
    density.replaceChildren(
      el("span", { className: "ticks", "aria-hidden": "true" }, queue.slice(0, MAX_TICKS).map((other) => el("span", { className: "tick", data: { risk: other.risk, now: String(other === card) } }))),
      `1 of ${queue.length}`,
    );
  }

  #card(card) {
    const why = el("p", { className: "rationale" }, card.rationale);
    const text = el("div", { className: "shown", tabIndex: 0, role: "region", "aria-label": "Complete text of what is asked" }, shown(card.shown));
    const diff = counts(card.shown);
    const expand = el("button", { type: "button", className: "quiet small", onclick: () => read(card) }, "Full size");
    const facts = el("p", { className: "facts" });
    const lines = card.shown.split("\n").length;
    facts.append(el("span", {}, plural(lines, "line")));
    if (card.approvers > 1) facts.append(el("span", {}, `${(card.approved_by ?? []).length} of ${card.approvers} people have approved`));
    if (diff) facts.append(el("span", { className: "plus" }, `+${diff.added}`), el("span", { className: "minus" }, `\u2212${diff.removed}`));
    const ends = moment(card.expires_at);
    if (ends) facts.append(el("span", {}, `ends ${until(ends)}`));
    facts.append(expand);
    const node = el("article", { className: "card", "aria-labelledby": "card-title", data: { ask: card.ask_id, risk: card.risk } });
    node.append(
      el("header", {}, badge(card.risk), el("span", { className: "kind" }, card.action.replaceAll("_", " ")), this.#where(card)),
      el("h2", { id: "card-title", tabIndex: -1 }, card.intent),
      el("div", { className: "card-body" }, why, text, origins(`approvals/${encodeURIComponent(card.ask_id)}`, "Why was this asked")),
      facts,
      el("div", { className: "choices" }, this.#choices(card)),
    );
    this.#check(card, node);
    return node;
  }

  /** The conversation that asks. */
  #where(card) {
    if (!card.session) return null;
    return el("button", { type: "button", className: "quiet small where", "aria-label": `In the conversation ${this.#nameOf(card.session)}: open it`, onclick: () => this.#open(card.session) }, this.#nameOf(card.session));
  }

  /** Conversations have names now that they had not. */
  renamed() {
    const where = document.querySelector("#card-place .where");
    if (where && this.#current?.session && where.textContent !== this.#nameOf(this.#current.session)) where.replaceWith(this.#where(this.#current));
  }

  /** What is approved must be what was hashed, and nothing in it may be hidden. */
  async #check(card, node) {
    const fit = await fits(card.shown, card.shown_hash);
    if (fit !== false && plain(card.shown)) return;
    const why = fit === false ? "The text does not fit its hash." : "The text holds characters that could deceive.";
    node.dataset.broken = "true";
    const deny = card.choices.filter((choice) => choice.decision === "deny");
    node.querySelector(".choices").replaceChildren(
      el("p", { className: "problem", role: "alert" }, `${why} It cannot be approved here.`),
      this.#choices({ ...card, choices: deny }),
    );
  }

  /** The answers: recommended first, the one that ends it last. */
  #choices(card) {
    const rank = { approve: 0, approve_task: 1, approve_values: 1, approve_host: 2, approve_standing: 3, deny: 5 };
    const place = (choice) => rank[kind(choice)] ?? 4;
    const ordered = [...card.choices].sort((a, b) => place(a) - place(b));
    const node = el("div", { className: "choice-list" });
    ordered.forEach((choice, n) => {
      const denies = choice.decision === "deny";
      const id = `choice-${card.ask_id}-${n}`;
      const style = denies ? "danger" : n === 0 ? "primary" : "secondary";
      const act = () => (denies ? this.#deny(card, choice) : this.#agree(card, choice));
      node.append(
        el("div", { className: "choice" },
          el("button", { type: "button", className: style, onclick: act, "aria-describedby": id, data: { decision: kind(choice) } }, label(kind(choice), card)),
          el("span", { className: "consequence", id }, choice.consequence)),
      );
    });
    return node;
  }

  #agree(card, choice) {
    const scope = choice.scope ?? "once";
    const { confirm, key } = needs(card.risk, scope);
    const back = () => this.#back(card);
    const name = SHORT[kind(choice)] ?? word(kind(choice));
    const go = () => this.#answer(card, choice.decision, { sign: key, scope });
    if (key && (this.#passkeys ?? []).length === 0) {
      const how = { task: " --task", values: " --values", host: " --host", standing: " --standing" }[scope] ?? "";
      const [why, command] = card.risk === "high" || outlives(scope)
        ? ["Approve it on the machine where Writ runs, or add a passkey below:", `writ approvals approve ${card.ask_id}${how}`]
        : ["Only a passkey that verifies you can approve it. This begins to add one, on the machine where Writ runs:", "writ keys approver enrol"];
      this.#step(card, elsewhere(command, why, back));
    } else if (confirm === "slide") this.#step(card, confirmSlide(choice.consequence, name, go, back));
    else if (confirm === "tap") this.#step(card, confirmTap(choice.consequence, `Confirm: ${name.toLowerCase()}`, go, back));
    else go();
  }

  #deny(card, choice) {
    let picked = "";
    const chips = REASONS.map((reason) => el("button", { type: "button", className: "chip", "aria-pressed": "false", onclick: (event) => {
      picked = picked === reason ? "" : reason;
      for (const chip of chips) chip.setAttribute("aria-pressed", String(chip === event.currentTarget && picked !== ""));
    } }, reason));
    const words = el("input", { type: "text", maxLength: 500, placeholder: "Anything it should know (optional)", "aria-label": "Reason in your words, optional" });
    const back = () => this.#back(card);
    const go = (event) => {
      event.preventDefault();
      const reason = [picked, words.value.trim()].filter((part) => part !== "").join(": ");
      this.#answer(card, choice.decision, { reason });
    };
    const yes = el("button", { type: "submit", className: "danger" }, label(choice.decision, card));
    const no = el("button", { type: "button", className: "quiet", onclick: back }, "Back");
    const node = el("form", { className: "step", "aria-label": "Why not?", onsubmit: go });
    node.append(el("p", { className: "consequence" }, choice.consequence), el("div", { className: "chips", role: "group", "aria-label": "Reasons" }, chips), words, el("div", { className: "actions" }, no, yes));
    this.#step(card, { node, focus: chips[0] });
  }

  /** The answers again. */
  #back(card) {
    const node = this.#choices(card);
    this.#step(card, { node, focus: node.querySelector("button") });
  }

  #step(card, step) {
    if (this.#current?.ask_id !== card.ask_id) return;
    const place = document.querySelector("#card-place .choices");
    if (!place) return;
    place.replaceChildren(step.node);
    step.focus?.focus({ preventScroll: true });
    place.scrollIntoView({ block: "nearest" });
  }

  async #answer(card, decision, { reason = "", sign = false, scope = "once" }) {
    const says = (text) => this.#step(card, { node: el("p", { className: "busy", role: "status" }, el("span", { className: "pulse", "aria-hidden": "true" }), text) });
    this.#answering = { card, decision, reason };
    let signature;
    if (sign) {
      says("Waiting for your passkey");
      try {
        signature = await passkey.sign(card, scope);
      } catch (error) {
        this.#answering = null;
        const cancelled = error.name === "NotAllowedError";
        return this.#fail(card, cancelled ? "Not signed: the passkey was not used." : `Not signed: ${error.message}`, error.hint);
      }
    }
    says(decision === "deny" ? "Sending your answer" : "Approved, running");
    const frame = { type: "approval_response", ask_id: card.ask_id, decision, scope, shown_hash: card.shown_hash, reason };
    if (signature) frame.signature = signature;
    if (!this.#connection.send(frame)) {
      this.#answering = null;
      this.#fail(card, "Not sent: there is no connection to Writ.", "Writ tries again; answer once it is back.");
    }
    return undefined;
  }

  #fail(card, text, hint) {
    if (this.#current?.ask_id !== card.ask_id) return;
    this.#back(card);
    const place = document.querySelector("#card-place .choices");
    place?.prepend(el("p", { className: "problem", role: "alert" }, text, hint ? el("span", { className: "note" }, ` ${hint}`) : null));
  }

  #remember(card, frame) {
    this.#decided.unshift({ id: card.ask_id, intent: card.intent, state: frame.state, reason: frame.reason, text: frame.text });
    this.#decided.length = Math.min(this.#decided.length, MAX_DECIDED);
    announce(`${verdict(frame.state, frame.reason)}: ${card.intent}`);
    this.#showDecided();
    this.#justDecided(this.#decided[0]);
  }

  /** Says what has become of the card that was answered last, where it stood. */
  #justDecided(row) {
    const place = byId("just-decided");
    place.hidden = false;
    place.dataset.ask = row.id;
    place.dataset.state = row.state;
    place.replaceChildren(
      icon(ICONS[mark(row.state)]),
      el("span", {}, el("strong", {}, verdict(row.state, row.reason)), ` \u00b7 ${row.intent}`),
      el("button", { type: "button", className: "quiet small", onclick: () => this.dismiss() }, "Close", el("span", { className: "visually-hidden" }, " this outcome")));
  }

  #update(frame) {
    const row = this.#decided.find((decided) => decided.id === frame.ask_id);
    if (!row || !follows(frame.state, row.state)) return;
    Object.assign(row, { state: frame.state, reason: frame.reason, text: frame.text });
    this.#showDecided();
    if (byId("just-decided").dataset.ask === row.id) {
      this.#justDecided(row);
      announce(`${verdict(row.state, row.reason)}: ${row.intent}`);
    }
  }

  #showDecided() {
    byId("decided").hidden = this.#decided.length === 0;
    byId("decided-list").replaceChildren(...this.#decided.map((row) => el("li", { className: "decided-row", data: { state: row.state } },
      el("details", {},
        el("summary", {}, icon(ICONS[mark(row.state)]), el("span", { className: "verdict" }, verdict(row.state, row.reason)), el("span", { className: "intent" }, row.intent)),
        el("p", { className: "result" }, row.text || "No further details.")))));
  }

  #showKeys() {
    const keys = this.#passkeys ?? [];
    byId("keys-note").textContent = keys.length === 0
      ? "A passkey of this device can sign what is of high risk or cannot be undone. Its secret never leaves the device."
      : "These can sign what is of high risk or cannot be undone.";
    byId("key-list").replaceChildren(...keys.map((key) => {
      const made = moment(key.created_at ?? key.enrolled_at ?? key.at);
      return el("li", {}, el("span", {}, key.name || "Passkey"), el("span", { className: "note" }, made ? ` since ${made.toLocaleDateString()}` : ""));
    }));
  }

  async #enrol() {
    const result = byId("keys-result");
    const button = byId("key-add");
    button.disabled = true;
    result.textContent = "Follow your browser.";
    try {
      await passkey.enrol(byId("key-code").value.trim());
      byId("key-code").value = "";
      await this.refreshKeys();
      this.#showKeys();
      result.textContent = "The passkey is added. Every use of it is on record.";
    } catch (error) {
      result.textContent = error.name === "NotAllowedError" ? "No passkey was added." : `No passkey was added: ${error.message} ${error.hint ?? ""}`;
    }
    button.disabled = false;
  }
}

/** A risk as a mark: shape, word and colour. */
export function badge(level) {
  return el("span", { className: "risk", data: { risk: level } }, el("span", { className: "risk-mark", "aria-hidden": "true" }), risk(level));
}

const VERDICTS = {
  approved: "Approved",
  applied: "Approved, applied",
  used: "Approved, applied",
  simulated: "Approved, only simulated",
  failed: "Approved, failed",
  unknown: "Approved, outcome unknown",
  denied: "Denied",
  expired: "Expired",
};
/** The state of an ask in words, with the reason where it was not done. */
export const verdict = (state, reason = "") => {
  const word = VERDICTS[state] ?? state;
  return reason && !DONE.has(state) ? `${word}: ${reason}` : word;
};
const DONE = new Set(["approved", "applied", "used"]);
const MARKS = { simulated: "simulated", failed: "failed", unknown: "unknown" };
/** The icon that goes with a state. */
export const mark = (state) => (DONE.has(state) ? "done" : MARKS[state] ?? "denied");

function read(card) {
  byId("reader-title").textContent = card.intent;
  byId("reader-body").replaceChildren(shown(card.shown));
  byId("reader").showModal();
}
