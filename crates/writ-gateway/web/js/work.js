// Work: the items of work, how far each has come, and what its checks have shown.

import { request } from "./api.js";
import { byId, el } from "./dom.js";
import { oneLine } from "./foreign.js";
import { plural } from "./format.js";
import { Rows } from "./rows.js";

/** The time between two looks while the page is in view, in milliseconds; news of the conversation bring one forward. */
const LOOK_EVERY = 2_000;

const STATES = {
  proposed: "Waits for you",
  running: "Running",
  paused: "Paused",
  consulting: "Asks the planner",
  stuck: "Needs you",
  over_budget: "Budget used up",
  done: "Done",
  failed: "Checks failed",
  cancelled: "Ended",
  denied: "Refused",
};

/** The state of an item, in words. */
export const stateOf = (item) => STATES[item.state] ?? item.state;

const STEPS = { waiting: "waits", running: "runs", checking: "is checked", done: "done", failed: "failed" };

const VERDICTS = { pass: "passed", fail: "failed", not_run: "not proven" };

/** What a person can do with an item, by its state. */
const ACTIONS = {
  running: ["pause", "cancel"],
  consulting: ["pause", "cancel"],
  paused: ["resume", "cancel"],
  proposed: ["cancel"],
  stuck: ["retry", "cancel"],
  over_budget: ["retry"],
  failed: ["retry"],
  cancelled: ["retry"],
  denied: ["retry"],
};

const LABELS = { pause: "Pause", resume: "Go on", cancel: "End", retry: "Try again" };

function attempt(one) {
  const verdict = VERDICTS[one.verdict] ?? "not checked yet";
  const checks = one.checks.map((check) => el("li", { data: { verdict: check.verdict } },
    el("span", {}, `${oneLine(check.name, 60)}: ${VERDICTS[check.verdict] ?? check.verdict}`),
    el("ul", { className: "note" }, check.findings.map((finding) => el("li", {}, oneLine(finding))))));
  const notices = one.notices.map((notice) => el("li", { className: "problem" }, oneLine(notice)));
  return el("li", {}, el("p", {}, `Attempt ${one.attempt}: ${verdict}`), el("ul", {}, notices, checks));
}

/** A step with its attempts and their evidence. */
export function step(one) {
  const attempts = one.attempts.length > 0
    ? el("details", { open: one.state === "failed" },
      el("summary", {}, plural(one.attempts.length, "attempt")), el("ol", {}, one.attempts.map(attempt)))
    : null;
  return el("li", { className: "work-step", data: { state: one.state } },
    el("p", {}, el("strong", {}, oneLine(one.title || one.step, 120)), ` ${STEPS[one.state] ?? one.state}`), attempts);
}

export class Work {
  #items = [];
  /** The domain whose items are shown; null: all. */
  #domain = null;
  #rows;
  #open = null;
  #timer = null;
  #shown = "";

  constructor() {
    this.#rows = new Rows(byId("work-list"), () => this.#row());
  }

  /** Whether the surface is in view: it is read again and again then. */
  look(inView) {
    clearInterval(this.#timer);
    this.#timer = null;
    if (!inView) return;
    this.refresh();
    this.#timer = setInterval(() => this.refresh(), LOOK_EVERY);
  }

  /** Reads the items, and the one that is open. */
  async refresh() {
    try {
      const query = this.#domain ? `?domain=${encodeURIComponent(this.#domain)}` : "";
      const { items } = await request(`/api/v1/work${query}`);
      // Without an item there is nothing to tap that would show all of them again.
      if (this.#domain && items.length === 0) {
        this.#domain = null;
        return await this.refresh();
      }
      this.#items = items;
      byId("work-note").textContent = items.length === 0 ? "No work is planned. Ask for something that takes several steps." : "";
      if (this.#open) await this.#read(this.#open);
    } catch (error) {
      byId("work-note").textContent = `${error.message} ${error.hint ?? ""}`.trim();
      return;
    }
    // A row is filled anew only where its item differs, so what is open and chosen belongs to it.
    const shown = this.#items.map((item) => ({ ...item, open: item.item === this.#open, chosen: this.#domain }));
    this.#rows.show(shown, (item) => item.item);
    byId("work-size").textContent = plural(this.#items.length, "item");
  }

  #row() {
    const head = el("button", { type: "button", className: "case-row" });
    const actions = el("div", { className: "actions" });
    const node = el("li", { className: "work-item" }, head, actions);
    return {
      node,
      fill: (item) => {
        node.dataset.item = item.item;
        node.dataset.state = item.state;
        head.onclick = () => this.#toggle(item.item);
        head.setAttribute("aria-expanded", String(item.open));
        // A plan of the autopilot has units instead, which stand above.
        const done = item.steps === 0 ? [] : [`${item.steps_done} of ${plural(item.steps, "step")}`];
        const progress = done.map((text) => {
          const bar = el("progress", { max: item.steps, value: item.steps_done });
          bar.setAttribute("aria-label", `${text} done`);
          return bar;
        });
        head.replaceChildren(
          el("span", { className: "case-head" },
            el("span", { className: "case-state" }, stateOf(item)),
            el("span", { className: "case-about" }, oneLine(item.title, 120)),
            ...progress),
          el("span", { className: "case-reason" }, oneLine(item.reason)),
          el("span", { className: "note" }, [oneLine(item.kind, 20), ...done, `${item.spending.tokens} tokens`].join(" · ")));
        const links = item.state === "proposed" && item.ask
          ? [el("a", { className: "button primary small", href: `#/review?ask=${encodeURIComponent(item.ask)}` }, "Read the plan")]
          : [];
        const buttons = (ACTIONS[item.state] ?? []).map((name) => el("button",
          { type: "button", className: "quiet small", onclick: () => this.#act(item.item, name) }, LABELS[name]));
        const domains = (item.domains ?? []).map((name) => {
          const chip = el("button", { type: "button", className: "chip", onclick: () => this.#choose(name) }, oneLine(name, 32));
          chip.setAttribute("aria-pressed", String(item.chosen === name));
          chip.setAttribute("aria-label", `Show the items of ${name} alone`);
          return chip;
        });
        actions.replaceChildren(...links, ...buttons, ...domains);
      },
    };
  }

  /** Shows the items of a domain alone, or all of them again. */
  async #choose(domain) {
    this.#domain = this.#domain === domain ? null : domain;
    await this.refresh();
  }

  async #toggle(item) {
    this.#open = this.#open === item ? null : item;
    byId("work-details").hidden = this.#open === null;
    this.#shown = "";
    await this.refresh();
    if (this.#open) byId("work-details-title").focus({ preventScroll: false });
  }

  async #read(item) {
    const details = await request(`/api/v1/work/${encodeURIComponent(item)}`);
    // Another item was opened meanwhile, or this one was closed.
    if (item !== this.#open) return;
    const now = JSON.stringify(details);
    if (now === this.#shown) return;
    this.#shown = now;
    byId("work-details-title").textContent = oneLine(details.summary.title, 120);
    byId("work-steps").replaceChildren(...details.steps.map(step));
    byId("work-report").textContent = details.report;
    byId("work-report").hidden = details.report === "";
  }

  async #act(item, name) {
    try {
      await request(`/api/v1/work/${encodeURIComponent(item)}/${name}`, { method: "POST" });
    } catch (error) {
      byId("work-note").textContent = `${error.message} ${error.hint ?? ""}`.trim();
      return;
    }
    await this.refresh();
  }
}
