// How much it takes to say yes: a tap, a tap and a confirmation, a tap and a slide, and a key.

import { el, icon, ICONS } from "./dom.js";

/** The part of the track that counts as the end, in percent. */
const FULL = 98;

/** Whether a yes of this scope outlives its conversation: it is signed by a key that the server does not have. */
export const outlives = (scope) => scope === "standing" || scope === "host";

/** What a risk asks for. One that is not known asks for everything; what reaches further than one act is confirmed. */
export function needs(risk, scope = "once") {
  if (outlives(scope)) return { confirm: "slide", key: true };
  if (risk === "low") return { confirm: scope === "once" ? "none" : "tap", key: false };
  if (risk === "medium") return { confirm: "tap", key: false };
  return { confirm: "slide", key: true };
}

/** The second step of a confirmation: says once more what happens, and waits for one more tap. */
export function confirmTap(consequence, label, done, back) {
  const yes = el("button", { type: "button", className: "primary", onclick: done }, label);
  const no = el("button", { type: "button", className: "quiet", onclick: back }, "Back");
  const node = el("div", { className: "step", role: "group", "aria-label": "Confirm" });
  node.append(el("p", { className: "consequence" }, consequence), el("div", { className: "actions" }, no, yes));
  return { node, focus: yes };
}

/** A slide that counts when it has reached its end and is let go, or with the End key and Enter. */
export function confirmSlide(consequence, label, done, back) {
  const input = el("input", { type: "range", min: "0", max: "100", step: "1", value: "0", "aria-label": `Slide to the end to ${label.toLowerCase()}` });
  const track = el("div", { className: "slide" }, el("span", { className: "slide-label", "aria-hidden": "true" }, `Slide to ${label.toLowerCase()}`), input);
  const shown = () => track.style.setProperty("--at", `${input.value}%`);
  let finished = false;
  const finish = () => {
    if (finished) return;
    if (Number(input.value) < FULL) {
      input.value = "0";
      shown();
      return;
    }
    finished = true;
    input.disabled = true;
    done();
  };
  input.addEventListener("input", shown);
  input.addEventListener("pointerup", finish);
  input.addEventListener("touchend", finish);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      finish();
    }
  });
  const no = el("button", { type: "button", className: "quiet", onclick: back }, "Back");
  const node = el("div", { className: "step", role: "group", "aria-label": "Slide to confirm" });
  node.append(
    el("p", { className: "consequence" }, consequence),
    track,
    el("p", { className: "note by-keyboard" }, "With the keyboard: End, then Enter."),
    el("div", { className: "actions" }, no),
  );
  return { node, focus: input };
}

/** Says which command approves an ask outside this page, or makes it possible here. */
export function elsewhere(command, why, back) {
  const copied = el("span", { className: "note", role: "status" });
  const copy = el("button", {
    type: "button",
    className: "secondary small",
    onclick: async () => {
      try {
        await navigator.clipboard.writeText(command);
        copied.textContent = "Copied.";
      } catch {
        copied.textContent = "Select the command to copy it.";
      }
    },
  }, "Copy");
  const no = el("button", { type: "button", className: "quiet", onclick: back }, "Back");
  const node = el("div", { className: "step", role: "group", "aria-label": "Needs an approver key" });
  node.append(
    el("p", { className: "consequence" }, icon(ICONS.waiting), el("strong", {}, "Needs an approver key."), ` ${why}`),
    el("div", { className: "command-row" }, el("pre", { className: "command", tabIndex: 0, "aria-label": "Command" }, el("code", {}, command)), copy),
    copied,
    el("div", { className: "actions" }, no),
  );
  return { node, focus: copy };
}
