// A real browser, and pages that are linked to a home.

import assert from "node:assert/strict";
import { chromium } from "playwright-core";
import { PATIENCE } from "./writ.mjs";

const EXECUTABLE = process.env.WRIT_CHROMIUM ?? "/usr/bin/chromium";

export const DESKTOP = { width: 1440, height: 900 };
export const PHONE = { width: 375, height: 740 };

export const launch = () => chromium.launch({ executablePath: EXECUTABLE, args: ["--no-sandbox"] });

/** What a page's console may say: a lost server is no news. */
const EXPECTED = /ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_SOCKET_NOT_CONNECTED|ERR_INTERNET_DISCONNECTED|WebSocket connection to/;

/** A browser of somebody who has opened the link: its pages share cookies and files. `refused`: what it may be refused. */
export async function visitor(browser, writ, { refused = /^$/, ...options } = {}) {
  const context = await browser.newContext({ viewport: DESKTOP, locale: "en-GB", ...options });
  context.setDefaultTimeout(PATIENCE);
  const problems = [];
  context.on("page", (page) => {
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("console", (message) => {
      const text = `${message.text()} ${message.location().url}`;
      if (["error", "warning"].includes(message.type()) && !EXPECTED.test(text) && !refused.test(text)) problems.push(text);
    });
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.protocol.startsWith("http") && url.origin !== writ.url) problems.push(`asked for ${url}`);
    });
  });
  return {
    context,
    problems,
    /** Opens the page; the first one through a link. */
    async open(path = "/") {
      const page = await context.newPage();
      const known = (await context.cookies()).length > 0;
      await page.goto(known ? writ.url + path : writ.link());
      await connected(page);
      return page;
    },
    /** Nothing broke, and nothing was asked of another server. */
    async close() {
      await context.close();
      assert.deepEqual(problems, []);
    },
  };
}

/** An authenticator of this page's device that knows its person. */
export async function authenticator(page, more = {}) {
  const devtools = await page.context().newCDPSession(page);
  await devtools.send("WebAuthn.enable");
  const options = { protocol: "ctap2", transport: "internal", hasUserVerification: true, isUserVerified: true, automaticPresenceSimulation: true, ...more };
  const { authenticatorId } = await devtools.send("WebAuthn.addVirtualAuthenticator", { options });
  return { verified: (isUserVerified) => devtools.send("WebAuthn.setUserVerified", { authenticatorId, isUserVerified }) };
}

export const connected = (page) => page.locator("body[data-link=open]").waitFor();

/** Says something and waits until it is in the conversation. */
export async function say(page, text) {
  await page.locator("#message").fill(text);
  await page.keyboard.press("Enter");
  await page.locator(".said[data-state=kept]", { hasText: text }).first().waitFor();
}

/** The reply of the turn that said this. */
export const reply = (page, text) => page.locator(".turn[data-running=false] .reply", { hasText: text });

/** Opens a new session in a project and brings it into view. */
export async function inProject(page, folder) {
  const session = await page.evaluate(async (project) => {
    const made = await fetch("/api/v1/sessions", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ project }) });
    const { session } = await made.json();
    sessionStorage.setItem("writ.session", session);
    return session;
  }, folder);
  await page.reload();
  await connected(page);
  return session;
}

/** Begins a new conversation, as a person would; in a folder, or in an empty one. */
export async function fresh(page, folder = "") {
  const before = await page.evaluate(() => sessionStorage.getItem("writ.session"));
  const beside = page.locator("[data-new-session]").first();
  if (await beside.isVisible()) await beside.click();
  else {
    await page.locator("#session-button").click();
    await page.locator("#switcher [data-new-session]").click();
  }
  await page.locator("#opener-folder").fill(folder);
  await page.locator("#opener").getByRole("button", { name: "Begin" }).click();
  await page.waitForFunction((old) => sessionStorage.getItem("writ.session") !== old && document.body.dataset.link === "open", before);
}

/** The frames that a page sends from now on. */
export function sent(page) {
  const frames = [];
  page.on("websocket", (socket) => socket.on("framesent", ({ payload }) => frames.push(JSON.parse(payload))));
  return frames;
}

/** The frames that a page gets from now on. */
export function got(page) {
  const frames = [];
  page.on("websocket", (socket) => socket.on("framereceived", ({ payload }) => frames.push(JSON.parse(payload))));
  return frames;
}
