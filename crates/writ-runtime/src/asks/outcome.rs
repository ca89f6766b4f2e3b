//! The outcome of an approved request.

use writ_tools::render::Rendered;
use writ_types::chat::ToolOutcome;
use writ_types::error::Exit;
use writ_types::frame::Undo;
/// The outcome of an approved ask.
#[derive(Clone, Debug)]
pub(crate) struct AskOutcome {
    pub(crate) rendered: Rendered,
    pub(crate) exit: Exit,
    /// Reason that the action was not done, in one short line; empty if it was done.
    pub(crate) reason: String,
    /// The way back, where there is one.
    pub(crate) undo: Option<Undo>,
}

impl AskOutcome {
    /// The state that frames and answers give for it.
    pub(crate) const fn state(&self) -> &'static str {
        match self.rendered.outcome {
            ToolOutcome::Done => "applied",
            ToolOutcome::Simulated => "simulated",
            ToolOutcome::Unknown => "unknown",
            ToolOutcome::Failed | ToolOutcome::Denied | ToolOutcome::Waiting | ToolOutcome::Cancelled => {
                "failed"
            }
        }
    }
}
