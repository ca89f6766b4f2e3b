//! The commands: one module each.

use crate::args::{Cli, Command};
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::or_done;

mod cases;

mod init;

mod status;

mod doctor;

mod approvals;

mod project;

mod audit;

mod config;

mod keys;

mod policy;

mod gates;

mod hooks;

mod taint;

mod secrets;

mod memory;

mod models;

mod mcp;

mod backup;

mod trace;

mod service;

mod manual;

mod sandbox;

mod chat;

mod demo;

mod start;

/// Runs the command. `chat`, `demo` and `start` handle Ctrl-C themselves.
pub(crate) fn run(context: Context, cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Demo(args) => demo::run(&context, &args),
        Command::Chat(args) => chat::run(&context, &args),
        Command::Start(args) => {
            let context = context.with_flags(args.settings());
            start::run(&context, &args, &cli.global)
        }
        Command::Status(args) => or_done(move || status::run(&context, &args)),
        Command::Approvals(command) => or_done(move || approvals::run(&context, &command)),
        Command::Audit(command) => or_done(move || audit::run(&context, &command)),
        Command::Policy(command) => or_done(move || policy::run(&context, &command)),
        Command::Gates(command) => or_done(move || gates::run(&context, &command)),
        Command::Hooks(command) => or_done(move || hooks::run(&context, &command)),
        Command::Taint(command) => or_done(move || taint::run(&context, &command)),
        Command::Doctor(args) => or_done(move || doctor::run(&context, &args)),
        Command::Init(args) => or_done(move || init::run(&context, &args)),
        Command::Diff(args) => or_done(move || project::diff(&context, &args)),
        Command::Apply(args) => or_done(move || project::apply(&context, &args)),
        Command::Config(command) => or_done(move || config::run(&context, &command)),
        Command::Keys(command) => or_done(move || keys::run(&context, &command)),
        Command::Models(command) => or_done(move || models::run(&context, &command)),
        Command::Secrets(command) => or_done(move || secrets::run(&context, &command)),
        Command::Mcp(command) => or_done(move || mcp::run(&context, &command)),
        Command::Memory(command) => or_done(move || memory::run(&context, &command)),
        Command::Backup(args) => or_done(move || backup::run(&context, &args)),
        Command::Trace(args) => or_done(move || trace::run(&context, &args)),
        Command::Service(command) => or_done(move || service::run(&context, &command)),
        Command::Completions { shell } => manual::completions(&context, shell),
        Command::Man { dir } => manual::pages(&context, dir.as_deref()),
        Command::Sandbox(command) => or_done(move || sandbox::run(&context, &command)),
    }
}
