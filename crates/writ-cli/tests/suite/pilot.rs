//! The autopilot of the built binary.

use crate::{Home, code, text};

#[path = "pilot/commands.rs"]
mod commands;

#[path = "pilot/kills.rs"]
mod kills;

#[path = "pilot/starts.rs"]
mod starts;

#[path = "pilot/team.rs"]
mod team;

#[path = "pilot/victim.rs"]
mod victim;

#[path = "pilot/seen.rs"]
mod seen;

#[path = "pilot/watched.rs"]
mod watched;

/// The demo of the autopilot: a goal, three tasks, one wrong try, one finding of a review, merged, and every line is checked by
/// the demo itself.
#[test]
fn needs_userns_needs_git_the_demo_of_the_autopilot_ends_with_merged_work() {
    let mut home = Home::new().in_processes();
    let folder = home.dir.path().to_string_lossy().into_owned();
    home.env.push(("TMPDIR".to_owned(), folder));
    let shown = home.run(&["demo", "--pilot", "--yes"]);
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
