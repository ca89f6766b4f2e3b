//! `writ run`: a program as an agent, locked in.

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use writ_launch::forward::ForwardLimits;
use writ_launch::launch::{LaunchOrder, LaunchResult, launch_agent};
use writ_sandbox::agent::{AgentEnd, AgentLimits, AgentStreams, SandboxProfile};
use writ_sandbox::container::ContainerOrder;
use writ_types::error::Exit;

use crate::args::RunArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::host::{InputStream, OutputStream};
use crate::interrupt::block_on;
use crate::parent::{NamedParent, orphaned};

/// Bytes of one MiB.
const MIB: u64 = 1024 * 1024;

/// Runs an agent to its end, and ends with its exit code.
pub(crate) fn run_agent(context: &Context, args: &RunArgs) -> Result<(), Failure> {
    let streams = agent_streams(context)?;
    let order = launch_order(context, args);
    block_on(async {
        // Before anything of the agent is there: a parent that has ended already starts none.
        let parent = NamedParent::open_watch(args.parent)?;
        let mut stops = context.host.stops.listen_engine()?;
        let stop = CancellationToken::new();
        let mut launched = pin!(launch_agent(order, streams, stop.clone()));
        let result = tokio::select! {
            result = &mut launched => result?,
            // No one is there to hear its last words: with its future the agent ends at once.
            () = parent.until_ended() => return Err(orphaned()),
            () = stops.stopped() => {
                stop.cancel();
                // The agent may end in its own way now; a second order does not wait for that.
                tokio::select! {
                    result = &mut launched => result?,
                    () = parent.until_ended() => return Err(orphaned()),
                    () = stops.stopped() => return Err(Failure::Interrupted),
                }
            }
        };
        finish_agent(context, args, &result)
    })
}

/// Returns the streams of this process, which become the agent's.
fn agent_streams(context: &Context) -> Result<AgentStreams, Failure> {
    let streams = &context.host.streams;
    // The agent gets the descriptors themselves, and a buffer in memory has none.
    let own = matches!(
        (&streams.input, &streams.output, &streams.errors),
        (InputStream::Process, OutputStream::Stdout, OutputStream::Stderr)
    );
    let failed = |why: String| {
        Failure::new(Exit::Usage, "run.streams", why, "run it as a process with its three standard streams")
    };
    if !own {
        return Err(failed("an agent needs standard streams of a process".to_owned()));
    }
    AgentStreams::of_process().map_err(|why| failed(format!("a standard stream cannot be passed on: {why}")))
}

fn launch_order(context: &Context, args: &RunArgs) -> LaunchOrder {
    let runtime = context.home.runtime();
    let router: PathBuf = runtime.join("llm-router.sock");
    LaunchOrder {
        argv: args.argv.clone(),
        base: args.base.clone(),
        task: args.task.clone(),
        proxy: args.proxy_socket.clone().unwrap_or_else(|| context.home.root().join("proxy/agents.sock")),
        // One that was named must be there; the home's own need not.
        router: args.router_socket.clone().or_else(|| router.exists().then_some(router)),
        folder: args.folder.clone(),
        variables: args.variables.clone(),
        container: args.container.clone().map(|image| ContainerOrder {
            image,
            engine: args.engine,
            folder: runtime.join("containers"),
            home: context.env.path_of("HOME"),
            runtime: context.env.path_of("XDG_RUNTIME_DIR"),
            daemon: context.env.text_of("DOCKER_HOST").map(str::to_owned),
        }),
        profile: args
            .apparmor
            .as_ref()
            .map(|name| SandboxProfile { name: name.clone(), required: args.apparmor_required }),
        // Products are saturated: one that wraps round would turn a large bound into a tiny one.
        limits: AgentLimits {
            time: Duration::from_secs(args.time),
            compute: args.cpu.map(Duration::from_secs),
            memory: args.memory.saturating_mul(MIB),
            processes: args.processes,
            tmp: args.tmp.saturating_mul(MIB),
            ..AgentLimits::default()
        },
        forward: ForwardLimits::default(),
        report: args.report.clone(),
        exe: None,
    }
}

/// Prints the refusals and the reason of its end, and passes its exit code on.
fn finish_agent(context: &Context, args: &RunArgs, result: &LaunchResult) -> Result<(), Failure> {
    let agent = &result.agent;
    for missing in &agent.missing {
        context.out.print_remark(format!("the agent ran {missing}"));
    }
    if let Some(refused) = result.refusals.describe_counts(agent.unreached) {
        context.out.print_remark(refused);
    }
    let program = args.argv.first().map(String::as_str).unwrap_or_default();
    match agent.end {
        AgentEnd::Bounded(bound) => {
            context.out.print_remark(format!(
                "the agent was ended at its bound: {} (--{} sets it)",
                bound.as_str(),
                bound.as_str()
            ));
        }
        AgentEnd::Killed => context.out.print_remark("the agent was asked to end, did not, and was killed"),
        AgentEnd::NotFound => {
            let seen = if args.container.is_some() { "the image" } else { "system folders" };
            context.out.print_remark(format!(
                "there is no program '{program}' inside: it sees {seen}, and --folder at /work"
            ));
        }
        AgentEnd::NotExecutable => {
            context.out.print_remark(format!("'{program}' cannot be executed inside"));
        }
        // Its exit code says it already.
        AgentEnd::Exited(_) | AgentEnd::Signalled(_) => {}
    }
    match agent.end.exit_code() {
        0 => Ok(()),
        // A code that does not fit must not be cut: 256 would become 0, which is success.
        code => Err(Failure::Code(u8::try_from(code).unwrap_or(u8::MAX))),
    }
}
