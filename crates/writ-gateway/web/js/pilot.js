// The autopilot of a project, on the page Work: what holds it up, its units, and the one that is looked at.

import { announce } from "./announce.js";
import { request, withQuery } from "./api.js";
import { byId, el } from "./dom.js";
import { foreign, oneLine } from "./foreign.js";
import { dollars, moment, plural, when } from "./format.js";
import { orderButtons } from "./pilotorders.js";
import { kindOf, PilotUnit, standOf } from "./pilotunit.js";
import { Rows } from "./rows.js";

/** The time between two looks while the board is in view, in milliseconds. */
const LOOK_EVERY = 2_000;
/** Units that are listed; more are told as a number. */
const MAX_LISTED = 500;
/** Where the project that was looked at last is remembered. */
const PROJECT = "writ.pilot";

const STATES = {
  idle: "Does not run",
  running: "Running",
  paused: "Paused",
  interrupted: "Interrupted",
  complete: "Everything is done",
  failed: "Ended with failures",
};

const EVENTS = {
  GateBlocked: "A check does not pass",
  MergeConflict: "Does not join with its target",
  Paused: "Waits for you",
  UATPending: "Its result waits for your acceptance",
};

/** What a person can order, by what holds the unit up; what the engine would refuse is not offered. */
const ORDERS = {
  UATPending: ["accept", "reject", "cancel"],
  Paused: ["resume", "cancel"],
  MergeConflict: ["resume", "force_clear", "cancel"],
  GateBlocked: ["force_clear", "cancel"],
};

const NOTHING = { state: "", plans: [], units: [], blockers: [], cost: 0 };

function remembered() {
  try {
    return localStorage.getItem(PROJECT) ?? "";
  } catch {
    return "";
  }
}

export class Pilot {
  #connection;
  #folders;
  #project = remembered();
  #status = NOTHING;
  #timer = null;
  #inView = false;
  /** Set from the order to pause until nothing runs any longer. */
  #pausing = false;
  /** Counts the reads, so that an old answer does not overtake a new one. */
  #reads = 0;
  /** The read that is not answered yet, `0` when there is none. */
  #reading = 0;
  /** The blockers of the last look; `null` before the first of a project. */
  #known = null;
  /** The cards of plans, by their work item. */
  #cards = new Map();
  /** Whether something was asked for, and is not answered yet. */
  #asking = false;
  #plans;
  #blockers;
  #units;
  #unit;

  /** `folders` answers with the folders of recent conversations. */
  constructor(connection, folders) {
    this.#connection = connection;
    this.#folders = folders;
    this.#plans = new Rows(byId("pilot-plans"), () => this.#planRow());
    this.#blockers = new Rows(byId("pilot-blockers"), (blocker) => this.#blockerRow(blocker));
    this.#units = new Rows(byId("pilot-units"), (unit) => this.#unitRow(unit));
    this.#unit = new PilotUnit((unit, order, reason) => this.#order(unit, order, reason), () => this.#closed());
    byId("pilot-folder").value = this.#project;
    byId("pilot-folder").addEventListener("focus", () => this.#offer());
    byId("pilot-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#choose(byId("pilot-folder").value.trim());
    });
    byId("pilot-go").addEventListener("click", () => this.#go());
    document.addEventListener("visibilitychange", () => this.#refreshIfSeen());
  }

  /** Whether the surface is in view: it is read again and again then. */
  look(inView) {
    clearInterval(this.#timer);
    this.#timer = null;
    this.#inView = inView;
    if (!inView) return;
    this.#refreshIfSeen();
    // An engine that answers slowly is not asked again before it has answered: each new read would drop the one before.
    this.#timer = setInterval(() => this.#reading !== 0 || this.#refreshIfSeen(), LOOK_EVERY);
  }

  #refreshIfSeen() {
    if (this.#inView && !document.hidden && this.#connection.open && this.#project !== "") this.#refresh();
  }

  #offer() {
    byId("pilot-folders").replaceChildren(...this.#folders().map((value) => el("option", { value })));
  }

  #choose(project) {
    this.#project = project;
    this.#reads += 1;
    this.#unit.leave();
    this.#show(NOTHING);
    this.#known = null;
    this.#pausing = false;
    this.#say("");
    byId("pilot-board").hidden = true;
    if (project === "") this.#remember("");
    else this.#refresh();
  }

  #remember(project) {
    try {
      localStorage.setItem(PROJECT, project);
    } catch {
      // Without storage the project is chosen again next time.
    }
  }

  async #refresh() {
    const read = ++this.#reads;
    this.#reading = read;
    const project = this.#project;
    try {
      const status = await request(withQuery("/api/v1/pilot", { project }));
      await this.#findCards(status.plans);
      if (read !== this.#reads) return;
      this.#remember(project);
      this.#show(status);
      await this.#unit.refresh(project, status.units);
      if (read === this.#reads) this.#say("");
    } catch (error) {
      if (read !== this.#reads) return;
      this.#refused(error);
      // A folder that is no project is not asked about again and again.
      if (error.status !== 0 && byId("pilot-board").hidden) this.#project = "";
    } finally {
      if (this.#reading === read) this.#reading = 0;
    }
  }

  /** Finds the cards of the plans that wait for an answer. */
  async #findCards(plans) {
    for (const { item, state } of plans) {
      if (state !== "proposed" || this.#cards.has(item)) continue;
      const { summary } = await request(`/api/v1/work/${encodeURIComponent(item)}`);
      if (summary.ask) this.#cards.set(item, summary.ask);
    }
  }

  #show(status) {
    this.#status = status;
    byId("pilot-board").hidden = false;
    this.#pausing &&= status.state === "running";
    const state = status.state === "" ? "" : STATES[status.state] ?? oneLine(status.state, 40);
    byId("pilot-state").textContent = this.#pausing ? "Pauses once what runs has ended" : state;
    byId("pilot-state").dataset.state = status.state;
    const over = status.units.filter((unit) => unit.is_over).length;
    byId("pilot-size").textContent = status.units.length === 0
      ? "Nothing is planned: writ pilot plan \"GOAL\" makes a plan."
      : `${over} of ${plural(status.units.length, "unit")} over · ${dollars(status.cost)}`;
    byId("pilot-go").textContent = status.state === "running" ? "Pause" : "Run";
    byId("pilot-go").hidden = status.plans.length === 0 || status.units.every((unit) => unit.is_over);
    const waiting = status.plans.filter((plan) => plan.state === "proposed");
    this.#plans.show(waiting.map((plan) => ({ ...plan, ask: this.#cards.get(plan.item) })), (plan) => plan.item);
    const titles = new Map(status.units.map((unit) => [unit.id, unit.title]));
    const blockers = status.blockers.map((blocker) => ({ ...blocker, title: titles.get(blocker.unit) ?? "" }));
    byId("pilot-held").hidden = blockers.length === 0;
    this.#blockers.show(blockers, (blocker) => `${blocker.event} ${blocker.unit}`);
    this.#tell(blockers);
    const held = new Set(status.blockers.map((blocker) => blocker.unit));
    this.#units.show(status.units.slice(0, MAX_LISTED).map((unit) => ({ ...unit, held: held.has(unit.id), open: unit.id === this.#unit.id })), (unit) => unit.id);
    const more = status.units.length - MAX_LISTED;
    byId("pilot-more").textContent = more > 0 ? `and ${more} more: writ pilot status lists them` : "";
  }

  #tell(blockers) {
    const before = this.#known;
    this.#known = new Set(blockers.map((blocker) => `${blocker.event} ${blocker.unit}`));
    if (before === null) return;
    for (const { event, unit, title } of blockers) {
      if (!before.has(`${event} ${unit}`)) announce(`The autopilot is held up: ${oneLine(title || unit, 80)}. ${EVENTS[event] ?? ""}`);
    }
  }

  #planRow() {
    const node = el("li", { className: "pilot-plan" });
    return {
      node,
      fill: (plan) => node.replaceChildren(
        el("p", {}, el("strong", {}, "A plan waits for you"), ` ${oneLine(plan.milestone, 60)}`),
        plan.ask ? el("a", { className: "button primary small", href: `#/review?ask=${encodeURIComponent(plan.ask)}` }, "Read the plan") : ""),
    };
  }

  #blockerRow({ unit, event }) {
    const about = el("div", {});
    const node = el("li", { className: "pilot-blocker", data: { event, unit } }, about);
    // What concerns every unit is no unit's: it goes on with Run.
    const orders = unit === "" ? [] : ORDERS[event] ?? ["cancel"];
    if (orders.length > 0) node.append(orderButtons(orders, (order, reason) => this.#order(unit, order, reason)));
    return {
      node,
      fill: (blocker) => {
        const since = moment(blocker.since);
        about.replaceChildren(
          el("p", {}, el("strong", {}, EVENTS[event] ?? oneLine(event, 40)), ` ${oneLine(blocker.title || unit, 120)}`),
          blocker.detail === "" ? "" : foreign(blocker.detail),
          since ? el("p", { className: "note" }, `since ${when(since)}`) : "");
      },
    };
  }

  #unitRow({ id }) {
    const head = el("button", { type: "button", className: "case-row", onclick: () => this.#toggle(id) });
    const node = el("li", { className: "pilot-unit", data: { unit: id, kind: id.split("/")[0] } }, head);
    return {
      node,
      fill: (unit) => {
        node.dataset.status = unit.status;
        node.dataset.over = String(unit.is_over);
        node.dataset.held = String(unit.held);
        head.setAttribute("aria-expanded", String(unit.open));
        const runs = unit.attempt > 0 ? ` · ${plural(unit.attempt, "run")}` : "";
        head.replaceChildren(
          el("span", { className: "case-head" },
            el("span", { className: "pilot-title" }, oneLine(unit.title || id, 120)),
            el("span", { className: "note" }, dollars(unit.cost))),
          el("span", { className: "case-head" },
            el("span", { className: "pilot-stand" }, standOf(unit)),
            el("span", { className: "pilot-kind" }, `${kindOf(id)}${runs}`)));
      },
    };
  }

  async #toggle(id) {
    if (this.#unit.id === id) {
      this.#unit.close();
      return;
    }
    this.#unit.open(id);
    this.#show(this.#status);
    try {
      await this.#unit.refresh(this.#project, this.#status.units);
      byId("pilot-details-title").focus();
    } catch (error) {
      this.#refused(error);
    }
  }

  /** The unit is closed: the focus goes to its row. */
  #closed() {
    const row = document.querySelector(`#pilot-units button[aria-expanded="true"]`);
    this.#show(this.#status);
    row?.focus();
  }

  async #go() {
    const what = this.#status.state === "running" ? "pause" : "run";
    this.#pausing = what === "pause";
    await this.#ask(`/api/v1/pilot/${what}`, { project: this.#project });
  }

  async #order(unit, order, reason) {
    await this.#ask("/api/v1/pilot/order", { project: this.#project, unit, order, reason });
  }

  /** Asks for something, and shows what became of it. */
  async #ask(path, body) {
    // A button that is disabled would lose the focus.
    if (this.#asking) return;
    this.#asking = true;
    try {
      await request(path, { method: "POST", body });
      await this.#refresh();
    } catch (error) {
      this.#refused(error);
    } finally {
      this.#asking = false;
    }
    // What was answered is gone, and its button with it.
    if (document.activeElement === document.body) byId("pilot-state").focus();
  }

  #refused(error) {
    this.#say(`${error.message} ${error.hint ?? ""}`.trim());
  }

  #say(text) {
    if (byId("pilot-note").textContent !== text) byId("pilot-note").textContent = text;
  }
}
