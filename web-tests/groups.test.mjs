// What waits in groups, one yes to those that nothing marks, and what an ask rests on.

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { inProject, launch, say, visitor } from "./lib/browser.mjs";
import { remembering, waits } from "./lib/review.mjs";
import { Writ } from "./lib/writ.mjs";

const HOSTILE = "<img src=x onerror=document.title='owned'>.txt";
const call = (tool, args) => ({ calls: [{ tool, arguments: args }] });
const LONG = `${Array.from({ length: 200 }, (_, n) => `Line ${n + 1}.`).join("\n")}\n`;

const SCRIPT = [
  { when: "keep the short", replies: [call("memory_store", { text: "The short one" }), { text: "It waits." }] },
  { when: "keep the long", replies: [call("memory_store", { text: LONG }), { text: "It waits." }] },
  { when: "keep the late", replies: [call("memory_store", { text: "The late one" }), { text: "It waits." }] },
  { when: "look elsewhere", replies: [call("web_fetch", { url: "https://strange.example/<b>owned</b>" }), { text: "It waits." }] },
  { when: "run it", replies: [call("shell_exec", { argv: ["true"] }), { text: "It waits." }] },
  { when: "read and keep", replies: [call("file_read", { path: HOSTILE }), call("memory_store", { text: "As read" }), { text: "It waits." }] },
];
const RULES = `${remembering("medium")}
@id("ask-exec") @ask("Every program is asked for.") @risk("high")
forbid (principal, action == Action::"exec", resource);`;

let browser;
let writ;
let me;
let projects = 0;

before(async () => {
  browser = await launch();
});
after(() => browser?.close());
afterEach(async () => {
  try {
    await me?.close();
  } finally {
    await writ?.stop();
    [me, writ] = [null, null];
  }
});

async function begin(refused) {
  writ = await Writ.start(SCRIPT, RULES);
  me = await visitor(browser, writ, { refused });
  return me.open();
}

const kept = () => JSON.stringify(JSON.parse(writ.run("memory", "search", "one", "--json")));

/** Has the agent ask in a new conversation about a folder of its own. */
async function asked(page, message, files = {}) {
  projects += 1;
  const folder = writ.project(`project-${projects}`, { "a.txt": "a\n", ...files });
  await inProject(page, folder);
  await say(page, `Please ${message}`);
  await waits(page);
}

const review = (page) => page.locator("[data-surface-link=review]").click();
const offer = (page, count) => page.locator(`#group-list [data-together="${count}"]`);
const yes = (page) => page.locator("#together").getByRole("button", { name: /^Approve exactly these/ });

/** Reads each card to its end, as a person would. */
async function read(page) {
  for (const end of await page.locator("#together [data-end]").all()) await end.scrollIntoViewIfNeeded();
}

/** Rows: SIL-330 (alike questions are read and approved together) */
test("what is alike and marked by nothing is read in full and approved with one yes, and what comes meanwhile is not", async () => {
  const page = await begin();
  await asked(page, "keep the short");
  await asked(page, "keep the long");
  await review(page);
  await offer(page, 2).click();
  const cards = page.locator("#together article");
  await cards.nth(1).waitFor();
  assert.match(await cards.nth(1).innerText(), /Line 1\.[\s\S]*Line 200\./);
  assert.equal(await yes(page).isDisabled(), true, "not before each was read to its end");

  // Another one that is alike comes while this is open.
  const other = await me.open();
  await asked(other, "keep the late");
  await page.locator("#stack li, #group-list .member").nth(2).waitFor({ state: "attached" });
  assert.equal(await cards.count(), 2);

  await read(page);
  await page.locator("#together").getByText("2 of 2 were in view to their end.").waitFor();
  await yes(page).click();
  await page.locator("#together").getByText("2 of 2 questions approved and done.").waitFor();
  assert.match(kept(), /The short one/);
  assert.doesNotMatch(kept(), /The late one/, "what came later still waits");
  assert.equal(writ.run("audit", "search", "together with others").trim().split("\n").length, 2, "each was answered by itself");
  await page.locator("#together [data-close]").click();
  await page.locator(".card").waitFor();
  assert.equal(await page.locator("#groups").isHidden(), true, "one that is left is no group");
});

/** Rows: SIL-330 (what is unusual is marked) */
test("what is unusual or does much harm is marked, with the reason, and no yes covers it", async () => {
  const page = await begin();
  for (const message of ["look elsewhere", "run it", "keep the short"]) await asked(page, message);
  await review(page);
  const members = page.locator("#group-list .member");
  await members.nth(2).waitFor();
  const said = (await page.locator("#group-list").innerText());
  assert.match(said, /Unusual: host = strange\.example was never approved before/);
  assert.match(said, /Answered separately: a wrong yes does much harm/);
  assert.equal(await page.locator("#group-list b, #group-list [data-together]").count(), 0, "no markup of others, and nothing to approve together");
});

test("what was answered elsewhere or changed is told and not approved, the others are", async () => {
  const page = await begin(/\/api\/v1\/approvals\//);
  for (const message of ["keep the short", "keep the long", "keep the late"]) await asked(page, message);
  await review(page);
  await offer(page, 3).click();
  const cards = page.locator("#together article");
  await cards.nth(2).waitFor();
  const ids = await cards.evaluateAll((all) => all.map((one) => one.dataset.ask));
  await read(page);
  writ.run("approvals", "deny", ids[0], "--reason", "elsewhere");
  // A server that shows another text than the one that was read.
  await page.route(`**/api/v1/approvals/${ids[1]}`, async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), shown_hash: "0".repeat(64) } });
  });
  await yes(page).click();
  await page.locator("#together").getByText("1 of 3 questions approved and done.").waitFor();
  const outcome = (id) => page.locator(`.outcome[data-ask="${id}"]`);
  assert.match(await outcome(ids[0]).innerText(), /Refused: /);
  assert.match(await outcome(ids[1]).innerText(), /not what was shown any more/);
  assert.equal(await outcome(ids[2]).getAttribute("data-ok"), "true");
  assert.equal(writ.run("audit", "search", "together with others").trim().split("\n").length, 1);
  assert.match(writ.run("approvals", "list"), new RegExp(ids[1]), "it still waits");
});

test("a card and an entry say what they rest on, and names from outside stay text", async () => {
  const page = await begin();
  await asked(page, "read and keep", { [HOSTILE]: "words of a stranger\n" });
  await review(page);
  const why = page.locator(".card .origins");
  await why.locator("summary").click();
  await why.locator(".steps > li").nth(1).waitFor();
  const said = await why.innerText();
  assert.match(said, /What is asked\s+Depends on unverified content/);
  assert.ok(said.includes(HOSTILE), said);
  assert.match(said, /A message[\s\S]*Message received, entry \d+\s+Depends on the owner's own words alone/);
  assert.equal(await why.locator("img").count(), 0);
  assert.equal(await page.title(), "(1) Writ");

  await page.locator("[data-surface-link=activity]").click();
  const entry = page.locator(".entry[data-event=asked]");
  await entry.locator("summary").first().click();
  await entry.locator(".origins summary").click();
  await entry.locator(".origins .steps > li").nth(1).waitFor();
  assert.ok((await entry.locator(".origins").innerText()).includes(HOSTILE));
  assert.equal(await entry.locator("img").count(), 0);
});
