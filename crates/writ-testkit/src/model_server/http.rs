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
use axum::routing::{MethodRouter, get, post};
use futures::FutureExt as _;
use futures::stream::{self, StreamExt};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use writ_types::digest::Digest;

use super::gemini;
use super::parsed::{ParsedRequest, RecordedRequest, ServedFormat};
use super::reply::{Reply, ReplyFault, Script};
use super::wire::IncomingRequest;

/// The most requests in the record, unless fewer are asked for; older ones are dropped first.
const MAX_RECORDED: usize = 4096;

/// The largest request body: Anthropic's own limit.
const MAX_BODY: usize = 32 * 1024 * 1024;

/// The behaviour of a server towards every request.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// The key that requests must carry; `None`: any key passes, and OpenAI's format needs none.
    pub key: Option<String>,
    /// The models that exist; empty: every model does.
    pub models: Vec<String>,
    /// The size of the record, in requests, the newest; `None`: 4096.
    pub recorded: Option<usize>,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<ModelServerState>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

struct ModelServerState {
    options: ServerOptions,
    script: Mutex<Box<dyn Script>>,
    recorded: Mutex<Vec<RecordedRequest>>,
    waiting: AtomicUsize,
}

impl std::fmt::Debug for ModelServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelServerState").field("models", &self.options.models).finish_non_exhaustive()
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
        let shared = Arc::new(ModelServerState {
            options,
            script: Mutex::new(script),
            recorded: Mutex::default(),
            waiting: AtomicUsize::new(0),
        });
        let router = Router::new()
            .route("/v1/messages", answering(ServedFormat::Anthropic))
            .route("/v1/chat/completions", answering(ServedFormat::OpenAi))
            .route("/v1/responses", answering(ServedFormat::Responses))
            .route("/api/v1/chat/completions", answering(ServedFormat::OpenRouter))
            .route(&format!("{}{{call}}", gemini::parse::MODELS), answering(ServedFormat::Gemini))
            .route("/api/chat", answering(ServedFormat::Ollama))
            .route("/v1/models", listing(ServedFormat::OpenAi))
            .route("/api/v1/models", listing(ServedFormat::OpenRouter))
            .route("/v1beta/models", listing(ServedFormat::Gemini))
            .route("/api/tags", listing(ServedFormat::Ollama))
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .with_state(Arc::clone(&shared));
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(async move {
            let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
                // Either way it ends: the sender spoke or was dropped.
                drop(stopped.await);
            });
            if serving.await.is_err() {
                // The listener is closed; clients notice that themselves.
            }
        });
        Ok(Self { address, shared, stop: Some(stop), running })
    }

    /// Returns its address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the `base_url` for Anthropic's formats and both of OpenAI's.
    pub fn base_url(&self) -> String {
        self.base_url_for(ServedFormat::OpenAi)
    }

    /// Returns the `base_url` for a format.
    pub fn base_url_for(&self, format: ServedFormat) -> String {
        format!("http://{}{}", self.address, format.base_path())
    }

    /// Every request so far, oldest first.
    pub fn recorded_requests(&self) -> Vec<RecordedRequest> {
        self.shared.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of requests that wait at a [`ReplyGate`](super::ReplyGate) now.
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

/// The route on which a format is answered.
fn answering(format: ServedFormat) -> MethodRouter<Arc<ModelServerState>> {
    post(
        async move |State(shared): State<Arc<ModelServerState>>,
                    uri: Uri,
                    headers: HeaderMap,
                    body: Bytes| {
            let sent = IncomingRequest { uri: &uri, headers: &headers, body: &body };
            handle(&shared, format, &sent).await
        },
    )
}

/// The route on which a format's models are listed.
fn listing(format: ServedFormat) -> MethodRouter<Arc<ModelServerState>> {
    get(async move |State(shared): State<Arc<ModelServerState>>| {
        axum::Json(format.models(&shared.options.models))
    })
}

async fn handle(shared: &ModelServerState, format: ServedFormat, sent: &IncomingRequest<'_>) -> Response {
    let parsed = check(shared, format, sent);
    let response = match &parsed {
        Err(refusal) => refuse(format, refusal, None),
        Ok(request) => {
            let reply = shared.script.lock().unwrap_or_else(PoisonError::into_inner).reply(request);
            if let Some(ReplyFault::SlowFirstByte(gate)) = &reply.fault {
                shared.waiting.fetch_add(1, Ordering::SeqCst);
                gate.wait_until_open().await;
                shared.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            answer(request, &reply)
        }
    };
    shared.record(sent, response.status().as_u16());
    response
}

fn check(
    shared: &ModelServerState,
    format: ServedFormat,
    sent: &IncomingRequest<'_>,
) -> Result<ParsedRequest, Refusal> {
    let parsed = format.parse(sent, shared.options.key.as_deref())?;
    let models = &shared.options.models;
    if !models.is_empty() && !models.contains(&parsed.model) {
        return Err(format.unknown_model(&parsed.model));
    }
    Ok(parsed)
}

impl ModelServerState {
    fn record(&self, sent: &IncomingRequest<'_>, status: u16) {
        let most = self.options.recorded.unwrap_or(MAX_RECORDED);
        if most == 0 {
            return;
        }
        let mut key_digest = None;
        let mut kept = std::collections::BTreeMap::new();
        for (name, value) in sent.headers {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            let secret = matches!(name.as_str(), "authorization" | "x-api-key" | "x-goog-api-key");
            if secret {
                let key = value.strip_prefix("Bearer ").unwrap_or(&value);
                key_digest = Some(Digest::of_bytes(key.as_bytes()).to_string());
            }
            kept.insert(name.as_str().to_owned(), if secret { "(removed)".to_owned() } else { value });
        }
        let body = serde_json::from_slice(sent.body).unwrap_or(Value::Null);
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.len() >= most {
            recorded.remove(0);
        }
        let path = sent.uri.path().to_owned();
        recorded.push(RecordedRequest { path, headers: kept, key_digest, body, status });
    }
}

fn refuse(format: ServedFormat, refusal: &Refusal, retry_after: Option<&str>) -> Response {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, axum::Json(format.error_body(refusal, retry_after))).into_response();
    // Gemini says it in the body alone.
    let in_header = retry_after.filter(|_| format != ServedFormat::Gemini);
    if let Some(value) = in_header.and_then(|value| value.parse().ok()) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}

fn answer(request: &ParsedRequest, reply: &Reply) -> Response {
    let format = request.format;
    match &reply.fault {
        Some(ReplyFault::Status { status, retry_after }) => {
            return refuse(format, &format.status_refusal(*status), retry_after.as_deref());
        }
        Some(ReplyFault::Response { status, headers, body }) => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut response =
                (status, [(header::CONTENT_TYPE, "application/json")], body.clone()).into_response();
            for (name, value) in headers {
                if let Ok(value) = value.parse() {
                    response.headers_mut().insert(*name, value);
                }
            }
            return response;
        }
        Some(ReplyFault::ContextTooLong) => {
            return refuse(format, &format.context_too_long(128_000, 130_000), None);
        }
        Some(ReplyFault::ContextOver { window, sent }) => {
            return refuse(format, &format.context_too_long(*window, *sent), None);
        }
        Some(ReplyFault::Redirect(url)) => {
            return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, url.clone())]).into_response();
        }
        Some(ReplyFault::EndlessErrorBody) => {
            let body = Body::from_stream(stream::repeat_with(|| Ok::<_, Infallible>(vec![b'x'; 8192])));
            return (StatusCode::INTERNAL_SERVER_ERROR, body).into_response();
        }
        Some(
            ReplyFault::SlowFirstByte(_)
            | ReplyFault::CutAfter(_)
            | ReplyFault::EndAfter(_)
            | ReplyFault::GarbageAfter(_)
            | ReplyFault::InvalidUtf8After(_)
            | ReplyFault::ErrorEventAfter(_)
            | ReplyFault::SilenceAfter(_)
            | ReplyFault::MalformedCallAfter(_)
            | ReplyFault::RawAfter(..)
            | ReplyFault::EndlessText
            | ReplyFault::EndlessFrame { .. },
        )
        | None => {}
    }
    if request.stream {
        let head = [(header::CONTENT_TYPE, format.stream_type()), (header::CACHE_CONTROL, "no-cache")];
        let frames = faulty(request, reply);
        let frames = match reply.pace {
            Some(pace) => frames.then(move |frame| tokio::time::sleep(pace).map(|()| frame)).boxed(),
            None => frames,
        };
        (head, Body::from_stream(frames)).into_response()
    } else {
        axum::Json(format.whole(request, reply)).into_response()
    }
}

type Frame = io::Result<Bytes>;

/// The frames of an answer, with what goes wrong among them.
fn faulty(request: &ParsedRequest, reply: &Reply) -> stream::BoxStream<'static, Frame> {
    let format = request.format;
    let frames = format.frames(request, reply);
    let first = |count: usize| stream::iter(frames.clone().into_iter().take(count).map(frame));
    let rest = |count: usize| stream::iter(frames.clone().into_iter().skip(count).map(frame));
    let one = |bytes: &[u8]| stream::iter([Ok::<_, io::Error>(Bytes::copy_from_slice(bytes))]);
    let around = |data: &[u8]| {
        let (before, after) = format.around("content_block_delta");
        [before.as_bytes(), data, after.as_bytes()].concat()
    };
    match &reply.fault {
        Some(ReplyFault::CutAfter(count)) => {
            first(*count).chain(stream::iter([Err(io::ErrorKind::ConnectionReset.into())])).boxed()
        }
        Some(ReplyFault::EndAfter(count)) => first(*count).boxed(),
        Some(ReplyFault::GarbageAfter(count)) => {
            first(*count).chain(one(&around(b"{\"ty\x01pe: garbage"))).boxed()
        }
        Some(ReplyFault::InvalidUtf8After(count)) => {
            first(*count).chain(one(&around(b"{\"text\": \"\xc3\x28\"}"))).boxed()
        }
        Some(ReplyFault::ErrorEventAfter(count)) => {
            first(*count).chain(one(format.error_frame().as_bytes())).boxed()
        }
        Some(ReplyFault::SilenceAfter(count)) => first(*count).chain(stream::pending()).boxed(),
        Some(ReplyFault::MalformedCallAfter(count)) => {
            first(*count).chain(one(format.malformed_call().as_bytes())).chain(rest(*count)).boxed()
        }
        Some(ReplyFault::RawAfter(count, raw)) => {
            first(*count).chain(one(raw.as_bytes())).chain(rest(*count)).boxed()
        }
        Some(ReplyFault::EndlessText) => {
            let more = Bytes::from(format.more_text());
            // Everything before the text ends, then more of it.
            let start = format.frames_before_text();
            first(start).chain(stream::repeat_with(move || Ok(more.clone()))).boxed()
        }
        Some(ReplyFault::EndlessFrame { chunk }) => {
            let more = Bytes::from(vec![b'x'; *chunk]);
            let (before, _) = format.around("message");
            one(format!("{before}{{\"text\": \"").as_bytes())
                .chain(stream::repeat_with(move || Ok(more.clone())))
                .boxed()
        }
        Some(
            ReplyFault::Status { .. }
            | ReplyFault::Response { .. }
            | ReplyFault::ContextTooLong
            | ReplyFault::ContextOver { .. }
            | ReplyFault::Redirect(_)
            | ReplyFault::SlowFirstByte(_)
            | ReplyFault::EndlessErrorBody,
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
