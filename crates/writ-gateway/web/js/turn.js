// One turn in the stream: its steps, what it asked, its reply, and what the reply rests on.

import { append, el, icon, ICONS } from "./dom.js";
import { dollars, EXITS, follows, plural, size, state, thousands } from "./format.js";
import { markdown } from "./markdown.js";
import { badge, mark, verdict } from "./review.js";
import { shown } from "./shown.js";
import { line } from "./steps.js";

/** The least time between two renderings of text that streams in, in milliseconds. */
const FRAME = 50;
/** Past this many characters text that streams in is rendered less often. */
const LONG = 20_000;
const LONG_FRAME = 600;

/** Stands where text that streamed in is missing. */
const GAP = "\n\n\u2026\n\n";

/** Returns true if a piece of text is part of a whole one; spaces and line ends count alike. */
const covers = (whole, piece) => spaced(whole).includes(spaced(piece));
const spaced = (text) => text.replace(/\s+/g, " ").trim();

const RUNNING = new Set(["started"]);
const UNEASY = new Set(["failed", "denied", "unknown", "waiting", "cancelled"]);

/** A field of a form: what is shown, and where it is filled in. */
function formField({ name, title, description, takes, required }) {
  const id = `field-${name}-${(fieldCount += 1)}`;
  const must = { id, name, required: Boolean(required) && takes.kind !== "boolean" };
  let input;
  if (takes.kind === "choice") {
    const none = required ? [] : [el("option", { value: "" }, "No answer")];
    input = el("select", must, none, takes.choices.map((choice) => el("option", { value: choice }, choice)));
  } else if (takes.kind === "boolean") input = el("input", { ...must, type: "checkbox" });
  else if (takes.kind === "text") input = el("input", { ...must, type: "text", minLength: takes.min, maxLength: takes.max });
  else input = el("input", { ...must, type: "number", step: takes.kind === "integer" ? "1" : "any" });
  const about = description ? el("span", { className: "note" }, description) : "";
  return { name, required, takes, input, node: el("p", { className: "field" }, el("label", { htmlFor: id }, title), input, about) };
}

/** What was filled in, by name; nothing of what was left empty and may be. */
function filled(fields, decision) {
  if (decision !== "approve") return {};
  const said = fields.map(({ name, required, takes, input }) => [name, takes.kind === "boolean" ? String(input.checked) : input.value, required]);
  return Object.fromEntries(said.filter(([, value, required]) => required || value !== "").map(([name, value]) => [name, value]));
}

/** Numbers for ids that stand once in a page. */
let fieldCount = 0;

export class Turn {
  id;
  node;
  /** Where it stands in the ledger; unknown while it runs. */
  ended = false;
  /** The text that streams in, since the last step. */
  text = "";
  #gap = false;
  #steps = [];
  /** Texts and groups of steps, in the order in which they came; the last one is the reply. */
  #flow;
  /** Texts that were shown before the reply: each with its node, and whether the server has said that it is whole. */
  #earlier = [];
  #work = null;
  #asks;
  #reply;
  #files;
  #marks;
  #asked = new Map();
  #gates = new Map();
  #touched = false;
  #usage = null;
  #timer = null;

  constructor(id) {
    this.id = id;
    this.#asks = el("div", { className: "asks" });
    this.#reply = el("div", { className: "reply" });
    this.#files = el("ul", { className: "files", hidden: true, "aria-label": "Files" });
    this.#marks = el("footer", { className: "marks", hidden: true });
    this.#flow = el("div", { className: "flow" }, this.#reply);
    this.node = el("li", { className: "turn", data: { turn: id, running: "true" } }, this.#flow, this.#files, this.#marks, this.#asks);
  }

  /** What it does right now, in a few words. */
  get doing() {
    const step = this.#steps.findLast((one) => RUNNING.has(one.state));
    return step ? step.summary || step.tool : "Thinking";
  }

  delta(text) {
    if (text === "" || this.ended) return;
    if (this.#gap && this.text !== "") this.text += GAP;
    this.#gap = false;
    this.text += text;
    this.#timer ??= setTimeout(() => this.#render(), this.text.length > LONG ? LONG_FRAME : FRAME);
  }

  /** Text that was seen before the page was loaded again; what came in between is missing until the end. */
  restore(text) {
    if (this.text !== "" || this.ended || this.#earlier.some((one) => covers(one.text, text))) return;
    this.text = text;
    this.#gap = true;
    this.#render();
  }

  /** The connection was lost: what streamed in meanwhile is missing until the text is whole. */
  interrupted() {
    this.#gap = this.text !== "";
  }

  /** Text that was streamed and is no part of the reply: what is shown of it is made whole. */
  shown(text) {
    if (this.text !== "") {
      this.#replaceBy(text);
      this.text = text;
      return this.#setAside(true);
    }
    const known = this.#earlier.find((one) => !one.whole && covers(text, one.text));
    if (known) {
      Object.assign(known, { text, whole: true });
      return known.node.replaceChildren(markdown(text));
    }
    this.text = text;
    return this.#setAside(true);
  }

  step({ tool, state: now, summary, call, arguments: given, output }) {
    if (this.ended) return;
    this.#setAside();
    const running = (one) => one.tool === tool && RUNNING.has(one.state) && (!call || !one.call || one.call === call);
    const known = RUNNING.has(now) ? undefined : this.#steps.find((one) => running(one) && one.summary === summary) ?? this.#steps.find(running);
    const step = known ?? { tool, node: el("li") };
    Object.assign(step, { state: now, summary: summary || step.summary || "", call, arguments: given || step.arguments || "", output: output || "" });
    if (!known) {
      this.#work ??= this.#group();
      step.group = this.#work;
      this.#steps.push(step);
      step.group.list.append(step.node);
    }
    step.node.replaceChildren(line(step, step.node.firstElementChild?.open));
    this.#count(step.group);
  }

  /** A new group of steps, before the reply that will come. */
  #group() {
    const title = el("span", {});
    const list = el("ol", { className: "steps" });
    const node = el("details", { className: "work", open: true }, el("summary", { onclick: () => (this.#touched = true) }, title), list);
    this.#reply.before(node);
    return { node, title, list };
  }

  /** A file that was sent: a download, never something that is shown. */
  file({ file, name, bytes, taint }, session) {
    if (this.#files.querySelector(`[data-file="${Number(file)}"]`)) return;
    const href = `api/v1/sessions/${encodeURIComponent(session)}/files/${Number(file)}`;
    const foreign = taint === "external" ? el("span", { className: "note" }, "depends on external content") : null;
    this.#files.append(el("li", { data: { file: String(Number(file)) } },
      el("a", { className: "button secondary small", href, download: name }, `Save ${name}`),
      el("span", { className: "note" }, size(bytes)),
      foreign));
    this.#files.hidden = false;
  }

  /** A person is asked. */
  ask(card, isOpen) {
    if (this.#asked.has(card.ask_id)) return;
    const node = el("div", { className: "ask", data: { ask: card.ask_id } });
    this.#asked.set(card.ask_id, { card, node, isOpen });
    this.#asks.append(node);
    this.#renderAsk(card.ask_id, null);
  }

  /** A gate asks about a text; `answer` sends the decision, and says whether that could be sent. */
  gate(frame, answer) {
    if (this.#gates.has(frame.ask_id)) return;
    const told = el("p", { className: "note", role: "status" });
    const server = frame.point === "server" ? frame.gate.replace(/^mcp:/, "") : null;
    const fields = (frame.fields ?? []).map(formField);
    const choose = ({ decision, consequence }) => el("button", {
      type: "button",
      className: decision === "approve" ? "button small" : "button secondary small",
      data: { decision },
      onclick: () => {
        const missing = decision === "approve" && fields.find((field) => !field.input.reportValidity());
        if (!missing) told.textContent = answer(decision, filled(fields, decision)) ? "" : "Not sent: there is no connection to Writ.";
      },
    }, server ? (decision === "approve" ? "Send it" : "Decline") : decision === "approve" ? "Let it pass" : "Stop it", el("span", { className: "visually-hidden" }, `: ${consequence}`));
    const what = frame.point === "output" ? "what the agent would say" : "your message";
    const title = server ? `The server ${server} asks you` : `A gate asks about ${what}`;
    const node = el("div", { className: "ask gate", data: { ask: frame.ask_id, state: "open" } },
      el("div", { className: "ask-head" }, icon(ICONS.waiting), el("span", { className: "verdict" }, title)),
      el("p", { className: "intent" }, frame.reason),
      el("div", { className: "shown", tabIndex: 0, role: "region", "aria-label": "Complete text" }, shown(frame.shown)),
      el("div", { className: "fields" }, fields.map((field) => field.node)),
      el("div", { className: "ask-foot" }, frame.choices.map(choose)),
      told);
    this.#gates.set(frame.ask_id, node);
    this.#asks.append(node);
  }

  #gateResolved({ ask_id: id, state: now }) {
    const node = this.#gates.get(id);
    node.dataset.state = now;
    node.querySelector(".ask-foot").remove();
    node.querySelector(".fields").remove();
    node.querySelector(".ask-head").replaceChildren(icon(ICONS[mark(now)]), el("span", { className: "verdict" }, verdict(now)));
  }

  /** Answers whether it was this turn that asked. */
  resolved(frame) {
    if (this.#gates.has(frame.ask_id)) {
      this.#gateResolved(frame);
      return true;
    }
    const asked = this.#asked.get(frame.ask_id);
    if (!asked) return false;
    if (follows(frame.state, asked.node.dataset.state)) this.#renderAsk(frame.ask_id, frame);
    return true;
  }

  note(text) {
    this.#asks.append(el("p", { className: "status-line" }, text));
  }

  /** A complete message of the agent; the last one ends the turn. */
  message(frame) {
    this.#stopRendering();
    if (!frame.last) {
      this.#replaceBy(frame.text);
      this.text = frame.text;
      return this.#setAside(true);
    }
    // Where the turn ends without a last word, what it said until then is its reply.
    if (frame.text.trim() !== "") {
      this.#replaceBy(frame.text);
      this.text = frame.text;
    }
    this.#reply.replaceChildren(markdown(this.text));
    this.#end();
    return this.#sign(frame);
  }

  /** A whole text comes: pieces on the screen that are part of it give way to it, the others stay above it. */
  #replaceBy(whole) {
    const others = this.text.split(GAP).filter((piece) => piece.trim() !== "" && !covers(whole, piece));
    this.text = others.join(GAP);
    this.#setAside(false);
  }

  /** It does not run any more, and said no last word. */
  halt() {
    if (this.ended) return;
    this.#stopRendering();
    if (this.text !== "") this.#reply.replaceChildren(markdown(this.text));
    this.node.dataset.running = "false";
  }

  #end() {
    this.ended = true;
    this.node.dataset.running = "false";
    for (const step of this.#steps.filter((one) => RUNNING.has(one.state))) {
      step.state = "unknown";
      step.node.replaceChildren(line(step, step.node.firstElementChild?.open));
    }
    for (const group of new Set(this.#steps.map((step) => step.group))) {
      if (!this.#touched) group.node.open = false;
      this.#count(group);
    }
  }

  /** What it said before it went on stays where it is; steps and texts that come now come below. */
  #setAside(whole = false) {
    this.#stopRendering();
    this.#gap = false;
    if (this.text.trim() === "") {
      this.text = "";
      return this.#reply.replaceChildren();
    }
    this.#reply.classList.add("earlier");
    this.#reply.replaceChildren(markdown(this.text));
    this.#earlier.push({ text: this.text, node: this.#reply, whole });
    this.text = "";
    this.#work = null;
    const before = this.#reply;
    this.#reply = el("div", { className: "reply" });
    return before.after(this.#reply);
  }

  #render() {
    this.#timer = null;
    this.#reply.replaceChildren(markdown(this.text));
  }

  #stopRendering() {
    clearTimeout(this.#timer);
    this.#timer = null;
  }

  #count({ title, list }) {
    const steps = this.#steps.filter((step) => step.group.list === list);
    const parts = [plural(steps.length, "step")];
    for (const name of UNEASY) {
      const count = steps.filter((step) => step.state === name).length;
      if (count > 0) parts.push(`${count} ${state(name)}`);
    }
    title.textContent = parts.join(" \u00b7 ");
  }

  #renderAsk(id, frame) {
    const { card, node, isOpen } = this.#asked.get(id);
    const open = frame === null && isOpen(id);
    node.dataset.state = frame?.state ?? (open ? "open" : "closed");
    const said = frame && frame.text ? el("details", { className: "what" }, el("summary", {}, "Result"), el("p", { className: "result" }, frame.text)) : null;
    node.replaceChildren();
    append(node, [
      el("div", { className: "ask-head" },
        frame ? icon(ICONS[mark(frame.state)]) : icon(ICONS.waiting),
        el("span", { className: "verdict" }, frame ? verdict(frame.state, frame.reason) : open ? "Waits for you" : "Asked"),
        badge(card.risk)),
      el("p", { className: "intent" }, card.intent),
      el("div", { className: "ask-foot" },
        open ? el("a", { className: "button secondary small", href: "#/review" }, "Review") : null,
        el("details", { className: "what" }, el("summary", {}, "What is asked"), el("div", { className: "shown", tabIndex: 0, role: "region", "aria-label": "Complete text of what was asked" }, shown(card.shown))),
        said),
    ]);
  }

  /** Looks again which of its asks are still open. */
  refreshAsks() {
    for (const [id, { node }] of this.#asked) {
      if (node.dataset.state === "open" || node.dataset.state === "closed") this.#renderAsk(id, null);
    }
  }

  /** Returns true if it has asked this. */
  has(ask) {
    return this.#asked.has(ask) || this.#gates.has(ask);
  }

  get hasAsks() {
    return this.#asked.size > 0;
  }

  /** Says what it has used: the model, how full its window was, and the cost. */
  used({ model, context, window, cost, calls }) {
    const full = window ? `context ${Math.round((100 * context) / window)} % of ${thousands(window)}` : `context ${thousands(context)} tokens`;
    const text = [model.split("/").slice(1).join("/") || model, full, dollars(cost), calls > 1 ? plural(calls, "model call") : null].filter(Boolean).join(" \u00b7 ");
    this.#usage ??= this.#marks.appendChild(el("span", { className: "usage" }));
    this.#usage.textContent = text;
  }

  #sign(frame) {
    const [from, to] = frame.entries;
    const told = frame.exit !== "done" ? EXITS[frame.exit] ?? frame.exit : null;
    const waits = frame.exit === "waiting";
    append(this.#marks, [
      told && !waits ? el("span", { className: "exit", data: { exit: frame.exit } }, told) : null,
      frame.taint === "external" ? el("span", { className: "taint" }, icon(ICONS.outside), "Depends on external content") : null,
      el("a", { className: "receipt", href: `#/activity?from=${from}&to=${to}` }, "Receipt", el("span", { className: "visually-hidden" }, ` of this reply: entries ${from} to ${to}`)),
    ]);
    this.#marks.hidden = false;
  }
}
