//! Units that are over while what follows from it is not done yet: until then their workspaces belong to them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use writ_autopilot::unit_id::UnitId;

use super::ending::end_unit;
use crate::error::AutopilotError;
use crate::project::OpenProject;

/// The time from a failure to the next try of the loop.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Ends that are announced and not done. A folder that is being removed is given to no other slice.
#[derive(Debug, Default)]
pub(crate) struct OpenEnds {
    state: Mutex<EndsState>,
    /// One at a time removes folders.
    finishing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct EndsState {
    units: BTreeSet<UnitId>,
    /// The last failure; none: the last end is done.
    failed_at: Option<Instant>,
}

impl OpenEnds {
    fn state(&self) -> MutexGuard<'_, EndsState> {
        // A panic elsewhere cannot leave it half-written.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces the ends of units, before they are written down.
    pub(crate) fn announce(&self, units: &[UnitId]) {
        self.state().units.extend(units);
    }

    /// Takes units out: their ends are done.
    pub(crate) fn remove(&self, units: &[UnitId]) {
        let mut state = self.state();
        units.iter().for_each(|unit| {
            state.units.remove(unit);
        });
        if state.units.is_empty() {
            state.failed_at = None;
        }
    }

    /// Returns the units, parts before what they belong to.
    pub(crate) fn list(&self) -> Vec<UnitId> {
        self.state().units.iter().rev().copied().collect()
    }

    /// Returns true if ends are under way: none of them has failed.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.state();
        !state.units.is_empty() && state.failed_at.is_none()
    }

    fn is_due(&self) -> bool {
        let state = self.state();
        !state.units.is_empty() && state.failed_at.is_none_or(|at| at.elapsed() >= RETRY_AFTER)
    }
}

/// Withdraws ends that were announced and not written down. Those that another order has written meanwhile stay.
pub(crate) async fn withdraw_ends(project: &OpenProject, units: &[UnitId]) {
    for id in units {
        // One that cannot be read stays: it is looked at again with the others.
        if project.read_unit(*id).await.is_ok_and(|unit| !unit.row.is_over) {
            project.ends().remove(&[*id]);
        }
    }
}

/// Does what follows from the ends that were announced, but for units that something works in still: its worker does it then.
///
/// # Errors
///
/// The first failure of a unit of `own`; those of others are in the log. What has failed is tried again by the loop.
pub(crate) async fn finish_ends(project: &Arc<OpenProject>, own: &[UnitId]) -> Result<(), AutopilotError> {
    let mut first = Ok(());
    for (id, error) in finish_all(project).await {
        if own.contains(&id) && first.is_ok() {
            first = Err(error);
        } else {
            log_failure(id, &error);
        }
    }
    first
}

/// Does what follows from the ends that can be finished now. Returns those that have failed.
async fn finish_all(project: &Arc<OpenProject>) -> Vec<(UnitId, AutopilotError)> {
    let ends = project.ends();
    let _alone = ends.finishing.lock().await;
    let mut failed = Vec::new();
    for id in ends.list() {
        // Also a part of it whose own end is not done: a plan ends after its slices.
        let is_in_use = project.live().keys().any(|live| live.is_within(id))
            || ends.list().iter().any(|other| *other != id && other.is_within(id));
        if is_in_use {
            continue;
        }
        match finish_end(project, id).await {
            Ok(false) => {}
            Ok(true) => ends.remove(&[id]),
            Err(error) => failed.push((id, error)),
        }
    }
    ends.state().failed_at = (!failed.is_empty()).then(Instant::now);
    failed
}

fn log_failure(id: UnitId, error: &AutopilotError) {
    tracing::error!(unit = %id, %error, "the end of a unit is not complete; it is tried again");
}

/// Returns false if the end is not written down yet.
async fn finish_end(project: &Arc<OpenProject>, id: UnitId) -> Result<bool, AutopilotError> {
    if !project.read_unit(id).await?.row.is_over {
        return Ok(false);
    }
    end_unit(project, id).await?;
    Ok(true)
}

/// Does the same for the loop and its workers: a failure is in the log, and tried again after a pause.
pub(super) async fn try_ends(project: &Arc<OpenProject>) {
    if !project.ends().is_due() {
        return;
    }
    for (id, error) in finish_all(project).await {
        log_failure(id, &error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_before_what_they_belong_to() {
        let ends = OpenEnds::default();
        let (milestone, slice, task) = (UnitId::Milestone(1), UnitId::Slice(1, 2), UnitId::Task(0, 0, 1));
        ends.announce(&[milestone, task, slice]);
        assert_eq!(ends.list(), [task, slice, milestone]);
        assert!(ends.is_busy() && ends.is_due());
        ends.state().failed_at = Some(Instant::now());
        assert!(!ends.is_busy() && !ends.is_due(), "not at once again");
        ends.remove(&[task, slice, milestone]);
        ends.state().failed_at = None;
        assert!(!ends.is_busy() && !ends.is_due());
    }
}
