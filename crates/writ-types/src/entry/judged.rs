//! What gates, hooks and rules say, and where they are asked.

use serde::{Deserialize, Serialize};

/// What a gate said.
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

/// What a hook is called at.
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
        }
    }

    /// Where what a hook says of it decides; `None`: it has happened, and is only told.
    pub const fn point(self) -> Option<GatePoint> {
        match self {
            Self::MessageReceived => Some(GatePoint::Input),
            Self::BeforeToolCall => Some(GatePoint::Execution),
            Self::ResponseGenerated => Some(GatePoint::Output),
            Self::AfterToolCall | Self::SessionCreated | Self::SessionClosed => None,
        }
    }
}

/// Where a gate stands.
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

/// What rules say of an action.
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
