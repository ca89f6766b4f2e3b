// A small part of Markdown as nodes: headings, paragraphs, lists, quotes, rules, tables, code, emphasis, links.
//
// A link is never followed by itself: it shows the host that it leads to, and opens on a click. Pictures are
// links too. Nothing else is known; it stays text.

import { append, el, icon, ICONS } from "./dom.js";
import { highlight } from "./highlight.js";

/** Markup inside markup is followed this deep; what is deeper stays text. */
const MAX_DEPTH = 6;

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const HEADING = /^ {0,3}(#{1,6})[ \t](.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
/** All that the line below the head of a table may hold, and a cell of it. */
const DELIMITER = /^[ \t|:-]+$/;
const DELIMITER_CELL = /^:?-+:?$/;
/** A key with which front matter begins, and the most lines that it may have. */
const KEY = /^[a-z_]+:(?: |$)/;
const MAX_FRONT = 400;
/** Columns of a table; what has more stays text. */
const MAX_COLUMNS = 32;
/** How long a button says that it has copied, in milliseconds. */
const COPIED = 2_000;

/** Renders a text. */
export function markdown(text) {
  return blocks(text.replaceAll("\r\n", "\n").split("\n"), 0);
}

function blocks(lines, depth) {
  const out = document.createDocumentFragment();
  let at = 0;
  while (at < lines.length) {
    const [node, next] = block(lines, at, depth);
    if (node) out.append(node);
    at = next;
  }
  return out;
}

/** The block that begins at a line, and the line after it. */
function block(lines, at, depth) {
  const line = lines[at];
  if (line.trim() === "") return [null, at + 1];
  if (FENCE.test(line)) return code(lines, at);
  const heading = HEADING.exec(line);
  if (heading) return [el(heading[1].length < 3 ? "h2" : "h3", {}, inline(title(heading[2]), 0)), at + 1];
  const head = front(lines, at);
  if (head) return head;
  if (RULE.test(line)) return [el("hr"), at + 1];
  if (isTable(lines, at)) return table(lines, at);
  if (depth < MAX_DEPTH && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < MAX_DEPTH && ITEM.test(line)) return list(lines, at, depth);
  return paragraph(lines, at, depth);
}

/** The text of a heading, without the marks that may close it. */
function title(text) {
  const trimmed = text.trim();
  let end = trimmed.length;
  while (trimmed[end - 1] === "#") end -= 1;
  return trimmed.slice(0, end).trimEnd();
}

function code(lines, at) {
  const [, fence, language] = FENCE.exec(lines[at]);
  const end = new RegExp(`^ {0,3}${fence[0]}{${fence.length},}\\s*$`);
  const body = [];
  let next = at + 1;
  while (next < lines.length && !end.test(lines[next])) body.push(lines[next++]);
  return [shownCode(body.join("\n"), language), next + 1];
}

function shownCode(body, language) {
  const text = el("code", {}, highlight(body, language));
  const label = language === "" ? "Code" : `Code in ${language}`;
  const pre = el("pre", { tabIndex: 0, role: "region", "aria-label": label }, text);
  return el("div", { className: "code", data: language ? { language } : {} }, pre, copier(body));
}

/** The front matter of a document, such as a plan's: as it is written, not as paragraphs and lists. */
function front(lines, at) {
  if (lines[at] !== "---" || !KEY.test(lines[at + 1] ?? "")) return null;
  const end = lines.slice(at, at + MAX_FRONT).indexOf("---", 1);
  return end < 0 ? null : [shownCode(lines.slice(at + 1, at + end).join("\n"), "yaml"), at + end + 1];
}

/** A button that copies some code. */
function copier(code) {
  const button = el("button", { type: "button", className: "quiet small copy", "aria-label": "Copy code" }, "Copy");
  button.addEventListener("click", async () => {
    const copied = await navigator.clipboard?.writeText(code).then(() => true, () => false);
    button.textContent = copied ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = "Copy"; }, COPIED);
  });
  return button;
}

/** The cells of a row; a bar behind a backslash belongs to its cell. */
function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** Returns true if a table begins at a line: a head, and below it as many columns. */
function isTable(lines, at) {
  const below = lines[at + 1] ?? "";
  if (!lines[at].includes("|") || !below.includes("-") || !DELIMITER.test(below)) return false;
  const found = cells(below);
  const count = found.length;
  if (!found.every((cell) => DELIMITER_CELL.test(cell))) return false;
  return count <= MAX_COLUMNS && cells(lines[at]).length === count && (count > 1 || below.includes("|"));
}

function table(lines, at) {
  const sides = cells(lines[at + 1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "end") : null));
  const row = (line, tag) => {
    const found = cells(line);
    return el("tr", {}, sides.map((side, n) => el(tag, { scope: tag === "th" ? "col" : null, data: side ? { side } : {} }, inline(found[n] ?? "", 0))));
  };
  const body = el("tbody");
  let next = at + 2;
  while (next < lines.length && lines[next].trim() !== "" && lines[next].includes("|")) body.append(row(lines[next++], "td"));
  const node = el("table", {}, el("thead", {}, row(lines[at], "th")), body);
  return [el("div", { className: "table", tabIndex: 0, role: "region", "aria-label": "Table" }, node), next];
}

function quote(lines, at, depth) {
  const body = [];
  let next = at;
  for (let found; next < lines.length && (found = QUOTE.exec(lines[next])); next++) body.push(found[1]);
  return [el("blockquote", {}, blocks(body, depth + 1)), next];
}

function list(lines, at, depth) {
  const [, { length: indent }, mark] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(mark);
  const node = el(ordered ? "ol" : "ul", ordered ? { start: Number.parseInt(mark, 10) } : {});
  let next = at;
  while (next < lines.length) {
    const item = ITEM.exec(lines[next]);
    if (!item || item[1].length > indent + 1 || item[1].length < indent || /\d/.test(item[2]) !== ordered) break;
    const body = [item[3]];
    next += 1;
    // What is indented further belongs to the item.
    while (next < lines.length && belongs(lines, next, indent)) {
      body.push(lines[next].slice(Math.min(indent + 2, lines[next].search(/\S|$/))));
      next += 1;
    }
    node.append(el("li", {}, tight(blocks(body, depth + 1))));
    while (next + 1 < lines.length && lines[next].trim() === "" && ITEM.test(lines[next + 1])) next += 1;
  }
  return [node, next];
}

function belongs(lines, at, indent) {
  const line = lines[at];
  if (line.trim() === "") return at + 1 < lines.length && lines[at + 1].search(/\S|$/) > indent + 1;
  return line.search(/\S|$/) > indent + 1;
}

/** A list item of one paragraph needs no paragraph. */
function tight(fragment) {
  const first = fragment.firstChild;
  if (first && first.nodeName === "P") first.replaceWith(...first.childNodes);
  return fragment;
}

function paragraph(lines, at, depth) {
  const text = [lines[at]];
  let next = at + 1;
  while (next < lines.length && !starts(lines[next], depth) && !isTable(lines, next)) text.push(lines[next++]);
  const node = el("p");
  text.forEach((line, n) => {
    if (n > 0) node.append(el("br"));
    append(node, inline(line.trim(), 0));
  });
  return [node, next];
}

function starts(line, depth) {
  const nested = depth < MAX_DEPTH && (QUOTE.test(line) || ITEM.test(line));
  return line.trim() === "" || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || nested;
}

// Each alternative begins with a character of its own, and what it repeats is bounded or ends at that character: the time that a text
// takes grows with its length alone.
const INLINE =
  /(?<!`)(`{1,16})(?!`)([^`]+)\1|!?\[([^\][\n]{1,500})\]\(\s*<?([^\s()<>]{1,2000})>?[^()\n]{0,200}\)|<?(https?:\/\/[^\s<>"'`]{1,2000})>?|(\*\*|__)(?=\S)([^*_\n](?:[^\n]{0,500}?\S)?)\6|(\*|_)(?=\S)([^*_\n]{1,500}?)\8(?!\w)|~~(?=\S)([^~\n]{1,500})~~|\\([\\`*_{}[\]()#+.!~>-])/g;

/** Text with emphasis, code and links, as nodes. */
function inline(text, depth) {
  if (depth >= MAX_DEPTH) return [text];
  const out = [];
  let last = 0;
  for (const found of text.matchAll(INLINE)) {
    const [all, , inCode, label, target, bare, , strong, soft, light, struck, escaped] = found;
    // An underscore inside a word is part of the word.
    if (soft === "_" && /\w/.test(text[found.index - 1] ?? "")) continue;
    if (found.index < last) continue;
    out.push(text.slice(last, found.index));
    last = found.index + all.length;
    if (inCode !== undefined) out.push(el("code", {}, inCode.trim() || inCode));
    else if (target !== undefined) out.push(link(target, inline(label, depth + 1), label));
    else if (bare !== undefined) last -= pushBare(out, bare, all);
    else if (strong !== undefined) out.push(el("strong", {}, inline(strong, depth + 1)));
    else if (light !== undefined) out.push(el("em", {}, inline(light, depth + 1)));
    else if (struck !== undefined) out.push(el("s", {}, inline(struck, depth + 1)));
    else out.push(escaped);
  }
  out.push(text.slice(last));
  return out;
}

/** Adds a bare address; answers how many characters at its end belong to the sentence instead. */
function pushBare(out, address, all) {
  if (all.startsWith("<")) {
    out.push(link(address, [address], address));
    return 0;
  }
  let end = address.length;
  while (end > 0 && ".,;:!?)]}*_".includes(address[end - 1])) end -= 1;
  const kept = address.slice(0, end);
  out.push(link(kept, [kept], kept));
  return address.length - kept.length;
}

/** A link that shows its real host; an address that no browser should open stays text. */
function link(address, label, text) {
  let url = null;
  try {
    url = new URL(address);
  } catch {
    // Not an address of its own: it would lead into this page.
  }
  if (!url || !["http:", "https:", "mailto:"].includes(url.protocol)) return el("span", {}, label, ` (${address})`);
  const host = url.protocol === "mailto:" ? url.pathname : url.host;
  const said = text.toLowerCase().replace(/^https?:\/\//, "");
  // The whole host, and not the beginning of another.
  const told = said.startsWith(host.toLowerCase()) && /^(?:$|[/?#])/.test(said.slice(host.length));
  const node = el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer", className: "outside" }, label);
  if (!told) node.append(el("span", { className: "host" }, ` ${host}`));
  node.append(icon(ICONS.outside), el("span", { className: "visually-hidden" }, " (opens outside Writ)"));
  return node;
}
