// Review: one card at a time, and how much it takes to say yes.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { createHash } from "node:crypto";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { connected, inProject, launch, PHONE, say, sent, visitor } from "./lib/browser.mjs";
import { waits } from "./lib/review.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { Writ } from "./lib/writ.mjs";

let browser;
let writ;
let me;
let projects = 0;

before(async () => {
  browser = await launch();
});
after(() => browser?.close());
beforeEach(async () => {
  writ = await Writ.start(SCRIPT);
  me = await visitor(browser, writ);
});
afterEach(async () => {
  try {
    await me.close();
  } finally {
    await writ.stop();
  }
});

/** Has the agent change a project; the change waits for an answer. */
async function asked(page, message = "Please fix the fee") {
  projects += 1;
  const folder = writ.project(`project-${projects}`, { "fee.txt": "free from: 50.00 exclusive\n" });
  await inProject(page, folder);
  await say(page, message);
  await waits(page);
  return path.join(folder, "fee.txt");
}

async function review(page) {
  await page.locator("[data-surface-link=review]").click();
  await page.locator(".card").waitFor();
  return page.locator(".card");
}

const responses = (frames) => frames.filter((frame) => frame.type === "approval_response");

/**
 * Rows: SIL-237 SIL-324
 * Rows: SIL-321 (in part: the order on a card)
 */
test("a medium risk takes a tap and a confirmation", async () => {
  const page = await me.open();
  const frames = sent(page);
  const file = await asked(page);
  const card = await review(page);
  assert.match(await card.locator(".shown").innerText(), /\+free from: 50\.00 inclusive/);
  assert.equal(await card.locator(".line.add").count(), 1);
  assert.deepEqual(await card.locator("button[data-decision]").evaluateAll((all) => all.map((one) => one.dataset.decision)), ["approve", "approve_task", "deny"]);
  await card.locator("[data-decision=approve]").click();
  await card.getByRole("button", { name: "Confirm" }).waitFor();
  assert.equal(responses(frames).length, 0, "a tap alone decides nothing");
  assert.match(fs.readFileSync(file, "utf8"), /exclusive/);
  await card.getByRole("button", { name: "Confirm" }).click();
  await page.locator("#decided-list [data-state=applied]").waitFor();
  assert.match(fs.readFileSync(file, "utf8"), /inclusive/);
  const [answer] = responses(frames);
  assert.equal(answer.decision, "approve");
  assert.match(answer.shown_hash, /^[0-9a-f]{64}$/, "it says which text was shown");
  assert.equal(await page.locator("#review-empty").isVisible(), true);
  await page.locator("[data-surface-link=stream]").click();
  await page.locator(".ask[data-state=applied]").waitFor();
});

/** What is alike is done without a question, until it is taken back. */
test("an approval for the task is told in full, confirmed, in force and taken back", async () => {
  const page = await me.open();
  const frames = sent(page);
  const file = await asked(page);
  const folder = path.dirname(file);
  const card = await review(page);
  const task = card.locator(".choice", { has: page.locator("[data-decision=approve_task]") });
  const words = await task.locator(".consequence").innerText();
  assert.ok(words.includes(folder) && /20 times in all, for 60 minutes/.test(words), words);
  await card.locator("[data-decision=approve_task]").click();
  assert.equal(responses(frames).length, 0, "a tap alone decides nothing");
  assert.ok((await card.locator(".step .consequence").innerText()).includes(folder), "said once more");
  await card.getByRole("button", { name: "Confirm" }).click();
  await page.locator("#decided-list [data-state=applied]").waitFor();
  assert.equal(responses(frames)[0].scope, "task");
  const row = page.locator("#in-force-list li");
  await row.waitFor();
  assert.match(await row.innerText(), /19 more times/);

  await page.locator("[data-surface-link=stream]").click();
  await say(page, "Please write much");
  await page.getByText("It is written.", { exact: true }).waitFor();
  await page.locator("#stop").waitFor({ state: "hidden" });
  assert.ok(fs.existsSync(path.join(folder, "much.txt")), "nobody is asked");
  await page.locator("[data-surface-link=review]").click();
  await row.locator("[data-revoke]").click();
  await page.locator("#in-force").waitFor({ state: "hidden" });
  await page.locator("[data-surface-link=stream]").click();
  await say(page, "Please send me the notes");
  await page.locator(".ask[data-state=open]").waitFor();
});

/** Rows: SIL-328 */
test("what was done is taken back with one tap, in its time", async () => {
  const page = await me.open();
  const file = await asked(page);
  const card = await review(page);
  await card.locator("[data-decision=approve]").click();
  await card.getByRole("button", { name: "Confirm" }).click();
  const undo = page.locator("[data-undo]");
  await undo.waitFor();
  assert.match(await undo.innerText(), /^Undo\s[45]:\d\d$/);
  assert.match(fs.readFileSync(file, "utf8"), /inclusive/);
  await page.reload();
  await connected(page);
  await page.locator("[data-surface-link=review]").click();
  await undo.waitFor();
  await undo.click();
  await page.locator("#undo").waitFor({ state: "hidden" });
  assert.match(fs.readFileSync(file, "utf8"), /exclusive/);
  assert.equal(await undo.count(), 0, "there is nothing to tap a second time");
  assert.match(writ.run("audit", "search", "one tap"), /answered/);
});

/** Rows: SIL-339 */
test("a denial takes a chip and no typing, and tells why", async () => {
  const page = await me.open();
  const frames = sent(page);
  const file = await asked(page);
  const card = await review(page);
  await card.locator("[data-decision=deny]").click();
  assert.equal(responses(frames).length, 0);
  await card.getByRole("button", { name: "Wrong target" }).click();
  await card.locator("button[type=submit]").click();
  await page.locator("#decided-list [data-state=denied]").waitFor();
  assert.match(fs.readFileSync(file, "utf8"), /exclusive/);
  assert.deepEqual(responses(frames).map(({ decision, reason }) => [decision, reason]), [["deny", "Wrong target"]]);
  assert.match(writ.run("audit", "search", "Wrong target"), /answered/);
});

/** Rows: SIL-319 */
test("one card can be answered at a time; the next one follows", async () => {
  const page = await me.open();
  await asked(page);
  await asked(page);
  await asked(page);
  const card = await review(page);
  assert.equal(await card.count(), 1);
  await page.locator("#stack li").nth(1).waitFor();
  assert.equal(await page.locator("#stack li").count(), 2);
  assert.match(await page.locator("#density").innerText(), /1 of 3/);
  const first = await card.getAttribute("data-ask");
  await page.locator("#stack li").first().click();
  assert.equal(await card.getAttribute("data-ask"), first, "a tap on another does nothing");
  assert.equal(await page.locator("#stack button, #stack a").count(), 0);
  await card.locator("[data-decision=deny]").click();
  await card.locator("button[type=submit]").click();
  await page.locator(`.card:not([data-ask="${first}"])`).waitFor();
  assert.equal(await page.locator("#stack li").count(), 1);
});

/**
 * Rows: SIL-322
 * Rows: SIL-332 (in part: a card)
 */
test("a card fits a phone, however long its text is", async () => {
  await me.close();
  me = await visitor(browser, writ, { viewport: PHONE, hasTouch: true, isMobile: true });
  const page = await me.open();
  await asked(page, "Please write much");
  const card = await review(page);
  const body = await card.locator(".card-body").boundingBox();
  assert.ok(Math.round(body.height) <= 300, `${body.height} px`);
  const text = card.locator(".shown");
  assert.ok(await text.evaluate((node) => node.scrollHeight > node.clientHeight), "longer text scrolls inside");
  assert.match(await text.evaluate((node) => node.textContent), /Line 200 of a file/);
  const deny = await card.locator("[data-decision=deny]").boundingBox();
  const tabs = await page.locator("nav.surfaces").boundingBox();
  assert.ok(deny.y + deny.height <= tabs.y, "both answers are in view");
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "no horizontal scroll");
});

/** Puts a card beside the real ones: what asks at high risk is not everywhere at hand. */
async function withCard(page, risk, more = {}) {
  const shown = "action     vcs\nargv       git push origin main\n";
  const hash = createHash("sha256").update(shown).digest("hex");
  const card = {
    ask_id: "TestRisk",
    session: null,
    action: "vcs",
    intent: "Push main to origin",
    risk,
    rationale: "It leaves this machine.",
    choices: [{ decision: "deny", consequence: "Nothing is done." }, { decision: "approve", consequence: "It is pushed once." }],
    shown,
    prepared: hash,
    shown_hash: hash,
    asked_at: Date.now(),
    expires_at: Date.now() + 3_600_000,
    state: "open",
    ...more,
  };
  await page.route("**/api/v1/approvals", (route) => route.fulfill({ json: { asks: [card] } }));
  await page.reload();
  await connected(page);
  return review(page);
}

test("a high risk is not approved without a key, and the card says how it is", async () => {
  const page = await me.open();
  const frames = sent(page);
  const card = await withCard(page, "high");
  await card.locator("[data-decision=approve]").click();
  await card.getByText("Needs an approver key.").waitFor();
  assert.equal(await card.locator(".command").innerText(), "writ approvals approve TestRisk");
  assert.deepEqual(responses(frames), []);
});

test("text that does not fit its hash, or that could deceive, cannot be approved", async () => {
  const page = await me.open();
  let card = await withCard(page, "low", { shown: "action     read_file\n" });
  await card.getByText("does not fit its hash").waitFor();
  assert.equal(await card.locator("[data-decision=approve]").count(), 0);
  assert.equal(await card.locator("[data-decision=deny]").count(), 1);
  const turned = "action     exec\nargv       \u202egpj.exe\n";
  card = await withCard(page, "low", { shown: turned, shown_hash: createHash("sha256").update(turned).digest("hex") });
  await card.getByText("could deceive").waitFor();
  assert.equal(await card.locator("[data-decision=approve]").count(), 0);
});

/** Rows: SIL-323 */
test("a low risk takes one tap", async () => {
  const page = await me.open();
  const frames = sent(page);
  const card = await withCard(page, "low");
  await card.locator("[data-decision=approve]").click();
  await card.getByRole("alert").waitFor();
  // The engine does not know this ask: what counts here is that one tap was an answer.
  assert.equal(responses(frames).length, 1);
});
