//! The context of a session: what its model sees, what each part costs, and what has left it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{MemoryId, SessionId};
use crate::taint::Taint;
use crate::unit::{MicroUsd, Tokens};

/// The context of a session as its next turn would begin with it, before the message.
// tidy: plain state
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContextView {
    /// The session.
    pub session: SessionId,
    /// The model of its turns, as `provider/model`; none if no model is configured.
    pub model: Option<String>,
    /// The context profile, which shares the budget among the zones.
    pub profile: String,
    /// The whole budget, in estimated tokens.
    pub budget: Tokens,
    /// Above this, items are evicted.
    pub evicts_above: Tokens,
    /// Above this, the older part of the conversation is summarised before the next turn.
    pub compacts_above: Tokens,
    /// The estimated tokens of all items.
    pub used: Tokens,
    /// The cost of sending them once, uncached, in millionths of a US dollar; none if the price is not known.
    pub cost_micro_usd: Option<MicroUsd>,
    /// Real tokens for every 1,000 estimated ones, as the provider has counted them so far.
    pub real_per_1000: u32,
    /// The trust level of the whole.
    pub taint: Taint,
    /// The items, in the order of the request; at most 1,000.
    pub items: Vec<ContextItem>,
    /// The number of items that are not shown here.
    pub more: usize,
    /// The number of items that had to leave for this request alone.
    pub evicted: usize,
    /// The rows that are pinned.
    pub pins: Vec<u64>,
    /// The topic in force, whose messages and memories alone are in the context besides those of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The compactions, newest first; at most 20.
    pub compactions: Vec<CompactionSummary>,
    /// The memories that the last message brought, best first, since the engine was started; at most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recalled: Vec<RecallReason>,
}

/// A memory that a message has brought into the context, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecallReason {
    /// The memory.
    pub id: MemoryId,
    /// How it begins, on one line.
    pub begins: String,
    /// The reasons, such as `words (2.), meaning (0.61), about anna`.
    pub why: String,
}

/// One item of a context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContextItem {
    /// `system`, `memory`, `chronicle`, `workspace` or `current`.
    pub zone: String,
    /// Its name: `constitution`, `tool file_read`, `user`, `summary of …`.
    pub source: String,
    /// Its estimated tokens.
    pub tokens: Tokens,
    /// The cost of sending it once, uncached; none if the price is not known.
    pub cost_micro_usd: Option<MicroUsd>,
    /// True if it is never evicted.
    pub pinned: bool,
    /// Its trust level.
    pub taint: Taint,
    /// The row of the history by which it can be pinned; none for what is not of the history.
    pub row: Option<u64>,
    /// How it begins, on one line.
    pub begins: String,
}

/// One compaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompactionSummary {
    /// Its number in the session, from one.
    pub number: u64,
    /// When, as RFC 3339.
    pub at: String,
    /// `tokens`, `messages` or `asked`.
    pub reason: String,
    /// The model that wrote the summary, or `harness`.
    pub by: String,
    /// The messages that it stands for, those of earlier compactions included.
    pub messages: u64,
    /// The last row of the history that it stands for.
    pub upto: u64,
    /// Estimated tokens of the context before.
    pub tokens_before: Tokens,
    /// Estimated tokens of the context after.
    pub tokens_after: Tokens,
    /// The memories that were made of what left.
    pub remembered: u64,
    /// The summary.
    pub summary: String,
}

/// The messages of a session's history that are not in its context word for word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContextDiff {
    /// The session.
    pub session: SessionId,
    /// The number of messages in the history.
    pub messages: u64,
    /// The number of them that are in the context word for word.
    pub whole: u64,
    /// The others, oldest first, the newest 500 of them.
    pub changed: Vec<ChangedMessage>,
    /// The number of others that are not listed here.
    pub more: u64,
}

/// A message that is not in the context word for word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedMessage {
    /// Its row in the history.
    pub row: u64,
    /// When it was sent, as RFC 3339.
    pub at: String,
    /// What became of it.
    pub state: MessageChange,
    /// How it begins, on one line.
    pub begins: String,
}

/// What became of a message of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageChange {
    /// A summary stands for it.
    Summarised,
    /// It stands beside the summary: the scorer or the owner wanted that.
    Carried,
    /// A long text or an old result of it is shortened, with a mark.
    Shortened,
    /// It is left out of the next request: it does not fit, or only acknowledges.
    LeftOut,
}

/// Names a row of a session's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextPin {
    /// The session.
    pub session: SessionId,
    /// The row.
    pub row: u64,
}

/// A question about the topics of a session, or the order to change to one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicChoice {
    /// The session.
    pub session: SessionId,
    /// The topic that what follows is about; it is new if it has no such name yet. None: nothing changes.
    #[serde(default)]
    pub topic: Option<String>,
    /// True if what follows is about no topic.
    #[serde(default)]
    pub leave: bool,
}

/// The topics of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionTopicList {
    /// The session.
    pub session: SessionId,
    /// The topic in force.
    pub topic: Option<String>,
    /// All topics, by name.
    pub topics: Vec<String>,
}

/// The pins of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContextPins {
    /// The session.
    pub session: SessionId,
    /// The rows that stay in its context.
    pub pins: Vec<u64>,
}

/// A compaction that the owner has asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompactionOutcome {
    /// The session.
    pub session: SessionId,
    /// The compaction; none if there was nothing to compact.
    pub compaction: Option<CompactionSummary>,
}
