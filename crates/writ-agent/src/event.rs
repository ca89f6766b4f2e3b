//! The events of a turn, and their stored form.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use writ_types::action::MemoryKind;
use writ_types::chat::{ChatMessage, ModelReply, ToolResult, ToolSpecs};
use writ_types::error::{Exit, Report, ToReport};
use writ_types::id::{AskId, MemoryId, MessageId, SessionId, TurnId};
use writ_types::interaction::Interaction;
use writ_types::taint::Label;
use writ_types::unit::{Timestamp, Tokens};

use crate::config::AgentConfig;
use crate::notice::BudgetNote;
use crate::route::RouteDecision;

/// The version of stored events that this code writes, and the newest that it reads.
pub const EVENT_VERSION: u32 = 1;

/// An event of a turn. It is stored before its effects are performed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The turn begins. The first event of every turn.
    Opened(Box<OpenedTurn>),
    /// The input gates judged the message that was handed to them.
    InputJudged {
        /// The gates' joined verdict.
        verdict: TextVerdict,
    },
    /// The message was signed and is in the chronicle.
    Recorded,
    /// The memory was searched.
    Recalled {
        /// The hits, best first.
        hits: Vec<MemoryItem>,
    },
    /// The proxy has chosen the way of the turn.
    Routed {
        /// Its decision, or the one that counts without it.
        decision: RouteDecision,
    },
    /// The model answered.
    ModelReplied {
        /// Its complete answer.
        reply: ModelReply,
    },
    /// The model did not answer, or was not asked.
    ModelFailed {
        /// The failure.
        failure: ModelFailure,
    },
    /// A tool call came to an end, was refused, or waits.
    Acted {
        /// The result for the model.
        result: ToolResult,
        /// The ask that it waits for; required with `ToolOutcome::Waiting`.
        ask: Option<AskId>,
        /// The text that ends the turn at once, where a gate demands it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ends: Option<String>,
    },
    /// An ask of this turn was answered, or has expired.
    Answered {
        /// The ask.
        ask: AskId,
        /// The result: performed, denied, …
        result: ToolResult,
    },
    /// The output gates judged the answer.
    OutputJudged {
        /// The gates' joined verdict.
        verdict: TextVerdict,
    },
    /// The answer went out.
    Delivered,
    /// Another message of this session came in.
    Arrived {
        /// The message.
        message: TurnMessage,
    },
    /// A person stops the turn.
    Cancel,
    /// The time of [`Turn::deadline`](crate::turn::Turn::deadline) has come.
    DeadlinePassed,
}

/// The variants of [`Event`] without their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each names the variant of `Event`, which is documented there")]
pub enum EventKind {
    Opened,
    InputJudged,
    Recorded,
    Recalled,
    Routed,
    ModelReplied,
    ModelFailed,
    Acted,
    Answered,
    OutputJudged,
    Delivered,
    Arrived,
    Cancel,
    DeadlinePassed,
}

/// Everything that a turn begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedTurn {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// Its number in the session, counted from one and never again from one after a restart.
    pub number: u64,
    /// The messages that it answers; at least one.
    pub messages: Vec<TurnMessage>,
    /// The context besides the messages.
    pub seed: ContextSeed,
    /// The settings of this turn.
    pub config: AgentConfig,
}

/// A message as it takes part in a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnMessage {
    /// The message.
    pub id: MessageId,
    /// Its text.
    pub text: String,
    /// Its trust label.
    pub label: Label,
}

/// The verdict of the gates about a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum TextVerdict {
    /// Nothing to object.
    Pass,
    /// Go on with another text.
    Transform {
        /// The text.
        text: String,
    },
    /// Stop it.
    Block {
        /// The reason, for the person.
        reason: String,
    },
    /// Withhold the answer and have the model say something else; of an input, stop it.
    Again {
        /// The reason, for the person, once the attempts are used up.
        reason: String,
        /// A note for the model; with `None` it is asked again without one.
        note: Option<String>,
        /// The most attempts within one turn.
        attempts: u32,
    },
}

/// The reason that a model gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "failure", rename_all = "snake_case")]
pub enum ModelFailure {
    /// The token budget of the session is used up; the model was not called.
    SessionExhausted,
    /// The token budget of the day is used up; the model was not called.
    DailyExhausted,
    /// Anything else: unreachable, cut, invalid, refused by the door, too expensive.
    Failed {
        /// The exit code that a command ends with.
        exit: Exit,
        /// The failure in words fit for clients and models.
        text: String,
        /// A hint for the reader; may be empty.
        hint: String,
        /// The text stored in the conversation, if it differs from `text`: it leaves out a provider's own
        /// message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        noted: Option<String>,
    },
    /// The request is longer than the model can read.
    TooLong {
        /// The model's limit for request and answer together, in estimated tokens.
        room: Tokens,
        /// The failure in words fit for clients and models.
        text: String,
        /// As in [`Self::Failed`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        noted: Option<String>,
    },
}

// tidy: plain state
/// The model's context besides the messages of the turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextSeed {
    /// The pinned texts of the system zone, in their order.
    pub system: Vec<SystemText>,
    /// The tools that may be used in this turn.
    pub tools: ToolSpecs,
    /// The curated profile of the owner; pinned, before all memories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curated: Option<CarriedItem>,
    /// Facts about the owner; pinned.
    pub owner_profile: Vec<MemoryItem>,
    /// The conversation so far, oldest first.
    pub history: Vec<Arc<ChatMessage>>,
    /// The rows of the conversation that a stored event leaves out and that are read again from the
    /// chronicle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_rows: Option<HistoryRows>,
    /// The parts that stand for the conversation before the history: its summary, pinned messages of it, open questions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<CarriedItem>,
    /// Places in `history` of the messages that the owner has pinned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned_places: Vec<usize>,
    /// Places in `history` of the messages of topics that are not the one in force, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden_places: Vec<usize>,
    /// The session's subscriptions, as they are at the beginning of the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspace: Vec<WorkspaceItem>,
    /// When and where the turn takes place, for the model to read: it stands behind all that stays the same from turn to turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// The labels of the turn: what it is about, and how it deals with its person.
    #[serde(default, skip_serializing_if = "Interaction::is_usual")]
    pub interaction: Interaction,
    /// True in the first turn of the session after a restart.
    pub rehydrated: bool,
    /// The context profile; an unknown name gives the default.
    pub profile: String,
    /// True as long as a proxy is to choose the way of the turn, before the model is called.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proxy: bool,
    /// The state of the session's token budget.
    pub budget: BudgetSeed,
}

/// Rows of the chronicle, which never change: the last `count` up to row `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRows {
    /// The newest row.
    pub last: u64,
    /// The number of rows.
    pub count: u64,
}

/// A text of the system zone. Pinned: never evicted, never cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemText {
    /// Its source.
    pub source: SystemSource,
    /// The text.
    pub text: String,
    /// Its trust label.
    pub label: Label,
}

/// The source of a text in the system zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SystemSource {
    /// The description of the agent and its way of working.
    Constitution,
    /// The owner's rules (`RULES.md`).
    Rules,
    /// The agent's own notes (`AGENTS.md`).
    Notes,
    /// Facts of the configuration: folder, sandbox, limits.
    Facts,
    /// The introduction of a home that knows nothing of its owner yet.
    FirstRun,
}

/// Something remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryItem {
    /// The memory.
    pub id: MemoryId,
    /// Its kind.
    pub kind: MemoryKind,
    /// Its text.
    pub text: String,
    /// Its trust label.
    pub label: Label,
    /// The reasons why it was recalled, for people; empty for one that is pinned.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// A text that stands for more than it holds: for the conversation before the history, or for what is known of the owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedItem {
    /// Its name: `summary of …`, `pinned message 17`, `open questions`.
    pub source: String,
    /// Its text.
    pub text: String,
    /// Its trust label.
    pub label: Label,
    /// True if it is never evicted and never cut.
    pub pinned: bool,
}

/// Something that the session keeps in the context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceItem {
    /// Its id in the session.
    pub id: String,
    /// A title: a file, its lines, a URL.
    pub title: String,
    /// The current text.
    pub text: String,
    /// Its trust label.
    pub label: Label,
    /// True if it is finished, such as a plan that was carried out: it is evicted first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub done: bool,
}

/// The state of a session's token budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetSeed {
    /// Tokens used by the session so far.
    pub used: Tokens,
    /// Its limit; `Tokens::MAX`: none.
    pub limit: Tokens,
    /// The last note that the session was given.
    pub given: Option<BudgetNote>,
}

/// An event in its stored form, with the version of that form and the time given to the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// The version of the form; see [`EVENT_VERSION`].
    pub v: u32,
    /// The `now` of [`Turn::handle_event`](crate::turn::Turn::handle_event).
    pub at: Timestamp,
    /// The event.
    pub event: Event,
}

/// An error of reading or writing a stored event.
#[derive(Debug, thiserror::Error)]
pub enum StoredEventError {
    /// It was written by a newer version.
    #[error("the stored event has version {found}, this program reads versions up to {EVENT_VERSION}")]
    Newer {
        /// The version found.
        found: u32,
    },
    /// It is not an event.
    #[error("the stored event cannot be read")]
    Malformed(#[source] serde_json::Error),
    /// It has no JSON form.
    #[error("the event cannot be written as JSON")]
    Unwritable(#[source] serde_json::Error),
}

// === impl Event ===

impl Event {
    /// Returns the kind of this event.
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::Opened(_) => EventKind::Opened,
            Self::InputJudged { .. } => EventKind::InputJudged,
            Self::Recorded => EventKind::Recorded,
            Self::Recalled { .. } => EventKind::Recalled,
            Self::Routed { .. } => EventKind::Routed,
            Self::ModelReplied { .. } => EventKind::ModelReplied,
            Self::ModelFailed { .. } => EventKind::ModelFailed,
            Self::Acted { .. } => EventKind::Acted,
            Self::Answered { .. } => EventKind::Answered,
            Self::OutputJudged { .. } => EventKind::OutputJudged,
            Self::Delivered => EventKind::Delivered,
            Self::Arrived { .. } => EventKind::Arrived,
            Self::Cancel => EventKind::Cancel,
            Self::DeadlinePassed => EventKind::DeadlinePassed,
        }
    }
}

impl EventKind {
    /// Every kind, in the order of [`Event`].
    pub const ALL: [Self; 14] = [
        Self::Opened,
        Self::InputJudged,
        Self::Recorded,
        Self::Recalled,
        Self::Routed,
        Self::ModelReplied,
        Self::ModelFailed,
        Self::Acted,
        Self::Answered,
        Self::OutputJudged,
        Self::Delivered,
        Self::Arrived,
        Self::Cancel,
        Self::DeadlinePassed,
    ];
}

// === impl StoredEvent ===

impl StoredEvent {
    /// An event in the form of this version.
    pub const fn new(event: Event, at: Timestamp) -> Self {
        Self { v: EVENT_VERSION, at, event }
    }

    /// The event as JSON, for the store.
    ///
    /// # Errors
    ///
    /// If it has no JSON form; the only way to fail.
    pub fn encode_json(&self) -> Result<String, StoredEventError> {
        serde_json::to_string(self).map_err(StoredEventError::Unwritable)
    }

    /// Reads what [`encode`](Self::encode_json) wrote.
    ///
    /// # Errors
    ///
    /// If it was written by a newer version, or is not an event.
    pub fn decode_json(json: &str) -> Result<Self, StoredEventError> {
        /// The part that every version has.
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        let Version { v: found } = serde_json::from_str(json).map_err(StoredEventError::Malformed)?;
        if found > EVENT_VERSION {
            return Err(StoredEventError::Newer { found });
        }
        serde_json::from_str(json).map_err(StoredEventError::Malformed)
    }
}

// === impl StoredEventError ===

impl ToReport for StoredEventError {
    fn report(&self) -> Report {
        match self {
            Self::Newer { .. } => Report::new(Exit::Config, "agent.event_version", self.to_string())
                .with_hint("finish the open turns with the newer program, or cancel them there"),
            Self::Malformed(source) => Report::new(Exit::Bug, "agent.event_malformed", self.to_string())
                .with_inside(format!("{self}: {source}"))
                .with_hint("`writ audit verify` shows whether the store was changed"),
            Self::Unwritable(source) => Report::new(Exit::Bug, "agent.event_unwritable", self.to_string())
                .with_inside(format!("{self}: {source}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_newer_version_is_refused_with_its_number() {
        let newer = r#"{"v":2,"at":0,"event":{"event":"teleported","to":"mars"},"more":true}"#;
        let error = StoredEvent::decode_json(newer).expect_err("newer");
        assert!(matches!(error, StoredEventError::Newer { found: 2 }), "{error:?}");
        assert_eq!(error.report().exit, Exit::Config);
        for malformed in ["", "{}", r#"{"v":1}"#, r#"{"v":1,"at":0,"event":{"event":"teleported"}}"#] {
            let error = StoredEvent::decode_json(malformed).expect_err(malformed);
            assert!(matches!(error, StoredEventError::Malformed(_)), "{error:?}");
        }
    }

    #[test]
    fn stored_events_come_back_equal() {
        let stored = StoredEvent::new(Event::Recorded, Timestamp::from_millis(7));
        let json = stored.encode_json().expect("encodes");
        assert_eq!(json, r#"{"v":1,"at":7,"event":{"event":"recorded"}}"#);
        assert_eq!(StoredEvent::decode_json(&json).expect("decodes"), stored);
    }
}
