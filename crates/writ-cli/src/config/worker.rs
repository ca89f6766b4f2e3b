//! The owner's worker: who does the autopilot's work. A project cannot name one, since an agent could write its file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use writ_acp::client::TurnTimes;
use writ_fleet::models::within::ListenerModels;
use writ_inspect::redact::formats_in;
use writ_runtime::coding_agent::CodingAgent;

/// The longest time until a coding agent is ready, in seconds.
pub(crate) const MAX_START_SECS: u64 = 600;
/// The default time until a coding agent is ready, in seconds.
const START_SECS: u64 = 60;

/// The kind of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerKind {
    /// The engine's own agent.
    #[default]
    Builtin,
    /// A program that speaks the Agent Client Protocol.
    Acp,
}

/// Settings of the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenWorker")]
pub(crate) struct WorkerConfig {
    /// The kind. Default `builtin`.
    pub(crate) kind: WorkerKind,
    /// The program of the kind `acp` and its arguments. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) command: Vec<String>,
    /// Its variables. Default: those that name the models alone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) variables: BTreeMap<String, String>,
    /// The way of a login that it may use if it demands one, by its own id for it. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) login: Option<String>,
    /// The time until it is ready, in seconds. Default 60.
    pub(crate) start_secs: u64,
}

/// The settings as they are written.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WrittenWorker {
    kind: WorkerKind,
    command: Vec<String>,
    variables: BTreeMap<String, String>,
    login: Option<String>,
    start_secs: u64,
}

/// The reason why a worker cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidWorker {
    /// There is no program.
    #[error("kind = \"acp\" needs a command, such as command = [\"my-agent\", \"--acp\"]")]
    NoCommand,
    /// A variable has a name that is none.
    #[error("'{0}' is no name of a variable")]
    Variable(String),
    /// A value is a credential.
    #[error(
        "{place} looks like a credential ({format}): the command of a program is written to the ledger, and its agent could read it; an agent needs no keys here"
    )]
    Credential {
        /// The setting.
        place: String,
        /// The name of the format.
        format: &'static str,
    },
}

impl Default for WrittenWorker {
    fn default() -> Self {
        Self {
            kind: WorkerKind::default(),
            command: Vec::new(),
            variables: BTreeMap::new(),
            login: None,
            start_secs: START_SECS,
        }
    }
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self::read(WrittenWorker::default())
    }
}

impl WorkerConfig {
    fn read(written: WrittenWorker) -> Self {
        let WrittenWorker { kind, command, variables, login, start_secs } = written;
        Self { kind, command, variables, login, start_secs }
    }

    /// Returns the owner's coding agent; `None`: the engine's own agent does the work.
    pub(crate) fn coding_agent(&self) -> Option<CodingAgent> {
        let times = TurnTimes { start: Duration::from_secs(self.start_secs), ..TurnTimes::default() };
        (self.kind == WorkerKind::Acp).then(|| CodingAgent {
            command: self.command.clone(),
            variables: self.variables.clone(),
            login: self.login.clone(),
            times,
            models: Arc::new(ListenerModels),
        })
    }
}

impl TryFrom<WrittenWorker> for WorkerConfig {
    type Error = InvalidWorker;

    fn try_from(written: WrittenWorker) -> Result<Self, InvalidWorker> {
        if written.kind == WorkerKind::Acp && written.command.first().is_none_or(String::is_empty) {
            return Err(InvalidWorker::NoCommand);
        }
        let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
        if let Some(name) = written.variables.keys().find(|name| !is_name(name)) {
            return Err(InvalidWorker::Variable(name.clone()));
        }
        let arguments = written.command.iter().map(|text| ("command".to_owned(), text));
        let values = written.variables.iter().map(|(name, text)| (format!("variables.{name}"), text));
        for (place, text) in arguments.chain(values) {
            if let Some((_, format)) = formats_in(text).into_iter().next() {
                return Err(InvalidWorker::Credential { place, format });
            }
        }
        Ok(Self::read(written))
    }
}
