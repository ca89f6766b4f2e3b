// Agents and cases with everything real: `writ proxy`, an engine with its router of cases, and an agent that runs locked in.

import assert from "node:assert/strict";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { after, before, test } from "node:test";
import { launch, visitor } from "./lib/browser.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { ended, PATIENCE, Writ } from "./lib/writ.mjs";

/** Gives every case to a person. Where it cannot run (root's agents cannot reach a home below /tmp), the router does. */
const AGENT = `
import json, sys
for line in sys.stdin:
    if "case" in json.loads(line):
        print(json.dumps({"escalate": "human", "reason": "501 is above my limit"}), flush=True)
`;

const MANIFEST = `name = "refund-agent"
version = "1"
program = ["python3", "agent.py"]
[capabilities]
refund = { max_amount = 500 }
escalate_to = ["human"]
`;

let browser;
let writ;
let token;

before(async () => {
  browser = await launch();
  writ = await Writ.start(SCRIPT, "", "[fleet]\ncases = true\n");
  const folder = writ.project("refund-agent", { "agent.toml": MANIFEST, "agent.py": AGENT });
  writ.run("agent", "bless", folder, "--yes");
  writ.run("agent", "deploy", folder);
  token = JSON.parse(writ.run("fleet", "token", "--json", "--quiet")).token;
  fs.mkdirSync(path.join(writ.root, "home/operations"));
  // The router is there since the start, and takes up the proxy and the agents when they come.
  await writ.background(["proxy"], /proxy ready/);
});
after(() => ended(browser, writ));

/** A request of the front end. */
function front(method, at, body) {
  const text = body === undefined ? "" : JSON.stringify(body);
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json", "content-length": Buffer.byteLength(text) };
  return new Promise((resolve, reject) => {
    const request = http.request({ socketPath: path.join(writ.root, "home/runtime/cases.sock"), method, path: at, headers }, (response) => {
      let said = "";
      response.setEncoding("utf8");
      response.on("data", (part) => { said += part; });
      response.on("end", () => resolve({ status: response.statusCode, answer: said === "" ? null : JSON.parse(said) }));
    });
    request.on("error", reject);
    request.end(text);
  });
}

/** Opens a case; the router may not have its agents or its proxy yet. */
async function opened(body) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const { status, answer } = await front("POST", "/cases", body).catch((error) => ({ status: 0, answer: error.message }));
    if (status === 201) return answer.id;
    assert.ok(Date.now() < end, `${status} ${JSON.stringify(answer)}`);
  }
}

/** Rows: SLO-059 (in part: a case in the page, live) SLO-048 (in part: a person) SLO-053 (in part: who had access, in the page) */
test("a case that an agent gives up is seen, taken, answered and ended in the page", async () => {
  const me = await visitor(browser, writ);
  const page = await me.open();
  await page.locator("[data-surface-link=agents]").click();
  await page.locator("[data-agent=refund-agent]", { hasText: "0 of" }).waitFor();
  const id = await opened({ customer: "101", case: "order 17", capability: "refund", message: "I want <i>501</i> back." });
  await page.locator(`#case-list [data-case="${id}"][data-state=queued]`).waitFor();
  await page.keyboard.press("Alt+2");
  await page.locator("#queue-list .case-row").click();
  await page.locator(".case-message[data-from=guest]", { hasText: "I want <i>501</i> back." }).waitFor();
  const act = (name) => page.locator(`#case-actions [data-act=${name}]`);
  await act("take").click();
  await page.keyboard.press("Enter");
  await page.locator("#case-facts [data-fact=State]", { hasText: "with a person" }).waitFor();
  await act("answer").click();
  await page.keyboard.type("One moment, please.");
  await page.getByRole("button", { name: "Send", exact: true }).last().click();
  await page.locator(".case-message[data-from=person]", { hasText: "One moment, please." }).waitFor();
  const { answer } = await front("GET", `/cases/${id}/messages`);
  assert.ok(answer.messages.some((one) => one.text === "One moment, please."), "the guest reads it");
  const holders = page.locator("#case-holders li");
  await holders.nth(1).waitFor();
  assert.match((await holders.allInnerTexts()).join("\n"), /^refund-agent [\s\S]* to now\n[\s\S]*a person, without a key/);
  // The terminal says the same.
  assert.match(writ.run("fleet", "status"), /held by a person/);
  assert.match(writ.run("fleet", "messages", id), / guest\n {4}I want <i>501<\/i> back\./);
  await act("close").click();
  await page.locator("#case-actions").getByRole("button", { name: "Close the case" }).click();
  await page.locator("#case-facts [data-fact=State]", { hasText: "closed" }).waitFor();
  await page.keyboard.press("Escape");
  await page.locator(`[data-case="${id}"]`).first().waitFor({ state: "detached" });
  await me.close();
});

test("a person at the terminal does the same", async () => {
  const id = await opened({ customer: "102", case: "order 18", capability: "refund", message: "501, please." });
  const end = Date.now() + PATIENCE;
  while (!writ.run("fleet", "status").includes("queued")) assert.ok(Date.now() < end, "it is queued");
  writ.run("fleet", "take", id);
  writ.run("fleet", "answer", id, "A person is here.");
  assert.match(writ.run("fleet", "messages", id), /A person is here\./);
  writ.run("fleet", "close", id, "--reason", "answered");
  assert.doesNotMatch(writ.run("fleet", "status"), new RegExp(id));
  const access = JSON.parse(writ.run("fleet", "access", id, "--json"));
  assert.equal(access.holders.length, 2);
  assert.deepEqual(access.contradictions, []);
});
