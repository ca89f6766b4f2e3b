//! A sandboxed command, cold, against bare `bwrap` with the same recipe.

use anyhow::Result;

use super::stats::in_turn;
use super::{Bench, Row};
use crate::process::{self, Program};

const WHAT: &str = "sandbox exec, cold";
/// The whole run is not to take longer than bare `bwrap`.
const TARGET: f64 = 1.0;

/// The recipe of the native sandbox in the words of `bwrap`: every namespace, an own root of
/// read-only binds, fresh `/proc` and `/dev`, no capabilities, an empty environment.
const RECIPE: &[&str] = &[
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
    "--hostname",
    "sandbox",
    "--cap-drop",
    "ALL",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "--tmpfs",
    "/work",
    "--chdir",
    "/work",
    "/usr/bin/true",
];

/// Measures `writ sandbox exec -- true` against it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    if !process::exists("bwrap") {
        return Ok(vec![Row::not_run(WHAT, "bwrap is not installed")]);
    }
    let bare = Program::new("bwrap", RECIPE).output()?;
    if !bare.success {
        return Ok(vec![Row::not_run(WHAT, format!("bwrap: {}", bare.stderr.trim()))]);
    }
    let home = bench.scratch.path().join("home");
    let own = || Program::new(&bench.writ, &["sandbox", "exec", "--", "true"]).env("WRIT_HOME", &home);
    let first = own().output()?;
    if !first.success {
        let reason = first.stderr.lines().next().unwrap_or("it failed and said nothing").to_owned();
        return Ok(vec![Row::not_run(WHAT, format!("writ sandbox exec: {reason}"))]);
    }
    let (own, base) = in_turn(bench.rounds, || own().timed(), || Program::new("bwrap", RECIPE).timed())?;
    Ok(vec![Row::ratio(WHAT, own, ("bwrap", base), TARGET)])
}
