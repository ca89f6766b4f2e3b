// Passkeys: enrolled with leave from a terminal, in a browser with an authenticator of its own, and what they sign.

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { authenticator, connected, launch, say, sent, visitor } from "./lib/browser.mjs";
import { enrolled, leave, remembering, waits } from "./lib/review.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { Writ } from "./lib/writ.mjs";

let browser;
let writ;
let me;

before(async () => {
  browser = await launch();
});
after(() => browser?.close());

async function begin(risk, config = "") {
  writ = await Writ.start(SCRIPT, remembering(risk), config);
  // The browser misses RS256 among the algorithms, which is not used here.
  me = await visitor(browser, writ, { refused: /\/api\/v1\/(approvals|passkeys)\/|pubKeyCredParams is missing/ });
  const page = await me.open();
  return { page, frames: sent(page), device: await authenticator(page) };
}

afterEach(async () => {
  try {
    await me?.close();
  } finally {
    await writ?.stop();
    [me, writ] = [null, null];
  }
});

const approvers = () => JSON.parse(writ.run("keys", "approver", "list", "--json")).approvers;
const responses = (frames) => frames.filter((frame) => frame.type === "approval_response");

/** Has the agent ask; answers with the ask's id. */
async function asked(page, text) {
  await page.locator("[data-surface-link=stream]").click();
  const before = await page.locator(".ask").count();
  await say(page, `Please ${text}`);
  await waits(page, page.locator(".ask").nth(before));
  await page.locator("[data-surface-link=review]").click();
  await page.locator(".card").waitFor();
  return page.locator(".card").getAttribute("data-ask");
}

async function drag(page, share) {
  const track = await page.locator(".card input[type=range]").boundingBox();
  await page.mouse.move(track.x + 20, track.y + track.height / 2);
  await page.mouse.down();
  await page.mouse.move(track.x + track.width * share, track.y + track.height / 2, { steps: 8 });
  await page.mouse.up();
}

async function approve(page) {
  await page.locator(".card [data-decision=approve]").click();
  await page.locator(".card input[type=range]").waitFor();
  await drag(page, 1.02);
}

/** Answers an ask without the page's own code. */
const post = (page, ask, body) => page.evaluate(async ([path, sending]) => {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(sending) });
  return [answer.status, (await answer.json()).error?.code];
}, [`/api/v1/approvals/${ask}`, body]);

/** Rows: SIL-325 */
test("a high risk is refused without a passkey and done with one", async () => {
  const { page, frames } = await begin("high");
  const ask = await asked(page, "keep the first");
  await page.locator(".card [data-decision=approve]").click();
  await page.getByText("Needs an approver key.").waitFor();
  assert.equal(await page.locator(".card .command").innerText(), `writ approvals approve ${ask}`);
  assert.deepEqual(await post(page, ask, { decision: "approve" }), [403, "approval.invalid"]);
  assert.deepEqual(responses(frames), []);
  await enrolled(page, writ, "laptop");
  assert.equal(new URL(page.url()).hash, "#/review", "the code stays in no history");
  assert.match(await page.locator("#key-list").innerText(), /laptop/);
  assert.deepEqual(approvers().map(({ kind, name, site }) => [kind, name, site]), [["cli", "command line", null], ["passkey", "laptop", "localhost"]]);
  await page.locator(".card [data-decision=approve]").click();
  await page.locator(".card input[type=range]").waitFor();
  await drag(page, 0.6);
  assert.equal(await page.locator(".card input[type=range]").inputValue(), "0", "half of the slide goes back");
  assert.deepEqual(responses(frames), []);
  await drag(page, 1.02);
  await page.locator("#decided-list [data-state=applied]").waitFor();
  assert.equal(responses(frames).length, 1);
  assert.match(writ.run("audit", "search", "laptop"), /answered/);
  assert.match(writ.run("memory", "search", "first"), /the first/);
});

test("what was signed once is refused for anything else, and a removed passkey signs nothing", async () => {
  const { page, frames } = await begin("high");
  await enrolled(page, writ, "laptop");
  await asked(page, "keep the first");
  await approve(page);
  await page.locator("#decided-list [data-state=applied]").waitFor();
  const [{ ask_id: first, signature }] = responses(frames);
  assert.deepEqual(await post(page, first, { decision: "approve", signature }), [409, "ask.closed"]);
  const second = await asked(page, "keep the second");
  assert.deepEqual(await post(page, second, { decision: "approve", signature }), [403, "approval.challenge"]);
  writ.run("keys", "approver", "remove", approvers().find((key) => key.kind === "passkey").id);
  await approve(page);
  await page.getByRole("alert").getByText("no passkey is enrolled").waitFor();
  assert.equal(responses(frames).length, 1, "nothing was signed");
  const third = await asked(page, "keep the third");
  assert.ok(third);
  await page.reload();
  await connected(page);
  await page.locator(".card [data-decision=approve]").click();
  await page.getByText("Needs an approver key.").waitFor();
});

/** Rows: SIL-326 */
test("what cannot be undone takes a passkey that knows its person, also after a restart", async () => {
  const { page, frames, device } = await begin("irreversible");
  const ask = await asked(page, "keep the first");
  await page.locator(".card [data-decision=approve]").click();
  await page.getByText("Only a passkey that verifies you").waitFor();
  assert.equal(await page.locator(".card .command").innerText(), "writ keys approver enrol");
  assert.throws(() => writ.run("approvals", "approve", ask, "--yes"), /approve/);
  await enrolled(page, writ, "laptop");
  await writ.halt();
  await writ.serve();
  await page.reload();
  await connected(page);
  await page.locator(".card").waitFor();
  await device.verified(false);
  await approve(page);
  await page.getByRole("alert").getByText("Not signed").waitFor();
  assert.deepEqual(responses(frames), []);
  await device.verified(true);
  await approve(page);
  await page.locator("#decided-list [data-state=applied]").waitFor();
  assert.match(writ.run("audit", "search", "laptop"), /answered/);
});

/** Rows: WIN-240 */
test("a host is trusted with a passkey, is listed, and is taken back", async () => {
  // Nothing answers there, which is soon known.
  const { page } = await begin("medium", '[[egress.pin]]\nhost = "strange.example"\naddress = "127.0.0.1"\n');
  const hosts = () => JSON.parse(writ.run("approvals", "hosts", "--json")).hosts.map((host) => host.domain);
  const ask = await asked(page, "look it up");
  const trust = page.locator(".card [data-decision=approve_host]");
  await trust.click();
  await page.getByText("Needs an approver key.").waitFor();
  assert.equal(await page.locator(".card .command").innerText(), `writ approvals approve ${ask} --host`);
  assert.deepEqual(await post(page, ask, { decision: "approve", scope: "host" }), [403, "approval.invalid"]);
  assert.deepEqual(hosts(), []);
  await enrolled(page, writ, "laptop");
  await trust.click();
  await page.locator(".card input[type=range]").waitFor();
  await drag(page, 1.02);
  const row = page.locator("#in-force-list li");
  await row.getByText("Until you take it back").waitFor();
  assert.match(await row.innerText(), /strange\.example:443 is as open as a host of your list in every conversation/);
  assert.deepEqual(hosts(), ["strange.example:443"]);
  await row.getByRole("button", { name: "Take back" }).click();
  await page.locator("#in-force").waitFor({ state: "hidden" });
  assert.deepEqual(hosts(), []);
});

test("a code is good once, and a page that is open already takes it by hand", async () => {
  const { page } = await begin("high");
  const { code } = leave(writ, "phone");
  await page.locator("[data-surface-link=review]").click();
  await page.locator("#keys summary").click();
  await page.locator("#key-code").fill(code);
  await page.locator("#key-add").click();
  await page.getByText("The passkey is added.").waitFor();
  const again = await page.evaluate(async (sending) => {
    const answer = await fetch("/api/v1/passkeys/begin", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code: sending }) });
    return [answer.status, (await answer.json()).error.code];
  }, code).catch((error) => [error.message]);
  assert.deepEqual(again, [403, "passkey.not_enrolled"]);
  assert.equal(approvers().length, 2);
});
