// The cases that are with people, in Review: those that wait, and those that a person has taken.

import { caseRow } from "./agents.js";
import { byId } from "./dom.js";
import { isWithPeople } from "./fleet.js";
import { Rows } from "./rows.js";

/** Cases that are listed; more are told as a number. */
const MAX_LISTED = 50;

export class Queue {
  #fleet;
  #rows;

  /** `open` brings a case into view, where it is answered. */
  constructor(fleet, open) {
    this.#fleet = fleet;
    this.#rows = new Rows(byId("queue-list"), (one) => caseRow(one, open));
  }

  /** Shows what waits now: first what no person has taken. */
  show() {
    const cases = this.#fleet.status.cases.filter(isWithPeople);
    const ordered = cases.toSorted((a, b) => Number(b.state === "queued") - Number(a.state === "queued"));
    byId("queue").hidden = ordered.length === 0;
    this.#rows.show(ordered.slice(0, MAX_LISTED), (one) => one.case);
    const more = ordered.length - MAX_LISTED;
    byId("queue-more").textContent = more > 0 ? `and ${more} more: they are listed in Agents` : "";
  }
}
