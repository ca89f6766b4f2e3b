// Messages on their way: kept until the server has stored them, sent again after a loss. The server knows a
// message by its id, so that it counts once.

/** The most bytes of a message as it is sent: the server's own limit, less what goes around the text. */
const MAX_BYTES = 50_000;

/** Whether the server would take a message of this text, with what is quoted below it. */
export const fitsMessage = (text, quoted = "") => new TextEncoder().encode(JSON.stringify([text, quoted])).length <= MAX_BYTES;

const key = (session) => `writ.outbox.${session}`;

/** An id that nobody else has; works without a secure context. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Outbox {
  #messages = [];
  #session = null;
  #send;
  #changed;

  constructor(send, changed) {
    this.#send = send;
    this.#changed = changed;
  }

  get size() {
    return this.#messages.length;
  }

  /**
   * Another session comes into view: what is said from now on is for it, also before it is joined. What was said before any
   * session was known is for the first one.
   */
  choose(session) {
    if (this.#session === session) return;
    const orphans = this.#session === null ? this.#messages : [];
    this.#session = session;
    this.#messages = [...this.#load(), ...orphans];
    if (orphans.length > 0) this.#save();
  }

  /** The page has taken its messages from view. */
  hidden() {
    for (const message of this.#messages) message.node = null;
  }

  /** The session is joined: sends what waits. Answers with the messages that the page does not show yet. */
  open(session) {
    this.choose(session);
    const fresh = this.#messages.filter((message) => message.node === null);
    for (const message of this.#messages) this.#pass(message);
    return fresh;
  }

  add(text, quoted = "") {
    const message = { id: newId(), text, quoted, node: null };
    this.#messages.push(message);
    this.#save();
    this.#pass(message);
    return message;
  }

  /** The server has it. */
  accepted(id) {
    return this.#take((message) => message.id === id);
  }

  /** The server refused a message: the one that waits longest, since they are answered in order. */
  refused() {
    return this.#take(() => true);
  }

  /** The ledger has a message with this text: it is ours if we sent it. */
  adopt(text) {
    // What was quoted stands below it there.
    const is = (message) => (message.quoted ? text.startsWith(`${message.text.trim()}\n\n`) : message.text.trim() === text.trim());
    return this.#take(is);
  }

  #take(is) {
    const at = this.#messages.findIndex(is);
    if (at < 0) return null;
    const [message] = this.#messages.splice(at, 1);
    this.#save();
    this.#changed();
    return message;
  }

  #pass({ id, text, quoted }) {
    this.#send({ type: "message", text, client_id: id, ...(quoted ? { quoted } : {}) });
  }

  #load() {
    try {
      const kept = JSON.parse(sessionStorage.getItem(key(this.#session))) ?? [];
      return kept.map(({ id, text, quoted = "" }) => ({ id, text, quoted, node: null }));
    } catch {
      return [];
    }
  }

  #save() {
    if (this.#session === null) return;
    try {
      const kept = this.#messages.map(({ id, text, quoted }) => ({ id, text, quoted }));
      if (kept.length === 0) sessionStorage.removeItem(key(this.#session));
      else sessionStorage.setItem(key(this.#session), JSON.stringify(kept));
    } catch {
      // Storage is full or forbidden: the messages are kept while the page is open.
    }
  }
}
