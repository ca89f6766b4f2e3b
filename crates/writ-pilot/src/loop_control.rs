//! The scheduling loop of a project: if it runs, if it is to run another round, how often it has looked, and who asks it to look.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::refresh::RefreshRequests;

/// The control of one loop.
#[derive(Debug, Default)]
pub(crate) struct LoopControl {
    running: Mutex<Option<RunningLoop>>,
    ticks: AtomicU64,
    /// Wakes the loop.
    pub(crate) wake: Notify,
    /// Requests to look at the units now.
    pub(crate) refreshes: RefreshRequests,
    /// Notices that are on their way.
    notices: NoticePlaces,
    /// Held while the loop begins or ends, until its status says so.
    status: tokio::sync::Mutex<()>,
}

/// The most notices that are on their way at a time.
const MAX_NOTICES: usize = 64;

/// The places for notices that are on their way.
#[derive(Debug)]
struct NoticePlaces(Arc<Semaphore>);

impl Default for NoticePlaces {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_NOTICES)))
    }
}

/// A scheduling loop that runs.
#[derive(Debug)]
struct RunningLoop {
    /// Cancelled to stop the loop after the attempts that run.
    stop: CancellationToken,
    /// True if the loop was started again while it ran: at its end it runs another round.
    is_wanted: bool,
}

impl LoopControl {
    /// Takes the place of a notice until the result is dropped; `None` if as many are on their way as may be.
    pub(crate) fn take_notice_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.notices.0).try_acquire_owned().ok()
    }

    /// Returns the cancellation token of a loop that begins now, a child of `draining`; `None` if a loop runs already, which then runs
    /// another round instead of ending.
    pub(crate) fn begin(&self, draining: &CancellationToken) -> Option<CancellationToken> {
        let mut looping = self.lock();
        if let Some(running) = looping.as_mut() {
            running.is_wanted = true;
            return None;
        }
        let stop = draining.child_token();
        *looping = Some(RunningLoop { stop: stop.clone(), is_wanted: false });
        Some(stop)
    }

    /// Waits until no loop begins or ends, and has others wait until the result is dropped.
    pub(crate) async fn hold_status(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.status.lock().await
    }

    /// Begins a look at the units; returns true if it is one that was asked for since the last. A loop that is stopping ends first.
    pub(crate) fn begin_round(&self) -> bool {
        let mut looping = self.lock();
        let running = looping.as_mut().filter(|running| !running.stop.is_cancelled());
        running.is_some_and(|running| std::mem::take(&mut running.is_wanted))
    }

    /// Has a loop that runs and is not stopping look once more before it ends; returns false if there is none.
    pub(crate) fn ask_for_round(&self) -> bool {
        let mut looping = self.lock();
        let running = looping.as_mut().filter(|running| !running.stop.is_cancelled());
        running.map(|running| running.is_wanted = true).is_some()
    }

    /// Ends the loop, which has nothing more to do; returns the cancellation token of another round if the loop was started again meanwhile.
    pub(crate) fn finish(&self, draining: &CancellationToken) -> Option<CancellationToken> {
        let mut looping = self.lock();
        let running = looping.take().filter(|running| running.is_wanted)?;
        let stop = if running.stop.is_cancelled() { draining.child_token() } else { running.stop };
        *looping = Some(RunningLoop { stop: stop.clone(), is_wanted: false });
        Some(stop)
    }

    /// Stops the loop; attempts that run are finished first.
    pub(crate) fn end(&self) {
        if let Some(running) = self.lock().as_mut() {
            running.is_wanted = false;
            running.stop.cancel();
        }
    }

    /// Returns true if the loop that runs ends after the attempts that run; `None` if none runs.
    pub(crate) fn is_stopping(&self) -> Option<bool> {
        self.lock().as_ref().map(|running| running.stop.is_cancelled())
    }

    /// Counts a look of the loop at the units.
    pub(crate) fn count_tick(&self) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of looks so far.
    pub(crate) fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Option<RunningLoop>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A start while the loop runs has it look once more: at its next look, or in another round if it was ending.
    #[test]
    fn a_start_is_lost_neither_at_a_look_nor_at_an_end() {
        let (control, draining) = (LoopControl::default(), CancellationToken::new());
        assert!(!control.ask_for_round(), "none runs");
        assert!(control.begin(&draining).is_some());
        assert!(control.begin(&draining).is_none());
        assert!(control.begin_round() && !control.begin_round(), "seen once");
        // Between the last look and the end.
        assert!(control.ask_for_round());
        assert!(control.finish(&draining).is_some_and(|stop| !stop.is_cancelled()));
        assert!(control.finish(&draining).is_none(), "and not for ever");
        assert_eq!(control.is_stopping(), None);
    }

    /// A pause stands against an answer that came before it, and not against a start after it.
    #[test]
    fn a_pause_is_overtaken_by_a_start_alone() {
        let (control, draining) = (LoopControl::default(), CancellationToken::new());
        assert!(control.begin(&draining).is_some());
        control.end();
        assert!(!control.ask_for_round());
        assert!(control.begin(&draining).is_none());
        assert!(!control.begin_round(), "it ends first");
        assert!(control.finish(&draining).is_some_and(|stop| !stop.is_cancelled()));
    }
}
