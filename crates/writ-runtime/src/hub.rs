//! Frames on their way to the clients that watch a session.

use std::sync::Arc;

use tokio::sync::broadcast;
use writ_types::frame::{Numbered, ServerFrame};

/// Frames that one slow watcher may lag behind before it has to read them from the store again. Every loaded session
/// has places for all of them, whether anybody watches or not: a thousand sessions share some ten megabytes.
const HUB_CAPACITY: usize = 256;

/// The live end of one session's stream.
#[derive(Clone, Debug)]
pub(crate) struct Hub {
    frames: broadcast::Sender<Arc<Numbered>>,
}

impl Default for Hub {
    fn default() -> Self {
        Self { frames: broadcast::Sender::new(HUB_CAPACITY) }
    }
}

impl Hub {
    /// Watches from now on.
    pub(crate) fn watch(&self) -> broadcast::Receiver<Arc<Numbered>> {
        self.frames.subscribe()
    }

    /// Returns true if at least one client watches.
    pub(crate) fn watched(&self) -> bool {
        self.frames.receiver_count() > 0
    }

    /// Sends a frame that the store has numbered.
    pub(crate) fn send(&self, seq: u64, frame: ServerFrame) {
        // An error means that no client watches: the store has the frame.
        let _ = self.frames.send(Arc::new(Numbered { seq, frame }));
    }

    /// Sends a frame that is not stored; its number is 0.
    pub(crate) fn pass(&self, frame: ServerFrame) {
        self.send(0, frame);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast::error::TryRecvError;

    use super::*;

    #[test]
    fn a_watcher_lags_behind_only_after_as_many_frames_as_there_are_places() {
        let hub = Hub::default();
        let mut slow = hub.watch();
        let status = |n: usize| ServerFrame::Status { text: n.to_string() };
        (0..HUB_CAPACITY).for_each(|n| hub.pass(status(n)));
        assert_eq!(slow.try_recv().map(|first| first.frame.clone()), Ok(status(0)));
        (0..2).for_each(|n| hub.pass(status(n)));
        assert_eq!(slow.try_recv().map(drop), Err(TryRecvError::Lagged(1)));
    }

    /// A place is a pointer and what the channel keeps beside it, never a frame: cards are large.
    #[test]
    fn the_live_end_of_a_session_takes_little() {
        let place = size_of_val(&hub_place()) + 4 * size_of::<usize>();
        assert!(HUB_CAPACITY * place <= 16 * 1024, "{place} bytes for each frame");
    }

    fn hub_place() -> Result<Arc<Numbered>, TryRecvError> {
        Hub::default().watch().try_recv()
    }
}
