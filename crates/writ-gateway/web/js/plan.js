// The plans that a conversation has brought about: how far each has come, and what its checks have shown.

import { request } from "./api.js";
import { byId, el } from "./dom.js";
import { oneLine } from "./foreign.js";
import { plural } from "./format.js";
import { stateOf, step } from "./work.js";

/** The time between two looks while the plan is open, in milliseconds. */
const LOOK_EVERY = 2_000;
/** Plans that are shown with their steps, the newest first; the others are in Work. */
const MAX_SHOWN = 5;

export class PlanSheet {
  #session;
  /** The conversation that the plans belong to. */
  #of = null;
  #items = [];
  #timer = null;
  #shown = "";

  #listed;

  /** `session()` answers with the conversation in view; `listed` is called with every item of work. */
  constructor(session, listed) {
    this.#session = session;
    this.#listed = listed;
    byId("plan-button").addEventListener("click", () => this.open());
    byId("plan").addEventListener("close", () => clearInterval(this.#timer));
  }

  /** Looks which plans the conversation has; the button stands where there is one. */
  async look() {
    const session = this.#session();
    if (session !== this.#of) byId("plan-button").hidden = true;
    let items;
    try {
      ({ items } = await request("/api/v1/work"));
    } catch {
      return;
    }
    this.#listed(items);
    if (session !== this.#session()) return;
    this.#of = session;
    this.#items = items.filter((item) => item.origin === session);
    byId("plan-button").hidden = this.#items.length === 0;
    if (byId("plan").open) await this.#read(session);
  }

  async open() {
    this.#shown = "";
    byId("plan-body").replaceChildren(el("p", { className: "note" }, "Looking."));
    byId("plan").showModal();
    clearInterval(this.#timer);
    this.#timer = setInterval(() => this.look(), LOOK_EVERY);
    await this.look();
  }

  async #read(session) {
    let details;
    try {
      details = await Promise.all(this.#items.slice(0, MAX_SHOWN).map((item) => request(`/api/v1/work/${encodeURIComponent(item.item)}`)));
    } catch (error) {
      byId("plan-body").replaceChildren(el("p", { className: "problem", role: "alert" }, [error.message, error.hint].filter(Boolean).join(" ")));
      return;
    }
    const now = JSON.stringify(details);
    // What is being read stays as it is while nothing changes.
    if (session !== this.#session() || now === this.#shown) return;
    this.#shown = now;
    const more = this.#items.length - details.length;
    byId("plan-body").replaceChildren(...details.map(plan), ...(more > 0 ? [el("p", { className: "note" }, `${plural(more, "older plan")}: see Work.`)] : []));
  }
}

function plan({ summary, steps, report }) {
  const close = () => byId("plan").close();
  const link = (href, text) => el("a", { className: "button secondary small", href, onclick: close }, text);
  const progress = el("progress", { max: Math.max(1, summary.steps), value: summary.steps_done, "aria-label": `${summary.steps_done} of ${plural(summary.steps, "step")} done` });
  return el("section", { className: "plan-item", data: { item: summary.item, state: summary.state } },
    el("h3", {}, oneLine(summary.title, 120)),
    el("p", { className: "case-head" }, el("span", { className: "case-state" }, stateOf(summary)), progress),
    summary.reason === "" ? null : el("p", { className: "note" }, oneLine(summary.reason)),
    el("ol", { className: "stack" }, steps.map(step)),
    report === "" ? null : el("details", {}, el("summary", {}, "Report"), el("pre", { className: "command", tabIndex: 0 }, report)),
    el("p", { className: "actions" },
      summary.state === "proposed" && summary.ask ? link(`#/review?ask=${encodeURIComponent(summary.ask)}`, "Read and answer it") : link("#/work", "More in Work")));
}
