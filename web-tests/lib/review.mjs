// What tests of approvals share: a rule that asks, an agent that waits, a passkey that is enrolled.

import { connected } from "./browser.mjs";

/** A rule by which remembering is asked for, at this risk. */
export const remembering = (risk) => `@id("ask-remember") @ask("Every memory is asked for.") @risk("${risk}")
forbid (principal, action == Action::"remember", resource);`;

/** The agent has asked, and its turn waits. */
export async function waits(page, ask = page.locator(".ask")) {
  await ask.and(page.locator("[data-state=open]")).waitFor();
  await page.locator("#stop").waitFor({ state: "hidden" });
}

/** Leave from a terminal to add a passkey. */
export const leave = (writ, name) => JSON.parse(writ.run("keys", "approver", "enrol", "--name", name, "--json"));

/** Comes through a link from a terminal to where a passkey is added. */
export async function enrolling(page, writ, name) {
  await page.goto(leave(writ, name).link);
  await connected(page);
  await page.locator("#key-code").waitFor();
  // Also on a phone, below a card: whoever follows the link sees where it leads.
  await page.waitForFunction(() => {
    const add = document.getElementById("key-add");
    const { left, top, width, height } = add.getBoundingClientRect();
    return document.elementFromPoint(left + width / 2, top + height / 2) === add;
  });
}

/** Adds a passkey through a link from a terminal. */
export async function enrolled(page, writ, name) {
  await enrolling(page, writ, name);
  await page.locator("#key-add").click();
  await page.getByText("The passkey is added.").waitFor();
}
