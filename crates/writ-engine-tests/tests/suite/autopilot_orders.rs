//! Orders of a person, decisions and crashes: what each leaves behind, and what goes on after it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use writ_models::ModelRole;
use writ_store::batch::{Batch, Op};
use writ_store::units::{PilotBlocker, UnitOp};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::api::pilot::PilotSessionEnded;
use writ_types::id::BlockerId;

use crate::autopilot::{Scene, git};
use crate::autopilot_hooks::{commit_script, hook_runs};
use crate::autopilot_limits::{GATE, ONE_TASK, SHORT, TASK, coder, done, first_run, project, scene, writes};
use crate::autopilot_phases::{abandons, escalates, hear, team};
use crate::harness::TestEngine;

/// The note of a gate that has failed too often, as the store has it: the time and the name of what has resolved it.
fn resolution_of(scene: &Scene, event: &str) -> Vec<(Option<i64>, Option<String>)> {
    let database = rusqlite::Connection::open(scene.engine.folder().join("writ.db")).expect("opens");
    let sql = "SELECT resolved_at, resolved_by FROM pilot_blocker WHERE event = ?1 AND unit = ?2";
    let mut rows = database.prepare(sql).expect("prepares");
    let found = rows.query_map([event, TASK], |row| Ok((row.get(0)?, row.get(1)?))).expect("reads");
    found.map(|row| row.expect("a row")).collect()
}

/// What holds a unit up is removed once, by its unit, and the row says by which command and when. A second order, or one about a
/// unit that is not there, is refused and changes nothing.
///
/// Rows: SF-556
#[test]
fn needs_userns_needs_git_a_blocker_is_cleared_by_command_once() {
    let dir = project("", &format!("{GATE}max_retries = 1\n"), SHORT);
    let mut decisions = 0;
    let script = team(ONE_TASK, move |heard| {
        if heard.part != "Decision" {
            return writes("add", "a - b");
        }
        decisions += 1;
        if decisions == 1 { escalates() } else { abandons() }
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        let events = |status: &writ_types::api::pilot::PilotStatus| -> Vec<String> {
            let mut all: Vec<String> = status.blockers.iter().map(|one| one.event.clone()).collect();
            all.sort();
            all
        };
        assert_eq!(events(&status), ["GateBlocked", "Paused"], "{status:#?}");
        assert_eq!(resolution_of(&scene, "GateBlocked"), [(None, None)]);
        scene.order(TASK, "force_clear", "").await;
        assert_eq!(events(&scene.end_of_loop().await), ["Paused"]);
        let resolved = resolution_of(&scene, "GateBlocked");
        let [(Some(_), Some(by))] = &resolved[..] else { panic!("it is resolved: {resolved:?}") };
        assert_eq!(by, "force-clear");
        for (unit, code) in [(TASK, "pilot.nothing_to_resolve"), ("task/m9/s9/t9", "pilot.no_unit")] {
            let order = json!({ "project": scene.project, "unit": unit, "order": "force_clear" });
            let refused = scene.engine.call("pilot.order", order).await.expect_err("refused");
            assert_eq!(refused.code, code, "{refused:?}");
        }
        assert_eq!(resolution_of(&scene, "GateBlocked"), resolved);
        scene.order(TASK, "resume", "the sum of both").await;
        let status = scene.end_of_loop().await;
        assert!(!events(&status).contains(&"GateBlocked".to_owned()), "{status:#?}");
        assert!(!status.blockers.iter().any(|one| one.unit == TASK), "{status:#?}");
    });
    scene.end();
}

/// A decision is asked of the first model of the tier `reasoning`, with reasoning. A setting gives it another tier, and none takes its
/// reasoning away: one that would is refused by its name.
///
/// Rows: SF-100
#[test]
fn needs_userns_needs_git_a_decision_always_reasons() {
    let tiers = "[tiers.fast]\nmodels = [\"test/quick\"]\n[tiers.standard]\nmodels = [\"test/plain\"]\n[tiers.reasoning]\nmodels = [\"test/deep\"]\n";
    let dir = project("", &format!("{tiers}{GATE}"), SHORT);
    let settings = dir.path().join(".writ/pilot.toml");
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&asked);
    let script = move |request: &ParsedRequest| {
        let heard = hear(request);
        if heard.part == "Goal" {
            return Reply::text(ONE_TASK);
        }
        let effort = request.raw.get("reasoning_effort").and_then(serde_json::Value::as_str);
        let line = format!("{} {} {}", heard.part, heard.model, effort.unwrap_or("-"));
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        match heard.part.as_str() {
            "Decision" => abandons(),
            _ => Reply::text("It is not known.\n<turn_status>giving_up</turn_status>"),
        }
    };
    let roles = [
        (ModelRole::Executor, "usual"),
        (ModelRole::Scorer, "plain"),
        (ModelRole::Oracle, "deep"),
        (ModelRole::Quarantine, "quick"),
    ];
    let scene = scene(dir.path(), TestEngine::with_roles(&roles, |_| script));
    let take = || {
        let mut lines = std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
        lines.sort();
        lines.dedup();
        lines
    };
    let usual = std::fs::read_to_string(&settings).expect("reads");
    scene.engine.runtime.block_on(async {
        first_run(&scene).await;
        assert_eq!(take(), ["Decision deep medium", "Work plain -"]);
        std::fs::write(&settings, format!("{usual}\n[routing]\nreassess = \"fast\"\n")).expect("written");
        first_run(&scene).await;
        assert_eq!(take(), ["Decision quick medium", "Work plain -"]);
        for (key, text) in [
            ("thinking", "[routing]\nthinking = false\n"),
            ("reasoning", "[tiers.reasoning]\nmodels = [\"test/deep\"]\nreasoning = false\n"),
        ] {
            let wrong = writ_pilot::config::read_config(&[("pilot.toml", text)]);
            let refused = wrong.expect_err("there is no such key").to_string();
            assert!(refused.contains(key), "{refused}");
        }
    });
    scene.end();
}

/// The workspace of an attempt that a crash has cut off stays, and the next attempt works in it: what lies there is there, it is not
/// made anew, and the work ends merged with it. Nothing is set back.
///
/// Rows: SF-114
/// Rows: SF-113 (in part: the recovery takes nothing back, and the next attempt reads that it goes on)
#[test]
fn needs_userns_needs_git_the_workspace_of_a_crashed_attempt_is_used_again() {
    let hooks = "[pilot.hooks]\nafter_create = [\"tools/note.sh\"]\nbefore_run = [\"tools/note.sh\"]\n";
    let dir = project("", &format!("{hooks}{GATE}"), SHORT);
    commit_script(
        dir.path(),
        "tools/note.sh",
        "#!/bin/sh\ncat >/dev/null\ntest -f left.txt && echo \"it is there\"\nexit 0\n",
    );
    let (never, prompts) = (ReplyGate::new(), Arc::new(Mutex::new(Vec::new())));
    let (held, noted) = (never.clone(), Arc::clone(&prompts));
    let script = coder(ONE_TASK, move |tries, asked| {
        if asked.has_results {
            return done();
        }
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(asked.prompt());
        let reply = writes("add", "a + b");
        if tries == 1 { reply.with_fault(ReplyFault::SlowFirstByte(held.clone())) } else { reply }
    });
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let workspace = dir.path().join(".writ/workspaces/slice_m1_s1");
    scene.engine.runtime.block_on(async {
        let planned = scene.plan("a library of sums").await;
        scene.approve(&planned.ask).await;
        scene.engine.call("pilot.run", scene.params()).await.expect("runs");
        while scene.engine.server.connections_waiting() == 0 {
            scene.engine.clock.wait_until_moved(scene.engine.clock.now()).await;
        }
    });
    let commits = git(dir.path(), &["rev-list", "--all"]);
    std::fs::write(workspace.join("left.txt"), "of the attempt before\n").expect("written");
    let scene = scene.restarted();
    let status = scene.engine.runtime.block_on(scene.end_of_loop());
    assert_eq!(status.state, "complete", "{status:#?}");
    let of_task: Vec<(String, String)> = hook_runs(&scene, TASK)
        .into_iter()
        .filter(|run| run.attempt <= 2)
        .map(|run| (format!("{} {}", run.attempt, run.hook), run.output.trim().to_owned()))
        .collect();
    let expected = [("1 after_create", ""), ("1 before_run", ""), ("2 before_run", "it is there")];
    assert_eq!(of_task, expected.map(|(run, output)| (run.to_owned(), output.to_owned())));
    let last = prompts.lock().unwrap_or_else(PoisonError::into_inner).last().cloned().unwrap_or_default();
    assert!(
        last.contains("resumed_after_crash") && last.contains("go on from the files as they are"),
        "{last}"
    );
    assert_eq!(git(dir.path(), &["show", "main:left.txt"]), "of the attempt before\n");
    let now = git(dir.path(), &["rev-list", "--all"]);
    assert!(commits.lines().all(|commit| now.contains(commit)), "no commit is gone");
    let reverts = git(dir.path(), &["log", "--all", "--grep=^Revert", "--format=%s"]);
    assert_eq!(reverts, "");
    never.open();
    scene.end();
}

/// A blocker that stands in the store is in the status at once, with its words; one that is resolved is not.
///
/// Rows: SF-045 (in part: the status, from the store alone; a view looks twice a second and is not woken)
#[test]
fn needs_userns_needs_git_a_status_lists_what_is_open_and_nothing_else() {
    let dir = project("", GATE, SHORT);
    let scene = scene(dir.path(), TestEngine::new("", |_| coder(ONE_TASK, |_, _| done())));
    scene.engine.runtime.block_on(async {
        scene.plan("a library of sums").await;
        let status = scene.status().await;
        assert_eq!(status.blockers, []);
        let (session, now) = (status.session, scene.engine.clock.now());
        let raise = |n: u128, event: &str, words: &str| {
            Op::Units(UnitOp::Raise(Box::new(PilotBlocker {
                id: BlockerId::from_parts(now, n),
                session,
                event: event.to_owned(),
                unit: TASK.to_owned(),
                detail: words.to_owned(),
                created_at: now,
            })))
        };
        let raised = vec![raise(1, "GateBlocked", "the gate has failed"), raise(2, "UATPending", "it waits")];
        scene.engine.store.commit(Batch::synced(raised)).await.expect("written");
        let open = async || -> Vec<(String, String, String)> {
            let blockers = scene.status().await.blockers.into_iter();
            blockers.map(|one| (one.event, one.unit, one.detail)).collect()
        };
        let line = |event: &str, words: &str| (event.to_owned(), TASK.to_owned(), words.to_owned());
        let (gate, acceptance) = (line("GateBlocked", "the gate has failed"), line("UATPending", "it waits"));
        assert_eq!(open().await, [gate, acceptance.clone()]);
        let resolve = UnitOp::Resolve {
            session,
            event: "GateBlocked".to_owned(),
            unit: TASK.to_owned(),
            by: "auto".to_owned(),
            at: now,
        };
        scene.engine.store.commit(Batch::synced(vec![Op::Units(resolve)])).await.expect("written");
        assert_eq!(open().await, [acceptance]);
    });
    scene.end();
}

/// A session ends by an order, where nothing is open in it, and once nothing was done for 30 days: the next work is done in another one.
/// Until then it goes on, and a look begins none.
///
/// Rows: SF-024
#[test]
fn needs_userns_needs_git_a_session_ends_by_an_order_or_after_thirty_days() {
    let dir = project("", GATE, SHORT);
    let mut goals = 0;
    let mut work = coder(ONE_TASK, |_, asked| match asked.has_results {
        true => done(),
        // Another text for each goal, so that something is to be merged.
        false => {
            writes("add", &format!("a + b + {} * 0", asked.unit.replace(['/', 't', 's', 'm', 'a', 'k'], "")))
        }
    });
    let script = move |request: &ParsedRequest| {
        if hear(request).part == "Goal" {
            goals += 1;
            return Reply::text(&ONE_TASK.replace("m1", &format!("m{goals}")));
        }
        work(request)
    };
    let scene = scene(dir.path(), TestEngine::new("", |_| script));
    let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
    scene.engine.runtime.block_on(async {
        let status = first_run(&scene).await;
        assert_eq!(status.state, "complete", "{status:#?}");
        let first = status.session;
        let ended: PilotSessionEnded = scene.ask("pilot.end_session", json!({})).await;
        assert_eq!(ended.ended, first);
        assert_ne!(ended.session, first);
        let planned = scene.plan("another one").await;
        let status = scene.status().await;
        assert_eq!(status.session, ended.session, "the next work is done in it");
        let refused =
            scene.engine.call("pilot.end_session", scene.params()).await.expect_err("it is at work");
        assert_eq!(refused.code, "pilot.session_open");
        scene.approve(&planned.ask).await;
        assert_eq!(scene.run().await.state, "complete");
        scene.engine.clock.go_on(hours(30 * 24 - 1));
        let planned = scene.plan("a third one").await;
        assert_eq!(scene.status().await.session, ended.session, "29 days and 23 hours");
        scene.approve(&planned.ask).await;
        assert_eq!(scene.run().await.state, "complete");
        scene.engine.clock.go_on(hours(30 * 24) + Duration::from_secs(1));
        assert_eq!(scene.status().await.session, ended.session, "a look begins none");
        scene.plan("a fourth one").await;
        let session = scene.status().await.session;
        assert!(session != ended.session && session != first, "{session}");
    });
    scene.end();
}
