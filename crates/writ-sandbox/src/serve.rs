//! A program that stays, and is talked to.

use std::collections::BTreeMap;

use secrecy::SecretString;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::DropGuard;

use crate::error::SandboxError;
use crate::exec::{ExecResult, Listener};

/// The options of a server's start, besides its permit.
#[derive(Debug, Default)]
pub struct ServeOptions {
    /// The channel for the listener of a server with network; see [`Listener`]. Given and used when, and only
    /// when, its command names hosts.
    pub network: Option<mpsc::Sender<Listener>>,
    /// The values of those of its variables that the command names by reference: they stand nowhere else.
    pub secrets: BTreeMap<String, SecretString>,
    /// Certificate authorities that a server with network is to trust besides the system's, in PEM; `None`: none.
    pub certificate: Option<String>,
}

/// A server that runs.
#[derive(Debug)]
pub struct RunningServer {
    /// Its standard input.
    pub input: pipe::Sender,
    /// Its standard output.
    pub output: pipe::Receiver,
    /// Its end. Dropping it kills the server and everything that it has started.
    pub ended: ServerHandle,
}

/// A handle on a server: waits for its end, or ends it.
#[derive(Debug)]
pub struct ServerHandle {
    task: JoinHandle<Result<ExecResult, SandboxError>>,
    kill: Option<DropGuard>,
}

impl ServerHandle {
    pub(crate) const fn new(task: JoinHandle<Result<ExecResult, SandboxError>>, kill: DropGuard) -> Self {
        Self { task, kill: Some(kill) }
    }

    /// Waits for the server's end. Its standard output is with its client. Called once: later calls say that
    /// it was cancelled.
    ///
    /// # Errors
    ///
    /// If the sandbox could not be made after all.
    pub async fn wait(&mut self) -> Result<ExecResult, SandboxError> {
        if self.task.is_finished() && self.kill.is_none() {
            return Err(SandboxError::Cancelled);
        }
        let ended = (&mut self.task).await;
        self.kill = None;
        ended.unwrap_or(Err(SandboxError::Cancelled))
    }

    /// Kills the server and everything that it has started, and waits until no process is left.
    ///
    /// # Errors
    ///
    /// As [`Self::wait`].
    pub async fn kill(mut self) -> Result<ExecResult, SandboxError> {
        // Dropping the guard is what kills.
        if self.kill.take().is_none() {
            return Err(SandboxError::Cancelled);
        }
        (&mut self.task).await.unwrap_or(Err(SandboxError::Cancelled))
    }
}
