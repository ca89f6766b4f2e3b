//! The security proxy: operations at SQLite over its socket, with the ledger written.

use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::helper;
use super::row::{Percentile, Row};
use super::stats::shown;

/// The time that a request may add to the bare statement.
const ADDED: Duration = Duration::from_millis(1);
/// Requests in a second, of sixteen clients.
const RATE: f64 = 2_000.0;
/// Requests of one client for each round.
const REQUESTS: u32 = 5;

/// Measures a statement that changes a row and one that reads some, each by itself and as an operation.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let folder = bench.scratch.path().join("operations").display().to_string();
    let rounds = bench.rounds.saturating_mul(REQUESTS).to_string();
    let all = helper::run(bench, &["operations", &folder, "--rounds", &rounds])?;
    let mut rows = Vec::new();
    for operation in ["refund", "orders"] {
        let bare = helper::find(&all, &format!("bare {operation}"))?.sample()?;
        let asked = helper::find(&all, operation)?.sample()?;
        let name = format!("operation: {operation}, 1 client");
        let target = (Percentile::P50, bare.p50() + ADDED);
        rows.push(Row::limit(&name, asked, target, format!("bare statement {}", shown(bare.p50()))));
        let many = helper::find(&all, &format!("{operation} at once"))?;
        let name = format!("operation: {operation}, 16 clients");
        rows.push(Row::rate(&name, (many.per_second(), RATE), many.sample()?, "ledger written".to_owned()));
    }
    Ok(rows)
}
