//! Units that are over while what follows from it is not done yet: until then their workspaces belong to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use writ_autopilot::unit_id::UnitId;
use writ_types::error::ToReport as _;

use super::ending::end_unit;
use crate::error::AutopilotError;
use crate::project::OpenProject;

/// The pause after the first failure of an end; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The tries of an end, over about nine minutes; the next start of the loop begins anew.
const MAX_TRIES: u32 = 10;
/// The longest reason of a failure that is shown, in characters.
const MAX_REASON_CHARS: usize = 300;

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
    /// Those that have failed, also such as could not be announced.
    failed: BTreeMap<UnitId, FailedEnd>,
}

/// An end that has failed.
#[derive(Debug)]
struct FailedEnd {
    tries: u32,
    at: Instant,
    why: String,
}

impl FailedEnd {
    /// Returns the rest of its pause; `None`: it is not tried again.
    fn pause(&self) -> Option<Duration> {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.tries.saturating_sub(1).min(MAX_TRIES));
        (self.tries < MAX_TRIES).then(|| pause.saturating_sub(self.at.elapsed()))
    }
}

/// The next try of what has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndTry {
    /// Nothing is left to be ended.
    None,
    /// The first one, after this time.
    After(Duration),
    /// Everything that is left has failed too often.
    NoneLeft,
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
        for unit in units {
            state.units.remove(unit);
            state.failed.remove(unit);
        }
    }

    /// Takes a unit out that is not over after all.
    fn withdraw(&self, unit: UnitId) {
        self.state().units.remove(&unit);
    }

    /// Returns the units, parts before what they belong to.
    pub(crate) fn list(&self) -> Vec<UnitId> {
        self.state().units.iter().rev().copied().collect()
    }

    /// Returns true if ends are under way: one of them has not failed.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.state();
        state.units.iter().any(|unit| !state.failed.keys().any(|failed| failed.is_within(*unit)))
    }

    /// Returns true if the end of a unit may be tried: it has not failed, or its pause is over.
    pub(super) fn may_try(&self, unit: UnitId) -> bool {
        self.state().failed.get(&unit).is_none_or(|failed| failed.pause() == Some(Duration::ZERO))
    }

    /// Returns the next try of what has failed.
    pub(crate) fn next_try(&self) -> EndTry {
        let state = self.state();
        if state.units.is_empty() && state.failed.is_empty() {
            return EndTry::None;
        }
        state.failed.values().filter_map(FailedEnd::pause).min().map_or(EndTry::NoneLeft, EndTry::After)
    }

    /// Forgets the failures so far: the loop begins anew.
    pub(crate) fn begin_anew(&self) {
        self.state().failed.clear();
    }

    fn fail(&self, unit: UnitId, why: &str) {
        let mut state = self.state();
        let tries = state.failed.get(&unit).map_or(0, |failed| failed.tries).saturating_add(1);
        let why = why.chars().take(MAX_REASON_CHARS).collect();
        state.failed.insert(unit, FailedEnd { tries, at: Instant::now(), why });
    }

    /// Returns in words what has failed, for people.
    pub(crate) fn describe_failures(&self) -> Vec<String> {
        let describe = |(unit, failed): (&UnitId, &FailedEnd)| {
            let next = if failed.tries < MAX_TRIES {
                "it is tried again"
            } else {
                "it is tried again with the next `writ pilot auto`"
            };
            format!("the end of {unit} is not complete, {next}: {}", failed.why)
        };
        self.state().failed.iter().map(describe).collect()
    }
}

/// Notes that the end of a unit has failed: in the log, and for the status.
pub(super) fn note_failure(project: &OpenProject, id: UnitId, error: &AutopilotError) {
    tracing::error!(unit = %id, %error, "the end of a unit is not complete; it is tried again");
    project.ends().fail(id, &error.report().outside);
}

/// Withdraws ends that were announced and not written down. Those that another order has written meanwhile stay.
pub(crate) async fn withdraw_ends(project: &OpenProject, units: &[UnitId]) {
    for id in units {
        // One that cannot be read stays: it is looked at again with the others.
        if project.read_unit(*id).await.is_ok_and(|unit| !unit.row.is_over) {
            project.ends().withdraw(*id);
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
    for (id, error) in finish_all(project, own).await {
        note_failure(project, id, &error);
        if own.contains(&id) && first.is_ok() {
            first = Err(error);
        }
    }
    first
}

/// Does what follows from the ends that can be finished now; those of `own` also in their pauses. Returns those that have failed.
async fn finish_all(project: &Arc<OpenProject>, own: &[UnitId]) -> Vec<(UnitId, AutopilotError)> {
    let ends = project.ends();
    let _alone = ends.finishing.lock().await;
    let mut failed = Vec::new();
    for id in ends.list() {
        // Also a part of it that has not come to its own end: a plan ends after its slices.
        let is_in_use = project.live().keys().any(|live| live.is_within(id))
            || ends.list().iter().any(|other| *other != id && other.is_within(id));
        if is_in_use || !(own.contains(&id) || ends.may_try(id)) {
            continue;
        }
        match finish_end(project, id).await {
            Ok(false) => {}
            Ok(true) => ends.remove(&[id]),
            Err(error) => failed.push((id, error)),
        }
    }
    failed
}

/// Returns false if the end is not written down yet.
async fn finish_end(project: &Arc<OpenProject>, id: UnitId) -> Result<bool, AutopilotError> {
    if !project.read_unit(id).await?.row.is_over {
        return Ok(false);
    }
    end_unit(project, id).await?;
    Ok(true)
}

/// Does the same for the loop and its workers: a failure is in the log and the status, and tried again after a pause.
pub(super) async fn try_ends(project: &Arc<OpenProject>) {
    for (id, error) in finish_all(project, &[]).await {
        note_failure(project, id, &error);
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
        assert!(ends.is_busy() && ends.may_try(slice));
        ends.remove(&[task, slice, milestone]);
        assert!(!ends.is_busy());
        assert_eq!(ends.next_try(), EndTry::None);
    }

    /// An end that fails is tried again with pauses that grow, and in the end given up until the loop begins anew; what it is a part of
    /// waits with it, and nothing else does.
    #[test]
    fn an_end_that_fails_has_its_pauses_and_a_last_try() {
        let ends = OpenEnds::default();
        let (milestone, slice, other) = (UnitId::Milestone(1), UnitId::Slice(1, 2), UnitId::Slice(1, 3));
        ends.announce(&[milestone, slice, other]);
        ends.fail(slice, "no room");
        assert!(ends.is_busy() && ends.may_try(other), "the other one goes on");
        ends.remove(&[other]);
        assert!(!ends.is_busy() && !ends.may_try(slice), "not at once again");
        assert!(matches!(ends.next_try(), EndTry::After(wait) if wait <= FIRST_PAUSE), "{ends:?}");
        let shown = ends.describe_failures();
        assert!(
            shown.len() == 1 && shown[0].contains("slice/m1/s2") && shown[0].ends_with("no room"),
            "{shown:?}"
        );
        // Its pause is over.
        ends.state().failed.values_mut().for_each(|failed| failed.at -= FIRST_PAUSE);
        assert!(ends.may_try(slice));
        ends.fail(slice, "no room");
        assert!(matches!(ends.next_try(), EndTry::After(wait) if wait > FIRST_PAUSE), "{ends:?}");
        (2..MAX_TRIES).for_each(|_| ends.fail(slice, "no room"));
        assert_eq!(ends.next_try(), EndTry::NoneLeft);
        assert!(!ends.may_try(slice));
        ends.begin_anew();
        assert!(ends.may_try(slice) && ends.is_busy() && ends.describe_failures().is_empty());
        ends.remove(&[slice, milestone]);
        assert_eq!(ends.next_try(), EndTry::None);
    }
}
