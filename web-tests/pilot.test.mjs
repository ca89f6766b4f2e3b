// The autopilot on the page Work: a goal is planned at the terminal, and everything after it is done in the page.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { accessible } from "./lib/accessible.mjs";
import { DESKTOP, launch, PHONE, visitor } from "./lib/browser.mjs";
import { ended, Writ } from "./lib/writ.mjs";

const PICTURES = process.env.WRIT_SCREENSHOTS ?? path.join(import.meta.dirname, "screenshots");
/** The longest run of all units, in milliseconds. */
const RUN = 240_000;

const DONE = "<turn_status>complete</turn_status>";

const OUTLINE = `- [ ] A library of sums <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * node --test passes
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add in add.mjs.
    - [ ] sub <!-- task/m1/s1/t2 blocked_by=task/m1/s1/t1 -->
      Write sub in sub.mjs.
`;

const GATES = ["task", "slice", "merge"].map((at) => `[[gate]]
name = "tests-${at}"
run = ["node", "--test", "--test-reporter=tap"]
at = "${at}"
runs_tests = true
report = "tap"
`).join("\n");

/** As the built-in workflow \`feature\`, and a person accepts the result. */
const FLOW = `phases = ["research", "plan", "execute", "tdd", "verify", "review", "uat", "merge", "complete"]
require_tdd = true
require_review = true
require_uat = true
max_retries = 3
max_reassess = 2
`;

const writes = (file, content) => ({ calls: [{ tool: "file_write", arguments: { path: file, content } }] });
const testOf = (name, result) => `import test from "node:test";\nimport assert from "node:assert";\nimport { ${name} } from "./${name}.mjs";\ntest("${name}", () => assert.equal(${name}(2, 3), ${result}));\n`;

/** What the team says about one task; the first work on \`add\` waits until the test has looked. */
function task(unit, name, body, result, more = {}) {
  const plan = `---\nunit_id: ${unit}\ncreated_at: 2026-01-01T00:00:00Z\nwritten_by: "m"\nplan_version: 1\n---\n\n# Goal\nIt works.\n\n# Approach\nWrite ${name}.\n\n# Deliverables\n- [ ] the function\n\n# Verification\n\n# Notes\n\n${DONE}`;
  return [
    { when: `# Plan for task ${unit}`, replies: [{ text: plan }] },
    { when: `# Work on task ${unit}`, replies: [{ ...writes(`${name}.mjs`, `export const ${name} = (a, b) => ${body};\n`), ...more }, { text: `Written.\n${DONE}` }] },
    { when: `# Tests for task ${unit}`, replies: [writes(`${name}.test.mjs`, testOf(name, result)), { text: `Tested.\n${DONE}` }] },
  ];
}

const SCRIPT = [
  { when: "sums that ask a person", replies: [{ text: OUTLINE.replace("Write add in", "Ask before you write") }] },
  { when: "Ask before you write", replies: [{ text: "It is not clear.\n<turn_status>blocked</turn_status>" }] },
  { when: "# Plan a goal", replies: [{ text: OUTLINE }] },
  { when: "# Research for", replies: [{ text: `Nothing is there yet.\n${DONE}` }] },
  ...task("task/m1/s1/t1", "add", "a + b", 5, { hold: "add" }),
  ...task("task/m1/s1/t2", "sub", "a - b", -1),
  { when: "# Review of", replies: [{ text: "{\"verdict\":\"pass\",\"findings\":[]}" }] },
  { when: "# Decision about", replies: [{ text: "{\"decision\":\"abandon\",\"reason\":\"it cannot be done\"}" }] },
];

let browser;
let writ;

before(async () => {
  fs.mkdirSync(PICTURES, { recursive: true });
  browser = await launch();
  writ = await Writ.start(SCRIPT);
});
after(() => ended(browser, writ));

function git(folder, ...args) {
  const done = spawnSync("git", args, { cwd: folder, encoding: "utf8" });
  assert.equal(done.status, 0, `git ${args.join(" ")}: ${done.stderr}`);
  return done.stdout;
}

/** A repository with the checks of the autopilot. */
function repository(name) {
  const folder = writ.project(name, {
    "package.json": "{\"name\": \"sums\", \"type\": \"module\"}\n",
    "base.test.mjs": "import test from \"node:test\";\ntest(\"base\", () => {});\n",
  });
  fs.mkdirSync(path.join(folder, ".writ/workflows"), { recursive: true });
  fs.writeFileSync(path.join(folder, ".writ/pilot.toml"), GATES);
  fs.writeFileSync(path.join(folder, ".writ/workflows/feature.toml"), FLOW);
  git(folder, "init", "-q", "-b", "main");
  git(folder, "config", "user.name", "t");
  git(folder, "config", "user.email", "t@example.org");
  git(folder, "add", ".");
  git(folder, "commit", "-q", "-m", "first");
  return folder;
}

/** A picture, and no fault in what is in view. */
async function look(page, name) {
  await page.screenshot({ path: path.join(PICTURES, `${name}.png`) });
  await accessible(page, name);
}

/** The same on the screen of a phone: one column, and nothing to the side. */
async function both(page, name) {
  await look(page, `pilot-${name}-desktop`);
  await page.setViewportSize(PHONE);
  const { wide, seen } = await page.evaluate(() => ({ wide: document.getElementById("work-scroll").scrollWidth, seen: document.getElementById("work-scroll").clientWidth }));
  assert.ok(wide <= seen, `${name}: ${wide} px in ${seen}`);
  await look(page, `pilot-${name}-phone`);
  await page.setViewportSize(DESKTOP);
}

const unit = (page, id) => page.locator(`.pilot-unit[data-unit="${id}"]`);

/** Approves the card in view, as its risk asks. */
async function approve(page) {
  const card = page.locator("#card-place .card");
  await card.locator("button[data-decision=approve]").click();
  const confirm = card.getByRole("button", { name: "Confirm: approve" });
  await confirm.or(page.locator("#decided-list > li")).first().waitFor();
  if (await confirm.isVisible()) await confirm.click();
  await page.locator("#decided-list > li").first().waitFor();
}

/** Plans at the terminal, and chooses the project in the page. */
async function planned(page, folder, goal = "a library of sums") {
  writ.ends(5, "pilot", "plan", goal, "--project", folder);
  await page.locator("[data-surface-link=work]").click();
  await page.locator("#pilot-folder").fill(folder);
  await page.keyboard.press("Enter");
  await unit(page, "task/m1/s1/t2").waitFor();
}

/** Approves the plan that waits, and lets the autopilot run. */
async function runs(page) {
  await page.locator("#pilot-plans").getByRole("link", { name: "Read the plan" }).click();
  await approve(page);
  await page.locator("[data-surface-link=work]").click();
  await page.locator("#pilot-plans .pilot-plan").waitFor({ state: "detached" });
  await page.locator("#pilot-go", { hasText: "Run" }).click();
  await page.locator("#pilot-state[data-state=running]").waitFor();
}

test("a plan is approved, run and accepted in the page, and its commits are merged", async () => {
  const folder = repository("sums");
  const me = await visitor(browser, writ, { reducedMotion: "reduce", bypassCSP: true });
  const page = await me.open();
  await planned(page, folder);
  assert.equal(await page.locator(".pilot-unit").count(), 4);
  await page.locator("#pilot-size", { hasText: "0 of 4 units over" }).waitFor();
  await both(page, "planned");
  await runs(page);

  // The coder of the first task waits: it is looked at while it works, and the loop is paused and goes on.
  await unit(page, "task/m1/s1/t1").locator(".pilot-stand", { hasText: "Runs: work" }).waitFor({ timeout: RUN });
  await unit(page, "task/m1/s1/t1").getByRole("button").press("Enter");
  await page.locator("#pilot-details-title", { hasText: "add" }).and(page.locator(":focus")).waitFor();
  await page.locator("#pilot-runs li", { hasText: "work: runs" }).waitFor();
  await page.locator("#pilot-moves li", { hasText: "planning → work" }).waitFor();
  assert.match(await page.locator("#pilot-description").innerText(), /Write add in add\.mjs/);
  await page.locator("#pilot-plan-part > summary").press("Enter");
  await page.locator("#pilot-plan-text", { hasText: "Write add." }).waitFor();
  // What it does is seen while it does it; nothing of it is committed.
  await page.locator("#pilot-log li", { hasText: "begin: execute" }).waitFor();
  await page.locator("#pilot-log li", { hasText: "turn:" }).first().waitFor();
  assert.ok(await page.locator("#pilot-log li").count() <= 12);
  await both(page, "running");
  // Asked once more, and left alone.
  await page.locator("#pilot-cancel [data-order=cancel]").click();
  await page.locator("#pilot-cancel").getByRole("button", { name: "Let it go on" }).click();
  await page.locator("#pilot-cancel [data-order=cancel]").and(page.locator(":focus")).waitFor();
  await page.locator("#pilot-go", { hasText: "Pause" }).press("Enter");
  await page.locator("#pilot-state", { hasText: "Pauses once what runs has ended" }).waitFor();
  await page.locator("#pilot-go:focus").waitFor();
  writ.release("add");
  await page.locator("#pilot-state[data-state=paused]").waitFor();
  await unit(page, "task/m1/s1/t1").and(page.locator("[data-over=false]")).waitFor();
  await page.locator("#pilot-go", { hasText: "Run" }).click();
  await page.locator("#pilot-gates li[data-passed=true]", { hasText: "tests-task" }).waitFor({ timeout: RUN });
  await page.locator("#pilot-gates summary").first().click();
  assert.match(await page.locator("#pilot-gates pre").first().innerText(), /\S/);
  await page.locator("#pilot-diff-part > summary", { hasText: "Changes against main" }).press("Enter");
  await page.locator("#pilot-diff", { hasText: "+export const add = (a, b) => a + b;" }).waitFor();
  await page.locator("#pilot-close").click();
  await unit(page, "task/m1/s1/t1").getByRole("button").and(page.locator(":focus")).waitFor();

  // Both tasks are done: the slice waits for a person, and is merged after.
  const held = page.locator(".pilot-blocker[data-event=UATPending]");
  await held.waitFor({ timeout: RUN });
  for (const id of ["task/m1/s1/t1", "task/m1/s1/t2"]) await unit(page, id).locator(".pilot-stand", { hasText: "Done" }).waitFor();
  await held.locator("[data-order=reject]").click();
  await held.locator("textarea").fill("a reason that is not sent");
  await both(page, "acceptance");
  const items = await page.locator("#work-list").innerText();
  assert.match(items, /pilot · \d+ tokens/, "it has units, and no steps");
  await held.getByRole("button", { name: "Back" }).click();
  assert.equal(spawnSync("git", ["cat-file", "-e", "main:add.mjs"], { cwd: folder }).status, 128);
  await held.locator("[data-order=accept]").click();
  await held.waitFor({ state: "detached" });
  await page.locator("#pilot-state[data-state=complete]").waitFor({ timeout: RUN });
  await page.locator("#pilot-size", { hasText: "4 of 4 units over" }).waitFor();
  await both(page, "complete");
  for (const name of ["add", "sub"]) git(folder, "cat-file", "-e", `main:${name}.mjs`);
  await me.close();
});

test("a result that is rejected is not merged, and its reason is on record", async () => {
  const folder = repository("rejected");
  const me = await visitor(browser, writ, { viewport: PHONE, hasTouch: true, colorScheme: "dark", reducedMotion: "reduce", bypassCSP: true });
  const page = await me.open();
  writ.release("add");
  await planned(page, folder);
  await runs(page);
  const held = page.locator(".pilot-blocker[data-event=UATPending]");
  await held.waitFor({ timeout: RUN });
  await held.locator("[data-order=reject]").tap();
  // Nothing is sent without a reason.
  await held.getByRole("button", { name: "Reject it" }).tap();
  await held.locator("textarea:invalid").waitFor();
  await look(page, "pilot-rejected-phone-dark");
  await held.locator("textarea").fill("sums of <b>three</b> are missing");
  await held.getByRole("button", { name: "Reject it" }).tap();
  await held.waitFor({ state: "detached" });
  // The team gives it up: it ends, and so does what it belongs to.
  await unit(page, "slice/m1/s1").and(page.locator("[data-over=true]")).waitFor({ timeout: RUN });
  await unit(page, "slice/m1/s1").getByRole("button").tap();
  await page.locator("#pilot-moves li", { hasText: "acceptance → decision" }).and(page.locator("li", { hasText: "sums of <b>three</b> are missing" })).waitFor();
  assert.equal(git(folder, "log", "--oneline", "main").trim().split("\n").length, 1);
  await me.close();
});

test("what waits for a person goes on with Resume", async () => {
  const folder = repository("resumed");
  const me = await visitor(browser, writ);
  const page = await me.open();
  await planned(page, folder, "sums that ask a person");
  await runs(page);
  const held = page.locator(".pilot-blocker[data-event=Paused]");
  await held.waitFor({ timeout: RUN });
  await unit(page, "task/m1/s1/t1").locator(".pilot-stand", { hasText: "Held up: research" }).waitFor();
  await unit(page, "task/m1/s1/t1").locator(".pilot-kind", { hasText: "1 run" }).waitFor();
  await held.locator("[data-order=resume]").click();
  // The coder asks again, in another run.
  await unit(page, "task/m1/s1/t1").locator(".pilot-kind", { hasText: "2 runs" }).waitFor({ timeout: RUN });
  await held.waitFor();
  await me.close();
});

test("a unit that is cancelled in the page ends, and is not worked on", async () => {
  const folder = repository("cancelled");
  const me = await visitor(browser, writ);
  const page = await me.open();
  await planned(page, folder);
  await unit(page, "task/m1/s1/t2").getByRole("button").click();
  await page.locator("#pilot-cancel [data-order=cancel]").click();
  await page.locator("#pilot-cancel").getByRole("button", { name: "End it" }).click();
  await unit(page, "task/m1/s1/t2").locator(".pilot-stand", { hasText: "Cancelled" }).waitFor();
  await page.locator("#pilot-cancel").waitFor({ state: "hidden" });
  assert.match(writ.run("pilot", "show", "task/m1/s1/t2", "--project", folder), /cancel/);
  await me.close();
});

test("what is no project is refused in words, and asked about once", async () => {
  const me = await visitor(browser, writ, { refused: /api\/v1\/pilot/ });
  const page = await me.open();
  await page.clock.install();
  const asked = [];
  page.on("request", (request) => request.url().includes("/api/v1/pilot") && asked.push(request.url()));
  await page.locator("[data-surface-link=work]").click();
  await page.locator("#pilot-folder").fill("/nowhere/at all");
  await page.keyboard.press("Enter");
  await page.locator("#pilot-note", { hasText: /\S/ }).waitFor();
  await page.locator("#pilot-board").waitFor({ state: "hidden" });
  await page.clock.runFor(10_000);
  assert.equal(asked.length, 1);
  // Nor is a repository in which nothing was planned: to look at it makes nothing in it.
  const folder = repository("seen");
  await page.locator("#pilot-folder").fill(folder);
  await page.keyboard.press("Enter");
  await page.locator("#pilot-note", { hasText: /nothing is planned/i }).waitFor();
  await page.clock.runFor(10_000);
  assert.equal(asked.length, 2);
  assert.ok(!fs.existsSync(path.join(folder, ".writ/active")));
  // What was planned in is looked at again and again, while the page is in view.
  await planned(page, folder);
  const again = page.waitForRequest(/api\/v1\/pilot\?/);
  await page.clock.runFor(2_000);
  await again;
  await me.close();
});
