//! The search of memories by words and meaning, what a new memory is compared with, and the consolidation beside turns.

use std::time::Duration;

use anyhow::Result;
use task_process::{Program, target_directory, workspace_root};

use super::Bench;
use super::helper::{Measured, find, run_program};
use super::row::{Percentile, Row};

/// The numbers of memories, and the longest that a search of so many may take (the engine's issue, «Speed»). A million of
/// them are stored for some minutes.
const SEARCHES: [(u64, &str, Duration); 2] =
    [(100_000, "100,000", Duration::from_millis(20)), (1_000_000, "1,000,000", Duration::from_millis(80))];
/// The share of the true neighbours that the quantised passes must hold.
const RECALL: f64 = 0.98;
/// The longest that the consolidation of the fewer of them may take.
const CONSOLIDATION: Duration = Duration::from_secs(60);

/// Measures each number of memories in a database of its own.
pub(super) fn measure(_: &Bench) -> Result<Vec<Row>> {
    let root = workspace_root()?;
    let build = ["build", "--release", "--locked", "-p", "writ-memory", "--example", "retrieval"];
    anyhow::ensure!(Program::cargo(&build).directory(&root).status()?, "the release build failed");
    let program = target_directory(&root).join("release/examples/retrieval");
    let mut rows = Vec::new();
    for (count, named, target) in SEARCHES {
        let all = run_program(&program, &["--speed", &count.to_string(), "--lines"])?;
        let sample = |name: &str| find(&all, name).and_then(Measured::sample);
        let what = format!("hybrid search, {named} memories");
        rows.push(Row::limit(&what, sample("search")?, (Percentile::P50, target), String::new()));
        // In millionths.
        let share = find(&all, "recall")?.rows() as f64 / 1e6;
        rows.push(Row::share(&format!("its ten nearest, {named}"), (share, RECALL), "exact".to_owned()));
        rows.push(Row::base(&format!("new memory among {named}: compared"), sample("comparison")?));
        let consolidation = sample("consolidation")?;
        let what = format!("consolidation, {named} memories");
        rows.push(if count == SEARCHES[0].0 {
            Row::limit(&what, consolidation, (Percentile::P99, CONSOLIDATION), String::new())
        } else {
            Row::base(&what, consolidation)
        });
        rows.push(Row::base(&format!("meanwhile: store and search, {named}"), sample("meanwhile")?));
    }
    Ok(rows)
}
