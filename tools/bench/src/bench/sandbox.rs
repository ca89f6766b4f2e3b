//! A sandboxed command, cold and in a sandbox that was ready, against bare `bwrap` with the same recipe.
//!
//! The door and the ledger are part of it: each command is decided, its intent is synced before it runs and
//! its outcome is written after.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::Bench;
use super::engine::{Engine, Link};
use super::row::{Percentile, Row};
use super::stats::{in_turn, shown};
use task_process::Program;

/// By the command, with an engine that runs: a process, a connection, a new session, the sandbox.
const COMMAND: &str = "writ sandbox exec, cold";
/// Over an open connection, in a new session each time: what the command adds is left out.
const NEW_SESSION: &str = "sandbox.exec, new session";
/// Over an open connection, always in the same session: the sandbox, the door and the ledger alone.
const SAME_SESSION: &str = "sandbox.exec, same session";
/// The same, in a sandbox that was made before.
const POOLED: &str = "sandbox.exec, pooled";
/// By the command, in one that was made before.
const POOLED_COMMAND: &str = "writ sandbox exec, pooled";
/// The most that a command in a ready sandbox may take.
const POOLED_TARGET: Duration = Duration::from_millis(3);
/// The engine prepares no sandbox.
const NONE_READY: (&str, &str) = ("WRIT_SANDBOX__READY_MAX", "0");
/// The number of ready sandboxes at rest: only programs are run, and two sandboxes for them are made.
const AT_REST: u64 = 2;
/// The longest wait for the next ones.
const REFILL: Duration = Duration::from_secs(10);
/// The pause between two looks at them.
const LOOK_EVERY: Duration = Duration::from_millis(2);
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

/// Measures `true` in the sandbox, in three ways, against it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    if !task_process::exists("bwrap") {
        return Ok(vec![Row::not_run(COMMAND, "bwrap is not installed")]);
    }
    let bare = Program::new("bwrap", RECIPE).output()?;
    if !bare.success {
        return Ok(vec![Row::not_run(COMMAND, format!("bwrap: {}", bare.stderr.trim()))]);
    }
    let engine = Engine::with(bench, "sandbox", NONE_READY)?;
    let own = || engine.writ(&["sandbox", "exec", "--", "true"]);
    let first = own().output()?;
    if !first.success {
        let reason = first.stderr.lines().next().unwrap_or("it failed and said nothing").to_owned();
        return Ok(vec![Row::not_run(COMMAND, format!("writ sandbox exec: {reason}"))]);
    }
    let mut link = engine.connect()?;
    let session = link.open_session()?;
    let bwrap = || Program::new("bwrap", RECIPE).timed();
    let mut rows = Vec::new();
    let (own, base) = in_turn(bench.rounds, || own().timed(), bwrap)?;
    rows.push(Row::ratio(COMMAND, own, ("bwrap", base), TARGET));
    for (what, params) in [
        (NEW_SESSION, json!({ "argv": ["true"] })),
        (SAME_SESSION, json!({ "argv": ["true"], "session": session })),
    ] {
        let (own, base) = in_turn(bench.rounds, || exec(&mut link, &params), bwrap)?;
        rows.push(Row::ratio(what, own, ("bwrap", base), TARGET));
    }
    drop((link, engine));
    rows.extend(pooled(bench)?);
    Ok(rows)
}

/// The same in sandboxes that were ready. Neither it nor `bwrap` begins before the next ones are.
fn pooled(bench: &Bench) -> Result<Vec<Row>> {
    let engine = Engine::start(bench, "sandbox-pooled")?;
    let mut link = engine.connect()?;
    let params = json!({ "argv": ["true"], "session": link.open_session()? });
    let bwrap = || Program::new("bwrap", RECIPE).timed();
    exec(&mut link, &params)?;
    refilled(&mut link)?;
    let own = || {
        let took = exec(&mut link, &params)?;
        refilled(&mut link)?;
        Ok(took)
    };
    let (own, base) = in_turn(bench.rounds, own, bwrap)?;
    let against = format!("{:.2} x bwrap ({})", own.p50_ratio(&base), shown(base.p50()));
    let row = Row::limit(POOLED, own, (Percentile::P50, POOLED_TARGET), against);
    let own = || {
        let took = engine.writ(&["sandbox", "exec", "--", "true"]).timed()?;
        refilled(&mut link)?;
        Ok(took)
    };
    let (own, base) = in_turn(bench.rounds, own, bwrap)?;
    Ok(vec![row, Row::beside(POOLED_COMMAND, own, ("bwrap", base))])
}

/// Waits until as many are ready as there are at rest.
#[expect(clippy::disallowed_methods, reason = "an engine that is asked all the time makes them later")]
fn refilled(link: &mut Link) -> Result<()> {
    let start = Instant::now();
    while link.call("status", &json!({}))?.get("sandboxes_ready").and_then(Value::as_u64) != Some(AT_REST) {
        ensure!(start.elapsed() < REFILL, "no sandbox is made beforehand");
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Runs a command over a connection; how long that took.
fn exec(link: &mut Link, params: &Value) -> Result<Duration> {
    let start = Instant::now();
    let result = link.call("sandbox.exec", params)?;
    let took = start.elapsed();
    ensure!(result.get("exit_code").and_then(Value::as_i64) == Some(0), "the command failed: {result}");
    Ok(took)
}
