//! Starts of the autopilot: with settings that are wrong, and without a port for the server.

use std::net::TcpListener;

use serde_json::json;

use super::kills::KillScene;
use super::seen::find_files;
use super::victim::PilotVictim;
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
    assert!(scene.wait_for(1), "the work begins");
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
