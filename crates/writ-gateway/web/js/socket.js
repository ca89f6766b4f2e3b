// The connection to the engine: frames in order, each once, over as many sockets as it takes.

import { address } from "./api.js";

/** The pauses between two tries, in milliseconds; the last one repeats. */
const PAUSES = [250, 500, 1000, 2000, 4000, 8000, 15_000];
/** How long a connection may take to greet, in milliseconds. */
const GREETING = 10_000;
/** What the server closes with when it does not know who asks. */
const UNKNOWN = 4401;

/**
 * Tells its listener: `state` (`connecting`, `open`, `lost` with the time of the next try, or `locked`), `open`
 * with the greeting, every `frame` once, and `reset` when the history is another one. It asks it whether the
 * server does not know us (`unknown`), which a socket cannot tell.
 */
export class Connection {
  #socket = null;
  #listener;
  #tries = 0;
  #timer = null;
  #session = null;
  #seen = 0;
  #calls = new Map();
  #lastCall = 0;
  #state = "connecting";

  constructor(listener) {
    this.#listener = listener;
    addEventListener("online", () => this.retry());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.#state === "lost") this.retry();
    });
  }

  get session() {
    return this.#session;
  }

  get open() {
    return this.#state === "open";
  }

  /** Joins a session from its beginning; `null` joins the newest. */
  join(session) {
    this.#session = session;
    this.#seen = 0;
    this.#tries = 0;
    this.#connect();
  }

  /** Tries again at once. */
  retry() {
    if (this.#state === "open") return;
    this.#tries = 0;
    this.#connect();
  }

  /** Sends a frame; answers whether the connection took it. */
  send(frame) {
    // A socket that closes has not told us yet: what it would take is lost.
    if (this.#state !== "open" || this.#socket.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  /** Asks the engine for something; resolves to its result. */
  call(method, params = {}) {
    const id = ++this.#lastCall;
    return new Promise((resolve, reject) => {
      if (!this.send({ type: "call", id, method, params })) reject(new Error("not connected"));
      else this.#calls.set(id, { resolve, reject });
    });
  }

  #set(state, next = 0) {
    this.#state = state;
    this.#listener.state(state, next);
  }

  #connect() {
    clearTimeout(this.#timer);
    this.#drop();
    this.#set("connecting");
    const at = address("/ws");
    at.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(at.href);
    this.#socket = socket;
    this.#timer = setTimeout(() => socket.close(), GREETING);
    socket.addEventListener("open", () => {
      socket.send(JSON.stringify({ type: "resume", session: this.#session, after_seq: this.#seen }));
    });
    socket.addEventListener("message", (event) => {
      if (this.#socket === socket) this.#receive(event.data);
    });
    socket.addEventListener("close", (event) => {
      if (this.#socket === socket) this.#lost(event.code);
    });
  }

  #drop() {
    const socket = this.#socket;
    this.#socket = null;
    if (socket) socket.close();
    for (const { reject } of this.#calls.values()) reject(new Error("disconnected"));
    this.#calls.clear();
  }

  async #lost(code) {
    clearTimeout(this.#timer);
    this.#drop();
    if (code === UNKNOWN || (await this.#listener.unknown())) return this.#set("locked");
    // Meanwhile somebody may have tried again.
    if (this.#socket) return undefined;
    const pause = PAUSES[Math.min(this.#tries, PAUSES.length - 1)];
    this.#tries += 1;
    this.#timer = setTimeout(() => this.#connect(), pause);
    return this.#set("lost", Date.now() + pause);
  }

  #receive(data) {
    let frame;
    try {
      frame = JSON.parse(data);
    } catch {
      return undefined;
    }
    if (frame.type === "hello") return this.#greeted(frame);
    if (frame.type === "answer" || (frame.type === "error" && Number.isInteger(frame.id))) {
      return this.#answered(frame);
    }
    if (frame.type === "reset") {
      this.#seen = 0;
      return this.#listener.reset();
    }
    if (this.#state !== "open") return this.#rejected(frame);
    const seq = frame.seq ?? 0;
    if (seq > 0) {
      if (seq <= this.#seen) return undefined;
      this.#seen = seq;
    }
    return this.#listener.frame(frame);
  }

  #answered(frame) {
    const call = this.#calls.get(frame.id);
    this.#calls.delete(frame.id);
    if (frame.type === "answer") call?.resolve(frame.result);
    else call?.reject(new Error(frame.text));
  }

  /** The session cannot be joined, as after its home was replaced: the newest one is, instead. */
  #rejected(frame) {
    if (frame.type !== "error" || this.#session === null) return;
    this.#listener.reset();
    this.join(null);
  }

  #greeted(frame) {
    clearTimeout(this.#timer);
    // A number below what was seen means another history, such as a restored backup: it is read anew.
    const other = this.#session !== frame.session || frame.seq < this.#seen;
    const anew = other && this.#seen > 0;
    this.#session = frame.session;
    this.#tries = 0;
    if (anew) {
      this.#listener.reset();
      return this.join(frame.session);
    }
    this.#set("open");
    this.#listener.open(frame);
  }
}
