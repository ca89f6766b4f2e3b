// What the model sees, piece by piece, and what a message brings along.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { accessible } from "./lib/accessible.mjs";
import { connected, DESKTOP, fresh, launch, PHONE, reply, say, visitor } from "./lib/browser.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { ended, Writ } from "./lib/writ.mjs";

const PICTURES = process.env.WRIT_SCREENSHOTS ?? path.join(import.meta.dirname, "screenshots");
const PNG = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");

const OWN = [
  { when: "the heron stands", replies: [{ text: "The text is about a heron." }] },
  { when: "photo.png", replies: [{ text: "A small picture." }] },
  { when: "first question", replies: [{ text: "First answer." }] },
  { when: "second question", replies: [{ text: "Second answer." }] },
];

let browser;
let writ;

before(async () => {
  fs.mkdirSync(PICTURES, { recursive: true });
  browser = await launch();
  writ = await Writ.start([...OWN, ...SCRIPT]);
});
after(() => ended(browser, writ));

async function look(page, name) {
  await page.screenshot({ path: path.join(PICTURES, `${name}.png`) });
  await accessible(page, name);
}

const devices = [["desktop", "light"], ["desktop", "dark"], ["phone", "light"], ["phone", "dark"]];
const visit = (device, colorScheme) => visitor(browser, writ, { viewport: device === "phone" ? PHONE : DESKTOP, colorScheme, reducedMotion: "reduce", hasTouch: device === "phone", bypassCSP: true });

for (const [device, colorScheme] of devices) {
  test(`what the model sees is shown, compared with the turn before, and pinned: ${device}, ${colorScheme}`, async () => {
    const me = await visit(device, colorScheme);
    const page = await me.open();
    await fresh(page);
    const measured = page.waitForResponse((response) => /\/context$/.test(response.url()));
    await say(page, "My first question");
    await reply(page, "First answer.").waitFor();
    await measured;
    await page.locator("#context-button").click();
    const first = page.locator("#context .parts li", { hasText: "My first question" });
    await first.waitFor();
    assert.match(await page.locator("#context .facts").innerText(), /test\/scripted · .* tokens/);
    await page.locator(".zone[data-zone=system]").waitFor();
    assert.equal(await page.locator("#context li[data-fresh=true]").count(), 0, "there is no turn before");
    await first.locator("[data-pin]").click();
    await first.locator("[data-pin][aria-pressed=true]").waitFor();
    await page.keyboard.press("Escape");
    const again = page.waitForResponse((response) => /\/context$/.test(response.url()));
    await say(page, "My second question");
    await reply(page, "Second answer.").waitFor();
    await again;
    await page.locator("#context-button").click();
    await page.locator("#context li[data-fresh=true]", { hasText: "My second question" }).waitFor();
    assert.equal(await first.getAttribute("data-fresh"), "false");
    assert.equal(await first.locator("[data-pin]").getAttribute("aria-pressed"), "true");
    await look(page, `context-${device}-${colorScheme}`);
    const shown = JSON.parse(writ.run("context", "show", "--json"));
    const [pinned] = shown.pins;
    assert.equal(shown.items.find((item) => item.row === pinned).begins, "person: My first question");
    await first.locator("[data-pin]").click();
    await first.locator("[data-pin][aria-pressed=false]").waitFor();
    await page.locator("#context-compact").click();
    await page.locator("#context-said", { hasText: /summarised: .* tokens became|nothing older/ }).waitFor();
    await me.close();
  });

  test(`a message brings files along, and what is none is refused by name: ${device}, ${colorScheme}`, async () => {
    const me = await visit(device, colorScheme);
    const page = await me.open();
    await fresh(page);
    await connected(page);
    const row = (name) => page.locator("#attach-list li", { hasText: name });
    await page.locator("#attach-input").setInputFiles([
      { name: "photo.png", mimeType: "image/png", buffer: PNG },
      { name: "false.png", mimeType: "image/png", buffer: Buffer.from("no image") },
    ]);
    await row("photo.png").and(page.locator("[data-state=stored]")).waitFor();
    await row("false.png").and(page.locator("[data-state=refused]")).waitFor();
    assert.match(await row("false.png").innerText(), /"false.png" is not taken: .*no PNG, JPEG, GIF or WebP image/);
    await page.locator("#message").fill("What is this?");
    assert.equal(await page.locator("#send").isDisabled(), true, "nothing is sent without what was meant to come along");
    await look(page, `attachments-${device}-${colorScheme}`);
    await row("false.png").getByRole("button").click();
    await page.locator("#message").press("Enter");
    await reply(page, "A small picture.").waitFor();
    assert.equal(await page.locator("#attach-list").isVisible(), false);

    // A text is quoted as data of an unknown author: what rests on it says so.
    await page.locator("#attach-input").setInputFiles([{ name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("the heron stands\n```\nin the reeds") }]);
    await row("notes.txt").and(page.locator("[data-state=stored]")).waitFor();
    await page.locator("#send").click();
    await reply(page, "The text is about a heron.").waitFor();
    const turn = page.locator(".turn", { hasText: "about a heron" });
    await turn.locator(".taint").waitFor();
    assert.equal(await page.locator(".said", { hasText: "Look at this." }).count(), 1);

    await page.locator("#attach-input").setInputFiles([{ name: "data.bin", mimeType: "application/octet-stream", buffer: Buffer.from([0, 255, 1, 254]) }]);
    await row("data.bin").and(page.locator("[data-state=refused]")).waitFor();
    await row("data.bin").getByRole("button").click();
    const many = Array.from({ length: 21 }, (_, n) => ({ name: `${n}.txt`, mimeType: "text/plain", buffer: Buffer.from("x") }));
    await page.locator("#attach-input").setInputFiles(many);
    await page.locator("#attach-note", { hasText: "A message takes 20 files" }).waitFor();
    assert.equal(await page.locator("#attach-list li").count(), 20);
    me.problems.splice(0, me.problems.length, ...me.problems.filter((text) => !text.includes("/api/v1/files")));
    await me.close();
  });
}
