// One unit of the autopilot: its task, its plan, and everything that happened to it.

import { request, withQuery } from "./api.js";
import { byId, el } from "./dom.js";
import { escaped, foreign, oneLine } from "./foreign.js";
import { clock, dollars, moment, thousands } from "./format.js";
import { orderButtons } from "./pilotorders.js";
import { Rows } from "./rows.js";

/** The lines of a running attempt that are shown. */
const LAST_LINES = 12;
/** Files that are not committed and are listed. */
const MAX_PENDING = 50;

const KINDS = { milestone: "Milestone", slice: "Slice", task: "Task" };

const PHASES = {
  research: "research",
  plan: "planning",
  execute: "work",
  tdd: "tests",
  verify: "checks",
  review: "review",
  uat: "acceptance",
  merge: "merge",
  complete: "completion",
  reassess: "decision",
};

const OUTCOMES = {
  success: "done",
  failure: "failed",
  abandoned: "given up",
  canceled: "cancelled",
  interrupted: "interrupted",
  unit_timeout: "took too long",
  turn_timeout: "a turn took too long",
  stalled: "stood still",
};

/** A phase in words. */
const phaseOf = (name) => PHASES[name] ?? oneLine(name, 30);

/** The kind of a unit, by its id. */
export const kindOf = (id) => KINDS[id.split("/")[0]] ?? "Unit";

/** How a unit stands, in words. */
export function standOf(unit) {
  if (unit.is_over) return { succeeded: "Done", failed: "Failed", canceled: "Cancelled" }[unit.status] ?? "Over";
  if (unit.held) return `Held up: ${phaseOf(unit.phase)}`;
  if (unit.is_running) return `Runs: ${phaseOf(unit.phase)}`;
  return `Waits: ${phaseOf(unit.phase)}`;
}

const time = (value) => {
  const at = moment(value);
  return at ? clock(at) : "";
};

/** A row that is filled anew as a whole. */
const plain = (fill) => () => {
  const node = el("li", {});
  return { node, fill: (one) => node.replaceChildren(...fill(one)) };
};

const runText = (run) => {
  const outcome = run.outcome ? OUTCOMES[run.outcome] ?? oneLine(run.outcome, 40) : "runs";
  const error = run.error === "" ? "" : `, ${oneLine(run.error, 60)}`;
  return [
    el("span", {}, `Attempt ${run.attempt}, ${phaseOf(run.phase)}: ${outcome}${error}`),
    el("span", { className: "note" }, `${time(run.started_at)} · ${thousands(run.tokens)} tokens · ${dollars(run.cost)}`),
  ];
};

const moveText = (move) => [
  el("span", {}, `${phaseOf(move.from)} → ${phaseOf(move.to)}`),
  el("span", { className: "note" }, `${time(move.at)} · ${oneLine(move.reason)}`),
];

const logText = (line) => {
  const parts = [time(line.at)];
  if (line.took_ms !== undefined) parts.push(`${thousands(line.took_ms)} ms`);
  if (line.tokens !== undefined) parts.push(`${thousands(line.tokens)} tokens`);
  if (line.cost !== undefined) parts.push(dollars(line.cost));
  return [
    el("span", {}, `${oneLine(line.kind, 20)}: ${oneLine(line.text, 200)}`),
    el("span", { className: "note" }, parts.join(" · ")),
  ];
};

const pendingText = ({ path }) => [el("span", {}, `not committed: ${oneLine(path, 200)}`)];

function gateRow() {
  const line = el("summary", {});
  const output = el("pre", { className: "command", tabIndex: 0 });
  const node = el("li", {}, el("details", {}, line, output));
  return {
    node,
    fill: (gate) => {
      node.dataset.passed = String(gate.passed);
      line.textContent = `${oneLine(gate.gate, 60)}: ${gate.passed ? "passed" : "failed"}, try ${gate.attempt}, ${gate.took_ms} ms, ${time(gate.at)}`;
      output.textContent = gate.output === "" ? "It wrote nothing." : escaped(gate.output);
      output.setAttribute("aria-label", `Output of ${oneLine(gate.gate, 60)}`);
    },
  };
}

export class PilotUnit {
  #order;
  #closed;
  #shown = "";
  #runs = new Rows(byId("pilot-runs"), plain(runText));
  #moves = new Rows(byId("pilot-moves"), plain(moveText));
  #gates = new Rows(byId("pilot-gates"), gateRow);
  #log = new Rows(byId("pilot-log"), plain(logText));
  #pending = new Rows(byId("pilot-pending"), plain(pendingText));
  id = null;

  /** `order` gives an order about a unit, `closed` is called when its person has closed it. */
  constructor(order, closed) {
    this.#order = order;
    this.#closed = closed;
    byId("pilot-close").addEventListener("click", () => this.close());
  }

  /** Looks at a unit. */
  open(id) {
    this.id = id;
    this.#shown = "";
    byId("pilot-plan-part").open = false;
    byId("pilot-diff-part").open = false;
    byId("pilot-diff-part").hidden = true;
    byId("pilot-log-part").hidden = true;
    byId("pilot-cancel").replaceChildren(orderButtons(["cancel"], (order, reason) => this.#order(id, order, reason)));
    for (const rows of [this.#runs, this.#moves, this.#gates, this.#log, this.#pending]) rows.show([], () => "");
  }

  /** Looks at none any longer. */
  leave() {
    this.id = null;
    byId("pilot-details").hidden = true;
    byId("pilot-board").dataset.open = "false";
  }

  close() {
    this.leave();
    this.#closed();
  }

  /** Reads the unit again. */
  async refresh(project, units) {
    const unit = this.id;
    if (unit === null) return;
    if (!units.some((one) => one.id === unit)) {
      this.leave();
      return;
    }
    const details = await request(withQuery("/api/v1/pilot/unit", { project, unit }));
    // Another unit was opened meanwhile, or this one was closed.
    if (unit !== this.id) return;
    const now = JSON.stringify(details);
    const isNew = now !== this.#shown;
    if (isNew) {
      this.#shown = now;
      this.#fill(details);
    }
    // What an attempt does shows in the details at its end alone.
    if (isNew || details.unit.is_running) await this.#live(project, unit, details.unit.is_running);
  }

  /** Shows the last lines of an attempt that runs, and what the unit changes that is not merged. */
  async #live(project, unit, isRunning) {
    const [log, changes] = await Promise.all([
      isRunning ? request(withQuery("/api/v1/pilot/log", { project, unit, last: LAST_LINES })) : { lines: [] },
      request(withQuery("/api/v1/pilot/changes", { project, unit })),
    ]);
    if (unit !== this.id) return;
    byId("pilot-log-part").hidden = log.lines.length === 0;
    this.#log.show(log.lines.map((line, n) => ({ ...line, n })), (line) => String(line.n));
    const { branch, target, diff, is_cut: isCut, pending } = changes;
    byId("pilot-diff-part").hidden = diff === "" && pending.length === 0;
    byId("pilot-diff-title").textContent = `Changes against ${oneLine(target, 60)}`;
    this.#pending.show(pending.slice(0, MAX_PENDING).map((path) => ({ path })), ({ path }) => path);
    const text = diff === "" ? `Nothing is committed on ${branch}.` : `${diff}${isCut ? "\nThe rest is left out: git shows it.\n" : ""}`;
    const shown = escaped(text);
    if (byId("pilot-diff").textContent !== shown) byId("pilot-diff").textContent = shown;
  }

  #fill({ unit, description, branch, plan, last_error: error, runs, moves, gates, blockers }) {
    byId("pilot-details").hidden = false;
    byId("pilot-board").dataset.open = "true";
    byId("pilot-details-title").textContent = oneLine(unit.title || unit.id, 120);
    const facts = [standOf({ ...unit, held: blockers.length > 0 }), kindOf(unit.id), oneLine(unit.id, 60), dollars(unit.cost)];
    if (branch) facts.push(oneLine(branch, 80));
    byId("pilot-facts").textContent = facts.join(" · ");
    byId("pilot-cancel").hidden = unit.is_over;
    byId("pilot-description").replaceChildren(foreign(description));
    byId("pilot-plan-part").hidden = plan === "";
    byId("pilot-plan-text").textContent = escaped(plan);
    byId("pilot-error-part").hidden = error === "";
    byId("pilot-error-text").textContent = escaped(error);
    const list = (name, rows, items) => {
      byId(`pilot-${name}-part`).hidden = items.length === 0;
      rows.show(items.map((item, n) => ({ ...item, n })), (item) => String(item.n));
    };
    list("runs", this.#runs, runs);
    list("moves", this.#moves, moves);
    list("gates", this.#gates, gates);
  }
}
