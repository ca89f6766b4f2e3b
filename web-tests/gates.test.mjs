// Gates that ask: the turn waits on the page, and goes on or ends as its person says.

import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { connected, fresh, launch, reply, say, visitor } from "./lib/browser.mjs";
import { ended, Writ } from "./lib/writ.mjs";

const GATE = `[[gates]]
name = "falcon"
on = "input"
provider = "predicate"
contains = ["falcon"]
action = "ask"
reason = "It names the falcon."
`;

/** A server of tools that asks a person before it answers. */
const SERVER = `
import json, sys
def say(message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
FORM = {"type": "object", "required": ["account"], "properties": {
    "account": {"type": "string", "title": "Account"}, "kind": {"type": "string", "enum": ["new", "old"]},
    "copies": {"type": "integer"}, "sure": {"type": "boolean", "title": "Sure"}}}
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        say({"id": asked["id"], "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}})
    elif asked.get("method") == "tools/list":
        say({"id": asked["id"], "result": {"tools": [{"name": "open", "description": "Opens.", "inputSchema": {"type": "object"}}]}})
    elif asked.get("method") == "tools/call":
        say({"id": "e1", "method": "elicitation/create", "params": {"message": "Which <b>account</b>?", "requestedSchema": FORM}})
        told = json.loads(sys.stdin.readline())["result"]
        open("/work/told", "w").write(json.dumps(told, sort_keys=True))
        say({"id": asked["id"], "result": {"content": [{"type": "text", "text": "opened"}]}})
`;
const tools = fs.mkdtempSync(path.join(os.tmpdir(), "writ-tools-"));
fs.writeFileSync(path.join(tools, "server.py"), SERVER);

const SCRIPT = [
  { when: "falcon", replies: [{ text: "It is a bird." }] },
  { when: "open it", replies: [{ calls: [{ tool: "crm__open", arguments: {} }] }, { text: "It is open." }] },
];

let browser;
let writ;
let me;

before(async () => {
  browser = await launch();
  writ = await Writ.start(SCRIPT, "", `${GATE}[sandbox]\nread_only = ["${tools}"]\n`);
  me = await visitor(browser, writ);
});
after(() => ended(me, browser, writ, () => fs.rmSync(tools, { recursive: true })));

/** Rows: SIL-232 (on the page) */
test("a gate asks with the complete text, also after a reload, and the turn goes on with the answer", async () => {
  const page = await me.open();
  await fresh(page);
  await say(page, "what is a <b>falcon</b>");
  const gate = page.locator(".gate[data-state=open]");
  await gate.waitFor();
  await page.reload();
  await connected(page);
  await gate.waitFor();
  assert.equal(await gate.count(), 1);
  assert.match(await gate.innerText(), /A gate asks about your message[\s\S]*It names the falcon\.[\s\S]*what is a <b>falcon<\/b>/);
  assert.equal(await gate.locator(".shown b").count(), 0);
  await gate.getByRole("button", { name: /Let it pass/ }).click();
  await reply(page, "It is a bird.").waitFor();
  assert.equal(await page.locator(".gate").getAttribute("data-state"), "approved");
  await page.reload();
  await connected(page);
  await page.locator(".gate[data-state=approved]").waitFor();
  assert.equal(await page.locator(".gate button").count(), 0, "what is answered is not asked");
});

test("what is denied is not read, and the second tab sees that", async () => {
  const [page, other] = [await me.open(), await me.open()];
  await fresh(page);
  const session = await page.evaluate(() => sessionStorage.getItem("writ.session"));
  await other.evaluate((id) => sessionStorage.setItem("writ.session", id), session);
  await other.reload();
  await connected(other);
  await say(page, "another falcon");
  for (const tab of [page, other]) await tab.locator(".gate[data-state=open]").waitFor();
  await other.locator(".gate").getByRole("button", { name: /Stop it/ }).click();
  for (const tab of [page, other]) {
    await tab.locator(".gate[data-state=denied]").waitFor();
    await tab.locator(".turn[data-running=false]").waitFor();
    assert.equal(await reply(tab, "It is a bird.").count(), 0);
  }
});

test("a server of tools asks with a form, and is told what fits it", async () => {
  writ.run("mcp", "add", "crm", "--yes", "--", "python3", path.join(tools, "server.py"));
  fs.appendFileSync(path.join(writ.root, "home/mcp/crm.toml"), "\n[tools.open]\neffect = false\nsinks = []\n");
  await writ.halt();
  await writ.serve();
  const page = await me.open();
  await fresh(page);
  await say(page, "open it");
  const ask = page.locator(".gate[data-state=open]");
  await ask.waitFor();
  assert.match(await ask.innerText(), /The server crm asks you[\s\S]*the server's words[\s\S]*Which <b>account<\/b>\?/);
  const send = ask.getByRole("button", { name: /Send it/ });
  await send.click();
  assert.equal(await ask.count(), 1, "what must be filled in is missing");
  await ask.getByLabel("Account").fill("main");
  await ask.getByLabel("kind").selectOption("old");
  await ask.getByLabel("copies").fill("3");
  await ask.getByLabel("Sure").check();
  await send.click();
  await reply(page, "It is open.").waitFor();
  assert.equal(await page.locator(".gate").getAttribute("data-state"), "approved");
  assert.equal(await page.locator(".gate input").count(), 0);
  const servers = path.join(writ.root, "home/data/servers");
  const files = fs.readdirSync(servers).map((session) => path.join(servers, session, "crm/tree/told"));
  const told = JSON.parse(fs.readFileSync(files.find((file) => fs.existsSync(file)), "utf8"));
  assert.deepEqual(told, { action: "accept", content: { account: "main", copies: 3, kind: "old", sure: true } });
});
