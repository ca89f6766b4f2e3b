// A step of a turn: one line, and what it was called with and what came of it when it is opened.

import { el, icon, ICONS } from "./dom.js";
import { state } from "./format.js";

/** The lines around what came from outside: they are for the model. */
const FENCE = /^\u27e6[^\u27e7\n]*\u27e7\n|\n\u27e6[^\u27e7\n]*\u27e7\s*$/g;

/** A step in one line. What it was called with, and what came of it, are built when they are looked at. */
export function line(step, open = false) {
  const word = step.state === "done" ? null : el("span", { className: "step-state" }, state(step.state));
  const body = el("div", { className: "step-body" });
  const node = el("details", { className: "step-line", data: { state: step.state } },
    el("summary", {},
      icon(ICONS[step.state] ?? ICONS.unknown),
      el("span", { className: "step-summary" }, step.summary || step.tool),
      word,
      step.state === "done" ? el("span", { className: "visually-hidden" }, "done") : null),
    body);
  const fill = () => {
    if (node.open && body.childElementCount === 0) body.append(...details(step));
  };
  node.addEventListener("toggle", fill);
  node.open = open;
  fill();
  return node;
}

function details(step) {
  const nodes = [el("p", { className: "step-detail" }, el("code", {}, step.tool), ` ${step.summary}`)];
  for (const [name, text] of values(step.arguments)) nodes.push(block(name, text));
  if (step.output) nodes.push(block("Output", step.output.replace(FENCE, "")));
  return nodes;
}

/** The arguments by name; as they stand where they are no object any more, since their middle was left out. */
function values(text) {
  if (!text) return [];
  try {
    const read = JSON.parse(text);
    if (read !== null && typeof read === "object" && !Array.isArray(read)) {
      return Object.entries(read).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
    }
  } catch {
    // Shown as text below.
  }
  return [["Arguments", text]];
}

const block = (name, text) => el("div", { className: "step-block" },
  el("p", { className: "label" }, name),
  el("pre", { tabIndex: 0, role: "region", "aria-label": name }, text === "" ? "(empty)" : text));
