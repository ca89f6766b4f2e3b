//! What a turn wants done.

use writ_types::chat::{ChatMessage, ModelRequest, ToolCall, Usage};
use writ_types::error::Exit;
use writ_types::id::{AskId, MessageId};
use writ_types::taint::Label;
use writ_types::unit::Tokens;

use crate::event::TurnMessage;
use crate::notice::BudgetNote;

/// What the driver of a turn does next, in the order given. Each effect but
/// `CancelModel`, `CancelTool` and `Finish` is answered with exactly one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Let the input gates judge a message. Answer: `InputJudged`.
    JudgeInput {
        /// The raw message.
        message: TurnMessage,
    },
    /// Sign a message together with its label and turn number, and append it to the chronicle. Answer: `Recorded`.
    Record {
        /// The number of the turn.
        turn_number: u64,
        /// The message as the gates let it pass.
        message: TurnMessage,
    },
    /// Search the memory. Answer: `Recalled`.
    Recall {
        /// What to look for; at most [`MAX_QUERY_CHARS`](crate::turn::MAX_QUERY_CHARS) characters.
        query: String,
    },
    /// Call the model. Answer: `ModelReplied` or `ModelFailed`.
    CallModel {
        /// The request.
        request: Box<ModelRequest>,
        /// What the request rests on.
        label: Label,
    },
    /// Stop the model call that is under way.
    CancelModel,
    /// Put a tool call before the door and perform it if it passes. Answer: `Acted`.
    Act {
        /// The call: a tool that was offered, with an object as arguments.
        call: ToolCall,
        /// What the arguments rest on.
        label: Label,
    },
    /// Stop the tool call that is under way.
    CancelTool {
        /// The call.
        call_id: String,
    },
    /// Let the output gates judge the answer. Answer: `OutputJudged`.
    JudgeOutput {
        /// The model's text.
        text: String,
        /// What it rests on.
        label: Label,
    },
    /// Send the answer to where the turn came from. Answer: `Delivered`.
    Deliver {
        /// The complete text, notices included.
        text: String,
        /// What it rests on.
        label: Label,
        /// Why the answer is not the complete one that was wanted; the text says so too.
        incomplete: Option<String>,
    },
    /// The turn is over. Always the last effect.
    Finish(Box<Finish>),
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// How.
    pub status: Status,
    /// The exit code that a command ends with.
    pub exit: Exit,
    /// The messages that the turn answers: those that opened it, and those that it took in. A message
    /// that arrived and is not named here stays in the queue and gets a turn of its own.
    pub answers: Vec<MessageId>,
    /// What the turn rests on.
    pub label: Label,
    /// The asks that are still open.
    pub open_asks: Vec<AskId>,
    /// What the conversation has gained, in order: messages, calls, results, answers. Goes into the
    /// chronicle; the messages of the user are there already (`Record`).
    pub transcript: Vec<ChatMessage>,
    /// Tokens of all model calls of the turn.
    pub usage: Usage,
    /// Tokens that the session has used now.
    pub budget_used: Tokens,
    /// The last budget note that the session was given.
    pub budget_note: Option<BudgetNote>,
    /// How many times the model was called.
    pub model_calls: u32,
    /// How many tool calls were performed or put before the door.
    pub tool_calls: u32,
}

/// How a turn ended, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// With an answer.
    Done,
    /// With an answer, but an ask is open.
    Waiting,
    /// With an answer, but the last thing it tried to do was denied.
    Denied,
    /// A gate stopped the message or the answer.
    Blocked,
    /// A limit ended it.
    Incomplete,
    /// The model failed it.
    Failed,
    /// A person stopped it.
    Cancelled,
}
