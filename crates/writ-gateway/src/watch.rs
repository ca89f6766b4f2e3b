//! One client's view of a session: every stored frame once and in order, and other frames as they come.

use std::sync::Arc;

use tokio::sync::broadcast::error::TryRecvError;
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;
use writ_runtime::engine::Engine;
use writ_types::error::{Exit, Report};
use writ_types::frame::Numbered;
use writ_types::id::SessionId;

use crate::line::error_frame;

/// Sends a client what happens in a session.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) engine: Engine,
    pub(crate) session: SessionId,
    /// The last stored frame that the client has.
    pub(crate) last: u64,
    pub(crate) live: broadcast::Receiver<Arc<Numbered>>,
    pub(crate) outbox: mpsc::Sender<Numbered>,
    /// Ends with the connection, or when the client joins another session.
    pub(crate) stop: CancellationToken,
    /// Ends with the connection.
    pub(crate) gone: CancellationToken,
}

/// The treatment of a frame of the live stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameStep {
    /// It comes next, or is not stored.
    Send,
    /// The client has it.
    Known,
    /// Frames before it are missing: steps that end at the same time may send theirs in any order.
    Gap,
}

const fn next_step(last: u64, seq: u64) -> FrameStep {
    // Frames without a number are not stored, so they cannot be missing.
    if seq == 0 || seq == last.saturating_add(1) {
        FrameStep::Send
    } else if seq <= last {
        FrameStep::Known
    } else {
        FrameStep::Gap
    }
}

/// The reason why a watch ends.
enum End {
    /// The client has disconnected or joined another session.
    Left,
    /// An error for the client.
    Broken(Report),
}

impl Watch {
    /// Watches until the client leaves, or until the session cannot be read, which the client is sent as an
    /// error.
    pub(crate) async fn watch_session(mut self) {
        match self.follow_live().await {
            // Only at the end of the connection: the client sees how its turn ended.
            End::Left if self.gone.is_cancelled() => self.last_words(),
            End::Left => {}
            End::Broken(report) => {
                let report =
                    Report { outside: format!("The session is not shown any more: {report}"), ..report };
                let _ = self.outbox.send(Numbered { seq: 0, frame: error_frame(None, report) }).await;
            }
        }
    }

    async fn follow_live(&mut self) -> End {
        // First what the client has missed, since the live stream begins later.
        if let Err(end) = self.catch_up().await {
            return end;
        }
        loop {
            let frame = tokio::select! {
                // A client that has left is not sent one frame more.
                biased;
                () = self.stop.cancelled() => return End::Left,
                frame = self.live.recv() => frame,
            };
            let done = match frame {
                Ok(frame) => match next_step(self.last, frame.seq) {
                    FrameStep::Send => self.send_frame(Arc::unwrap_or_clone(frame)).await,
                    FrameStep::Known => Ok(()),
                    FrameStep::Gap => self.catch_up().await,
                },
                // This client was too slow for the live stream: the store has the frames that it missed.
                Err(broadcast::error::RecvError::Lagged(_)) => self.catch_up().await,
                Err(broadcast::error::RecvError::Closed) => {
                    let text = "the engine has put it aside";
                    let report = Report::new(Exit::Blocked, "watch.closed", text).with_hint("join it again");
                    Err(End::Broken(report))
                }
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// Sends the stored frames that the client does not have, page by page.
    async fn catch_up(&mut self) -> Result<(), End> {
        loop {
            let frames = self.engine.frames_after(self.session, self.last).await.map_err(End::Broken)?;
            if frames.is_empty() {
                return Ok(());
            }
            for frame in frames {
                self.send_frame(frame).await?;
            }
        }
    }

    async fn send_frame(&mut self, frame: Numbered) -> Result<(), End> {
        // The number grows also if the frame is dropped: it must not be sent twice.
        self.last = self.last.max(frame.seq);
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            // Room is reserved before the frame is given away, so that a cancelled send drops none.
            room = self.outbox.reserve() => {
                room.map_err(|_| End::Left)?.send(frame);
                return Ok(());
            }
        }
        // Only the end of the connection sends it: a client that joined another session must not see this one.
        if self.gone.is_cancelled() {
            self.say_at_last(frame);
        }
        Err(End::Left)
    }

    /// Sends the frames that came before the connection began to end: the answer of a turn that ended with
    /// the engine.
    fn last_words(&mut self) {
        loop {
            match self.live.try_recv() {
                Ok(frame) if next_step(self.last, frame.seq) == FrameStep::Known => {}
                Ok(frame) => self.say_at_last(Arc::unwrap_or_clone(frame)),
                // There is no time to read the store; the client reads it when it returns.
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    /// A client that is too slow for it asks again at the next start: stored frames are not dropped.
    fn say_at_last(&mut self, frame: Numbered) {
        self.last = self.last.max(frame.seq);
        let _left_behind = self.outbox.try_send(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_overtake_others_show_a_gap() {
        assert_eq!(next_step(4, 0), FrameStep::Send, "not kept");
        assert_eq!(next_step(4, 5), FrameStep::Send);
        assert_eq!(next_step(4, 6), FrameStep::Gap, "frame 5 is on its way");
        assert_eq!(next_step(6, 5), FrameStep::Known, "it came from the store");
    }
}
