//! The reasons why the autopilot is not given what it asks for.

use writ_types::error::{Exit, Report, ToReport};
use writ_types::id::ItemId;

/// Reason for which the autopilot is not given what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PilotError {
    /// The item is no plan of the autopilot.
    #[error("work item {0} is no plan of the autopilot")]
    NoPlan(ItemId),
    /// The plan to be proposed is of another kind.
    #[error("a plan of kind '{0}' does not belong to the autopilot")]
    Kind(&'static str),
    /// The item is no attempt of the autopilot.
    #[error("work item {0} is no attempt of the autopilot")]
    NoAttempt(ItemId),
    /// The plan is not in force.
    #[error("the plan is not in force: {0}")]
    NotInForce(String),
    /// The budget of the plan is used up.
    #[error("the budget of plan {0} is used up")]
    Budget(ItemId),
    /// As many attempts are open as may be.
    #[error("{0} attempts of the plan are open; another can begin when one of them has ended")]
    Busy(usize),
    /// The folder cannot be worked on.
    #[error("'{0}' is no work tree of the plan's project")]
    Folder(String),
    /// Something is too large.
    #[error("the {what} has {bytes} bytes; the limit is {most}")]
    TooLarge {
        /// The thing.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// A variable of a gate cannot be set.
    #[error("'{0}' is no name of a variable of a gate")]
    Variable(String),
    /// The planner has given no answer.
    #[error("the planner has not answered: {0}")]
    NoAnswer(String),
}

impl ToReport for PilotError {
    fn report(&self) -> Report {
        let (exit, code, hint) = match self {
            Self::NoPlan(_) | Self::NoAttempt(_) => (
                Exit::Usage,
                "pilot.item",
                "`writ pilot plan GOAL` makes a plan; `writ work list` names them",
            ),
            Self::Kind(_) => (Exit::Usage, "pilot.kind", "`writ work propose` takes plans of other kinds"),
            Self::NotInForce(_) => {
                (Exit::Waiting, "pilot.not_in_force", "`writ work retry ITEM` asks for its approval again")
            }
            Self::Budget(_) => (
                Exit::Budget,
                "pilot.budget",
                "`writ work retry ITEM` asks for as much again; a plan with a higher limit is another plan",
            ),
            Self::Busy(_) => (Exit::Blocked, "pilot.busy", "try again once an attempt has ended"),
            Self::Folder(_) => (
                Exit::Usage,
                "pilot.folder",
                "`git worktree list` in the project names them; the project itself is none",
            ),
            Self::TooLarge { .. } => (Exit::Usage, "pilot.too_large", "shorten it"),
            Self::Variable(_) => {
                (Exit::Config, "pilot.variable", "use letters, digits and `_`, and begin with no digit")
            }
            Self::NoAnswer(_) => (Exit::Model, "pilot.no_answer", "ask again; `writ doctor` tries the model"),
        };
        Report::new(exit, code, self.to_string()).with_hint(hint)
    }
}
