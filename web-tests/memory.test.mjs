// Memories that wait, are found, changed and put aside; and the settings with their explanations.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { accessible } from "./lib/accessible.mjs";
import { connected, DESKTOP, launch, PHONE, visitor } from "./lib/browser.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { ended, Writ } from "./lib/writ.mjs";

const PICTURES = process.env.WRIT_SCREENSHOTS ?? path.join(import.meta.dirname, "screenshots");

let browser;
let writ;

before(async () => {
  fs.mkdirSync(PICTURES, { recursive: true });
  browser = await launch();
  writ = await Writ.start(SCRIPT, "", "[budget]\nmax_tokens_per_day = 4242424\n");
});
after(() => ended(browser, writ));

async function look(page, name) {
  await page.screenshot({ path: path.join(PICTURES, `${name}.png`) });
  await accessible(page, name);
}

const devices = [["desktop", "light"], ["desktop", "dark"], ["phone", "light"], ["phone", "dark"]];
const visit = (device, colorScheme) => visitor(browser, writ, { viewport: device === "phone" ? PHONE : DESKTOP, colorScheme, reducedMotion: "reduce", hasTouch: device === "phone", bypassCSP: true });

for (const [device, colorScheme] of devices) {
  test(`memories are listed, found, changed and put aside: ${device}, ${colorScheme}`, async () => {
    const me = await visit(device, colorScheme);
    const page = await me.open();
    const bird = `The heron of ${device} ${colorScheme} stands by the river`;
    writ.run("memory", "add", bird);
    writ.run("memory", "add", `Tea of ${device} ${colorScheme} is taken at five`);
    await page.locator("[data-surface-link=memory]").click();
    const row = (text) => page.locator(".memory-row", { hasText: text });
    await row(bird).waitFor();
    await look(page, `memory-${device}-${colorScheme}`);
    await page.locator("#memory-text").fill(`heron ${device} ${colorScheme} river`);
    await page.locator("#memory-size", { hasText: /memor/ }).waitFor();
    await row(bird).waitFor();
    await row(bird).locator("[data-edit]").click();
    await page.locator(".memory-edit textarea").fill(`${bird}, <b>mostly</b> in autumn`);
    await page.locator(".memory-edit").getByRole("button", { name: "Save" }).click();
    await row(`${bird}, <b>mostly</b> in autumn`).waitFor();
    assert.match(writ.run("memory", "search", `heron ${device} ${colorScheme} river`), /mostly/);
    await row(`${bird}, <b>mostly</b> in autumn`).locator("[data-forget]").click();
    await page.locator("#memory-note", { hasText: "is put aside" }).waitFor();
    await row(`${bird}, <b>mostly</b> in autumn`).waitFor({ state: "detached" });
    writ.run("memory", "undo");
    await page.locator("#memory-text").fill("");
    await row(`${bird}, <b>mostly</b> in autumn`).waitFor();
    await me.close();
  });

  test(`settings say what they do, and which of them are the owner's: ${device}, ${colorScheme}`, async () => {
    const me = await visit(device, colorScheme);
    const page = await me.open();
    await page.locator("[data-surface-link=settings]").click();
    const setting = (name) => page.locator(`[data-setting="${name}"]`);
    await setting("budget.max_tokens_per_day").waitFor();
    assert.match(await setting("budget.max_tokens_per_day").innerText(), /4242424\s+set in .*config\.toml[\s\S]*Tokens of one day, over all sessions\./);
    assert.match(await setting("budget.max_tool_calls_per_turn").innerText(), /20\s+default\s+Tool calls of one turn\./);
    await page.locator("#settings-text").fill("tokens one day");
    await setting("budget.max_tool_calls_per_turn").waitFor({ state: "detached" });
    await setting("budget.max_tokens_per_day").waitFor();
    await look(page, `settings-${device}-${colorScheme}`);
    await me.close();
  });
}

/** What waits stands beside the real answers: a home has such memories after weeks of use. The answers go to the real route. */
test("what is to be remembered waits in Review, is counted, and is answered with a yes or a no", async () => {
  const me = await visit("desktop", "light");
  const page = await me.open();
  const ids = ["01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAW"];
  const pending = {
    pending: [{ id: ids[0], text: "You like short answers", kind: "fact", trust: "working", taint: "auth", secret: false, at: "2026-01-01T00:00:00Z", score: 0 }],
    questions: [{ kind: "contradiction", id: ids[1], text: "The shop is in Ulm", other: { id: ids[0], text: "The shop is in Trier" }, reason: "both were said" }],
  };
  const answers = [];
  await page.route("**/api/v1/memory/pending", (route) => route.fulfill({ json: pending }));
  await page.route("**/api/v1/memory/confirm", (route) => {
    answers.push(route.request().postDataJSON());
    pending.pending = pending.pending.filter((one) => one.id !== answers.at(-1).id);
    pending.questions = pending.questions.filter((one) => one.id !== answers.at(-1).id);
    return route.fulfill({ json: { batch: "confirm-1", changes: 1 } });
  });
  await page.reload();
  await connected(page);
  await page.locator("#review-count", { hasText: "2" }).waitFor();
  await page.locator("[data-surface-link=review]").click();
  const card = (text) => page.locator(".memory-card", { hasText: text });
  await card("The shop is in Ulm").getByText("The shop is in Trier").waitFor();
  await look(page, "memory-pending");
  await card("The shop is in Ulm").locator("[data-answer=yes]").click();
  await card("The shop is in Ulm").waitFor({ state: "detached" });
  await card("You like short answers").locator("[data-answer=no]").click();
  await page.locator("#memories-part").waitFor({ state: "hidden" });
  assert.deepEqual(answers, [{ id: ids[1], confirm: true }, { id: ids[0], confirm: false }]);
  await page.unrouteAll({ behavior: "ignoreErrors" });
  // The real route says what is wrong with an id that is not there.
  const status = await page.evaluate(async (id) => (await fetch("/api/v1/memory/confirm", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ id, confirm: true }) })).status, ids[0]);
  assert.equal(status, 400);
  me.problems.splice(0, me.problems.length, ...me.problems.filter((text) => !text.includes("memory/confirm")));
  await me.close();
});
