// Agents: who works on what now, and what is unusual about it.

import { byId, el } from "./dom.js";
import { caseState, isWithPeople } from "./fleet.js";
import { oneLine } from "./foreign.js";
import { clock, moment, plural, when } from "./format.js";
import { Rows } from "./rows.js";

/** Cases that are listed; more are told as a number. */
const MAX_CASES = 200;
/** Anomalies that are listed. */
const MAX_ANOMALIES = 50;

/** The oldest first among the same; what is with people before the others. */
const order = (a, b) => Number(isWithPeople(b)) - Number(isWithPeople(a));

const number = new Intl.NumberFormat();

/** What was asked, refused and used, in words; what is not known is left out. */
export function traffic(one) {
  const known = (value) => Number.isSafeInteger(value);
  return [
    known(one.requests_per_minute) ? `${number.format(one.requests_per_minute)} ${one.requests_per_minute === 1 ? "request" : "requests"} a minute` : null,
    known(one.refused) ? `${number.format(one.refused)} refused` : null,
    known(one.tokens) ? `${number.format(one.tokens)} ${one.tokens === 1 ? "token" : "tokens"}` : null,
  ].filter((part) => part !== null);
}

/** A row of a case that opens it: its state, what it is about, who holds it since when, and why. */
export function caseRow(one, open) {
  const node = el("button", { type: "button", className: "case-row", data: { case: one.case }, onclick: () => open(one.case) });
  return {
    node: el("li", {}, node),
    fill: (now) => {
      const since = moment(now.since);
      const holder = now.holder ? `${oneLine(now.holder, 60)}${since ? ` since ${when(since)}` : ""}` : "no one";
      node.dataset.state = now.state;
      node.replaceChildren(
        el("span", { className: "case-head" },
          el("span", { className: "case-state" }, caseState(now.state)),
          el("span", { className: "case-about" }, oneLine(now.capability, 60)),
          el("span", { className: "note" }, holder)),
        el("span", { className: "case-reason" }, oneLine(now.reason)),
        el("span", { className: "note" }, [oneLine(now.case_token, 60), ...traffic(now)].join(" · ")));
    },
  };
}

function agentRow() {
  const node = el("li", { className: "agent-row" });
  return {
    node,
    fill: (agent) => {
      node.dataset.agent = agent.name;
      const roles = (agent.roles ?? []).map((role) => oneLine(role, 40));
      node.replaceChildren(
        el("p", { className: "agent-head" },
          el("strong", {}, oneLine(agent.name, 60)),
          agent.version ? el("span", { className: "note" }, `version ${oneLine(agent.version, 30)}`) : null,
          el("span", { className: "agent-load" }, `${number.format(agent.cases)} of ${plural(agent.max_cases, "case")}`)),
        ...(roles.length > 0 ? [el("p", { className: "note" }, `Roles: ${roles.join(", ")}`)] : []),
        el("p", { className: "facts" }, traffic(agent).map((part) => el("span", {}, part))));
    },
  };
}

function anomaly(one) {
  const at = moment(one.at);
  const took = one.reaction === "revoke" ? "its key was revoked" : "nothing was taken from it";
  return el("li", { className: "anomaly", data: { reaction: one.reaction } },
    el("p", {}, el("time", { dateTime: at?.toISOString() ?? "" }, at ? clock(at) : ""), " ", el("strong", {}, oneLine(one.agent, 60)), `: ${oneLine(one.rule)}`),
    el("p", { className: "note" }, `${oneLine(one.evidence)} in ${oneLine(one.case, 60)}; ${took}`));
}

export class Agents {
  #fleet;
  #agents;
  #cases;
  #anomalies = "";

  /** `open` brings a case into view. */
  constructor(fleet, open) {
    this.#fleet = fleet;
    this.#agents = new Rows(byId("agent-list"), agentRow);
    this.#cases = new Rows(byId("case-list"), (one) => caseRow(one, open));
  }

  /** Shows what the fleet says now. */
  show() {
    const { agents, cases, anomalies } = this.#fleet.status;
    byId("agents-tab").hidden = !this.#fleet.runs;
    byId("agents-size").textContent = this.#fleet.runs ? `${plural(agents.length, "agent")}, ${plural(cases.length, "open case")}` : "";
    byId("agents-note").textContent = this.#note();
    byId("agent-part").hidden = agents.length === 0;
    this.#agents.show(agents, (agent) => agent.name);
    byId("case-part").hidden = cases.length === 0;
    const listed = cases.toSorted(order).slice(0, MAX_CASES);
    this.#cases.show(listed, (one) => one.case);
    byId("case-more").textContent = cases.length > listed.length ? `and ${cases.length - listed.length} more: writ fleet status` : "";
    this.#showAnomalies(anomalies.slice(0, MAX_ANOMALIES));
  }

  #note() {
    if (this.#fleet.error) return `${this.#fleet.error.message} ${this.#fleet.error.hint ?? ""}`.trim();
    if (!this.#fleet.runs) return "No case router runs here. In config.toml, [fleet] cases = true starts one.";
    const { agents, cases } = this.#fleet.status;
    if (agents.length === 0) return "No agent is deployed.";
    return cases.length === 0 ? "No case is open." : "";
  }

  #showAnomalies(list) {
    const seen = JSON.stringify(list);
    if (seen === this.#anomalies) return;
    this.#anomalies = seen;
    byId("anomaly-part").hidden = list.length === 0;
    byId("anomaly-list").replaceChildren(...list.map(anomaly));
  }
}
