//! Measurements against peers and limits, taken in the same run on the same machine.
//!
//! A bench is one function in a file of `bench/`: it takes [`Bench`], and returns [`Row`]s. What
//! cannot be measured here is a row that says why; it is never a number from elsewhere.

mod stats;

mod startup;

mod sandbox;

mod commit;

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::process::{self, Program};
use crate::workspace;
use stats::Sample;

/// What is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure this binary instead of building one in the release profile.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Only the benches whose name holds this word.
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// How often each thing is measured.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    rounds: u32,
}

/// What every bench is given.
#[derive(Debug)]
pub(crate) struct Bench {
    /// The binary that is measured.
    writ: PathBuf,
    /// A folder on the disk that builds are on, gone afterwards.
    scratch: TempDir,
    /// How often to measure.
    rounds: u32,
}

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    what: String,
    outcome: Outcome,
}

#[derive(Debug)]
enum Outcome {
    /// Durations, those of the peer or limit in the same run, and the ratio to stay under.
    Ratio { own: Sample, peer: &'static str, base: Sample, target: f64 },
    /// Durations that others are compared with.
    Base(Sample),
    /// A size in bytes, and the size to stay under.
    Size { bytes: u64, target: u64 },
    /// Why there is no number.
    NotRun(String),
}

type Measure = fn(&Bench) -> Result<Vec<Row>>;

const BENCHES: &[(&str, Measure)] =
    &[("startup", startup::measure), ("sandbox", sandbox::measure), ("commit", commit::measure)];

/// Runs the benches and prints a table; whether everything was measured and meets its target.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let writ = match &options.binary {
        Some(binary) => binary.canonicalize().with_context(|| binary.display().to_string())?,
        None => build()?,
    };
    let root = workspace::root()?;
    let folder = process::target_directory(&root);
    std::fs::create_dir_all(&folder)?;
    let bench = Bench { writ, scratch: TempDir::with_prefix_in("bench-", &folder)?, rounds: options.rounds };
    println!("{:<34}{:>10}{:>10}  {:<40}{:>9}", "what", "p50", "p99", "against", "target");
    let mut rows = Vec::new();
    for (name, measure) in BENCHES {
        if options.only.as_ref().is_some_and(|word| !name.contains(word.as_str())) {
            continue;
        }
        for row in measure(&bench).with_context(|| format!("bench {name}"))? {
            println!("{row}");
            rows.push(row);
        }
    }
    let good = rows.iter().filter(|row| row.is_met()).count();
    println!("{} rows, {} missed or not measured", rows.len(), rows.len() - good);
    Ok(good == rows.len())
}

/// Builds the binary as it is shipped.
fn build() -> Result<PathBuf> {
    let root = workspace::root()?;
    let built =
        Program::cargo(&["build", "--release", "--locked", "-p", "writ-cli"]).directory(&root).status()?;
    ensure!(built, "the release build failed");
    Ok(process::target_directory(&root).join("release/writ"))
}

impl Row {
    fn ratio(what: &str, own: Sample, (peer, base): (&'static str, Sample), target: f64) -> Self {
        Self { what: what.to_owned(), outcome: Outcome::Ratio { own, peer, base, target } }
    }

    fn base(what: &str, sample: Sample) -> Self {
        Self { what: what.to_owned(), outcome: Outcome::Base(sample) }
    }

    fn size(what: &str, bytes: u64, target: u64) -> Self {
        Self { what: what.to_owned(), outcome: Outcome::Size { bytes, target } }
    }

    fn not_run(what: &str, reason: impl Into<String>) -> Self {
        Self { what: what.to_owned(), outcome: Outcome::NotRun(reason.into()) }
    }

    /// Whether there is a number, and it meets its target, if it has one.
    fn is_met(&self) -> bool {
        match &self.outcome {
            Outcome::Ratio { own, base, target, .. } => own.p50_ratio(base) <= *target,
            Outcome::Size { bytes, target } => bytes <= target,
            Outcome::Base(_) => true,
            Outcome::NotRun(_) => false,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_met() { "" } else { "  missed" };
        write!(f, "{:<34}", self.what)?;
        match &self.outcome {
            Outcome::Ratio { own, peer, base, target } => {
                let against = format!("{:.2} x {peer} ({})", own.p50_ratio(base), stats::shown(base.p50()));
                write!(f, "{:>10}{:>10}", stats::shown(own.p50()), stats::shown(own.p99()))?;
                write!(f, "  {against:<40}{:>9}{mark}", format!("<= {target:.1} x"))
            }
            Outcome::Base(sample) => {
                write!(f, "{:>10}{:>10}", stats::shown(sample.p50()), stats::shown(sample.p99()))
            }
            Outcome::Size { bytes, target } => {
                let megabytes = |bytes: u64| format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10);
                write!(f, "{:>10}{:>10}  {:<40}{:>9}{mark}", megabytes(*bytes), "", "", megabytes(*target))
            }
            Outcome::NotRun(reason) => write!(f, "not measured: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_missed_target_is_said() {
        let sample = |millis| Sample::new(vec![Duration::from_millis(millis)]).unwrap();
        let row = |own| Row::ratio("a", sample(own), ("b", sample(10)), 1.0);
        assert!(row(10).is_met());
        assert!(!row(11).is_met());
        assert!(row(11).to_string().ends_with("missed"), "{}", row(11));
        assert!(!Row::not_run("a", "b").is_met());
        assert!(!Row::size("a", 41_000_000, 40_000_000).is_met());
    }
}
