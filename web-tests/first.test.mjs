// The first run: no configuration file is edited by hand, and no mouse is touched. A model is found or entered, tried and used;
// then a plan is approved, executed and verified.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { DESKTOP, launch, PHONE, reply, visitor } from "./lib/browser.mjs";
import { Writ } from "./lib/writ.mjs";

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const PICTURES = process.env.WRIT_SCREENSHOTS ?? path.join(import.meta.dirname, "screenshots");
/** The most Tabs to anything on the page. */
const MOST_TABS = 120;
const KEY = "sk-the-only-key-of-this-test-0123456789";

const SCRIPT = [
  { when: "single word: ready", replies: [{ text: "ready" }] },
  { when: "numbers from 1 to 40", replies: [{ text: Array.from({ length: 40 }, (_, n) => n + 1).join(", ") }] },
  { when: "add_numbers", replies: [{ calls: [{ tool: "add_numbers", arguments: { a: 17, b: 25 } }] }, { text: "42" }] },
  { when: "JSON alone", replies: [{ text: "{\"answer\": 42}" }] },
  { when: "good morning", replies: [{ text: "Good morning to you." }] },
  {
    when: "Say when delivery is free",
    replies: [
      { calls: [{ tool: "file_write", arguments: { path: "fee.txt", content: "free from: 50.00 inclusive\n" } }] },
      { text: "It says inclusive now." },
    ],
  },
];

const PLAN = `---
id: mend-fee
type: task
title: Say when delivery is free
verify:
  - name: says_inclusive
    run: grep -q inclusive fee.txt
    expect: { exit_code: 0 }
---

# What to do

Say when delivery is free: the text of fee.txt should say inclusive.
`;

let browser;

before(async () => {
  fs.mkdirSync(PICTURES, { recursive: true });
  browser = await launch();
});
after(() => browser?.close());

/** Goes with Tab to what this selector names. */
async function tabTo(page, selector) {
  for (let n = 0; n < MOST_TABS; n += 1) {
    if (await page.evaluate((wanted) => document.activeElement?.matches(wanted) === true, selector)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`no way with Tab to ${selector}`);
}

async function look(page, name) {
  await page.screenshot({ path: path.join(PICTURES, `first-${name}.png`) });
  await page.evaluate(fs.readFileSync(AXE, "utf8"));
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  assert.deepEqual(serious.map(({ id, nodes }) => [name, id, nodes.map(({ html }) => html)]), []);
}

/** Every file below a folder that holds a text. */
function holding(folder, text) {
  return fs.readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && fs.readFileSync(path.join(entry.parentPath, entry.name)).includes(text))
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)));
}

/** A model server on the usual port of one, which lists its model and hands the rest on. */
async function onUsualPort(base) {
  const server = http.createServer((request, response) => {
    if (request.method === "GET" && request.url === "/v1/models") {
      response.setHeader("Content-Type", "application/json");
      response.end(JSON.stringify({ data: [{ id: "scripted" }] }));
      return;
    }
    const to = new URL(base);
    const onward = http.request({ host: to.hostname, port: to.port, method: request.method, path: request.url, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on("error", () => response.destroy());
    request.pipe(onward);
  }).listen(1234, "127.0.0.1");
  await once(server, "listening");
  return server;
}

test("a first run by keyboard alone: key, model, plan, approval, evidence", async () => {
  const writ = await Writ.start(SCRIPT, "", "", { model: false });
  const me = await visitor(browser, writ, { viewport: DESKTOP, bypassCSP: true });
  try {
    const page = await me.open();
    await page.locator("#setup-title").waitFor();
    assert.equal(await page.locator("#welcome").isVisible(), false);
    await look(page, "setup");

    // A wrong address is said, and stores nothing.
    await tabTo(page, "#setup-provider");
    await page.keyboard.press("End");
    await tabTo(page, "#setup-name");
    await page.keyboard.type("own");
    await tabTo(page, "#setup-url");
    await page.keyboard.type("ftp://127.0.0.1/");
    await tabTo(page, "#setup-model");
    await page.keyboard.type("scripted");
    await tabTo(page, "#setup-key");
    await page.keyboard.type(KEY);
    await page.keyboard.press("Enter");
    await page.locator("#setup-problem", { hasText: "neither http nor https" }).waitFor();
    assert.equal(await page.locator("#setup-key").inputValue(), "", "the key is not on the page any more");
    await look(page, "setup-problem");

    // Tab selects what stands there, so that typing replaces it.
    await tabTo(page, "#setup-url");
    await page.keyboard.type(writ.base);
    await tabTo(page, "#setup-key");
    await page.keyboard.type(KEY);
    await page.keyboard.press("Enter");
    await page.locator("#setup-done", { hasText: "own/scripted" }).waitFor();
    await page.locator("#welcome").waitFor();
    await look(page, "ready");
    const config = fs.readFileSync(path.join(writ.root, "home/config.toml"), "utf8");
    assert.match(config, /\n\[models\]\ndefault = "own\/scripted"\n\n\[providers\.own\]\nkind = "openai"\nbase_url = .*\napi_key = "secret:model-key-own"\n$/);

    // The message box has the focus; the model answers without a restart.
    await page.keyboard.type("good morning");
    await page.keyboard.press("Enter");
    await reply(page, "Good morning to you.").waitFor();

    // A plan waits, is read, approved, executed and verified.
    const folder = writ.project("shop", { "fee.txt": "free from: 50.00 exclusive\n", "plan.md": PLAN });
    for (const args of [["init", "-q"], ["add", "."], ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "first"]]) {
      assert.equal(spawnSync("git", args, { cwd: folder }).status, 0);
    }
    writ.ends(5, "work", "propose", path.join(folder, "plan.md"), "--project", folder);
    await page.keyboard.press("Alt+4");
    await page.locator(".work-item[data-state=proposed]").waitFor();
    await look(page, "proposed");
    await tabTo(page, ".work-item a.primary");
    await page.keyboard.press("Enter");
    await page.locator(".card").waitFor();
    await look(page, "plan");
    await tabTo(page, ".card [data-decision=approve]");
    await page.keyboard.press("Enter");
    const confirm = page.locator(".step button.primary");
    if (await confirm.isVisible()) await page.keyboard.press("Enter");
    await page.keyboard.press("Alt+4");
    await page.locator(".work-item[data-state=done]").waitFor();
    await tabTo(page, ".work-item .case-row");
    await page.keyboard.press("Enter");
    await page.locator(".work-step[data-state=done]").waitFor();
    await tabTo(page, ".work-step summary");
    await page.keyboard.press("Enter");
    await page.locator(".work-step [data-verdict=pass]", { hasText: "says_inclusive: passed" }).waitFor();
    await look(page, "verified");

    // The key stands in the store of secrets alone, and a second first model is refused.
    const secrets = holding(path.join(writ.root, "home"), KEY);
    assert.ok(secrets.length > 0 && secrets.every((file) => file.startsWith("keys/")), secrets.join());
    const again = await page.evaluate(async () => {
      const body = JSON.stringify({ provider: "evil", model: "m", kind: "openai", base_url: "http://127.0.0.1:9/" });
      const answer = await fetch("/api/v1/models/setup", { method: "POST", headers: { "Content-Type": "application/json" }, body });
      return [answer.status, (await answer.json()).error.code];
    });
    assert.deepEqual(again, [403, "models.configured"]);
    me.problems.splice(0, me.problems.length, ...me.problems.filter((text) => !/models\/setup/.test(text)));
  } finally {
    await me.close().finally(() => writ.stop());
  }
});

for (const colorScheme of ["light", "dark"]) {
  test(`a server on this machine is found and used on a phone: ${colorScheme}`, async () => {
    const writ = await Writ.start(SCRIPT, "", "", { model: false });
    const me = await visitor(browser, writ, { viewport: PHONE, colorScheme, hasTouch: true, bypassCSP: true });
    let server;
    try {
      const page = await me.open();
      await page.locator("#setup-found", { hasText: "None answers" }).waitFor();
      server = await onUsualPort(writ.base);
      await page.locator("#setup-look").click();
      await page.locator("[data-provider=lmstudio]").waitFor();
      await look(page, `found-phone-${colorScheme}`);
      await page.locator("[data-provider=lmstudio] button").click();
      await page.locator("#setup-done", { hasText: "lmstudio/scripted" }).waitFor();
      await page.locator("#message").fill("good morning");
      await page.keyboard.press("Enter");
      await reply(page, "Good morning to you.").waitFor();
    } finally {
      server?.close();
      server?.closeAllConnections();
      await me.close().finally(() => writ.stop());
    }
  });
}
