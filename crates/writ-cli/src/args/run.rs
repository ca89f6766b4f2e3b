//! `writ run`.

use std::path::PathBuf;

use clap::Args;
use writ_sandbox::container::{ContainerEngine, ImageName};

/// Bounds that no flag goes beyond.
const MOST_SECS: u64 = 7 * 24 * 60 * 60;
const MOST_MIB: u64 = 1024 * 1024;
const LEAST_MIB: u64 = 16;
/// The sandbox's own first process is one of them.
const LEAST_PROCESSES: u64 = 4;
const MOST_PROCESSES: u64 = 32 * 1024;

/// `writ run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = RUN_HELP)]
// tidy: plain state
pub(crate) struct RunArgs {
    /// The agent's base key, in a file of yours with the mode 0600
    #[arg(long, value_name = "FILE")]
    pub(crate) base: PathBuf,
    /// The task key of the case, in a file of yours with the mode 0600
    #[arg(long, value_name = "FILE")]
    pub(crate) task: PathBuf,
    /// Socket of the security proxy, instead of proxy/agents.sock in the home
    #[arg(long, value_name = "PATH")]
    pub(crate) proxy_socket: Option<PathBuf>,
    /// Socket of the router of models, instead of runtime/llm-router.sock in the home if that is there
    #[arg(long, value_name = "PATH")]
    pub(crate) router_socket: Option<PathBuf>,
    /// Folder with the program: the agent sees it at /work, cannot change it, and begins there
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// A variable of the agent; may be given again
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(crate) variables: Vec<(String, String)>,
    /// Seconds that it may run
    #[arg(long, value_name = "SECS", default_value_t = 30 * 60, value_parser = clap::value_parser!(u64).range(1..=MOST_SECS))]
    pub(crate) time: u64,
    /// Seconds that all of its processes may compute together
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=MOST_SECS))]
    pub(crate) cpu: Option<u64>,
    /// Memory of all of its processes together, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(LEAST_MIB..=MOST_MIB))]
    pub(crate) memory: u64,
    /// Processes and threads that it may have at once
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u64).range(LEAST_PROCESSES..=MOST_PROCESSES))]
    pub(crate) processes: u64,
    /// Size of its temporary folder, in MiB of memory
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=MOST_MIB))]
    pub(crate) tmp: u64,
    /// Run it in a container of this image, which has to be on this machine
    #[arg(long, value_name = "IMAGE", value_parser = parse_image)]
    pub(crate) container: Option<ImageName>,
    /// The program that makes the container, instead of the first that is installed
    #[arg(long, value_name = "NAME", requires = "container", value_parser = parse_engine)]
    pub(crate) engine: Option<ContainerEngine>,
    /// Run it under this AppArmor profile, too
    #[arg(long, value_name = "NAME", conflicts_with = "container")]
    pub(crate) apparmor: Option<String>,
    /// Do not start it without that profile
    #[arg(long, requires = "apparmor")]
    pub(crate) apparmor_required: bool,
    /// Add a line of JSON to this file for everything that is refused, and one at the end
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// End as soon as this process has ended, which has started this one
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) parent: Option<u32>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) argv: Vec<String>,
}

/// The end of the help.
const RUN_HELP: &str = "\
The agent holds no key and reaches two names: http://llm-router.silo.internal and
https://security-proxy.silo.internal. Each request carries the keys that the files hold at that moment. It may
write /tmp, which is gone when it ends. Started by root, it runs as a user that no other process has. Unix sockets
it has in pairs alone, since no path may lead to one.

With --container it sees the files of the image in place of the system's, and the same two names. Docker or Podman makes
the container, without capabilities, network and anything that could be written but /tmp; before the program begins,
all of that is looked at from outside, and what is missing stops it.

Ends with the exit code of the program; 124 out of time, 137 killed, 126 and 127 where it cannot be executed.";

fn parse_variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("write it as NAME=VALUE".to_owned()),
    }
}

fn parse_image(text: &str) -> Result<ImageName, String> {
    ImageName::parse_name(text).ok_or_else(|| "this is no name of an image".to_owned())
}

fn parse_engine(text: &str) -> Result<ContainerEngine, String> {
    let found = ContainerEngine::ALL.into_iter().find(|engine| engine.as_str() == text);
    found.ok_or_else(|| "write docker or podman".to_owned())
}
