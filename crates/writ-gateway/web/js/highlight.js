// Colours code by what most languages share: comments, texts, numbers and common keywords. It makes nodes of the text and leaves
// nothing out; a language that it does not know stays plain.

import { el } from "./dom.js";

/** Longer code stays plain, in characters. */
const MAX_CODE = 50_000;

const WORDS = {
  c: "auto break case catch char class const constexpr continue default delete do double else enum explicit extern false final float for friend goto if inline int interface long namespace new nullptr NULL operator override private protected public register return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual void volatile while",
  go: "break case chan const continue default defer else fallthrough false for func go goto if import interface map nil package range return select struct switch true type var",
  java: "abstract assert boolean break byte case catch char class const continue default do double else enum extends false final finally float for if implements import instanceof int interface long native new null package private protected public record return sealed short static super switch synchronized this throw throws transient true try var void volatile while",
  js: "as async await break case catch class const continue debugger default delete do else enum export extends false finally for from function get if implements import in instanceof interface let new null of private protected public readonly return set static super switch this throw true try type typeof undefined var void while yield",
  json: "false null true",
  python: "and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return True try while with yield",
  rust: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type union unsafe use where while",
  sh: "break case continue do done elif else esac exit export fi for function if in local return set shift then unset until while",
  sql: "add all alter and as asc begin between by case column commit constraint create cross default delete desc distinct drop else end exists false foreign from full group having in index inner insert into is join key left like limit not null offset on or order outer primary references returning right rollback select set table then true union unique update values view when where with",
  toml: "false true",
  yaml: "false no null true yes",
};
const NAMES = { bash: "sh", cc: "c", cpp: "c", "c++": "c", cs: "java", csharp: "java", golang: "go", h: "c", hpp: "c", javascript: "js", jsx: "js", kotlin: "java", mjs: "js", py: "python", python3: "python", rs: "rust", shell: "sh", swift: "rust", ts: "js", tsx: "js", typescript: "js", yml: "yaml", zsh: "sh" };
/** Languages whose comments begin with a number sign. */
const HASH = new Set(["python", "sh", "toml", "yaml"]);
const DASH = new Set(["sql"]);

// Each alternative begins with a character of its own; what it repeats is bounded or runs to its end: the time that code takes grows with
// its length alone.
const TEXT = String.raw`"(?:[^"\\\n]|\\[^\n])*"?|'(?:[^'\\\n]|\\[^\n]){0,400}'|` + "`(?:[^`\\\\]|\\\\[^])*`?";
const NUMBER = String.raw`\b\d[\w.]*`;
const WORD = String.raw`[A-Za-z_$][\w$]*`;

const known = new Map();

function rules(name) {
  if (!known.has(name)) {
    const comment = HASH.has(name) ? String.raw`#[^\n]*` : DASH.has(name) ? String.raw`--[^\n]*|/\*[^]*?(?:\*/|$)` : String.raw`//[^\n]*|/\*[^]*?(?:\*/|$)`;
    const words = new Set(WORDS[name].split(" "));
    known.set(name, { words, pattern: new RegExp(`(${comment})|(${TEXT})|(${NUMBER})|(${WORD})`, "g") });
  }
  return known.get(name);
}

/** The nodes of some code in a language. */
export function highlight(code, language) {
  const called = language.toLowerCase();
  const name = Object.hasOwn(NAMES, called) ? NAMES[called] : called;
  if (!Object.hasOwn(WORDS, name) || code.length > MAX_CODE) return [code];
  const { words, pattern } = rules(name);
  const out = [];
  let last = 0;
  for (const found of code.matchAll(pattern)) {
    const [all, comment, text, number, word] = found;
    const has = (name === "sql" ? words.has(all.toLowerCase()) : words.has(all)) && word !== undefined;
    const kind = comment !== undefined ? "comment" : text !== undefined ? "text" : number !== undefined ? "number" : has ? "word" : null;
    if (kind === null) continue;
    out.push(code.slice(last, found.index), el("span", { className: `code-${kind}` }, all));
    last = found.index + all.length;
  }
  out.push(code.slice(last));
  return out;
}
