//! Sessions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::chat::{Role, Usage};
use crate::id::{EntrySeq, ItemId, KeyId, SessionId, TurnId};
use crate::taint::Taint;
use crate::unit::{MicroUsd, Timestamp, Tokens};

/// Names a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionName {
    /// The session.
    pub session: SessionId,
}

/// Selects sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionFilter {
    /// The deleted ones in place of the others.
    #[serde(default)]
    pub deleted: bool,
}

/// All sessions, the one that was used last first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionList {
    /// At most 500.
    pub sessions: Vec<SessionSummary>,
}

// tidy: plain state
/// One session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionSummary {
    /// The session.
    pub session: SessionId,
    /// Its name: the owner's, a model's, or the beginning of its first message.
    #[serde(default)]
    pub title: Option<String>,
    /// The named agent that answers in it; none: the usual one.
    #[serde(default)]
    pub agent: Option<String>,
    /// The model that was chosen for it, as `provider/name`; none: that of its agent.
    #[serde(default)]
    pub model: Option<String>,
    /// The session that it was copied from, and the number of the last turn that was copied.
    #[serde(default)]
    pub forked_from: Option<(SessionId, u64)>,
    /// Its project folder.
    pub project: Option<String>,
    /// The number of its last turn.
    pub turns: u64,
    /// The number of its last stored frame.
    pub seq: u64,
    /// The turn that runs.
    pub running: Option<TurnId>,
    /// True if changes go to the project as they are made.
    pub write: bool,
    /// True if actions are decided and recorded but not performed.
    pub dry_run: bool,
    /// True if its messages come from people other than the owner.
    pub relayed: bool,
    /// When it was opened, as RFC 3339.
    pub created_at: String,
    /// When it was used last, as RFC 3339.
    pub updated_at: String,
    /// When it was closed, as RFC 3339; none if it is open.
    pub closed_at: Option<String>,
    /// Tokens used since it was renewed.
    pub tokens: Tokens,
    /// Tokens that it may use.
    pub limit: Tokens,
    /// Money that its model calls have cost since it was opened.
    #[serde(default)]
    pub cost: MicroUsd,
    /// When it was deleted, as RFC 3339; it can be brought back until its content is erased.
    #[serde(default)]
    pub deleted_at: Option<String>,
    /// When its content was erased, as RFC 3339.
    #[serde(default)]
    pub erased_at: Option<String>,
    /// The standing order that it works under.
    pub order: Option<KeyId>,
}

/// One session with its waiting messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionDetails {
    /// The session.
    #[serde(flatten)]
    pub summary: SessionSummary,
    /// Entries of the messages that wait for a turn, at most 1,000.
    pub waiting: Vec<EntrySeq>,
}

/// A session that was closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionClosing {
    /// The session.
    pub session: SessionId,
    /// When it was closed first, as RFC 3339.
    pub closed_at: String,
}

/// The longest title of a session, in characters.
pub const MAX_TITLE_CHARS: usize = 80;

/// A new title for a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionTitle {
    /// The session.
    pub session: SessionId,
    /// The title, at most [`MAX_TITLE_CHARS`] characters.
    pub title: String,
}

/// A search of the messages of sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionQuery {
    /// Words that a message must all contain, in either case.
    pub q: String,
    /// The most messages found, 1 to 100; without it 20.
    #[serde(default)]
    pub limit: Option<usize>,
}

/// Messages that a search has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionHits {
    /// The messages, newest first.
    pub hits: Vec<SessionHit>,
    /// True if older messages were not looked through.
    pub more: bool,
}

/// A message that a search has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionHit {
    /// Its session.
    pub session: SessionId,
    /// The session's title.
    pub title: Option<String>,
    /// The number of its turn.
    pub turn_number: u64,
    /// When it was written.
    pub at: Timestamp,
    /// The author.
    pub role: Role,
    /// The part of it around the first word, escaped.
    pub excerpt: String,
}

/// Asks for a part of a session's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistoryQuery {
    /// The session.
    pub session: SessionId,
    /// The number of the last message that was read before; messages follow it.
    #[serde(default)]
    pub after: u64,
    /// The most messages, 1 to 500; without it 200.
    #[serde(default)]
    pub limit: Option<usize>,
}

/// A part of a session's history, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryPage {
    /// The messages.
    pub messages: Vec<HistoryMessage>,
    /// The number to ask for the next part with; none if this was the last.
    pub next: Option<u64>,
}

/// A message of a session's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryMessage {
    /// Its number among the messages of all sessions.
    pub n: u64,
    /// Its turn; none where it was copied from another session, or stands outside turns.
    pub turn: Option<TurnId>,
    /// The number of its turn.
    pub turn_number: u64,
    /// When it was written.
    pub at: Timestamp,
    /// The author.
    pub role: Role,
    /// Its text, masked as it was stored; results of tools are named, not quoted.
    pub text: String,
    /// Its trust level.
    pub taint: Taint,
}

/// A copy of a session to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionFork {
    /// The session.
    pub session: SessionId,
    /// The number of the last turn that is copied; without it, all of them.
    #[serde(default)]
    pub turn: Option<u64>,
}

/// A session that was deleted or brought back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionDeletion {
    /// The session.
    pub session: SessionId,
    /// When its content is erased, as RFC 3339; none if it was brought back.
    pub erased_after: Option<String>,
}

/// The content of a session that was erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionErasure {
    /// The session.
    pub session: SessionId,
    /// The number of ledger entries that were emptied of their content.
    pub entries: usize,
    /// The number of ledger entries with content that is still needed, such as that of approvals in force.
    pub left: usize,
    /// The work items that go on and need the content until they end, at most twenty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemId>,
    /// What can be done about the rest; empty: nothing, or nothing is left.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

/// The named agent that is to answer in a session, and its model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionAgent {
    /// The session.
    pub session: SessionId,
    /// The agent's name; none: the usual one.
    #[serde(default)]
    pub agent: Option<String>,
    /// The model that is asked first, one of those that the configuration names; none: that of the agent.
    #[serde(default)]
    pub model: Option<String>,
}

/// What the turns of a session have used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnUsageList {
    /// The turns, newest first, at most 100.
    pub turns: Vec<TurnUsage>,
}

/// What one turn has used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnUsage {
    /// The turn.
    pub turn: TurnId,
    /// Its number.
    pub number: u64,
    /// The model that answered last, as `provider/model`.
    pub model: String,
    /// Tokens of all its model calls.
    pub usage: Usage,
    /// Their cost.
    pub cost: MicroUsd,
    /// The number of its model calls.
    pub calls: u64,
    /// Tokens of its last request, as the provider counted them.
    pub context: Tokens,
    /// Tokens that the model can take; none if that is not known.
    pub window: Option<Tokens>,
}

/// The named agents of the home, and the models that can be chosen for a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedAgentList {
    /// The agents, by name.
    pub agents: Vec<NamedAgentSummary>,
    /// The models of the configuration as `provider/name`, the usual one first; empty where none is set.
    #[serde(default)]
    pub models: Vec<String>,
}

/// An agent that the owner has described.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedAgentSummary {
    /// Its name.
    pub name: String,
    /// Its purpose, escaped.
    pub about: String,
    /// The model that it asks first; none: that of its role.
    pub model: Option<String>,
    /// The tools that it may use; empty: all of the usual agent.
    pub tools: Vec<String>,
    /// The folders that it works on; empty: any.
    pub folders: Vec<String>,
    /// True if it has rules of its own, which narrow those in force.
    pub narrows: bool,
}
