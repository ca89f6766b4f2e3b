//! The units that could be handed out in a tick, as the scheduler is asked about them.

use std::collections::{BTreeMap, BTreeSet};

use writ_autopilot::phase::PilotPhase;
use writ_autopilot::schedule::{AgentCaps, Candidate, choose_units, workspace_of};
use writ_autopilot::stand::PhaseStatus;
use writ_autopilot::unit_id::{UnitId, UnitType};
use writ_runtime::pilot::needs_approval;
use writ_store::reads::{UnitReads as _, WorkReads as _};
use writ_store::units::{MAX_UNITS, PilotBlocker, UnitLine, UnitRow};
use writ_types::api::work::WorkState;

use super::{id_of, states_of_plans};
use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::standing::{event_name, read_facts, status_name};

/// Returns true if an open blocker pauses the loop as a whole.
pub(super) fn holds_loop(blocker: &PilotBlocker) -> bool {
    blocker.event != event_name(writ_autopilot::blocker::BlockerKind::GateBlocked)
}

pub(super) fn is_workable(unit: &str, plans: &BTreeMap<UnitId, WorkState>) -> bool {
    let state = unit.parse().ok().and_then(|id: UnitId| plans.get(&id.root()));
    state == Some(&WorkState::Running)
}

pub(super) fn make_candidate(
    line: &UnitLine,
    blockers: &[PilotBlocker],
    plans: &BTreeMap<UnitId, WorkState>,
) -> Option<Candidate> {
    let id = id_of(line)?;
    let status = PhaseStatus::ALL.into_iter().find(|status| status_name(*status) == line.phase_status)?;
    let is_blocked = blockers.iter().any(|blocker| blocker.unit == line.id && holds_loop(blocker));
    Some(Candidate {
        id,
        phase: PilotPhase::parse_name(&line.phase).ok()?,
        status,
        priority: line.priority,
        created_at: line.created_at,
        not_before: None,
        open_upstreams: 0,
        is_held: is_blocked || !is_workable(&line.id, plans),
        is_claimed: line.is_claimed,
    })
}

/// Holds the slices of a milestone while another one has its workspace: it is theirs again once that one is merged.
pub(super) async fn hold_other_slices(
    project: &OpenProject,
    candidates: &mut [Candidate],
) -> Result<(), AutopilotError> {
    let lines = project.hands.store().unit_lines(&project.name, MAX_UNITS).await?;
    let slice_of = |id: UnitId| workspace_of(id);
    let is_over = |slice: UnitId| {
        let own = slice.to_string();
        lines.iter().any(|line| line.id == own && line.is_over)
    };
    // A slice has the workspace while a worker of it is there, also after the unit is over.
    let running = project.running();
    let mut current: BTreeMap<UnitId, UnitId> =
        running.iter().map(|unit| (unit.id.root(), slice_of(unit.id))).collect();
    // One that is being ended has it until its folder is removed.
    for id in project.ends().list().into_iter().filter(|id| id.unit_type() == UnitType::Slice) {
        current.entry(id.root()).or_insert_with(|| slice_of(id));
    }
    for id in lines.iter().filter(|line| line.has_begun).filter_map(id_of) {
        if id.unit_type() != UnitType::Milestone && !is_over(slice_of(id)) {
            current.entry(id.root()).or_insert_with(|| slice_of(id));
        }
    }
    for candidate in candidates {
        let (top, slice) = (candidate.id.root(), slice_of(candidate.id));
        if candidate.id.unit_type() == UnitType::Milestone || candidate.is_held || top.is_ad_hoc() {
            continue;
        }
        // Where none has begun, the first candidate chooses.
        candidate.is_held = *current.entry(top).or_insert(slice) != slice;
    }
    Ok(())
}

/// Returns true if a milestone that is not over has a plan without an approval in force: it has ended, or the time to answer is over.
pub(super) async fn has_lapsed_plan(project: &OpenProject, tops: &[UnitRow]) -> Result<bool, AutopilotError> {
    for row in tops.iter().filter(|row| !row.is_over) {
        let Some(plan) = read_facts(row)?.plan else { continue };
        let item = project.hands.store().work_item(plan).await?;
        if item.is_some_and(|item| needs_approval(item.state, &item.reason)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the units that are over, of all types.
pub(crate) async fn ended_units(project: &OpenProject) -> Result<BTreeSet<String>, AutopilotError> {
    let lines = project.hands.store().unit_lines(&project.name, MAX_UNITS).await?;
    Ok(lines.into_iter().filter(|line| line.is_over).map(|line| line.id).collect())
}

/// Returns the unit that a free worker would get next, by the scheduler's own order.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn find_next(project: &OpenProject) -> Result<Option<UnitId>, AutopilotError> {
    let (store, now) = (project.hands.store(), project.hands.now());
    let (blockers, plans) = (store.open_blockers(project.session()).await?, states_of_plans(project).await?);
    let ready = store.ready_units(&project.name, now).await?;
    let candidates: Vec<Candidate> =
        ready.iter().filter_map(|line| make_candidate(line, &blockers, &plans)).collect();
    // Workers that are busy, and a loop that does not run, change the moment and not the order.
    let choice = choose_units(&candidates, &[], &AgentCaps::default(), false, now);
    Ok(choice.dispatch.first().copied())
}
