//! Measures the work on a result of a million bytes before a model reads it.

use anyhow::Result;

use super::Bench;
use super::helper;
use super::row::Row;

/// Measures masking secrets, and following values from a structured result to an argument.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let all = helper::run(bench, &["values", "--rounds", &bench.rounds.to_string()])?;
    let row = |what: &str, name: &str| {
        let measured = helper::find(&all, name)?;
        // Bytes per microsecond are megabytes per second.
        let against = format!("{:.0} MB/s", measured.per_second() / 1e6);
        anyhow::Ok(Row::told(what, measured.sample()?, against))
    };
    Ok(vec![row("redactor, 1 MB, 50 secrets", "redactor")?, row("labels of a result of 1 MB", "labels")?])
}
