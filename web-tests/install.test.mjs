// The page as an application: who gets in, what stays without a server, what a phone needs.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { connected, launch, reply, say, visitor } from "./lib/browser.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { ended, Writ } from "./lib/writ.mjs";

let browser;
let writ;

before(async () => {
  browser = await launch();
  writ = await Writ.start(SCRIPT);
});
after(() => ended(browser, writ));

test("a page without a link says how to get one, and a link works once", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(writ.url);
  await page.getByText("This page is not linked yet").waitFor();
  assert.equal(await page.locator("#message").isVisible(), false);
  const link = writ.link();
  await page.goto(link);
  await connected(page);
  assert.equal(page.url(), `${writ.url}/`);
  await context.clearCookies();
  const again = await page.goto(link);
  assert.equal(again.status(), 403);
  await context.close();
});

/** Rows: SIL-236 */
test("it can be installed, and is one column on a phone", async () => {
  const me = await visitor(browser, writ, { viewport: { width: 375, height: 740 } });
  const page = await me.open();
  await page.evaluate(() => navigator.serviceWorker.ready);
  const devtools = await me.context.newCDPSession(page);
  const { installabilityErrors } = await devtools.send("Page.getInstallabilityErrors");
  const errors = installabilityErrors.map(({ errorId }) => errorId).filter((id) => id !== "in-incognito");
  assert.deepEqual(errors, []);
  const manifest = await devtools.send("Page.getAppManifest");
  assert.deepEqual(manifest.errors, []);
  for (const surface of ["stream", "review", "activity"]) {
    await page.locator(`[data-surface-link=${surface}]`).click();
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), surface);
    const visible = await page.locator(".surface").evaluateAll((all) => all.filter((one) => one.offsetParent).map((one) => one.id));
    assert.deepEqual(visible, [surface]);
  }
  await me.close();
});

/** Rows: SIL-239 */
test("without a server the page says so, keeps what is written, and sends it once later", async () => {
  const me = await visitor(browser, writ);
  const page = await me.open();
  await page.evaluate(() => navigator.serviceWorker.ready);
  // What the worker keeps is the page's own files alone.
  await page.reload();
  await connected(page);
  const kept = await page.evaluate(async () => {
    const names = await caches.keys();
    const all = await Promise.all(names.map(async (name) => (await (await caches.open(name)).keys()).map((request) => new URL(request.url).pathname)));
    return all.flat();
  });
  assert.ok(kept.includes("/") && kept.includes("/app.js"));
  assert.deepEqual(kept.filter((path) => /^\/(api|ws|link|sessions|v1)/.test(path)), []);
  await writ.halt();
  await page.locator("#banner").waitFor();
  assert.match(await page.locator("#banner").innerText(), /Disconnected/);
  assert.match(await page.locator(".link-rail").innerText(), /Disconnected/);
  await page.locator("#message").fill("hello after the pause");
  await page.keyboard.press("Enter");
  await page.getByText("Not sent yet").waitFor();
  // Loaded without a server: the page is there, and what was written as well.
  await page.reload();
  await page.locator("#banner").waitFor();
  await writ.serve();
  await connected(page);
  await page.locator(".said[data-state=kept]", { hasText: "hello after the pause" }).waitFor();
  await reply(page, "until it is complete.").waitFor();
  assert.equal(await page.locator(".said", { hasText: "hello after the pause" }).count(), 1);
  const received = writ.run("audit", "search", "--event", "received", "--json", "hello after the pause").trim().split("\n");
  assert.equal(received.length, 1);
  await me.close();
});

test("every flow can be walked with the keyboard", async () => {
  const me = await visitor(browser, writ);
  const page = await me.open();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  await page.keyboard.press("Alt+2");
  await page.waitForFunction(() => document.activeElement.id === "review-title");
  await page.keyboard.press("Alt+1");
  await page.waitForFunction(() => document.activeElement.id === "stream-title");
  await page.locator("#message").focus();
  await page.keyboard.type("hello by keyboard");
  await page.keyboard.press("Enter");
  await page.locator(".said[data-state=kept]", { hasText: "hello by keyboard" }).waitFor();
  await page.waitForFunction(() => document.getElementById("announcer").textContent.includes("Reply: Good morning"));
  await me.close();
});
