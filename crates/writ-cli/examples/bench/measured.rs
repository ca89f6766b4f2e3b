//! One line of results, as the task that asked for it reads it.

use std::time::{Duration, Instant};

use serde::Serialize;

/// How long one thing took, each time.
#[derive(Debug, Serialize)]
pub(crate) struct Measured<'a> {
    /// What was measured.
    pub(crate) what: &'a str,
    /// Each duration, in nanoseconds.
    pub(crate) nanos: Vec<u64>,
    /// How many rows were handled in `took_nanos`; zero where that says nothing.
    pub(crate) rows: u64,
    /// How long all of it took, in nanoseconds.
    pub(crate) took_nanos: u64,
}

impl Measured<'_> {
    /// Prints it.
    pub(crate) fn print(&self) -> anyhow::Result<()> {
        println!("{}", serde_json::to_string(self)?);
        Ok(())
    }
}

/// How long ago that was, in nanoseconds.
pub(crate) fn since(start: Instant) -> u64 {
    nanos(start.elapsed())
}

/// A duration in nanoseconds: 584 years fit.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
