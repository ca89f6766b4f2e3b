//! Measures a turn without its model: everything durable, with a model that answers at once.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Bench;
use super::commit::Raw;
use super::engine::{Engine, Turn};
use super::row::{Percentile, Row};
use super::stats::{in_turn, shown};

/// The most that a turn may take beside its synced commits (design 5).
const OVERHEAD: Duration = Duration::from_millis(2);
/// Synced commits of a turn without tools: the message, and the reply.
const COMMITS: u32 = 2;
/// Tools and their numbers of calls. `memory_store` needs no sandbox, so its turns are overhead alone;
/// `file_write` is performed by a worker in the sandbox, and its time is included.
const CASES: [(&str, &str, u32); 5] = [
    ("turn, no tool", "talk", 0),
    ("turn, 1 memory_store", "memory_store", 1),
    ("turn, 4 memory_store", "memory_store", 4),
    ("turn, 1 file_write (sandbox)", "file_write", 1),
    ("turn, 4 file_write (sandbox)", "file_write", 4),
];

/// Measures turns against raw synced commits, in turn with them.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let engine = Engine::start(bench, "turns")?;
    let mut raw = Raw::open(bench)?;
    let mut rows = Vec::new();
    for (what, tool, tools) in CASES {
        let mut link = engine.connect()?;
        link.open_session()?;
        // Opens what a session opens at its first use.
        if let Err(error) = tools_done(&link.turn(&format!("{tool} {tools} first"))?, tools) {
            rows.push(Row::not_run(what, error.to_string()));
            continue;
        }
        let mut round = 0_u32;
        let turn = || {
            round += 1;
            let turn = link.turn(&format!("{tool} {tools} {round}"))?;
            tools_done(&turn, tools)?;
            Ok(turn.took)
        };
        let (own, base) = in_turn(bench.rounds, turn, || raw.commit())?;
        let target = OVERHEAD + base.p50() * (COMMITS + tools);
        let against = format!("2 ms + {} x raw commit ({})", COMMITS + tools, shown(base.p50()));
        rows.push(Row::limit(what, own, (Percentile::P50, target), against));
    }
    Ok(rows)
}

fn tools_done(turn: &Turn, tools: u32) -> Result<()> {
    ensure!(turn.tools_done == tools, "{} of {tools} tools were done", turn.tools_done);
    Ok(())
}
