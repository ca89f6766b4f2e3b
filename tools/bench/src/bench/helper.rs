//! The example `bench` of `writ-cli`: what must be measured inside the product's crates.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::Bench;
use super::stats::Sample;
use task_process::Program;

/// One line of its output.
#[derive(Debug, Deserialize)]
pub(super) struct Measured {
    what: String,
    nanos: Vec<u64>,
    rows: u64,
    took_nanos: u64,
}

/// Runs one of its tasks; everything that it measured.
pub(super) fn run(bench: &Bench, arguments: &[&str]) -> Result<Vec<Measured>> {
    run_program(&bench.helper, arguments)
}

/// Runs a program that prints such lines.
pub(super) fn run_program(program: &Path, arguments: &[&str]) -> Result<Vec<Measured>> {
    let output = Program::new(program, arguments).output()?;
    ensure!(output.success, "bench {}: {}", arguments.join(" "), output.stderr.trim());
    let lines = output.stdout.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned()));
    lines.collect()
}

/// Finds a measurement by its name.
pub(super) fn find<'a>(all: &'a [Measured], what: &str) -> Result<&'a Measured> {
    all.iter().find(|one| one.what == what).with_context(|| format!("'{what}' was not measured"))
}

impl Measured {
    /// Returns the duration of each repetition.
    pub(super) fn sample(&self) -> Result<Sample> {
        Sample::new(self.nanos.iter().copied().map(Duration::from_nanos).collect())
    }

    /// Returns the time of everything together.
    pub(super) fn whole(&self) -> Result<Duration> {
        ensure!(self.took_nanos > 0, "'{}' took no time", self.what);
        Ok(Duration::from_nanos(self.took_nanos))
    }

    /// Returns the number of rows that were handled.
    pub(super) const fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the rows per second.
    pub(super) fn per_second(&self) -> f64 {
        let seconds = Duration::from_nanos(self.took_nanos).as_secs_f64();
        // Exact up to 2^53 rows.
        self.rows as f64 / seconds.max(f64::MIN_POSITIVE)
    }
}
