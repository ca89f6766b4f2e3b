// The complete text of an ask, or a diff: every character of it, with the lines of a diff told apart.

import { el } from "./dom.js";

/** Columns of a label: what is asked begins as a list of labels and values. */
const LABEL = 11;
const HEAD = /^[a-z]+( [a-z]+)* +$/;

/** What kind of line this is, knowing whether a diff has begun. */
function kind(line, inDiff) {
  if (line.startsWith("--- ") || line.startsWith("+++ ") || line.startsWith("diff ")) return "file";
  if (line.startsWith("@@")) return "hunk";
  if (!inDiff) return HEAD.test(line.slice(0, LABEL)) && line.length > LABEL ? "head" : "plain";
  if (line.startsWith("+")) return "add";
  if (line.startsWith("-")) return "del";
  return "plain";
}

/** Renders a text as lines. The nodes' text is exactly the text. */
export function shown(text) {
  const pre = el("pre", { className: "shown-text" });
  const lines = text.split("\n");
  let inDiff = false;
  lines.forEach((line, n) => {
    const what = kind(line, inDiff);
    if (what === "file" || what === "hunk") inDiff = true;
    if (inDiff && line.startsWith("left out:")) inDiff = false;
    const end = n + 1 < lines.length ? "\n" : "";
    if (what === "plain") pre.append(line + end);
    else if (what === "head") pre.append(el("span", { className: "line head" }, el("span", { className: "key" }, line.slice(0, LABEL)), line.slice(LABEL) + end));
    else pre.append(el("span", { className: `line ${what}` }, line + end));
  });
  return pre;
}

/** Lines added and removed, if the text holds a diff. */
export function counts(text) {
  let [added, removed, inDiff] = [0, 0, false];
  for (const line of text.split("\n")) {
    const what = kind(line, inDiff);
    if (what === "hunk") inDiff = true;
    if (what === "add") added += 1;
    if (what === "del") removed += 1;
  }
  return inDiff ? { added, removed } : null;
}

/** Whether the text is the one that was hashed. `null` where the browser cannot tell (no secure context). */
export async function fits(text, hash) {
  if (!globalThis.crypto?.subtle) return null;
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  const hex = Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex === hash;
}

// Controls, directional marks, invisible and private characters: the server escapes all of them.
const DECEIVES = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\u2028\u2029]/u;

/** Whether a text holds no character that could hide or move what is shown. */
export const plain = (text) => !DECEIVES.test(text.replaceAll("\n", "").replaceAll("\t", ""));
