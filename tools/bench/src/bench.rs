//! Measurements against peers and limits, taken in the same run on the same machine.
//!
//! A bench is one function in a file of `bench/`: it takes [`Bench`], and returns [`Row`]s. What
//! cannot be measured here is a row that says why; it is never a number from elsewhere.

mod stats;

mod row;

mod helper;

mod engine;

mod startup;

mod context;

mod door;

mod approvals;

mod values;

mod mcp;

mod turns;

mod plan;

mod sandbox;

mod memory;

mod recall;

mod ledger;

mod commit;

mod operations;

mod fleet;

mod pilot;

mod presence;

mod proxy;

mod request;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use row::Row;
use task_process::Program;
use task_process::workspace_root;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure this binary instead of building one in the release profile.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Use this build of the example `bench` instead of building one in the release profile.
    #[arg(long, value_name = "FILE")]
    helper: Option<PathBuf>,
    /// Only the benches with this word in their name.
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// The number of measurements of each thing.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    rounds: u32,
}

/// The things that every bench uses.
#[derive(Debug)]
pub(crate) struct Bench {
    /// The binary that is measured.
    writ: PathBuf,
    /// The example `bench`, which measures inside the product's crates.
    helper: PathBuf,
    /// A folder on the disk that builds are on, removed afterwards.
    scratch: TempDir,
    rounds: u32,
}

type Measure = fn(&Bench) -> Result<Vec<Row>>;

const BENCHES: &[(&str, Measure)] = &[
    ("startup", startup::measure),
    ("door", door::measure),
    ("approvals", approvals::measure),
    ("values", values::measure),
    ("context", context::measure),
    ("commit", commit::measure),
    ("turns", turns::measure),
    ("plan", plan::measure),
    ("mcp", mcp::measure),
    ("sandbox", sandbox::measure),
    ("memory", memory::measure),
    ("recall", recall::measure),
    ("ledger", ledger::measure),
    ("presence", presence::measure),
    ("proxy", proxy::measure),
    ("operations", operations::measure),
    ("fleet", fleet::measure),
    ("pilot", pilot::measure),
    ("request", request::measure),
];

/// Runs the benches and prints a table; whether everything was measured and meets its target.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let writ = built(options.binary.as_ref(), &["--bin", "writ"], "release/writ")?;
    let helper = built(options.helper.as_ref(), &["--example", "bench"], "release/examples/bench")?;
    let root = workspace_root()?;
    let folder = task_process::target_directory(&root);
    std::fs::create_dir_all(&folder)?;
    let scratch = TempDir::with_prefix_in("bench-", &folder)?;
    let bench = Bench { writ, helper, scratch, rounds: options.rounds };
    println!("{}", Row::head());
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

/// Returns the given binary, or builds one as it is shipped.
fn built(given: Option<&PathBuf>, target: &[&str], path: &str) -> Result<PathBuf> {
    if let Some(given) = given {
        return given.canonicalize().with_context(|| given.display().to_string());
    }
    let root = workspace_root()?;
    let arguments = [&["build", "--release", "--locked", "-p", "writ-cli"], target].concat();
    ensure!(Program::cargo(&arguments).directory(&root).status()?, "the release build failed");
    Ok(task_process::target_directory(&root).join(path))
}
