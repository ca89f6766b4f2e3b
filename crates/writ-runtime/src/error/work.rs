//! The reasons why a work item cannot be proposed, or does not do what was asked.

use writ_types::error::{Exit, Report, ToReport};
use writ_types::id::ItemId;

/// Reason for which a work item cannot be proposed, or does not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// There is no such item.
    #[error("there is no work item '{0}'")]
    Unknown(String),
    /// The item is in a state in which that is not possible.
    #[error("work item {item} is {state}: it cannot be {wanted} now")]
    State {
        /// The item.
        item: ItemId,
        /// Its state.
        state: String,
        /// The change that was asked for.
        wanted: &'static str,
    },
    /// The plan cannot be shown completely.
    #[error("the plan cannot be asked about: {0}")]
    Unshowable(String),
    /// The stored plan cannot be read.
    #[error("the plan of a work item cannot be read: {0}")]
    Unreadable(String),
    /// The text is no plan.
    #[error("{}", .0.outside)]
    Document(Box<Report>),
    /// The session belongs to an item: its messages are the steps of a plan.
    #[error("this session belongs to work item {0}, and takes no messages")]
    Session(ItemId),
    /// The plan names something that is not here, or that its agent may not use.
    #[error("{}there is no {what} '{name}' for its agent{}",
        if .at.is_empty() { String::new() } else { format!("step '{at}': ") },
        .nearest.as_ref().map(|nearest| format!("; '{nearest}' is probably meant")).unwrap_or_default())]
    Name {
        /// Its kind: a tool, a gate, a skill.
        what: &'static str,
        /// The step; empty: the plan as a whole.
        at: String,
        /// The name.
        name: String,
        /// The name that was probably meant.
        nearest: Option<String>,
    },
    /// A call that the plan names cannot be made.
    #[error("step '{step}': the call of '{tool}' cannot be made: {why}")]
    Call {
        /// The step.
        step: String,
        /// The tool.
        tool: String,
        /// The reason.
        why: String,
    },
}

impl ToReport for WorkError {
    fn report(&self) -> Report {
        let (exit, code, hint) = match self {
            Self::Unknown(_) => (Exit::Usage, "work.unknown", "see `writ work list`"),
            Self::State { .. } => (Exit::Usage, "work.state", "see `writ work show ITEM`"),
            Self::Unshowable(_) => (Exit::Blocked, "work.unshowable", "make the plan shorter, or split it"),
            Self::Session(_) => (
                Exit::Usage,
                "work.session",
                "write in another conversation; `writ work show ITEM` shows the item",
            ),
            Self::Unreadable(_) => (Exit::Bug, "work.unreadable", Exit::Bug.advice()),
            Self::Name { .. } => (
                Exit::Usage,
                "work.name",
                "name what `writ tools list` and `writ gates list` show, or leave it out",
            ),
            // A person has handed it in: the fault is in the text, and in no model's answer.
            Self::Document(report) => return Report { exit: Exit::Usage, ..report.as_ref().clone() },
            Self::Call { .. } => {
                (Exit::Usage, "work.call", "name a tool of this home and the arguments that it takes")
            }
        };
        Report::new(exit, code, self.to_string()).with_hint(hint)
    }
}
