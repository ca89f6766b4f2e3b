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
use axum::routing::{MethodRouter, get};
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::Serialize;
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

use accept::{Acceptor, UnprovenConnections, UnprovenPlace};
use base::BasePath;
use config::{HttpError, ServerConfig, may_serve};
use guard::{FAILURES_BURST, FAILURES_PER_SEC, HostNames, Speaker};
use keys::GatewayKeys;
use rate::Limiter;
use reply::Refusal;
use route::{ApiRequest, NoBody};

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

mod route;

mod routes;

mod methods;

mod query;

mod api;

mod sessions;

mod base;

mod passkeys;

mod pilot;

mod openai;

mod openapi;

mod schema;

/// The file with the port of the running server, below the runtime folder.
pub const PORT_FILE: &str = "server.port";
/// The hint for sessions of the page that cannot be stored.
const RUNTIME_FOLDER: &str = "free some space, and check owner and mode of the home's folder 'runtime'";
/// The most tries for a port that is free on both loopback addresses.
const FREE_PORT_TRIES: u32 = 8;
/// The factor by which one address may send more than one session: it may have several.
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

/// What is done where another program has the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TakenPort {
    /// It is an error.
    #[default]
    Refuse,
    /// The server takes one that is free, with a warning: the engine's work does not depend on the page.
    Replace,
}

/// The parts that the server is made of.
#[derive(Default)]
pub struct ServerParts {
    /// Settings.
    pub config: ServerConfig,
    /// What is done where another program has the port.
    pub taken_port: TakenPort,
    /// The home's runtime folder.
    pub runtime: PathBuf,
    /// The token of `auth_token`.
    pub token: Option<SecretString>,
    /// Takes secrets in; without it, `/secrets` is not there.
    pub secrets: Option<Arc<dyn SecretIntake>>,
    /// The settings in force.
    pub settings: Vec<SettingRow>,
}

/// A setting in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SettingRow {
    /// Its dotted path.
    pub name: String,
    /// Its value, as the configuration writes it.
    pub value: String,
    /// The place where it was set; none: it is the default.
    pub origin: Option<String>,
    /// Its explanation; may be empty.
    pub about: String,
}

impl fmt::Debug for ServerParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerParts").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The server, ready to accept.
#[derive(Debug)]
pub struct Http {
    listeners: Vec<TcpListener>,
    address: SocketAddr,
    keys: GatewayKeys,
    parts: ServerParts,
}

/// When the server ends.
#[derive(Clone, Debug)]
pub struct Stops {
    /// No new connections and requests.
    pub closing: CancellationToken,
    /// No connections.
    pub stop: CancellationToken,
}

/// The other end of a connection.
#[derive(Clone, Debug)]
struct Peer {
    address: SocketAddr,
    place: UnprovenPlace,
}

/// The state that all requests share.
struct ServerState {
    engine: Engine,
    config: ServerConfig,
    runtime: PathBuf,
    keys: Arc<GatewayKeys>,
    hosts: HostNames,
    secrets: Option<Arc<dyn SecretIntake>>,
    settings: Vec<SettingRow>,
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
    /// If others could reach the address and no token is configured, if it is in use and no other may be taken, or if
    /// a file of the runtime folder cannot be used.
    pub fn bind(parts: ServerParts) -> Result<Self, HttpError> {
        let (host, port) = (parts.config.host, parts.config.port);
        // Before listening: an unprotected port must not be reached even for a moment.
        may_serve(host, parts.token.is_some())?;
        parts.config.check_base_path()?;
        let keys = GatewayKeys::open(&parts.runtime, parts.token.as_ref())?;
        let wanted = SocketAddr::new(host, port);
        let (listeners, address) = match listen_at(wanted) {
            Err(HttpError::InUse(taken)) if parts.taken_port == TakenPort::Replace && host.is_loopback() => {
                let found = listen_at(SocketAddr::new(host, 0))?;
                tracing::warn!(
                    "another program listens on {taken}: the page and the API are served on port {} this time",
                    found.1.port()
                );
                found
            }
            listening => listening?,
        };
        let port_file = parts.runtime.join(PORT_FILE);
        // Commands find the server by this file, so it is written once the port is known.
        keys::write_private(&port_file, &address.port().to_string())
            .map_err(|source| HttpError::File { path: port_file, source })?;
        Ok(Self { listeners, address, keys, parts })
    }

    /// Returns the first address that it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stops` are cancelled; then waits until every connection has ended.
    pub async fn serve(self, engine: Engine, stops: Stops) {
        let Self { listeners, address, keys, parts } = self;
        let ServerParts { config, taken_port: _, runtime, token: _, secrets, settings } = parts;
        let (rate, burst) = (config.requests_per_sec, config.burst);
        let many = |number: u32| number.saturating_mul(SESSIONS_PER_ADDRESS);
        let grace = Duration::from_secs(config.graceful_shutdown_secs);
        let port_file = runtime.join(PORT_FILE);
        let shared = Arc::new(ServerState {
            engine,
            hosts: HostNames::new(&config, address.port()),
            config,
            runtime,
            keys: Arc::new(keys),
            secrets,
            settings,
            // An address may have several sessions, so it is allowed more.
            by_address: Limiter::new(many(rate), many(burst)),
            by_session: Arc::new(Limiter::new(rate, burst)),
            failures: Arc::new(Limiter::new(FAILURES_PER_SEC, FAILURES_BURST)),
            unproven: Arc::new(Semaphore::new(socket::max_unproven())),
            sockets: TaskTracker::new(),
            clients: Arc::new(AtomicU64::new(0)),
            stop: stops.stop.clone(),
        });
        let acceptor = Acceptor {
            router: make_router(&shared),
            room: Arc::new(Semaphore::new(accept::MAX_CONNECTIONS)),
            waiting: Arc::new(UnprovenConnections::default()),
            connections: TaskTracker::new(),
            closing: stops.closing.clone(),
        };
        let (connections, sockets) = (acceptor.connections.clone(), shared.sockets.clone());
        // The state must not be held here: its sockets' token would never be closed.
        drop(shared);
        let accepting: Vec<_> = listeners
            .into_iter()
            .map(|listener| tokio::spawn(acceptor.clone().accept_connections(listener)))
            .collect();
        drop(acceptor);
        stops.stop.cancelled().await;
        // New requests end first, then those under way have their time.
        stops.closing.cancel();
        for one in accepting {
            // A task that panicked has nothing more to serve.
            let _ended = one.await;
        }
        // Before the wait: commands must not send clients to a server that closes.
        let _ = std::fs::remove_file(port_file);
        connections.close();
        sockets.close();
        let ended = async { tokio::join!(connections.wait(), sockets.wait()) };
        if tokio::time::timeout(grace, ended).await.is_err() {
            tracing::warn!("some requests did not end in time");
        }
    }
}

/// Listens on an address, on both loopback addresses if it is one of them. Returns the address of the first.
fn listen_at(wanted: SocketAddr) -> Result<(Vec<TcpListener>, SocketAddr), HttpError> {
    let mut tries = if wanted.port() == 0 { FREE_PORT_TRIES } else { 1 };
    loop {
        let first = listen_on(wanted)?;
        let address = first.local_addr().map_err(|source| HttpError::Listen { address: wanted, source })?;
        let mut listeners = vec![first];
        // `localhost` may mean either: who holds the other one could take the page's place.
        let other = match wanted.ip() {
            IpAddr::V4(Ipv4Addr::LOCALHOST) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V4(_) | IpAddr::V6(_) => return Ok((listeners, address)),
        };
        match listen_on(SocketAddr::new(other, address.port())) {
            Ok(listener) => listeners.push(listener),
            Err(error @ HttpError::InUse(_)) => {
                tries -= 1;
                if tries == 0 {
                    return Err(error);
                }
                // The system's choice was free on one address alone.
                continue;
            }
            Err(error) => tracing::info!(%error, "only one of the loopback addresses is served"),
        }
        return Ok((listeners, address));
    }
}

fn listen_on(address: SocketAddr) -> Result<TcpListener, HttpError> {
    let failed = |source: io::Error| {
        if source.kind() == io::ErrorKind::AddrInUse {
            HttpError::InUse(address)
        } else {
            HttpError::Listen { address, source }
        }
    };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    // `from_std` expects it, and would block the runtime otherwise.
    listener.set_nonblocking(true).map_err(failed)?;
    TcpListener::from_std(listener).map_err(failed)
}

/// The port of the server that runs in this home, as it has left it.
pub fn running_port(runtime: &Path) -> Option<u16> {
    std::fs::read_to_string(runtime.join(PORT_FILE)).ok()?.trim().parse().ok()
}

fn make_router(shared: &Arc<ServerState>) -> Router {
    let routes = routes::all_routes().into_iter();
    let served = routes.fold(Router::new(), |router, route| router.route(route.path, route.served));
    let served = served
        .method_not_allowed_fallback(wrong_method)
        .fallback(serve_page)
        .layer(middleware::from_fn_with_state(Arc::clone(shared), guard::guard_request))
        .with_state(Arc::clone(shared));
    // A path must have its final form before it is routed.
    // The layer stands around the router, since a router matches before its own layers run.
    let based = middleware::from_fn_with_state(Arc::clone(shared), base::strip_prefix);
    Router::new().fallback_service(served).layer(based)
}

/// The state of the server.
#[derive(Serialize, JsonSchema)]
struct Health {
    /// `ok`.
    status: &'static str,
    /// WebSockets that are served.
    connections: u64,
}

async fn show_health(request: ApiRequest<NoBody>) -> Result<Health, Refusal> {
    Ok(Health { status: "ok", connections: request.shared.clients.load(Ordering::Relaxed) })
}

/// Serves a link to `GET` alone: a preview of a link, which sends `HEAD`, must not use it up.
fn link_route() -> MethodRouter<Arc<ServerState>> {
    get(use_link).head(not_get).fallback(not_get)
}

/// Writes the format that the client accepts; by default the one that every tool reads.
async fn show_metrics(State(shared): State<Arc<ServerState>>, headers: HeaderMap) -> Response {
    let accepted =
        headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok()).unwrap_or_default();
    let (kind, format) = if accepted.contains("application/openmetrics-text") {
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", MetricsFormat::OpenMetrics)
    } else {
        ("text/plain; version=0.0.4; charset=utf-8", MetricsFormat::Prometheus)
    };
    ([(header::CONTENT_TYPE, kind)], shared.engine.metrics(format).await).into_response()
}

/// `GET /link/{code}`: begins a session of the page, once.
async fn use_link(
    State(shared): State<Arc<ServerState>>,
    axum::extract::Path(code): axum::extract::Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let speaker = request.extensions().get::<Speaker>().cloned().ok_or_else(Refusal::unproven)?;
    let now = shared.now();
    // A wrong code is counted as a failed proof, so that codes cannot be tried.
    if !link::redeem_link(&shared.runtime, &code, now) {
        shared.failures.take_token(&speaker.address, std::time::Instant::now()).map_err(Refusal::too_many)?;
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
    let cookie = HeaderValue::from_str(&cookie).map_err(|_| Refusal::not_found())?;
    // The code is in the address of the page; leaving it at once leaves it out of the history.
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, "../")]).into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// `POST /api/v1/logout`: ends the session of the page that asks.
async fn end_session(State(shared): State<Arc<ServerState>>, request: Request) -> Result<Response, Refusal> {
    if let Some(secret) = guard::page_cookie(request.headers()) {
        shared.keys.end_session(secret).map_err(|error| {
            tracing::error!(%error, "the end of a session cannot be stored");
            let (text, hint) = ("the session cannot be ended", RUNTIME_FOLDER);
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "logout.failed", text, hint)
        })?;
    }
    let at = cookie_path(&request);
    let gone = format!("{}=; HttpOnly; SameSite=Strict; Path={at}; Max-Age=0", guard::COOKIE);
    let cookie = HeaderValue::from_str(&gone).map_err(|_| Refusal::not_found())?;
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
async fn serve_page(request: Request) -> Response {
    let (path, headers) = (request.uri().path(), request.headers());
    page::serve_file(request.method(), path, headers).unwrap_or_else(|| Refusal::not_found().into_response())
}

/// One WebSocket that is served.
struct SocketCount(Arc<AtomicU64>);

impl Drop for SocketCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ServerState {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn count_socket(&self) -> SocketCount {
        self.clients.fetch_add(1, Ordering::Relaxed);
        SocketCount(Arc::clone(&self.clients))
    }
}
