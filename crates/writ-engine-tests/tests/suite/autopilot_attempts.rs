//! The attempts of a unit: what counts as one, and the hooks around each.

use serde_json::json;
use writ_store::units::{HookRunRow, RunRow, UnitKey};
use writ_testkit::model_server::{Reply, ReplyFault};
use writ_types::api::pilot::PilotDispatched;
use writ_types::unit::Timestamp;

use crate::autopilot::{Scene, plan_of};
use crate::autopilot_hooks::{commit_script, hook_runs};
use crate::autopilot_limits::{
    GATE, ONE_TASK, SHORT, TASK, TWO_SLICES, coder, done, first_run, project, scene, writes,
};
use crate::autopilot_phases::{Notes, abandons, escalates, note, team};
use crate::harness::TestEngine;

/// Two slices; the task of the second waits for that of the first.
const ONE_AFTER_ANOTHER: &str = "\
- [ ] A library of sums <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * add adds
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add in add.mjs.
  - [ ] Products <!-- slice/m1/s2 -->
    Acceptance:
    * mul multiplies
    - [ ] mul <!-- task/m1/s2/t1 blocked_by=task/m1/s1/t1 -->
      Write mul in mul.mjs.
";

fn runs(scene: &Scene, id: &str) -> Vec<RunRow> {
    let key = UnitKey { project: scene.project.to_string_lossy().into_owned(), id: id.to_owned() };
    scene.engine.store.blocking().unit_runs(key).expect("reads")
}

/// Two failures and a success are three runs of the phase; the success, which takes two turns, is one of them.
///
/// Rows: SF-076
#[test]
fn needs_userns_needs_git_each_attempt_is_one_run_however_many_turns_it_takes() {
    let dir = project("", GATE, SHORT);
    let dead = || done().with_fault(ReplyFault::Status { status: 400, retry_after: None });
    let script = coder(ONE_TASK, move |tries, asked| match (tries, asked.has_results) {
        (1 | 2, _) => dead(),
        (3, _) => Reply::text("I begin."),
        (_, false) => writes("add", "a + b"),
        (_, true) => done(),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    let ends: Vec<(u32, String)> = runs(&scene, TASK)
        .into_iter()
        .filter(|run| run.phase == "execute")
        .map(|run| (run.attempt, run.end.expect("has ended").outcome))
        .collect();
    assert_eq!(ends, [(1, "failure".to_owned()), (2, "failure".to_owned()), (3, "success".to_owned())]);
    let log = serde_json::to_string(&scene.engine.facts("worked")).expect("is JSON");
    assert!(log.contains("turn 2 of attempt"), "the last one had two turns: {log}");
    scene.end();
}

/// With one place for work the hook after an attempt ends before anything else begins. One that hangs is ended at its limit and changes no
/// outcome; the one before a workspace is removed may hang, too, and holds the loop up no longer than its limit. A workspace that is used
/// again is not made again.
///
/// Rows: SF-153 SF-154 SF-224 SF-225
#[test]
fn needs_userns_needs_git_hooks_of_attempts_come_in_order_and_hold_nothing_up() {
    let kinds = ["after_create", "before_run", "after_run", "before_remove"];
    let hooks: String = kinds.iter().map(|kind| format!("{kind} = [\"tools/{kind}.sh\"]\n")).collect();
    let rest = format!(
        "[pilot.concurrency]\nmax_agents = 1\n[pilot.hooks]\n{hooks}[pilot.hooks.timeouts]\nafter_run = \"1s\"\nbefore_remove = \"1s\"\n\
         \n[[gate]]\nname = \"there\"\nrun = [\"sh\", \"-c\", \"cat *.mjs | grep -q 'a + b'\"]\n"
    );
    let dir = project("", &rest, SHORT);
    for kind in kinds {
        let hangs = matches!(kind, "after_run" | "before_remove");
        commit_script(
            dir.path(),
            &format!("tools/{kind}.sh"),
            if hangs { "sleep 600\n" } else { "exit 0\n" },
        );
    }
    // The gate sends the first task back twice.
    let mut wrong = vec!["a * b", "a - b"];
    let script = coder(TWO_SLICES, move |_, asked| match (asked.has_results, asked.name.as_str()) {
        (true, _) => done(),
        (false, "add") => writes("add", wrong.pop().unwrap_or("a + b")),
        (false, name) => writes(name, "a + b"),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    let rows = hook_runs(&scene, TASK);
    let of = |kind: &str| -> Vec<&HookRunRow> { rows.iter().filter(|row| row.hook == kind).collect() };
    let all = runs(&scene, TASK);
    let executed = all.iter().filter(|run| run.phase == "execute").count();
    assert_eq!((executed, of("after_create").len()), (3, 1), "made once for three attempts: {rows:#?}");
    assert_eq!(
        (of("before_run").len(), of("after_run").len()),
        (all.len(), all.len()),
        "around each: {rows:#?}"
    );
    let others = ["slice/m1/s1", "task/m1/s2/t1", "slice/m1/s2"].map(|id| runs(&scene, id)).concat();
    let begins: Vec<Timestamp> = all.iter().chain(&others).map(|run| run.started_at).collect();
    for ((run, before), after) in all.iter().zip(of("before_run")).zip(of("after_run")) {
        let end = run.end.as_ref().expect("has ended");
        assert_eq!(after.outcome, "timed_out", "{after:#?}");
        assert!(matches!(end.outcome.as_str(), "success" | "failure") && end.error_code != "hook_timeout");
        assert!(before.ended_at <= after.began_at && run.started_at <= before.began_at, "{rows:#?}");
        let is_between = |at: &&Timestamp| run.started_at < **at && **at < after.ended_at;
        assert_eq!(begins.iter().find(is_between), None, "its place was taken before its hook had ended");
    }
    let removed: Vec<HookRunRow> =
        hook_runs(&scene, "slice/m1/s1").into_iter().filter(|row| row.hook == "before_remove").collect();
    assert_eq!(removed.len(), 1);
    assert!(removed[0].outcome == "timed_out" && removed[0].reason.contains("after 1 s"), "{removed:#?}");
    assert!(!dir.path().join(".writ/workspaces/slice_m1_s1").exists());
    scene.end();
}

/// A unit that has failed and waits for a person's word holds what waits for it; once it is given up, that is planned anew and done.
///
/// Rows: SF-127
#[test]
fn needs_userns_needs_git_what_has_failed_blocks_until_it_is_abandoned() {
    let workflow = "phases = [\"plan\", \"execute\", \"verify\", \"merge\", \"complete\"]\nmax_retries = 0\n";
    let gate = "\n[[gate]]\nname = \"sum\"\nrun = [\"sh\", \"-c\", \"grep -q 'a + b' *.mjs\"]\n";
    let dir = project("", gate, workflow);
    let decisions: Notes<()> = Notes::default();
    let trail = decisions.clone();
    let script = team(ONE_AFTER_ANOTHER, move |heard| match (heard.part.as_str(), heard.unit.as_str()) {
        ("Work", TASK) => writes("add", "a - b"),
        ("Work", _) => writes("mul", "a + b"),
        ("Decision", TASK) if note(&trail, ()) == 1 => escalates(),
        ("Decision", TASK | "slice/m1/s1") => abandons(),
        (_, unit) => {
            let decision = json!({ "decision": "replan", "plan": plan_of(unit), "reason": "without sums" });
            Reply::text(&decision.to_string())
        }
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "paused", "{status:#?}");
        // It has failed for good, and nobody has given it up.
        let task = scene.unit(TASK).await;
        assert_eq!((task.unit.phase.as_str(), task.unit.is_over), ("reassess", false), "{task:#?}");
        assert_eq!(runs(&scene, "task/m1/s2/t1").len() + runs(&scene, "slice/m1/s2").len(), 0);
        scene.order(TASK, "resume", "").await;
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let is_done = |id: &str| {
            let unit = status.units.iter().find(|unit| unit.id == id).expect("is listed");
            (unit.is_over, unit.status.clone())
        };
        assert_eq!(is_done(TASK), (true, "failed".to_owned()));
        assert_eq!(is_done("task/m1/s2/t1"), (true, "succeeded".to_owned()));
        assert_eq!(is_done("slice/m1/s2"), (true, "succeeded".to_owned()));
    });
    // What was under way is ended for that once, and planned anew before it is handed out again.
    for id in ["slice/m1/s1", "task/m1/s2/t1"] {
        let all = runs(&scene, id);
        let is_ended = |run: &&RunRow| run.end.as_ref().is_some_and(|end| end.outcome == "interrupted");
        assert!(all.iter().filter(is_ended).count() <= 1, "{id}: {all:#?}");
    }
    scene.end();
}

/// Where no gate is configured nothing is proven: the unit waits for a person, who reads why.
#[test]
fn needs_userns_needs_git_work_that_no_gate_proves_waits_and_says_so() {
    let dir = project("", "", SHORT);
    let script = coder(ONE_TASK, |_, asked| if asked.has_results { done() } else { writes("add", "a + b") });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "paused", "{status:#?}");
        let blocker = status.blockers.first().expect("one");
        assert_eq!(blocker.unit, TASK);
        assert!(blocker.detail.contains("no gate has proven anything"), "{blocker:?}");
    });
    scene.end();
}

/// A unit is led to another plan once when one that it rests on is given up, also while its own plan was not made yet: a start of the
/// engine later on does not take the plan that it has made since then.
#[test]
fn needs_userns_needs_git_a_plan_made_after_an_abandonment_outlives_the_engine() {
    const SECOND: &str = "task/m1/s1/t2";
    const TWO_TASKS: &str = "\
- [ ] A library of sums <!-- milestone/m1 -->
  - [ ] Sums <!-- slice/m1/s1 -->
    Acceptance:
    * add adds
    - [ ] add <!-- task/m1/s1/t1 -->
      Write add in add.mjs.
    - [ ] mul <!-- task/m1/s1/t2 blocked_by=task/m1/s1/t1 -->
      Write mul in mul.mjs.
";
    let workflow = "phases = [\"plan\", \"execute\", \"verify\", \"merge\", \"complete\"]\nmax_retries = 0\n";
    let gate = "\n[[gate]]\nname = \"there\"\nrun = [\"test\", \"-f\", \"package.json\"]\n";
    let dir = project("", gate, workflow);
    let works: Notes<()> = Notes::default();
    let trail = works.clone();
    let script = team(TWO_TASKS, move |heard| match (heard.part.as_str(), heard.unit.as_str()) {
        ("Work", TASK) => Reply::text("I cannot.\n<turn_status>giving_up</turn_status>"),
        ("Work", SECOND) if note(&trail, ()) == 1 => {
            Reply::text("The service has no test account.\n<turn_status>blocked</turn_status>")
        }
        ("Work", _) => writes("mul", "a * b"),
        ("Decision", TASK) => abandons(),
        (_, unit) => {
            let decision = json!({ "decision": "replan", "plan": plan_of(unit), "reason": "without sums" });
            Reply::text(&decision.to_string())
        }
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "paused", "{status:#?}");
        let unit = scene.unit(SECOND).await;
        assert_eq!(unit.unit.phase, "execute", "{unit:#?}");
    });
    let folder = dir.path().join(".writ/active/task_m1_s1_t1");
    assert!(folder.exists(), "the engine does again what follows from its end");
    let scene = scene.restarted();
    scene.engine.runtime.block_on(async {
        scene.order(SECOND, "resume", "").await;
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let moves = crate::autopilot::moves(&scene.unit(SECOND).await);
        assert_eq!(moves.last().map(String::as_str), Some("verify>complete"), "{moves:?}");
        assert!(!moves.iter().any(|one| one.ends_with(">reassess")), "{moves:?}");
    });
    scene.end();
}

/// Work that says that it is blocked pauses the loop, with a blocker that a person sees. Handed out alone, there is no loop that would be
/// paused; the person is shown the same.
///
/// Rows: SF-142
#[test]
fn needs_userns_needs_git_what_says_that_it_is_blocked_waits_for_a_person() {
    for is_alone in [false, true] {
        let dir = project("", GATE, SHORT);
        let script = coder(ONE_TASK, |_, _| {
            Reply::text("The service has no test account.\n<turn_status>blocked</turn_status>")
        });
        let scene = scene(dir.path(), TestEngine::new("", |_| script));
        scene.engine.runtime.block_on(async {
            let planned = scene.plan("a library of sums").await;
            scene.approve(&planned.ask).await;
            let status = if is_alone {
                let _: PilotDispatched = scene.ask("pilot.dispatch", json!({ "unit": TASK })).await;
                loop {
                    let status = scene.status().await;
                    if !status.blockers.is_empty() {
                        break status;
                    }
                    scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
                }
            } else {
                scene.run().await
            };
            assert_eq!(status.state == "paused", !is_alone, "{status:#?}");
            let blocker = status.blockers.first().expect("one");
            assert_eq!((blocker.event.as_str(), blocker.unit.as_str()), ("Paused", TASK));
            assert!(blocker.detail.contains("The service has no test account."), "{blocker:?}");
        });
        assert_eq!(runs(&scene, TASK).len(), 1, "nothing is tried again");
        scene.end();
    }
}
