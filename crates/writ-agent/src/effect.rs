//! The effects of a turn, for the driver to perform.

use writ_types::chat::{ChatMessage, ModelRequest, ToolCall, Usage};
use writ_types::error::Exit;
use writ_types::id::{AskId, MessageId};
use writ_types::taint::Label;
use writ_types::unit::Tokens;

use crate::event::TurnMessage;
use crate::notice::BudgetNote;
use crate::route::RouteQuestion;

/// The next work for the driver of a turn, in the order given. Each effect but `CancelModel`, `CancelTool`
/// and `Finish` is answered with exactly one event.
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
        /// The search text; at most [`MAX_QUERY_CHARS`](crate::turn::MAX_QUERY_CHARS) characters.
        query: String,
    },
    /// Have the proxy choose the way of the turn. Answer: `Routed`.
    Route {
        /// The question.
        question: Box<RouteQuestion>,
    },
    /// Call the model. Answer: `ModelReplied` or `ModelFailed`.
    CallModel {
        /// The request.
        request: Box<ModelRequest>,
        /// The label of everything in the request.
        label: Label,
    },
    /// Stop the model call that is under way.
    CancelModel,
    /// Put a tool call before the door and perform it if it passes. Answer: `Acted`.
    Act {
        /// The call: a tool that was offered, with an object as arguments.
        call: ToolCall,
        /// The label of the arguments.
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
        /// The label of everything it depends on.
        label: Label,
    },
    /// Send the answer to where the turn came from. Answer: `Delivered`.
    Deliver {
        /// The complete text, notices included.
        text: String,
        /// The label of everything it depends on.
        label: Label,
        /// The reason that the answer is incomplete; the text states it too.
        incomplete: Option<String>,
    },
    /// The turn is over. Always the last effect.
    Finish(Box<FinishedTurn>),
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedTurn {
    /// Its status.
    pub status: TurnStatus,
    /// The exit code that a command ends with.
    pub exit: Exit,
    /// The messages that the turn answers: those that opened it, and those that it took in. A message
    /// that arrived and is not named here stays in the queue and gets a turn of its own.
    pub answers: Vec<MessageId>,
    /// The label of everything that the turn saw.
    pub label: Label,
    /// The asks that are still open.
    pub open_asks: Vec<AskId>,
    /// The messages added to the conversation, in order: messages, calls, results, answers. Goes into the
    /// chronicle; the messages of the user are there already (`Record`).
    pub transcript: Vec<ChatMessage>,
    /// Tokens of all model calls of the turn.
    pub usage: Usage,
    /// Tokens that the session has used now.
    pub budget_used: Tokens,
    /// The last budget note that the session was given.
    pub budget_note: Option<BudgetNote>,
    /// The number of model calls.
    pub model_calls: u32,
    /// The number of tool calls that were performed or submitted to the door.
    pub tool_calls: u32,
}

/// The status that a turn ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnStatus {
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
