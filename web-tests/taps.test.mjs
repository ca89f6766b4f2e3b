// A phone without a keyboard: every question is answered with taps alone.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { connected, inProject, launch, PHONE, reply, say, visitor } from "./lib/browser.mjs";
import { waits } from "./lib/review.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { ended, Writ } from "./lib/writ.mjs";

const GATE = `[[gates]]
name = "falcon"
on = "input"
provider = "predicate"
contains = ["falcon"]
action = "ask"
reason = "It names the falcon."
`;

const BIRDS = [{ when: "falcon", replies: [{ text: "It is a bird." }] }];

const PLAN = "---\nid: move\ntype: task\ntitle: Move the shop\n---\n\n# What to do\n\nMove it.\n";

let browser;
let writ;
let me;
let projects = 0;

before(async () => {
  browser = await launch();
  writ = await Writ.start([...SCRIPT, ...BIRDS], "", GATE);
  me = await visitor(browser, writ, { viewport: PHONE, hasTouch: true, isMobile: true });
});
after(() => ended(me, browser, writ));

/** Counts what is typed from now on. */
async function listening(page) {
  await page.evaluate(() => {
    globalThis.typed = 0;
    for (const kind of ["keydown", "beforeinput"]) document.addEventListener(kind, () => { globalThis.typed += 1; }, true);
  });
}

/** Nothing was typed, and nothing that is in view must be. */
async function untyped(page) {
  assert.equal(await page.evaluate(() => globalThis.typed), 0, "something was typed");
  const wanted = page.locator("input[required]:visible, textarea[required]:visible");
  assert.equal(await wanted.count(), 0, "a text is demanded");
}

/** Has the agent change a project, and opens the card about it. */
async function asked(page) {
  projects += 1;
  const folder = writ.project(`project-${projects}`, { "fee.txt": "free from: 50.00 exclusive\n" });
  await page.locator("[data-surface-link=stream]").tap();
  await inProject(page, folder);
  await say(page, "Please fix the fee");
  await waits(page);
  await listening(page);
  await page.locator("[data-surface-link=review]").tap();
  await page.locator(".card").waitFor();
  return path.join(folder, "fee.txt");
}

/**
 * The flows of cards: yes, yes for the task with its end, no with a reason, and the way back.
 * Rows: SIL-333 (in part: cards)
 */
test("a card is approved, refused, taken back and revoked with taps alone", async () => {
  const page = await me.open();
  let file = await asked(page);
  const card = page.locator(".card");
  await card.locator("[data-decision=approve]").tap();
  await card.getByRole("button", { name: "Confirm" }).tap();
  await page.locator("[data-undo]").waitFor();
  assert.match(fs.readFileSync(file, "utf8"), /inclusive/);
  await page.locator("[data-undo]").tap();
  await page.locator("#undo").waitFor({ state: "hidden" });
  assert.match(fs.readFileSync(file, "utf8"), /exclusive/);
  await untyped(page);

  file = await asked(page);
  await card.locator("[data-decision=deny]").tap();
  await card.getByRole("button", { name: "Wrong target" }).tap();
  await untyped(page);
  await card.locator("button[type=submit]").tap();
  await page.locator("#decided-list [data-state=denied]").first().waitFor();
  assert.match(fs.readFileSync(file, "utf8"), /exclusive/);
  await untyped(page);

  file = await asked(page);
  await card.locator("[data-decision=approve_task]").tap();
  await card.getByRole("button", { name: "Confirm" }).tap();
  const row = page.locator("#in-force-list li");
  await row.waitFor();
  assert.match(fs.readFileSync(file, "utf8"), /inclusive/);
  await row.locator("[data-revoke]").tap();
  await page.locator("#in-force").waitFor({ state: "hidden" });
  await untyped(page);
});

/** Rows: SIL-333 (in part: gates) */
test("a gate is answered with a tap, either way", async () => {
  const page = await me.open();
  for (const [name, state] of [[/Let it pass/, "approved"], [/Stop it/, "denied"]]) {
    await inProject(page, writ.project(`gate-${state}`, { "a.txt": "a\n" }));
    await say(page, "what is a falcon");
    const gate = page.locator(".gate[data-state=open]");
    await gate.waitFor();
    await listening(page);
    await gate.getByRole("button", { name }).tap();
    await page.locator(`.gate[data-state=${state}]`).waitFor();
    await page.locator(".turn[data-running=false]").waitFor();
    assert.equal(await reply(page, "It is a bird.").count(), state === "approved" ? 1 : 0);
    await untyped(page);
  }
});

/**
 * A plan is read and refused, and what it is filed under is chosen.
 * Rows: SIL-333 (in part: items of work)
 */
test("an item of work is opened, filtered, ended and tried again with taps alone", async () => {
  const plan = path.join(writ.root, "plan.md");
  fs.writeFileSync(plan, PLAN);
  const project = writ.project("shop", { "a.txt": "a\n" });
  writ.ends(5, "work", "propose", plan, "--project", project);
  writ.run("work", "tag", "move", "home");
  const page = await me.open();
  await connected(page);
  await listening(page);
  await page.locator("[data-surface-link=work]").tap();
  const item = page.locator("#work-list .work-item");
  await item.getByRole("button", { name: /home/ }).tap();
  await item.locator("[aria-pressed=true]").waitFor();
  await item.getByRole("button", { name: /home/ }).tap();
  await item.locator("[aria-pressed=false]").waitFor();
  await item.getByRole("button", { name: "End" }).tap();
  await item.and(page.locator("[data-state=cancelled]")).waitFor();
  await item.getByRole("button", { name: "Try again" }).tap();
  await item.and(page.locator("[data-state=proposed]")).waitFor();
  await item.getByRole("link", { name: "Read the plan" }).tap();
  await page.locator(".card", { hasText: "Move it." }).waitFor();
  await untyped(page);
});
