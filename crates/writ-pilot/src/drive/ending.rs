//! The end of a unit: its workspace and files go, what depended on it is planned anew, and its plan ends with its last unit.

use std::collections::BTreeSet;
use std::sync::Arc;

use writ_autopilot::machine::{MachineError, UnitEvent, apply_event};
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::schedule::workspace_of;
use writ_autopilot::stand::PhaseStatus;
use writ_autopilot::unit_id::{UnitId, UnitType};
use writ_autopilot::units::{PilotUnit, list_dependants};
use writ_plan::machine::WorkEvent;
use writ_store::batch::Op;
use writ_store::error::StoreError;
use writ_store::reads::UnitReads as _;
use writ_store::units::{MAX_UNITS, UnitDecision, UnitLine, UnitOp, UnitTransition};
use writ_types::api::work::WorkState;
use writ_types::entry::HookEvent;

use super::{UnitNews, WorkClaim, commit_noted_move, ends, hooks, plan_of, shipping, tell_hooks};
use crate::config::GateMoment;
use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::standing::{UnitRecord, read_facts, status_name};
use crate::start::StartStep;

/// Tries to inform a unit that changes meanwhile: each change is one of its own worker, of which it has one at a time.
const MAX_INFORM_TRIES: u32 = 8;

/// Does what follows from the end of a unit. All of it may be done again after a crash.
///
/// # Errors
///
/// If git, the files or the store fail; the end of the unit itself is written.
pub(crate) async fn end_unit(project: &Arc<OpenProject>, id: UnitId) -> Result<(), AutopilotError> {
    let unit = project.read_unit(id).await?;
    // Their plans may rest on what will not come.
    if unit.stand.is_abandoned {
        inform_dependants(project, &unit).await?;
    }
    match id.unit_type() {
        // Its work is on the branch of its slice, which goes on.
        UnitType::Task if !id.is_ad_hoc() => {}
        UnitType::Task | UnitType::Slice => {
            // Where slices share a workspace, one that never began has none, and another one may be at work there.
            if project.workspace_owner(id) == id || has_begun(project, id).await? {
                let work = project.work_of(id).await?;
                Box::pin(hooks::run_before_remove(project, &unit)).await;
                // What is not proven to be in the target stays below `refs/writ/archive/`.
                project.git.remove_workspace(&work, &project.target).await?;
                project.seen.note_branch(work.branch.as_str(), None);
            }
            shipping::begin_ship(project, &unit).await?;
            archive(project, id).await?;
            if id.is_ad_hoc() {
                end_plan(project, id).await?;
            }
        }
        UnitType::Milestone => {
            // Before the end of its plan: one that has ended is an earlier one, which is not shipped by a later setting.
            shipping::begin_ship(project, &unit).await?;
            archive(project, id).await?;
            end_plan(project, id).await?;
        }
    }
    project.looping.wake.notify_one();
    Ok(())
}

/// Ends a unit that has only its parts to wait for. After a failure, which is in the log and the status, it is tried again; no other unit
/// waits for that.
pub(super) async fn try_complete(project: &Arc<OpenProject>, id: UnitId) {
    if !project.ends().may_try(id) {
        return;
    }
    match complete_unit(project, id).await {
        Ok(()) => {}
        Err(AutopilotError::Store(StoreError::Conflict(conflict))) => {
            tracing::debug!(unit = %id, ?conflict, "a unit was changed since it was read");
        }
        Err(error) => ends::note_failure(project, id, &error),
    }
}

/// Ends a unit that has only its parts to wait for: a milestone, or a slice of a workflow without gates and merge.
///
/// # Errors
///
/// If the store cannot be read or written. What follows from the end is tried again by the loop.
async fn complete_unit(project: &Arc<OpenProject>, id: UnitId) -> Result<(), AutopilotError> {
    let unit = project.read_unit(id).await?;
    if unit.stand.status != PhaseStatus::Pending {
        return Ok(());
    }
    let now = project.hands.now();
    // Its gates are due, on what is merged: it is handed out for them like any unit in this phase.
    let has_gates = || project.config().gates_at(GateMoment::Milestone).next().is_some();
    if id.unit_type() == UnitType::Milestone && unit.row.fence == 0 && has_gates() {
        let (key, workflow, hash) = (unit.row.key, unit.row.workflow, unit.row.workflow_hash);
        let phase = PilotPhase::Verify.name().to_owned();
        project.hands.commit(vec![Op::Units(UnitOp::Choose { key, workflow, hash, phase })]).await?;
        project.looping.wake.notify_one();
        return Ok(());
    }
    let phase = PilotPhase::Complete.name().to_owned();
    let change = UnitTransition {
        key: unit.row.key.clone(),
        fence: unit.row.fence,
        from: phase.clone(),
        to: phase,
        status: status_name(PhaseStatus::Succeeded).to_owned(),
        is_over: true,
        reason: "its parts are over".to_owned(),
        at: now,
    };
    let decision = UnitDecision { change, counters: Vec::new(), not_before: now };
    project.ends().announce(&[id]);
    let ended = project.hands.commit(vec![Op::Units(UnitOp::Decide(Box::new(decision)))]).await;
    if let Err(error) = ended {
        ends::withdraw_ends(project, &[id]).await;
        return Err(error.into());
    }
    project.ends().announce(&[id]);
    tell_hooks(project, HookEvent::UnitDone, &UnitNews::of_unit(&unit, "succeeded", "its parts are over"))
        .await;
    ends::try_ends(project).await;
    Ok(())
}

/// Returns true if a worker has had the unit or a part of it.
async fn has_begun(project: &OpenProject, id: UnitId) -> Result<bool, AutopilotError> {
    let lines = project.hands.store().unit_lines(&project.name, MAX_UNITS).await?;
    let is_within = |line: &UnitLine| line.id.parse::<UnitId>().is_ok_and(|unit| unit.is_within(id));
    Ok(lines.iter().any(|line| line.has_begun && is_within(line)))
}

/// Does what follows from the end of a unit if it is over. After a failure, which is in the log, the loop tries again, and until then no
/// other slice has its workspace.
pub(super) async fn end_if_over(project: &Arc<OpenProject>, id: UnitId) {
    match project.read_unit(id).await {
        // The files of what was undone are back, and stay.
        Ok(unit) if unit.row.is_over && !unit.facts.is_reverted => {}
        Ok(_) => return,
        Err(error) => return tracing::error!(unit = %id, %error, "a unit cannot be read at its end"),
    }
    match end_unit(project, id).await {
        Ok(()) => project.ends().remove(&[id]),
        Err(error) => {
            project.ends().announce(&[id]);
            ends::note_failure(project, id, &error);
        }
    }
}

/// Makes up for ends that a crash has cut off between the commit that wrote them and what follows from it. An end that fails is in the
/// log, and tried again by the loop: it must not keep a person from looking at the project.
///
/// # Errors
///
/// If the store or the names of the files cannot be read.
pub(crate) async fn make_up_ends(project: &Arc<OpenProject>) -> Result<(), AutopilotError> {
    let lines = project.hands.store().unit_lines(&project.name, MAX_UNITS).await?;
    let units: Vec<(UnitId, &UnitLine)> =
        lines.iter().filter_map(|line| Some((line.id.parse().ok()?, line))).collect();
    // The folder goes to the archive last, so one that is there says that something is left to do.
    let mut filed = Vec::new();
    for (id, _) in &units {
        filed.extend(project.files.has_folder(*id)?.then_some(*id));
    }
    let is_any_open = units.iter().any(|(_, line)| !line.is_over);
    // Parts before what they belong to: a slice moves the files of its tasks.
    for (id, line) in units.iter().rev().filter(|(_, line)| line.is_over) {
        let has_files = filed.iter().any(|part| part.is_within(*id));
        if id.unit_type() == UnitType::Milestone || has_files || has_tree(project, *id, &units) {
            end_if_over(project, *id).await;
        } else if line.phase_status == status_name(PhaseStatus::Failed) && is_any_open {
            // Its own end is done; the attempts that it ends may have been cut off.
            inform_anew(project, *id).await;
        }
    }
    StartStep::CleanUp.log_step(&project.name);
    Ok(())
}

/// Informs the units that rest on one, if it was abandoned, as far as they are not; a failure is in the log.
async fn inform_anew(project: &Arc<OpenProject>, id: UnitId) {
    let informed = match project.read_unit(id).await {
        Ok(unit) if unit.stand.is_abandoned => inform_dependants(project, &unit).await,
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = informed {
        tracing::error!(unit = %id, %error, "not all that rests on an abandoned unit is informed");
    }
}

/// Returns true if the work tree of a unit that is over is left: it was cancelled before it had any files.
fn has_tree(project: &OpenProject, id: UnitId, units: &[(UnitId, &UnitLine)]) -> bool {
    // A task in a slice has the workspace of that.
    if id.unit_type() == UnitType::Task && !id.is_ad_hoc() {
        return false;
    }
    let owner = project.workspace_owner(id);
    let is_anothers = || {
        let is_open = |slice: UnitId| units.iter().any(|(unit, line)| *unit == slice && !line.is_over);
        units
            .iter()
            .any(|(unit, line)| line.has_begun && unit.is_within(owner) && is_open(workspace_of(*unit)))
    };
    let folder = project.git.workspaces_dir().join(owner.folder_name());
    std::fs::symlink_metadata(folder).is_ok() && (owner == id || !is_anothers())
}

/// Moves the files of a unit and of its parts to the archive; those of what was undone stay where they are.
async fn archive(project: &OpenProject, id: UnitId) -> Result<(), AutopilotError> {
    let lines = project.hands.store().unit_lines(&project.name, MAX_UNITS).await?;
    let now = project.hands.now();
    for part in
        lines.iter().filter_map(|line| line.id.parse::<UnitId>().ok()).filter(|part| part.is_within(id))
    {
        // The files of what was undone stay where they are.
        if project.files.has_folder(part)? && !project.read_unit(part).await?.facts.is_reverted {
            project.files.archive_folder(part, now)?;
        }
    }
    Ok(())
}

/// Leads units that depended on an abandoned one to another plan.
async fn inform_dependants(project: &Arc<OpenProject>, ended: &UnitRecord) -> Result<(), AutopilotError> {
    let rows = project.hands.store().whole_units(&project.name, MAX_UNITS).await?;
    let mut units = Vec::new();
    for row in &rows {
        let facts = read_facts(row)?;
        let Ok(id) = row.key.id.parse::<UnitId>() else { continue };
        units.push(PilotUnit {
            id,
            title: row.title.clone(),
            description: String::new(),
            priority: row.priority,
            workflow: None,
            blocked_by: facts.blocked_by.into_iter().collect(),
            code_depends_on: facts.code_depends_on.into_iter().collect(),
            archived_at: None,
        });
    }
    let mut dependants = list_dependants(&units, ended.id);
    // What works on a slice works on its plan, too.
    let parts: Vec<UnitId> = units
        .iter()
        .map(|unit| unit.id)
        .filter(|id| id.parent().is_some_and(|parent| dependants.contains(&parent)))
        .filter(|id| !dependants.contains(id))
        .collect();
    dependants.extend(parts);
    // The slice of an abandoned task was to deliver it.
    dependants.extend(ended.id.parent().filter(|parent| parent.unit_type() == UnitType::Slice));
    for id in dependants {
        inform_dependant(project, id, ended.id).await?;
    }
    Ok(())
}

/// Leads a unit to another plan, since one that it rests on was abandoned. If it is being worked on, its attempt ends first, and its
/// worker calls this again before the unit can be handed out.
///
/// # Errors
///
/// If the store cannot be read or written.
async fn inform_dependant(
    project: &Arc<OpenProject>,
    id: UnitId,
    abandoned: UnitId,
) -> Result<(), AutopilotError> {
    let (why, note) = (format!("{abandoned} was abandoned"), format!("informed of {abandoned}"));
    for tries_left in (0..MAX_INFORM_TRIES).rev() {
        let unit = project.read_unit(id).await?;
        if unit.stand.is_terminal() {
            return Ok(());
        }
        // Once is enough, also after a crash: a plan that was made since then does without it. A unit that is being planned makes no
        // move, so it is counted; homes of before have moves alone.
        let counters = project.hands.store().unit_counters(unit.row.key.clone()).await?;
        let moves = project.hands.store().unit_transitions(unit.row.key.clone()).await?;
        if counters.iter().any(|(name, _)| *name == note)
            || moves.iter().any(|one| one.reason.ends_with(&why))
        {
            return Ok(());
        }
        let flow = project.flow_of(&unit).await?;
        match apply_event(&flow, &project.config().limits, &unit.stand, &UnitEvent::UpstreamAbandoned) {
            Ok(made) => {
                match commit_noted_move(project, &unit, &made, (None, &why), Some(note.clone())).await {
                    // It was handed out, or has ended, since it was read.
                    Err(AutopilotError::Store(StoreError::Conflict(_))) if tries_left > 0 => {}
                    done => return done,
                }
            }
            Err(MachineError::OutOfPlace { .. }) => {
                if let Some(live) = project.live().get(&id) {
                    live.course.lose(abandoned);
                    return Ok(());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    // It is at work without a worker, until its claim runs out.
    tracing::warn!(unit = %id, %abandoned, "a unit is informed of what was abandoned at the next start");
    Ok(())
}

/// Lets a unit be handed out again, once it is informed of all units that were abandoned while its worker had it: a new attempt would rest
/// on them, too, and be ended again. A failure is in the log, and made up for at the next start.
pub(super) async fn free_unit(project: &Arc<OpenProject>, work: &WorkClaim) {
    let (id, mut informed) = (work.unit.id, 0);
    loop {
        let lost = {
            // Who abandons a unit holds the same lock while this worker is informed.
            let mut live = project.live();
            let lost = work.course.lost();
            if lost.len() <= informed || project.hands.draining().is_cancelled() {
                live.remove(&id);
                return;
            }
            lost.into_iter().skip(informed)
        };
        for abandoned in lost {
            informed += 1;
            if let Err(error) = inform_dependant(project, id, abandoned).await {
                tracing::error!(unit = %id, %abandoned, %error, "a unit that rests on an abandoned one is not informed");
            }
        }
    }
}

/// Ends the work item of a plan with the last of its milestones: done if every slice, or the task that was asked for directly, was delivered.
async fn end_plan(project: &OpenProject, top: UnitId) -> Result<(), AutopilotError> {
    let plan = plan_of(project, top).await?;
    let Some(state) = project.hands.plan_state(plan).await?.map(|plan| plan.state) else { return Ok(()) };
    if state.is_over() {
        return Ok(());
    }
    let rows = project.hands.store().whole_units(&project.name, MAX_UNITS).await?;
    let mut tops = BTreeSet::from([top]);
    for row in &rows {
        let Ok(id) = row.key.id.parse::<UnitId>() else { continue };
        if id.parent().is_none() && id != top && read_facts(row)?.plan == Some(plan) {
            if !row.is_over {
                return Ok(());
            }
            tops.insert(id);
        }
    }
    let mut given_up = Vec::new();
    for row in &rows {
        let Ok(id) = row.key.id.parse::<UnitId>() else { continue };
        if tops.contains(&id.root()) && (id.unit_type() == UnitType::Slice || id.is_ad_hoc()) {
            let unit = project.read_unit(id).await?;
            let is_cancelled = unit.row.phase_status == "canceled";
            given_up.extend((unit.stand.is_abandoned || is_cancelled).then_some(id.to_string()));
        }
    }
    let is_running = state == WorkState::Running;
    let is_working = is_running || state == WorkState::Consulting;
    let names = tops.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let not_delivered = || format!("not delivered: {}", given_up.join(", "));
    let (event, why) = match (given_up.is_empty(), is_working) {
        (true, true) if is_running => (WorkEvent::Finish, format!("all of {names} is merged")),
        (false, true) => (WorkEvent::Fail, not_delivered()),
        // It was never approved, or stands still: nothing of it can fail any more.
        (false, false) => (WorkEvent::Cancel, not_delivered()),
        // A person has paused it, or is asked about it: it ends at the first start after they let it go on.
        (true, _) => return Ok(()),
    };
    project.hands.move_plan(plan, event, &why).await?;
    Ok(())
}
