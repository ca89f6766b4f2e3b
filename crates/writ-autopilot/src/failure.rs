//! The failures of the autopilot: a closed set of codes, each of one class, which fixes what follows (SF 20).

use serde::{Deserialize, Serialize};
use writ_types::api::pilot::FailureClass;

/// The step after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recovery {
    /// The unit pauses, and nothing else is begun, until a person has put in order what another try would find again.
    Hold,
    /// The attempt has failed; another one follows after a pause.
    TryAgain,
    /// It is logged, and changes nothing.
    LogAlone,
}

impl Recovery {
    /// Returns what follows a failure of a class.
    pub const fn of_class(class: FailureClass) -> Self {
        match class {
            FailureClass::Config => Self::Hold,
            FailureClass::Workspace | FailureClass::AgentSession => Self::TryAgain,
            FailureClass::Observability => Self::LogAlone,
        }
    }
}

/// The code of a failure, as runs, the log and programs have it.
///
/// The recovery of its class follows where the run has failed. A run that a person, the supervisor or a crash has ended has a code, too,
/// and is not tried again by it; nor is the verdict of a gate, a review or a merge, which the machine answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// A prompt that cannot be made of its template.
    PromptRenderFailed,
    /// No model can be asked as it is set up.
    ModelUnavailable,
    /// Every model of a tier has failed so often that it is passed over.
    CircuitOpen,
    /// The repository or its work trees are in a state that a person has to put in order.
    RepositoryHeld,
    /// A file of a unit that cannot be read or written.
    UnitFileFailed,
    /// A row of a unit that this version does not understand.
    UnitUnreadable,
    /// The folder of the work could not be made, or a hook has refused it.
    WorkspaceCreationFailed,
    /// The folder of the work lies behind a link that leads out of its place.
    WorkspaceSymlinkEscape,
    /// A hook has failed, or could not be run.
    HookFailed,
    /// A hook was ended at its time limit.
    HookTimeout,
    /// A gate has not passed.
    GateFailed,
    /// A gate was ended at its time limit.
    GateTimeout,
    /// The branch was not merged.
    #[serde(rename = "merge")]
    NotMerged,
    /// The store could not be read or written.
    StoreFailed,
    /// No model has answered, so that nothing has begun.
    AgentSessionStartup,
    /// A turn that has failed.
    TurnFailed,
    /// A turn beyond its time.
    TurnTimeout,
    /// An attempt beyond the time of its phase.
    UnitTimeout,
    /// An attempt without a sign of its model.
    Stalled,
    /// An attempt that needs a person's answer while there is none.
    TurnInputRequired,
    /// An attempt that has used up its context or its money.
    BudgetExhausted,
    /// Ended by a person.
    CanceledByOperator,
    /// Ended by the supervisor.
    CanceledBySupervisor,
    /// Ended by the engine, or by the loss of its claim.
    Interrupted,
    /// The unit was given up.
    Abandoned,
    /// A reply without any text where notes were wanted.
    #[serde(rename = "pilot.no_research")]
    NoResearch,
    /// A plan that cannot be read.
    #[serde(rename = "pilot.unit_plan")]
    UnitPlan,
    /// A decision that cannot be read.
    #[serde(rename = "pilot.reassess")]
    Reassess,
    /// A decision for another plan where none is left.
    #[serde(rename = "pilot.no_replan_left")]
    NoReplanLeft,
    /// A review that cannot be read.
    #[serde(rename = "pilot.review_answer")]
    ReviewAnswer,
    /// A change that is too large to be reviewed.
    #[serde(rename = "pilot.review_size")]
    ReviewSize,
    /// A phase that no worker has.
    #[serde(rename = "pilot.phase")]
    NoWorker,
    /// The engine has refused what an attempt needs.
    EngineRefused,
    /// Spans of a run that cannot be written now.
    TraceFailed,
    /// Chapters of a run that cannot be written.
    ChapterFailed,
}

impl FailureCode {
    /// Every code.
    pub const ALL: [Self; 35] = [
        Self::PromptRenderFailed,
        Self::ModelUnavailable,
        Self::CircuitOpen,
        Self::RepositoryHeld,
        Self::UnitFileFailed,
        Self::UnitUnreadable,
        Self::WorkspaceCreationFailed,
        Self::WorkspaceSymlinkEscape,
        Self::HookFailed,
        Self::HookTimeout,
        Self::GateFailed,
        Self::GateTimeout,
        Self::NotMerged,
        Self::StoreFailed,
        Self::AgentSessionStartup,
        Self::TurnFailed,
        Self::TurnTimeout,
        Self::UnitTimeout,
        Self::Stalled,
        Self::TurnInputRequired,
        Self::BudgetExhausted,
        Self::CanceledByOperator,
        Self::CanceledBySupervisor,
        Self::Interrupted,
        Self::Abandoned,
        Self::NoResearch,
        Self::UnitPlan,
        Self::Reassess,
        Self::NoReplanLeft,
        Self::ReviewAnswer,
        Self::ReviewSize,
        Self::NoWorker,
        Self::EngineRefused,
        Self::TraceFailed,
        Self::ChapterFailed,
    ];

    /// Returns its name in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PromptRenderFailed => "prompt_render_failed",
            Self::ModelUnavailable => "model_unavailable",
            Self::CircuitOpen => "circuit_open",
            Self::RepositoryHeld => "repository_held",
            Self::UnitFileFailed => "unit_file_failed",
            Self::UnitUnreadable => "unit_unreadable",
            Self::WorkspaceCreationFailed => "workspace_creation_failed",
            Self::WorkspaceSymlinkEscape => "workspace_symlink_escape",
            Self::HookFailed => "hook_failed",
            Self::HookTimeout => "hook_timeout",
            Self::GateFailed => "gate_failed",
            Self::GateTimeout => "gate_timeout",
            Self::NotMerged => "merge",
            Self::StoreFailed => "store_failed",
            Self::AgentSessionStartup => "agent_session_startup",
            Self::TurnFailed => "turn_failed",
            Self::TurnTimeout => "turn_timeout",
            Self::UnitTimeout => "unit_timeout",
            Self::Stalled => "stalled",
            Self::TurnInputRequired => "turn_input_required",
            Self::BudgetExhausted => "budget_exhausted",
            Self::CanceledByOperator => "canceled_by_operator",
            Self::CanceledBySupervisor => "canceled_by_supervisor",
            Self::Interrupted => "interrupted",
            Self::Abandoned => "abandoned",
            Self::NoResearch => "pilot.no_research",
            Self::UnitPlan => "pilot.unit_plan",
            Self::Reassess => "pilot.reassess",
            Self::NoReplanLeft => "pilot.no_replan_left",
            Self::ReviewAnswer => "pilot.review_answer",
            Self::ReviewSize => "pilot.review_size",
            Self::NoWorker => "pilot.phase",
            Self::EngineRefused => "engine_refused",
            Self::TraceFailed => "trace_failed",
            Self::ChapterFailed => "chapter_failed",
        }
    }

    /// Returns its class.
    pub const fn class(self) -> FailureClass {
        match self {
            // Only a person can change the settings, the repository or the files that these are about.
            Self::PromptRenderFailed
            | Self::ModelUnavailable
            | Self::CircuitOpen
            | Self::RepositoryHeld
            | Self::UnitFileFailed
            | Self::UnitUnreadable => FailureClass::Config,
            // Another attempt has a folder of its own, or finds the place free.
            Self::WorkspaceCreationFailed
            | Self::WorkspaceSymlinkEscape
            | Self::HookFailed
            | Self::HookTimeout
            | Self::GateFailed
            | Self::GateTimeout
            | Self::NotMerged
            | Self::StoreFailed => FailureClass::Workspace,
            // The agent may do better when it reads what was wrong.
            Self::AgentSessionStartup
            | Self::TurnFailed
            | Self::TurnTimeout
            | Self::UnitTimeout
            | Self::Stalled
            | Self::TurnInputRequired
            | Self::BudgetExhausted
            | Self::CanceledByOperator
            | Self::CanceledBySupervisor
            | Self::Interrupted
            | Self::Abandoned
            | Self::NoResearch
            | Self::UnitPlan
            | Self::Reassess
            | Self::NoReplanLeft
            | Self::ReviewAnswer
            | Self::ReviewSize
            | Self::NoWorker
            | Self::EngineRefused => FailureClass::AgentSession,
            // Notes about the work: the work itself is done.
            Self::TraceFailed | Self::ChapterFailed => FailureClass::Observability,
        }
    }

    /// Returns what follows it.
    pub const fn recovery(self) -> Recovery {
        Recovery::of_class(self.class())
    }

    /// Reads the code of a row; `None`: it has none, or one of an earlier version.
    pub fn of_row(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == code)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every code has one name, by which rows give it back, one class, and the recovery of that class.
    ///
    /// Rows: SF-477
    #[test]
    fn every_code_has_one_class_and_the_class_fixes_what_follows() {
        let names: BTreeSet<&str> = FailureCode::ALL.into_iter().map(FailureCode::name).collect();
        assert_eq!(names.len(), FailureCode::ALL.len(), "no two share a name");
        for code in FailureCode::ALL {
            assert_eq!(FailureCode::of_row(code.name()), Some(code));
            assert_eq!(serde_json::to_value(code).expect("JSON"), code.name());
            let expected = match code.class() {
                FailureClass::Config => Recovery::Hold,
                FailureClass::Workspace | FailureClass::AgentSession => Recovery::TryAgain,
                FailureClass::Observability => Recovery::LogAlone,
            };
            assert_eq!(code.recovery(), expected, "{code:?}");
        }
        let classes: BTreeSet<FailureClass> = FailureCode::ALL.into_iter().map(FailureCode::class).collect();
        assert_eq!(classes, FailureClass::ALL.into());
        assert_eq!((FailureCode::of_row(""), FailureCode::of_row("git.locked")), (None, None));
    }
}
