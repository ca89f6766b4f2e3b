//! The scheduling loop of a project: begun, stopped, and ended.

use std::sync::PoisonError;

use tokio_util::sync::CancellationToken;

use super::OpenProject;

/// A scheduling loop that runs.
#[derive(Debug)]
pub(super) struct RunningLoop {
    /// Cancelled to stop the loop after the attempts that run.
    stop: CancellationToken,
    /// True if the loop was started again while it ran: at its end it runs another round.
    is_wanted: bool,
}

impl OpenProject {
    /// Returns the cancellation token of a loop that begins now; `None` if a loop runs already, which then runs another round instead of
    /// ending.
    pub(crate) fn begin_loop(&self) -> Option<CancellationToken> {
        let mut looping = self.looping.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = looping.as_mut() {
            running.is_wanted = true;
            self.wake.notify_one();
            return None;
        }
        self.forget_failure();
        let stop = self.hands.draining().child_token();
        *looping = Some(RunningLoop { stop: stop.clone(), is_wanted: false });
        Some(stop)
    }

    /// Ends the loop, which has nothing more to do; returns the cancellation token of another round if the loop was started again meanwhile.
    pub(crate) fn finish_loop(&self) -> Option<CancellationToken> {
        let mut looping = self.looping.lock().unwrap_or_else(PoisonError::into_inner);
        let running = looping.take().filter(|running| running.is_wanted)?;
        self.forget_failure();
        let stop =
            if running.stop.is_cancelled() { self.hands.draining().child_token() } else { running.stop };
        *looping = Some(RunningLoop { stop: stop.clone(), is_wanted: false });
        Some(stop)
    }

    /// Returns true if the loop does not run, or ends after the attempts that run.
    pub(crate) fn is_loop_ending(&self) -> bool {
        let looping = self.looping.lock().unwrap_or_else(PoisonError::into_inner);
        looping.as_ref().is_none_or(|running| running.stop.is_cancelled())
    }

    /// Stops the loop; attempts that run are finished first.
    pub(crate) fn end_loop(&self) {
        let mut looping = self.looping.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = looping.as_mut() {
            running.is_wanted = false;
            running.stop.cancel();
        }
        self.wake.notify_one();
    }

    /// Returns true if a person has stopped the loop, which ends after what runs.
    pub(crate) fn is_stopping(&self) -> bool {
        let looping = self.looping.lock().unwrap_or_else(PoisonError::into_inner);
        looping.as_ref().is_some_and(|running| running.stop.is_cancelled())
    }
}
