//! What becomes of the units of a plan that a person changes: edits of its file, removed parts, and cancelled ones.

use serde_json::json;
use writ_types::api::pilot::{PilotStatus, PilotUnitLine};

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

fn unit_of(status: &PilotStatus, id: &str) -> PilotUnitLine {
    status.units.iter().find(|unit| unit.id == id).unwrap_or_else(|| panic!("{id}: {status:#?}")).clone()
}

/// Changes the plan's file, and has its edits carried out.
async fn edit(scene: &Scene, change: impl FnOnce(&str) -> String) {
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
    });
    scene.end();
}

/// A slice that has lost its last task is worked on itself; with a new task it waits for that one again.
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
    });
    assert_eq!(git(dir.path(), &["log", "--oneline", "main"]).lines().count(), 1, "nothing was merged");
    scene.end();
}
