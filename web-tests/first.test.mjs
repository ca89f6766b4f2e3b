// The first run: no configuration file is edited by hand, and no mouse is touched. A model is found or entered, tried and used;
// then a plan is approved, executed and verified.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import net from "node:net";
import path from "node:path";
import { after, before, test } from "node:test";
import { accessible } from "./lib/accessible.mjs";
import { connected, DESKTOP, launch, PHONE, reply, visitor } from "./lib/browser.mjs";
import { Writ } from "./lib/writ.mjs";

const PICTURES = process.env.WRIT_SCREENSHOTS ?? path.join(import.meta.dirname, "screenshots");
/** The most Tabs to anything on the page. */
const MOST_TABS = 120;
const KEY = "sk-the-only-key-of-this-test-0123456789";

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

const SCRIPT = [
  { when: "single word: ready", replies: [{ text: "ready" }] },
  { when: "numbers from 1 to 40", replies: [{ text: Array.from({ length: 40 }, (_, n) => n + 1).join(", ") }] },
  { when: "add_numbers", replies: [{ calls: [{ tool: "add_numbers", arguments: { a: 17, b: 25 } }] }, { text: "42" }] },
  { when: "JSON alone", replies: [{ text: "{\"answer\": 42}" }] },
  { when: "good morning", replies: [{ text: "Good morning to you." }] },
  // The agent hands the task to the planner, which is asked in words of the agent.
  {
    when: "make a plan of it",
    replies: [
      { calls: [{ tool: "plan", arguments: { request: "The text of the fee should be inclusive", reason: "it is to be checked" } }] },
      { text: "A plan is being made." },
    ],
  },
  { when: "The text of the fee should be inclusive", replies: [{ text: PLAN }] },
  {
    when: "Say when delivery is free",
    replies: [
      { calls: [{ tool: "file_write", arguments: { path: "fee.txt", content: "free from: 50.00 inclusive\n" } }] },
      { text: "It says inclusive now." },
    ],
  },
];

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
  await accessible(page, name);
}

/** The same on the screen of a phone. */
async function small(page, name) {
  await page.setViewportSize(PHONE);
  await look(page, `${name}-phone`);
  await page.setViewportSize(DESKTOP);
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

/** Rows: SIL-409 (in part: the five steps, from the request to the result) */
test("a first run by keyboard alone: key, model, plan, approval, evidence", async () => {
  const writ = await Writ.start(SCRIPT, "", "", { model: false });
  // A wrong address, and a second first model, are refused below.
  const me = await visitor(browser, writ, { viewport: DESKTOP, bypassCSP: true, refused: /models\/setup/ });
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

    // A plan is asked for in a folder, waits, is read, approved, executed and verified.
    const folder = writ.project("shop", { "fee.txt": "free from: 50.00 exclusive\n" });
    for (const args of [["init", "-q"], ["add", "."], ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "first"]]) {
      assert.equal(spawnSync("git", args, { cwd: folder }).status, 0);
    }
    await page.keyboard.press("Alt+n");
    await page.locator("#opener[open]").waitFor();
    await page.keyboard.type(folder);
    await page.keyboard.press("Enter");
    await page.locator("#opener[open]").waitFor({ state: "detached" });
    await page.locator("#session-name", { hasText: "In shop" }).waitFor({ state: "attached" });
    await connected(page);
    await page.keyboard.type("Let the fee say inclusive, and make a plan of it");
    await page.keyboard.press("Enter");
    await reply(page, "A plan is being made.").waitFor();
    await page.locator("#plan-button").waitFor();
    await page.locator(".reply .code[data-language=yaml]", { hasText: "run: grep -q inclusive fee.txt" }).waitFor();
    // What the agent asks the planner is no message of the person, and the session of the steps no conversation.
    await page.locator(".handed-on", { hasText: "The text of the fee should be inclusive" }).waitFor();
    assert.equal(await page.locator(".said", { hasText: "The text of the fee" }).count(), 0);
    await page.locator(".rail-sessions .session-row", { hasText: "In shop" }).waitFor({ state: "detached" });
    assert.equal(await page.locator("#setup-done").isVisible(), false, "it was said once");
    await look(page, "planned");
    await small(page, "planned");
    await page.keyboard.press("Alt+p");
    await page.locator(".plan-item[data-state=proposed]").waitFor();
    await look(page, "proposed");
    await tabTo(page, ".plan-item a.button");
    await page.keyboard.press("Enter");
    await page.locator(".card").waitFor();
    await look(page, "plan");
    await tabTo(page, ".card [data-decision=approve]");
    await page.keyboard.press("Enter");
    const confirm = page.locator(".step button.primary");
    await confirm.and(page.locator(":focus")).or(page.locator("#decided-list > li")).first().waitFor();
    if (await confirm.isVisible()) await page.keyboard.press("Enter");
    // The conversation shows how far it has come, by itself.
    await page.keyboard.press("Alt+1");
    await page.keyboard.press("Alt+p");
    await page.locator(".plan-item[data-state=done]").waitFor();
    await look(page, "done");
    await small(page, "done");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Alt+4");
    await page.locator(".work-item[data-state=done]").waitFor();
    await tabTo(page, ".work-item .case-row");
    await page.keyboard.press("Enter");
    await page.locator("#work .work-step[data-state=done]").waitFor();
    await tabTo(page, "#work .work-step summary");
    await page.keyboard.press("Enter");
    await page.locator("#work .work-step [data-verdict=pass]", { hasText: "says_inclusive: passed" }).waitFor();
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
  } finally {
    await me.close().finally(() => writ.stop());
  }
});

test("a server that takes the request and is silent is said to be so, soon, and stores nothing", async () => {
  const writ = await Writ.start(SCRIPT, "", "", { model: false });
  // It accepts connections, and never answers.
  const held = new Set();
  const silent = net.createServer((socket) => held.add(socket)).listen(0, "127.0.0.1");
  await once(silent, "listening");
  const me = await visitor(browser, writ, { viewport: PHONE, hasTouch: true, bypassCSP: true, refused: /models\/setup/ });
  try {
    const page = await me.open();
    await page.locator("#setup-title").waitFor();
    await page.locator("#setup-provider").selectOption("other");
    await page.locator("#setup-name").fill("own");
    await page.locator("#setup-url").fill(`http://127.0.0.1:${silent.address().port}/v1/`);
    await page.locator("#setup-model").fill("scripted");
    await page.locator("#setup-use").click();
    await page.locator("#setup-use", { hasText: "Trying it" }).waitFor();
    const problem = page.locator("#setup-problem", { hasText: "has not answered within 10 s" });
    await problem.waitFor({ timeout: 20_000 });
    assert.match(await problem.innerText(), /The server 127\.0\.0\.1:\d+ has not answered within 10 s\. Check the address/);
    assert.equal(await page.locator("#setup-use").isEnabled(), true, "another choice can be made");
    await look(page, "silent-phone");
    assert.doesNotMatch(fs.readFileSync(path.join(writ.root, "home/config.toml"), "utf8"), /^default = "own/m);
    await page.locator("#setup-url").fill(writ.base);
    await page.locator("#setup-use").click();
    await page.locator("#setup-done", { hasText: "own/scripted" }).waitFor();
  } finally {
    silent.close();
    for (const socket of held) socket.destroy();
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
