// What is in view, as a machine checks it for people who see, hear or move otherwise.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";

const AXE = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Checks that nothing in view breaks a rule of axe, however slight; `what` names the view in a failure. */
export async function accessible(page, what) {
  await page.evaluate(AXE);
  const { passes, violations } = await page.evaluate(() => globalThis.axe.run());
  // A page in which nothing was looked at breaks no rule, either.
  assert.ok(passes.length > 10, `${what}: ${passes.length} rules were looked at`);
  assert.deepEqual(violations.map(({ id, impact, nodes }) => [what, id, impact, nodes.map(({ html }) => html)]), []);
}
