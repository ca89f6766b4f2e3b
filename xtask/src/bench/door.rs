//! The door, warm: `precheck` and `decide` with a cached authority, the shipped rules and fifty more.

use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::helper;
use super::row::{Percentile, Row};
use super::stats::shown;

/// What a decision may take (design 5).
const TARGET: Duration = Duration::from_micros(150);
/// A percentile of microseconds needs more rounds than one of whole processes.
const FACTOR: u32 = 20;

/// Measures deciding about a command and a file against verifying one Ed25519 signature.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let rounds = bench.rounds.saturating_mul(FACTOR).min(100_000).to_string();
    let all = helper::run(bench, &["door", "--rounds", &rounds])?;
    let verification = helper::find(&all, "ed25519")?.sample()?;
    let mut rows = vec![Row::base("ed25519 verification", verification.clone())];
    for (name, what) in [("exec", "door: exec, 50 rules"), ("write_file", "door: write_file, 50 rules")] {
        let own = helper::find(&all, name)?.sample()?;
        let ratio = own.p50_ratio(&verification);
        let against = format!("{ratio:.2} x ed25519 verification ({})", shown(verification.p50()));
        rows.push(Row::limit(what, own, (Percentile::P99, TARGET), against));
    }
    Ok(rows)
}
