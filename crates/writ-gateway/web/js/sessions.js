// Conversations: which there are, and which one is in view.

import { request, withQuery } from "./api.js";
import { byId, el } from "./dom.js";
import { moment, plural, when } from "./format.js";

/** How long to wait before the list is read, in milliseconds: reasons in a row become one. */
const REST = 300;
/** Conversations that are listed. */
const MAX_LISTED = 30;

/** The first line of a message, short enough for a list. */
export const title = (text) => text.trim().split("\n")[0].slice(0, 60);

export class Sessions {
  #titles = new Map();
  #rows = [];
  #current = null;
  #open;
  #listed;
  #timer = null;

  /** `open` is called with the session that was chosen, `listed` when the list was read. */
  constructor(open, listed) {
    this.#open = open;
    this.#listed = listed;
    byId("session-button").addEventListener("click", () => {
      this.soon();
      byId("switcher").showModal();
    });
    for (const button of document.querySelectorAll("[data-new-session]")) {
      button.addEventListener("click", () => this.#ask());
    }
    byId("opener-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#create(byId("opener-folder").value.trim());
    });
  }

  /** Marks the session in view. */
  joined(session) {
    this.#current = session;
    this.#show();
    this.soon();
  }

  /** Names a session after its first message. */
  named(session, text) {
    if (this.#titles.has(session) || text.trim() === "") return;
    this.#titles.set(session, title(text));
    this.#show();
  }

  row(session) {
    return this.#rows.find((row) => row.session === session);
  }

  /** Reads the list again, soon. */
  soon() {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#read();
    }, REST);
  }

  async #read() {
    try {
      const answer = await request("/api/v1/sessions");
      this.#rows = (answer.sessions ?? []).filter((row) => !row.closed_at);
      // One look at the newest messages names the conversations that they opened.
      const said = await request(withQuery("/api/v1/ledger", { event: "received", limit: 200 }));
      const oldestFirst = [...said.entries].sort((a, b) => a.seq - b.seq);
      for (const entry of oldestFirst) {
        if (entry.session && !this.#titles.has(entry.session)) this.#titles.set(entry.session, title(entry.payload?.text ?? ""));
      }
    } catch {
      // The list stays as it was: it is only a way to get elsewhere.
    }
    this.#show();
    this.#listed();
  }

  /** The name of a conversation. */
  name(session) {
    return this.#name(this.row(session) ?? { session });
  }

  /** Asks for the folder of a new conversation: that of the one in view, unless another is said. */
  #ask() {
    const folders = [...new Set(this.#rows.map((row) => row.project).filter(Boolean))];
    byId("opener-folders").replaceChildren(...folders.map((value) => el("option", { value })));
    byId("opener-folder").value = this.row(this.#current)?.project ?? "";
    byId("opener-problem").hidden = true;
    byId("switcher").close();
    byId("opener").showModal();
    byId("opener-folder").select();
  }

  async #create(project) {
    const problem = byId("opener-problem");
    try {
      const made = await request("/api/v1/sessions", { method: "POST", body: project === "" ? {} : { project } });
      byId("opener").close();
      this.#choose(made.session);
    } catch (error) {
      problem.textContent = [error.message, error.hint].filter(Boolean).join(" ");
      problem.hidden = false;
    }
  }

  #choose(session) {
    byId("switcher").close();
    this.#open(session);
  }

  #name(row) {
    const project = row.project ? row.project.split("/").filter(Boolean).at(-1) : null;
    return this.#titles.get(row.session) || (project ? `In ${project}` : "New conversation");
  }

  #show() {
    const row = this.row(this.#current) ?? { session: this.#current };
    byId("session-name").textContent = this.#current ? this.#name(row) : "Conversation";
    for (const list of document.querySelectorAll("[data-sessions]")) {
      list.replaceChildren(...this.#rows.slice(0, MAX_LISTED).map((listed) => this.#item(listed)));
    }
  }

  #item(row) {
    const at = moment(row.updated_at);
    const project = row.project ? row.project.split("/").filter(Boolean).at(-1) : null;
    const facts = [project, plural(row.turns ?? 0, "turn"), at ? when(at) : null].filter(Boolean).join(" \u00b7 ");
    const here = row.session === this.#current;
    return el("li", {}, el("button", { type: "button", className: "session-row", "aria-current": here ? "true" : null, onclick: () => this.#choose(row.session) },
      el("span", { className: "session-title" }, this.#name(row)),
      el("span", { className: "note" }, facts)));
  }
}
