//! The trail of a unit that cannot go on as it was planned: what of it has failed last, and what was committed.

use writ_autopilot::phase::PilotPhase;
use writ_sandbox::git::commits::list_commits;
use writ_store::reads::UnitReads as _;

use super::WorkClaim;
use crate::error::{AutopilotError, PilotGitError};
use crate::project::OpenProject;
use crate::workspace::UnitWorkspace;

/// The most commits that a decision is shown.
const MAX_COMMITS: usize = 10;

/// The trail of one unit.
#[derive(Debug, Default)]
pub(super) struct FailureTrail {
    /// Gates that have not passed and attempts that have failed, each kind with the newest first.
    pub(super) failures: Vec<String>,
    /// Its last commits, one line each, the newest first.
    pub(super) commits: Vec<String>,
}

/// Reads the trail of a unit: at most so many failures of each kind.
///
/// # Errors
///
/// If the store or git cannot be read.
pub(super) async fn read_trail(
    project: &OpenProject,
    work: &WorkClaim,
    workspace: &UnitWorkspace,
    most: usize,
) -> Result<FailureTrail, AutopilotError> {
    let (store, key) = (project.hands.store(), &work.unit.row.key);
    let gates = store.unit_gates(key.clone()).await?;
    let gates = gates.iter().rev().filter(|gate| !gate.passed).take(most);
    let mut failures: Vec<String> =
        gates.map(|gate| format!("Gate '{}', try {}: {}", gate.gate, gate.attempt, gate.output)).collect();
    let runs = store.unit_runs(key.clone()).await?;
    // The end of a run of gates says less than the gates themselves.
    let ended = runs.iter().rev().filter(|run| run.phase != PilotPhase::Verify.name());
    let failed = ended.filter_map(|run| {
        let end = run.end.as_ref().filter(|end| !end.error_code.is_empty())?;
        Some(format!("Attempt {} in {}: {}, {}", run.attempt, run.phase, end.outcome, end.error_code))
    });
    failures.extend(failed.take(most));
    let commits = list_commits(project.git.project(), Some(&workspace.base), &workspace.tip).await;
    let commits = commits.map_err(PilotGitError::from)?.into_iter().take(MAX_COMMITS);
    let commits = commits.map(|commit| format!("{} {}", commit.id.short_form(), commit.subject)).collect();
    Ok(FailureTrail { failures, commits })
}
