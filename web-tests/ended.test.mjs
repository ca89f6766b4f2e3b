// The end of what tests have started: a failure in it leaves nothing running, since that would hold the process of the tests.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import path from "node:path";
import { test } from "node:test";
import { ended } from "./lib/writ.mjs";

test("all are ended though one of them fails, and the failure is reported", async () => {
  const done = [];
  const one = { stop: async () => done.push("one") };
  const other = { close: () => done.push("other") };
  const broken = (text) => ({ close: () => Promise.reject(new Error(text)) });
  await ended(one, null, undefined, other, () => done.push("third"));
  assert.deepEqual(done.splice(0), ["one", "other", "third"]);
  await assert.rejects(ended(broken("first"), one, other), /^Error: first$/);
  assert.deepEqual(done.splice(0), ["one", "other"]);
  await assert.rejects(ended(broken("first"), one, broken("second")), /first\n.*second/);
  assert.deepEqual(done, ["one"]);
});

test("tests with a hook that fails end, and so does their engine", () => {
  const lib = path.join(import.meta.dirname, "lib/writ.mjs");
  const script = `
    import { ended, Writ } from ${JSON.stringify(lib)};
    const writ = await Writ.start([]);
    console.log(writ.root);
    await ended({ close: () => Promise.reject(new Error("broken")) }, writ);`;
  const run = spawnSync(process.execPath, ["--input-type=module", "--eval", script], { encoding: "utf8", timeout: 60_000 });
  assert.equal(run.error, undefined);
  assert.match(run.stderr, /Error: broken/);
  // Its home is removed after its engine has ended.
  assert.equal(run.status, 1);
  const [root] = run.stdout.trim().split("\n");
  assert.match(root, /writ-web-/);
  assert.equal(spawnSync("ls", [root]).status, 2);
});
