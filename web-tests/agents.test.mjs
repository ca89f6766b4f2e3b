// Agents, and the cases that wait for a person in Review. The fleet's answers stand beside the real ones: what is looked at
// here is what the page makes of them and what it asks for. `fleet.test.mjs` has a router that runs.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { launch, PHONE, visitor } from "./lib/browser.mjs";
import { agent, at, FleetAnswers, fleetCase, held, said } from "./lib/fleet.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { ended, Writ } from "./lib/writ.mjs";

const ONE = "01J0000000000000000000AAA1";
const TWO = "01J0000000000000000000BBB2";

let browser;
let writ;
let fleet;

before(async () => {
  browser = await launch();
  writ = await Writ.start(SCRIPT);
});
after(() => ended(browser, writ));
beforeEach(() => {
  fleet = new FleetAnswers();
  fleet.status.agents = [
    agent("refund-agent", { cases: 1, requests_per_minute: 12, refused: 3, tokens: 1_240 }),
    agent("manager-agent", { roles: ["manager"], version: null }),
  ];
  fleet.status.cases = [fleetCase(ONE, { requests_per_minute: 12, refused: 3, tokens: 1_240 }), fleetCase(TWO, { state: "queued", holder: null, since: null, reason: "over the limit" })];
  fleet.cases.set(TWO, { is_open: true, messages: [said(1, "guest", "I want my 501 back."), said(2, "agent refund-agent", "I ask a person.")], holders: [held("refund-agent", 10, 40, { reason: "over the limit" })] });
});

async function visit(more = {}) {
  const me = await visitor(browser, writ, { refused: /409/, ...more });
  await fleet.serve(me.context);
  return { me, page: await me.open() };
}

const go = (page, surface) => page.locator(`[data-surface-link=${surface}]`).click();
const act = (page, name) => page.locator(`#case-actions [data-act=${name}]`);
const step = (page, name) => page.locator(`#case-actions [data-step=${name}]`);

/** Rows: SLO-059 SLO-060 (in part: they are shown) */
test("agents are shown with what they do, and follow it", async () => {
  fleet.status.anomalies = [{ at: at(5), agent: "bad-agent", case: "case_tk_9", rule: "refused > 5 in 1 min then revoke", reaction: "revoke", evidence: "6 refused" }];
  const { me, page } = await visit();
  await go(page, "agents");
  const first = page.locator("[data-agent=refund-agent]");
  await first.getByText("1 of 4 cases").waitFor();
  for (const part of ["version 1", "12 requests a minute", "3 refused", "1,240 tokens"]) assert.match(await first.innerText(), new RegExp(part));
  assert.match(await page.locator("[data-agent=manager-agent]").innerText(), /Roles: manager/);
  assert.doesNotMatch(await page.locator("#agents").innerText(), /null|undefined|NaN/);
  assert.equal(await page.locator("#agents-size").innerText(), "2 agents, 2 open cases");
  assert.match(await page.locator("#anomaly-list").innerText(), /bad-agent: refused > 5 in 1 min then revoke\s+6 refused in case_tk_9; its key was revoked/);
  const rows = page.locator("#case-list .case-row");
  assert.deepEqual(await rows.evaluateAll((all) => all.map((row) => row.dataset.case)), [TWO, ONE], "what waits for a person comes first");
  assert.match(await rows.nth(1).innerText(), /with an agent[\s\S]*refund-agent since/);
  // The row that has the focus keeps it while numbers change, and a case that ends is gone.
  await rows.nth(1).focus();
  fleet.status = { ...fleet.status, agents: [agent("refund-agent", { tokens: 2_000 })], cases: [fleetCase(ONE, { tokens: 2_000 })] };
  await page.locator(`#case-list [data-case="${TWO}"]`).waitFor({ state: "detached" });
  await page.locator("[data-agent=refund-agent]", { hasText: "2,000 tokens" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.dataset.case), ONE);
  await me.close();
});

test("a home without a router shows no Agents, and says how there is one", async () => {
  const me = await visitor(browser, writ);
  const page = await me.open();
  assert.equal(await page.locator("#agents-tab").isVisible(), false);
  await page.keyboard.press("Alt+4");
  assert.equal(await page.locator("#agents").isVisible(), false);
  await page.evaluate(() => { location.hash = "#/agents"; });
  await page.getByText("[fleet] cases = true").waitFor();
  await me.close();
});

test("texts of agents and guests are shown as they are, and do nothing", async () => {
  const evil = "<img src=x onerror=\"document.title='owned'\"><b>bold</b>\u202eesrever\u0007";
  fleet.status.agents[0].name = "a<b>\u202e";
  fleet.status.cases[1].reason = `${evil}${"x".repeat(5_000)}`;
  fleet.cases.get(TWO).messages = [said(1, "guest", evil), said(2, `agent ${evil}`, "short"), said(3, "guest", `begin ${"y".repeat(60_000)} end`)];
  const { me, page } = await visit();
  await go(page, "review");
  const row = page.locator("#queue-list .case-row");
  await row.waitFor();
  assert.ok((await row.innerText()).length < 600, "a reason in a list is bounded");
  await row.click();
  const messages = page.locator("#case-messages .case-message");
  await messages.nth(2).waitFor();
  const text = await messages.nth(0).locator(".foreign").evaluate((node) => node.textContent);
  assert.equal(text, "<img src=x onerror=\"document.title='owned'\"><b>bold</b>\\u{202e}esrever\\u{7}");
  assert.equal(await page.locator("#case img, #case b").count(), 0);
  assert.ok((await messages.nth(2).innerText()).length < 2_300, "a long text is folded");
  await messages.nth(2).locator("summary").click();
  await messages.nth(2).getByText("end").waitFor();
  assert.notEqual(await page.title(), "owned");
  assert.match(await page.locator("[data-agent]").first().evaluate((node) => node.textContent), /a<b>\\u\{202e\}/);
  await me.close();
});

/** Rows: SLO-048 (in part: what waits for a person is seen) SLO-053 (in part: who had access, in the page) */
test("a case that waits is counted, opened by keyboard, and shows its conversation and who had access", async () => {
  const { me, page } = await visit();
  await page.locator("#review-count", { hasText: "1" }).waitFor();
  assert.match(await page.title(), /^\(1\) /);
  await page.keyboard.press("Alt+2");
  assert.equal(await page.locator("#review-empty").isVisible(), false, "it is not empty");
  await page.locator("#queue-list .case-row").focus();
  await page.keyboard.press("Enter");
  await page.getByText("I want my 501 back.").waitFor();
  assert.deepEqual(await page.locator(".case-message").evaluateAll((all) => all.map((one) => one.dataset.from)), ["guest", "agent"]);
  assert.match(await page.locator("#case-holders").innerText(), /refund-agent .* to .*: passed on \(over the limit\)/);
  assert.match(await page.locator("#case-holders").innerText(), /entry 10, under the key abab/);
  // What is said meanwhile comes by itself.
  fleet.cases.get(TWO).messages.push(said(3, "guest", "Hello? Is somebody there?"));
  await page.getByText("Is somebody there?").waitFor();
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("#case").isVisible(), false);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.case), TWO, "the focus is where it was");
  await me.close();
});

/** Rows: SLO-048 (in part: a person takes it up) */
test("a person approves, answers, takes over, hands back and closes", async () => {
  const { me, page } = await visit();
  await go(page, "review");
  await page.locator("#queue-list .case-row").click();
  await page.locator("#case-holders li").waitFor();
  await act(page, "approve").click();
  // The agent that asked is the first choice.
  assert.equal(await step(page, "approve").locator("select").inputValue(), "refund-agent");
  await step(page, "approve").locator("textarea").fill("501 is fine");
  await step(page, "approve").getByRole("button", { name: "Approve" }).click();
  await page.locator("#case-note", { hasText: "Approved" }).waitFor();
  await act(page, "answer").click();
  await page.keyboard.type("You will have it tomorrow.");
  await step(page, "answer").getByRole("button", { name: "Send" }).click();
  await page.locator("#case-note", { hasText: "The answer is sent." }).waitFor();
  await act(page, "take").click();
  await page.keyboard.press("Enter");
  await page.locator("#case-note", { hasText: "You hold the case." }).waitFor();
  // It is with a person now: it stays listed, and cannot be taken again.
  fleet.status = { ...fleet.status, cases: [fleetCase(TWO, { state: "held by a person", holder: "owner" })] };
  await act(page, "take").waitFor({ state: "detached" });
  await act(page, "back").click();
  await step(page, "back").locator("select").selectOption("manager");
  await step(page, "back").getByRole("button", { name: "Hand back" }).click();
  await page.locator("#case-note", { hasText: "Handed back." }).waitFor();
  await act(page, "close").click();
  await step(page, "close").locator("textarea").fill("done");
  await step(page, "close").getByRole("button", { name: "Close the case" }).click();
  await page.locator("#case-note", { hasText: "The case is closed." }).waitFor();
  assert.deepEqual(fleet.sent, [
    ["back", { case: TWO, target: "refund-agent", note: "approved: 501 is fine" }],
    ["answer", { case: TWO, text: "You will have it tomorrow." }],
    ["take", { case: TWO }],
    ["back", { case: TWO, target: "manager", note: "handed back" }],
    ["close", { case: TWO, reason: "done" }],
  ]);
  fleet.cases.get(TWO).is_open = false;
  fleet.status = { ...fleet.status, cases: [] };
  await page.locator("#case-facts [data-fact=State]", { hasText: "closed" }).waitFor();
  assert.equal(await page.locator("#case-actions button").count(), 0);
  await me.close();
});

test("what is refused is said, and what has changed meanwhile is not sent", async () => {
  const { me, page } = await visit();
  await go(page, "review");
  await page.locator("#queue-list .case-row").click();
  await act(page, "take").click();
  fleet.refusal = "the case is held, and cannot be taken over";
  await step(page, "take").getByRole("button", { name: "Take over" }).click();
  await step(page, "take").getByText("Not done: the case is held, and cannot be taken over").waitFor();
  await step(page, "take").getByRole("button", { name: "Back" }).click();
  await act(page, "answer").click();
  await page.keyboard.type("half a sen");
  fleet.status = { ...fleet.status, cases: [fleetCase(TWO)] };
  await page.getByText("Not sent: the case has changed, it is with an agent now.").waitFor();
  assert.deepEqual(await page.locator("#case-actions [data-act]").evaluateAll((all) => all.map((one) => one.dataset.act)), ["take", "close"]);
  assert.equal(fleet.sent.length, 1);
  await me.close();
});

test("on a phone a case and its answers fit", async () => {
  const { me, page } = await visit({ viewport: PHONE, hasTouch: true, isMobile: true });
  await go(page, "agents");
  await page.locator("[data-agent=refund-agent]").waitFor();
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "no horizontal scroll");
  await page.locator("#case-list .case-row").first().tap();
  await page.getByText("I want my 501 back.").waitFor();
  const dialog = await page.locator("#case").boundingBox();
  const close = await act(page, "close").boundingBox();
  assert.ok(dialog.x >= 0 && dialog.x + dialog.width <= PHONE.width, JSON.stringify(dialog));
  assert.ok(close.y + close.height <= PHONE.height, "every answer is in view");
  for (const button of await page.locator("#case-actions [data-act]").all()) assert.ok((await button.boundingBox()).height >= 44, "what decides is large enough for a finger");
  await me.close();
});
