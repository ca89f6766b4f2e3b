//! `GET /cases/{id}/socket`: a WebSocket with the messages of a case, each as a text frame of JSON, and the guest's in.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{FromRequestParts as _, Request};
use axum::response::Response;
use bytes::Bytes;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use writ_types::id::SessionId;

use super::front_end::FrontEndToken;
use super::readings::list_messages;
use super::routes::{CaseAnswer, MAX_BODY_BYTES};
use super::server::ServedCases;

/// The most WebSockets at once.
pub(super) const MAX_SOCKETS: usize = 1_024;
/// The size of a socket's buffer, in bytes: it stays allocated while the socket is open, and most sockets are idle.
const READ_BUFFER: usize = 8 * 1024;
/// The pause between two signs of life that the other end must answer.
const PING_EVERY: Duration = Duration::from_secs(30);
/// The time after which a silent other end counts as disconnected.
const IDLE: Duration = Duration::from_secs(100);
/// The time in which the other end must take a frame.
const SEND_LIMIT: Duration = Duration::from_secs(30);

/// A socket that is served.
struct CaseSocket {
    shared: Arc<ServedCases>,
    socket: WebSocket,
    id: SessionId,
    /// The number of the last message that was sent.
    sent: u64,
    /// The token with which it was opened; with another one it ends.
    token: Option<FrontEndToken>,
}

/// The other end is disconnected, or takes nothing.
struct Disconnected;

/// Opens a socket for a case that is open. `?after=N` leaves out the messages up to that number.
pub(super) async fn open_socket(
    shared: Arc<ServedCases>,
    id: &str,
    request: Request,
) -> Result<Response, CaseAnswer> {
    let unknown = |_| CaseAnswer::refuse_with(404, "there is no such case");
    let id: SessionId = id.parse().map_err(unknown)?;
    let after = request.uri().query().and_then(|query| query.strip_prefix("after=")).unwrap_or("0");
    let sent = after.parse().map_err(|_| CaseAnswer::refuse_with(422, "after must be a number"))?;
    // From before the first read, so that no message falls between.
    let said = shared.routes.0.watch_said(id).await.map_err(|error| CaseAnswer::fail_with(&error))?;
    let token = shared.current_token();
    let (mut parts, _) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let upgrade = upgrade.map_err(|_| CaseAnswer::refuse_with(426, "this address is for WebSockets"))?;
    let place = Arc::clone(&shared.sockets).try_acquire_owned();
    let place = place.map_err(|_| CaseAnswer::refuse_with(503, "there are too many WebSockets"))?;
    let upgrade =
        upgrade.max_message_size(MAX_BODY_BYTES).max_frame_size(MAX_BODY_BYTES).read_buffer_size(READ_BUFFER);
    let running = shared.track_socket();
    Ok(upgrade.on_upgrade(move |socket| async move {
        // How it ended is the client's affair.
        let _ended = CaseSocket { shared, socket, id, sent, token }.serve_messages(said).await;
        drop((place, running));
    }))
}

impl CaseSocket {
    async fn serve_messages(mut self, mut said: watch::Receiver<u64>) -> Result<(), Disconnected> {
        let mut pings = tokio::time::interval(PING_EVERY);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut heard, mut is_over) = (Instant::now(), false);
        let stop = self.shared.stop.clone();
        loop {
            self.check_token().await?;
            self.send_new().await?;
            if is_over {
                return self.close_with(close_code::NORMAL, "the case has ended").await;
            }
            tokio::select! {
                // The sender goes with the case: one more look, and that is all of it.
                changed = said.changed() => is_over = changed.is_err(),
                message = self.socket.recv() => {
                    let Some(Ok(message)) = message else { return Err(Disconnected) };
                    heard = Instant::now();
                    // Again: it may have waited for long.
                    self.check_token().await?;
                    self.hear_message(message).await?;
                }
                _ = pings.tick() => {
                    if heard.elapsed() > IDLE {
                        return self.close_with(close_code::POLICY, "silent for too long").await;
                    }
                    self.send_frame(Message::Ping(Bytes::new())).await?;
                }
                () = stop.cancelled() => return self.close_with(close_code::AWAY, "the router stops").await,
            }
        }
    }

    /// Ends the socket if the front end has another token by now.
    async fn check_token(&mut self) -> Result<(), Disconnected> {
        if self.shared.current_token() == self.token {
            return Ok(());
        }
        self.close_with(close_code::POLICY, "the front end has another token").await?;
        Err(Disconnected)
    }

    /// Sends the messages that came since.
    async fn send_new(&mut self) -> Result<(), Disconnected> {
        loop {
            let page = match list_messages(&self.shared.routes.0, self.id, self.sent).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(%error, "the messages of a case cannot be read");
                    self.close_with(close_code::ERROR, "the messages cannot be read").await?;
                    return Err(Disconnected);
                }
            };
            if page.messages.is_empty() {
                return Ok(());
            }
            for message in &page.messages {
                self.send_frame(Message::text(json!(message).to_string())).await?;
                self.sent = message.n;
            }
        }
    }

    /// Takes a frame in: `{"text": …}` is a message of the guest.
    async fn hear_message(&mut self, message: Message) -> Result<(), Disconnected> {
        let text = match message {
            Message::Text(text) => text,
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
            Message::Binary(_) => {
                self.close_with(close_code::UNSUPPORTED, "frames are text").await?;
                return Err(Disconnected);
            }
            Message::Close(_) => return Err(Disconnected),
        };
        let asked = ("POST".to_owned(), format!("/cases/{}/messages", self.id));
        let body = Bytes::copy_from_slice(text.as_bytes());
        let answer = self.shared.answer_whole(asked, None, body).await;
        match answer.status {
            202 => Ok(()),
            // The message itself comes back as every other; a refusal would otherwise not be seen.
            _ => self.send_frame(Message::text(answer.body.to_string())).await,
        }
    }

    async fn send_frame(&mut self, frame: Message) -> Result<(), Disconnected> {
        match tokio::time::timeout(SEND_LIMIT, self.socket.send(frame)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Disconnected),
        }
    }

    async fn close_with(&mut self, code: u16, reason: &'static str) -> Result<(), Disconnected> {
        self.send_frame(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await
    }
}
