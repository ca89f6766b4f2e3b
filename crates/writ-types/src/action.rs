//! The actions that an agent can request.
//!
//! [`Action`] is closed. What it touches, its shape and its performer match every variant, so a new one cannot compile until
//! each has decided about it; the rest of the policy treats a kind that it does not name as one that leaves the machine.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::encoding::TextEncoding;
use crate::recipient::Recipient;
use crate::unit::MicroUsd;

mod call;
mod forge;
mod kind;
mod memory;
mod model;
mod own;
mod plan;
mod result;
mod slot;

pub use call::CallTool;
pub use forge::{ForgeKind, ForgeRequest};
pub use kind::{ActionKind, KindRow, PlanNeed};
pub use memory::{Forget, MemoryKind, MemoryTrust, Recall, Remember};
pub use model::ModelCall;
pub use own::{DOCUMENT_INDEX, DOCUMENTS, MAX_DOCUMENT_BYTES, ModifySelf, TOOL_LIST, is_document_name};
pub use plan::{Free, Plan, PlanStep, WorkOrder};
pub use result::ReadResult;
pub use slot::{Slot, SlotKind, SlotSource};

/// A request of an agent. Data only: it describes the work and holds no decision about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Action {
    /// Run a program in the sandbox.
    Exec(Exec),
    /// Read a file, list a folder or search files.
    ReadFile(ReadFile),
    /// Create, change or delete files.
    WriteFile(WriteFile),
    /// Read from a URL.
    Fetch(Fetch),
    /// Drive a browser.
    Browse(Browse),
    /// Search what is remembered.
    Recall(Recall),
    /// Remember something.
    Remember(Remember),
    /// Forget something.
    Forget(Forget),
    /// Say something to a person.
    Say(Say),
    /// Send a file to a person.
    SendFile(SendFile),
    /// Call a tool of an MCP server or a plugin.
    CallTool(CallTool),
    /// Make or change a dynamic tool.
    CreateTool(CreateTool),
    /// Install or activate a skill.
    InstallSkill(InstallSkill),
    /// Operate a container.
    Docker(Docker),
    /// Keep a file or URL in the context.
    Subscribe(Subscribe),
    /// Send a message to another agent.
    Message(AgentMessage),
    /// Hand a piece of work to another agent.
    Handoff(Handoff),
    /// Start a sub-agent.
    Spawn(Spawn),
    /// Ask a stronger model or a person.
    Escalate(Escalate),
    /// Call a model.
    ModelCall(ModelCall),
    /// Operate version control.
    Vcs(Vcs),
    /// Change the agent's own files.
    ModifySelf(ModifySelf),
    /// Run a declared operation of the security proxy.
    Operate(Operate),
    /// Open connections to a host through the proxy, for the rest of the session.
    Connect(Connect),
    /// Search the web, at the provider that the owner has configured.
    Search(Search),
    /// Have a plan approved, so that its steps are done without further questions.
    Plan(Plan),
    /// Read a part of an earlier result of this session that was too long to be shown whole.
    ReadResult(ReadResult),
}

impl Action {
    /// Returns the kind of this action.
    pub const fn kind(&self) -> ActionKind {
        match self {
            Self::Exec(_) => ActionKind::Exec,
            Self::ReadFile(_) => ActionKind::ReadFile,
            Self::WriteFile(_) => ActionKind::WriteFile,
            Self::Fetch(_) => ActionKind::Fetch,
            Self::Browse(_) => ActionKind::Browse,
            Self::Recall(_) => ActionKind::Recall,
            Self::Remember(_) => ActionKind::Remember,
            Self::Forget(_) => ActionKind::Forget,
            Self::Say(_) => ActionKind::Say,
            Self::SendFile(_) => ActionKind::SendFile,
            Self::CallTool(_) => ActionKind::CallTool,
            Self::CreateTool(_) => ActionKind::CreateTool,
            Self::InstallSkill(_) => ActionKind::InstallSkill,
            Self::Docker(_) => ActionKind::Docker,
            Self::Subscribe(_) => ActionKind::Subscribe,
            Self::Message(_) => ActionKind::Message,
            Self::Handoff(_) => ActionKind::Handoff,
            Self::Spawn(_) => ActionKind::Spawn,
            Self::Escalate(_) => ActionKind::Escalate,
            Self::ModelCall(_) => ActionKind::ModelCall,
            Self::Vcs(_) => ActionKind::Vcs,
            Self::ModifySelf(_) => ActionKind::ModifySelf,
            Self::Operate(_) => ActionKind::Operate,
            Self::Connect(_) => ActionKind::Connect,
            Self::Search(_) => ActionKind::Search,
            Self::Plan(_) => ActionKind::Plan,
            Self::ReadResult(_) => ActionKind::ReadResult,
        }
    }
}

/// The sandbox that a program runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecProfile {
    /// The session's own sandbox, on its overlay.
    Task,
    /// A sandbox of its own on a read-only snapshot of the work: `PATH` and `HOME` only, network off.
    Verification,
    /// The sandbox of a server of tools, with a folder of its own and nothing of the project. Asked for by the harness
    /// alone, from the owner's file.
    Server,
    /// The sandbox of a gate's script: nothing of the project, network off, and changes are discarded.
    /// Requested by the harness alone, from the owner's file.
    Gate,
}

/// A program to run. There is no shell in between: `argv` is what is executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory as the program sees it, absolute.
    pub cwd: String,
    /// Environment beyond the sandbox's own.
    pub env: BTreeMap<String, String>,
    /// Text for standard input.
    pub stdin: Option<String>,
    /// Wall-clock limit, in milliseconds.
    pub timeout_ms: u64,
    /// The sandbox.
    pub profile: ExecProfile,
    /// Hosts that it may reach through the proxy; empty: no network at all.
    pub hosts: Vec<String>,
}

/// A request to read a file. Paths are relative to the session's work folder, with `/` between names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFile {
    /// The file or folder, relative to the work folder; empty for the folder itself.
    pub path: String,
    /// The part or form to read.
    pub mode: ReadMode,
}

/// The part or form of something to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum ReadMode {
    /// The text of a file.
    Text {
        /// First line, counted from one.
        first_line: u64,
        /// Number of lines.
        lines: u64,
    },
    /// The entries of a folder.
    List,
    /// Lines that match a regular expression, below a folder.
    Search {
        /// The regular expression.
        pattern: String,
        /// A glob that file names must match; empty for all.
        glob: String,
        /// The most matches returned.
        max_matches: u64,
    },
}

/// The place that files are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The session's overlay: nothing leaves the sandbox.
    Overlay,
    /// The owner's project folder itself: outlasts the session.
    Project,
}

/// Files to write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteFile {
    /// The place.
    pub place: Place,
    /// The folder that the paths are relative to: `/work` in the overlay, the project's own path otherwise.
    pub root: String,
    /// The changes, sorted by path.
    pub changes: Vec<FileChange>,
    /// The new text, for a single change in the overlay; `None` when the bytes lie in the overlay already.
    pub content: Option<String>,
    /// The encoding of the text as bytes of the file; the digest is of these.
    #[serde(default, skip_serializing_if = "TextEncoding::is_utf8")]
    pub encoding: TextEncoding,
}

/// A change of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// Path relative to the root, `/` between names.
    pub path: String,
    /// The kind of change.
    pub kind: ChangeKind,
    /// Digest of the content before, when there was a file.
    pub before: Option<Digest>,
    /// Digest of the content after, when there is a file.
    pub after: Option<Digest>,
    /// True if the file is executable afterwards.
    pub executable: bool,
    /// Size afterwards, in bytes.
    pub bytes: u64,
}

/// The kind of a change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Create,
    /// Its content or executable bit changes.
    Modify,
    /// It goes.
    Delete,
}

/// A URL to read from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetch {
    /// The HTTP method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// The body that is sent, whole, so that it is shown and hashed with the rest.
    pub body: Option<String>,
    /// The media type of the body.
    pub content_type: Option<String>,
    /// The file that the answer is saved to, relative to the work folder.
    pub save_to: Option<String>,
    /// True if more than the usual 50 MiB may be saved, which a person must ask for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub large: bool,
}

/// A step in a browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Browse {
    /// The operation: `open`, `click`, `type`, `submit`, …
    pub operation: String,
    /// The page's URL.
    pub url: String,
    /// The element or text that the operation is about.
    pub target: String,
}

/// Something to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Say {
    /// The recipient.
    pub to: Recipient,
    /// The text.
    pub text: String,
}

/// A file to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendFile {
    /// The recipient.
    pub to: Recipient,
    /// The file, relative to the work folder.
    pub path: String,
    /// Digest of its content.
    pub digest: Digest,
}

/// A dynamic tool to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTool {
    /// Its name.
    pub name: String,
    /// Digest of its files.
    pub digest: Digest,
}

/// A skill to install.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallSkill {
    /// Its name.
    pub name: String,
    /// Its source.
    pub origin: String,
    /// Digest of the exact version.
    pub digest: Digest,
}

/// A container operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Docker {
    /// The operation: `run`, `stop`, …
    pub operation: String,
    /// The image, by digest where it has one.
    pub image: String,
}

/// Something to keep in the context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribe {
    /// A file, relative to the work folder, or an http or https URL; to stop, the subscription's id.
    pub target: String,
    /// The first and last line of a file, counted from one; `None`: all of it.
    pub lines: Option<(u64, u64)>,
    /// For how many turns after this one.
    pub turns: u64,
    /// True to stop, false to start.
    pub stop: bool,
}

impl Subscribe {
    /// The URL that is subscribed to, if it is one.
    pub fn url(&self) -> Option<&str> {
        // A path can hold a colon and slashes, too, but not begin like this.
        let is_url = self.target.starts_with("http://") || self.target.starts_with("https://");
        (is_url && !self.stop).then_some(self.target.as_str())
    }
}

/// A message to another agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentMessage {
    /// The agent.
    pub to: String,
    /// The text.
    pub text: String,
}

/// Work handed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff {
    /// The agent, or the capability that it must prove.
    pub to: String,
    /// The task.
    pub task: String,
}

/// A sub-agent to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
    /// The agent's name.
    pub agent: String,
    /// The task.
    pub task: String,
    /// The most that it may spend.
    pub budget: MicroUsd,
}

/// A question to a stronger model or a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalate {
    /// The recipient of the question: `oracle` or `person`.
    pub to: String,
    /// The question.
    pub question: String,
}

/// A version-control operation by the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcs {
    /// The operation: `commit`, `merge`, `push`, …
    pub operation: String,
    /// The repository.
    pub repository: String,
    /// The branch or remote that it is about.
    pub target: String,
    /// The request for review that is opened at a forge once the branch is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<ForgeRequest>>,
}

/// A declared operation of the security proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operate {
    /// Its name.
    pub operation: String,
    /// Its parameters.
    pub parameters: BTreeMap<String, String>,
}

/// A host to be reached through the proxy. Where it lies on the network is judged with every connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connect {
    /// The host in its canonical form: lower case, A-labels.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// A search of the web. The provider's key is no part of it: the performer adds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// The provider's name in the configuration.
    pub provider: String,
    /// Host and port that the words go to.
    pub host: String,
    /// The search text.
    pub query: String,
    /// The most results returned.
    pub max_results: u64,
}
