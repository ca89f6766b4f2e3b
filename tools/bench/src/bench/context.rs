//! Measures the assembly of a context of 10,000 messages.

use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::helper;
use super::row::{Percentile, Row};

/// The longest that it may take (the engine's issue, «Speed»).
const TARGET: Duration = Duration::from_millis(10);

/// Measures it with room for all messages, and with room for about a tenth of them.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let all = helper::run(bench, &["context", "--rounds", &bench.rounds.to_string()])?;
    let row = |what: &str, name: &str| {
        let sample = helper::find(&all, name)?.sample()?;
        anyhow::Ok(Row::limit(what, sample, (Percentile::P50, TARGET), String::new()))
    };
    Ok(vec![
        row("context of 10,000 messages, all fit", "context-all")?,
        row("context of 10,000 messages, a tenth fits", "context-tenth")?,
    ])
}
