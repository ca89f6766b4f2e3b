//! The door: `precheck` and `decide` with the shipped rules and 4, 50 or 500 more, warm with a cached authority, and cold.

use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::helper;
use super::row::{Percentile, Row};
use super::stats::shown;

/// The most that a decision may take (design 5).
const TARGET: Duration = Duration::from_micros(150);
/// A percentile of microseconds needs more rounds than one of whole processes.
const FACTOR: u32 = 20;

/// Measures deciding about a command and a file against verifying one Ed25519 signature; cold, with the rules parsed and
/// both keys verified first.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let rounds = bench.rounds.saturating_mul(FACTOR).min(100_000).to_string();
    let all = helper::run(bench, &["door", "--rounds", &rounds])?;
    let verification = helper::find(&all, "ed25519")?.sample()?;
    let peer = "ed25519 verification";
    let mut rows = vec![Row::base(peer, verification.clone())];
    let beside = |what: &str, name: &str| {
        anyhow::Ok(Row::beside(what, helper::find(&all, name)?.sample()?, (peer, verification.clone())))
    };
    rows.push(beside("both keys of a token", "token")?);
    for (name, what) in [("exec-50", "door: exec, 50 rules"), ("write_file-50", "door: write_file, 50 rules")]
    {
        let own = helper::find(&all, name)?.sample()?;
        let ratio = own.p50_ratio(&verification);
        let against = format!("{ratio:.2} x {peer} ({})", shown(verification.p50()));
        rows.push(Row::limit(what, own, (Percentile::P99, TARGET), against));
    }
    for (name, what) in [
        ("exec-4", "door: exec, 4 rules"),
        ("write_file-4", "door: write_file, 4 rules"),
        ("exec-500", "door: exec, 500 rules"),
        ("write_file-500", "door: write_file, 500 rules"),
        ("cold-4", "door, cold: exec, 4 rules"),
        ("cold-50", "door, cold: exec, 50 rules"),
        ("cold-500", "door, cold: exec, 500 rules"),
    ] {
        rows.push(beside(what, name)?);
    }
    Ok(rows)
}
