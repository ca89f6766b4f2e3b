//! Cassettes: the questions to models and tools in a session, and their answers.
//!
//! A cassette is a file of JSON lines, one [`CassetteTrack`] each. The first line is its head.

use serde::{Deserialize, Serialize};

use crate::chat::{ModelReply, ToolCall, ToolOutcome};
use crate::digest::Digest;
use crate::id::{AskId, SessionId};
use crate::taint::Taint;
use crate::unit::{Timestamp, Tokens};

/// The version of the format that this code writes, and the newest that it reads.
pub const CASSETTE_VERSION: u32 = 2;

/// The largest cassette that is read, in bytes.
pub const MAX_CASSETTE_BYTES: usize = 64 * 1024 * 1024;

/// A line of a cassette. Secrets in it are masked as everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "track", rename_all = "snake_case")]
pub enum CassetteTrack {
    /// The head.
    Head {
        /// The version of the format.
        version: u32,
        /// The session that was recorded.
        session: SessionId,
        /// Its title.
        title: Option<String>,
        /// The named agent that answered in it.
        agent: Option<String>,
        /// True if it worked on a project. The folder's path is left out, because it means nothing on another machine.
        has_project: bool,
        /// When the cassette was made.
        made_at: Timestamp,
    },
    /// A person's message.
    Message {
        /// The number of the turn.
        turn: u64,
        /// Its text.
        text: String,
        /// Its trust level.
        taint: Taint,
    },
    /// A model has answered a request of the conversation.
    Model {
        /// The number of the turn.
        turn: u64,
        /// The role of the model: `executor` or `planner`.
        #[serde(default = "executor")]
        role: String,
        /// Digest of the request.
        request: Digest,
        /// The number of messages in it.
        messages: usize,
        /// The number of tools in it.
        tools: usize,
        /// Its estimated length, in tokens.
        length: Tokens,
        /// The answer.
        reply: Box<ModelReply>,
    },
    /// A model has answered a request that the harness made outside the conversation.
    Harness {
        /// The number of the turn; zero if it belongs to none, like the title.
        turn: u64,
        /// The role of the model, such as `proxy`, `scorer` or `observer`.
        role: String,
        /// The answer.
        reply: Box<ModelReply>,
    },
    /// A request to a model that failed.
    Failure {
        /// The number of the turn.
        turn: u64,
        /// The reason, in words.
        text: String,
    },
    /// A tool was called.
    Tool {
        /// The number of the turn.
        turn: u64,
        /// The call.
        call: ToolCall,
        /// The outcome.
        outcome: ToolOutcome,
        /// The result that the model read.
        text: String,
        /// The result's trust level.
        taint: Taint,
        /// The ask that it waited for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ask: Option<AskId>,
    },
    /// An ask was answered during the turn.
    Answer {
        /// The number of the turn.
        turn: u64,
        /// The ask.
        ask: AskId,
        /// The outcome.
        outcome: ToolOutcome,
        /// The result that the model read.
        text: String,
    },
    /// The end of a turn.
    End {
        /// The number of the turn.
        turn: u64,
        /// How it ended: `finished`, `failed`, `cancelled`, `open`.
        state: String,
    },
}

/// The role of answers in cassettes of version 1.
fn executor() -> String {
    "executor".to_owned()
}

/// Asks for a part of a session's cassette, or of its replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CassetteQuery {
    /// The session.
    pub session: SessionId,
    /// The number of the last turn that was read before.
    #[serde(default)]
    pub after: u64,
}

/// A part of a cassette.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CassettePage {
    /// The lines.
    pub tracks: Vec<CassetteTrack>,
    /// The turn to go on after; none if this was the last part.
    pub next: Option<u64>,
}

/// A decision about a tool call, when it was made or today.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayVerdict {
    /// It passes.
    Permit,
    /// It asks, and its recorded approval lets it pass: the answer to its own ask, or an earlier approval that covers it.
    Approved,
    /// It asks a person.
    Ask,
    /// It is refused.
    Deny,
    /// The decision is unknown: the call was malformed, its tool is missing, or its arguments depend on content that no longer exists.
    Unknown,
}

/// A tool call of a session, decided again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayStep {
    /// The number of the turn.
    pub turn: u64,
    /// The call's id.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// The purpose, escaped.
    pub intent: String,
    /// The gates that were not called because they run a program or ask a person; their judgement today is unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<String>,
    /// The decision then.
    pub did: ReplayVerdict,
    /// The decision today.
    pub would: ReplayVerdict,
    /// The rules, key or bound that would decide today; empty if it passes.
    pub rule: String,
    /// The reason today, in words.
    pub why: String,
}

impl ReplayStep {
    /// Returns true if it would be decided differently today.
    pub fn is_changed(&self) -> bool {
        // An unknown verdict proves no change.
        self.did != self.would && self.would != ReplayVerdict::Unknown && self.did != ReplayVerdict::Unknown
    }
}

/// A part of a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayPage {
    /// The calls, in their order.
    pub steps: Vec<ReplayStep>,
    /// The turn to go on after; none if this was the last part.
    pub next: Option<u64>,
}
