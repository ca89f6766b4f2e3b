//! The autopilot of the built binary.

use crate::bad_input::LOOPBACK_ALONE;
use crate::{Home, code, text};

#[path = "pilot/commands.rs"]
mod commands;

#[path = "pilot/kills.rs"]
mod kills;

#[path = "pilot/starts.rs"]
mod starts;

#[path = "pilot/steering.rs"]
mod steering;

#[path = "pilot/team.rs"]
mod team;

#[path = "pilot/victim.rs"]
mod victim;

#[path = "pilot/seen.rs"]
mod seen;

#[path = "pilot/watched.rs"]
mod watched;

/// The demo of the autopilot: a goal, three tasks, one wrong try, one finding of a review, merged, and every line is checked by
/// the demo itself. It runs where there is no network but the loopback device, on which the demo serves its own model: units come from
/// the home's store alone, and no tracker can be named.
///
/// Rows: SF-063
/// Rows: SF-122 (in part: a whole run, without a count of looks)
#[test]
#[expect(clippy::disallowed_types, reason = "a namespace of its own, without a network")]
fn needs_userns_needs_git_needs_python_the_demo_of_the_autopilot_needs_no_network() {
    let own = Home::ready();
    let config = own.root().join("config.toml");
    let before = std::fs::read_to_string(&config).unwrap_or_default();
    for kind in ["linear", "jira", "github"] {
        std::fs::write(&config, format!("{before}\n[tracker]\nkind = \"{kind}\"\n")).expect("written");
        let checked = own.run(&["config", "check"]);
        assert!(code(&checked) == 3 && text(&checked).contains("'tracker'"), "{}", text(&checked));
    }
    let home = Home::new().in_processes();
    let shown = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "python3", "-c", LOOPBACK_ALONE])
        .args([env!("CARGO_BIN_EXE_writ"), "demo", "--pilot", "--yes"])
        .env("HOME", home.dir.path())
        .env("WRIT_HOME", home.root())
        .env("TMPDIR", home.dir.path())
        .envs(home.env.iter().map(|(name, value)| (name, value)))
        .current_dir(home.dir.path())
        .stdin(std::process::Stdio::null())
        .output()
        .expect("unshare starts");
    let said = text(&shown);
    assert_eq!(code(&shown), 0, "{said}");
    for line in [
        "approved: ask ",
        "task/m1/s1/t2: verify -> execute",
        "slice/m1/s1: review -> execute",
        "slice/m1/s1 is in main",
        "its tests pass on main",
        "ledger verified",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
}
