//! The scheduling loop of a project: begun, stopped, and ended.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::OpenProject;
use crate::start::StartStep;

impl OpenProject {
    /// Returns the cancellation token of a loop that begins now; `None` if a loop runs already, which then runs another round instead of
    /// ending.
    pub(crate) fn begin_loop(&self) -> Option<CancellationToken> {
        let begun = self.looping.begin(&self.hands.draining());
        if begun.is_none() {
            self.looping.wake.notify_one();
        } else {
            self.begin_anew();
            StartStep::Resume.log_step(&self.name);
        }
        begun
    }

    /// Begins a look of the loop at the units, the first one if the loop was started again since the last.
    pub(crate) fn begin_round(&self) {
        if self.looping.begin_round() {
            self.begin_anew();
        }
    }

    /// Forgets what has failed: the session goes on, and ends that were given up may go well by now.
    fn begin_anew(&self) {
        self.forget_failure();
        self.ends().begin_anew();
    }

    /// Ends the loop, which has nothing more to do; returns the cancellation token of another round if the loop was started again meanwhile.
    pub(crate) fn finish_loop(&self) -> Option<CancellationToken> {
        let next = self.looping.finish(&self.hands.draining());
        if next.is_some() {
            self.begin_anew();
        }
        next
    }

    /// Wakes the loop after a time.
    pub(crate) fn refresh_later(self: &Arc<Self>, wait: Duration) {
        let (project, draining) = (Arc::clone(self), self.hands.draining());
        self.hands.spawn(async move {
            tokio::select! {
                () = draining.cancelled() => return,
                () = project.hands.wait(wait) => {}
            }
            project.looping.refreshes.begin_due(project.hands.now());
            project.looping.wake.notify_one();
        });
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

    /// Returns true if no loop runs, not even to its end.
    pub(crate) fn is_loop_over(&self) -> bool {
        self.looping.is_stopping().is_none()
    }

    /// Returns true if a person has stopped the loop, which ends after what runs.
    pub(crate) fn is_stopping(&self) -> bool {
        self.looping.is_stopping().unwrap_or(false)
    }
}
