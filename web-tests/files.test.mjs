// The page's files, without a browser.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { test } from "node:test";

const WEB = path.join(import.meta.dirname, "../crates/writ-gateway/web");
const files = fs.readdirSync(WEB, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => `/${path.relative(WEB, path.join(entry.parentPath ?? entry.path, entry.name))}`);
const read = (file) => fs.readFileSync(path.join(WEB, file), "utf8");

test("the service worker keeps every file of the page, and no other", () => {
  const list = /const SHELL = (\[[^\]]*\])/.exec(read("/sw.js"))[1];
  const kept = JSON.parse(list.replace(/,\s*\]/, "]"));
  const expected = files.filter((file) => file !== "/sw.js").map((file) => (file === "/index.html" ? "/" : file));
  assert.deepEqual(kept.toSorted(), expected.toSorted());
});

test("nothing parses markup or text as code", () => {
  const scripts = files.filter((file) => file.endsWith(".js"));
  assert.ok(scripts.length > 10);
  for (const file of scripts) {
    assert.doesNotMatch(read(file), /innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\(|new Function|setHTML/, file);
  }
});

/** Rows: SIL-235 */
test("no file names another server, and no style or script stands in the page", () => {
  for (const file of files.filter((name) => /\.(html|css|js|json|svg)$/.test(name))) {
    const text = read(file).replaceAll("http://www.w3.org/", "");
    assert.doesNotMatch(text, /https?:\/\/[a-z]/i, file);
  }
  const page = read("/index.html");
  assert.doesNotMatch(page, /<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)/i);
});
