// Times, names and states in plain words.

const TIME = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const SECONDS = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });
const SHORT_DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

/** A moment from milliseconds or RFC 3339; `null` if it is neither. */
export function moment(value) {
  const date = new Date(value);
  return value === null || value === undefined || Number.isNaN(date.getTime()) ? null : date;
}

export const clock = (date) => SECONDS.format(date);
export const day = (date) => DAY.format(date);

/** Today's time, or the day. */
export function when(date) {
  const today = new Date().toDateString() === date.toDateString();
  return today ? TIME.format(date) : SHORT_DAY.format(date);
}

/** How long until a moment, in one unit. */
export function until(date) {
  const minutes = Math.round((date.getTime() - Date.now()) / 60_000);
  if (minutes <= 0) return "now";
  if (minutes < 60) return `in ${minutes} min`;
  const hours = Math.round(minutes / 60);
  return hours < 48 ? `in ${hours} h` : `in ${Math.round(hours / 24)} days`;
}

export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

const STATES = {
  started: "running",
  done: "done",
  failed: "failed",
  denied: "refused",
  waiting: "waits for you",
  unknown: "unclear",
  simulated: "simulated",
  cancelled: "stopped",
};

/** A tool step's state in words. */
export const state = (name) => STATES[name] ?? name;

const RISKS = {
  low: "Low risk",
  medium: "Medium risk",
  high: "High risk",
  irreversible: "Cannot be undone",
};

/** A risk in words; one that is not known is told as it is, and handled as the highest. */
export const risk = (name) => RISKS[name] ?? `Risk ${name}`;

/** Whether a state of an ask can still change to another: the answer to who gave it may come after what came of it. */
export const follows = (state, former) => !(state === "approved" && OUTCOMES.has(former));

/** The states that say what came of a yes; frames that were stored earlier say `used` for `applied`. */
const OUTCOMES = new Set(["applied", "used", "simulated", "failed", "unknown"]);

/** Returns true if a state says what came of a yes. */
export const isOutcome = (state) => OUTCOMES.has(state);

/** The ledger's events in words, in the order in which one meets them. */
export const EVENTS = {
  received: "Message received",
  gated: "Gate",
  hooked: "Hook",
  shadowed: "Tried rule",
  intent: "About to act",
  outcome: "Result",
  asked: "Asked",
  answered: "Answered",
  denied: "Refused",
  served: "Answered again",
  model_called: "Model call",
  replied: "Reply",
  phase: "Turn",
  worked: "Work",
  applied: "Applied to project",
  remembered: "Memory",
  planned: "Plan",
  keyed: "Key",
  escalated: "Escalated",
  case_moved: "Case",
  agent_moved: "Agent",
  customer_read: "Customer read",
  policy_changed: "Rules changed",
  sandbox_ready: "Sandbox",
  checkpoint: "Checkpoint",
  compacted: "Compacted",
  connected: "Network",
  restored: "Restored",
  erased: "Erased",
};

/** An event in words. */
export const event = (name) => EVENTS[name] ?? name;

/** What an exit code means for the person who reads the reply. */
export const EXITS = {
  bug: "Something went wrong inside Writ.",
  denied: "Something was refused.",
  waiting: "Waits for your answer.",
  budget: "The budget is used up.",
  model: "The model did not give a usable answer.",
  verification: "A check failed.",
  ledger: "The ledger does not verify.",
  blocked: "A person is needed to continue.",
  interrupted: "Stopped.",
  config: "The configuration must be looked at.",
  usage: "This could not be understood.",
};

/** A number of bytes, as people read it. */
export function size(bytes) {
  if (bytes < 1024) return plural(bytes, "byte");
  const units = ["KiB", "MiB", "GiB"];
  let value = bytes;
  let unit = -1;
  do {
    value /= 1024;
    unit += 1;
  } while (value >= 1024 && unit + 1 < units.length);
  return `${value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

/** Micro-dollars as dollars, with as many digits as a small amount needs. */
export const dollars = (micro) => (micro === 0 ? "$0" : micro < 10_000 ? `$${(micro / 1_000_000).toFixed(4)}` : `$${(micro / 1_000_000).toFixed(2)}`);

/** A number of tokens, in thousands where it has some. */
export const thousands = (tokens) => (tokens >= 10_000 ? `${Math.round(tokens / 1000)}k` : String(tokens));
