//! The reasons why a folder is no agent that may act.

use std::io;
use std::path::{Path, PathBuf};

use writ_policy::keys::KeyError;
use writ_types::digest::Digest;
use writ_types::error::{Exit, Report, ToReport};

/// The reason why a folder is no agent that may act.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its `agent.toml` is wrong.
    #[error("{}:{line}: {what}", file.display())]
    Manifest {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The mistake.
        what: String,
        /// A remedy.
        hint: String,
    },
    /// The folder has something in it that no agent has.
    #[error("{}: {what}", path.display())]
    Folder {
        /// The folder, or the thing in it.
        path: PathBuf,
        /// The mistake.
        what: String,
        /// A remedy.
        hint: String,
    },
    /// A file or folder cannot be read or written.
    #[error("{} cannot be used: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It has no base key.
    #[error("there is no base key {}", path.display())]
    NoKey {
        /// The missing file.
        path: PathBuf,
    },
    /// The file of its base key gives more permissions than reading and writing to its owner.
    #[error("the base key {} has the mode {mode:03o}, which gives more than 600", path.display())]
    KeyMode {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file of its base key is another user's.
    #[error("the base key {} belongs to user {owner}", path.display())]
    KeyOwner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The file holds no base key of this installation.
    #[error("{} is no base key: {source}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: KeyError,
    },
    /// The base key is another agent's.
    #[error("the base key in {} is of agent '{key}', and the folder of '{name}'", path.display())]
    OtherAgent {
        /// The folder.
        path: PathBuf,
        /// The agent of the key.
        key: String,
        /// The name in `agent.toml`, or that of the place.
        name: String,
    },
    /// The folder is not the one that was approved.
    #[error(
        "agent '{agent}' was changed after it was approved: its folder has the digest {found}, and its key is good for {approved}"
    )]
    Changed {
        /// The agent.
        agent: String,
        /// The digest that its base key is bound to.
        approved: Digest,
        /// The digest of the folder now.
        found: Digest,
    },
    /// No agent of this name is deployed.
    #[error("no agent '{0}' is deployed here")]
    Unknown(String),
}

impl AgentError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn folder(path: &Path, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Folder { path: path.to_owned(), what: what.into(), hint: hint.into() }
    }
}

impl ToReport for AgentError {
    fn report(&self) -> Report {
        let (exit, code, hint) = match self {
            Self::Manifest { hint, .. } => (Exit::Usage, "agent.manifest", hint.clone()),
            Self::Folder { hint, .. } => (Exit::Usage, "agent.content", hint.clone()),
            Self::Io { .. } => (Exit::Config, "agent.io", "check its owner, mode and place".to_owned()),
            Self::NoKey { .. } => (
                Exit::Denied,
                "agent.no_key",
                "`writ agent bless DIR` approves the folder and writes its key".to_owned(),
            ),
            Self::KeyMode { path, .. } => {
                (Exit::Config, "agent.key_mode", format!("chmod 600 {}", path.display()))
            }
            Self::KeyOwner { .. } => {
                (Exit::Config, "agent.key_owner", "deploy it as the user that runs the engine".to_owned())
            }
            Self::Key { .. } => (
                Exit::Denied,
                "agent.key",
                "`writ agent bless DIR` approves the folder and writes its key".to_owned(),
            ),
            Self::OtherAgent { .. } => {
                (Exit::Denied, "agent.other", "give each agent a folder and a key of its own".to_owned())
            }
            Self::Changed { .. } => (
                Exit::Denied,
                "agent.changed",
                "raise `version` in its agent.toml, then `writ agent bless DIR` and `writ agent deploy DIR`"
                    .to_owned(),
            ),
            Self::Unknown(_) => (
                Exit::Usage,
                "agent.not_deployed",
                "`writ agent list` shows the agents of this home".to_owned(),
            ),
        };
        Report::new(exit, code, self.to_string()).with_hint(hint)
    }
}
