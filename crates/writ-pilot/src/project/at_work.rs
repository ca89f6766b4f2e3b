//! The units of a project that are being worked on, and everything that holds their dispatch for a while.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::schedule::RunningUnit;
use writ_autopilot::unit_id::UnitId;

use super::OpenProject;
use crate::drive::{OpenEnds, WorkCourse};

/// A unit that a worker of this process is working on.
#[derive(Clone, Debug)]
pub(crate) struct LiveUnit {
    pub(crate) phase: PilotPhase,
    /// The fence of its claim.
    pub(crate) fence: u64,
    /// Cancelled to end the attempt.
    pub(crate) stop: CancellationToken,
    /// The progress of its worker.
    pub(crate) course: Arc<WorkCourse>,
}

/// The units that workers of this process are working on, and the ended units that are not cleaned up yet.
#[derive(Debug, Default)]
pub(super) struct UnitsAtWork {
    live: Mutex<BTreeMap<UnitId, LiveUnit>>,
    /// Units for which hooks run before a dispatch.
    preparing: PreparingUnits,
    ends: OpenEnds,
    /// Held while plans are changed, and while a unit is handed out: no one is given words that are being changed.
    planning: tokio::sync::Mutex<()>,
    /// Held while the circuits of models are read and changed.
    circuits: tokio::sync::Mutex<()>,
    /// Held while a hook runs in the project's folder, which has one sandbox for all.
    hooks: tokio::sync::Mutex<()>,
    /// The workers with hooks after a run that are not over: until then nothing is handed out.
    posting: Arc<AtomicUsize>,
    /// The hook that has ended the session, in words.
    failure: Mutex<Option<String>>,
}

/// The time in which the hooks after a run hold every dispatch.
#[derive(Debug)]
pub(crate) struct DispatchHold(Arc<AtomicUsize>);

impl Drop for DispatchHold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Units for which hooks run before a dispatch, with their phases.
type PreparingUnits = Arc<Mutex<BTreeMap<UnitId, PilotPhase>>>;

/// A unit for which hooks run before its dispatch: it is not chosen once more.
#[derive(Debug)]
pub(crate) struct PreparedUnit {
    all: PreparingUnits,
    id: UnitId,
}

impl Drop for PreparedUnit {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.id);
    }
}

impl OpenProject {
    pub(crate) fn live(&self) -> MutexGuard<'_, BTreeMap<UnitId, LiveUnit>> {
        lock(&self.work.live)
    }

    /// Returns the units that are over and still have a workspace.
    pub(crate) const fn ends(&self) -> &OpenEnds {
        &self.work.ends
    }

    /// Waits until no other changes the plans of the project, or hands out a unit of them.
    pub(crate) async fn hold_plans(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.work.planning.lock().await
    }

    /// Waits until no other changes the circuits of models.
    pub(crate) async fn hold_circuits(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.work.circuits.lock().await
    }

    /// Waits until no hook runs in the project's folder.
    pub(crate) async fn hold_hooks(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.work.hooks.lock().await
    }

    /// Holds every dispatch from now on. One that is under way is waited for.
    pub(crate) async fn hold_dispatch(&self) -> DispatchHold {
        let _plans = self.hold_plans().await;
        self.work.posting.fetch_add(1, Ordering::SeqCst);
        DispatchHold(Arc::clone(&self.work.posting))
    }

    /// Returns true while hooks after a run hold every dispatch.
    pub(crate) fn is_dispatch_held(&self) -> bool {
        self.work.posting.load(Ordering::SeqCst) > 0
    }

    /// Ends the session for the failure of a hook: attempts that run are finished, and no other begins.
    pub(crate) fn fail_session(&self, why: String) {
        lock(&self.work.failure).get_or_insert(why);
        self.looping.wake.notify_one();
    }

    /// Returns the failure that has ended the session.
    pub(crate) fn session_failure(&self) -> Option<String> {
        lock(&self.work.failure).clone()
    }

    /// Forgets the failure: a person has started the loop again.
    pub(super) fn forget_failure(&self) {
        *lock(&self.work.failure) = None;
    }

    /// Notes a unit for which hooks run before its dispatch, until the returned value is dropped.
    pub(crate) fn prepare(&self, id: UnitId, phase: PilotPhase) -> PreparedUnit {
        lock(&self.work.preparing).insert(id, phase);
        PreparedUnit { all: Arc::clone(&self.work.preparing), id }
    }

    /// Returns the units that are being worked on or handed out.
    pub(crate) fn running(&self) -> Vec<RunningUnit> {
        let mut all = lock(&self.work.preparing).clone();
        all.extend(self.live().iter().map(|(id, live)| (*id, live.phase)));
        all.into_iter().map(|(id, phase)| RunningUnit { id, phase }).collect()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // The lock may be poisoned, but no panic can leave a value half-written.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
