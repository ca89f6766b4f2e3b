//! A person's second thoughts: a merged unit is undone, and a conflict is resolved in the workspace of its slice.

use std::collections::BTreeSet;
use std::sync::Arc;

use writ_autopilot::blocker::BlockerKind;
use writ_autopilot::unit_id::UnitId;
use writ_store::batch::Op;
use writ_store::reads::UnitReads as _;
use writ_store::units::{MAX_UNITS, UnitOp};
use writ_types::api::pilot::{
    PilotOrder, PilotResolved, PilotRevertPlan, PilotReverted, PilotUnitOrder, ResolveState, RevertEnd,
};

use crate::account::show_commit;
use crate::drive::MergeGates;
use crate::error::{AutopilotError, PilotGitError};
use crate::merge::{Advance, TreeVerdict};
use crate::naming::workspace_name;
use crate::orders::carry_out;
use crate::project::OpenProject;
use crate::reload::open_lines;
use crate::resolve::{ResolveStart, begin_resolve, finish_resolve, is_begun};
use crate::revert::{RevertResult, plan_revert, revert_unit};

/// The most files that a reason lists.
const MAX_LISTED: usize = 20;

/// Finds the commits of a unit in the target. Nothing is changed.
///
/// # Errors
///
/// If there is no such unit, or it has no commits there.
pub(crate) async fn show_revert(
    project: &OpenProject,
    id: UnitId,
) -> Result<PilotRevertPlan, AutopilotError> {
    project.read_unit(id).await?;
    let plan = plan_revert(&project.git, &project.target, &id.to_string()).await?;
    Ok(PilotRevertPlan {
        unit: plan.unit,
        target: plan.target.to_string(),
        at: plan.at.to_string(),
        commits: plan.commits.into_iter().map(show_commit).collect(),
        merges: plan.merges.into_iter().map(show_commit).collect(),
    })
}

/// Undoes the commits of a unit that a person has looked at, after the gates of merges have passed without them.
///
/// # Errors
///
/// If the target is not where it was when the person looked, or git or the sandbox fail. Then it is as it was.
pub(crate) async fn revert(
    project: &OpenProject,
    id: UnitId,
    at: &str,
) -> Result<PilotReverted, AutopilotError> {
    project.read_unit(id).await?;
    let plan = plan_revert(&project.git, &project.target, &id.to_string()).await?;
    if plan.at.as_str() != at {
        return Err(PilotGitError::PlanOutdated { target: project.target.clone() }.into());
    }
    // Its plan is over as a rule: the gates run on the person's word.
    let gates = MergeGates::of_person(project, id);
    let (end, commits, reason) = match revert_unit(&project.git, &plan, &gates).await? {
        RevertResult::Reverted { commits } => (RevertEnd::Reverted, commits, String::new()),
        RevertResult::NothingLeft => {
            (RevertEnd::NothingLeft, Vec::new(), "all of it was undone before".to_owned())
        }
        RevertResult::Conflict { commit, files, .. } => {
            let files: Vec<String> =
                files.iter().take(MAX_LISTED).map(|file| file.display().to_string()).collect();
            let why = format!("{} conflicts with later changes in {}", commit.short_form(), files.join(", "));
            (RevertEnd::Conflict, Vec::new(), why)
        }
        RevertResult::Refused(verdict) => {
            let why = match verdict {
                TreeVerdict::Pass => String::new(),
                TreeVerdict::Fail(why) | TreeVerdict::Block(why) => {
                    format!("without it the gates do not pass: {why}")
                }
                TreeVerdict::NotRun(why) => format!("nothing has checked it: {why}"),
            };
            (RevertEnd::Refused, Vec::new(), why)
        }
        RevertResult::NotMoved(advance) => {
            let why = match advance {
                Advance::Held { at, checkout, reason } => {
                    format!("{} cannot move with it ({reason:?}); it waits at {at}", checkout.display())
                }
                Advance::Moved | Advance::Stale | Advance::Withdrawn => String::new(),
            };
            (RevertEnd::Held, Vec::new(), why)
        }
    };
    let is_undone = matches!(end, RevertEnd::Reverted | RevertEnd::NothingLeft);
    let opened = if is_undone { open_again(project, id).await } else { Ok(()) };
    let reason = match opened {
        Ok(()) => reason,
        // The same order once more finds nothing to undo, and does this.
        Err(error) => format!("{reason}; its files and its line in the plan are as they were: {error}"),
    };
    let commits = commits.iter().map(ToString::to_string).collect();
    Ok(PilotReverted { unit: id.to_string(), target: project.target.to_string(), end, commits, reason })
}

/// Brings the files of a unit that was undone, and of its parts, back from the archive, and opens their lines in the plan again. All of it
/// may be done twice.
async fn open_again(project: &OpenProject, id: UnitId) -> Result<(), AutopilotError> {
    let lines = project.hands.store().unit_lines(&project.name, MAX_UNITS).await?;
    let over = lines.iter().filter(|line| line.is_over).filter_map(|line| line.id.parse::<UnitId>().ok());
    let undone: BTreeSet<UnitId> = over.filter(|part| part.is_within(id)).collect();
    if undone.is_empty() {
        return Ok(());
    }
    // First, so that no start of the engine archives them again.
    let notes = undone.iter().map(|part| Op::Units(UnitOp::NoteRevert { key: project.key_of(*part) }));
    project.hands.commit(notes.collect()).await?;
    for part in &undone {
        project.files.restore_folder(*part)?;
    }
    open_lines(project, &undone).await
}

/// Begins the resolution of a conflict, or ends it once the person has edited the files.
///
/// # Errors
///
/// If the unit waits for no conflict, conflict markers are left, or git or the store fail.
pub(crate) async fn resolve(
    project: &Arc<OpenProject>,
    id: UnitId,
    (person, name): (&str, &str),
) -> Result<PilotResolved, AutopilotError> {
    let unit = project.read_unit(id).await?;
    if unit.row.claim.is_some() {
        return Err(AutopilotError::Busy { unit: id.to_string() });
    }
    if !unit.stand.blockers.iter().any(|blocker| blocker.kind == BlockerKind::MergeConflict) {
        return Err(PilotGitError::NoConflict { unit: id.to_string() }.into());
    }
    let work = project.work_of(id).await?;
    let folder = project.git.workspaces_dir().join(workspace_name(&work.unit).map_err(PilotGitError::from)?);
    let resolved = |state, files: Vec<std::path::PathBuf>, commit| PilotResolved {
        unit: id.to_string(),
        state,
        folder: folder.to_string_lossy().into_owned(),
        files: files.iter().map(|file| file.display().to_string()).collect(),
        commit,
    };
    // Twice the same command: what it does depends on how far the person has come.
    let mut commit = None;
    if !is_begun(&project.git, &work).await? {
        match begin_resolve(&project.git, &work, &project.target).await? {
            // The person has merged in the workspace by hand.
            ResolveStart::UpToDate => {}
            ResolveStart::Begun { files } if files.is_empty() => {
                commit = Some(finish_resolve(&project.git, &work).await?.to_string());
            }
            ResolveStart::Begun { files } => return Ok(resolved(ResolveState::Begun, files, None)),
        }
    } else {
        commit = Some(finish_resolve(&project.git, &work).await?.to_string());
    }
    let order = PilotUnitOrder {
        project: project.name.clone(),
        unit: name.to_owned(),
        order: PilotOrder::Resume,
        reason: "the conflict is resolved".to_owned(),
    };
    carry_out(project, id, (person, &order)).await?;
    Ok(resolved(ResolveState::Resolved, Vec::new(), commit))
}
