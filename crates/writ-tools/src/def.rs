//! The definition of a tool: a row of a table.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use writ_inspect::prepared::Sink;
use writ_types::action::{Action, ActionKind};
use writ_types::digest::Digest;
use writ_types::encoding::TextForm;
use writ_types::id::{SessionId, TurnId};
use writ_types::taint::Label;

use crate::config::ToolTimeouts;
use crate::error::ToolError;
use crate::path::WorkPath;

/// An agent of the harness that uses tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentRole {
    /// Talks to the person and answers what needs no work.
    Proxy,
    /// Makes plans.
    Planner,
    /// Does the work.
    Executor,
    /// Judges the work; has no tools of an agent.
    Verification,
}

impl AgentRole {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Proxy, Self::Planner, Self::Executor, Self::Verification];

    /// The name used in configuration and on screens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Planner => "planner",
            Self::Executor => "executor",
            Self::Verification => "verification",
        }
    }
}

/// The kind of text that a tool returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputKind {
    /// Output of a program: external.
    ProcessOutput,
    /// Content of files: external.
    FileContent,
    /// An answer of a host of the network: external.
    WebContent,
    /// Memories: each as trusted as it was stored.
    Memory,
    /// The harness's own words.
    Confirmation,
}

/// A tool.
#[derive(Debug)]
pub struct ToolDef {
    /// Its name.
    pub name: &'static str,
    /// A description for the model.
    pub description: &'static str,
    /// An example of its arguments, for error messages.
    pub usage: &'static str,
    /// The arguments that say who, where, what is touched.
    pub sinks: &'static [&'static str],
    /// True if performing it twice has the effect of performing it once.
    pub idempotent: bool,
    /// The kind of text it returns.
    pub output: OutputKind,
    /// The kinds of action that it can lead to.
    pub actions: &'static [ActionKind],
    /// The roles that may use it.
    pub roles: &'static [AgentRole],
    /// JSON Schema of its arguments.
    pub(crate) schema: fn() -> Value,
    /// Names the file that must be read before the action can be prepared.
    pub(crate) needs: fn(&Value) -> Result<Option<WorkPath>, ToolError>,
    /// Makes the action.
    pub(crate) prepare: fn(&Value, Option<&PathState>, &ToolContext<'_>) -> Result<ActionDraft, ToolError>,
}

impl ToolDef {
    /// Returns true if its results come from outside: its calls may name the tools that come after it
    /// ([`THEN`](writ_inspect::origin::THEN)).
    pub fn reads_outside(&self) -> bool {
        match self.output {
            OutputKind::WebContent => true,
            OutputKind::ProcessOutput
            | OutputKind::FileContent
            | OutputKind::Memory
            | OutputKind::Confirmation => false,
        }
    }

    /// Returns true if its results are the words of files, programs or others: these can be withheld from the
    /// model.
    pub fn can_be_kept(&self) -> bool {
        match self.output {
            OutputKind::ProcessOutput | OutputKind::FileContent => true,
            // The answer about a withheld result is itself typed, so it need not be withheld.
            OutputKind::WebContent => self.name != crate::question::TOOL,
            OutputKind::Memory | OutputKind::Confirmation => false,
        }
    }
}

/// For tools that need no look at a file.
pub(crate) const fn needs_nothing(_arguments: &Value) -> Result<Option<WorkPath>, ToolError> {
    Ok(None)
}

/// The harness's knowledge about a call. None of it comes from the model.
#[derive(Clone, Copy, Debug)]
pub struct ToolContext<'a> {
    /// The agent that calls.
    pub agent: &'a str,
    /// The session.
    pub session: Option<SessionId>,
    /// The turn.
    pub turn: Option<TurnId>,
    /// The number of the turn.
    pub turn_number: u64,
    /// The label of the arguments.
    pub label: &'a Label,
    /// Settings.
    pub config: &'a ToolTimeouts,
    /// The search provider, if the owner has configured one.
    pub search: Option<SearchTarget<'a>>,
}

/// The search provider of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchTarget<'a> {
    /// The provider's name in the configuration.
    pub provider: &'a str,
    /// Host and port that the words go to.
    pub host: &'a str,
    /// The most results of one search.
    pub max_results: u64,
}

/// The largest file that is looked at, in bytes: what fits a `file_write` of the largest arguments.
pub const MAX_PEEK_BYTES: u64 = 1024 * 1024;

/// The state of a path of the work folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathState {
    /// Nothing.
    Missing,
    /// A regular file of at most [`MAX_PEEK_BYTES`].
    File {
        /// Its content.
        bytes: Vec<u8>,
        /// True if it is executable.
        executable: bool,
    },
    /// A regular file that is larger.
    Large {
        /// Digest of its content.
        digest: Digest,
        /// Its size, in bytes.
        bytes: u64,
        /// True if it is executable.
        executable: bool,
        /// The conventions of its text; `None`: it is no text.
        form: Option<TextForm>,
    },
    /// A folder.
    Folder,
    /// A symbolic link, a device or anything else, or a path that leads through one.
    Other,
}

/// The action that a tool makes of its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionDraft {
    pub(crate) action: Action,
    pub(crate) sinks: Vec<Sink>,
    pub(crate) bindings: BTreeMap<String, Digest>,
    pub(crate) intent: String,
}

impl ActionDraft {
    pub(crate) fn new_draft(action: Action, intent: String) -> Self {
        Self { action, sinks: Vec::new(), bindings: BTreeMap::new(), intent }
    }

    pub(crate) fn with_sink(mut self, argument: &str, value: impl Into<String>) -> Self {
        self.sinks.push(Sink { argument: argument.to_owned(), value: value.into() });
        self
    }

    pub(crate) fn with_binding(mut self, name: &str, digest: Digest) -> Self {
        self.bindings.insert(name.to_owned(), digest);
        self
    }
}
