//! One unit that a person hands out: the next one, or one past its place in the order and past what it waits for.
//!
//! It begins like any unit of the loop: hooks, ceilings and the claim decide as usual, and one run of one phase follows. The loop need not
//! run; where it does, `next` is refused, since the loop takes the next one itself.

use std::sync::Arc;

use writ_autopilot::phase::PilotPhase;
use writ_autopilot::schedule::{Candidate, WaitReason, choose_units};
use writ_autopilot::unit_id::UnitId;
use writ_store::error::StoreError;
use writ_store::reads::UnitReads as _;
use writ_store::units::{MAX_UNITS, UnitLine};
use writ_types::api::pilot::PilotDispatched;

use super::candidates::{hold_other_slices, holds_loop, is_workable, make_candidate};
use super::hooks::{DispatchWord, judge_dispatch};
use super::{claiming, dispatch, ending, ends, id_of, states_of_plans};
use crate::config::WorktreeMode;
use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::standing::blocker_words;

/// The most warnings about one unit.
const MAX_WARNINGS: usize = 20;

/// The result of handing a unit out.
enum HandedOut {
    /// Its run has begun, or a limit has paused it.
    Begun,
    /// It stays as it is, for this reason.
    Stays(String),
}

/// Hands out the unit that the loop would take next.
///
/// # Errors
///
/// If the loop runs, or the store cannot be read or written.
pub(crate) async fn dispatch_next(project: &Arc<OpenProject>) -> Result<PilotDispatched, AutopilotError> {
    if !project.is_loop_over() {
        return Err(AutopilotError::LoopRuns);
    }
    let now = project.hands.now();
    bring_up_to_date(project).await?;
    let store = project.hands.store();
    let ready = store.ready_units(&project.name, now).await?;
    let blockers = store.open_blockers(project.session()).await?;
    if let Some(blocker) = blockers.iter().find(|blocker| holds_loop(blocker)) {
        let why = format!("{} {}: {}", blocker.event, blocker.unit, blocker_words(blocker));
        return Ok(report_nothing(why));
    }
    for id in ready.iter().filter(|line| line.phase == PilotPhase::Complete.name()).filter_map(id_of) {
        ending::try_complete(project, id).await;
    }
    let plans = states_of_plans(project).await?;
    let mut candidates: Vec<Candidate> =
        ready.iter().filter_map(|line| make_candidate(line, &blockers, &plans)).collect();
    if project.config().worktree_mode == WorktreeMode::MilestonePerWorktree {
        hold_other_slices(project, &mut candidates).await?;
    }
    let choice = choose_units(&candidates, &project.running(), &project.config().agents, false, now);
    let mut first = None;
    for id in choice.dispatch {
        // One that waits for money or for code of others leaves its place to the next.
        match hand_one(project, id, false).await? {
            HandedOut::Begun => return Ok(report_begun(id, Vec::new())),
            HandedOut::Stays(why) => first = first.or_else(|| Some(format!("{id}: {why}"))),
        }
    }
    Ok(report_nothing(first.unwrap_or_else(|| "no unit is ready".to_owned())))
}

/// Hands out a unit past its place in the order, past the units that it waits for, and past what holds up others.
///
/// # Errors
///
/// If there is no such unit, it is over, a worker has it, or something holds it that no order can pass; if the store cannot be read or
/// written.
pub(crate) async fn dispatch_unit(
    project: &Arc<OpenProject>,
    id: UnitId,
) -> Result<PilotDispatched, AutopilotError> {
    let refuse = |why: String| AutopilotError::NotReady { unit: id.to_string(), why };
    bring_up_to_date(project).await?;
    let store = project.hands.store();
    let lines = store.unit_lines(&project.name, MAX_UNITS).await?;
    let line = lines.iter().find(|line| line.id == id.to_string());
    let line = line.ok_or_else(|| AutopilotError::NoUnit { unit: id.to_string() })?;
    if line.is_over {
        return Err(refuse("it is over".to_owned()));
    }
    if line.is_claimed {
        return Err(AutopilotError::Busy { unit: id.to_string() });
    }
    if let Some(part) = open_part(&lines, id) {
        return Err(refuse(format!("its part {part} is not over")));
    }
    let blockers = store.open_blockers(project.session()).await?;
    let own = blockers.iter().find(|blocker| blocker.unit == line.id && holds_loop(blocker));
    if let Some(blocker) = own {
        return Err(refuse(format!("{}: {}", blocker.event, blocker_words(blocker))));
    }
    let plans = states_of_plans(project).await?;
    if !is_workable(&line.id, &plans) {
        return Err(refuse("its plan is not approved, or stands still".to_owned()));
    }
    let candidate = make_candidate(line, &blockers, &plans)
        .ok_or_else(|| refuse("its row is of another version".to_owned()))?;
    let mut candidates = [candidate];
    if project.config().worktree_mode == WorktreeMode::MilestonePerWorktree {
        hold_other_slices(project, &mut candidates).await?;
    }
    let choice =
        choose_units(&candidates, &project.running(), &project.config().agents, false, project.hands.now());
    if let Some((_, reason)) = choice.waiting.first() {
        return Err(refuse(describe_reason(*reason).to_owned()));
    }
    let mut warnings: Vec<String> = store
        .unit_waits_for(project.key_of(id))
        .await?
        .into_iter()
        .map(|on| format!("{id} waits for {on}, which is not over"))
        .collect();
    let others = blockers.iter().filter(|blocker| blocker.unit != line.id && holds_loop(blocker));
    warnings.extend(others.map(|one| format!("{} {}: {}", one.event, one.unit, blocker_words(one))));
    warnings.truncate(MAX_WARNINGS);
    match hand_one(project, id, true).await? {
        HandedOut::Begun => Ok(report_begun(id, warnings)),
        HandedOut::Stays(why) => Err(refuse(why)),
    }
}

fn report_begun(id: UnitId, warnings: Vec<String>) -> PilotDispatched {
    PilotDispatched { unit: Some(id.to_string()), ask: None, warnings, note: String::new() }
}

fn report_nothing(note: String) -> PilotDispatched {
    PilotDispatched { unit: None, ask: None, warnings: Vec::new(), note }
}

/// Brings the project up to date as the loop does before it looks at units.
async fn bring_up_to_date(project: &Arc<OpenProject>) -> Result<(), AutopilotError> {
    project.settings.refresh();
    ends::try_ends(project).await;
    claiming::sweep_claims(project, project.hands.now()).await?;
    Ok(())
}

/// Returns a part of a unit that is not over: its result would be a whole without that part.
fn open_part(lines: &[UnitLine], id: UnitId) -> Option<UnitId> {
    let open = lines.iter().filter(|line| !line.is_over).filter_map(id_of);
    open.into_iter().find(|part| *part != id && part.is_within(id))
}

/// Hands a unit out once its hooks allow that.
async fn hand_one(
    project: &Arc<OpenProject>,
    id: UnitId,
    is_forced: bool,
) -> Result<HandedOut, AutopilotError> {
    let unit = project.read_unit(id).await?;
    // The loop does not choose it once more while its hooks run.
    let prepared = project.prepare(id, unit.stand.phase);
    let word = judge_dispatch(project, &unit).await;
    drop(prepared);
    match word {
        DispatchWord::Go => {}
        DispatchWord::Held(why) | DispatchWord::Ended(why) => return Ok(HandedOut::Stays(why)),
    }
    match dispatch(project, id, is_forced).await {
        Ok(true) => Ok(HandedOut::Begun),
        Ok(false) => Ok(HandedOut::Stays(
            "it waits for money, for code that it needs, for the end of its last attempt, or for hooks after a run".to_owned(),
        )),
        Err(AutopilotError::Store(StoreError::Conflict(_))) => {
            Ok(HandedOut::Stays("it was changed meanwhile: look, and try again".to_owned()))
        }
        Err(error) => Err(error),
    }
}

const fn describe_reason(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::NoWorker => "nothing is to be worked on in its phase",
        WaitReason::Held => "another slice has the work tree, or its plan stands still",
        WaitReason::LoopPaused => "the loop is paused",
        WaitReason::Claimed => "a worker has it",
        WaitReason::Upstream => "it waits for other units",
        WaitReason::NotYet => "its time has not come",
        WaitReason::Workspace => "another unit works in the same work tree",
        WaitReason::PhaseCap => "its phase has as many workers as it may",
        WaitReason::TotalCap => "all workers are busy",
    }
}
