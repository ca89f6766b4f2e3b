// Conversations: which there are, and which one is in view.

import { request, withQuery } from "./api.js";
import { announce } from "./announce.js";
import { byId, el, icon, ICONS } from "./dom.js";
import { moment, plural, when } from "./format.js";

/** How long to wait before the list is read, in milliseconds: reasons in a row become one. */
const REST = 300;
/** Conversations that are listed. */
const MAX_LISTED = 30;
/** How long to wait after a key before messages are searched, in milliseconds. */
const SEARCH_REST = 250;

/** The first line of a message, short enough for a list. */
export const title = (text) => text.trim().split("\n")[0].slice(0, 60);

/** Fills a list of choices. */
function fill(id, options, chosen) {
  byId(id).replaceChildren(...options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
}

/** The agent and the model that are chosen in a dialog; `null` stands for the usual ones. */
const answering = (dialog) => ({ agent: byId(`${dialog}-agent`).value || null, model: byId(`${dialog}-model`).value || null });

export class Sessions {
  #titles = new Map();
  #rows = [];
  #working = new Set();
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
    for (const input of document.querySelectorAll("[data-session-search]")) {
      input.addEventListener("input", () => this.#searchSoon(input.value));
      // The first Escape would only empty the box, and leave the list in front of everything.
      input.addEventListener("keydown", (event) => {
        if (event.key === "Escape") byId("switcher").close();
      });
    }
    // What was searched for is not searched for when the list is opened again.
    byId("switcher").addEventListener("close", () => this.#searchSoon(""));
    byId("editor-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#rename();
    });
    for (const id of ["editor-agent", "editor-model"]) byId(id).addEventListener("change", () => this.#letAnswer());
    byId("editor-copy").addEventListener("click", () => this.#copy());
    byId("editor-delete").addEventListener("click", () => this.#delete());
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

  /** Sessions in which the steps of work run are no conversations: they are in Work. */
  leaveOut(sessions) {
    this.#working = new Set(sessions);
    this.#show();
  }

  /** The folders of the conversations that are listed. */
  folders() {
    return [...new Set(this.#rows.map((row) => row.project).filter(Boolean))];
  }

  /** Asks for a new conversation. */
  create() {
    this.#ask();
  }

  /** Brings the search of conversations into reach. */
  search() {
    const beside = document.querySelector(".rail-sessions [data-session-search]");
    if (beside.checkVisibility()) return beside.focus();
    byId("switcher").showModal();
    return byId("switcher").querySelector("[data-session-search]").focus();
  }

  /** Shows what can be done with a conversation. */
  edit(session) {
    // A new conversation is not in the list before it is read again.
    if (session) this.#edit(this.row(session) ?? { session });
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
      for (const row of this.#rows) if (row.title) this.#titles.set(row.session, row.title);
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
    byId("opener-folders").replaceChildren(...this.folders().map((value) => el("option", { value })));
    byId("opener-folder").value = this.row(this.#current)?.project ?? "";
    byId("opener-problem").hidden = true;
    byId("switcher").close();
    byId("opener").showModal();
    byId("opener-folder").select();
    this.#offer("opener", "", "");
  }

  /** Offers the named agents, each with its model, and the models of the configuration; where there is no choice, no list is shown. */
  async #offer(dialog, agent, model) {
    let [agents, models] = [[], []];
    try {
      ({ agents, models } = await request("/api/v1/agents"));
    } catch {
      // Without the lists all stays as it is.
    }
    const say = (one) => [one.name, one.about ? `: ${one.about}` : "", one.model ? ` (${one.model})` : ""].join("");
    fill(`${dialog}-agent`, [["", "The usual agent"], ...agents.map((one) => [one.name, say(one)])], agent);
    // One that is not configured any more is asked nothing, and stays in the list until another is chosen.
    const gone = model === "" || models.includes(model) ? [] : [[model, `${model} (not in the configuration)`]];
    fill(`${dialog}-model`, [["", "That of the agent"], ...models.map((name) => [name, name]), ...gone], model);
    byId(`${dialog}-agents`).hidden = agents.length === 0;
    byId(`${dialog}-models`).hidden = models.length < 2 && gone.length === 0;
  }

  async #create(project) {
    const problem = byId("opener-problem");
    try {
      const made = await request("/api/v1/sessions", { method: "POST", body: project === "" ? {} : { project } });
      const chosen = answering("opener");
      if (chosen.agent || chosen.model) await request("/api/v1/sessions/agent", { method: "POST", body: { session: made.session, ...chosen } });
      byId("opener").close();
      this.#choose(made.session);
    } catch (error) {
      problem.textContent = [error.message, error.hint].filter(Boolean).join(" ");
      problem.hidden = false;
    }
  }

  // --- Search ---

  #found = null;
  #searchTimer = null;
  /** Counts the searches, so that an old answer does not overtake a new one. */
  #searches = 0;

  #searchSoon(text) {
    for (const input of document.querySelectorAll("[data-session-search]")) if (input.value !== text) input.value = text;
    clearTimeout(this.#searchTimer);
    this.#searchTimer = setTimeout(() => this.#search(text.trim()), SEARCH_REST);
  }

  async #search(text) {
    const search = ++this.#searches;
    let found = null;
    if (text !== "") {
      try {
        found = await request(withQuery("/api/v1/sessions/search", { q: text, limit: MAX_LISTED }));
      } catch (error) {
        found = { hits: [], problem: error.message };
      }
    }
    if (search !== this.#searches) return;
    this.#found = found;
    this.#show();
    if (found) announce(found.hits.length === 0 ? "Nothing found" : plural(found.hits.length, "message found", "messages found"));
  }

  #hit(hit) {
    const at = moment(hit.at);
    const facts = [hit.role === "user" ? "You" : "Agent", `turn ${hit.turn_number}`, at ? when(at) : null].filter(Boolean).join(" \u00b7 ");
    return el("li", {}, el("button", { type: "button", className: "session-row", onclick: () => this.#choose(hit.session) },
      el("span", { className: "session-title" }, hit.title ?? this.#name({ session: hit.session })),
      el("span", { className: "excerpt" }, hit.excerpt),
      el("span", { className: "note" }, facts)));
  }

  // --- One conversation ---

  #edited = null;

  /** Shows what can be done with a conversation: another name or agent, a copy, its end. */
  async #edit(row) {
    this.#edited = row.session;
    byId("editor-name").value = this.#name(row);
    byId("editor-problem").hidden = true;
    byId("switcher").close();
    byId("editor").showModal();
    byId("editor-name").select();
    await this.#offer("editor", row.agent ?? "", row.model ?? "");
  }

  /** Asks the server to change the conversation that is edited, and says what came of it. */
  async #change(path, body, said) {
    try {
      const answer = await request(`/api/v1/sessions/${path}`, { method: "POST", body: { session: this.#edited, ...body } });
      announce(said);
      return answer;
    } catch (error) {
      byId("editor-problem").textContent = [error.message, error.hint].filter(Boolean).join(" ");
      byId("editor-problem").hidden = false;
      return null;
    }
  }

  async #rename() {
    const title = byId("editor-name").value.trim();
    if (title === "" || !(await this.#change("rename", { title }, "Renamed"))) return;
    this.#titles.set(this.#edited, title);
    byId("editor").close();
    this.#show();
    this.soon();
  }

  async #letAnswer() {
    const { agent, model } = answering("editor");
    byId("editor-problem").hidden = true;
    await this.#change("agent", { agent, model }, `${agent ?? "The usual agent"} answers${model ? `, and ${model} is asked first` : ""}`);
    this.soon();
  }

  async #copy() {
    const copied = await this.#change("fork", {}, "Copied");
    if (!copied) return;
    byId("editor").close();
    this.#choose(copied.session);
  }

  async #delete() {
    const session = this.#edited;
    if (!(await this.#change("delete", {}, "Deleted"))) return;
    byId("editor").close();
    this.#rows = this.#rows.filter((row) => row.session !== session);
    const undo = el("button", { type: "button", className: "quiet small", onclick: () => this.#restore(session) }, "Bring it back");
    byId("deleted").replaceChildren(el("span", {}, `"${this.#titles.get(session) ?? "The conversation"}" is deleted, and erased after 30 days.`), undo);
    byId("deleted").hidden = false;
    this.#show();
    if (session === this.#current) this.#open(null);
  }

  /** Brings a deleted conversation back. What goes wrong is said where it was asked for: the dialog is closed by then. */
  async #restore(session) {
    const ask = (path) => request(`/api/v1/sessions/${path}`, { method: "POST", body: { session } });
    try {
      await ask("restore");
      // It stays closed: a copy of it goes on.
      const copied = await ask("fork");
      byId("deleted").hidden = true;
      announce("It is back, and a copy goes on");
      this.#choose(copied.session);
    } catch (error) {
      const problem = el("span", { className: "problem" }, [error.message, error.hint].filter(Boolean).join(" "));
      byId("deleted").querySelector(".problem")?.remove();
      byId("deleted").append(problem);
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
    const model = row.model ? `${row.model.split("/").slice(1).join("/")} is asked` : null;
    byId("session-agent").textContent = [row.agent ? `${row.agent} answers` : null, model].filter(Boolean).join(", ");
    byId("session-name").textContent = this.#current ? this.#name(row) : "Conversation";
    for (const list of document.querySelectorAll("[data-sessions]")) {
      const items = this.#found ? this.#found.hits.map((hit) => this.#hit(hit)) : this.#rows.filter((one) => !this.#working.has(one.session)).slice(0, MAX_LISTED).map((listed) => this.#item(listed));
      const none = this.#found && items.length === 0 ? [el("li", { className: "note" }, this.#found.problem ?? "Nothing found.")] : [];
      list.replaceChildren(...items, ...none);
    }
  }

  #item(row) {
    const at = moment(row.updated_at);
    const project = row.project ? row.project.split("/").filter(Boolean).at(-1) : null;
    const facts = [project, plural(row.turns ?? 0, "turn"), at ? when(at) : null].filter(Boolean).join(" \u00b7 ");
    const here = row.session === this.#current;
    const more = el("button", { type: "button", className: "session-more", title: "Rename, copy, delete", onclick: () => this.#edit(row) },
      icon(ICONS.more), el("span", { className: "visually-hidden" }, `Rename, copy or delete ${this.#name(row)}`));
    return el("li", { className: "session-item" }, el("button", { type: "button", className: "session-row", "aria-current": here ? "true" : null, onclick: () => this.#choose(row.session) },
      el("span", { className: "session-title" }, this.#name(row)),
      el("span", { className: "note" }, facts)), more);
  }
}
