//! What the router needs of others: tokens from the security proxy, and processes from the launcher.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use writ_policy::keys::KeyToken;
use writ_types::id::{KeyId, SessionId};

use super::config::ProcessLimits;

/// The names of a case, as its tenant knows them. They go to the security proxy and into no record.
#[derive(Clone, PartialEq, Eq)]
pub struct GuestNames {
    /// The customer.
    pub customer: String,
    /// The case.
    pub case: String,
    /// The tenant; `None`: the only one.
    pub tenant: Option<String>,
    /// What is known of the customer, by kinds of personal data: agents read tokens in its place from the first message on.
    pub known: BTreeMap<String, Vec<String>>,
}

// A customer's name stays out of logs.
impl fmt::Debug for GuestNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GuestNames(…)")
    }
}

/// The tokens of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPair {
    /// Of the customer.
    pub customer_token: String,
    /// Of the case.
    pub case_token: String,
    /// The keyed hash of the customer, the same in all of its cases; empty: unknown. No agent sees it.
    pub fingerprint: String,
}

/// The reason why another component did not do its part; for logs and people, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PortFault(pub String);

/// The reason why an agent did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StartFault {
    /// Another version was deployed, or it was retired, and its router has not read that yet.
    #[error("another version was deployed meanwhile")]
    Replaced,
    /// It cannot be started as it is.
    #[error(transparent)]
    Port(#[from] PortFault),
}

/// The security proxy, as its router reaches it.
pub trait CaseTokenSource: fmt::Debug + Send + Sync {
    /// Opens a case at the proxy, or finds it.
    fn open_tokens<'a>(&'a self, names: &'a GuestNames) -> BoxFuture<'a, Result<TokenPair, PortFault>>;

    /// Puts tokens in place of the personal data in a text that agents of a case are to read.
    fn mask_text<'a>(
        &'a self,
        case_token: &'a str,
        text: &'a str,
    ) -> BoxFuture<'a, Result<String, PortFault>>;

    /// Puts the values of a case back in place of its tokens, in a text for its own customer.
    fn restore_text<'a>(
        &'a self,
        case_token: &'a str,
        text: &'a str,
    ) -> BoxFuture<'a, Result<String, PortFault>>;

    /// Closes a case: its keys reach nothing. Closing one that is closed is no fault.
    fn close_tokens<'a>(&'a self, case_token: &'a str) -> BoxFuture<'a, Result<(), PortFault>>;

    /// Passes on that task keys were revoked, as well as it can: it waits for nothing, and the engine's database is the
    /// truth where the proxy reads it.
    fn revoke_keys(&self, ids: &[KeyId]);
}

/// An agent that is to be started.
#[derive(Clone, Debug)]
pub struct StartOrder {
    /// The case.
    pub case: SessionId,
    /// The agent.
    pub agent: String,
    /// Its program and arguments.
    pub command: Vec<String>,
    /// The folder with its program, if it was deployed.
    pub folder: Option<PathBuf>,
    /// The limits of its process.
    pub limits: ProcessLimits,
    /// Its base key.
    pub base: KeyToken,
    /// Its task key.
    pub task: KeyToken,
}

/// A process of an agent. Dropping it ends it, with everything that it started.
pub trait AgentProcess: fmt::Debug + Send + Sync {
    /// Replaces the task key that its requests carry from now on.
    ///
    /// # Errors
    ///
    /// If the launcher cannot be given another key.
    fn replace_key(&mut self, task: &KeyToken) -> Result<(), PortFault>;

    /// Returns what the agent has tried past its two servers since the last call.
    fn take_ways_out(&mut self) -> WaysOut {
        WaysOut::default()
    }
}

/// The ways out that an agent has tried, all of them in vain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaysOut {
    /// Requests that its launcher has refused, by the reason.
    pub refused: BTreeMap<String, u64>,
    /// Some of the names that it asked for.
    pub names: BTreeSet<String>,
    /// Attempts at what its network does not have.
    pub unreached: u64,
}

impl WaysOut {
    /// Returns the number of attempts.
    pub fn count(&self) -> u64 {
        self.refused.values().fold(self.unreached, |sum, count| sum.saturating_add(*count))
    }
}

impl fmt::Display for WaysOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refused =
            self.refused.iter().map(|(reason, count)| format!("{count} {}", reason.replace('_', " ")));
        let unreached = match self.unreached {
            0 => None,
            count => Some(format!("{count} at what its network does not have")),
        };
        let counts: Vec<String> = refused.chain(unreached).collect();
        f.write_str(&counts.join(", "))?;
        match self.names.is_empty() {
            true => Ok(()),
            false => {
                write!(f, "; names: {}", self.names.iter().map(String::as_str).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

/// A started agent.
pub struct StartedAgent {
    /// Its standard input: one line of JSON for each message to it.
    pub input: Box<dyn AsyncWrite + Send + Unpin>,
    /// Its standard output: one line of JSON for each message from it.
    pub output: Box<dyn AsyncRead + Send + Unpin>,
    /// Its process.
    pub process: Box<dyn AgentProcess>,
}

impl fmt::Debug for StartedAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StartedAgent({:?})", self.process)
    }
}

/// The launcher of agents.
pub trait AgentHost: fmt::Debug + Send + Sync {
    /// Starts an agent, locked in, with the keys of its order and no others.
    fn start_agent(&self, order: StartOrder) -> BoxFuture<'_, Result<StartedAgent, PortFault>>;
}
