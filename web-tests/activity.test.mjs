// Activity: the ledger as it is.

import assert from "node:assert/strict";
import fs from "node:fs";
import { after, before, test } from "node:test";
import { launch, reply, say, visitor } from "./lib/browser.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { ended, Writ } from "./lib/writ.mjs";

let browser;
let writ;
let me;
let page;

before(async () => {
  browser = await launch();
  writ = await Writ.start(SCRIPT);
  me = await visitor(browser, writ);
  page = await me.open();
  await say(page, "hello there");
  await reply(page, "until it is complete.").waitFor();
});
after(() => ended(me, browser, writ));

const shown = () => page.locator(".entry").evaluateAll((all) => all.map((one) => Number(one.dataset.seq)));

async function settled(expected) {
  await page.waitForFunction((event) => {
    const all = [...document.querySelectorAll(".entry")];
    return all.length > 0 && all.every((one) => one.dataset.event === event);
  }, expected);
}

/**
 * Rows: SIL-338
 * Rows: SIL-318 (in part: Stream and Activity)
 */
test("the timeline is the ledger, newest first", async () => {
  await page.locator("[data-surface-link=activity]").click();
  await page.locator(".entry").first().waitFor();
  const ledger = await page.evaluate(async () => (await (await fetch("/api/v1/ledger?limit=50")).json()).entries.map((entry) => entry.seq));
  ledger.sort((a, b) => b - a);
  // The entries of a call stand in its row; rows and what stands in them are newest first.
  assert.deepEqual((await shown()).sort((a, b) => b - a), ledger);
  const rows = await page.locator(".entries:not(.of-call)").evaluateAll((lists) => lists.flatMap((list) => [...list.children].map((row) => Number(row.querySelector(".entry").dataset.seq))));
  assert.deepEqual(rows, rows.toSorted((a, b) => b - a));
  assert.match(await page.locator("#ledger-size").innerText(), /\d+ entries/);
  // A page that is loaded again shows the same surface, and each surface keeps what it shows.
  await page.reload();
  await page.locator(".entry").first().waitFor();
  assert.equal(await page.locator("#activity").isVisible(), true);
  await page.locator("[data-surface-link=stream]").click();
  await reply(page, "until it is complete.").waitFor();
  assert.equal(await page.locator("#stream .entry").count(), 0);
});

test("filters narrow it, entries open, and a proof can be taken along", async () => {
  await page.locator("[data-surface-link=activity]").click();
  await page.locator("#filter-event").selectOption("received");
  await settled("received");
  await page.locator("#filter-text").fill("hello");
  await settled("received");
  const entry = page.locator(".entry").first();
  await entry.locator("summary").click();
  assert.match(await entry.locator("pre").innerText(), /"text": "hello there"/);
  // It stays open while the list is read anew.
  const again = page.waitForResponse((response) => response.url().includes("q=hello+there") || response.url().includes("q=hello%20there"));
  await page.locator("#filter-text").fill("hello there");
  await again;
  await settled("received");
  assert.match(await entry.locator("pre").innerText(), /"text": "hello there"/);
  const [download] = await Promise.all([page.waitForEvent("download"), entry.getByText("Download proof").click()]);
  assert.match(download.suggestedFilename(), /^writ-proof-\d+\.json$/);
  assert.ok(JSON.parse(fs.readFileSync(await download.path(), "utf8")));
  await page.locator("#filter-text").fill("nothing has these words in it");
  await page.getByText("No entry matches.").waitFor();
});

test("a reply's receipt shows the entries that it rests on", async () => {
  await page.locator("[data-surface-link=stream]").click();
  const receipt = page.locator(".receipt").first();
  const [from, to] = /from=(\d+)&to=(\d+)/.exec(await receipt.getAttribute("href")).slice(1).map(Number);
  await receipt.click();
  await page.locator("#range-text").waitFor();
  await page.locator(`.entry[data-seq="${from}"]`).waitFor();
  const seqs = await shown();
  assert.deepEqual([Math.min(...seqs), Math.max(...seqs)], [from, to]);
});
