//! One look of the loop at everything that is ready.

use std::sync::Arc;
use std::time::Duration;

use writ_autopilot::phase::PilotPhase;
use writ_autopilot::schedule::{Candidate, choose_units};
use writ_autopilot::unit_id::UnitId;
use writ_store::reads::UnitReads as _;
use writ_store::units::UnitRow;
use writ_types::api::work::WorkState;

use super::candidates::{has_lapsed_plan, hold_other_slices, holds_loop, is_workable, make_candidate};
use super::ends::{self, EndTry};
use super::{claiming, ending, hand_out, id_of, states_of_plans};
use crate::config::WorktreeMode;
use crate::error::AutopilotError;
use crate::project::OpenProject;

/// The longest wait between two ticks.
const TICK: Duration = Duration::from_secs(10);

/// A step of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TickStep {
    Settings,
    Fetch,
    Sort,
    Dispatch,
}

impl TickStep {
    const fn name(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Fetch => "fetch",
            Self::Sort => "sort",
            Self::Dispatch => "dispatch",
        }
    }
}

/// Logs a step, for those who look for the order. There is a tick each second, so it is not in the usual log.
fn log_step(step: TickStep) {
    tracing::debug!(stage = step.name(), "a step of a tick of the autopilot has ended");
}

/// The end of one tick.
pub(super) enum Tick {
    /// Look again after this time at the latest.
    Wait(Duration),
    /// The loop has ended, with this status of the session.
    Ended(&'static str),
}

/// Looks once at everything that is ready, and hands out what can be. The order is fixed: the settings are read anew, what is ready is read
/// from the store, it is brought into its order, and handed out as far as there is room, by the settings that were read in this tick.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(super) async fn tick(project: &Arc<OpenProject>, is_stopping: bool) -> Result<Tick, AutopilotError> {
    let now = project.hands.now();
    let store = project.hands.store();
    project.looping.count_tick();
    project.settings.refresh();
    log_step(TickStep::Settings);
    ends::try_ends(project).await;
    // First, so that what another process has left is among what is ready.
    claiming::sweep_claims(project, now).await?;
    let ready = store.ready_units(&project.name, now).await?;
    log_step(TickStep::Fetch);
    let blockers = store.open_blockers(project.session()).await?;
    let plans = states_of_plans(project).await?;
    let failure = project.session_failure();
    let is_paused = is_stopping || failure.is_some() || blockers.iter().any(holds_loop);
    let mut candidates: Vec<Candidate> =
        ready.iter().filter_map(|line| make_candidate(line, &blockers, &plans)).collect();
    if project.config().worktree_mode == WorktreeMode::MilestonePerWorktree {
        hold_other_slices(project, &mut candidates).await?;
    }
    if !is_paused {
        for id in ready.iter().filter(|line| line.phase == PilotPhase::Complete.name()).filter_map(id_of) {
            ending::try_complete(project, id).await;
        }
    }
    let running = project.running();
    let config = project.config();
    let choice = choose_units(&candidates, &running, &config.agents, is_paused, now);
    log_step(TickStep::Sort);
    for id in &choice.dispatch {
        hand_out(project, *id).await;
    }
    log_step(TickStep::Dispatch);
    // An attempt that runs is waited for also while the loop is stopped: its result is paid for. A folder that is being removed is a part
    // of the work, too. And the pause after a failure may end meanwhile, which wakes no one.
    if !project.running().is_empty() || project.ends().is_busy() {
        return Ok(Tick::Wait(config.times.poll_interval));
    }
    if failure.is_some() {
        return Ok(Tick::Ended("failed"));
    }
    if is_paused {
        return Ok(Tick::Ended("paused"));
    }
    // A milestone is over after all its parts: a project of many units is not read whole each second.
    let tops = store.top_units(&project.name).await?;
    if tops.iter().any(|row| !row.is_over && is_workable(&row.key.id, &plans)) {
        return Ok(Tick::Wait(config.times.poll_interval));
    }
    // Its plan stood still when its last unit was over, and runs again.
    let is_left = |row: &&UnitRow| row.is_over && is_workable(&row.key.id, &plans);
    let left: Vec<UnitId> = tops.iter().filter(is_left).filter_map(|row| row.key.id.parse().ok()).collect();
    project.ends().announce(&left);
    ends::try_ends(project).await;
    match project.ends().next_try() {
        EndTry::None => {}
        EndTry::After(wait) => return Ok(Tick::Wait(wait.max(config.times.poll_interval))),
        // What is in its way is a person's to remove, as the status says.
        EndTry::NoneLeft => return Ok(Tick::Ended("paused")),
    }
    // A plan that is not answered yet, or that a person has stopped, may become work at any moment.
    let is_awaited =
        |state: &WorkState| matches!(state, WorkState::Proposed | WorkState::Paused | WorkState::Consulting);
    if plans.values().any(is_awaited) {
        return Ok(Tick::Wait(TICK));
    }
    // What such a plan has begun is not done, and only a person's approval can let it go on.
    Ok(Tick::Ended(if has_lapsed_plan(project, &tops).await? { "paused" } else { "complete" }))
}
