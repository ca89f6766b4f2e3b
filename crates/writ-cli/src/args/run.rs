//! The arguments of `writ run`.

use std::path::PathBuf;

use clap::Args;
use writ_sandbox::container::{ContainerEngine, ImageName};

/// The largest and smallest values of the flags.
const MOST_SECS: u64 = 7 * 24 * 60 * 60;
const MOST_MIB: u64 = 1024 * 1024;
const LEAST_MIB: u64 = 16;
/// Counts the sandbox's own first process.
const LEAST_PROCESSES: u64 = 4;
const MOST_PROCESSES: u64 = 32 * 1024;

/// `writ run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = RUN_HELP)]
// tidy: plain state
pub(crate) struct RunArgs {
    /// File with the agent's base key; it must be yours and have the mode 0600
    #[arg(long, value_name = "FILE")]
    pub(crate) base: PathBuf,
    /// File with the task key of the case; it must be yours and have the mode 0600
    #[arg(long, value_name = "FILE")]
    pub(crate) task: PathBuf,
    /// Socket of the security proxy, instead of proxy/agents.sock in the home
    #[arg(long, value_name = "PATH")]
    pub(crate) proxy_socket: Option<PathBuf>,
    /// Socket of the model router, instead of runtime/llm-router.sock in the home if that exists
    #[arg(long, value_name = "PATH")]
    pub(crate) router_socket: Option<PathBuf>,
    /// Folder with the program: the agent starts in it, sees it as /work, and cannot change it
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// An environment variable of the agent; may be given several times
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(crate) variables: Vec<(String, String)>,
    /// The longest run, in seconds
    #[arg(long, value_name = "SECS", default_value_t = 30 * 60, value_parser = clap::value_parser!(u64).range(1..=MOST_SECS))]
    pub(crate) time: u64,
    /// Limit of the CPU time of all its processes together, in seconds
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=MOST_SECS))]
    pub(crate) cpu: Option<u64>,
    /// Limit of the memory of all its processes together, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(LEAST_MIB..=MOST_MIB))]
    pub(crate) memory: u64,
    /// Limit of processes and threads at one time
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u64).range(LEAST_PROCESSES..=MOST_PROCESSES))]
    pub(crate) processes: u64,
    /// Size of its temporary folder, which is in memory, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=MOST_MIB))]
    pub(crate) tmp: u64,
    /// Run it in a container of this image, which must be on this machine
    #[arg(long, value_name = "IMAGE", value_parser = parse_image)]
    pub(crate) container: Option<ImageName>,
    /// The container engine, docker or podman, instead of the first one that is installed
    #[arg(long, value_name = "NAME", requires = "container", value_parser = parse_engine)]
    pub(crate) engine: Option<ContainerEngine>,
    /// Confine it by this AppArmor profile, too
    #[arg(long, value_name = "NAME", conflicts_with = "container")]
    pub(crate) apparmor: Option<String>,
    /// Do not start it if that profile cannot be used
    #[arg(long, requires = "apparmor")]
    pub(crate) apparmor_required: bool,
    /// Append a line of JSON to this file for each refusal, and one at the end
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// End when the process with this id ends, the one that started this command
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) parent: Option<u32>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) argv: Vec<String>,
}

/// Text at the end of the help.
const RUN_HELP: &str = "\
The agent has no keys and can reach only two hosts: http://llm-router.silo.internal and
https://security-proxy.silo.internal. Writ adds the keys to each request, as they are in the files at that moment.
The agent can write only to /tmp, which is deleted at the end. If you start it as root, it runs as a user that no other
process has. It can create pairs of connected Unix sockets, but cannot connect to a socket by its path.

With --container the agent sees the files of the image instead of the system's, and reaches the same two hosts. Docker or
Podman makes the container without capabilities and without a network, and only /tmp can be written. Before the program
starts, Writ checks all of this from outside, and stops if anything is not confined.

Exits with the exit code of the program, with 124 after the time limit, 137 if it was killed, and 126 or 127 if it cannot be
executed.";

fn parse_variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("write it as NAME=VALUE".to_owned()),
    }
}

fn parse_image(text: &str) -> Result<ImageName, String> {
    ImageName::parse_name(text).ok_or_else(|| "this is not the name of an image".to_owned())
}

fn parse_engine(text: &str) -> Result<ContainerEngine, String> {
    let found = ContainerEngine::ALL.into_iter().find(|engine| engine.as_str() == text);
    found.ok_or_else(|| "write docker or podman".to_owned())
}
