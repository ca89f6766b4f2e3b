//! The tasks of this repository: `cargo xtask tidy`, `test`, `threats`, `injection`, `compatibility`, `conformance`, `bench`,
//! `soak`, `mutants`, `errors`, `contract`, `dist` and `record`.

#![expect(clippy::print_stdout, reason = "a command line tool talks to its terminal")]

mod workspace;

mod apart;

mod source;

mod tidy;

mod test;

mod other_system;

mod conformance;

mod named;

mod threats;

mod injection;

mod compatibility;

mod verify;

mod errors;

mod dist;

mod contract;

mod record;

use std::process::ExitCode;

use clap::Parser;

/// The tasks of this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", disable_version_flag = true)]
enum Task {
    /// Check what the compiler cannot: layers, owners, budgets, documents, exceptions.
    Tidy(tidy::TidyOptions),
    /// Run everything that must pass, and count it.
    Test(test::Options),
    /// Run the hostile cases, and say for each whether it holds.
    Threats(threats::Options),
    /// Play the injection corpus, and write its figures down.
    Injection,
    /// Play what foreign servers send, and list it.
    Compatibility,
    /// Run the acceptance items, and write down what came of each.
    Verify,
    /// Say which rows of the requirements are shown by a test.
    Conformance(conformance::Options),
    /// Check or write the reference of error codes.
    Errors(errors::Options),
    /// Compare the contract (schema, phases, hooks, settings) with that of the last release.
    Contract(contract::Options),
    /// Build the static release binary, and gather what an installation wants.
    Dist(dist::Options),
    /// Record the demo.
    Record(record::Options),
    /// Measure against peers and limits, in the same run.
    Bench(apart::Arguments),
    /// Try every mutant of a crate, all of them compiled at once.
    Mutants(apart::Arguments),
    /// Kill an engine at random moments, start it again, and check that no work is missing or done twice.
    Soak(apart::Arguments),
}

fn main() -> ExitCode {
    if let Some(code) = other_system::wrapped() {
        return code;
    }
    let done = match Task::parse() {
        Task::Tidy(options) => tidy::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Threats(options) => threats::run(&options),
        Task::Injection => injection::run(),
        Task::Compatibility => compatibility::run(),
        Task::Verify => verify::run(),
        Task::Conformance(options) => conformance::run(&options),
        Task::Errors(options) => errors::run(options),
        Task::Contract(options) => contract::run(&options),
        Task::Dist(options) => dist::run(&options),
        Task::Record(options) => record::run(&options),
        Task::Bench(options) => return ended(apart::run("task-bench", &["bench"], &options)),
        Task::Soak(options) => return ended(apart::run("task-bench", &["soak"], &options)),
        Task::Mutants(options) => return ended(apart::run("task-mutants", &[], &options)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => failed(&error),
    }
}

fn ended(run: anyhow::Result<ExitCode>) -> ExitCode {
    run.unwrap_or_else(|error| failed(&error))
}

fn failed(error: &anyhow::Error) -> ExitCode {
    println!("error: {error:#}");
    ExitCode::FAILURE
}
