//! Verdicts of gates, hooks and rules, and the points at which they are asked.

use serde::{Deserialize, Serialize};

/// The verdict of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    /// Nothing to object.
    Pass,
    /// Something is noted; nothing is stopped.
    Advise,
    /// The text was changed.
    Transform,
    /// A person must say so first.
    RequireApproval,
    /// Stopped.
    Block,
    /// Stopped, and the turn with it.
    Halt,
}

/// The event at which a hook is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// A message came in, before the agent reads it.
    #[default]
    MessageReceived,
    /// Before an action is performed.
    BeforeToolCall,
    /// After an action was performed, also where it has failed.
    AfterToolCall,
    /// The answer of a turn is there, before anybody sees it.
    ResponseGenerated,
    /// A session was opened.
    SessionCreated,
    /// A session was closed.
    SessionClosed,
    /// A unit of the autopilot was handed to a worker.
    UnitStarted,
    /// Something holds a unit of the autopilot up.
    UnitBlocked,
    /// The work of a unit of the autopilot is in its target branch.
    UnitMerged,
    /// Nothing more is done for a unit of the autopilot.
    UnitDone,
}

impl HookEvent {
    /// Its name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MessageReceived => "message_received",
            Self::BeforeToolCall => "before_tool_call",
            Self::AfterToolCall => "after_tool_call",
            Self::ResponseGenerated => "response_generated",
            Self::SessionCreated => "session_created",
            Self::SessionClosed => "session_closed",
            Self::UnitStarted => "unit_started",
            Self::UnitBlocked => "unit_blocked",
            Self::UnitMerged => "unit_merged",
            Self::UnitDone => "unit_done",
        }
    }

    /// Returns the point at which a hook's verdict about this event decides; `None`: the event has happened,
    /// and the hook is only notified.
    pub const fn gate_point(self) -> Option<GatePoint> {
        match self {
            Self::MessageReceived => Some(GatePoint::Input),
            Self::BeforeToolCall => Some(GatePoint::Execution),
            Self::ResponseGenerated => Some(GatePoint::Output),
            Self::AfterToolCall => None,
            Self::SessionCreated
            | Self::SessionClosed
            | Self::UnitStarted
            | Self::UnitBlocked
            | Self::UnitMerged
            | Self::UnitDone => None,
        }
    }

    /// Returns true for what happens to a session or a unit as a whole: a hook is only notified of it.
    pub const fn is_news(self) -> bool {
        match self {
            Self::MessageReceived | Self::BeforeToolCall | Self::AfterToolCall | Self::ResponseGenerated => {
                false
            }
            Self::SessionCreated
            | Self::SessionClosed
            | Self::UnitStarted
            | Self::UnitBlocked
            | Self::UnitMerged
            | Self::UnitDone => true,
        }
    }
}

/// The point at which a gate judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatePoint {
    /// On what people say.
    Input,
    /// On what the agent says.
    Output,
    /// Before an action is performed.
    Execution,
    /// On the tools that are offered.
    Access,
}

/// The verdict of rules about an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaning {
    /// It may be performed.
    Permit,
    /// A person must be asked.
    Ask,
    /// It is refused.
    Forbid,
}
