//! The commands: one module each.

use crate::args::{Cli, Command};
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::or_done;

mod agent;

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

mod fleet;

mod context;

mod budget;

mod jobs;

mod sessions;

mod memory;

mod models;

mod mcp;

mod plugins;

mod serve_mcp;

mod backup;

mod trace;
mod work;

mod service;

mod manual;

mod operations;

mod pilot;

mod plan;

mod sandbox;

mod run;

mod proxy;

mod chat;

mod demo;

mod start;

/// Runs the command. `chat`, `demo`, `proxy`, `run` and `start` handle Ctrl-C themselves.
pub(crate) fn run_command(context: Context, cli: Cli) -> Result<(), Failure> {
    let stops = context.host.stops.clone();
    match cli.command {
        Command::Demo(args) => demo::run_demo(&context, &args),
        Command::Chat(args) => chat::run_chat(&context, &args),
        Command::Run(args) => run::run_agent(&context, &args),
        Command::Start(args) => {
            let context = context.with_flags(args.flag_settings());
            start::run_start(&context, &args, &cli.global)
        }
        Command::Proxy(args) => proxy::run_proxy(&context, &args, &cli.global),
        Command::Status(args) => or_done(&stops, move || status::run_status(&context, &args)),
        Command::Approvals(command) => or_done(&stops, move || approvals::run_approvals(&context, &command)),
        Command::Audit(command) => or_done(&stops, move || audit::run_audit(&context, &command)),
        Command::Policy(command) => or_done(&stops, move || policy::run_policy(&context, &command)),
        Command::Gates(command) => or_done(&stops, move || gates::run_gates(&context, &command)),
        Command::Hooks(command) => or_done(&stops, move || hooks::run_hooks(&context, &command)),
        Command::Taint(command) => or_done(&stops, move || taint::run_taint(&context, &command)),
        Command::Doctor(args) => or_done(&stops, move || doctor::run_doctor(&context, &args)),
        Command::Init(args) => or_done(&stops, move || init::run_init(&context, &args)),
        Command::Diff(args) => or_done(&stops, move || project::show_diff(&context, &args)),
        Command::Apply(args) => or_done(&stops, move || project::apply_diff(&context, &args)),
        Command::Config(command) => or_done(&stops, move || config::run_config(&context, &command)),
        Command::Keys(command) => or_done(&stops, move || keys::run_keys(&context, &command)),
        Command::Models(command) => or_done(&stops, move || models::run_models(&context, &command)),
        Command::Secrets(command) => or_done(&stops, move || secrets::run_secrets(&context, &command)),
        Command::Mcp(command) => or_done(&stops, move || mcp::run_mcp(&context, &command)),
        Command::Plugins(command) => or_done(&stops, move || plugins::run_plugins(&context, &command)),
        Command::Memory(command) => or_done(&stops, move || memory::run_memory(&context, &command)),
        Command::Context(command) => or_done(&stops, move || context::run_context(&context, command)),
        Command::Budget(args) => or_done(&stops, move || budget::run_budget(&context, &args)),
        Command::Work(command) => or_done(&stops, move || work::run_work(&context, &command)),
        Command::Plan(command) => or_done(&stops, move || plan::run_plan(&context, &command)),
        Command::Sessions(command) => or_done(&stops, move || sessions::run_sessions(&context, &command)),
        Command::Replay(args) => or_done(&stops, move || sessions::run_replay(&context, &args)),
        Command::Jobs(command) => or_done(&stops, move || jobs::run_jobs(&context, command)),
        Command::Agent(command) => or_done(&stops, move || agent::run_agents(&context, &command)),
        Command::Pilot(command) => or_done(&stops, move || pilot::run_pilot(&context, &command)),
        Command::Fleet(command) => or_done(&stops, move || fleet::run_fleet(&context, &command)),
        Command::Operations(command) => {
            or_done(&stops, move || operations::run_operations(&context, &command))
        }
        Command::Backup(args) => or_done(&stops, move || backup::run_backup(&context, &args)),
        Command::Trace(args) => or_done(&stops, move || trace::run_trace(&context, &args)),
        Command::Service(command) => or_done(&stops, move || service::run_service(&context, &command)),
        Command::Completions { shell } => manual::print_completions(&context, shell),
        Command::Man { dir } => manual::write_pages(&context, dir.as_deref()),
        Command::Sandbox(command) => or_done(&stops, move || sandbox::run_sandbox(&context, &command)),
    }
}
