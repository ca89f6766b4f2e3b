//! The server: the page, WebSockets and the API, on one port.
//!
//! What a request may do is decided in `guard` before anything else looks at it; what it asks for goes to the
//! engine with the evidence that was found there.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use secrecy::SecretString;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use writ_runtime::clock::{Clock as _, SystemClock};
use writ_runtime::engine::Engine;
use writ_runtime::metrics::MetricsFormat;
use writ_types::credential::Reference;
use writ_types::error::Report;
use writ_types::unit::Timestamp;

use accept::{Acceptor, Place, Waiting};
use base::BasePath;
use config::{HttpError, ServerConfig, may_serve};
use guard::{FAILURES_BURST, FAILURES_PER_SEC, Hosts, Speaker};
use keys::Keys;
use rate::Limiter;
use reply::Refusal;

pub(crate) use reply::SHOW_PROOF;

pub mod config;

pub mod link;

pub mod keys;

mod accept;

mod guard;

mod rate;

mod reply;

mod page;

mod socket;

mod api;

mod base;

mod passkeys;

mod openai;

mod openapi;

mod schema;

/// Where the port of the running server stands, below the runtime folder.
pub const PORT_FILE: &str = "server.port";
/// What to do where sessions of the page cannot be kept.
const RUNTIME_FOLDER: &str = "free some space, and check owner and mode of the home's folder 'runtime'";
/// How much more than one session one address may ask for: it may have several.
const SESSIONS_PER_ADDRESS: u32 = 8;

/// Takes secrets in.
pub trait SecretIntake: Send + Sync {
    /// Stores a secret.
    ///
    /// # Errors
    ///
    /// If it cannot be stored.
    fn store(&self, name: &Reference, value: SecretString) -> Result<(), Report>;
}

/// What the server is given.
#[derive(Default)]
pub struct Parts {
    /// Settings.
    pub config: ServerConfig,
    /// The home's runtime folder.
    pub runtime: PathBuf,
    /// The token of `auth_token`.
    pub token: Option<SecretString>,
    /// Takes secrets in; without it, `/secrets` is not there.
    pub secrets: Option<Arc<dyn SecretIntake>>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The server, ready to accept.
#[derive(Debug)]
pub struct Http {
    listeners: Vec<TcpListener>,
    address: SocketAddr,
    keys: Keys,
    parts: Parts,
}

/// When the server ends.
#[derive(Clone, Debug)]
pub struct Stops {
    /// No new connections and requests.
    pub closing: CancellationToken,
    /// No connections.
    pub stop: CancellationToken,
}

/// What is known of the other end of a connection.
#[derive(Clone, Debug)]
struct Peer {
    address: SocketAddr,
    place: Place,
}

/// What all requests share.
struct Shared {
    engine: Engine,
    config: ServerConfig,
    runtime: PathBuf,
    keys: Arc<Keys>,
    hosts: Hosts,
    secrets: Option<Arc<dyn SecretIntake>>,
    by_address: Limiter<IpAddr>,
    by_session: Arc<Limiter<String>>,
    failures: Arc<Limiter<IpAddr>>,
    /// Places for WebSockets without proof.
    unproven: Arc<Semaphore>,
    sockets: TaskTracker,
    /// WebSockets that are served.
    clients: Arc<AtomicU64>,
    stop: CancellationToken,
}

impl Http {
    /// Checks the settings, listens, and reads the secrets that count.
    ///
    /// # Errors
    ///
    /// If others could reach the address and no token is configured, if it is in use, or if a file of the runtime
    /// folder cannot be used.
    pub fn bind(parts: Parts) -> Result<Self, HttpError> {
        let (host, port) = (parts.config.host, parts.config.port);
        may_serve(host, parts.token.is_some())?;
        parts.config.check_base_path()?;
        let keys = Keys::open(&parts.runtime, parts.token.as_ref())?;
        let first = listen(SocketAddr::new(host, port))?;
        let address = first
            .local_addr()
            .map_err(|source| HttpError::Listen { address: SocketAddr::new(host, port), source })?;
        let mut listeners = vec![first];
        // `localhost` may mean either: who holds the other one could take the page's place.
        let other = match host {
            IpAddr::V4(Ipv4Addr::LOCALHOST) => Some(IpAddr::V6(Ipv6Addr::LOCALHOST)),
            IpAddr::V6(Ipv6Addr::LOCALHOST) => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        };
        if let Some(other) = other {
            match listen(SocketAddr::new(other, address.port())) {
                Ok(listener) => listeners.push(listener),
                Err(error @ HttpError::InUse(_)) => return Err(error),
                Err(error) => tracing::info!(%error, "only one of the loopback addresses is served"),
            }
        }
        let port_file = parts.runtime.join(PORT_FILE);
        keys::write_private(&port_file, &address.port().to_string())
            .map_err(|source| HttpError::File { path: port_file, source })?;
        Ok(Self { listeners, address, keys, parts })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until told to stop; then waits until every connection has ended.
    pub async fn serve(self, engine: Engine, stops: Stops) {
        let Self { listeners, address, keys, parts } = self;
        let Parts { config, runtime, token: _, secrets } = parts;
        let (rate, burst) = (config.requests_per_sec, config.burst);
        let many = |number: u32| number.saturating_mul(SESSIONS_PER_ADDRESS);
        let grace = Duration::from_secs(config.graceful_shutdown_secs);
        let port_file = runtime.join(PORT_FILE);
        let shared = Arc::new(Shared {
            engine,
            hosts: Hosts::new(&config, address.port()),
            config,
            runtime,
            keys: Arc::new(keys),
            secrets,
            by_address: Limiter::new(many(rate), many(burst)),
            by_session: Arc::new(Limiter::new(rate, burst)),
            failures: Arc::new(Limiter::new(FAILURES_PER_SEC, FAILURES_BURST)),
            unproven: Arc::new(Semaphore::new(socket::max_unproven())),
            sockets: TaskTracker::new(),
            clients: Arc::new(AtomicU64::new(0)),
            stop: stops.stop.clone(),
        });
        let acceptor = Acceptor {
            router: router(&shared),
            room: Arc::new(Semaphore::new(accept::MAX_CONNECTIONS)),
            waiting: Arc::new(Waiting::default()),
            connections: TaskTracker::new(),
            closing: stops.closing.clone(),
        };
        let (connections, sockets) = (acceptor.connections.clone(), shared.sockets.clone());
        drop(shared);
        let accepting: Vec<_> =
            listeners.into_iter().map(|listener| tokio::spawn(acceptor.clone().run(listener))).collect();
        drop(acceptor);
        stops.stop.cancelled().await;
        stops.closing.cancel();
        for one in accepting {
            let _ended = one.await;
        }
        let _ = std::fs::remove_file(port_file);
        connections.close();
        sockets.close();
        let ended = async { tokio::join!(connections.wait(), sockets.wait()) };
        if tokio::time::timeout(grace, ended).await.is_err() {
            tracing::warn!("some requests did not end in time");
        }
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, HttpError> {
    let failed = |source: io::Error| {
        if source.kind() == io::ErrorKind::AddrInUse {
            HttpError::InUse(address)
        } else {
            HttpError::Listen { address, source }
        }
    };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    TcpListener::from_std(listener).map_err(failed)
}

/// The port of the server that runs in this home, as it has left it.
pub fn running_port(runtime: &Path) -> Option<u16> {
    std::fs::read_to_string(runtime.join(PORT_FILE)).ok()?.trim().parse().ok()
}

fn router(shared: &Arc<Shared>) -> Router {
    let sessions = get(api::session).delete(api::close_session);
    // Whoever only looks, such as a preview of a link, does not use it up: `get` alone would answer HEAD, too.
    let link = get(use_link).head(not_get).fallback(not_get);
    let api = Router::new()
        .route("/state", get(api::state))
        .route("/sessions", get(api::sessions).post(api::open_session))
        .route("/sessions/{id}", sessions.clone())
        .route("/sessions/{id}/messages", post(api::message))
        .route("/sessions/{id}/diff", get(api::diff))
        .route("/sessions/{id}/apply", post(api::apply))
        .route("/sessions/{id}/files/{file}", get(api::sent_file))
        .route("/approvals", get(api::approvals))
        .route("/approvals/{id}", get(api::approval).post(api::decide).delete(api::revoke))
        .route("/approvals/in-force", get(api::in_force))
        .route("/approvals/review", get(api::review))
        .route("/approvals/{id}/rests-on", get(api::approval_rests_on))
        .route("/undo", get(api::undos))
        .route("/undo/{attempt}", post(api::undo))
        .route("/approvals/{id}/challenge", post(passkeys::challenge))
        .route("/passkeys", get(passkeys::list))
        .route("/passkeys/begin", post(passkeys::begin))
        .route("/passkeys/finish", post(passkeys::finish))
        .route("/ledger", get(api::ledger))
        .route("/ledger/{seq}/proof", get(api::proof))
        .route("/ledger/{seq}/rests-on", get(api::rests_on))
        .route("/logout", post(logout));
    let served = Router::new()
        .nest("/api/v1", api)
        .route("/ws", get(socket::open))
        .route("/ws/{id}", get(socket::open_session))
        .route("/sessions", get(api::sessions).post(api::open_plain_session))
        .route("/sessions/{id}", sessions)
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{id}", get(openai::model))
        .route("/v1/chat/completions", post(openai::chat::completions))
        .route("/v1/responses", post(openai::responses::create))
        .route("/secrets/{ref}", post(api::secret))
        .route("/openapi.json", get(openapi::document))
        .route("/schemas/{name}", get(schema::schema))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/link/{code}", link)
        .method_not_allowed_fallback(wrong_method)
        .fallback(elsewhere)
        .layer(middleware::from_fn_with_state(Arc::clone(shared), guard::guard))
        .with_state(Arc::clone(shared));
    // A path must have its final form before it is routed.
    let based = middleware::from_fn_with_state(Arc::clone(shared), base::strip);
    Router::new().fallback_service(served).layer(based)
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    reply::ok(&json!({ "status": "ok", "connections": shared.clients.load(Ordering::Relaxed) }))
}

/// In the format that is asked for; without a wish, in the one that everybody reads.
async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let accepted =
        headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok()).unwrap_or_default();
    let (kind, format) = if accepted.contains("application/openmetrics-text") {
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", MetricsFormat::OpenMetrics)
    } else {
        ("text/plain; version=0.0.4; charset=utf-8", MetricsFormat::Prometheus)
    };
    ([(header::CONTENT_TYPE, kind)], shared.engine.metrics(format)).into_response()
}

/// `GET /link/{code}`: begins a session of the page, once.
async fn use_link(
    State(shared): State<Arc<Shared>>,
    axum::extract::Path(code): axum::extract::Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let speaker = request.extensions().get::<Speaker>().cloned().ok_or_else(Refusal::unknown)?;
    let now = shared.now();
    if !link::redeem(&shared.runtime, &code, now) {
        shared.failures.take(&speaker.address, std::time::Instant::now()).map_err(Refusal::later)?;
        return Ok(page::used_link());
    }
    let secret = shared.keys.begin_session(now).map_err(|error| {
        tracing::error!(%error, "a session of the page cannot be stored");
        let (text, hint) = ("the session cannot be stored", RUNTIME_FOLDER);
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "link.failed", text, hint)
    })?;
    let age = keys::PAGE_SESSION_TTL.as_secs();
    let at = cookie_path(&request);
    let secure = if speaker.tls { "; Secure" } else { "" };
    let cookie =
        format!("{}={secret}; HttpOnly; SameSite=Strict; Path={at}; Max-Age={age}{secure}", guard::COOKIE);
    let cookie = HeaderValue::from_str(&cookie).map_err(|_| Refusal::nothing())?;
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, "../")]).into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// `POST /api/v1/logout`: ends the session of the page that asks.
async fn logout(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    if let Some(secret) = guard::cookie(request.headers()) {
        shared.keys.end_session(secret).map_err(|error| {
            tracing::error!(%error, "the end of a session cannot be stored");
            let (text, hint) = ("the session cannot be ended", RUNTIME_FOLDER);
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "logout.failed", text, hint)
        })?;
    }
    let at = cookie_path(&request);
    let gone = format!("{}=; HttpOnly; SameSite=Strict; Path={at}; Max-Age=0", guard::COOKIE);
    let cookie = HeaderValue::from_str(&gone).map_err(|_| Refusal::nothing())?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

/// The path of the page's cookie: that below which a proxy shows this server, where it is known.
fn cookie_path(request: &Request) -> String {
    request.extensions().get::<BasePath>().cloned().unwrap_or_default().cookie_path()
}

async fn not_get() -> Response {
    ([(header::ALLOW, "GET")], wrong_method().await).into_response()
}

async fn wrong_method() -> Refusal {
    let (text, hint) = ("not with this method", "/openapi.json names the methods of each address");
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "request.method", text, hint)
}

/// A file of the page, or nothing.
async fn elsewhere(request: Request) -> Response {
    let (path, headers) = (request.uri().path(), request.headers());
    page::file(request.method(), path, headers).unwrap_or_else(|| Refusal::nothing().into_response())
}

/// One WebSocket that is served.
struct Counted(Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn count(&self) -> Counted {
        self.clients.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(&self.clients))
    }
}
