//! Tries every mutant of a crate, all of them compiled at once: `cargo xtask mutants` builds and runs this.

#![expect(clippy::print_stdout, reason = "a command line tool talks to its terminal")]

mod mutants;

use std::process::ExitCode;

use clap::Parser;

/// Try every mutant of a crate, all of them compiled at once.
#[derive(Debug, Parser)]
#[command(name = "task-mutants", bin_name = "cargo xtask mutants", disable_version_flag = true)]
struct Arguments {
    #[command(flatten)]
    options: mutants::Options,
}

fn main() -> ExitCode {
    mutants::run(&Arguments::parse().options).unwrap_or_else(|error| {
        println!("error: {error:#}");
        ExitCode::FAILURE
    })
}
