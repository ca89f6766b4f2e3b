// A person's hands: a conversation in a folder of their choice, tables and code, cards that say where they come from; desktop and phone.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { DESKTOP, fresh, launch, PHONE, reply, say, visitor } from "./lib/browser.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { ended, Writ } from "./lib/writ.mjs";

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
after(() => ended(browser, writ));

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

  test(`${device}: steps show arguments and output, changes stand file by file, and Apply asks in Review`, async () => {
    const project = writ.project(`shop-${device}`, { "fee.txt": "free from: 50.00 exclusive\n" });
    const person = await visitor(browser, writ, { viewport });
    const page = await person.open();
    await fresh(page, project);
    await say(page, "please fix the fee");
    await reply(page, "It waits for your word").waitFor();

    await page.locator(".work > summary").last().click();
    const steps = page.locator(".step-line");
    await steps.nth(1).locator("summary").click();
    await steps.nth(1).locator(".step-block").last().waitFor();
    const blocks = await steps.nth(1).locator(".step-block").allInnerTexts();
    assert.deepEqual(blocks.slice(0, 2).map((text) => text.split("\n")[0].toLowerCase()), ["path", "content"], blocks.join(" / "));
    assert.match(blocks[1], /free from: 50.00 inclusive/);
    assert.match(blocks.at(-1), /^output\n+\S/i);
    assert.doesNotMatch(blocks.at(-1), /\u27e6/);
    await steps.nth(0).locator("summary").click();
    assert.match(await steps.nth(0).locator(".step-block").last().innerText(), /free from: 50.00 exclusive/);
    await fits(page, "the steps");
    await picture(page, `steps-${device}`);
    // The same after the page was loaded again.
    await page.reload();
    await page.locator("body[data-link=open]").waitFor();
    await page.locator(".work > summary").last().click();
    await page.locator(".step-line").nth(1).locator("summary").click();
    assert.match(await page.locator(".step-line").nth(1).locator(".step-block").nth(1).innerText(), /50.00 inclusive/);

    await page.locator("#changes-button").click();
    const file = page.locator("#reader .change[data-path='fee.txt']");
    await file.locator(".line.add").waitFor();
    assert.equal(await file.locator(".lines").innerText(), "+1 \u22121");
    await fits(page, "the changes");
    await picture(page, `changes-${device}`);
    await page.locator("#apply-button").click();
    await page.locator("body[data-surface=review]").waitFor();
    const card = page.locator("#card-place .card");
    await card.locator(".where", { hasText: "please fix the fee" }).waitFor();
    await card.locator("button[data-decision=approve]").click();
    const confirm = card.getByRole("button", { name: "Confirm: approve" });
    await confirm.or(page.locator("#decided-list", { hasText: /applied/i })).first().waitFor();
    if (await confirm.isVisible()) await confirm.click();
    await page.locator("#decided-list", { hasText: /applied/i }).waitFor();
    assert.equal(fs.readFileSync(path.join(project, "fee.txt"), "utf8"), "free from: 50.00 inclusive\n");
    await page.locator("[data-surface-link=stream]").click();
    await page.locator("#changes-button").click();
    await page.locator("#reader-body", { hasText: "Nothing was changed." }).waitFor();
    await page.locator("#reader [data-close]").click();

    // A call of a tool is one row, which opens.
    await page.locator("[data-surface-link=activity]").click();
    await page.locator("#filter-session").selectOption("this");
    const call = page.locator(".call", { has: page.locator(":scope > summary .event", { hasText: /^Call: done$/ }) }).last();
    await call.waitFor();
    assert.equal(await call.locator(".entry").first().isVisible(), false);
    await fits(page, "the activity");
    await picture(page, `activity-${device}`);
    await call.locator(":scope > summary").click();
    const events = await call.locator(".entry").evaluateAll((all) => all.map((one) => one.dataset.event));
    assert.deepEqual(events, ["outcome", "intent"]);
    const whole = page.locator(".call", { has: page.locator(".entry[data-event=answered]") }).first();
    const told = await whole.locator(".entry").evaluateAll((all) => all.map((one) => one.dataset.event));
    assert.ok(told.includes("asked") && told.includes("answered"), told.join(" "));
    await person.close();
  });
}

test("a line of a change that looks like the head of another file is not one", async () => {
  const person = await visitor(browser, writ);
  const page = await person.open();
  const { files, rest } = await page.evaluate(async () => {
    const { parts } = await import("/js/changes.js");
    return parts("--- a/one\n+++ b/one\n@@ -1,2 +1,2 @@\n--- a/two\n+++ b/two\n same\n--- a/three\n+++ /dev/null\ndeleted: too large to be shown\nleft out: target: ignored\n");
  });
  assert.deepEqual(files, ["--- a/one\n+++ b/one\n@@ -1,2 +1,2 @@\n--- a/two\n+++ b/two\n same", "--- a/three\n+++ /dev/null\ndeleted: too large to be shown"]);
  assert.equal(rest, "left out: target: ignored");
  await person.close();
});

test("what a model writes takes no long time to show, and a label does not hide a host", async () => {
  const person = await visitor(browser, writ);
  const page = await person.open();
  const [slowest, labels, kept] = await page.evaluate(async () => {
    const { markdown } = await import("/js/markdown.js");
    const many = (text, count = 40_000) => text.repeat(count);
    const hostile = [`a|b\n-${many(" ")}x`, `a|b\n-${many(" ")}-`, `# a${many(" ")}b`, `# ${many("#")}x`, `a${many("`")}b`, `\`\`\`js\n'${many("\\'", 24_000)}`, many("[a](", 10_000), many("- ", 10_000)];
    const time = (text) => {
      const began = performance.now();
      markdown(text);
      return performance.now() - began;
    };
    // The fastest of a few tries: the machine may be busy with something else.
    const times = hostile.map((text) => Math.min(...[1, 2, 3].map(() => time(text))));
    const shown = (text) => {
      const node = document.createElement("div");
      node.append(markdown(text));
      return node.querySelector(".host")?.textContent.trim() ?? null;
    };
    const text = (text) => {
      const node = document.createElement("div");
      node.append(markdown(text));
      return node.innerText.trim();
    };
    return [
      Math.max(...times),
      ["[https://paypal.com/signin](https://paypal.co/x)", "[github.com/writ](https://github.co)", "[ann@bank.com](mailto:ann@bank.co?body=x)", "[example.org/a](https://example.org/a)"].map(shown),
      ["# One ##", "## `a` b", "a `` b ` c `` d"].map(text),
    ];
  });
  assert.ok(slowest < 500, `${slowest} ms`);
  assert.deepEqual(labels, ["paypal.co", "github.co", "ann@bank.co", null]);
  assert.deepEqual(kept.slice(0, 2), ["One", "a b"]);
  await person.close();
});

/** What is typed while another conversation is being joined is for that one. */
test("a message goes to the conversation that was chosen, also before it is joined", async () => {
  const person = await visitor(browser, writ);
  const page = await person.open();
  await fresh(page);
  await say(page, "hello");
  await reply(page, "until it is complete").waitFor();
  const first = await page.evaluate(() => sessionStorage.getItem("writ.session"));
  await page.locator("#message").fill("a draft of the first");
  await fresh(page);
  const second = await page.evaluate(() => sessionStorage.getItem("writ.session"));
  assert.equal(await page.locator("#message").inputValue(), "");
  await page.locator("#message").fill("a draft of the second");
  await page.locator("[data-sessions] .session-row:not([aria-current=true])", { hasText: "hello" }).first().waitFor();
  // Chosen, and said at once: no answer of the server comes between.
  await page.evaluate(() => {
    const row = [...document.querySelectorAll("[data-sessions] .session-row")].find((one) => one.getAttribute("aria-current") !== "true" && one.textContent.includes("hello"));
    row.click();
    const box = document.getElementById("message");
    window.seen = box.value;
    box.value = "hello again";
    document.getElementById("composer").requestSubmit();
  });
  assert.equal(await page.evaluate(() => window.seen), "a draft of the first");
  await page.locator(".said[data-state=kept]", { hasText: "hello again" }).waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.getItem("writ.session")), first);
  assert.equal(await page.evaluate((id) => sessionStorage.getItem(`writ.outbox.${id}`), second), null);
  await person.close();
});

test("what is said before a conversation is known is for the first one, and is shown again where it was hidden", async () => {
  const person = await visitor(browser, writ);
  const page = await person.open();
  const seen = await page.evaluate(async () => {
    const { Outbox } = await import("/js/outbox.js");
    const sent = [];
    const outbox = new Outbox((frame) => sent.push(frame.text), () => {});
    outbox.add("early").node = {};
    outbox.open("one");
    const counted = sent.filter((text) => text === "early").length;
    outbox.hidden();
    const again = outbox.open("one").map((message) => message.text);
    outbox.choose("two");
    outbox.add("late");
    const two = JSON.parse(sessionStorage.getItem("writ.outbox.two")).map((message) => message.text);
    const one = JSON.parse(sessionStorage.getItem("writ.outbox.one")).map((message) => message.text);
    for (const name of ["one", "two"]) sessionStorage.removeItem(`writ.outbox.${name}`);
    return { counted, again, one, two };
  });
  // Once when it was said, in vain, and once when the conversation was joined.
  assert.deepEqual(seen, { counted: 2, again: ["early"], one: ["early"], two: ["late"] });
  await person.close();
});
