//! Results of attempts that have failed before anything came of them.

use writ_autopilot::attempt::RunEnd;
use writ_autopilot::blocker::PauseCause;
use writ_autopilot::machine::{AttemptReport, UnitEvent};
use writ_types::error::ToReport as _;
use writ_types::unit::{MicroUsd, Tokens};

use super::PhaseResult;
use crate::error::AutopilotError;
use crate::standing::outcome_name;

/// A result that counts as a failed attempt.
pub(super) fn fault(code: &str, why: String) -> PhaseResult {
    PhaseResult {
        event: UnitEvent::End(AttemptReport {
            end: RunEnd::Failure,
            marker: None,
            has_progress: false,
            is_met: false,
        }),
        outcome: outcome_name(RunEnd::Failure),
        code: code.to_owned(),
        reason: why.clone(),
        last_error: Some(why),
        used: (Tokens::ZERO, Tokens::ZERO, MicroUsd::ZERO),
    }
}

/// A fault of the harness: what a person has to put in order pauses the unit, since another try would find the same.
pub(super) fn fault_result(error: &AutopilotError) -> PhaseResult {
    let report = error.report();
    let result = fault(&report.code, report.outside.clone());
    match error {
        AutopilotError::Git(_) | AutopilotError::File { .. } | AutopilotError::Unreadable { .. } => {
            PhaseResult { event: UnitEvent::Pause(PauseCause::Supervisor), ..result }
        }
        AutopilotError::Refused(report) if report.code == "pilot.budget" => {
            PhaseResult { event: UnitEvent::Pause(PauseCause::Ceiling), ..result }
        }
        AutopilotError::Store(_)
        | AutopilotError::Refused(_)
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
        | AutopilotError::NoFilter { .. }
        | AutopilotError::NoTrace { .. }
        | AutopilotError::Ship { .. }
        | AutopilotError::Machine(_) => result,
    }
}
