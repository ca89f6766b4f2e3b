//! One approval that eight want at once.

use anyhow::Result;

use super::Bench;
use super::commit;
use super::helper;
use super::row::Row;

/// Measures a race for an approval, until all have their answer, against one raw synced commit.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let folder = bench.scratch.path().join("approvals").display().to_string();
    let raw = commit::sample(bench)?;
    let all = helper::run(bench, &["approvals", &folder, "--rounds", &bench.rounds.to_string()])?;
    Ok(vec![Row::beside(
        "one approval, 8 racers",
        helper::find(&all, "raced")?.sample()?,
        ("raw commit", raw),
    )])
}
