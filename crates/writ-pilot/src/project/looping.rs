//! The scheduling loop of a project: begun, stopped, and ended.

use tokio_util::sync::CancellationToken;

use super::OpenProject;

impl OpenProject {
    /// Returns the cancellation token of a loop that begins now; `None` if a loop runs already, which then runs another round instead of
    /// ending.
    pub(crate) fn begin_loop(&self) -> Option<CancellationToken> {
        let begun = self.looping.begin(&self.hands.draining());
        if begun.is_none() {
            self.looping.wake.notify_one();
        } else {
            self.forget_failure();
        }
        begun
    }

    /// Ends the loop, which has nothing more to do; returns the cancellation token of another round if the loop was started again meanwhile.
    pub(crate) fn finish_loop(&self) -> Option<CancellationToken> {
        let next = self.looping.finish(&self.hands.draining());
        if next.is_some() {
            self.forget_failure();
        }
        next
    }

    /// Stops the loop; attempts that run are finished first.
    pub(crate) fn end_loop(&self) {
        self.looping.end();
        self.looping.wake.notify_one();
    }

    /// Returns true if the loop does not run, or ends after the attempts that run.
    pub(crate) fn is_loop_ending(&self) -> bool {
        self.looping.is_stopping().unwrap_or(true)
    }

    /// Returns true if a person has stopped the loop, which ends after what runs.
    pub(crate) fn is_stopping(&self) -> bool {
        self.looping.is_stopping().unwrap_or(false)
    }
}
