//! WebSockets: the frames of `control.sock`, over HTTP.

use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{FromRequestParts as _, Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _, future};
use tungstenite::error::ProtocolError;
use writ_policy::principal::Evidence;
use writ_runtime::engine::Surface;
use writ_runtime::methods::SessionsShow;
use writ_types::api::session::SessionName;

use super::ServerState;
use super::guard::{PROTOCOL, Speaker};
use super::reply::Refusal;
use super::route::{call_method, request_evidence, session_id};
use crate::connection::{self, ClientInput, ClientOutput, ClientTerms, Close};
use crate::line::Shape;

/// The most WebSockets that have not proven who is at their other end.
const MAX_UNPROVEN: usize = 64;
/// The factor by which a socket reads more than a frame before it breaks off, so that most clients that send
/// too much get an error frame.
const SLACK: usize = 4;
/// The size of a socket's buffer, in bytes. It stays allocated while the socket is open, and most sockets are
/// idle: with the library's 128 KiB, a thousand of them would hold 128 MiB. A longer frame takes several
/// reads.
const READ_BUFFER: usize = 8 * 1024;
/// The code of a connection that has not proven who it is.
const UNPROVEN_CODE: u16 = 4401;
/// The code of a connection that was silent for too long.
const IDLE_CODE: u16 = 4408;

/// The most connections without proof.
pub(super) const fn max_unproven() -> usize {
    MAX_UNPROVEN
}

/// `GET /ws`.
pub(super) async fn open_socket(State(shared): State<Arc<ServerState>>, request: Request) -> Response {
    upgrade_request(shared, request, None).await
}

/// `GET /ws/{id}`.
pub(super) async fn open_session(
    State(shared): State<Arc<ServerState>>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let session = session_id(&id)?;
    let shown =
        call_method::<SessionsShow>(&shared, request_evidence(&request), &SessionName { session }).await?;
    // A closed session has no frames to come.
    if shown.summary.closed_at.is_some() {
        return Err(Refusal::not_found());
    }
    Ok(upgrade_request(shared, request, Some(session)).await)
}

async fn upgrade_request(
    shared: Arc<ServerState>,
    request: Request,
    session: Option<writ_types::id::SessionId>,
) -> Response {
    let Some(speaker) = request.extensions().get::<Speaker>().cloned() else {
        return Refusal::unproven().into_response();
    };
    let (mut parts, _) = request.into_parts();
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(_) => {
            let text = "this address is for WebSockets";
            let hint = "connect to it as a WebSocket, with the subprotocol 'writ'";
            return Refusal::new(StatusCode::UPGRADE_REQUIRED, "request.no_upgrade", text, hint)
                .into_response();
        }
    };
    // Sockets without proof have few places, so that they cannot use up those of the owner.
    let place = if speaker.evidence == Evidence::None {
        match Arc::clone(&shared.unproven).try_acquire_owned() {
            Ok(place) => Some(place),
            Err(_) => return Refusal::too_many(connection::AUTH_TIMEOUT).into_response(),
        }
    } else {
        None
    };
    let limit = shared.config.max_message_bytes;
    let upgrade = upgrade
        .protocols([PROTOCOL])
        .max_message_size(limit.saturating_mul(SLACK))
        .max_frame_size(limit.saturating_mul(SLACK))
        .read_buffer_size(READ_BUFFER);
    // The server waits for this when it stops: the upgraded connection is no request any longer.
    let serving = shared.sockets.token();
    upgrade.on_upgrade(move |socket| async move {
        serve_socket(&shared, socket, speaker, session, place).await;
        drop(serving);
    })
}

async fn serve_socket(
    shared: &Arc<ServerState>,
    socket: WebSocket,
    speaker: Speaker,
    session: Option<writ_types::id::SessionId>,
    place: Option<tokio::sync::OwnedSemaphorePermit>,
) {
    // Larger than a frame and still bounded: the client gets an error instead of a broken connection.
    let limit = shared.config.max_message_bytes;
    let (sink, stream) = socket.split();
    let heard = stream
        .map(move |message| read_message(message, limit))
        .take_while(|heard| future::ready(heard.is_some()));
    let heard = heard.filter_map(future::ready).boxed();
    let said = sink.with(|said| future::ready(Ok::<_, axum::Error>(write_message(said))));
    let keys = Arc::clone(&shared.keys);
    // A place among those without proof is given back with the proof.
    let place = std::sync::Mutex::new(place);
    let failures = Arc::clone(&shared.failures);
    let address = speaker.address;
    let prove: connection::Prove = Arc::new(move |token: &str| {
        let proof = keys.check_token(token);
        match proof {
            // The place among the unproven is free for the next client at once.
            Some(_) => drop(place.lock().ok().and_then(|mut place| place.take())),
            None => drop(failures.take_token(&address, Instant::now())),
        }
        proof
    });
    let (frames, name) = (Arc::clone(&shared.by_session), speaker.name.clone());
    // Frames count like requests, so a socket is no way around the limit.
    let pace: connection::Pace = Arc::new(move || frames.take_token(&name, Instant::now()));
    let terms = ClientTerms {
        evidence: speaker.evidence,
        prove: Some(prove),
        surface: Surface::Page,
        shape: session.map_or(Shape::Plain, Shape::Session),
        session,
        idle: Some(Duration::from_secs(shared.config.idle_timeout_secs.max(1))),
        pace: Some(pace),
    };
    let counted = shared.count_socket();
    connection::run(heard, said, terms, shared.engine.clone(), shared.stop.clone()).await;
    drop(counted);
}

fn read_message(message: Result<Message, axum::Error>, limit: usize) -> Option<ClientInput> {
    match message {
        Ok(Message::Text(text)) if text.len() > limit => Some(ClientInput::TooLarge(limit)),
        Ok(Message::Text(text)) => Some(ClientInput::Frame(text.as_str().to_owned())),
        Ok(Message::Binary(_)) => Some(ClientInput::NoText),
        Ok(Message::Ping(_) | Message::Pong(_)) => Some(ClientInput::Alive),
        Ok(Message::Close(_)) => None,
        Err(error) => input_of_error(&error, limit),
    }
}

/// Translates an error of the socket; none: the client has disconnected.
fn input_of_error(error: &axum::Error, limit: usize) -> Option<ClientInput> {
    use tungstenite::Error;
    match error.source()?.downcast_ref::<Error>()? {
        // The library has read too much; which frame it was is not known any longer.
        Error::Capacity(_) => Some(ClientInput::TooLarge(limit)),
        Error::Utf8(_) => Some(ClientInput::NotUtf8),
        // It has broken off.
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        Error::Protocol(_) => Some(ClientInput::Malformed),
        Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Io(_)
        | Error::Tls(_)
        | Error::WriteBufferFull(_)
        | Error::AttackAttempt
        | Error::Url(_)
        | Error::Http(_)
        | Error::HttpFormat(_) => None,
    }
}

fn write_message(said: ClientOutput) -> Message {
    match said {
        ClientOutput::Frame(text) => Message::Text(text.into()),
        ClientOutput::Ping => Message::Ping(Bytes::new()),
        ClientOutput::Close(why) => {
            let (code, reason) = match why {
                Close::Left => (close_code::NORMAL, "done"),
                Close::Stopping => (close_code::AWAY, "the engine stops"),
                Close::TooLarge => (close_code::SIZE, "too large"),
                Close::NoText => (close_code::UNSUPPORTED, "not text"),
                Close::NotUtf8 => (close_code::INVALID, "not UTF-8"),
                Close::Malformed => (close_code::PROTOCOL, "malformed"),
                Close::Unproven => (UNPROVEN_CODE, "not proven"),
                Close::Idle => (IDLE_CODE, "idle"),
            };
            Message::Close(Some(CloseFrame { code, reason: reason.into() }))
        }
    }
}
