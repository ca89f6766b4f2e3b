//! Measures the start of the binary, and its size.

use anyhow::Result;

use super::Bench;
use super::row::Row;
use super::stats::in_turn;
use task_process::Program;

/// Starting a program that does nothing is the limit; loading and parsing may take this many of it.
const TARGET: f64 = 5.0;
/// Bytes of the binary (design: 40 MB).
const SIZE: u64 = 40_000_000;

/// Measures `writ --version` against `true`.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let version = || Program::new(&bench.writ, &["--version"]).timed();
    let nothing = || Program::new("true", &[]).timed();
    let (own, base) = in_turn(bench.rounds, version, nothing)?;
    let size = bench.writ.metadata()?.len();
    Ok(vec![Row::ratio("--version", own, ("true", base), TARGET), Row::size("binary", size, Some(SIZE))])
}
