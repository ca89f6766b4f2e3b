//! The gates of a milestone: they judge the target once all of its slices are merged.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use writ_autopilot::blocker::PauseCause;
use writ_autopilot::check::{GateJudgement, ScriptVerdict};
use writ_autopilot::failure::FailureCode;
use writ_autopilot::machine::UnitEvent;
use writ_types::error::ToReport as _;
use writ_types::unit::{MicroUsd, Tokens};

use super::gate_input::GateSubject;
use super::gates::{GateRight, describe, gates_for, record, run_gate};
use super::{PhaseResult, WorkClaim};
use crate::config::{GateMoment, PilotGate};
use crate::error::AutopilotError;
use crate::merge::{MergedTree, TreeCheck, TreeVerdict};
use crate::project::OpenProject;

/// A gate that was run, with its judgement and the time that it took.
type MilestoneGate = (PilotGate, GateJudgement, Duration);

/// The gates of a milestone on the tree of the target.
struct MilestoneCheck<'a> {
    project: &'a OpenProject,
    work: &'a WorkClaim,
    stop: &'a CancellationToken,
    judged: Mutex<Vec<MilestoneGate>>,
}

impl MilestoneCheck<'_> {
    async fn judge_tree(&self, tree: &MergedTree) -> Result<TreeVerdict, AutopilotError> {
        let config = self.project.config();
        let mut gates = gates_for(&config, GateMoment::Milestone);
        if gates.is_empty() {
            // They were removed from the settings since it was handed out.
            gates = gates_for(&config, GateMoment::Merge);
        }
        for gate in gates.into_iter().filter(|gate| gate.hidden.is_none()) {
            let started = Instant::now();
            let subject = GateSubject { id: self.work.unit.id, gate, work: Some(self.work) };
            let right = GateRight::Plan(self.stop);
            let run = run_gate(self.project, subject, &tree.folder, right).await?;
            let took = started.elapsed();
            record(self.project, self.work, (&gate.name, &run.judged), (took, 0)).await?;
            let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
            judged.push((gate.clone(), run.judged, took));
            // What was ended from outside shows nothing, and the next gate would not either.
            if self.stop.is_cancelled() {
                break;
            }
        }
        Ok(TreeVerdict::Pass)
    }
}

impl TreeCheck for MilestoneCheck<'_> {
    async fn check_tree(&self, tree: &MergedTree) -> TreeVerdict {
        match self.judge_tree(tree).await {
            Ok(verdict) => verdict,
            Err(error) => TreeVerdict::NotRun(error.report().outside),
        }
    }
}

/// Runs the gates of a milestone on the target. What does not pass is merged already, so a person decides about it.
///
/// # Errors
///
/// If git, the sandbox or the store fail.
pub(super) async fn run_gates(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    stop: &CancellationToken,
) -> Result<PhaseResult, AutopilotError> {
    let check = MilestoneCheck { project, work, stop, judged: Mutex::default() };
    let (commit, verdict) = project.git.check_target(&project.target, &check).await?;
    let judged = check.judged.into_inner().unwrap_or_else(PoisonError::into_inner);
    let is_good = |verdict| matches!(verdict, ScriptVerdict::Pass | ScriptVerdict::Skip);
    let failed: Vec<&MilestoneGate> =
        judged.iter().filter(|(gate, one, _)| gate.required && !is_good(one.verdict)).collect();
    let used = (Tokens::ZERO, Tokens::ZERO, MicroUsd::ZERO);
    if failed.is_empty() && verdict == TreeVerdict::Pass {
        let verdict_of = |(gate, one, _): &MilestoneGate| {
            // What is not required is on record, and holds nothing up.
            let verdict = if is_good(one.verdict) { one.verdict } else { ScriptVerdict::Skip };
            (gate.name.clone(), verdict)
        };
        return Ok(PhaseResult {
            event: UnitEvent::Gates(judged.iter().map(verdict_of).collect()),
            outcome: "success",
            code: None,
            reason: format!("on {} as {}", project.target, commit.short_form()),
            last_error: None,
            used,
        });
    }
    let mut reasons: Vec<String> =
        failed.iter().map(|(gate, one, _)| format!("{}: {}", gate.name, one.summary)).collect();
    if let TreeVerdict::NotRun(why) = verdict {
        reasons.push(why);
    }
    let words: Vec<String> = failed.iter().map(|(gate, one, _)| describe(&gate.name, one)).collect();
    let code = failed.iter().find_map(|(_, one, _)| one.code);
    Ok(PhaseResult {
        event: UnitEvent::Pause(PauseCause::MilestoneGates),
        outcome: "failure",
        code: code.or(Some(FailureCode::GateFailed)),
        reason: format!(
            "{} as {} does not pass: {}; mend it there, then `writ pilot resume {}`",
            project.target,
            commit.short_form(),
            reasons.join("; "),
            work.unit.id
        ),
        last_error: Some(words.join("\n\n")),
        used,
    })
}
