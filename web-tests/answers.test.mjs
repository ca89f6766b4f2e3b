// A person's session: messages beside open cards, answers and their outcomes, and text that stays on the screen. It plays what
// people have reported of other programs of this kind.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { connected, DESKTOP, fresh, got, inProject, launch, PHONE, reply, say, sent, visitor } from "./lib/browser.mjs";
import { remembering, waits } from "./lib/review.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { Writ } from "./lib/writ.mjs";

const PICTURES = process.env.WRIT_SCREENSHOTS ?? path.join(import.meta.dirname, "screenshots");
const LONG = "The first sentence is said. The second one takes much longer, and its end never comes. Nor does this.";

const GATE = `[[gates]]
name = "falcon"
on = "input"
provider = "predicate"
contains = ["falcon"]
action = "ask"
reason = "It names the falcon."
`;

/** What the model says after answers comes first: those messages hold no other words of the script. */
const STORY = [
  { when: "but it was not done or it failed", replies: [{ text: "I see: the file was changed, so nothing was applied." }] },
  { when: "has approved what you asked", replies: [{ text: "It is kept, and I go on." }] },
  { when: "has denied what you asked", replies: [{ text: "Then I leave it." }] },
  { when: "yes", replies: [{ text: "I have heard a yes as a message, and approved nothing." }] },
  { when: "go slowly", replies: [{ text: "That was slow.", hold: "slow" }] },
  { when: "one more thing", replies: [{ text: "The other thing is done, too." }] },
  { when: "look first", replies: [{ text: "The first half is said.", calls: [{ tool: "memory_store", arguments: { text: "the tea" } }] }, { text: "And the second half, too." }] },
  { when: "begin a long one", replies: [{ text: LONG, silent_after: 6 }] },
  { when: "break off", replies: [{ text: LONG, error_after: 6 }] },
  { when: "without credit", replies: [{ status: 402 }] },
  ...SCRIPT,
];

let browser;
let writ;
let me;

before(async () => {
  fs.mkdirSync(PICTURES, { recursive: true });
  browser = await launch();
});
after(() => browser?.close());
beforeEach(async () => {
  writ = await Writ.start(STORY, remembering("medium"), `continue_after_answer = true\n${GATE}`);
});
afterEach(async () => {
  try {
    await me?.close();
  } finally {
    await writ.stop();
  }
});

const visit = (device) => visitor(browser, writ, { viewport: device === "phone" ? PHONE : DESKTOP, hasTouch: device === "phone" });
const picture = (page, name) => page.screenshot({ path: path.join(PICTURES, `answers-${name}.png`) });
const answers = (frames) => frames.filter((frame) => ["approval_response", "gate_response"].includes(frame.type));
/** What stands in the conversation, without what turns have used: that comes a moment later. */
const shown = () => {
  document.querySelectorAll("#items .usage").forEach((usage) => usage.remove());
  return document.getElementById("items").innerText;
};
const items = (page) => page.evaluate(shown);
const untilShown = async (page, text) => {
  while (await items(page) !== text) await page.waitForFunction(() => new Promise(requestAnimationFrame));
};

/** Opens the card in Review: beside the conversation where there is room. */
async function card(page, device) {
  if (device === "phone") await page.locator("#open-cards button").first().click();
  await page.locator(".card").waitFor();
  return page.locator(".card");
}

async function approve(page, device) {
  const shown = await card(page, device);
  await shown.locator("[data-decision=approve]").click();
  await shown.getByRole("button", { name: "Confirm" }).click();
}

const back = (page) => page.locator("[data-surface-link=stream]").click();

for (const device of ["desktop", "phone"]) {
  test(`${device}: what is written beside an open card is a message, and an answer says its outcome where it was given`, async () => {
    me = await visit(device);
    const page = await me.open();
    const frames = sent(page);
    const folder = writ.project("shop", { "fee.txt": "free from: 50.00 exclusive\n" });
    await inProject(page, folder);
    await say(page, "Please fix the fee");
    await waits(page);
    assert.match(await page.locator("#open-cards").innerText(), /1 question of this conversation waits/);
    assert.equal(await page.evaluate(() => document.activeElement.id), "message", "a card takes nobody's focus");
    await say(page, "yes");
    await reply(page, "approved nothing").waitFor();
    await page.locator(".ask[data-state=open]").waitFor();
    assert.deepEqual(answers(frames), [], "a message answers no card");
    await picture(page, `${device}-1-message-beside-card`);

    fs.writeFileSync(path.join(folder, "fee.txt"), "free from: 60.00\n");
    await approve(page, device);
    const outcome = page.locator("#just-decided[data-state=failed]");
    await outcome.waitFor();
    assert.match(await outcome.innerText(), /Approved, failed: changed since the approval: fee\.txt/);
    await picture(page, `${device}-2-failed`);
    await back(page);
    assert.match(await page.locator(".ask[data-state=failed]").innerText(), /Approved, failed: changed since/);
    await reply(page, "nothing was applied").waitFor();
    assert.equal(fs.readFileSync(path.join(folder, "fee.txt"), "utf8"), "free from: 60.00\n");

    await fresh(page);
    await say(page, "Please keep the first");
    await waits(page);
    await approve(page, device);
    await page.locator("#just-decided[data-state=applied]").waitFor();
    await back(page);
    await reply(page, "It is kept, and I go on.").waitFor();
    assert.match(await page.locator(".ask[data-state=applied]").innerText(), /Approved, applied/);
    await page.locator(".went-on").waitFor();
    assert.doesNotMatch(await items(page), /a person has/, "nobody has written that");

    await say(page, "Please keep the second");
    await waits(page);
    const shown = await card(page, device);
    await shown.locator("[data-decision=deny]").click();
    await shown.locator("form [type=submit]").click();
    await page.locator("#just-decided[data-state=denied]").waitFor();
    await back(page);
    await reply(page, "Then I leave it.").waitFor();
    assert.equal(await page.locator("#open-cards").isVisible(), false);
    await picture(page, `${device}-3-gone-on`);
    // Loaded again, each card still says what came of it.
    await page.locator(".went-on").nth(1).waitFor();
    const before = await items(page);
    await page.reload();
    await connected(page);
    await reply(page, "Then I leave it.").waitFor();
    await page.locator(".went-on").nth(1).waitFor();
    await untilShown(page, before);
  });

  test(`${device}: what is written while a gate asks waits, and the gate is answered by its own buttons`, async () => {
    me = await visit(device);
    const page = await me.open();
    const frames = sent(page);
    await page.reload();
    await connected(page);
    await fresh(page);
    await say(page, "What is a falcon?");
    await page.locator(".gate[data-state=open]").waitFor();
    assert.match(await page.locator("#open-cards").innerText(), /It names the falcon/);
    await page.locator("#message").fill("yes, and one more thing");
    await page.keyboard.press("Enter");
    await page.locator(".said[data-state=waiting]", { hasText: "one more thing" }).waitFor();
    assert.deepEqual(answers(frames), []);
    await picture(page, `${device}-9-gate`);
    await page.locator("#open-cards button").click();
    await page.locator(".gate [data-decision=approve]").click();
    // The turn that waited has taken it in.
    await reply(page, "approved nothing").waitFor();
    assert.equal(answers(frames).length, 1);
    await page.locator(".said[data-state=waiting]").waitFor({ state: "detached" });
    await page.locator("#open-cards").waitFor({ state: "hidden" });
  });

  test(`${device}: a message that waits says so, also after a reload, and a draft stays with its conversation`, async () => {
    me = await visit(device);
    const page = await me.open();
    await fresh(page);
    await say(page, "Please go slowly");
    await page.locator("#stop").waitFor();
    await page.locator("#message").fill("and one more thing");
    await page.keyboard.press("Enter");
    const waiting = page.locator(".said[data-state=waiting]");
    await waiting.waitFor();
    assert.match(await waiting.innerText(), /and one more thing[\s\S]*Waiting/);
    await page.locator("#message").fill("half a thought");
    await page.reload();
    await connected(page);
    await waiting.waitFor();
    assert.equal(await page.locator("#message").inputValue(), "half a thought");
    await picture(page, `${device}-4-waiting`);
    writ.release("slow");
    await reply(page, "The other thing is done, too.").waitFor();
    await page.locator(".said[data-state=waiting]").waitFor({ state: "detached" });
    assert.equal(await page.locator(".said").count(), 2, "each message stands once");
    assert.equal(await page.locator("#message").inputValue(), "half a thought", "the draft is untouched");
    const first = await page.evaluate(() => sessionStorage.getItem("writ.session"));
    await fresh(page);
    assert.equal(await page.locator("#message").inputValue(), "", "it belongs to the other conversation");
    if (device === "phone") await page.locator("#session-button").click();
    await page.locator(`${device === "phone" ? "#switcher" : ".rail-sessions"} .session-row`, { hasText: "Please go slowly" }).click();
    await page.waitForFunction((old) => sessionStorage.getItem("writ.session") === old && document.body.dataset.link === "open", first);
    await page.waitForFunction(() => document.getElementById("message").value === "half a thought");
  });

  test(`${device}: text that was shown stays, at a stop, where a provider breaks off, and after a reload`, async () => {
    me = await visit(device);
    const page = await me.open();
    const sockets = [];
    await page.routeWebSocket(/\/ws$/, (socket) => {
      socket.connectToServer();
      sockets.push(socket);
    });
    await page.reload();
    await connected(page);
    await fresh(page);
    await say(page, "Please look first");
    const early = page.locator(".reply.earlier", { hasText: "The first half is said." });
    await waits(page);
    await early.waitFor();
    await say(page, "Please begin a long one");
    await page.locator(".turn[data-running=true] .reply", { hasText: "The first sentence is said." }).waitFor();
    const joined = sockets.length;
    // It may connect again before anything outside the page has looked.
    const lost = await page.evaluateHandle(() => {
      const seen = new Promise((resolve) => {
        new MutationObserver(() => document.body.dataset.link !== "open" && resolve(true)).observe(document.body, { attributes: true });
      });
      return { seen };
    });
    await sockets.at(-1).close();
    assert.equal(await lost.evaluate(({ seen }) => seen), true);
    assert.equal(await page.getByText("The first sentence is said.").count(), 1, "while the connection is lost");
    await connected(page);
    assert.ok(sockets.length > joined);
    await page.locator("#stop").click();
    await page.locator("#stop").waitFor({ state: "hidden" });
    assert.equal(await page.getByText("The first sentence is said.").count(), 1);
    await say(page, "Please break off");
    await page.locator("#stop").waitFor({ state: "hidden" });
    await page.locator(".turn").nth(2).locator(".marks .exit").waitFor();
    assert.equal(await page.getByText("The first sentence is said.").count(), 2, "beside the error");
    await say(page, "Please go without credit");
    await page.locator(".turn").nth(3).locator(".marks .exit").waitFor();
    const error = await page.locator(".turn").nth(3).locator(".reply").last().innerText();
    assert.notEqual(error.trim(), "");
    await picture(page, `${device}-5-text-stays`);
    const before = await items(page);
    await page.reload();
    await connected(page);
    await page.locator(".turn").nth(3).locator(".marks .exit").waitFor();
    await early.waitFor();
    assert.equal(await page.getByText("The first sentence is said.").count(), 2);
    assert.equal(await page.locator(".turn").nth(3).locator(".reply").last().innerText(), error, "the error's words, too");
    await untilShown(page, before);
    await picture(page, `${device}-6-after-reload`);
  });

  test(`${device}: a conversation that is opened again shows its open cards first, and they can be answered`, async () => {
    me = await visit(device);
    const page = await me.open();
    await fresh(page);
    await say(page, "hello there");
    await say(page, "Please keep the first");
    await waits(page);
    const session = await page.evaluate(() => sessionStorage.getItem("writ.session"));
    await writ.halt();
    await page.locator("body[data-link=lost]").waitFor();
    await page.locator("#message").fill("one more thing");
    await page.keyboard.press("Enter");
    await page.locator(".said[data-state=pending]").waitFor();
    await writ.serve();
    await connected(page);
    await reply(page, "The other thing is done, too.").waitFor();
    const again = await me.context.newPage();
    const frames = got(again);
    await again.addInitScript((id) => sessionStorage.setItem("writ.session", id), session);
    await again.goto(writ.url);
    await connected(again);
    await again.locator("#open-cards").waitFor();
    const first = frames.filter((frame) => frame.type !== "answer").slice(0, 2);
    assert.deepEqual(first.map((frame) => frame.type), ["hello", "approval_request"]);
    assert.deepEqual(first[0].open, [first[1].ask_id], "before everything that is history");
    await picture(again, `${device}-7-opened-again`);
    await again.locator(".ask[data-state=open]").waitFor();
    assert.equal(await again.locator(".ask").count(), 1, "the card stands once");
    await approve(again, device);
    await again.locator("#just-decided[data-state=applied]").waitFor();
    await again.locator("#open-cards").waitFor({ state: "hidden" });
    await picture(again, `${device}-8-answered`);
    // The other page says so as well, where the card stands.
    await page.locator(".ask[data-state=applied]").waitFor();
  });
}
