//! The commands of `writ`: flags, configuration files, wiring, exit codes.
//!
//! A command is a function from a `Context` and its arguments to nothing or a `Failure`; most are clients of the home's
//! engine, some read its files. What is outside of them, from variables to standard streams, is in the [`CommandHost`].

use std::ffi::OsString;
use std::io::Write as _;

use clap::Parser as _;
use tracing_subscriber::filter::LevelFilter;
use writ_types::error::Exit;

use args::{Cli, Command};
use context::Context;

pub use env::Env;
pub use host::{
    CommandHost, EngineLauncher, EngineStart, InputStream, LaunchedEngine, OutputStream, StopSource, Streams,
};
pub use log::LogScope;

mod args;

mod cmd;

mod context;

mod failure;

mod out;

mod env;

mod documents;

mod customers;

mod home;

mod host;

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

mod parent;

mod process;

mod wiring;

/// Runs a command line, which begins with the program's name, and returns its exit code.
pub fn run_command_line(args: impl IntoIterator<Item = OsString>, host: CommandHost) -> u8 {
    let mut streams = host.streams.clone();
    let mut cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return print_usage(&error, &mut streams),
    };
    cli.locate_paths(&host.folder);
    let (json, verbose) = (cli.global.json, cli.global.verbose > 0);
    let _log = host.log.begin_run();
    // The engine logs to its file as well, which is known later.
    if !matches!(cli.command, Command::Start(_)) {
        // The demo's own lines say what happened; the engine in it logs nothing but errors beside them.
        let quiet = matches!(cli.command, Command::Demo(_)) && !verbose;
        let level = if quiet { LevelFilter::ERROR } else { log::stderr_level(&cli.global) };
        log::to_stderr(level, &host);
    }
    let result = Context::new(&cli.global, host).and_then(|context| cmd::run_command(context, cli));
    failure::finish_command(result, &mut streams.errors, json, verbose)
}

/// Prints help, or why the arguments are not understood; returns the exit code.
fn print_usage(error: &clap::Error, streams: &mut Streams) -> u8 {
    let stream = if error.use_stderr() { &mut streams.errors } else { &mut streams.output };
    // Help that cannot be printed is no failure.
    let _printed = match stream {
        // Coloured on a terminal.
        OutputStream::Stdout | OutputStream::Stderr => error.print(),
        OutputStream::Writer(_) => stream.write_all(error.render().to_string().as_bytes()),
    };
    if error.use_stderr() { Exit::Usage.code() } else { Exit::Done.code() }
}
