//! What becomes of the units of a plan that a person changes: edits of its file, removed parts, and cancelled ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use writ_pilot::pilots::OwnerFiles;
use writ_testkit::model_server::{ReplyFault, ReplyGate};
use writ_types::api::pilot::{FindingVerdict, PilotFindings, PilotLog, PilotStatus, PilotUnitLine};
use writ_types::api::work::WorkState;
use writ_types::unit::Tokens;

use crate::autopilot::{Scene, git};
use crate::autopilot_limits::{SHORT, TASK, coder, done, project, scene, writes};
use crate::harness::TestEngine;

/// A gate that passes on every tree.
const THERE: &str = "\n[[gate]]\nname = \"there\"\nrun = [\"test\", \"-f\", \"package.json\"]\n";
/// The one slice of the plan.
const SLICE: &str = "slice/m1/s1";
/// The plan of one task.
const ONE_TASK: &str = "\
- [ ] A library of sums <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * add adds
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add in add.mjs.
";

/// The plan of two slices: the first has two tasks, one after the other.
const TWO_SLICES: &str = "\
- [ ] A library of sums <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * add adds
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add in add.mjs.
    - [ ] sub <!-- task/m1/s1/t2 blocked_by=task/m1/s1/t1 -->
      Write sub in sub.mjs.
  - [ ] Products <!-- slice/m1/s2 blocked_by=slice/m1/s1 -->
    Acceptance:
    * mul multiplies
    - [ ] mul <!-- task/m1/s2/t1 blocked_by=slice/m1/s1 -->
      Write mul in mul.mjs.
";

fn unit_of(status: &PilotStatus, id: &str) -> PilotUnitLine {
    status.units.iter().find(|unit| unit.id == id).unwrap_or_else(|| panic!("{id}: {status:#?}")).clone()
}

/// Changes the plan's file, and has its edits carried out.
pub(crate) async fn edit(scene: &Scene, change: impl FnOnce(&str) -> String) {
    let file = scene.project.join(".writ/plan.md");
    let text = std::fs::read_to_string(&file).expect("reads");
    std::fs::write(&file, change(&text)).expect("written");
    // Without their types: the compiler bounds how deep futures are nested.
    let done = Box::pin(scene.reload(true)).await;
    assert!(done.applied && done.conflicts.is_empty(), "{done:#?}");
    for ask in &done.asks {
        Box::pin(scene.approve(ask)).await;
    }
}

/// The removal of the only milestone ends its plan, which is no card to be approved any more, and its number is not given again.
#[test]
fn needs_userns_needs_git_a_removed_milestone_leaves_its_number_and_no_open_card() {
    let dir = project("", THERE, SHORT);
    let script = coder(ONE_TASK, |_, _| done());
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        assert!(scene.reload(false).await.written);
        edit(&scene, |_| "# Plan\n".to_owned()).await;
        let status = scene.status().await;
        assert!(status.units.is_empty() && status.plans.is_empty(), "{status:#?}");
        let item = scene.engine.call("work.show", json!({ "item": planned.item })).await.expect("shown");
        assert_eq!(item["summary"]["state"], "cancelled", "{item:#}");
        let again = scene.plan("a library of sums").await;
        assert_eq!(again.milestone, "milestone/m2");
        // One that was never approved can be cancelled, with everything in it.
        scene.order("milestone/m2", "cancel", "").await;
        let status = scene.status().await;
        assert!(status.units.iter().all(|unit| unit.is_over && unit.status == "canceled"), "{status:#?}");
        assert_eq!(status.plans.first().map(|plan| plan.state), Some(WorkState::Cancelled), "{status:#?}");
    });
    scene.end();
}

/// A slice whose last task was removed is worked on itself; with a new task it waits for that one again.
#[test]
fn needs_userns_needs_git_a_slice_without_tasks_is_worked_on_itself() {
    let dir = project("", THERE, SHORT);
    let script = coder(ONE_TASK, |_, asked| match (asked.unit.as_str(), asked.has_results) {
        (_, true) => done(),
        (SLICE, false) => writes("sums", "a + b"),
        _ => writes("other", "a + b"),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        assert!(scene.reload(false).await.written);
        let phase = async || unit_of(&scene.status().await, SLICE).phase;
        assert_eq!(phase().await, "verify");
        edit(&scene, |text| text[..text.find("    - [ ] add").expect("the task")].to_owned()).await;
        assert_eq!(phase().await, "execute");
        edit(&scene, |text| format!("{text}    - [ ] sub\n")).await;
        assert_eq!(phase().await, "verify");
        edit(&scene, |text| text[..text.find("    - [ ] sub").expect("the task")].to_owned()).await;
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        assert_eq!(unit_of(&status, SLICE).status, "succeeded");
    });
    git(dir.path(), &["cat-file", "-e", "main:sums.mjs"]);
    scene.end();
}

/// A reload is cut off between its commit and its file, and its file is read again: nothing is made twice, and the ids are noted. A
/// milestone of another goal, which the file never showed, is not removed by that.
#[test]
fn needs_userns_needs_git_a_reload_that_was_cut_off_makes_nothing_twice() {
    let dir = project("", THERE, SHORT);
    let script = coder(ONE_TASK, |_, _| done());
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let files = [".writ/plan.md", ".writ/active/plan.base.md"].map(|name| dir.path().join(name));
    scene.engine.runtime.block_on(async {
        scene.plan("a library of sums").await;
        assert!(scene.reload(false).await.written);
        scene.plan("the same once more").await;
        let add = |text: &str| format!("{text}    - [ ] sub\n- [ ] Later\n  - [ ] Its slice\n");
        let text = std::fs::read_to_string(&files[0]).expect("reads");
        let before = [add(&text), std::fs::read_to_string(&files[1]).expect("reads")];
        edit(&scene, add).await;
        let units = scene.status().await.units;
        assert_eq!(units.len(), 3 + 3 + 3, "{units:#?}");
        for (file, text) in files.iter().zip(&before) {
            std::fs::write(file, text).expect("as before the crash");
        }
        let again = scene.reload(false).await;
        assert!(again.edits.is_empty() && again.conflicts.is_empty(), "{again:#?}");
        assert_eq!(scene.status().await.units, units);
        let noted = std::fs::read_to_string(&files[0]).expect("reads");
        assert!(noted.contains("- [ ] sub <!-- task/m1/s1/t2 -->"), "{noted}");
        let quiet = scene.reload(true).await;
        assert!(quiet.edits.is_empty() && quiet.conflicts.is_empty(), "{quiet:#?}");
        assert_eq!(scene.status().await.units, units, "also those of the other goal");
    });
    scene.end();
}

/// A slice of which every task was cancelled has nothing to be merged: it waits with the reason, and is over by a person's word
/// alone, as something that was not delivered.
#[test]
fn needs_userns_needs_git_a_slice_without_any_change_is_no_delivery() {
    let dir = project("", THERE, SHORT);
    let script = coder(ONE_TASK, |_, _| done());
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.order(TASK, "cancel", "not needed").await;
        let status = scene.run().await;
        assert_eq!(status.state, "paused", "{status:#?}");
        let blocker = status.blockers.first().expect("one");
        assert_eq!((blocker.event.as_str(), blocker.unit.as_str()), ("Paused", SLICE));
        assert!(blocker.detail.contains("nothing was changed since its branch began"), "{blocker:?}");
        scene.order(SLICE, "cancel", "").await;
        let status = scene.end_of_loop().await;
        let plan = status.plans.first().expect("one");
        assert_eq!((plan.state, plan.reason.as_str()), (WorkState::Failed, "not delivered: slice/m1/s1"));
    });
    assert_eq!(git(dir.path(), &["log", "--oneline", "main"]).lines().count(), 1, "nothing was merged");
    scene.end();
}

/// Waits until a unit is at work.
async fn wait_for(scene: &Scene, id: &str) {
    while !unit_of(&scene.status().await, id).is_running {
        scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
    }
}

/// A slice is cancelled with its tasks while one of them is at work, also where slices share a work tree: the next slice begins in a
/// folder of its own work, what was done stays in the archive, and nothing else is left.
#[test]
fn needs_userns_needs_git_a_cancelled_slice_takes_its_tasks_with_it() {
    for mode in ["milestone-per-worktree", "branch-per-slice"] {
        let dir = project(&format!("worktree_mode = \"{mode}\""), THERE, SHORT);
        let never = ReplyGate::new();
        let gate = never.clone();
        let is_asked = Arc::new(AtomicBool::new(false));
        let asks = Arc::clone(&is_asked);
        let script = coder(TWO_SLICES, move |_, asked| match (asked.has_results, asked.name.as_str()) {
            (true, "sub") => {
                asks.store(true, Ordering::Relaxed);
                done().with_fault(ReplyFault::SlowFirstByte(gate.clone()))
            }
            (true, _) => done(),
            (false, name) => writes(name, "a + b"),
        });
        let scene = scene(dir.path(), TestEngine::new("", |_| script));
        scene.engine.runtime.block_on(async {
            let planned = scene.plan("a library of sums").await;
            scene.approve(&planned.ask).await;
            scene.engine.call("pilot.run", scene.params()).await.expect("runs");
            wait_for(&scene, "task/m1/s1/t2").await;
            // Its first request is answered, and has cost something.
            while !is_asked.load(Ordering::Relaxed) {
                scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
            }
            // Nothing is mended while something works.
            git(dir.path(), &["update-ref", "refs/heads/writ/m9-s1-left", "main"]);
            git(dir.path(), &["update-ref", "refs/writ/base/writ/m9-s1-left", "main"]);
            scene.ask::<PilotFindings>("pilot.doctor", json!({ "fix": true })).await;
            git(dir.path(), &["cat-file", "-e", "writ/m9-s1-left"]);
            scene.order(SLICE, "cancel", "not wanted").await;
            let status = scene.status().await;
            for (id, state) in [(SLICE, "canceled"), ("task/m1/s1/t2", "canceled"), (TASK, "succeeded")] {
                let unit = unit_of(&status, id);
                assert_eq!((unit.is_over, unit.status.as_str()), (true, state), "{mode}: {status:#?}");
            }
            let status = scene.end_of_loop().await;
            assert_eq!(status.state, "complete", "{mode}: {status:#?}");
            assert_eq!(unit_of(&status, "slice/m1/s2").status, "succeeded", "{mode}");
            let plan = status.plans.first().expect("one");
            assert_eq!((plan.state, plan.reason.as_str()), (WorkState::Failed, "not delivered: slice/m1/s1"));
            scene.ask::<PilotFindings>("pilot.doctor", json!({ "fix": true })).await;
            // What the attempt that was cut off has used is paid.
            let part = scene.unit("task/m1/s1/t2").await;
            let last = part.runs.last().expect("one");
            assert!(
                last.outcome.as_deref() == Some("canceled") && last.tokens > Tokens::ZERO,
                "{mode}: {part:#?}"
            );
        });
        let merged = git(dir.path(), &["ls-tree", "--name-only", "main"]);
        assert!(merged.contains("mul.mjs") && !merged.contains("add.mjs"), "{mode}: {merged}");
        let archived = git(dir.path(), &["for-each-ref", "--format=%(refname)", "refs/writ/archive"]);
        let archived = archived.lines().next().expect("an archive").to_owned();
        git(dir.path(), &["cat-file", "-e", &format!("{archived}:add.mjs")]);
        assert_eq!(git(dir.path(), &["worktree", "list"]).lines().count(), 1, "{mode}");
        assert_eq!(git(dir.path(), &["branch", "--list", "writ/*"]), "", "{mode}");
        never.open();
        scene.end();
    }
}

/// A slice that has not begun is cancelled while another one is at work in the work tree that they share: that one works on.
#[test]
fn needs_userns_needs_git_a_cancelled_slice_leaves_the_shared_work_tree_to_another() {
    let dir = project("worktree_mode = \"milestone-per-worktree\"", THERE, SHORT);
    let held = ReplyGate::new();
    let gate = held.clone();
    let script = coder(TWO_SLICES, move |_, asked| match (asked.has_results, asked.name.as_str()) {
        (true, _) => done(),
        (false, "sub") => writes("sub", "a - b").with_fault(ReplyFault::SlowFirstByte(gate.clone())),
        (false, name) => writes(name, "a + b"),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        wait_for(&scene, "task/m1/s1/t2").await;
        scene.order("slice/m1/s2", "cancel", "not wanted").await;
        assert!(dir.path().join(".writ/workspaces/milestone_m1/add.mjs").is_file(), "the work of the other");
        held.open();
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        assert_eq!(unit_of(&status, SLICE).status, "succeeded");
    });
    let merged = git(dir.path(), &["ls-tree", "--name-only", "main"]);
    assert!(merged.contains("add.mjs") && merged.contains("sub.mjs"), "{merged}");
    assert_eq!(git(dir.path(), &["worktree", "list"]).lines().count(), 1);
    scene.end();
}

/// The log of a unit has the attempts under every plan that it had, and is read page by page.
#[test]
fn needs_userns_needs_git_a_log_goes_on_over_a_new_plan() {
    let gate = "\n[[gate]]\nname = \"sum\"\nrun = [\"grep\", \"-q\", \"a + b\", \"add.mjs\"]\n";
    let dir = project("", gate, SHORT);
    let script = coder(ONE_TASK, |_, asked| if asked.has_results { done() } else { writes("add", "a - b") });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        let status = scene.run().await;
        assert_eq!(status.state, "paused", "the decision is to ask: {status:#?}");
        let read = async |more: serde_json::Value| -> PilotLog {
            let mut query = json!({ "unit": TASK });
            let fields = query.as_object_mut().expect("an object");
            fields.extend(more.as_object().expect("an object").clone());
            scene.ask("pilot.log", query).await
        };
        let before = read(json!({})).await;
        assert!(before.lines.iter().any(|line| line.kind == "tool" && line.text == "write add.mjs"));
        assert!(scene.reload(false).await.written);
        edit(&scene, |text| text.replace("Write add in add.mjs.", "Write a right add in add.mjs.")).await;
        let after = read(json!({})).await;
        assert_eq!(after, before, "its plan is another one");
        let all = &after.lines;
        assert!(all.len() > 8, "{all:#?}");
        let last = read(json!({ "last": 3 })).await;
        assert_eq!(last.lines, all[all.len() - 3..]);
        assert!(last.left_out > 0);
        let page = read(json!({ "last": 3, "skip": 3 })).await;
        assert_eq!(page.lines, all[all.len() - 6..all.len() - 3]);
        let first = read(json!({ "skip": all.len() - 2 })).await;
        assert_eq!((first.lines.as_slice(), first.left_out), (&all[..2], 0));
    });
    scene.end();
}

/// Gates are tried as they are at work: with the report that they write to a file, and hidden tests not at all.
#[test]
fn needs_userns_needs_git_the_doctor_tries_gates_as_they_run() {
    let run = "mkdir -p out && printf 'TAP version 13\\\\n1..1\\\\nok 1 - add\\\\n' > out/report.tap";
    let gates = format!(
        "{THERE}\n[[gate]]\nname = \"file\"\nrun = [\"sh\", \"-c\", \"{run}\"]\nreport = \"tap\"\nreport_file = \"out/report.tap\"\n\n[[gate]]\nname = \"secret\"\nrun = [\"false\"]\nat = \"merge\"\nreport = \"tap\"\nhidden = \"sums\"\n"
    );
    let dir = project("", &gates, SHORT);
    let tests = tempfile::tempdir().expect("temp dir");
    let owner = OwnerFiles { hidden_tests: Some(tests.path().to_owned()), ..OwnerFiles::default() };
    let engine = TestEngine::new("", |_| coder(ONE_TASK, |_, _| done()));
    let scene = Scene::with_owner_files(engine, std::fs::canonicalize(dir.path()).expect("is there"), owner);
    scene.engine.runtime.block_on(async {
        let verdicts = async || -> Vec<(FindingVerdict, String)> {
            let found: PilotFindings = scene.ask("pilot.doctor", json!({})).await;
            let of = |name: &str| {
                let one = found.checks.iter().find(|one| one.name == name);
                one.map(|one| (one.verdict, one.text.clone())).unwrap_or_else(|| panic!("{name}: {found:#?}"))
            };
            vec![of("gate file"), of("gate secret")]
        };
        let [file, secret] = &verdicts().await[..] else { panic!("two") };
        assert_eq!(file.0, FindingVerdict::Good, "{file:?}");
        assert_eq!((secret.0, secret.1.as_str()), (FindingVerdict::Bad, "there are no hidden tests 'sums'"));
        std::fs::create_dir(tests.path().join("sums")).expect("made");
        let again = verdicts().await;
        assert_eq!(again[1].0, FindingVerdict::Good, "{again:?}");
    });
    scene.end();
}
