// The buttons of a person's orders about a unit: what ends something asks once more, and a rejection asks for its reason.

import { el } from "./dom.js";

const LABELS = { accept: "Accept", reject: "Reject", resume: "Resume", force_clear: "Force clear", cancel: "Cancel" };

/** What is asked before an order is given; the others are given at once. */
const QUESTIONS = {
  reject: { ask: "Why it is rejected: the next attempt reads it.", yes: "Reject it", no: "Back", needsReason: true },
  cancel: { ask: "It ends where it stands, and is not merged.", yes: "End it", no: "Let it go on", needsReason: false },
};

/** The longest reason, in characters. */
const MAX_REASON = 2_000;

let count = 0;

function question(order, { ask, yes, no, needsReason }, done) {
  const name = `pilot-why-${++count}`;
  const why = needsReason
    ? el("textarea", { id: name, rows: 2, required: true, maxLength: MAX_REASON, autocomplete: "off" })
    : null;
  const form = el("form", { className: "pilot-question" },
    el(needsReason ? "label" : "p", needsReason ? { for: name } : {}, ask),
    why,
    el("div", { className: "actions" },
      el("button", { type: "submit", className: "secondary small danger", data: { sure: order } }, yes),
      el("button", { type: "button", className: "quiet small", onclick: () => done(null) }, no)));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    done(why ? why.value.trim() : "");
  });
  return form;
}

/** Buttons of these orders; `give` is called with the order and the reason. */
export function orderButtons(orders, give) {
  const node = el("div", { className: "pilot-orders" });
  const bar = el("div", { className: "actions" });
  const put = (order) => {
    if (!QUESTIONS[order]) return give(order, "");
    const form = question(order, QUESTIONS[order], (reason) => {
      form.remove();
      bar.hidden = false;
      bar.querySelector(`[data-order=${order}]`).focus();
      if (reason !== null) give(order, reason);
    });
    bar.hidden = true;
    node.append(form);
    return form.querySelector("textarea, button").focus();
  };
  const look = (order, first) => (order === "cancel" ? "quiet small danger" : first ? "primary small" : "secondary small");
  bar.append(...orders.map((order, n) => el("button", { type: "button", className: look(order, n === 0), data: { order }, onclick: () => put(order) }, LABELS[order])));
  node.append(bar);
  return node;
}
