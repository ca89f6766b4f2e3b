// Texts of agents and guests: what could hide or move something in them is made visible, and long ones are folded.

import { el } from "./dom.js";

/** The characters of a text that stand there without a tap. */
const FIRST = 2_000;
/** The characters of a name or a reason in a list. */
const LINE = 300;

// The command line escapes the same: controls, format characters, separators, fillers, and what has no meaning.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0e]/gu;

/** A text with everything visible that could deceive: `\u{202e}`. */
export const escaped = (text) => String(text ?? "").replace(UNSEEN, (c) => (c === "\n" || c === "\t" ? c : `\\u{${c.codePointAt(0).toString(16)}}`));

/** The same for one line, and no longer than fits there. */
export function oneLine(text, most = LINE) {
  const line = escaped(text).replace(/\s+/gu, " ").trim();
  return line.length > most ? `${whole(line, most)}…` : line;
}

/** The first characters of a text; none is cut in two. */
function whole(text, most) {
  const cut = text.slice(0, most);
  return /[\ud800-\udbff]$/.test(cut) ? cut.slice(0, -1) : cut;
}

/** A text of somebody else, as it was written; a long one opens on a tap. */
export function foreign(text) {
  const safe = escaped(text);
  if (safe.length <= FIRST) return el("p", { className: "foreign", dir: "auto" }, safe);
  const rest = el("details", { className: "foreign-rest" }, el("summary", {}, `${safe.length} characters: show all`));
  // Built when it is looked at.
  rest.addEventListener("toggle", () => {
    if (rest.open && rest.childElementCount === 1) rest.append(el("p", { className: "foreign", dir: "auto" }, safe));
  });
  return el("div", {}, el("p", { className: "foreign", dir: "auto" }, `${whole(safe, FIRST)}…`), rest);
}
