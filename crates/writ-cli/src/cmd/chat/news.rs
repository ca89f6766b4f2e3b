//! The meaning of the engine's frames for a conversation.

use writ_types::error::Exit;
use writ_types::frame::{Card, ServerFrame};
use writ_types::id::{AskId, TurnId};

use super::question::OpenGate;

/// The meaning of a frame for the conversation.
pub(super) enum FrameNews {
    /// Nothing beyond what is shown.
    Nothing,
    /// A turn runs.
    Running(TurnId),
    /// A turn has ended, or cannot be worked on, for the messages with these ids; without any, for this client.
    Ended(Exit, Vec<String>),
    /// A person is asked.
    Asked(Box<Card>),
    /// A gate asks, and the turn waits.
    Gate(OpenGate),
    /// An ask is no longer open.
    Settled(AskId),
}

/// Reads the meaning of a frame.
pub(super) fn read_news(frame: &ServerFrame) -> FrameNews {
    match frame {
        ServerFrame::Delta { turn, .. }
        | ServerFrame::Text { turn, .. }
        | ServerFrame::Reasoning { turn, .. }
        | ServerFrame::Tool { turn, .. }
        | ServerFrame::File { turn, .. } => FrameNews::Running(*turn),
        // A turn can answer several messages.
        ServerFrame::Message { last: true, exit, answers, .. } => FrameNews::Ended(*exit, answers.clone()),
        ServerFrame::Message { turn, .. } => FrameNews::Running(*turn),
        ServerFrame::Error { exit, answers, .. } => FrameNews::Ended(*exit, answers.clone()),
        ServerFrame::ApprovalRequest(card) => FrameNews::Asked(card.clone()),
        ServerFrame::GateApproval { ask_id, .. } => {
            FrameNews::Gate(OpenGate { ask: ask_id.clone(), frame: Box::new(frame.clone()) })
        }
        ServerFrame::ApprovalResolved { ask_id, .. } => FrameNews::Settled(ask_id.clone()),
        // These are shown and change nothing about the turn or the questions.
        ServerFrame::Hello { .. }
        | ServerFrame::Checkpoint { .. }
        | ServerFrame::Reset { .. }
        | ServerFrame::Accepted { .. }
        | ServerFrame::Status { .. }
        | ServerFrame::Work(_)
        | ServerFrame::Answer { .. } => FrameNews::Nothing,
    }
}
