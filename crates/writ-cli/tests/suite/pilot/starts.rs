//! Starts of the autopilot: with settings that are wrong, and without a port for the server.

use std::net::TcpListener;
use std::time::Instant;

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, ReplyFault, ReplyGate};

use super::kills::KillScene;
use super::seen::find_files;
use super::steering::MOST_WAITS;
use super::team::{answer, prompt_of};
use super::victim::PilotVictim;
use crate::engine::PATIENCE;
use crate::{code, text};

/// An engine that starts while a setting is wrong does not begin the work of an approved plan. The error names file, line, key and
/// reason, the command fails, and neither a lock nor a started unit is left. Once the setting is mended, the work begins.
///
/// Rows: SF-325
#[test]
fn needs_userns_needs_git_a_wrong_setting_ends_the_start_before_a_unit_is_dispatched() {
    let scene = KillScene::new();
    let settings = scene.project.join(".writ/pilot.toml");
    let right = std::fs::read_to_string(&settings).expect("reads");
    let planned = scene.begin_plan();
    while scene.wait_for(1) {}
    let before = scene.ask("pilot.status", json!({}));
    planned.stop();
    let wrong = right.replacen("[pilot]\n", "[pilot]\nunit_timeout = -1\n", 1);
    let line = 1 + wrong.lines().position(|line| line.starts_with("unit_timeout")).expect("is there");
    std::fs::write(&settings, wrong).expect("written");
    let engine = PilotVictim::start(&scene.bench.home).until_ready();
    for arguments in [&["auto"][..], &["auto", "--detach"]] {
        let refused = scene.run_pilot(arguments);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(code(&refused), 3, "{}", text(&refused));
        let place = format!(".writ/pilot.toml, line {line}");
        for part in [place.as_str(), "`pilot.unit_timeout`", "is not a time in quotes"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    assert!(!scene.wait_for(1), "no unit asks a model");
    std::fs::write(&settings, right).expect("written");
    let after = scene.ask("pilot.status", json!({}));
    assert_eq!((&after["units"], &after["state"]), (&before["units"], &before["state"]));
    let files = find_files(&scene.project);
    assert!(!files.iter().any(|file| file.extension().is_some_and(|kind| kind == "lock")), "{files:?}");
    assert_eq!(code(&scene.run_pilot(&["auto", "--detach"])), 0, "twin");
    assert!((0..MOST_WAITS).any(|_| scene.wait_for(1)), "the work begins");
    engine.kill(true);
}

/// The server's port is another program's: every unit completes, and one warning is logged.
///
/// Rows: SF-474
#[test]
fn needs_userns_needs_git_units_complete_while_another_program_has_the_port() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = taken.local_addr().expect("an address").port();
    let mut scene = KillScene::new();
    for (name, value) in
        [("WRIT_SERVER__ENABLED", "true".to_owned()), ("WRIT_SERVER__PORT", port.to_string())]
    {
        scene.bench.home.env.retain(|(known, _)| known != name);
        scene.bench.home.env.push((name.to_owned(), value));
    }
    let engine = scene.begin();
    scene.until_complete();
    let status = scene.ask("pilot.status", json!({}));
    let units = status["units"].as_array().expect("units");
    assert!(!units.is_empty() && units.iter().all(|unit| unit["status"] == "succeeded"), "{status:#}");
    let said = engine.said();
    assert_eq!(said.matches("another program listens on").count(), 1, "{said}");
    engine.stop();
}

/// The lines that the last run of the engine has logged.
fn last_run(scene: &KillScene) -> Vec<Value> {
    let log = std::fs::read_to_string(scene.bench.home.root().join("logs/writ.jsonl")).expect("reads");
    // A kill may have cut the last line of an earlier run.
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let run = lines.last().expect("a line")["run_id"].clone();
    lines.into_iter().filter(|line| line["run_id"] == run).collect()
}

/// The stages and units that lines of these messages name, in their order.
fn stages_of(lines: &[Value], messages: &[&str]) -> Vec<String> {
    let is_one = |line: &&Value| line["message"].as_str().is_some_and(|text| messages.contains(&text));
    let name = |line: &Value| {
        let name = line["stage"].as_str().or(line["unit"].as_str());
        name.expect("a stage or a unit").to_owned()
    };
    lines.iter().filter(is_one).map(name).collect()
}

const STEP_OF_START: &str = "a step of the start of an autopilot";
const STEP_OF_TICK: &str = "a step of a tick of the autopilot has ended";
const HANDED_OUT: &str = "a unit is handed out";

/// After a kill a start locks the repository, marks what ran as interrupted, cleans up what is over, goes on at the stored phases, and only
/// then looks at the units: nothing is handed out before, and what is over is archived and not handed out again. Each look has its order, too:
/// settings, what is ready, its order, and then the units that are handed out.
///
/// Rows: SF-109 SF-486
/// Rows: SF-119 (in part: up to the dispatch; attempts are looked at by tasks of their own, and a state is read when it is asked for)
#[test]
fn needs_userns_needs_git_a_start_after_a_kill_has_its_order() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let mut scene = KillScene::of_team(move |request: &ParsedRequest| {
        let reply = answer(request);
        // The second slice is at work when the first one is over.
        match prompt_of(request).0.contains("m1/s2") {
            true => reply.with_fault(ReplyFault::SlowFirstByte(held.clone())),
            false => reply,
        }
    });
    scene.bench.home.env.push(("WRIT_LOG__LEVEL".to_owned(), "debug".to_owned()));
    let engine = scene.begin();
    let until = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < until, "the first slice does not end");
        let slice = scene.ask("pilot.unit", json!({ "unit": "slice/m1/s1" }));
        if slice["unit"]["is_over"] == true {
            break;
        }
        // Woken by requests, and at the latest after two seconds.
        scene.wait_for(1);
    }
    engine.kill(true);
    let left = scene.project.join(".writ/active/slice_m1_s1");
    std::fs::create_dir_all(&left).expect("made");
    std::fs::write(left.join("plan.md"), "left by a crash").expect("written");
    gate.open();
    let engine = PilotVictim::start(&scene.bench.home).until_ready();
    scene.until_complete();
    assert!(!left.exists(), "it is in the archive");
    // Its last lines are written when it ends.
    engine.stop();
    let lines = last_run(&scene);
    assert_eq!(
        stages_of(&lines, &[STEP_OF_START]),
        ["lock", "mark_interrupted", "clean_up", "resume", "poll"]
    );
    let order = stages_of(&lines, &[STEP_OF_START, HANDED_OUT]);
    let first = order.iter().position(|name| name.contains('/')).expect("a unit is handed out");
    assert!(first >= 5, "after the whole start: {order:?}");
    assert!(!order.iter().any(|name| name.contains("m1/s1")), "what is over stays over: {order:?}");
    let ticks = stages_of(&lines, &[STEP_OF_TICK, HANDED_OUT]);
    let mut expected = ["settings", "fetch", "sort", "dispatch"].into_iter().cycle().peekable();
    for name in &ticks {
        if name.contains('/') {
            assert_eq!(
                expected.peek(),
                Some(&"dispatch"),
                "a unit is handed out in the last step: {ticks:?}"
            );
        } else {
            assert_eq!(Some(name.as_str()), expected.next(), "{ticks:?}");
        }
    }
}
