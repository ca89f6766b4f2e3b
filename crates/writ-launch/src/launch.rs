//! The launch of an agent: keys, servers and certificate are ready before its program starts.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use writ_egress::authority::AuthorityError;
use writ_egress::identity::ServerIdentity;
use writ_egress::local::{LocalError, LocalServer};
use writ_sandbox::agent::{
    AgentEnd, AgentError, AgentLimits, AgentOrder, AgentResult, AgentRun, AgentStreams, SandboxProfile,
    run_agent, trim_memory,
};
use writ_sandbox::container::ContainerOrder;
use writ_sandbox::exec::Listener;
use writ_types::error::{Exit, Report, ToReport};

use crate::folder::{KeySearch, MAX_ENTRIES, find_key};
use crate::forward::{ForwardLimits, Forwarder, Servers};
use crate::keys::{AgentKeys, KeyFileError};
use crate::names::{NAMES, PLAIN_PORT, TLS_PORT};
use crate::refusals::Refusals;

/// The order to launch an agent.
#[derive(Clone, Debug)]
pub struct LaunchOrder {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The file of the base key.
    pub base: PathBuf,
    /// The file of the task key.
    pub task: PathBuf,
    /// The socket of the security proxy.
    pub proxy: PathBuf,
    /// The socket of the router of models; `None`: there is none.
    pub router: Option<PathBuf>,
    /// A folder that the agent sees at `/work`, read-only.
    pub folder: Option<PathBuf>,
    /// More variables of the agent.
    pub variables: Vec<(String, String)>,
    /// A container to run it in; `None`: a sandbox of our own.
    pub container: Option<ContainerOrder>,
    /// An AppArmor profile to run under besides.
    pub profile: Option<SandboxProfile>,
    /// The bounds of the agent.
    pub limits: AgentLimits,
    /// The bounds of its connections.
    pub forward: ForwardLimits,
    /// The file that JSON lines about refusals are added to.
    pub report: Option<PathBuf>,
    /// The executable that is started again as helper; `None`: the running one.
    pub exe: Option<PathBuf>,
}

/// The end of a launched agent.
#[derive(Debug)]
pub struct LaunchResult {
    /// The agent's own end.
    pub agent: AgentResult,
    /// The count of its refused requests.
    pub refusals: Arc<Refusals>,
}

/// The reason why an agent was not launched.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The socket of a server cannot be used.
    #[error("the {server}: {source}")]
    Server {
        /// The server.
        server: &'static str,
        /// The reason.
        source: LocalError,
    },
    /// The folder that the agent may read has a key or a server's socket in it.
    #[error("the folder {} would show the agent {}", folder.display(), inside.display())]
    Shown {
        /// The folder.
        folder: PathBuf,
        /// What the agent must not have.
        inside: PathBuf,
    },
    /// The folder that the agent may read has too much in it to know that it holds no key.
    #[error("the folder {} has more than {MAX_ENTRIES} files: it is not known that none is a key", folder.display())]
    TooMuch {
        /// The folder.
        folder: PathBuf,
    },
    /// The report cannot be written.
    #[error("the report {} cannot be written: {source}", path.display())]
    Report {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The certificate for the agent's servers cannot be made.
    #[error(transparent)]
    Identity(#[from] AuthorityError),
    /// The agent cannot be started.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

impl ToReport for LaunchError {
    fn report(&self) -> Report {
        let text = self.to_string();
        match self {
            Self::Key(error) => error.report(),
            Self::Server { .. } => Report::new(Exit::Blocked, "run.server", text)
                .with_hint("start it, or name its socket with --proxy-socket or --router-socket"),
            Self::Shown { .. } | Self::TooMuch { .. } => Report::new(Exit::Usage, "run.folder", text)
                .with_hint("give the agent a folder with nothing but its program and its data, such as the deployed `agents/NAME/DIGEST` of the home"),
            Self::Report { .. } => {
                Report::new(Exit::Usage, "run.report", text).with_hint("name a file that you may write")
            }
            Self::Identity(_) => Report::new(Exit::Bug, "run.certificate", text)
                .with_hint("this is a bug in Writ: report it, with what was printed"),
            Self::Agent(error) => error.report(),
        }
    }
}

/// Runs an agent to its end, and passes its requests on meanwhile. When the future is dropped, the agent ends.
///
/// # Errors
///
/// If something that it needs is missing; no process was started then.
pub async fn launch_agent(
    order: LaunchOrder,
    streams: AgentStreams,
    stop: CancellationToken,
) -> Result<LaunchResult, LaunchError> {
    // Everything that can be missing is looked for before a process is started.
    check_folder(&order)?;
    let keys = AgentKeys::read_files(&order.base, &order.task)?;
    let servers = Servers {
        proxy: find_server("security proxy", order.proxy)?,
        router: order.router.map(|path| find_server("router of models", path)).transpose()?,
    };
    let report = order.report.as_deref().map(open_report).transpose()?;
    let refusals = Arc::new(Refusals::with_report(report));
    let identity = ServerIdentity::make(&NAMES)?;
    let agent = AgentOrder {
        argv: order.argv,
        folder: order.folder,
        variables: order.variables,
        ports: vec![PLAIN_PORT, TLS_PORT],
        names: NAMES.map(str::to_owned).into(),
        authority: identity.authority_pem().to_owned(),
        profile: order.profile,
        container: order.container,
        limits: order.limits,
    };
    let forwarder = Arc::new(Forwarder::new(servers, keys, identity, Arc::clone(&refusals), order.forward));
    // The channel has room for all listeners, since the sandbox does not wait for us.
    let (listeners, given) = mpsc::channel(agent.ports.len());
    let over = CancellationToken::new();
    // If this future is dropped, the agent's connections end with it.
    let _over = over.clone().drop_guard();
    let serving = tokio::spawn(serve_listeners(forwarder, given, over.clone()));
    let (first, began) = oneshot::channel();
    let run = AgentRun { order: agent, streams, listeners, first, stop, exe: order.exe };
    let begin = async {
        // If there is none, the agent's end says why.
        if let Ok(first) = began.await {
            refusals.begin_report(first);
            // From here on it waits: what was read and made for the start is not needed again.
            trim_memory();
        }
    };
    let (agent, ()) = tokio::join!(run_agent(run), begin);
    over.cancel();
    // It ends when the last connection has ended.
    let _served = serving.await;
    let agent = agent?;
    refusals.end_report(json!({
        "end": end_name(agent.end),
        "exit_code": agent.end.exit_code(),
        "unreached": agent.unreached,
        "user": agent.user,
        "missing": agent.missing,
        "duration_ms": u64::try_from(agent.duration.as_millis()).unwrap_or(u64::MAX),
    }));
    Ok(LaunchResult { agent, refusals })
}

/// Returns the name of an end in reports.
const fn end_name(end: AgentEnd) -> &'static str {
    match end {
        AgentEnd::Exited(_) => "exited",
        AgentEnd::Signalled(_) => "signalled",
        AgentEnd::Bounded(bound) => bound.as_str(),
        AgentEnd::Killed => "killed",
        AgentEnd::NotFound => "not_found",
        AgentEnd::NotExecutable => "not_executable",
    }
}

/// Checks that the agent's folder holds no key, not even a copy of one, and none of the sockets that are not meant for it: an
/// agent without a user of its own could read the one, and connect to the other.
fn check_folder(order: &LaunchOrder) -> Result<(), LaunchError> {
    // A folder that is not there is an error of the sandbox.
    let Some(folder) = order.folder.as_deref().and_then(|folder| folder.canonicalize().ok()) else {
        return Ok(());
    };
    let apart = [&order.base, &order.task, &order.proxy].into_iter().chain(&order.router);
    let mut apart = apart.filter_map(|path| path.canonicalize().ok());
    if let Some(inside) = apart.find(|inside| inside.starts_with(&folder)) {
        return Err(LaunchError::Shown { folder, inside });
    }
    match find_key(&folder) {
        KeySearch::Harmless => Ok(()),
        KeySearch::Secret(inside) => Err(LaunchError::Shown { folder, inside }),
        KeySearch::TooMuch => Err(LaunchError::TooMuch { folder }),
    }
}

fn find_server(server: &'static str, path: PathBuf) -> Result<LocalServer, LaunchError> {
    let found = LocalServer::at(path);
    found.check_socket().map_err(|source| LaunchError::Server { server, source })?;
    Ok(found)
}

fn open_report(path: &Path) -> Result<File, LaunchError> {
    // Appended to: several runs may share one report.
    let flags = OFlag::O_NOFOLLOW.bits();
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path);
    opened.map_err(|source| LaunchError::Report { path: path.to_owned(), source })
}

/// Serves each listener as it is handed out.
async fn serve_listeners(
    forwarder: Arc<Forwarder>,
    mut given: mpsc::Receiver<Listener>,
    over: CancellationToken,
) {
    let mut serving = JoinSet::new();
    loop {
        let listener = tokio::select! {
            listener = given.recv() => listener,
            () = over.cancelled() => None,
        };
        let Some(listener) = listener else { break };
        serving.spawn(Arc::clone(&forwarder).serve_listener(listener, over.clone()));
    }
    while let Some(served) = serving.join_next().await {
        if let Ok(Err(why)) = served {
            tracing::warn!(%why, "a way out of the agent could not be served");
        }
    }
}
