//! Measures and soaks the built binary: `cargo xtask bench` and `cargo xtask soak` build and run this.

#![expect(clippy::print_stdout, reason = "a command line tool talks to its terminal")]

mod link;

mod home;

mod gauge;

mod socket;

mod bench;

mod soak;

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "task-bench", bin_name = "cargo xtask", disable_version_flag = true)]
enum Task {
    /// Measure against peers and limits, in the same run.
    Bench(bench::Options),
    /// Kill an engine at random moments, start it again, and check that no work is missing or done twice.
    Soak(soak::Options),
}

fn main() -> ExitCode {
    let ended = match Task::parse() {
        Task::Bench(options) => {
            bench::run(&options).map(|good| if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Task::Soak(options) => soak::run(&options),
    };
    ended.unwrap_or_else(|error| {
        println!("error: {error:#}");
        ExitCode::FAILURE
    })
}
