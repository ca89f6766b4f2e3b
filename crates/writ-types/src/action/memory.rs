//! What is remembered, searched and forgotten.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{MemoryId, SessionId};
use crate::taint::Taint;

/// A search of the memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recall {
    /// Words to look for.
    pub query: String,
    /// The most hits returned.
    pub limit: u64,
}

/// The kind of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Something that is so.
    Fact,
    /// Something that happened.
    Episode,
    /// A preference of the owner.
    Preference,
    /// Steps of a procedure.
    Procedure,
    /// A fact about the owner: pinned when a session is opened.
    Profile,
}

/// The confidence in a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryTrust {
    /// Noted, not confirmed.
    Working,
    /// Confirmed by the owner. Never from external content.
    Verified,
    /// Part of what the agent is. Never from external content.
    Constitutional,
}

/// Something to remember.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remember {
    /// The text.
    pub text: String,
    /// Its kind.
    pub memory_kind: MemoryKind,
    /// The confidence to store it with.
    pub trust: MemoryTrust,
    /// The text's trust level; set by the harness.
    pub taint: Taint,
    /// True if it depends on text that the owner has marked secret; set by the harness.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
    /// The session that this memory belongs to; `None`: all sessions.
    pub session: Option<SessionId>,
}

/// Something to forget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forget {
    /// The memory.
    pub memory: MemoryId,
}
