//! The binary `writ`: flags, configuration files, wiring, exit codes.
//!
//! A command is a function from a [`context::Context`] and its arguments to nothing or a
//! [`failure::Failure`]; most are clients of the home's engine, some read its files.

use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::filter::LevelFilter;
use writ_types::error::Exit;

use args::{Cli, Command};
use context::Context;
use env::Env;

mod args;

mod cmd;

mod context;

mod failure;

mod out;

mod env;

mod home;

mod config;

mod log;

mod terminal;

mod interrupt;

mod keyring;

mod ledger;

mod client;

mod approve;

mod advice;

mod clock;

mod page;

mod wiring;

fn main() -> ExitCode {
    // The same file, started again, is the sandbox's helper: that comes before everything else.
    if let Some(code) = writ_sandbox::init_main() {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help that cannot be printed is no failure.
            let _printed = error.print();
            return if error.use_stderr() { ExitCode::from(Exit::Usage.code()) } else { ExitCode::SUCCESS };
        }
    };
    let (json, verbose) = (cli.global.json, cli.global.verbose > 0);
    // The engine logs to its file as well, which is known later.
    if !matches!(cli.command, Command::Start(_)) {
        // The demo's own lines say what happened; the engine in it logs nothing but errors beside them.
        let quiet = matches!(cli.command, Command::Demo(_)) && !verbose;
        log::to_stderr(if quiet { LevelFilter::ERROR } else { log::stderr_level(&cli.global) });
    }
    let result =
        Context::new(&cli.global, Env::read_process()).and_then(|context| cmd::run_command(context, cli));
    failure::finish_process(result, json, verbose)
}
