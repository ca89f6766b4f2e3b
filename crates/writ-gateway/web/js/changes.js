// What a conversation has changed in its project, file by file, with a button that applies it.

import { request } from "./api.js";
import { byId, el } from "./dom.js";
import { plural } from "./format.js";
import { counts, shown } from "./shown.js";

/** Past this many files each is opened by hand. */
const OPEN_FILES = 3;
/** Past this many characters a file is opened by hand. */
const OPEN_CHARS = 20_000;

const KINDS = { create: "New", modify: "Changed", delete: "Deleted" };

/** The lines of a hunk before and after, from its head. */
const HUNK = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/;

/**
 * The parts of a diff, one a file, and what is said below them. The numbers in the heads say where a hunk ends: a line in it
 * may look like the head of another file.
 */
export function parts(text) {
  const files = [];
  const rest = [];
  let [before, after] = [0, 0];
  for (const line of text.split("\n")) {
    if (before > 0 || after > 0) {
      if (line.startsWith("-") || line.startsWith(" ")) before -= 1;
      if (line.startsWith("+") || line.startsWith(" ")) after -= 1;
      files.at(-1).push(line);
      continue;
    }
    const hunk = HUNK.exec(line);
    if (hunk) [before, after] = [Number(hunk[1] ?? 1), Number(hunk[2] ?? 1)];
    if (line.startsWith("--- ")) files.push([line]);
    else if (line.startsWith("note: ") || line.startsWith("left out: ") || files.length === 0) rest.push(line);
    else files.at(-1).push(line);
  }
  const joined = (lines) => lines.join("\n").replace(/\n+$/, "");
  return { files: files.map(joined), rest: rest.join("\n").trim() };
}

/** Opens the reader with the changes of a session; `asked` is called where applying them has asked a person. */
export async function showChanges(session, asked) {
  const body = byId("reader-body");
  const say = (text) => body.replaceChildren(el("p", { className: "note" }, text));
  byId("reader-title").textContent = "Changes of this conversation";
  say("Looking.");
  byId("reader").showModal();
  try {
    const diff = await request(`/api/v1/sessions/${encodeURIComponent(session)}/diff`);
    if (diff.changes.length === 0 && !diff.text) say("Nothing was changed.");
    else body.replaceChildren(...changes(diff, session, asked));
  } catch (error) {
    say(`${error.message} ${error.hint ?? ""}`.trim());
  }
}

function changes(diff, session, asked) {
  const { files, rest } = parts(diff.text);
  const nodes = diff.changes.map((change, n) => file(change, files[n] ?? "", diff.changes.length));
  const below = rest === "" ? null : el("details", { className: "change" }, el("summary", {}, "What stays in the conversation"), shown(rest));
  const foot = diff.changes.length === 0 ? el("p", { className: "note" }, "Nothing of it can be applied.") : applying(diff, session, asked);
  return [foot, ...nodes, below].filter((node) => node !== null);
}

function file(change, text, count) {
  const counted = counts(text);
  const lines = counted ? el("span", { className: "lines", "aria-label": `${plural(counted.added, "line")} more, ${plural(counted.removed, "line")} less` }, el("span", { className: "added" }, `+${counted.added}`), " ", el("span", { className: "removed" }, `\u2212${counted.removed}`)) : null;
  const open = count <= OPEN_FILES && text.length <= OPEN_CHARS;
  const node = el("details", { className: "change", data: { path: change.path } },
    el("summary", {}, el("span", { className: "change-kind" }, KINDS[change.kind] ?? change.kind), el("span", { className: "change-path" }, change.path), lines));
  // A large diff is built when it is looked at.
  const fill = () => {
    if (node.open && node.childElementCount === 1) node.append(shown(text));
  };
  node.addEventListener("toggle", fill);
  node.open = open;
  fill();
  return node;
}

/** The button that applies all of it: what no order allows is asked. */
function applying(diff, session, asked) {
  const said = el("p", { className: "note", role: "status" });
  const button = el("button", { type: "button", className: "primary small", id: "apply-button" }, "Apply");
  button.addEventListener("click", async () => {
    button.disabled = true;
    said.textContent = "Applying.";
    try {
      // The agent may have gone on meanwhile: what is applied is what was shown.
      const now = await request(`/api/v1/sessions/${encodeURIComponent(session)}/diff`);
      if (now.text !== diff.text) {
        const fresh = changes(now, session, asked);
        byId("reader-body").replaceChildren(...fresh);
        byId("reader-body").prepend(el("p", { className: "note", role: "status" }, "It has changed meanwhile: this is what it is now."));
        return;
      }
      const answer = await request(`/api/v1/sessions/${encodeURIComponent(session)}/apply`, { method: "POST" });
      said.textContent = answer.applied ?? "It is asked in Review.";
      if (answer.ask_id) asked(answer.ask_id);
      else if (!answer.applied) said.textContent = "There was nothing to apply.";
    } catch (error) {
      said.textContent = `${error.message} ${error.hint ?? ""}`.trim();
      button.disabled = false;
    }
  });
  return el("div", { className: "applying" }, el("p", {}, `${plural(diff.changes.length, "file")} in ${diff.project}`), button, said);
}
