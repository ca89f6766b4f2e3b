//! The hooks of a project around the attempts of the autopilot, and the circuits of models that fail again and again.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use writ_models::ModelRole;
use writ_store::units::{HookRunRow, RunRow, UnitKey};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::api::pilot::{FailureClass, PilotCircuitsReset, PilotLog, PilotStatus};

use crate::autopilot::{Scene, git};
use crate::autopilot_limits::{
    GATE, ONE_TASK, SHORT, TASK, TWO_SLICES, coder, done, first_run, project, scene, writes,
};
use crate::harness::TestEngine;

const SLICE: &str = "slice/m1/s1";
const OTHER_TASK: &str = "task/m1/s2/t1";
/// A gate that passes on every tree.
const THERE: &str = "\n[[gate]]\nname = \"there\"\nrun = [\"test\", \"-f\", \"package.json\"]\n";

/// Commits a script to the target branch.
pub(crate) fn commit_script(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    std::fs::write(&path, text).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("changed");
    git(dir, &["add", "-f", name]);
    git(dir, &["commit", "-qm", "Change a hook"]);
}

fn key(scene: &Scene, id: &str) -> UnitKey {
    UnitKey { project: scene.project.to_string_lossy().into_owned(), id: id.to_owned() }
}

pub(crate) fn hook_runs(scene: &Scene, id: &str) -> Vec<HookRunRow> {
    scene.engine.store.blocking().unit_hook_runs(key(scene, id)).expect("reads")
}

fn runs(scene: &Scene, id: &str) -> Vec<RunRow> {
    scene.engine.store.blocking().unit_runs(key(scene, id)).expect("reads")
}

fn ends(scene: &Scene, id: &str) -> Vec<String> {
    let end = |run: &RunRow| {
        let end = run.end.as_ref().map(|end| format!("{} {}", end.outcome, end.error_code));
        format!("{} {}", run.phase, end.unwrap_or_default()).trim_end().to_owned()
    };
    runs(scene, id).iter().map(end).collect()
}

/// A coder that writes the right sum, and the number of its requests.
fn right(outline: &'static str) -> (impl FnMut(&ParsedRequest) -> Reply + Send + 'static, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let script = coder(outline, move |_, asked| {
        count.fetch_add(1, Ordering::SeqCst);
        if asked.has_results { done() } else { writes(&asked.name, "a + b") }
    });
    (script, asked)
}

/// Each hook runs at its moment: once when the workspace is made, around each attempt, at each change of phase, after each run, and
/// before the workspace is removed. Those of a workspace see its files, the others those of the project. The log of a unit has them
/// with their times as parts of its attempts.
///
/// Rows: SF-226 (in part: the files of the workspace)
/// Rows: SF-204 (in part: lines of the unit's log) SF-193 (in part: before a dispatch, after a run, at a change of phase)
#[test]
fn needs_userns_needs_git_hooks_run_at_their_moments() {
    let kinds = [
        "pre_dispatch",
        "after_create",
        "before_run",
        "after_run",
        "post_unit",
        "phase_change",
        "before_remove",
    ];
    let hooks: String = kinds.iter().map(|kind| format!("{kind} = [\"./tools/note.sh\"]\n")).collect();
    let dir = project("", &format!("[pilot.hooks]\n{hooks}{GATE}"), SHORT);
    commit_script(
        dir.path(),
        "tools/note.sh",
        "#!/bin/sh\ncat >/dev/null\ntest -f add.mjs && echo \"$WRIT_HOOK sees it\"\nexit 0\n",
    );
    let (script, _) = right(ONE_TASK);
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let log = scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        scene.ask::<PilotLog>("pilot.log", json!({ "unit": TASK })).await
    });
    let lines = |id: &str| -> Vec<String> {
        let line = |run: &HookRunRow| format!("{} {} {}", run.attempt, run.hook, run.output.trim());
        hook_runs(&scene, id).iter().map(|run| line(run).trim_end().to_owned()).collect()
    };
    let of_task = lines(TASK);
    let expected = [
        "1 pre_dispatch",
        "1 after_create",
        "1 before_run",
        "1 after_run after_run sees it",
        "1 phase_change",
        "1 post_unit",
        "1 pre_dispatch",
        "2 before_run before_run sees it",
        "2 after_run after_run sees it",
        "1 phase_change",
        "2 post_unit",
    ];
    assert_eq!(of_task, expected);
    assert!(
        hook_runs(&scene, TASK).iter().all(|run| run.outcome == "passed" && run.script == "tools/note.sh")
    );
    let of_slice = lines(SLICE);
    assert_eq!(
        of_slice.last().map(String::as_str),
        Some("2 before_remove before_remove sees it"),
        "{of_slice:?}"
    );
    assert!(!of_slice.iter().any(|line| line.contains("after_create")), "made once for all: {of_slice:?}");
    let logged: Vec<&str> =
        log.lines.iter().filter(|line| line.kind == "hook").map(|line| line.text.as_str()).collect();
    assert_eq!(logged.len(), expected.len(), "{logged:?}");
    assert!(logged.contains(&"before_run tools/note.sh: passed"), "{logged:?}");
    assert!(log.lines.iter().all(|line| line.kind != "hook" || line.took_ms.is_some()));
    scene.end();
}

/// An attempt that the supervisor ends is recorded as cancelled by it, and its place is free only after the hook behind it has ended: with
/// one place no other unit begins before.
///
/// Rows: SF-192
#[test]
fn needs_userns_needs_git_a_place_is_free_after_the_hook_of_an_attempt_that_was_ended() {
    let settings = "[pilot.concurrency]\nmax_agents = 1\n[pilot.supervisor]\nsilent_turns = 2\n[pilot.hooks]\nafter_run = [\"tools/after.sh\"]\n";
    let dir = project("max_idle_ends = 9", &format!("{settings}{THERE}"), SHORT);
    commit_script(dir.path(), "tools/after.sh", "exit 0\n");
    let is_mended = Arc::new(AtomicBool::new(false));
    let works = Arc::clone(&is_mended);
    let script = coder(TWO_SLICES, move |_, asked| match (works.load(Ordering::SeqCst), asked.has_results) {
        (true, true) => done(),
        (true, false) => writes(&asked.name, "a + b"),
        (false, _) => Reply::text("I think about it."),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "paused", "{status:#?}");
        is_mended.store(true, Ordering::SeqCst);
        scene.order(TASK, "resume", "").await;
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    let ended = &runs(&scene, TASK)[0];
    let end = ended.end.as_ref().expect("ended");
    assert_eq!((end.outcome.as_str(), end.error_code.as_str()), ("canceled", "canceled_by_supervisor"));
    let hooks = hook_runs(&scene, TASK);
    let after = hooks.iter().find(|row| row.hook == "after_run").expect("it ran");
    assert!(ended.started_at <= after.began_at && after.ended_at <= end.at, "{after:?} {end:?}");
    let others = [TASK, OTHER_TASK, SLICE].map(|id| runs(&scene, id)).concat();
    let later: Vec<&RunRow> = others.iter().filter(|run| run.id != ended.id).collect();
    assert!(later.len() >= 4 && later.iter().all(|run| run.started_at >= after.ended_at), "{later:#?}");
    scene.end();
}

/// An attempt whose hook fails or hangs does not begin: no model is asked, and the hook after it runs all the same. The script that
/// runs is the one of the target branch.
///
/// Rows: SF-147 SF-201 (in part: a hook before an attempt is ended at its limit)
/// Rows: SF-482 (in part: hook_failed and hook_timeout)
#[test]
fn needs_userns_needs_git_an_attempt_begins_only_after_its_hooks() {
    let hooks = "[pilot.hooks]\nbefore_run = [\"tools/before.sh\"]\nafter_run = [\"tools/after.sh\"]\n[pilot.hooks.timeouts]\nbefore_run = \"5s\"\n";
    let dir = project("", &format!("{hooks}{GATE}"), SHORT);
    commit_script(dir.path(), "tools/after.sh", "exit 9\n");
    commit_script(dir.path(), "tools/before.sh", "echo not today; exit 1\n");
    let (script, asked) = right(ONE_TASK);
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        until_rows(&scene, TASK, |rows| rows.len() >= 2).await;
        assert_eq!(asked.load(Ordering::SeqCst), 0, "no model is asked");
        commit_script(dir.path(), "tools/before.sh", "sleep 600\n");
        until_rows(&scene, TASK, |rows| rows.iter().any(|row| row.outcome == "timed_out")).await;
        assert_eq!(asked.load(Ordering::SeqCst), 0, "no model is asked");
        commit_script(dir.path(), "tools/before.sh", "exit 0\n");
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    let ends = ends(&scene, TASK);
    assert_eq!(ends.first().map(String::as_str), Some("execute failure hook_failed"), "{ends:?}");
    assert!(ends.contains(&"execute failure hook_timeout".to_owned()), "{ends:?}");
    assert_eq!(ends[ends.len() - 2..], ["execute success", "verify success"], "{ends:?}");
    let rows = hook_runs(&scene, TASK);
    assert_eq!((rows[0].outcome.as_str(), rows[0].output.trim()), ("failed", "not today"));
    assert_eq!(
        (rows[1].hook.as_str(), rows[1].outcome.as_str()),
        ("after_run", "failed"),
        "it runs all the same"
    );
    let after = rows.iter().filter(|row| row.hook == "after_run");
    assert_eq!(after.clone().count(), runs(&scene, TASK).len(), "after every attempt");
    assert!(
        after.into_iter().all(|row| row.outcome == "failed"),
        "and none of its ends changes an attempt's"
    );
    scene.end();
}

/// Where files of unknown origin are in the place of the workspace, nothing else begins: no hook runs and no model is asked. It is a failure
/// of the class whose recovery is a person's, so the unit waits.
///
/// Rows: SF-146 (in part: files of unknown origin are in its place)
/// Rows: SF-477 (in part: a failure of the class config, as programs read it)
#[test]
fn needs_userns_needs_git_nothing_begins_without_a_workspace() {
    let hooks = "[pilot.hooks]\nafter_create = [\"tools/note.sh\"]\nbefore_run = [\"tools/note.sh\"]\nafter_run = [\"tools/note.sh\"]\n";
    let dir = project("", &format!("{hooks}{GATE}"), SHORT);
    commit_script(dir.path(), "tools/note.sh", "exit 0\n");
    // Files of unknown origin are in its place.
    let place = dir.path().join(".writ/workspaces/slice_m1_s1");
    std::fs::create_dir_all(&place).expect("made");
    std::fs::write(place.join("mine.txt"), "mine").expect("written");
    let (script, asked) = right(ONE_TASK);
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "paused", "{status:#?}");
        assert_eq!((hook_runs(&scene, TASK), asked.load(Ordering::SeqCst)), (Vec::new(), 0));
        assert!(place.join("mine.txt").is_file());
        std::fs::remove_dir_all(&place).expect("removed");
        scene.order(TASK, "resume", "").await;
        assert_eq!(scene.end_of_loop().await.state, "complete");
    });
    let ends = ends(&scene, TASK);
    assert_eq!(ends, ["execute failure repository_held", "execute success", "verify success"]);
    let task = scene.engine.runtime.block_on(scene.unit(TASK));
    let classes: Vec<Option<FailureClass>> = task.runs.iter().map(|run| run.class).collect();
    assert_eq!(classes, [Some(FailureClass::Config), None, None]);
    scene.end();
}

/// A hook that fails where a workspace was made removes that again, and has another try with the next attempt.
///
/// Rows: SF-479 (in part: the folder that its hook refuses; the retry) SF-482 (in part: workspace_creation_failed)
/// Rows: SF-477 (in part: a failure of the class workspace is tried again)
#[test]
fn needs_userns_needs_git_a_workspace_that_its_hook_refuses_is_removed() {
    let dir = project("", &format!("[pilot.hooks]\nafter_create = [\"tools/made.sh\"]\n{GATE}"), SHORT);
    commit_script(dir.path(), "tools/made.sh", "exit 1\n");
    let (script, _) = right(ONE_TASK);
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        until_rows(&scene, TASK, |rows| rows.len() >= 2).await;
        commit_script(dir.path(), "tools/made.sh", "exit 0\n");
        assert_eq!(scene.end_of_loop().await.state, "complete");
    });
    let ends = ends(&scene, TASK);
    let failed = ends.iter().filter(|end| *end == "execute failure workspace_creation_failed").count();
    assert!(failed >= 2 && ends.len() == failed + 2, "{ends:?}");
    let task = scene.engine.runtime.block_on(scene.unit(TASK));
    assert!(task.runs.iter().take(failed).all(|run| run.class == Some(FailureClass::Workspace)), "{task:#?}");
    let rows = hook_runs(&scene, TASK);
    assert_eq!(
        rows.iter().filter(|row| row.outcome == "passed").count(),
        1,
        "once it has passed, it is over"
    );
    scene.end();
}

/// Waits until the runs of a unit's hooks are as wanted.
async fn until_rows(scene: &Scene, id: &str, is_so: impl Fn(&[HookRunRow]) -> bool) {
    loop {
        let rows = writ_store::reads::UnitReads::unit_hook_runs(&scene.engine.store, key(scene, id)).await;
        if is_so(&rows.expect("reads")) {
            return;
        }
        scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
    }
}

/// A hook before the dispatch vetoes it: the unit stays where it is, and no try is counted. One that fails ends the session. A change
/// of phase stands, whatever its hook says.
///
/// Rows: SF-085 (in part: the warning is a row of the unit's log)
/// Rows: SF-198 (in part: before a dispatch)
#[test]
fn needs_userns_needs_git_a_hook_vetoes_the_dispatch_and_no_change_of_phase() {
    let hooks = "[pilot.hooks]\npre_dispatch = [\"tools/before.sh\"]\nphase_change = [\"tools/change.sh\"]\n";
    let dir = project("", &format!("{hooks}{GATE}"), SHORT);
    commit_script(dir.path(), "tools/change.sh", "exit 1\n");
    commit_script(
        dir.path(),
        "tools/before.sh",
        "echo '{\"decision\":\"block\",\"reason\":\"not on fridays\"}'\n",
    );
    let (script, asked) = right(ONE_TASK);
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        // Asked again at a later tick.
        until_rows(&scene, TASK, |rows| rows.len() >= 2).await;
        assert_eq!(
            (scene.status().await.state.as_str(), scene.unit(TASK).await.unit.attempt),
            ("running", 0)
        );
        commit_script(dir.path(), "tools/before.sh", "exit 3\n");
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "failed", "{status:#?}");
        let why = "the hook pre_dispatch for task/m1/s1/t1 has failed: it has ended with 3";
        assert!(status.warnings.iter().any(|warning| warning == why), "{:?}", status.warnings);
        assert_eq!((runs(&scene, TASK).len(), asked.load(Ordering::SeqCst)), (0, 0));
        commit_script(dir.path(), "tools/before.sh", "echo '{\"decision\":\"allow\"}'\n");
        let status = scene.run().await;
        assert_eq!(status.state, "complete", "{status:#?}");
        assert!(status.warnings.is_empty(), "{:?}", status.warnings);
    });
    let rows = hook_runs(&scene, TASK);
    assert_eq!((rows[0].outcome.as_str(), rows[0].reason.as_str()), ("blocked", "not on fridays"));
    let changes: Vec<&str> =
        rows.iter().filter(|row| row.hook == "phase_change").map(|row| row.outcome.as_str()).collect();
    assert_eq!(changes, ["failed", "failed"], "execute to verify, and verify to complete");
    assert_eq!(ends(&scene, TASK), ["execute success", "verify success"]);
    scene.end();
}

/// The hooks after a run read its result, run one after another, and hold every dispatch until all of them have ended.
///
/// Rows: SF-195 SF-196 SF-197
/// Rows: SF-212 (in part: listed scripts run in their order)
#[test]
fn needs_userns_needs_git_nothing_is_handed_out_while_hooks_after_a_run_run() {
    let hooks = "[pilot.hooks]\npost_unit = [\"tools/deaf.sh\", \"tools/read.sh\"]\n";
    let dir = project("", &format!("{hooks}{THERE}"), SHORT);
    commit_script(dir.path(), "tools/deaf.sh", "exit 0\n");
    commit_script(dir.path(), "tools/read.sh", "cat\n");
    let (script, _) = right(TWO_SLICES);
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    let units = [TASK, SLICE, OTHER_TASK, "slice/m1/s2"];
    let starts: Vec<i64> =
        units.iter().flat_map(|id| runs(&scene, id)).map(|run| run.started_at.as_millis()).collect();
    for id in units {
        let rows = hook_runs(&scene, id);
        assert_eq!(rows.len(), 2 * runs(&scene, id).len(), "{id}: after each run");
        for pair in rows.chunks(2) {
            let scripts: Vec<&str> = pair.iter().map(|row| row.script.as_str()).collect();
            assert_eq!(scripts, ["tools/deaf.sh", "tools/read.sh"]);
            assert!(pair.iter().all(|row| row.outcome == "passed"), "{pair:#?}");
            assert!(pair[0].ended_at <= pair[1].began_at, "{pair:#?}");
            let (from, until) = (pair[0].began_at.as_millis(), pair[1].ended_at.as_millis());
            assert!(!starts.iter().any(|start| from < *start && *start < until), "{pair:#?}, {starts:?}");
        }
    }
    let read = hook_runs(&scene, TASK).into_iter().find(|row| row.script == "tools/read.sh").expect("ran");
    let about: Value = serde_json::from_str(&read.output).expect("is JSON");
    let run = &runs(&scene, TASK)[0];
    let expected = json!({
        "unit": { "id": TASK, "type": "task" },
        "run_id": run.id.to_string(),
        "phase": "execute",
        "verdict": "success",
        "worker_host": "local",
        "error": null,
        "learnings": [],
        "attempt": 1,
    });
    for (name, value) in expected.as_object().expect("an object").iter().filter(|(name, _)| *name != "unit") {
        assert_eq!(&about[name], value, "{name}: {about}");
    }
    assert_eq!((&about["unit"]["id"], &about["unit"]["type"]), (&json!(TASK), &json!("task")));
    let end = run.end.as_ref().expect("has ended");
    for (name, value) in [
        ("input_tokens", end.input.get()),
        ("output_tokens", end.output.get()),
        ("cost_micro_usd", end.cost.get()),
    ] {
        assert_eq!(about[name], json!(value), "{name}");
    }
    for name in ["duration_ms", "cache_hits"] {
        assert!(about[name].is_u64(), "{name}: {about}");
    }
    assert!(
        about["cost_usd"].is_string()
            && about["model"].as_str().is_some_and(|model| model.starts_with("test/"))
    );
    scene.end();
}

/// A hook fails while another attempt runs. A person mends it and starts the loop again before that attempt has ended: then it goes on.
#[test]
fn needs_userns_needs_git_a_start_before_the_last_attempt_ends_counts() {
    let rest = "[pilot.hooks]\npost_unit = [\"tools/after.sh\"]\n\n[[gate]]\nname = \"there\"\nrun = [\"test\", \"-f\", \"package.json\"]\n";
    let dir = project("", rest, SHORT);
    commit_script(dir.path(), "tools/after.sh", "exit 1\n");
    let (both, mended) = (ReplyGate::new(), ReplyGate::new());
    let (gate, mut held) = (mended.clone(), false);
    let script = coder(TWO_SLICES, move |_, asked| match (asked.has_results, asked.name.as_str()) {
        (true, _) => done(),
        (false, "mul") if !held => {
            held = true;
            both.open();
            writes("mul", "a + b").with_fault(ReplyFault::SlowFirstByte(gate.clone()))
        }
        // Not before the other is at work.
        (false, "add") => writes("add", "a + b").with_fault(ReplyFault::SlowFirstByte(both.clone())),
        (false, name) => writes(name, "a + b"),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        let status = loop {
            let status = scene.status().await;
            if status.warnings.iter().any(|warning| warning.contains("the hook post_unit for ")) {
                break status;
            }
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        };
        assert_eq!(status.state, "running", "an attempt is at work");
        commit_script(dir.path(), "tools/after.sh", "exit 0\n");
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        mended.open();
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    scene.end();
}

/// A hook after a run that hangs is ended at its limit, and holds nothing up after that; one that fails ends the session, and the
/// result of the run stays.
///
/// Rows: SF-198 (in part: after a run) SF-200 (in part: a limit of the settings)
/// Rows: SF-201 (in part: the end and the next dispatch)
#[test]
fn needs_userns_needs_git_a_hook_after_a_run_may_hang_but_not_fail() {
    let hooks =
        "[pilot.hooks]\npost_unit = [\"tools/after.sh\"]\n[pilot.hooks.timeouts]\npost_unit = \"5s\"\n";
    let dir = project("", &format!("{hooks}{GATE}"), SHORT);
    commit_script(dir.path(), "tools/after.sh", "sleep 600 & sleep 600\n");
    let (script, _) = right(ONE_TASK);
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        until_rows(&scene, TASK, |rows| !rows.is_empty()).await;
        commit_script(dir.path(), "tools/after.sh", "exit 1\n");
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "failed", "{status:#?}");
        assert!(
            status.warnings.iter().any(|warning| warning.contains("the hook post_unit for ")),
            "{status:#?}"
        );
        commit_script(dir.path(), "tools/after.sh", "exit 0\n");
        assert_eq!(scene.run().await.state, "complete");
    });
    let rows = hook_runs(&scene, TASK);
    assert_eq!(rows[0].outcome, "timed_out");
    assert!(rows[0].reason.contains("after 5 s"), "{rows:#?}");
    assert_eq!(ends(&scene, TASK), ["execute success", "verify success"]);
    scene.end();
}

/// An attempt whose model does not answer at all has not begun: its run says so, has used nothing, and its hook runs all the same. One that
/// fails after an answer is a turn that has failed.
///
/// Rows: SF-148 (in part: a model that is dead) SF-482 (in part: agent_session_startup and turn_failed)
#[test]
fn needs_userns_needs_git_a_model_that_is_dead_ends_the_attempt_and_runs_its_hook() {
    let dir = project("", &format!("[pilot.hooks]\nafter_run = [\"tools/after.sh\"]\n{GATE}"), SHORT);
    commit_script(dir.path(), "tools/after.sh", "exit 1\n");
    let dead = || done().with_fault(ReplyFault::Status { status: 400, retry_after: None });
    let script = coder(ONE_TASK, move |tries, asked| match (tries, asked.has_results) {
        (1, _) | (2, true) => dead(),
        (_, false) => writes("add", "a + b"),
        (_, true) => done(),
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
    });
    let ends = ends(&scene, TASK);
    let failed = ["execute failure agent_session_startup", "execute failure turn_failed"];
    assert_eq!(ends, [failed[0], failed[1], "execute success", "verify success"]);
    let first = runs(&scene, TASK)[0].end.clone().expect("it has ended");
    assert_eq!((first.input.get(), first.output.get(), first.cost.get()), (0, 0, 0), "no turn is counted");
    let after: Vec<String> = hook_runs(&scene, TASK).iter().map(|run| run.outcome.clone()).collect();
    assert_eq!(after, ["failed", "failed", "failed", "failed"], "after each attempt, and it changes none");
    scene.end();
}

/// A reply that ends with a question is answered by the settings: the next turn reads that no one is there, or the attempt has failed
/// and is tried again after its pause.
///
/// Rows: SF-163 (in part: a reply that ends with a question) SF-164 (in part: a reply that ends with a question)
#[test]
fn needs_userns_needs_git_a_question_is_answered_by_the_settings() {
    let well = ["execute success", "verify success"];
    let failed = ["execute failure turn_input_required", well[0], well[1]];
    for (mode, expected) in [("soft", &well[..]), ("hard", &failed)] {
        let dir = project(&format!("turn_input_required = \"{mode}\""), GATE, SHORT);
        let prompts = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&prompts);
        let script = coder(ONE_TASK, move |tries, asked| {
            if !asked.has_results {
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(asked.prompt());
            }
            match (tries, asked.has_results) {
                (1, _) => Reply::text("I have looked.\nWhich sum is meant?"),
                (_, true) => done(),
                (_, false) => writes("add", "a + b"),
            }
        });
        let scene = scene(dir.path(), TestEngine::new("", |_| script));
        scene.engine.runtime.block_on(async {
            assert_eq!(first_run(&scene).await.state, "complete");
        });
        assert_eq!(ends(&scene, TASK), expected, "{mode}");
        let prompts = prompts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert_eq!(prompts.len(), 2, "{mode}");
        let told = "This is a non-interactive session. Operator input is unavailable.";
        assert!(!prompts[0].contains(told) && prompts[1].contains(told), "{mode}: {}", prompts[1]);
        scene.end();
    }
}

/// A model that is refused three times in a row is passed over, also after a restart; with all of them no call is made. After a day it
/// is tried once more, and a person's order has it asked at once.
///
/// Rows: SF-188 SF-350 SF-554
/// Rows: SF-187 (in part: all of a tier are open after a restart) SF-483 (in part: circuit_open)
#[test]
fn needs_userns_needs_git_a_model_that_fails_in_a_row_is_passed_over() {
    let tiers = format!("[tiers.standard]\nmodels = [\"test/plain\", \"test/spare\"]\n{GATE}");
    let dir = project("max_attempts = 50\nescalate_after = 90\nmax_dispatches = 200", &tiers, SHORT);
    let (broken, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(Vec::new())));
    let (is_broken, models) = (Arc::clone(&broken), Arc::clone(&asked));
    let mut inner =
        coder(ONE_TASK, |_, asked| if asked.has_results { done() } else { writes(&asked.name, "a + b") });
    let script = move |request: &ParsedRequest| {
        let is_work = request.messages.iter().any(|message| message.text.contains("# Work"));
        if is_work {
            models.lock().unwrap_or_else(PoisonError::into_inner).push(request.model.clone());
        }
        let reply = inner(request);
        if is_work && is_broken.load(Ordering::SeqCst) {
            return reply.with_fault(ReplyFault::Status { status: 400, retry_after: None });
        }
        reply
    };
    let roles =
        [(ModelRole::Executor, "usual"), (ModelRole::Scorer, "plain"), (ModelRole::Observer, "spare")];
    let scene = scene(dir.path(), TestEngine::with_roles(&roles, |_| script));
    let open = |status: &PilotStatus| -> Vec<String> {
        let open = status.circuits.iter().filter(|one| one.state == "open");
        open.map(|one| one.model.clone()).collect()
    };
    let count = || asked.lock().unwrap_or_else(PoisonError::into_inner).len();
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "paused", "{status:#?}");
        let open = open(&status);
        assert!(
            open.contains(&"test/plain".to_owned()) && open.contains(&"test/spare".to_owned()),
            "{status:#?}"
        );
        let plain = status.circuits.iter().find(|one| one.model == "test/plain").expect("is listed");
        assert_eq!((plain.failures, plain.tier.as_str()), (3, "standard"), "{plain:#?}");
        let day = plain.resets_at.zip(plain.tripped_at).map(|(until, at)| until.time_since(at).as_secs());
        assert_eq!(day, Some(24 * 3_600));
        let ends = ends(&scene, TASK);
        assert_eq!(ends.last().map(String::as_str), Some("execute interrupted circuit_open"), "{ends:?}");
        let tried = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let of = |model: &str| tried.iter().filter(|one| *one == model).count();
        assert_eq!((of("plain"), of("spare")), (3, 3), "{tried:?}");
    });
    let before = count();
    let scene = scene.restarted();
    scene.engine.runtime.block_on(async {
        let status = scene.status().await;
        assert!(open(&status).contains(&"test/plain".to_owned()), "{status:#?}");
        assert_eq!(open(&status).len(), status.circuits.len(), "{status:#?}");
        scene.order(TASK, "resume", "").await;
        let status = scene.end_of_loop().await;
        assert_eq!((status.state.as_str(), count()), ("paused", before), "no call is made");
        // Half open: one more failure of each opens it again.
        scene.engine.clock.go_on(Duration::from_secs(24 * 3_600 - 600));
        assert!(scene.status().await.circuits.iter().all(|one| one.state == "open"));
        scene.engine.clock.go_on(Duration::from_secs(600));
        assert!(scene.status().await.circuits.iter().all(|one| one.state == "half-open"));
        scene.order(TASK, "resume", "").await;
        let status = scene.end_of_loop().await;
        assert_eq!(status.state, "paused", "{status:#?}");
        let plain = status.circuits.iter().find(|one| one.model == "test/plain").expect("is listed");
        assert_eq!((plain.failures, plain.state.as_str()), (4, "open"), "{plain:#?}");
        broken.store(false, Ordering::SeqCst);
        let reset: PilotCircuitsReset = scene.ask("pilot.reset_circuits", json!({})).await;
        assert!(reset.reset.iter().any(|one| one.model == "test/plain"), "{reset:#?}");
        assert!(scene.status().await.circuits.is_empty());
        let again: PilotCircuitsReset = scene.ask("pilot.reset_circuits", json!({})).await;
        assert!(again.reset.is_empty());
        scene.order(TASK, "resume", "").await;
        assert_eq!(scene.end_of_loop().await.state, "complete");
        let last = asked.lock().unwrap_or_else(PoisonError::into_inner).last().cloned();
        assert_eq!(last.as_deref(), Some("plain"), "the first of its list again");
    });
    scene.end();
}
