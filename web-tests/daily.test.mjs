// Daily use in the page: conversations that are named, found, copied and deleted, what turns have used, the keyboard, and the
// cadence of questions.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { accessible } from "./lib/accessible.mjs";
import { connected, DESKTOP, fresh, launch, PHONE, reply, say, visitor } from "./lib/browser.mjs";
import { remembering } from "./lib/review.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { ended, Writ } from "./lib/writ.mjs";

const PICTURES = process.env.WRIT_SCREENSHOTS ?? path.join(import.meta.dirname, "screenshots");

let browser;
let writ;
let me;

before(async () => {
  fs.mkdirSync(PICTURES, { recursive: true });
  browser = await launch();
  writ = await Writ.start(SCRIPT, remembering("medium"), '[models.roles]\noracle = "test/large"\n');
  fs.mkdirSync(path.join(writ.root, "home/agents"), { recursive: true });
  fs.writeFileSync(path.join(writ.root, "home/agents/reader.toml"), 'about = "Reads only"\ntools = ["file_read"]\n');
  await writ.halt();
  await writ.serve();
});
after(() => ended(browser, writ));
beforeEach(async () => {
  me = await visitor(browser, writ, { viewport: DESKTOP });
});
afterEach(() => me.close());

const rail = (page) => page.locator(".rail-sessions");
const row = (page, text) => rail(page).locator(".session-item", { hasText: text });

async function edited(page, text) {
  await row(page, text).hover();
  await row(page, text).locator(".session-more").click();
  await page.locator("#editor[open]").waitFor();
}

test("a conversation is renamed, found by what was said in it, deleted and brought back", async () => {
  const page = await me.open();
  await fresh(page);
  await say(page, "hello there");
  await reply(page, "until it is complete.").waitFor();
  await row(page, "hello there").waitFor();
  await edited(page, "hello there");
  await page.locator("#editor-name").fill("Greetings");
  await page.keyboard.press("Enter");
  await row(page, "Greetings").waitFor();
  assert.equal(await page.locator("#session-name").innerText(), "Greetings");
  await rail(page).locator("[data-session-search]").fill("pieces COMPLETE");
  const hit = rail(page).locator(".excerpt", { hasText: "several pieces" });
  await hit.waitFor();
  await rail(page).locator("[data-session-search]").fill("walrus");
  await rail(page).getByText("Nothing found.").waitFor();
  await rail(page).locator("[data-session-search]").fill("");
  await row(page, "Greetings").waitFor();
  await edited(page, "Greetings");
  await page.locator("#editor-delete").click();
  await row(page, "Greetings").waitFor({ state: "detached" });
  await page.locator("#deleted").getByRole("button", { name: "Bring it back" }).click();
  await page.locator(".copied").waitFor();
  await reply(page, "until it is complete.").or(page.locator(".turn .reply", { hasText: "until it is complete." })).first().waitFor();
});

test("a turn says what it has used, and a message is edited and tried again in a copy", async () => {
  const page = await me.open();
  await fresh(page);
  await say(page, "hello once");
  await reply(page, "until it is complete.").waitFor();
  await say(page, "what can you do here");
  await reply(page, "Everything is on record.").waitFor();
  await page.locator(".turn .usage").nth(1).waitFor();
  assert.match(await page.locator(".turn .usage").first().innerText(), /scripted .* context .* \$/s);
  const first = await page.evaluate(() => sessionStorage.getItem("writ.session"));
  const said = page.locator(".said", { hasText: "what can you do here" });
  await said.hover();
  await said.locator(".edit").click();
  await page.waitForFunction((old) => sessionStorage.getItem("writ.session") !== old && document.body.dataset.link === "open", first);
  assert.equal(await page.locator("#message").inputValue(), "what can you do here");
  await page.locator(".copied").waitFor();
  assert.equal(await page.locator(".said", { hasText: "hello once" }).count(), 1, "what came before is there");
  assert.equal(await page.locator(".said", { hasText: "what can you do here" }).count(), 0);
  await say(page, "hello again");
  await reply(page, "until it is complete.").last().waitFor();
});

test("a named agent is chosen for a conversation", async () => {
  const page = await me.open();
  await fresh(page);
  await say(page, "hello reader");
  await reply(page, "until it is complete.").waitFor();
  await edited(page, "hello reader");
  await page.locator("#editor-agent").selectOption("reader");
  await page.locator("#announcer", { hasText: "reader answers" }).waitFor();
  await page.locator("#editor [data-close]").click();
  const listed = JSON.parse(writ.run("sessions", "list", "--json"));
  assert.equal(listed.sessions[0].agent, "reader");
});

test("a conversation begins with a named agent, and says which one answers", async () => {
  const page = await me.open();
  await page.keyboard.press("Alt+n");
  await page.locator("#opener-agents").waitFor();
  const before = await page.evaluate(() => sessionStorage.getItem("writ.session"));
  await page.locator("#opener-agent").selectOption("reader");
  await page.locator("#opener").getByRole("button", { name: "Begin" }).click();
  await page.waitForFunction((old) => sessionStorage.getItem("writ.session") !== old && document.body.dataset.link === "open", before);
  await page.locator("#session-agent", { hasText: "reader answers" }).waitFor();
  const session = await page.evaluate(() => sessionStorage.getItem("writ.session"));
  const listed = JSON.parse(writ.run("sessions", "list", "--json"));
  assert.equal(listed.sessions.find((row) => row.session === session).agent, "reader");
});

test("a model is chosen for a conversation, among those of the configuration, and what is not there any more is said", async () => {
  const page = await me.open();
  await fresh(page);
  await say(page, "hello to a model");
  await reply(page, "until it is complete.").waitFor();
  await page.locator(".turn .usage", { hasText: "scripted" }).waitFor();
  await edited(page, "hello to a model");
  await page.locator("#editor-models").waitFor();
  assert.deepEqual(await page.locator("#editor-model option").allInnerTexts(), ["That of the agent", "test/scripted", "test/large"]);
  await page.locator("#editor-model").selectOption("test/large");
  await page.locator("#announcer", { hasText: "test/large is asked first" }).waitFor();
  await page.locator("#editor [data-close]").click();
  await page.locator("#session-agent", { hasText: "large is asked" }).waitFor();
  await say(page, "hello to another model");
  await page.locator(".turn .usage", { hasText: "large" }).waitFor();
  // The agent is changed, and the model stays.
  await edited(page, "hello to a model");
  await page.locator("#editor-agent").selectOption("reader");
  await page.locator("#announcer", { hasText: "reader answers, and test/large is asked first" }).waitFor();
  await page.locator("#editor-model").selectOption("");
  await page.locator("#announcer", { hasText: /^reader answers$/ }).waitFor();
  await page.locator("#editor [data-close]").click();
  await page.locator("#session-agent", { hasText: /^reader answers$/ }).waitFor();
  // A conversation can begin with it.
  await page.keyboard.press("Alt+n");
  await page.locator("#opener-models").waitFor();
  const before = await page.evaluate(() => sessionStorage.getItem("writ.session"));
  await page.locator("#opener-model").selectOption("test/large");
  await page.locator("#opener").getByRole("button", { name: "Begin" }).click();
  await page.waitForFunction((old) => sessionStorage.getItem("writ.session") !== old && document.body.dataset.link === "open", before);
  await page.locator("#session-agent", { hasText: "large is asked" }).waitFor();
  const refused = await page.evaluate(async (session) => {
    const answer = await fetch("/api/v1/sessions/agent", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ session, model: "evil/model" }) });
    return [answer.status, (await answer.json()).error.code];
  }, await page.evaluate(() => sessionStorage.getItem("writ.session")));
  assert.deepEqual(refused, [400, "models.not_offered"]);
  me.problems.splice(0, me.problems.length, ...me.problems.filter((text) => !text.includes("sessions/agent")));
});

test("the keyboard alone begins, searches, renames and stops", async () => {
  const page = await me.open();
  await page.keyboard.press("Alt+n");
  await page.locator("#opener[open]").waitFor();
  await page.locator("#opener-folder").fill("");
  await page.keyboard.press("Enter");
  await page.locator("#opener[open]").waitFor({ state: "detached" }).catch(() => {});
  await connected(page);
  await page.locator("#message").fill("please be stopped");
  await page.keyboard.press("Enter");
  await page.locator("#stop").waitFor();
  await page.keyboard.press("Escape");
  await page.locator("#stop").waitFor({ state: "hidden" });
  await page.locator("#message").evaluate((box) => box.blur());
  await page.keyboard.press("?");
  await page.locator("#shortcuts[open]").waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("Alt+k");
  assert.equal(await page.evaluate(() => document.activeElement.matches("[data-session-search]")), true);
  await page.keyboard.press("Alt+r");
  await page.locator("#editor[open]").waitFor();
});

test("questions and their answers are measured", async () => {
  const page = await me.open();
  await fresh(page);
  for (let n = 0; n < 5; n += 1) {
    await say(page, `keep the first, ${n}`);
    await page.locator(".ask[data-state=open]").last().waitFor();
    const ask = JSON.parse(writ.run("approvals", "list", "--json")).asks[0].ask_id;
    writ.run("approvals", "approve", ask, "--yes");
    await page.locator(".ask[data-state=open]").waitFor({ state: "detached" });
  }
  await page.locator("[data-surface-link=review]").click();
  // The figures follow the last answer in a moment of their own.
  await page.locator("#cadence .facts", { hasText: /5 questions answered in 30 days · half of them within .* · 0 % denied/ }).waitFor();
});

test("what is said about bringing a conversation back stands where it was asked for", async () => {
  const page = await me.open();
  await fresh(page);
  await say(page, "hello to what is gone");
  await reply(page, "until it is complete.").waitFor();
  await edited(page, "hello to what is gone");
  await page.locator("#editor-delete").click();
  await row(page, "hello to what is gone").waitFor({ state: "detached" });
  const problems = me.problems;
  await page.route("**/api/v1/sessions/restore", (route) => route.fulfill({ status: 404, contentType: "application/json", body: JSON.stringify({ error: { code: "session.unknown", text: "It was erased.", hint: "" } }) }));
  await page.locator("#deleted").getByRole("button", { name: "Bring it back" }).click();
  await page.locator("#deleted .problem", { hasText: "It was erased." }).waitFor();
  await page.unroute("**/api/v1/sessions/restore");
  await page.locator("#deleted").getByRole("button", { name: "Bring it back" }).click();
  await page.locator(".copied").waitFor();
  assert.equal(await page.locator("#deleted").isVisible(), false);
  problems.splice(0, problems.length, ...problems.filter((text) => !text.includes("sessions/restore")));
});

test("an approval that is taken back is kept after all with one tap, and questions without an answer are counted", async () => {
  const page = await me.open();
  // What a home shows after months of use.
  const offer = { direction: "narrow", ask_id: "Ab3dEf9Z", likeness: "Writing to notes", approved: 4, denied: 2, undone: 1, median_ms: 900 };
  const cadence = { days: 30, approved: 0, denied: 0, expired: 3, median_ms: null, applied: 0, undone: 0, offers: [offer] };
  const deleted = [];
  await page.route("**/api/v1/approvals/cadence", (route) => route.fulfill({ json: cadence }));
  await page.route("**/api/v1/approvals/Ab3dEf9Z", (route) => {
    deleted.push(route.request().method());
    return route.fulfill({ json: {} });
  });
  await page.locator("[data-surface-link=review]").click();
  await page.reload();
  await connected(page);
  assert.match(await page.locator("#cadence .facts").innerText(), /3 without an answer/);
  const button = page.locator("[data-taking=Ab3dEf9Z]");
  await button.click();
  await button.filter({ hasText: "Keep it after all" }).click();
  await button.filter({ hasText: "Ask me again" }).click();
  assert.deepEqual(deleted, [], "nothing was taken back that was kept");
  await page.locator("#announcer", { hasText: "The approval is taken back" }).filter({ hasNotText: "in a moment" }).waitFor();
  assert.deepEqual(deleted, ["DELETE"]);
});

test("an item that was opened later is not replaced by the late answer about another", async () => {
  const page = await me.open();
  const item = (name) => ({ item: name, state: "running", kind: "task", title: `Title of ${name}`, reason: "", steps: 1, steps_done: 0, spending: { tokens: 0 }, ask: null });
  let release;
  const held = new Promise((resolve) => { release = resolve; });
  await page.route("**/api/v1/work", (route) => route.fulfill({ json: { items: [item("one"), item("two")] } }));
  for (const name of ["one", "two"]) {
    let first = name === "one";
    await page.route(`**/api/v1/work/${name}`, async (route) => {
      const late = first;
      first = false;
      if (late) await held;
      await route.fulfill({ json: { summary: item(name), steps: [], report: "" } });
      if (late) await page.evaluate(() => { document.body.dataset.late = "true"; });
    });
  }
  await page.keyboard.press("Alt+4");
  await page.locator("[data-item=one] .case-row").click();
  await page.locator("[data-item=two] .case-row").click();
  await page.locator("#work-details-title", { hasText: "Title of two" }).waitFor();
  const said = page.waitForResponse("**/api/v1/work/one");
  release();
  await (await said).finished();
  await page.locator("body[data-late=true]").waitFor();
  assert.equal(await page.locator("#work-details-title").innerText(), "Title of two");
  await page.unrouteAll({ behavior: "ignoreErrors" });
});

for (const device of ["desktop", "phone"]) {
  for (const colorScheme of ["light", "dark"]) {
    test(`how it looks: ${device}, ${colorScheme}`, async () => {
      const looker = await visitor(browser, writ, { viewport: device === "phone" ? PHONE : DESKTOP, colorScheme, reducedMotion: "reduce", hasTouch: device === "phone", bypassCSP: true });
      const page = await looker.open();
      const look = async (name) => {
        await page.screenshot({ path: path.join(PICTURES, `daily-${name}-${device}-${colorScheme}.png`) });
        await accessible(page, name);
      };
      await fresh(page);
      await say(page, "hello, how does this look?");
      await reply(page, "until it is complete.").waitFor();
      await page.locator(".turn .usage").waitFor();
      await look("turn");
      await page.keyboard.press("Alt+r");
      await page.locator("#editor[open]").waitFor();
      await look("editor");
      await page.keyboard.press("Escape");
      // A phone has no keyboard, and no list of its keys.
      if (device === "desktop") {
        await page.locator("#shortcuts-button").click();
        await page.locator("#shortcuts[open]").waitFor();
        await look("shortcuts");
        await page.keyboard.press("Escape");
      }
      await page.keyboard.press("Alt+k");
      await page.keyboard.type("pieces");
      await page.locator(".excerpt:visible").first().waitFor();
      await look("search");
      await page.keyboard.press("Escape");
      // One Escape closes the list of a phone, so that the links are within reach.
      await page.locator("[data-surface-link=review]").click();
      await page.locator("#cadence .facts").waitFor();
      await look("cadence");
      await looker.close();
    });
  }
}
