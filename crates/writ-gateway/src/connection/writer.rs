//! The frames for one client, on their way out.

use std::time::Duration;

use futures::{Sink, SinkExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, interval_at, timeout};
use tokio_util::sync::CancellationToken;
use writ_types::frame::Numbered;

use super::{CLOSE_TIMEOUT, ClientOutput, Close};
use crate::line::Shape;

/// The longest time that a client may refuse to read before its connection ends.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which a writer without pings wakes and does nothing.
const SELDOM: Duration = Duration::from_secs(24 * 60 * 60);

/// Carries frames to the client.
pub(super) struct FrameWriter<S> {
    pub(super) said: S,
    pub(super) shape: Shape,
    /// The interval of pings; none: there are no pings.
    pub(super) ping: Option<Duration>,
}

impl<S: Sink<ClientOutput> + Unpin> FrameWriter<S> {
    /// Sends what is waiting until the connection closes, or until its client takes nothing for too long.
    pub(super) async fn serve_client(
        mut self,
        mut waiting: mpsc::Receiver<Numbered>,
        closed: oneshot::Receiver<Close>,
        gone: CancellationToken,
    ) {
        let every = self.ping.unwrap_or(SELDOM);
        let mut pings = interval_at(Instant::now() + every, every);
        loop {
            // Reading on and pinging share one task, since the sink takes one frame at a time.
            let next = tokio::select! {
                frame = waiting.recv() => match frame {
                    Some(frame) => self.shape.frame_line(&frame).map(ClientOutput::Frame),
                    None => break,
                },
                _ = pings.tick() => self.ping.map(|_| ClientOutput::Ping),
            };
            let Some(next) = next else { continue };
            // A client that reads nothing would hold up every frame for it without end.
            match timeout(WRITE_TIMEOUT, self.said.send(next)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => {
                    gone.cancel();
                    return;
                }
            }
        }
        if let Ok(why) = closed.await {
            // A client that has disconnected needs no closing message.
            let _ = timeout(CLOSE_TIMEOUT, self.said.send(ClientOutput::Close(why))).await;
        }
    }
}
