// Gates that ask: the turn waits on the page, and goes on or ends as its person says.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { connected, fresh, launch, reply, say, visitor } from "./lib/browser.mjs";
import { Writ } from "./lib/writ.mjs";

const GATE = `[[gates]]
name = "falcon"
on = "input"
provider = "predicate"
contains = ["falcon"]
action = "ask"
reason = "It names the falcon."
`;

let browser;
let writ;
let me;

before(async () => {
  browser = await launch();
  writ = await Writ.start([{ when: "falcon", replies: [{ text: "It is a bird." }] }], "", GATE);
  me = await visitor(browser, writ);
});
after(async () => {
  await me?.close();
  await browser?.close();
  await writ?.stop();
});

/** Rows: SIL-232 (on the page) */
test("a gate asks with the complete text, also after a reload, and the turn goes on with the answer", async () => {
  const page = await me.open();
  await fresh(page);
  await say(page, "what is a <b>falcon</b>");
  const gate = page.locator(".gate[data-state=open]");
  await gate.waitFor();
  await page.reload();
  await connected(page);
  await gate.waitFor();
  assert.equal(await gate.count(), 1);
  assert.match(await gate.innerText(), /A gate asks about your message[\s\S]*It names the falcon\.[\s\S]*what is a <b>falcon<\/b>/);
  assert.equal(await gate.locator(".shown b").count(), 0);
  await gate.getByRole("button", { name: /Let it pass/ }).click();
  await reply(page, "It is a bird.").waitFor();
  assert.equal(await page.locator(".gate").getAttribute("data-state"), "approved");
  await page.reload();
  await connected(page);
  await page.locator(".gate[data-state=approved]").waitFor();
  assert.equal(await page.locator(".gate button").count(), 0, "what is answered is not asked");
});

test("what is denied is not read, and the second tab sees that", async () => {
  const [page, other] = [await me.open(), await me.open()];
  await fresh(page);
  const session = await page.evaluate(() => sessionStorage.getItem("writ.session"));
  await other.evaluate((id) => sessionStorage.setItem("writ.session", id), session);
  await other.reload();
  await connected(other);
  await say(page, "another falcon");
  for (const tab of [page, other]) await tab.locator(".gate[data-state=open]").waitFor();
  await other.locator(".gate").getByRole("button", { name: /Stop it/ }).click();
  for (const tab of [page, other]) {
    await tab.locator(".gate[data-state=denied]").waitFor();
    await tab.locator(".turn[data-running=false]").waitFor();
    assert.equal(await reply(tab, "It is a bird.").count(), 0);
  }
});
