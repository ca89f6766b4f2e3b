//! Locks in a program that is an agent itself: its streams are passed through, and everything else is taken from it.
//!
//! The agent sees system folders, read-only, and one folder in memory that it may write; it ends with that folder. Where
//! root starts it, it runs as a user that no other process has. Its network has nothing but the listeners that are handed
//! to the host.
//!
//! There is no permit for it: a person starts it, and everything that it may have done is asked for over those
//! listeners.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use writ_types::error::{Exit, Report, ToReport};

use crate::container::{ContainerError, ContainerOrder};
use crate::error::SandboxError;
use crate::exec::Listener;

/// One mebibyte, in bytes.
const MIB: u64 = 1024 * 1024;
/// The most variables that an agent is given.
pub const VARIABLES_MAX: usize = 64;
/// The most bytes that arguments and variables may have together: half of what Linux takes by default.
pub const ARGUMENTS_MAX: usize = 1024 * 1024;

/// The bounds of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentLimits {
    /// The longest time that it may run.
    pub time: Duration,
    /// The longest time that all of its processes may compute together; `None`: as long as it runs.
    pub compute: Option<Duration>,
    /// Memory of all of its processes together, with what is in its temporary folder, in bytes.
    pub memory: u64,
    /// Processes and threads at once.
    pub processes: u64,
    /// Size of its temporary folder, in bytes of memory.
    pub tmp: u64,
    /// Open files of one process, connections among them.
    pub open_files: u64,
    /// The longest time that it may go on after it was asked to end.
    pub grace: Duration,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(30 * 60),
            compute: None,
            memory: 1024 * MIB,
            processes: 128,
            tmp: 256 * MIB,
            open_files: 1024,
            grace: Duration::from_secs(5),
        }
    }
}

/// An AppArmor profile, which is loaded already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxProfile {
    /// Its name.
    pub name: String,
    /// True if the agent is not started without it.
    pub required: bool,
}

/// The program and its surroundings.
#[derive(Clone, Debug)]
pub struct AgentOrder {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// A folder that it sees at `/work`, read-only, and begins in; `None`: it begins in its temporary folder.
    pub folder: Option<PathBuf>,
    /// More variables. Those of the sandbox's own are stronger.
    pub variables: Vec<(String, String)>,
    /// The ports of its ways out.
    pub ports: Vec<u16>,
    /// The names that lead there.
    pub names: Vec<String>,
    /// The certificate authority that it is to trust, in PEM.
    pub authority: String,
    /// An AppArmor profile to run under besides. Not in a container: its engine has one of its own.
    pub profile: Option<SandboxProfile>,
    /// A container to run it in; `None`: a sandbox of our own.
    pub container: Option<ContainerOrder>,
    /// Its bounds.
    pub limits: AgentLimits,
}

/// The three streams of an agent.
#[derive(Debug)]
pub struct AgentStreams(pub(crate) [OwnedFd; 3]);

impl AgentStreams {
    /// Returns those of this process.
    ///
    /// # Errors
    ///
    /// If one of them is closed.
    pub fn of_process() -> io::Result<Self> {
        Ok(Self([
            io::stdin().as_fd().try_clone_to_owned()?,
            io::stdout().as_fd().try_clone_to_owned()?,
            io::stderr().as_fd().try_clone_to_owned()?,
        ]))
    }

    /// Takes an input, an output and an output for errors.
    pub const fn of_descriptors(streams: [OwnedFd; 3]) -> Self {
        Self(streams)
    }
}

impl From<AgentStreams> for [OwnedFd; 3] {
    fn from(streams: AgentStreams) -> Self {
        streams.0
    }
}

/// The run of an agent.
#[derive(Debug)]
pub struct AgentRun {
    /// The program.
    pub order: AgentOrder,
    /// Its streams.
    pub streams: AgentStreams,
    /// Takes a listener for each port of the order, before the program begins.
    pub listeners: mpsc::Sender<Listener>,
    /// Takes the first process of the agent, as soon as there is one.
    pub first: oneshot::Sender<FirstProcess>,
    /// Asks the agent to end.
    pub stop: CancellationToken,
    /// The executable that is started again as helper; `None`: the running one.
    pub exe: Option<PathBuf>,
}

/// The first process of an agent, which lives as long as the agent does, and by which its network is looked at from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstProcess {
    /// Its number.
    pub process: i32,
    /// Its start, in ticks since that of the machine: a later process may have the same number.
    pub since: u64,
}

impl FirstProcess {
    /// Returns the number of [unreached](AgentResult::unreached) attempts so far. `None`: the agent has ended.
    pub fn count_unreached(&self) -> Option<u64> {
        #[cfg(all(target_os = "linux", not(writ_other_system)))]
        let count = crate::linux::count_unreached(*self);
        #[cfg(any(not(target_os = "linux"), writ_other_system))]
        let count = None;
        count
    }
}

/// The bound at which an agent was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentBound {
    /// Its time.
    Time,
    /// The time for which its processes may compute.
    Compute,
    /// Its memory.
    Memory,
    /// Its processes, where no control group refuses them one by one.
    Processes,
}

impl AgentBound {
    /// Returns its name for records and screens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Compute => "cpu",
            Self::Memory => "memory",
            Self::Processes => "processes",
        }
    }
}

/// The end of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentEnd {
    /// On its own.
    Exited(i32),
    /// By a signal that was not sent from here, or by the request to end.
    Signalled(i32),
    /// At a bound.
    Bounded(AgentBound),
    /// It was asked to end, did not, and was killed.
    Killed,
    /// There is no such program inside.
    NotFound,
    /// The file is there and cannot be executed.
    NotExecutable,
}

impl AgentEnd {
    /// Returns the exit code, as a shell would tell it: 127 not found, 126 not executable, 124 out of time, 137 killed.
    pub const fn exit_code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Signalled(signal) => 128_i32.saturating_add(signal),
            Self::Bounded(AgentBound::Time) => 124,
            Self::Bounded(AgentBound::Compute | AgentBound::Memory | AgentBound::Processes)
            | Self::Killed => 137,
            Self::NotFound => 127,
            Self::NotExecutable => 126,
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentResult {
    /// Its end.
    pub end: AgentEnd,
    /// Attempts to reach what its network does not have, as its kernel counts them: connections that were refused, and
    /// packets without a way.
    pub unreached: u64,
    /// The user that it ran as; `None`: the same as this process, in a user namespace.
    pub user: Option<u32>,
    /// Walls that were wanted and are not there.
    pub missing: Vec<String>,
    /// The time from the call to its end.
    pub duration: Duration,
}

/// The reason why an agent was not started or its end is not known.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The command cannot be started as it is written.
    #[error("the agent cannot be started: {0}")]
    Command(&'static str),
    /// The folder cannot be shown.
    #[error("the folder {} cannot be shown to the agent: {why}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        why: String,
    },
    /// The users of agents cannot be given out.
    #[error("a user for the agent cannot be claimed: {source}")]
    Users {
        /// The error of the system.
        source: io::Error,
    },
    /// All users of agents are in use.
    #[error("all {most} users of agents are in use")]
    NoUser {
        /// Their number.
        most: usize,
    },
    /// The AppArmor profile cannot be had.
    #[error("the AppArmor profile '{profile}' cannot be used: {why}")]
    Profile {
        /// Its name.
        profile: String,
        /// The reason.
        why: String,
    },
    /// The container could not be had, or is not what was ordered.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// The sandbox could not be made.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl ToReport for AgentError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Self::Command(_) => Report::new(Exit::Usage, "agent.command", text)
                .with_hint("write the program and its arguments after `--`"),
            Self::Folder { .. } => Report::new(Exit::Usage, "agent.folder", text)
                .with_hint("name a folder that the agent's own user may read, for example below /srv"),
            Self::Users { .. } => Report::new(Exit::Blocked, "agent.users", text)
                .with_hint("root needs to write below /run/writ, and no other user may"),
            Self::NoUser { .. } => Report::new(Exit::Blocked, "agent.no_user", text)
                .with_hint("wait until another agent of this machine has ended"),
            Self::Profile { .. } => Report::new(Exit::Blocked, "agent.apparmor", text)
                .with_hint("load it with `apparmor_parser -r FILE`, or leave --apparmor-required out"),
            Self::Container(error) => error.report(),
            Self::Sandbox(SandboxError::Setup { stage, .. }) if stage == "namespaces" => {
                Report::new(Exit::Blocked, "agent.namespaces", text).with_hint(
                    "an agent needs user namespaces: `writ sandbox status` says how to allow them here",
                )
            }
            Self::Sandbox(error) => error.report(),
        }
    }
}

/// Runs an agent to its end. When the future is dropped, or this process is killed, the agent ends, too, with
/// everything that it has started and written.
///
/// # Errors
///
/// If it cannot be confined, or is not to be started as the order says.
pub async fn run_agent(run: AgentRun) -> Result<AgentResult, AgentError> {
    check_order(&run.order)?;
    #[cfg(all(target_os = "linux", not(writ_other_system)))]
    let result = if run.order.container.is_some() {
        crate::linux::run_contained(run).await
    } else {
        crate::linux::run_agent(run).await
    };
    #[cfg(any(not(target_os = "linux"), writ_other_system))]
    let result = std::future::ready(Err(AgentError::from(SandboxError::Refused {
        reasons: vec!["agents are locked in on Linux alone".into()],
    })))
    .await;
    result
}

/// Gives memory that is not used any more back to the system: one process of ours waits beside each agent, for as long as it runs.
pub fn trim_memory() {
    #[cfg(all(target_os = "linux", not(writ_other_system)))]
    crate::linux::trim_heap();
}

/// Checks what the person has written.
fn check_order(order: &AgentOrder) -> Result<(), AgentError> {
    let bad = |why| Err(AgentError::Command(why));
    let names = order.variables.iter().map(|(name, _)| name);
    let values = order.variables.iter().map(|(_, value)| value);
    let texts: Vec<&String> = order.argv.iter().chain(names).chain(values).collect();
    if texts.iter().any(|text| text.contains('\0')) {
        return bad("it holds a zero byte");
    }
    if texts.iter().map(|text| text.len() + 1).sum::<usize>() > ARGUMENTS_MAX {
        return bad("its arguments are too long");
    }
    if order.argv.first().is_none_or(String::is_empty) {
        return bad("it names no program");
    }
    if order.variables.len() > VARIABLES_MAX {
        return bad("it has too many variables");
    }
    if order.variables.iter().any(|(name, _)| name.is_empty() || name.contains('=')) {
        return bad("a variable has no proper name");
    }
    Ok(())
}
