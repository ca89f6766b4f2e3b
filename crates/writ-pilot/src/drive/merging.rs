//! The phase merge: the branch of a slice is joined with the target, the merged tree passes its gates, and the target moves to exactly it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;
use writ_autopilot::blocker::PauseCause;
use writ_autopilot::check::ScriptVerdict;
use writ_autopilot::machine::{UnitEvent, UnitMergeResult};
use writ_autopilot::unit_id::UnitId;
use writ_types::error::ToReport as _;
use writ_types::unit::{MicroUsd, Tokens};

use super::gates::{GateRight, gates_for, run_gate};
use super::{PhaseResult, WorkClaim, ended_units};
use crate::config::GateMoment;
use crate::error::AutopilotError;
use crate::merge::{MergeRequest, MergeResult, MergedTree, TreeCheck, TreeVerdict};
use crate::project::OpenProject;
use crate::unit_files::UnitFile;

/// The gates of the merged tree.
pub(crate) struct MergeGates<'a> {
    project: &'a OpenProject,
    id: UnitId,
    right: GateRight<'a>,
    /// The output of what has not passed.
    failed: Mutex<String>,
}

impl<'a> MergeGates<'a> {
    /// Makes them for a unit.
    pub(crate) fn of_unit(project: &'a OpenProject, id: UnitId, right: GateRight<'a>) -> Self {
        Self { project, id, right, failed: Mutex::default() }
    }
}

impl TreeCheck for MergeGates<'_> {
    async fn check_tree(&self, tree: &MergedTree) -> TreeVerdict {
        let gates = gates_for(&self.project.config, GateMoment::Merge);
        if gates.is_empty() {
            return TreeVerdict::NotRun("no gate is configured for merges".to_owned());
        }
        let mut is_proven = false;
        for gate in gates {
            let judged = match run_gate(self.project, (self.id, gate), &tree.folder, self.right).await {
                Ok(judged) => judged,
                Err(error) => return TreeVerdict::NotRun(error.report().outside),
            };
            let why = format!("{}: {}", gate.name, judged.summary);
            if !matches!(judged.verdict, ScriptVerdict::Pass | ScriptVerdict::Skip) {
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                *failed = format!("{why}\n{}", judged.output);
            }
            match judged.verdict {
                ScriptVerdict::Pass => is_proven = true,
                ScriptVerdict::Skip => {}
                ScriptVerdict::Fail | ScriptVerdict::Block | ScriptVerdict::NotRun if !gate.required => {}
                ScriptVerdict::Fail => return TreeVerdict::Fail(why),
                ScriptVerdict::Block => return TreeVerdict::Block(why),
                ScriptVerdict::NotRun => return TreeVerdict::NotRun(why),
            }
        }
        // Gates that do not apply are no proof.
        if is_proven {
            TreeVerdict::Pass
        } else {
            TreeVerdict::NotRun("no gate has proven anything".to_owned())
        }
    }
}

/// Merges the branch of a unit.
///
/// # Errors
///
/// If git, the sandbox or the store fail. The target is at a commit that its gates have passed.
pub(super) async fn merge_unit(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    stop: &CancellationToken,
) -> Result<PhaseResult, AutopilotError> {
    let id = work.unit.id;
    let own = project.work_of(id).await?;
    let request = MergeRequest {
        unit: own.unit.clone(),
        branch: own.branch.clone(),
        title: work.unit.row.title.clone(),
        code_depends_on: work.unit.facts.code_depends_on.iter().map(ToString::to_string).collect(),
        created_at: work.unit.row.created_at.as_millis(),
    };
    let merged: BTreeSet<String> = ended_units(project).await?;
    let gates = MergeGates::of_unit(project, id, GateRight::Plan(stop));
    let mut results = project.git.merge_slices(&project.target, &[request], &merged, &gates).await?;
    let result = results.remove(&own.unit);
    let output = gates.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (event, reason) = judge(project, id, result)?;
    let is_merged = matches!(event, UnitEvent::Merge(UnitMergeResult::Merged));
    let error = if output.is_empty() { reason.clone() } else { format!("{reason}\n\n{output}") };
    Ok(PhaseResult {
        outcome: if is_merged { "success" } else { "failure" },
        code: if is_merged { String::new() } else { "merge".to_owned() },
        last_error: (!is_merged).then_some(error),
        event,
        reason,
        used: (Tokens::ZERO, Tokens::ZERO, MicroUsd::ZERO),
    })
}

fn judge(
    project: &OpenProject,
    id: UnitId,
    result: Option<MergeResult>,
) -> Result<(UnitEvent, String), AutopilotError> {
    let list = |files: Vec<std::path::PathBuf>| {
        files.iter().take(20).map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
    };
    Ok(match result {
        Some(MergeResult::Merged { commit }) => {
            project.files.write_file(
                id,
                UnitFile::Result,
                &format!("merged into {} as {commit}\n", project.target),
            )?;
            (UnitEvent::Merge(UnitMergeResult::Merged), format!("merged as {}", commit.short_form()))
        }
        Some(MergeResult::AlreadyIn) => (
            UnitEvent::Merge(UnitMergeResult::Merged),
            format!("everything is in {} already", project.target),
        ),
        Some(MergeResult::Conflict { files, with }) => (
            UnitEvent::Merge(UnitMergeResult::Conflict),
            format!("conflicts with {} in {}", with.short_form(), list(files)),
        ),
        Some(MergeResult::Failed { why } | MergeResult::Blocked { why }) => {
            (UnitEvent::Merge(UnitMergeResult::ChecksFailed), format!("the merged tree does not pass: {why}"))
        }
        Some(MergeResult::NotRun { why }) => {
            (UnitEvent::Pause(PauseCause::NothingChecked), format!("the merged tree was not checked: {why}"))
        }
        Some(MergeResult::Waits { on }) => {
            (UnitEvent::Merge(UnitMergeResult::BaseMoved), format!("it waits for {}", on.join(", ")))
        }
        Some(MergeResult::Uncommitted { files }) => {
            (UnitEvent::Pause(PauseCause::Supervisor), format!("not committed: {}", list(files)))
        }
        Some(MergeResult::Held { at, checkout, reason, .. }) => (
            UnitEvent::Pause(PauseCause::Person),
            format!(
                "it passed its gates, and waits at {at}: {} cannot move with it: {reason:?}",
                checkout.display()
            ),
        ),
        None => (UnitEvent::Merge(UnitMergeResult::BaseMoved), "the target moved at every try".to_owned()),
    })
}
