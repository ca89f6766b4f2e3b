//! Frames on their way to whoever watches a session.

use tokio::sync::broadcast;
use writ_types::frame::{Numbered, ServerFrame};

/// Frames that one slow watcher may lag behind before it has to read them from the store again.
pub(crate) const HUB_CAPACITY: usize = 1_024;

/// The live end of one session's stream.
#[derive(Clone, Debug)]
pub(crate) struct Hub {
    frames: broadcast::Sender<Numbered>,
}

impl Default for Hub {
    fn default() -> Self {
        Self { frames: broadcast::Sender::new(HUB_CAPACITY) }
    }
}

impl Hub {
    /// Watches from now on.
    pub(crate) fn watch(&self) -> broadcast::Receiver<Numbered> {
        self.frames.subscribe()
    }

    /// Whether somebody watches.
    pub(crate) fn watched(&self) -> bool {
        self.frames.receiver_count() > 0
    }

    /// Sends a frame that the store has numbered.
    pub(crate) fn send(&self, seq: u64, frame: ServerFrame) {
        // Nobody may be watching: the store has it.
        let _ = self.frames.send(Numbered { seq, frame });
    }

    /// Sends a frame that is not kept.
    pub(crate) fn pass(&self, frame: ServerFrame) {
        self.send(0, frame);
    }
}
