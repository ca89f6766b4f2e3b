// Stream: what is said, what runs, and that nothing of it is lost.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { connected, fresh, got, inProject, launch, reply, say, sent, visitor } from "./lib/browser.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { ended, Writ } from "./lib/writ.mjs";

let browser;
let writ;
let me;

before(async () => {
  browser = await launch();
  writ = await Writ.start(SCRIPT);
});
after(() => ended(browser, writ));
beforeEach(async () => {
  me = await visitor(browser, writ);
});
afterEach(() => me.close());

/** Rows: SIL-239 SIL-289 (streaming in the page) */
test("a message is sent, and its reply comes in pieces", async () => {
  const page = await me.open();
  const frames = got(page);
  await page.reload();
  await connected(page);
  await fresh(page);
  await say(page, "hello there");
  await reply(page, "until it is complete.").waitFor();
  const pieces = frames.filter((frame) => frame.type === "delta" && frame.text !== "");
  assert.ok(pieces.length > 1, `${pieces.length} pieces`);
  assert.equal(await page.locator(".turn").count(), 1);
  assert.equal(await page.locator("#working").isVisible(), false);
  // Shift + Enter is a new line, not a message.
  await page.locator("#message").fill("one");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("two");
  assert.equal(await page.locator("#message").inputValue(), "one\ntwo");
  assert.equal(await page.locator(".said").count(), 1);
});

/** Rows: SIL-337 (steps of a turn) */
test("steps are folded, and open to a line each and then to their summary", async () => {
  const page = await me.open();
  await inProject(page, writ.project("steps", { "fee.txt": "free from: 50.00 exclusive\n" }));
  await say(page, "Please fix the fee");
  await reply(page, "It waits for your word.").waitFor();
  const turn = page.locator(".turn").first();
  const work = turn.locator(".work");
  assert.equal(await work.getAttribute("open"), null, "folded when the turn has ended");
  await work.locator(":scope > summary").click();
  const steps = work.locator(".step-line");
  assert.ok((await steps.count()) >= 2);
  await steps.first().locator("summary").click();
  assert.match(await steps.first().locator(".step-detail").innerText(), /file_read/);
  // A file of the project is external content: the reply says that it rests on some.
  assert.match(await turn.locator(".marks").innerText(), /Depends on external content/);
  assert.equal(await turn.locator(".reply strong").innerText(), "wrong");
  assert.equal(await turn.locator(".reply pre code").innerText(), "free from: 50.00 inclusive");
});

test("a page that is loaded again in the middle of a turn misses nothing", async () => {
  const page = await me.open();
  await fresh(page);
  await say(page, "Please take your time");
  await page.locator(".turn .step-line[data-state=done]").first().waitFor();
  await page.reload();
  await connected(page);
  await page.locator("#stop").waitFor();
  assert.match(await page.locator(".said").innerText(), /Please take your time/);
  writ.release("time");
  await reply(page, "And the second half, too.").waitFor();
  await page.locator("#stop").waitFor({ state: "hidden" });
  assert.equal(await page.locator(".turn").count(), 1);
  assert.match(await page.locator(".turn .work > summary").innerText(), /1 step/);
  // Once more, when all is over: the same conversation, in the same order.
  await page.reload();
  await connected(page);
  await reply(page, "And the second half, too.").waitFor();
  await page.locator(".said").waitFor();
  const order = await page.locator("#items > li").evaluateAll((items) => items.map((item) => item.className));
  assert.deepEqual(order, ["said", "turn"]);
});

test("a second tab shows the same conversation while it goes on", async () => {
  const first = await me.open();
  await fresh(first);
  await first.locator("body[data-link=open]").waitFor();
  const session = await first.evaluate(() => sessionStorage.getItem("writ.session"));
  const second = await me.open();
  assert.equal(await second.evaluate(() => sessionStorage.getItem("writ.session")), session);
  await say(first, "Please wait for the other");
  await second.locator(".said", { hasText: "wait for the other" }).waitFor();
  await second.locator("#stop").waitFor();
  writ.release("other");
  for (const page of [first, second]) await reply(page, "Both see this.").waitFor();
  await say(second, "hello from the second");
  for (const page of [first, second]) {
    await reply(page, "until it is complete.").waitFor();
    await page.locator(".said", { hasText: "hello from the second" }).waitFor();
    const order = await page.locator("#items > li").evaluateAll((items) => items.map((item) => item.className));
    assert.deepEqual(order, ["said", "turn", "said", "turn"]);
  }
});

test("a turn can be stopped", async () => {
  const page = await me.open();
  const frames = sent(page);
  await page.reload();
  await connected(page);
  await fresh(page);
  await say(page, "This shall be stopped");
  await page.locator("#stop").click();
  await page.locator("#stop").waitFor({ state: "hidden" });
  assert.equal(frames.filter((frame) => frame.type === "cancel").length, 1);
  await page.locator(".turn[data-running=false]").waitFor();
  assert.equal(await page.getByText("This is never said.").count(), 0);
});

test("what a model writes is text, and links say where they lead", async () => {
  const page = await me.open();
  await fresh(page);
  await say(page, "Be hostile");
  const said = reply(page, "your bank");
  await said.waitFor();
  assert.equal(await page.locator(".reply img, .reply script, .reply style, .reply b").count(), 0);
  assert.doesNotMatch(await page.title(), /owned/);
  const bank = said.locator("a", { hasText: "your bank" });
  assert.equal((await bank.locator(".host").innerText()).trim(), "evil.example");
  assert.equal(await bank.getAttribute("rel"), "noopener noreferrer");
  assert.equal(await said.locator("a", { hasText: "run" }).count(), 0);
  assert.match(await said.innerText(), /<script>/);
  // That no picture was asked for is checked for every page of these tests.
});

test("a file that is sent is a download, and never a page of this server", async () => {
  const page = await me.open();
  await fresh(page);
  await say(page, "Please send me the notes");
  await reply(page, "You have them.").waitFor();
  for (const again of [false, true]) {
    if (again) {
      await page.reload();
      await connected(page);
    }
    const link = page.locator(".turn .files a");
    await link.waitFor();
    assert.equal(await link.innerText(), "Save notes.html");
    const [download] = await Promise.all([page.waitForEvent("download"), link.click()]);
    assert.equal(download.suggestedFilename(), "notes.html");
    assert.equal(await readFile(await download.path(), "utf8"), "<script>document.title = 'owned'</script>\n");
    assert.doesNotMatch(await page.title(), /owned/);
  }
  assert.equal(await page.locator(".turn .files a").count(), 1);
});

test("several conversations stand side by side", async () => {
  const page = await me.open();
  await fresh(page);
  await say(page, "hello to the first");
  await reply(page, "until it is complete.").waitFor();
  await fresh(page);
  assert.equal(await page.locator(".said").count(), 0);
  await page.locator(".rail-sessions .session-row", { hasText: "hello to the first" }).click();
  await page.locator(".said", { hasText: "hello to the first" }).waitFor();
});
