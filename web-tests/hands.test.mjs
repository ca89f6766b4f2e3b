// A person's hands: a conversation in a folder of their choice, tables and code, cards that say where they come from; desktop and phone.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { DESKTOP, fresh, launch, PHONE, reply, say, visitor } from "./lib/browser.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { Writ } from "./lib/writ.mjs";

const PICTURES = process.env.WRIT_SCREENSHOTS ?? path.join(import.meta.dirname, "screenshots");

let browser;
let writ;
let folder;

before(async () => {
  fs.mkdirSync(PICTURES, { recursive: true });
  browser = await launch();
  writ = await Writ.start(SCRIPT);
  folder = writ.project("webshop", { "fee.txt": "free from: 50.00 exclusive\n" });
});
after(async () => {
  await browser?.close();
  await writ?.stop();
});

const picture = (page, name) => page.screenshot({ path: path.join(PICTURES, `hands-${name}.png`) });

/** Nothing of the page is wider than its window. */
async function fits(page, what) {
  const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= window, `${what}: ${wide} in ${window}`);
}

for (const [device, viewport] of [["desktop", DESKTOP], ["phone", PHONE]]) {
  test(`${device}: a conversation begins in a folder, and its card names it`, async () => {
    const person = await visitor(browser, writ, { viewport, refused: /api\/v1\/sessions/ });
    const page = await person.open();

    // A folder that is none is refused with a reason, where it was written.
    const beside = page.locator("[data-new-session]").first();
    if (await beside.isVisible()) await beside.click();
    else {
      await page.locator("#session-button").click();
      await page.locator("#switcher [data-new-session]").click();
    }
    await page.locator("#opener-folder").fill(path.join(folder, "nowhere"));
    await page.locator("#opener").getByRole("button", { name: "Begin" }).click();
    await page.locator("#opener-problem:not([hidden])").waitFor();
    assert.match(await page.locator("#opener-problem").innerText(), /nowhere|not there|folder/);
    await picture(page, `folder-${device}`);
    await page.locator("#opener [data-close]").click();

    await fresh(page, folder);
    assert.equal(await page.locator("#stream-title").innerText(), "Chat");
    await say(page, "please fix the fee");
    await reply(page, "It waits for your word").waitFor();
    await page.locator("#changes-button").waitFor();

    await page.locator("[data-surface-link=review]").click();
    const card = page.locator("#card-place .card");
    await card.waitFor();
    await card.locator(".where", { hasText: "please fix the fee" }).waitFor();
    const names = await card.locator(".choice button").allInnerTexts();
    assert.deepEqual(names[0], "Approve");
    assert.ok(names.includes("Also approve later changes to this folder, unseen (20 times, 60 minutes)"), names.join("; "));
    await fits(page, "the card");
    const inside = await card.locator(".choice button").evaluateAll((buttons) => {
      const box = buttons[0].closest(".card").getBoundingClientRect();
      return buttons.every((button) => button.getBoundingClientRect().right <= box.right && button.getBoundingClientRect().left >= box.left);
    });
    assert.ok(inside, "every answer lies within its card");
    await picture(page, `card-${device}`);
    await card.locator(".where").click();
    await page.locator("body[data-surface=stream]").waitFor();
    await page.locator("[data-surface-link=review]").click();
    await card.locator("button[data-decision=deny]").click();
    await card.getByRole("button", { name: "Deny" }).click();
    await page.locator("#review-empty:not([hidden])").waitFor();
    await person.close();
  });

  test(`${device}: tables are tables, and code is coloured and can be copied`, async () => {
    const person = await visitor(browser, writ, { viewport, permissions: ["clipboard-read", "clipboard-write"] });
    const page = await person.open();
    await fresh(page);
    await say(page, "show me a table");
    const answer = reply(page, "And how it is made");
    await answer.waitFor();
    assert.deepEqual(await answer.locator("thead th").allInnerTexts(), ["town", "2025", "note"]);
    assert.deepEqual(await answer.locator("tbody td").allInnerTexts(), ["Ulm", "12", "a | b", "Trier", "7", "<b>bold</b>"]);
    assert.equal(await answer.locator("tbody td[data-side=end]").count(), 2);
    assert.equal(await answer.locator("table").count(), 1, "what has no line below its head is text");
    assert.deepEqual(await answer.locator(".code-comment").allInnerTexts(), ["// Adds them.", "// \"two\""]);
    assert.deepEqual(await answer.locator(".code-word").allInnerTexts(), ["fn", "let"]);
    await answer.locator(".copy").click();
    await answer.locator(".copy", { hasText: "Copied" }).waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    assert.equal(copied, "// Adds them.\nfn add(a: u32) -> u32 { a + 1 } // \"two\"\nlet text = \"</code><script>document.title='owned'</script>\";");
    assert.doesNotMatch(await page.title(), /owned/);
    await fits(page, "the reply");
    await picture(page, `table-${device}`);
    await person.close();
  });
}
