//! Results of attempts that have failed before anything came of them.

use writ_autopilot::attempt::RunEnd;
use writ_autopilot::blocker::PauseCause;
use writ_autopilot::failure::{FailureCode, Recovery};
use writ_autopilot::machine::{AttemptReport, UnitEvent};
use writ_sandbox::git::GitFault;
use writ_types::error::ToReport as _;
use writ_types::unit::{MicroUsd, Tokens};

use super::PhaseResult;
use crate::error::{AutopilotError, PilotGitError};
use crate::standing::outcome_name;

/// The code of the engine's report that no money is left for an attempt.
const NO_MONEY: &str = "pilot.budget";

/// The result of a failure: a failed attempt, or a pause where a person has to put something in order, as the class of its code says.
pub(super) fn fault(code: FailureCode, why: String) -> PhaseResult {
    let event = match code.recovery() {
        Recovery::Hold => UnitEvent::Pause(PauseCause::Supervisor),
        Recovery::TryAgain | Recovery::LogAlone => UnitEvent::End(AttemptReport {
            end: RunEnd::Failure,
            marker: None,
            has_progress: false,
            is_met: false,
        }),
    };
    PhaseResult {
        event,
        outcome: outcome_name(RunEnd::Failure),
        code: Some(code),
        reason: why.clone(),
        last_error: Some(why),
        used: (Tokens::ZERO, Tokens::ZERO, MicroUsd::ZERO),
    }
}

/// The result of a fault of the harness. Its words end with the code of the report, by which the reference of errors is searched.
pub(super) fn fault_result(error: &AutopilotError) -> PhaseResult {
    let (report, code) = (error.report(), failure_of(error));
    let result = fault(code, format!("{} ({})", report.outside, report.code));
    if report.code == NO_MONEY {
        // A ceiling is no failure: another try would meet it, too.
        return PhaseResult { event: UnitEvent::Pause(PauseCause::Ceiling), ..result };
    }
    result
}

/// Returns the code of a fault of the harness.
pub(super) fn failure_of(error: &AutopilotError) -> FailureCode {
    match error {
        AutopilotError::Git(error) => failure_of_git(error),
        AutopilotError::Prompt(_) => FailureCode::PromptRenderFailed,
        AutopilotError::File { .. } => FailureCode::UnitFileFailed,
        AutopilotError::Unreadable { .. } => FailureCode::UnitUnreadable,
        AutopilotError::Store(_) => FailureCode::StoreFailed,
        AutopilotError::Refused(report) if report.code == NO_MONEY => FailureCode::BudgetExhausted,
        AutopilotError::Refused(_)
        | AutopilotError::NoFolder { .. }
        | AutopilotError::NoGoal
        | AutopilotError::NoPlan { .. }
        | AutopilotError::NoUnit { .. }
        | AutopilotError::Busy { .. }
        | AutopilotError::LoopRuns
        | AutopilotError::NotReady { .. }
        | AutopilotError::NoOutline { .. }
        | AutopilotError::PlanChanged { .. }
        | AutopilotError::UnitsMoved { .. }
        | AutopilotError::NoReason { .. }
        | AutopilotError::NoRun { .. }
        | AutopilotError::NoSession { .. }
        | AutopilotError::NoSample
        | AutopilotError::SessionOpen { .. }
        | AutopilotError::NoFilter { .. }
        | AutopilotError::NoTrace { .. }
        | AutopilotError::Ship { .. }
        | AutopilotError::UnitChange { .. }
        | AutopilotError::Machine(_) => FailureCode::EngineRefused,
    }
}

/// Returns the code of a fault of the git service. What was in the way of a folder may be removed at the next try; another state of the
/// repository would be found again.
const fn failure_of_git(error: &PilotGitError) -> FailureCode {
    match error {
        PilotGitError::Git(fault) => match fault {
            GitFault::Creation { .. } => FailureCode::WorkspaceCreationFailed,
            GitFault::SymlinkEscape { .. } => FailureCode::WorkspaceSymlinkEscape,
            GitFault::Host(_)
            | GitFault::TooOld { .. }
            | GitFault::NotRepository { .. }
            | GitFault::ForeignOwner { .. }
            | GitFault::Bare { .. }
            | GitFault::PartialClone { .. }
            | GitFault::NoCommit { .. }
            | GitFault::BadName { .. }
            | GitFault::Taken { .. }
            | GitFault::Moved { .. }
            | GitFault::Locked { .. }
            | GitFault::InUse { .. }
            | GitFault::NestedRepository { .. }
            | GitFault::LargeFile { .. }
            | GitFault::Unwritable { .. }
            | GitFault::NoRemote { .. }
            | GitFault::PushRejected { .. }
            | GitFault::RemoteRefused { .. }
            | GitFault::RemoteUnreachable { .. }
            | GitFault::Failed { .. }
            | GitFault::Io { .. } => FailureCode::RepositoryHeld,
        },
        PilotGitError::BranchExists { .. }
        | PilotGitError::BranchMissing { .. }
        | PilotGitError::Elsewhere { .. }
        | PilotGitError::Occupied { .. }
        | PilotGitError::Dependency { .. }
        | PilotGitError::MovesAlways { .. }
        | PilotGitError::NoCommits { .. }
        | PilotGitError::PlanOutdated { .. }
        | PilotGitError::MarkersLeft { .. }
        | PilotGitError::NoConflict { .. }
        | PilotGitError::ArchiveExists { .. } => FailureCode::RepositoryHeld,
    }
}

#[cfg(test)]
mod tests {
    use writ_types::error::{Exit, Report};

    use super::*;

    /// The result of a failure is what the class of its code fixes; a ceiling of money is a pause of its own.
    ///
    /// Rows: SF-477 (in part: results follow the class)
    #[test]
    fn the_class_of_a_code_decides_about_the_next_try() {
        for code in FailureCode::ALL {
            let result = fault(code, "why".to_owned());
            let is_held = result.event == UnitEvent::Pause(PauseCause::Supervisor);
            assert_eq!(is_held, code.recovery() == Recovery::Hold, "{code:?}");
            assert_eq!((result.code, result.outcome), (Some(code), "failure"));
        }
        let occupied = AutopilotError::Git(PilotGitError::Occupied { folder: "/w".into() });
        let held = fault_result(&occupied);
        assert_eq!(held.code, Some(FailureCode::RepositoryHeld));
        assert!(held.reason.ends_with("(pilot.occupied)"), "{}", held.reason);
        let refused = |code: &str| AutopilotError::from(Report::new(Exit::Budget, code, "no money is left"));
        let ceiling = fault_result(&refused(NO_MONEY));
        assert_eq!(ceiling.event, UnitEvent::Pause(PauseCause::Ceiling));
        assert_eq!(ceiling.code, Some(FailureCode::BudgetExhausted));
        assert_eq!(fault_result(&refused("pilot.ceiling")).code, Some(FailureCode::EngineRefused));
    }
}
