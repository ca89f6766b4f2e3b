//! The ledger: durable appends, grouped by the writer, and verifying them.

use anyhow::Result;

use super::Bench;
use super::commit;
use super::helper;
use super::row::Row;
use super::stats::shown;

/// Durable appends in a second (design 5).
const APPENDS: f64 = 10_000.0;
/// Rows verified in a second (design 5).
const VERIFIED: f64 = 200_000.0;
/// Entries for each round: 50,000 with the usual hundred.
const ROWS: u32 = 500;

/// Measures filling a ledger and verifying it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let folder = bench.scratch.path().join("ledger").display().to_string();
    let rows = bench.rounds.saturating_mul(ROWS).min(1_000_000).to_string();
    let raw = commit::sample(bench)?;
    let all = helper::run(bench, &["ledger", &folder, "--rows", &rows])?;
    let (append, verify) = (helper::find(&all, "append")?, helper::find(&all, "verify")?);
    let against = format!("512 at once; raw commit {}", shown(raw.p50()));
    Ok(vec![
        Row::rate("ledger append, durable", (append.per_second(), APPENDS), append.sample()?, against),
        Row::rate(
            "ledger verify",
            (verify.per_second(), VERIFIED),
            verify.sample()?,
            format!("{} rows each time", append.rows()),
        ),
    ])
}
