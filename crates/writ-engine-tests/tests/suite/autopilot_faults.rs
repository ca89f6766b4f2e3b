//! Things that go wrong around the autopilot's loop: a clock that jumps, an end that fails, orders that come at once, plans that stand
//! still, and scripts that gates run out of sight.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use writ_store::reads::UnitReads as _;
use writ_store::units::UnitKey;
use writ_testkit::model_server::{Reply, ReplyFault, ReplyGate};
use writ_types::api::pilot::{PilotReloaded, PilotStatus};
use writ_types::api::work::WorkState;

use crate::autopilot::{Scene, git};
use crate::autopilot_limits::{
    GATE, SHORT, TASK, TWO_SLICES, coder, done, first_run, project, scene, writes,
};
use crate::harness::TestEngine;

/// A gate that passes on every tree.
const THERE: &str = "\n[[gate]]\nname = \"there\"\nrun = [\"test\", \"-f\", \"package.json\"]\n";
/// The plan of one task.
const ONE_TASK: &str = "\
- [ ] A library of sums <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * add adds
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add in add.mjs.
";

/// Waits until something holds; the engine's own time limit of a test ends a wait that has none.
async fn wait_until(scene: &Scene, mut holds: impl AsyncFnMut() -> bool) {
    while !holds().await {
        scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
    }
}

/// The machine is suspended while an attempt runs, and the clock is an hour later: the attempt is the same, is not begun a second time
/// beside itself, and its result counts.
///
/// Rows: SF-132 (in part: a claim of a worker that lives does not run out)
#[test]
fn needs_userns_needs_git_an_attempt_outlasts_a_jump_of_the_clock() {
    let dir = project(
        "poll_interval = \"100ms\"\nstall_timeout = \"5h\"\nturn_timeout = \"5h\"\n[pilot.unit_timeout_by_phase]\nexecute = \"5h\"",
        GATE,
        SHORT,
    );
    let slow = ReplyGate::new();
    let (gate, is_asked) = (slow.clone(), Arc::new(AtomicBool::new(false)));
    let asks = Arc::clone(&is_asked);
    let script = coder(ONE_TASK, move |_, asked| {
        if asked.has_results {
            asks.store(true, Ordering::Relaxed);
            return done().with_fault(ReplyFault::SlowFirstByte(gate.clone()));
        }
        writes("add", "a + b")
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        wait_until(&scene, async || is_asked.load(Ordering::Relaxed)).await;
        scene.engine.clock.go_on(Duration::from_secs(3_600));
        let woken = scene.engine.clock.now();
        let hands = scene.engine.engine.pilot_hands();
        let key = UnitKey { project: scene.project.to_string_lossy().into_owned(), id: TASK.to_owned() };
        // The loop has looked, and either lengthened the claim or ended it.
        let claim = async || hands.store().unit(key.clone()).await.expect("reads").expect("there").claim;
        wait_until(&scene, async || claim().await.is_none_or(|(_, until)| until > woken)).await;
        assert!(claim().await.is_some(), "its worker lives");
        slow.open();
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let task = scene.unit(TASK).await;
        let runs: Vec<_> = task.runs.iter().map(|run| (run.phase.as_str(), run.outcome.as_deref())).collect();
        assert_eq!(runs, [("execute", Some("success")), ("verify", Some("success"))], "{task:#?}");
    });
    scene.end();
}

/// The files of a slice cannot be moved to the archive: the next slice is worked on and merged all the same, the status says what is in
/// the way, and the plan ends as soon as that is gone.
#[test]
fn needs_userns_needs_git_an_end_that_fails_holds_up_no_other() {
    let dir = project("poll_interval = \"100ms\"", THERE, SHORT);
    let archive = dir.path().join(".writ/archive");
    let blocked = archive.clone();
    let script = coder(TWO_SLICES, move |_, asked| {
        // While the first one works, a file takes the place of the folder.
        if asked.name == "add" && blocked.is_dir() {
            std::fs::remove_dir_all(&blocked).expect("removed");
            std::fs::write(&blocked, "in the way").expect("written");
        }
        if asked.has_results { done() } else { writes(&asked.name, "a + b") }
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        let is_over =
            |status: &PilotStatus, id: &str| status.units.iter().any(|unit| unit.id == id && unit.is_over);
        let second = async || is_over(&scene.status().await, "milestone/m1");
        wait_until(&scene, second).await;
        let status = scene.status().await;
        assert_eq!(status.state, "running", "something is left: {status:#?}");
        assert_eq!(status.plans[0].state, WorkState::Running, "{status:#?}");
        let says = |one: &String| one.contains("the end of slice/m1/s1 is not complete, it is tried again");
        assert!(status.warnings.iter().any(says), "{status:#?}");
        git(dir.path(), &["cat-file", "-e", "main:mul.mjs"]);
        std::fs::remove_file(&archive).expect("removed");
        std::fs::create_dir(&archive).expect("made");
        let status = scene.end_of_loop().await;
        assert_eq!(
            (status.state.as_str(), status.plans[0].state),
            ("complete", WorkState::Done),
            "{status:#?}"
        );
        assert!(!status.warnings.iter().any(|one| one.contains("the end of")), "{status:#?}");
    });
    assert_eq!(git(dir.path(), &["branch", "--list", "writ/*"]), "");
    scene.end();
}

/// A person stops the plan while its last merge is checked. The merge is made, since it was begun; the plan stays where it was put, and
/// ends as soon as it may go on, without another start.
#[test]
fn needs_userns_needs_git_a_plan_that_stood_still_ends_when_it_goes_on() {
    let slow = "\n[[gate]]\nname = \"slow\"\nrun = [\"sh\", \"-c\", \"sleep 8; test -f package.json\"]\nat = \"merge\"\n";
    let dir = project("poll_interval = \"100ms\"", &format!("{THERE}{slow}"), SHORT);
    let script = coder(ONE_TASK, |_, asked| if asked.has_results { done() } else { writes("add", "a + b") });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        let unit = async |id: &str| {
            let status = scene.status().await;
            status.units.iter().find(|unit| unit.id == id).cloned().expect("there")
        };
        wait_until(&scene, async || {
            let slice = unit("slice/m1/s1").await;
            slice.phase == "merge" && slice.is_running
        })
        .await;
        let item = json!({ "item": planned.item });
        scene.engine.call("work.pause", item.clone()).await.expect("paused");
        wait_until(&scene, async || unit("milestone/m1").await.is_over).await;
        let status = scene.status().await;
        assert_eq!(
            (status.state.as_str(), status.plans[0].state),
            ("running", WorkState::Paused),
            "{status:#?}"
        );
        scene.engine.call("work.resume", item).await.expect("goes on");
        let status = scene.end_of_loop().await;
        assert_eq!(
            (status.state.as_str(), status.plans[0].state),
            ("complete", WorkState::Done),
            "{status:#?}"
        );
    });
    scene.end();
}

/// Two goals that are planned at once, and a reload that is ordered twice at once: each goal has numbers of its own, and the edits are
/// made once.
#[test]
fn needs_userns_needs_git_orders_at_once_make_nothing_twice() {
    let dir = project("", THERE, SHORT);
    let script = coder(ONE_TASK, |_, _| done());
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let (one, other) =
            tokio::join!(Box::pin(scene.plan("a library of sums")), Box::pin(scene.plan("another one")));
        let mut milestones = [one.milestone, other.milestone];
        milestones.sort();
        assert_eq!(milestones, ["milestone/m1", "milestone/m2"]);
        assert!(scene.reload(false).await.written);
        let file = scene.project.join(".writ/plan.md");
        let text = std::fs::read_to_string(&file).expect("reads");
        std::fs::write(&file, format!("{text}    - [ ] sub\n")).expect("written");
        let shown = scene.reload(false).await;
        let mut order = scene.params();
        order["apply"] = json!(true);
        order["digest"] = json!(shown.digest);
        let (first, second) = tokio::join!(
            Box::pin(scene.engine.call("pilot.reload", order.clone())),
            Box::pin(scene.engine.call("pilot.reload", order)),
        );
        let (good, bad): (Vec<_>, Vec<_>) = [first, second].into_iter().partition(Result::is_ok);
        let made: PilotReloaded =
            serde_json::from_value(good[0].clone().expect("one is carried out")).expect("reads");
        assert!(made.applied && made.asks.len() == 1, "{made:#?}");
        let refused = format!("{bad:?}");
        assert!(bad.len() == 1 && refused.contains("was changed since its edits were shown"), "{refused}");
        let status = scene.status().await;
        assert_eq!(status.units.iter().filter(|unit| unit.title == "sub").count(), 1, "{status:#?}");
        let waiting = status.plans.iter().filter(|plan| plan.state == WorkState::Proposed).count();
        assert_eq!(waiting, 2, "one card for each milestone: {status:#?}");
    });
    scene.end();
}

/// A gate runs a script, which runs another one below the tests by a way around: a coder that changes that one does not pass. One that
/// only adds a test does.
#[test]
fn needs_userns_needs_git_a_script_below_tests_is_a_part_of_the_gate() {
    let gate = "\n[[gate]]\nname = \"all\"\nrun = [\"timeout\", \"60\", \"bash\", \"ci/all\"]\n";
    let dir = project("", gate, SHORT);
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    write("ci/all", "set -e\ncd \"$(dirname \"$0\")\"\n../tests/run.sh\n");
    write("tests/run.sh", "#!/bin/sh\ngrep -q 'a + b' add.mjs ../add.mjs 2>/dev/null\n");
    git(dir.path(), &["update-index", "--add", "ci/all", "tests/run.sh"]);
    git(dir.path(), &["update-index", "--chmod=+x", "tests/run.sh"]);
    git(dir.path(), &["commit", "-q", "-m", "checks"]);
    git(dir.path(), &["checkout", "-q", "--", "."]);
    let script = coder(ONE_TASK, |n, asked| match (asked.has_results, n) {
        (true, _) => done(),
        (false, 1) => {
            Reply::call("file_write", json!({ "path": "tests/run.sh", "content": "#!/bin/sh\ntrue\n" }))
        }
        (false, 2) => {
            let old = "#!/bin/sh\ngrep -q 'a + b' add.mjs ../add.mjs 2>/dev/null\n";
            Reply::call("file_write", json!({ "path": "tests/run.sh", "content": old }))
        }
        (false, _) => writes("add", "a + b"),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        first_run(&scene).await;
        let task = scene.unit(TASK).await;
        let first = task.gates.first().unwrap_or_else(|| panic!("{task:#?}"));
        assert!(!first.passed && first.gate == "protected-paths", "{task:#?}");
        assert!(first.output.contains("tests/run.sh (run by a gate)"), "{first:#?}");
    });
    assert!(Path::new(dir.path()).join("tests/run.sh").exists());
    scene.end();
}
