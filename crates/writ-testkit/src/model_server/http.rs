//! The HTTP side: routes, recording, faults, shutdown.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use writ_types::digest::Digest;

use super::parsed::{ParsedRequest, Recorded, WireFormat};
use super::reply::{Fault, Reply, Script};
use super::{anthropic, openai};

/// The most requests that are kept; older ones are forgotten first.
const MAX_RECORDED: usize = 4096;

/// The largest request body: Anthropic's own limit.
const MAX_BODY: usize = 32 * 1024 * 1024;

/// How a server behaves towards every request.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// The key that requests must carry; `None`: any key passes, and OpenAI's format needs none.
    pub key: Option<String>,
    /// The models that exist; empty: every model does.
    pub models: Vec<String>,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

struct Shared {
    options: ServerOptions,
    script: Mutex<Box<dyn Script>>,
    recorded: Mutex<Vec<Recorded>>,
    waiting: AtomicUsize,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("models", &self.options.models).finish_non_exhaustive()
    }
}

/// A refusal, as the providers word it.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    pub(crate) code: Option<&'static str>,
}

impl Refusal {
    /// A request that is malformed.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self { status: 400, kind: "invalid_request_error", message: message.into(), code: None }
    }

    /// A request without a valid key.
    pub(crate) const fn unauthorized(kind: &'static str, message: String) -> Self {
        Self { status: 401, kind, message, code: Some("invalid_api_key") }
    }
}

impl ModelServer {
    /// Starts a server on a free loopback port.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn start(script: impl Script) -> io::Result<Self> {
        Self::start_with(ServerOptions::default(), script).await
    }

    /// Starts a server with options.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn start_with(options: ServerOptions, script: impl Script) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let script: Box<dyn Script> = Box::new(script);
        let shared = Arc::new(Shared {
            options,
            script: Mutex::new(script),
            recorded: Mutex::default(),
            waiting: AtomicUsize::new(0),
        });
        let router = Router::new()
            .route("/v1/messages", post(messages))
            .route("/v1/chat/completions", post(completions))
            .route("/v1/models", get(models))
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .with_state(Arc::clone(&shared));
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(async move {
            let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
                // Either way it is time to go: the sender spoke or is gone.
                drop(stopped.await);
            });
            if serving.await.is_err() {
                // The listener is gone; clients see that themselves.
            }
        });
        Ok(Self { address, shared, stop: Some(stop), running })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to write as `base_url`, for both formats.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1/", self.address)
    }

    /// Every request so far, oldest first.
    pub fn recorded(&self) -> Vec<Recorded> {
        self.shared.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests wait at a [`Gate`](super::Gate) now.
    pub fn connections_waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::SeqCst)
    }

    /// Stops and waits until every connection is closed.
    pub async fn stop(mut self) {
        self.stop = None;
        if (&mut self.running).await.is_err() {
            // It was stopped already.
        }
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn messages(state: State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    handle(&state, WireFormat::Anthropic, &uri, &headers, &body).await
}

async fn completions(state: State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    handle(&state, WireFormat::OpenAi, &uri, &headers, &body).await
}

/// The models that exist, in the shape that both providers share (`data[].id`).
async fn models(State(shared): State<Arc<Shared>>) -> Response {
    let data: Vec<Value> = shared
        .options
        .models
        .iter()
        .map(|id| json!({"id": id, "type": "model", "object": "model", "created": 1_700_000_000, "owned_by": "script"}))
        .collect();
    axum::Json(json!({"object": "list", "data": data, "has_more": false})).into_response()
}

async fn handle(
    shared: &Shared,
    format: WireFormat,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    let parsed = check(shared, format, headers, body);
    let response = match &parsed {
        Err(refusal) => refuse(format, refusal, None),
        Ok(request) => {
            let reply = shared.script.lock().unwrap_or_else(PoisonError::into_inner).reply(request);
            if let Some(Fault::SlowFirstByte(gate)) = &reply.fault {
                shared.waiting.fetch_add(1, Ordering::SeqCst);
                gate.passed().await;
                shared.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            answer(request, &reply)
        }
    };
    shared.record(uri, headers, body, response.status().as_u16());
    response
}

fn check(
    shared: &Shared,
    format: WireFormat,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<ParsedRequest, Refusal> {
    let key = shared.options.key.as_deref();
    let parsed = match format {
        WireFormat::Anthropic => anthropic::parse::parse(headers, body, key),
        WireFormat::OpenAi => openai::parse::parse(headers, body, key),
    }?;
    let models = &shared.options.models;
    if !models.is_empty() && !models.contains(&parsed.model) {
        let message = format!("model: {}", parsed.model);
        return Err(Refusal { status: 404, kind: "not_found_error", message, code: Some("model_not_found") });
    }
    Ok(parsed)
}

impl Shared {
    fn record(&self, uri: &Uri, headers: &HeaderMap, body: &[u8], status: u16) {
        let mut key_digest = None;
        let mut kept = std::collections::BTreeMap::new();
        for (name, value) in headers {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            let secret = matches!(name.as_str(), "authorization" | "x-api-key");
            if secret {
                let key = value.strip_prefix("Bearer ").unwrap_or(&value);
                key_digest = Some(Digest::of(key.as_bytes()).to_string());
            }
            kept.insert(name.as_str().to_owned(), if secret { "(removed)".to_owned() } else { value });
        }
        let body = serde_json::from_slice(body).unwrap_or(Value::Null);
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.len() >= MAX_RECORDED {
            recorded.remove(0);
        }
        recorded.push(Recorded { path: uri.path().to_owned(), headers: kept, key_digest, body, status });
    }
}

/// The provider's error JSON.
fn error_body(format: WireFormat, refusal: &Refusal) -> Value {
    match format {
        WireFormat::Anthropic => json!({
            "type": "error",
            "error": {"type": refusal.kind, "message": refusal.message},
            "request_id": "req_scripted",
        }),
        WireFormat::OpenAi => json!({
            "error": {"message": refusal.message, "type": refusal.kind, "param": null, "code": refusal.code},
        }),
    }
}

fn refuse(format: WireFormat, refusal: &Refusal, retry_after: Option<&str>) -> Response {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, axum::Json(error_body(format, refusal))).into_response();
    if let Some(value) = retry_after.and_then(|value| value.parse().ok()) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}

/// What the providers call a status.
fn status_refusal(format: WireFormat, status: u16) -> Refusal {
    let anthropic = format == WireFormat::Anthropic;
    let (kind, message) = match status {
        401 if anthropic => ("authentication_error", "invalid x-api-key"),
        403 => ("permission_error", "not allowed"),
        413 => ("request_too_large", "request too large"),
        429 if anthropic => ("rate_limit_error", "rate limit exceeded"),
        429 => ("rate_limit_exceeded", "rate limit reached"),
        529 => ("overloaded_error", "overloaded"),
        500.. if anthropic => ("api_error", "internal server error"),
        500.. => ("server_error", "the server had an error"),
        _ => ("invalid_request_error", "the request was refused"),
    };
    Refusal { status, kind, message: message.to_owned(), code: None }
}

fn answer(request: &ParsedRequest, reply: &Reply) -> Response {
    let format = request.format;
    match &reply.fault {
        Some(Fault::Status { status, retry_after }) => {
            return refuse(format, &status_refusal(format, *status), retry_after.as_deref());
        }
        Some(Fault::ContextTooLong) => {
            let refusal = match format {
                WireFormat::Anthropic => {
                    Refusal::invalid("prompt is too long: 208310 tokens > 200000 maximum")
                }
                WireFormat::OpenAi => Refusal {
                    code: Some("context_length_exceeded"),
                    ..Refusal::invalid("This model's maximum context length is 128000 tokens.")
                },
            };
            return refuse(format, &refusal, None);
        }
        Some(Fault::Redirect(url)) => {
            return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, url.clone())]).into_response();
        }
        Some(Fault::EndlessErrorBody) => {
            let body = Body::from_stream(stream::repeat_with(|| Ok::<_, Infallible>(vec![b'x'; 8192])));
            return (StatusCode::INTERNAL_SERVER_ERROR, body).into_response();
        }
        Some(
            Fault::SlowFirstByte(_)
            | Fault::CutAfter(_)
            | Fault::EndAfter(_)
            | Fault::GarbageAfter(_)
            | Fault::InvalidUtf8After(_)
            | Fault::ErrorEventAfter(_)
            | Fault::SilenceAfter(_)
            | Fault::MalformedCallAfter(_)
            | Fault::RawAfter(..)
            | Fault::EndlessText
            | Fault::EndlessFrame,
        )
        | None => {}
    }
    if request.stream {
        let body = Body::from_stream(faulty(request, reply));
        (
            [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")],
            body,
        )
            .into_response()
    } else {
        let whole = match format {
            WireFormat::Anthropic => anthropic::render::whole(request, reply),
            WireFormat::OpenAi => openai::render::whole(request, reply),
        };
        axum::Json(whole).into_response()
    }
}

type Frame = io::Result<Bytes>;

/// The frames of an answer, with what goes wrong among them.
fn faulty(request: &ParsedRequest, reply: &Reply) -> stream::BoxStream<'static, Frame> {
    let anthropic = request.format == WireFormat::Anthropic;
    let frames = match request.format {
        WireFormat::Anthropic => anthropic::render::frames(request, reply),
        WireFormat::OpenAi => openai::render::frames(request, reply),
    };
    let first = |count: usize| stream::iter(frames.clone().into_iter().take(count).map(frame));
    let rest = |count: usize| stream::iter(frames.clone().into_iter().skip(count).map(frame));
    let one = |bytes: &[u8]| stream::iter([Ok::<_, io::Error>(Bytes::copy_from_slice(bytes))]);
    match &reply.fault {
        Some(Fault::CutAfter(count)) => {
            first(*count).chain(stream::iter([Err(io::ErrorKind::ConnectionReset.into())])).boxed()
        }
        Some(Fault::EndAfter(count)) => first(*count).boxed(),
        Some(Fault::GarbageAfter(count)) => {
            let event = if anthropic { "event: content_block_delta\n" } else { "" };
            first(*count).chain(one(format!("{event}data: {{\"ty\u{1}pe: garbage\n\n").as_bytes())).boxed()
        }
        Some(Fault::InvalidUtf8After(count)) => {
            first(*count).chain(one(b"data: {\"text\": \"\xc3\x28\"}\n\n")).boxed()
        }
        Some(Fault::ErrorEventAfter(count)) => {
            let error = error_body(request.format, &status_refusal(request.format, 529));
            let event = if anthropic { "event: error\n" } else { "" };
            first(*count).chain(one(format!("{event}data: {error}\n\n").as_bytes())).boxed()
        }
        Some(Fault::SilenceAfter(count)) => first(*count).chain(stream::pending()).boxed(),
        Some(Fault::MalformedCallAfter(count)) => {
            let call = if anthropic {
                anthropic::render::malformed_call()
            } else {
                openai::render::malformed_call()
            };
            first(*count).chain(one(call.as_bytes())).chain(rest(*count)).boxed()
        }
        Some(Fault::RawAfter(count, raw)) => {
            first(*count).chain(one(raw.as_bytes())).chain(rest(*count)).boxed()
        }
        Some(Fault::EndlessText) => {
            let more = if anthropic { anthropic::render::more_text() } else { openai::render::more_text() };
            let more = Bytes::from(more);
            // Everything before the text ends, then more of it.
            let start = if anthropic { 3 } else { 2 };
            first(start).chain(stream::repeat_with(move || Ok(more.clone()))).boxed()
        }
        Some(Fault::EndlessFrame) => {
            let more = Bytes::from(vec![b'x'; 8192]);
            one(b"data: {\"text\": \"").chain(stream::repeat_with(move || Ok(more.clone()))).boxed()
        }
        Some(
            Fault::Status { .. }
            | Fault::ContextTooLong
            | Fault::Redirect(_)
            | Fault::SlowFirstByte(_)
            | Fault::EndlessErrorBody,
        )
        | None => stream::iter(frames.into_iter().map(frame)).boxed(),
    }
}

fn frame(text: String) -> Frame {
    Ok(Bytes::from(text))
}

/// Cuts a text into at most `pieces` pieces at character boundaries: how arguments are streamed.
pub(crate) fn pieces(text: &str, pieces: usize) -> impl Iterator<Item = &str> {
    let size = text.len().div_ceil(pieces.max(1)).max(1);
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = size.min(rest.len());
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}
