// Stream: the conversation, in the ledger's order, with what runs right now at its end.

import { announce } from "./announce.js";
import { request, withQuery } from "./api.js";
import { byId, el } from "./dom.js";
import { oneLine } from "./foreign.js";
import { markdown } from "./markdown.js";
import { OpenCards } from "./opencards.js";
import { Outbox } from "./outbox.js";
import { Turn } from "./turn.js";

/** Items that stay on the page; older ones are in Activity. */
const MAX_ITEMS = 400;
/** How close to the end one must be for the view to follow, in pixels. */
const NEAR = 120;
/** Messages of the ledger that are read at once, and how often. */
const SAID_PAGE = 200;
const SAID_PAGES = 5;
/** How long to wait before the ledger is asked for messages, in milliseconds: questions in a row become one. */
const SAID_REST = 120;
/** How the message begins by which the engine lets the agent go on after an answer: nobody has written it. */
const GOES_ON = "[a person has ";
/** Errors about answers: they refuse no message. */
const ABOUT_ANSWERS = /^(ask|approval|gate|passkey)\./;

export class Stream {
  #connection;
  #hooks;
  #turns = new Map();
  #latest = null;
  /** Where items stand in the ledger; an item without a place follows the one before it. */
  #places = new Map();
  #said = new Set();
  #outbox;
  #open;
  /** Cards of the history whose turn is not known yet: it is that of the next frame that names one. */
  #unplaced = [];
  /** Messages of people by their entries, as far as they are on the page. */
  #bubbles = new Map();
  #saidTimer = null;
  #running = null;
  #waiting = false;
  #end = 0;
  #follows = true;
  /** Whether the frame in hand is history: it is shown, and not said aloud. */
  #old = false;

  /** The session whose copied history is on the page. */
  #copied = null;

  /** `hooks`: `isOpen(ask)`, `named(session, text)`, `retry(session, text)`, `ended()` after a turn. */
  constructor(connection, hooks) {
    this.#connection = connection;
    this.#hooks = hooks;
    this.#outbox = new Outbox((frame) => connection.send(frame), () => this.#show());
    this.#open = new OpenCards((ask) => [...this.#turns.values()].find((turn) => turn.has(ask))?.node);
    const scroll = byId("stream-scroll");
    scroll.addEventListener("scroll", () => this.#atEnd(), { passive: true });
    // Whoever is at the end stays there, whatever grows or shrinks.
    const sizes = new ResizeObserver(() => this.#follows && this.#toEnd(false));
    for (const id of ["stream-scroll", "items", "working"]) sizes.observe(byId(id));
    byId("latest").addEventListener("click", () => this.#toEnd(true));
    byId("stop").addEventListener("click", () => this.stop());
    addEventListener("pagehide", () => this.#keep());
  }

  /** Another session comes into view. */
  clear() {
    this.#keep();
    byId("items").replaceChildren();
    this.#outbox.hidden();
    this.#turns.clear();
    this.#places.clear();
    this.#said.clear();
    this.#bubbles.clear();
    this.#unplaced = [];
    this.#open.clear();
    this.#latest = this.#running = this.#copied = null;
    this.#waiting = false;
    this.#follows = true;
    this.#end = 0;
    this.#show();
  }

  /** Another session comes into view, and is being joined. */
  choose(session) {
    this.clear();
    if (session !== null) this.#outbox.choose(session);
  }

  /** The session is joined: what is missing comes now. */
  opened(hello) {
    this.#end = hello.seq ?? 0;
    this.#open.only(hello.open ?? []);
    this.#running?.interrupted();
    for (const message of this.#outbox.open(hello.session)) this.#pending(message);
    this.#lookForSaid();
    this.#lookForRunning();
    this.#show();
  }

  /** The connection came or went. */
  linked() {
    this.#show();
  }

  /** Sends a message, with what is quoted below it; shows it at once. */
  say(text, quoted = "") {
    this.#pending(this.#outbox.add(text, quoted));
    this.#waiting = true;
    this.#show();
    this.#toEnd(false);
  }

  frame(frame) {
    this.#old = frame.seq > 0 && frame.seq <= this.#end;
    this.#handle(frame);
    if (frame.seq > 0 && frame.seq === this.#end) {
      if (this.#unplaced.length > 0) this.#placeCards(this.#lastTurn());
      this.#lookForRunning();
    }
    this.#show();
  }

  /** Asks were answered or found open: their lines are told anew. */
  refreshAsks() {
    for (const turn of this.#turns.values()) if (turn.hasAsks) turn.refreshAsks();
  }

  #handle(frame) {
    switch (frame.type) {
      case "text":
        return this.#turn(frame.turn).shown(frame.text);
      case "accepted":
        return this.#accepted(frame);
      case "delta":
        return this.#runs(frame.turn).delta(frame.text);
      case "tool":
        return this.#runs(frame.turn).step(frame);
      case "message":
        return this.#message(frame);
      case "file":
        return this.#turn(frame.turn).file(frame, this.#connection.session);
      case "gate_approval":
        this.#open.add(frame.ask_id, frame.reason, frame.seq === 0 || !this.#old);
        // One that was listed when the session was joined comes again with the history.
        if (frame.seq === 0 && !this.#turns.has(frame.turn)) return undefined;
        return this.#turn(frame.turn).gate(frame, (decision, answers) => this.#connection.send({ type: "gate_response", ask_id: frame.ask_id, decision, answers }));
      case "checkpoint":
        return this.#lastTurn().note(`Checkpoint: ${frame.name}`);
      case "approval_request":
        this.#open.add(frame.ask_id, frame.intent, frame.seq === 0 || !this.#old);
        if (frame.seq === 0) return undefined;
        this.#unplaced.push(frame);
        return this.#old ? undefined : this.#placeCards(this.#lastTurn());
      case "approval_resolved":
        this.#open.remove(frame.ask_id);
        if (this.#unplaced.length > 0) this.#placeCards(this.#lastTurn());
        return [...this.#turns.values()].find((turn) => turn.resolved(frame));
      case "status":
        return frame.seq > 0 ? this.#lastTurn().note(frame.text) : this.#tell(frame.text);
      case "error":
        return this.#error(frame);
      default:
        return undefined;
    }
  }

  #turn(id) {
    let turn = this.#turns.get(id);
    if (!turn) {
      turn = new Turn(id);
      this.#turns.set(id, turn);
      this.#latest = turn;
      this.#add(turn.node, Number.POSITIVE_INFINITY);
      this.#lookForSaid();
    }
    this.#placeCards(turn);
    return turn;
  }

  #placeCards(turn) {
    for (const card of this.#unplaced.splice(0)) turn.ask(card, this.#hooks.isOpen);
  }

  #lastTurn() {
    return this.#latest ?? this.#turn("none");
  }

  /** The turn of a frame that only a running turn sends. */
  #runs(id) {
    const turn = this.#turn(id);
    if (!turn.ended && this.#running !== turn) {
      this.#running = turn;
      this.#aloud("Working");
      this.#lookForSaid();
    }
    this.#waiting = false;
    return turn;
  }

  #message(frame) {
    const turn = this.#turn(frame.turn);
    turn.message(frame);
    if (!frame.last) return;
    this.#place(turn.node, frame.entries[0] + 0.5);
    if (this.#running === turn) {
      this.#running = null;
      this.#aloud(`Reply: ${frame.text}`);
    }
    this.#waiting = false;
    this.#lookForSaid();
    this.#lookForUsage();
    this.#hooks.ended();
  }

  #accepted(frame) {
    const message = this.#outbox.accepted(frame.client_id);
    if (!message || this.#said.has(frame.entry)) return;
    if (!message.node) this.#pending(message);
    this.#said.add(frame.entry);
    this.#kept(message.node, frame.entry);
    // It waits until the list of those that do not is read.
    if (this.#running) this.#waits(message.node, true);
    this.#lookForSaid();
    this.#hooks.named(this.#connection.session, message.text);
  }

  #error(frame) {
    this.#waiting = false;
    // What concerns messages that were taken in names them.
    const anybodys = (frame.answers ?? []).length === 0 && !ABOUT_ANSWERS.test(frame.code ?? "");
    const refused = anybodys ? this.#outbox.refused() : null;
    if (refused?.node) became(refused.node, "refused");
    const text = el("p", {}, frame.text);
    const hint = frame.hint ? el("p", { className: "note" }, frame.hint) : null;
    const code = el("p", { className: "note" }, el("code", {}, frame.code));
    const node = el("li", { className: "notice" }, text);
    if (hint) node.append(hint);
    node.append(code);
    this.#add(node, null);
    this.#aloud(frame.text);
    this.#lookForRunning();
  }

  #aloud(text) {
    if (!this.#old) announce(text);
  }

  #tell(text) {
    byId("working-text").textContent = text;
    if (this.#running || this.#waiting) return;
    this.#lastTurn().note(text);
  }

  // --- Messages of people ---

  #pending(message) {
    message.node = bubble(message.text, "pending");
    this.#add(message.node, Number.POSITIVE_INFINITY);
  }

  #lookForSaid() {
    this.#saidTimer ??= setTimeout(() => {
      this.#saidTimer = null;
      this.#readSaid();
    }, SAID_REST);
  }

  /** Messages that other clients sent are in the ledger only. */
  async #readSaid() {
    const session = this.#connection.session;
    let before;
    for (let page = 0; page < SAID_PAGES; page += 1) {
      let entries;
      try {
        ({ entries } = await request(withQuery("/api/v1/ledger", { event: "received", session, limit: SAID_PAGE, before })));
      } catch {
        return;
      }
      if (session !== this.#connection.session) return;
      // A copy has no messages of its own yet.
      if (entries.length === 0) break;
      const fresh = entries.filter((entry) => !this.#said.has(entry.seq)).sort((a, b) => a.seq - b.seq);
      for (const entry of fresh) this.#found(entry);
      before = Math.min(...entries.map((entry) => entry.seq));
      if (fresh.length < entries.length || entries.length < SAID_PAGE) break;
    }
    await this.#lookForWaiting();
    this.#show();
  }

  /** Messages that no turn has begun with yet are marked. */
  async #lookForWaiting() {
    const session = this.#connection.session;
    let waiting;
    try {
      const details = await this.#connection.call("sessions.show", { session });
      waiting = details.waiting;
      if (details.forked_from && this.#copied !== session) this.#showCopied(session);
    } catch {
      return;
    }
    if (session !== this.#connection.session) return;
    for (const [entry, node] of this.#bubbles) this.#waits(node, waiting.includes(entry));
  }

  /** What was copied into this conversation has no frames of its own: it is read from the history, and stands first. */
  async #showCopied(session) {
    this.#copied = session;
    const items = [];
    let after = 0;
    for (let page = 0; page < SAID_PAGES && after !== null; page += 1) {
      let part;
      try {
        part = await request(withQuery("/api/v1/sessions/history", { session, after: after || undefined }));
      } catch {
        return;
      }
      items.push(...part.messages.filter((message) => message.turn === null && message.text.trim() !== ""));
      after = part.next;
    }
    if (session !== this.#connection.session) return;
    items.forEach((message, n) => {
      const place = n - items.length - 1;
      if (message.role === "user") this.#add(bubble(message.text, "kept"), place);
      else if (message.role === "assistant") this.#add(el("li", { className: "turn" }, el("div", { className: "reply" }, markdown(message.text))), place);
    });
    if (items.length > 0) this.#add(el("li", { className: "copied" }, "Copied until here. What was approved before does not count in this copy."), -0.5);
    this.#show();
  }

  // --- What turns have used ---

  #usageTimer = null;

  #lookForUsage() {
    this.#usageTimer ??= setTimeout(() => {
      this.#usageTimer = null;
      this.#readUsage();
    }, SAID_REST);
  }

  async #readUsage() {
    const session = this.#connection.session;
    let turns;
    try {
      ({ turns } = await this.#connection.call("sessions.usage", { session }));
    } catch {
      return;
    }
    if (session !== this.#connection.session) return;
    for (const used of turns) this.#turns.get(used.turn)?.used(used);
  }

  /** Goes on from before a message in a copy of the conversation, with the message in the box. */
  async #retry(entry, text, node) {
    const session = this.#connection.session;
    try {
      const { entries } = await request(withQuery("/api/v1/ledger", { event: "received", session, before: entry + 1, limit: 1 }));
      const turn = entries[0]?.turn_number ?? 1;
      const copy = await request("/api/v1/sessions/fork", { method: "POST", body: { session, turn: turn - 1 } });
      this.#hooks.retry(copy.session, text);
    } catch (error) {
      node.querySelector(".fate").textContent = `Not copied: ${error.message}`;
    }
  }

  #editable(node, entry, text) {
    if (node.querySelector(".edit")) return;
    node.append(el("button", { type: "button", className: "quiet edit", onclick: () => this.#retry(entry, text, node) },
      "Edit and retry", el("span", { className: "visually-hidden" }, ` in a copy: ${text.slice(0, 60)}`)));
  }

  #waits(node, waits) {
    became(node, waits ? "waiting" : "kept");
  }

  #kept(node, entry) {
    became(node, "kept");
    this.#bubbles.set(entry, node);
    this.#editable(node, entry, node.querySelector(".bubble").textContent);
    this.#place(node, entry);
  }

  #found(entry) {
    const text = entry.payload?.text ?? "";
    this.#said.add(entry.seq);
    if (text.startsWith(GOES_ON)) {
      this.#add(el("li", { className: "status-line went-on" }, "The agent continues after your answer."), entry.seq);
      return;
    }
    // A message of a person counts to the turn that it opens or joins; a request to the planner to none.
    if (!entry.turn_number) {
      this.#add(el("li", { className: "status-line handed-on" }, `The agent has handed on: ${oneLine(text, 400)}`), entry.seq);
      return;
    }
    const mine = this.#outbox.adopt(text);
    if (mine) {
      if (!mine.node) this.#pending(mine);
      this.#kept(mine.node, entry.seq);
      return;
    }
    const node = bubble(text, "kept");
    this.#bubbles.set(entry.seq, node);
    this.#editable(node, entry.seq, text);
    this.#add(node, entry.seq);
    this.#hooks.named(this.#connection.session, text);
  }

  // --- What runs ---

  async #lookForRunning() {
    const session = this.#connection.session;
    let status;
    try {
      status = await this.#connection.call("status");
    } catch {
      return;
    }
    if (session !== this.#connection.session) return;
    const running = (status.running ?? []).find((one) => one.session === session);
    if (running) {
      const turn = this.#runs(running.turn);
      const kept = read(session);
      if (kept?.turn === running.turn) turn.restore(kept.text);
    } else if (this.#running) {
      this.#running.halt();
      this.#running = null;
    }
    if (!running && this.#outbox.size === 0) this.#waiting = false;
    this.#show();
  }

  /** Stops the turn that runs; answers whether one did. */
  stop() {
    if (!this.#running) return false;
    this.#connection.send({ type: "cancel", turn: this.#running.id });
    byId("working-text").textContent = "Stopping";
    return true;
  }

  /** Keeps what streams in over a reload: it is sent once only. */
  #keep() {
    const session = this.#connection.session;
    if (!session) return;
    const turn = this.#running;
    try {
      if (turn?.text) sessionStorage.setItem(`writ.partial.${session}`, JSON.stringify({ turn: turn.id, text: turn.text }));
      else sessionStorage.removeItem(`writ.partial.${session}`);
    } catch {
      // Storage is full or forbidden: the text comes whole with the turn's end.
    }
  }

  // --- The list ---

  #add(node, place) {
    const items = byId("items");
    items.append(node);
    this.#place(node, place);
    while (items.childElementCount > MAX_ITEMS) {
      const oldest = items.firstElementChild;
      this.#places.delete(oldest);
      for (const [entry, node] of this.#bubbles) if (node === oldest) this.#bubbles.delete(entry);
      this.#turns.delete(oldest.dataset.turn);
      oldest.remove();
    }
  }

  /** Puts an item where the ledger has it; it is moved only where it would stand wrong. */
  #place(node, place) {
    this.#places.set(node, place);
    if (place === null) return;
    const placed = [...byId("items").children].filter((other) => other !== node && this.#places.get(other) !== null);
    const follows = (other) => (other.compareDocumentPosition(node) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0;
    const wrong = placed.some((other) => (follows(other) ? this.#places.get(other) > place : this.#places.get(other) < place));
    if (!wrong) return;
    const after = placed.find((other) => this.#places.get(other) > place);
    if (after) after.before(node);
    else byId("items").append(node);
  }

  #show() {
    const active = this.#connection.open && (this.#running !== null || this.#waiting);
    byId("working").hidden = !active;
    if (active) byId("working-text").textContent = this.#running ? this.#running.doing : "Starts soon";
    byId("stop").hidden = !active || this.#running === null;
    byId("composer").dataset.running = String(!byId("stop").hidden);
    const empty = byId("items").childElementCount === 0;
    byId("welcome").hidden = !empty || !this.#connection.open;
  }

  #atEnd() {
    const scroll = byId("stream-scroll");
    // Out of view nothing has a size, and nobody has moved it.
    if (scroll.clientHeight === 0) return;
    this.#follows = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < NEAR;
    byId("latest").hidden = this.#follows;
  }

  #toEnd(smooth) {
    const scroll = byId("stream-scroll");
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    scroll.scrollTo({ top: scroll.scrollHeight, behavior: smooth && !calm ? "smooth" : "instant" });
    if (!smooth) this.#atEnd();
  }
}

/** A message of a person, and what has become of it so far. */
function bubble(text, state) {
  const node = el("li", { className: "said" },
    el("span", { className: "visually-hidden" }, "You: "),
    el("div", { className: "bubble" }, text),
    el("span", { className: "note fate" }));
  return became(node, state);
}

const FATES = { pending: "Not sent yet", waiting: "Waiting: the agent reads it with its next turn", refused: "Not taken" };

/** Marks a message with what has become of it. */
function became(node, state) {
  node.dataset.state = state;
  node.querySelector(".fate").textContent = FATES[state] ?? "";
  return node;
}

function read(session) {
  try {
    return JSON.parse(sessionStorage.getItem(`writ.partial.${session}`));
  } catch {
    return null;
  }
}
