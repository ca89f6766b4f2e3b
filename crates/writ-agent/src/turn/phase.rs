//! The phases of a turn, and the events that do not fit them.

use std::fmt;

use serde::{Deserialize, Serialize};
use writ_types::error::{Exit, Report, ToReport};
use writ_types::id::{AskId, MessageId};

use crate::config::AgentConfigError;
use crate::event::EventKind;

/// The phase of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing has happened.
    New,
    /// The input gates judge a message.
    JudgingInput,
    /// A message is signed and put into the chronicle.
    Recording,
    /// The memory is searched.
    Recalling,
    /// The proxy chooses who answers: itself, the executor or the planner.
    Routing,
    /// The model is called.
    CallingModel,
    /// A tool call is being performed.
    Acting,
    /// The output gates judge the answer.
    JudgingOutput,
    /// The answer is being sent.
    Delivering,
    /// It is over.
    Finished,
}

/// An event that cannot happen now. It leaves the turn unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event} cannot happen in phase {phase}: {why}")]
pub struct Illegal {
    /// The phase of the turn.
    pub phase: Phase,
    /// The event.
    pub event: EventKind,
    /// The reason.
    pub why: Why,
}

/// The reason that an event is illegal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// It belongs to another phase.
    #[error("it belongs to another phase")]
    Order,
    /// Turns are counted from one.
    #[error("turns are counted from one")]
    NumberZero,
    /// A turn answers at least one message.
    #[error("there is no message")]
    NoMessage,
    /// A message without text.
    #[error("message {0} is empty")]
    EmptyMessage(MessageId),
    /// The settings are invalid.
    #[error(transparent)]
    Config(#[from] AgentConfigError),
    /// The result of a call that is not the one being performed.
    #[error("call '{found}' is not being performed")]
    OtherCall {
        /// The call that it names.
        found: String,
    },
    /// A call that waits must name its ask.
    #[error("the result waits for an approval but names no ask")]
    WaitingWithoutAsk,
    /// An ask that is not open in this turn.
    #[error("ask {0} is not open in this turn")]
    UnknownAsk(AskId),
}

/// The reason that a turn cannot be recovered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// There are no events.
    #[error("the turn has no stored events")]
    Empty,
    /// The stored events do not fit together.
    #[error("stored event {n} of the turn does not fit: {source}")]
    Illegal {
        /// Its place, counted from zero.
        n: usize,
        /// The illegal event.
        source: Illegal,
    },
}

// === impl Phase, EventKind ===

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

// === impl errors ===

impl ToReport for Illegal {
    fn report(&self) -> Report {
        match &self.why {
            Why::Config(error) => error.report(),
            Why::EmptyMessage(_) => Report::new(Exit::Usage, "agent.empty_message", "the message is empty")
                .with_inside(self.to_string())
                .with_hint("say what you want done"),
            Why::Order
            | Why::NumberZero
            | Why::NoMessage
            | Why::OtherCall { .. }
            | Why::WaitingWithoutAsk
            | Why::UnknownAsk(_) => Report::new(Exit::Bug, "agent.illegal_event", "the turn got out of step")
                .with_inside(self.to_string()),
        }
    }
}

impl ToReport for RecoverError {
    fn report(&self) -> Report {
        Report::new(Exit::Bug, "agent.recover", "a turn that was interrupted cannot be taken up again")
            .with_inside(self.to_string())
            .with_hint(
                "`writ audit verify` shows whether the store was changed; the message itself is still there",
            )
    }
}
