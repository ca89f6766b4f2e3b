// The fleet as the server sees it: its agents, its open cases and what is unusual, read again and again while somebody looks.

import { announce } from "./announce.js";
import { Refused, request } from "./api.js";
import { oneLine } from "./foreign.js";

/** How often it is read while it is in view, in milliseconds. */
const NEAR = 2_000;
/** How often otherwise, for the number of cases that wait. */
const FAR = 15_000;

const NOTHING = { agents: [], cases: [], anomalies: [] };

/** The states of a case in words. */
const STATES = {
  open: "waits for an agent",
  held: "with an agent",
  "held by a person": "with a person",
  escalating: "goes to the next",
  queued: "waits for a person",
  closed: "closed",
  damaged: "cannot be read",
};

/** A state of a case in words. */
export const caseState = (name) => STATES[name] ?? oneLine(name, 40);

/** Whether a case is with people: it waits for one, or one has taken it. */
export const isWithPeople = (one) => one.state === "queued" || one.state === "held by a person";

/** The path of the fleet, or one below it. */
export const fleetPath = (rest = "") => `/api/v1/fleet${rest === "" ? "" : `/${rest}`}`;

export class Fleet {
  #connection;
  #changed;
  #timer = null;
  /** Counts the reads, so that an old answer does not overtake a new one. */
  #reads = 0;
  #near = false;
  /** Whether somebody looks at the agents themselves, and waits for a router that may start later. */
  #waits = false;
  /** Whether a case router runs here. */
  #runs = false;
  #status = NOTHING;
  #error = null;
  #seen = "";
  /** The cases that waited for a person at the last look; `null` before the first. */
  #queued = null;

  /** `changed` is called when something else is to be shown. */
  constructor(connection, changed) {
    this.#connection = connection;
    this.#changed = changed;
    document.addEventListener("visibilitychange", () => this.#plan(0));
  }

  get runs() {
    return this.#runs;
  }

  get status() {
    return this.#status;
  }

  /** Why it could not be read; `null`: it could. */
  get error() {
    return this.#error;
  }

  /** The number of cases that wait for a person. */
  get waiting() {
    return this.#status.cases.filter((one) => one.state === "queued").length;
  }

  /** The case of this id, if it is open. */
  find(id) {
    return this.#status.cases.find((one) => one.case === id) ?? null;
  }

  /** The connection is there: looks whether a case router runs, so that a home without one is not asked for its cases. */
  async begin() {
    try {
      this.#runs = (await request("/api/v1/state")).case_router === true;
    } catch {
      // What was known stays: the next connection asks again.
      return;
    }
    if (!this.#runs) this.#take(NOTHING, null);
    this.#changed();
    this.#plan(0);
  }

  /** Says whether somebody looks at cases now, and whether at the agents. */
  look(near, waits) {
    this.#waits = waits;
    if (this.#near === near && (this.#runs || !waits)) return;
    this.#near = near;
    if (!this.#runs && near) this.begin();
    else this.#plan(near ? 0 : FAR);
  }

  #plan(after) {
    clearTimeout(this.#timer);
    if (this.#runs) this.#timer = setTimeout(() => this.refresh(), after);
    else this.#timer = this.#waits ? setTimeout(() => this.begin(), FAR) : null;
  }

  /** Reads it now. */
  async refresh() {
    if (!this.#runs) return;
    const read = ++this.#reads;
    if (!document.hidden && this.#connection.open) {
      try {
        const status = await request(fleetPath());
        if (read !== this.#reads) return;
        this.#take(status, null);
      } catch (error) {
        if (read !== this.#reads) return;
        this.#take(this.#status, error instanceof Refused ? error : new Refused(0, "", "The fleet could not be read.", ""));
      }
    }
    this.#plan(this.#near ? NEAR : FAR);
  }

  #take(status, error) {
    const seen = JSON.stringify([status, error?.message]);
    if (seen === this.#seen) return;
    this.#seen = seen;
    this.#error = error;
    this.#status = { ...NOTHING, ...status };
    this.#tell();
    this.#changed();
  }

  #tell() {
    const queued = this.#status.cases.filter((one) => one.state === "queued");
    const before = this.#queued;
    this.#queued = new Set(queued.map((one) => one.case));
    if (before === null) return;
    for (const one of queued) {
      if (!before.has(one.case)) announce(`A case waits for a person: ${oneLine(one.capability, 60)}`);
    }
  }
}
