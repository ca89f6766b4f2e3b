// How it looks, to people and to screen readers: every surface, phone and desktop, light and dark.

import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { accessible } from "./lib/accessible.mjs";
import { authenticator, DESKTOP, inProject, launch, PHONE, reply, say, visitor } from "./lib/browser.mjs";
import { agent, at, FleetAnswers, fleetCase, held, said } from "./lib/fleet.mjs";
import { enrolled, enrolling, remembering, waits } from "./lib/review.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { ended, Writ } from "./lib/writ.mjs";

const PICTURES = process.env.WRIT_SCREENSHOTS ?? path.join(import.meta.dirname, "screenshots");

let browser;
let writ;
let folder;

before(async () => {
  fs.mkdirSync(PICTURES, { recursive: true });
  browser = await launch();
  // Two asks that are alike wait beside the one that is looked at.
  writ = await Writ.start(SCRIPT, remembering("medium"));
  folder = writ.project("webshop", { "fee.txt": "free from: 50.00 exclusive\n" });
});
after(() => ended(browser, writ));


async function look(page, name) {
  await page.evaluate(() => Promise.allSettled(document.getAnimations().filter((one) => one.effect.getComputedTiming().iterations !== Infinity).map((one) => one.finished)));
  await page.screenshot({ path: path.join(PICTURES, `${name}.png`) });
  await accessible(page, name);
}

const go = (page, surface) => page.locator(`[data-surface-link=${surface}]`).click();

/** Two agents, one case at work and one that waits for a person. */
function fleetAtWork() {
  const fleet = new FleetAnswers();
  const [one, two] = ["01J0000000000000000000AAA1", "01J0000000000000000000BBB2"];
  fleet.status.agents = [agent("refund-agent", { cases: 1, requests_per_minute: 12, refused: 3, tokens: 1_240 }), agent("manager-agent", { roles: ["manager"] })];
  fleet.status.cases = [fleetCase(one, { requests_per_minute: 12, refused: 3, tokens: 1_240 }), fleetCase(two, { state: "queued", holder: null, since: null, reason: "501 is above my limit" })];
  fleet.status.anomalies = [{ at: at(5), agent: "refund-agent", case: "case_tk_9", rule: "refused > 5 in 1 min then revoke", reaction: "revoke", evidence: "6 refused" }];
  fleet.cases.set(two, {
    is_open: true,
    messages: [said(1, "guest", "I want my 501 back."), said(2, "agent refund-agent", "That is above my limit: I ask a person."), said(3, "person owner", "I look at it.")],
    holders: [held("refund-agent", 10, 40, { reason: "501 is above my limit" })],
  });
  return fleet;
}

let session = null;

/** Somebody with this device; axe is put into the page by hand, and the page's own policy would not let it in. */
const looker = (home, device, colorScheme, more = {}) => visitor(browser, home, {
  viewport: device === "phone" ? PHONE : DESKTOP, colorScheme, reducedMotion: "reduce", hasTouch: device === "phone", bypassCSP: true, ...more,
});

for (const device of ["desktop", "phone"]) {
  for (const colorScheme of ["light", "dark"]) {
    const name = (what) => `${what}-${device}-${colorScheme}`;

    test(`${device}, ${colorScheme}`, async () => {
      const me = await looker(writ, device, colorScheme);
      const page = await me.open();
      if (session === null) {
        await look(page, name("welcome"));
        for (const text of ["keep the first", "keep the second"]) {
          await inProject(page, writ.project(text, { "a.txt": "a\n" }));
          await say(page, `Please ${text}`);
          await page.locator(".ask[data-state=open]").waitFor();
          await page.locator("#stop").waitFor({ state: "hidden" });
        }
        session = await inProject(page, folder);
        await say(page, "what can you do here?");
        await reply(page, "Everything is on record.").waitFor();
        await say(page, "Please fix the fee");
        await reply(page, "It waits for your word.").waitFor();
      } else {
        await page.evaluate((id) => sessionStorage.setItem("writ.session", id), session);
        await page.reload();
        await reply(page, "It waits for your word.").waitFor();
      }
      await waits(page);
      await look(page, name("stream"));
      await page.locator(".work > summary").last().click();
      await look(page, name("steps"));
      await page.locator("#changes-button").click();
      await page.locator("#reader .line.add").first().waitFor();
      await look(page, name("changes"));
      await page.keyboard.press("Escape");
      await go(page, "review");
      await page.locator(".card").waitFor();
      await look(page, name("review"));
      await page.locator(".card .origins summary").click();
      await page.locator(".card .origins .steps > li").first().waitFor();
      await look(page, name("origins"));
      await page.locator("#group-list [data-together]").scrollIntoViewIfNeeded();
      await look(page, name("groups"));
      await page.locator("#group-list [data-together]").click();
      await page.locator("#together article").nth(1).waitFor();
      await look(page, name("together"));
      await page.keyboard.press("Escape");
      await page.locator("[data-decision=approve]").click();
      await look(page, name("confirm"));
      await page.getByRole("button", { name: "Back" }).click();
      await page.locator("[data-decision=deny]").click();
      await look(page, name("deny"));
      await page.getByRole("button", { name: "Back" }).click();
      await go(page, "activity");
      await page.locator(".entry:visible").nth(1).locator("summary").click();
      await look(page, name("activity"));
      if (device === "phone") {
        await page.locator("#session-button").click();
        await page.locator("#switcher .session-row").first().waitFor();
        await look(page, name("conversations"));
      }
      await me.close();
    });

    test(`${device}, ${colorScheme}: a fleet`, async () => {
      const me = await looker(writ, device, colorScheme);
      const fleet = fleetAtWork();
      await fleet.serve(me.context);
      const page = await me.open();
      await go(page, "agents");
      await page.locator("#case-list .case-row").nth(1).waitFor();
      await look(page, name("agents"));
      await go(page, "review");
      await page.locator("#queue-list .case-row").scrollIntoViewIfNeeded();
      await look(page, name("queue"));
      await page.locator("#queue-list .case-row").click();
      await page.locator("#case-holders li").waitFor();
      await look(page, name("case"));
      await page.locator("#case-actions [data-act=approve]").click();
      await look(page, name("case-approval"));
      await me.close();
    });

    test(`${device}, ${colorScheme}: passkeys, and no server`, async () => {
      const strict = await Writ.start(SCRIPT, remembering("high"));
      try {
        const me = await looker(strict, device, colorScheme, { refused: /pubKeyCredParams is missing/ });
        const page = await me.open();
        await authenticator(page);
        await say(page, "Please keep the first");
        await waits(page);
        await go(page, "review");
        await page.locator(".card [data-decision=approve]").click();
        await page.getByText("Needs an approver key.").waitFor();
        await look(page, name("no-passkey"));
        await enrolling(page, strict, "first");
        await look(page, name("enrolment"));
        await enrolled(page, strict, "second");
        await look(page, name("enrolled"));
        await page.locator(".card [data-decision=approve]").click();
        await page.locator(".card input[type=range]").waitFor();
        await look(page, name("sign"));
        await go(page, "stream");
        await strict.halt();
        await page.locator("#banner").waitFor();
        await page.locator("#message").fill("hello after the pause");
        await page.keyboard.press("Enter");
        await page.getByText("Not sent yet").waitFor();
        await look(page, name("offline"));
        await me.close();
      } finally {
        await strict.stop();
      }
    });
  }
}

test("not linked", async () => {
  const context = await browser.newContext({ viewport: PHONE, bypassCSP: true });
  const page = await context.newPage();
  await page.goto(writ.url);
  await page.getByText("This page is not linked yet").waitFor();
  await look(page, "not-linked-phone-light");
  await context.close();
});
