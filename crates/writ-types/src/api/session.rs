//! Sessions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{EntrySeq, KeyId, SessionId, TurnId};
use crate::unit::Tokens;

/// Names a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionName {
    /// The session.
    pub session: SessionId,
}

/// All sessions, the one that was used last first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionList {
    /// At most 500.
    pub sessions: Vec<SessionSummary>,
}

/// One session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionSummary {
    /// The session.
    pub session: SessionId,
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
