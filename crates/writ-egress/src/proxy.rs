//! The filtering proxy: the only way out of a sandbox that has one.
//!
//! A sandbox hands its listening socket out; [`Proxy::serve`] accepts on it. Plain HTTP/1.1 is passed on request by
//! request, with WebSockets; everything else, HTTP/2 among it, goes through `CONNECT` and is not looked into, but
//! for the first message: it must be TLS, and must name the tunnel's host. Each target is judged by
//! [`judge_connection`](writ_inspect::egress::judge_connection), its name is looked up once, each of its addresses is
//! judged, and only those are connected to.
//!
//! A tunnel to a host that a credential is bound to is opened: the sandbox trusts our certificate for it, the host's own is
//! verified, and each request in it is judged as a plain one is. A placeholder becomes a secret in the one header, on the
//! way to the host; in answers the secret is masked.
//!
//! Read in this order: `head` guards the door, `request` says what is asked for, `exchange` does it, `hello` looks
//! at a tunnel's beginning, `open` opens one, `body` looks through what is carried, `flow` counts and records, `answer`
//! says no.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use writ_inspect::egress::host::Target;
use writ_types::error::{Exit, Report, ToReport};

pub(crate) mod head;

pub(crate) mod request;

mod exchange;

mod body;

mod open;

pub(crate) mod hello;

mod flow;

pub(crate) mod rate;

mod answer;

#[cfg(test)]
mod tests;

pub use answer::{ASK_HEADER, CODE_HEADER};
pub(crate) use exchange::HEADERS_MAX;

use crate::authority::CertificateAuthority;
use crate::connect::Resolver;
use crate::gatekeeper::{Gatekeeper, NotRecorded, Refusal};
use crate::inside::listener_of;
use crate::upstream::ProxyRoutes;
use flow::{Flow, Place};
use rate::RateWindows;
use writ_types::entry::ConnectionRecord;

/// The most records that are handed over at once.
const BATCH_MAX: usize = 256;
/// How long connections may go on after the proxy was stopped, before they are cut.
const GRACE: Duration = Duration::from_millis(250);
/// The smallest head that the library can be limited to, in bytes.
pub const HEAD_MIN: usize = 8 * 1024;

/// Limits of the proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProxyConfig {
    /// Connections of one sandbox at once; more wait to be accepted. Default 128: npm opens 50, cargo a few.
    pub connections: usize,
    /// Records that may wait to be written; when there are more, new connections wait. Default 1,024.
    pub records: usize,
    /// Size of a request's or an answer's head, in bytes, at least 8 KiB. Default 32 KiB.
    pub head_bytes: usize,
    /// How long a request's head, or the first message in a tunnel, may take, in milliseconds. Default 10 seconds.
    pub head_ms: u64,
    /// How long looking up and connecting may take, in milliseconds. Default 10 seconds.
    pub connect_ms: u64,
    /// How long a connection may be silent both ways, in milliseconds; it is cut after at most twice as long.
    /// Default 2 minutes: more than any registry thinks.
    pub idle_ms: u64,
    /// How long a connection may last, in milliseconds. Default 1 hour: this bounds a client that sends byte by byte.
    pub total_ms: u64,
    /// The most bytes that one connection may send. Default 256 MiB.
    pub sent_max: u64,
    /// The most bytes that one connection may receive. Default 4 GiB: the largest wheels have 3.
    pub received_max: u64,
    /// Connections to one host in a minute, over all sandboxes. Default 600: an install of a large tree.
    pub host_per_minute: u32,
    /// Connections of one tool in a minute, over all sandboxes. Default 2,400.
    pub tool_per_minute: u32,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            connections: 128,
            records: 1024,
            head_bytes: 32 * 1024,
            head_ms: 10_000,
            connect_ms: 10_000,
            idle_ms: 2 * 60_000,
            total_ms: 60 * 60_000,
            sent_max: 256 * 1024 * 1024,
            received_max: 4 * 1024 * 1024 * 1024,
            host_per_minute: 600,
            tool_per_minute: 2_400,
        }
    }
}

/// Why the proxy of a sandbox ended before it was stopped.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The socket is not one to accept on.
    #[error("the sandbox's listener cannot be used: {0}")]
    Listener(#[source] io::Error),
    /// Records could not be written: nothing passes unrecorded.
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
}

impl ToReport for ProxyError {
    fn report(&self) -> Report {
        let inside = self.to_string();
        let code = match self {
            Self::Listener(_) => "proxy.listener",
            Self::NotRecorded(_) => "proxy.not_recorded",
        };
        Report::new(Exit::Blocked, code, "the sandbox's way out was closed")
            .with_inside(inside)
            .with_hint("Run the command again; `writ doctor` shows what is wrong.")
    }
}

/// The proxy of a process. Cheap to clone; clones share their rates.
#[derive(Clone, Debug)]
pub struct Proxy {
    config: Arc<ProxyConfig>,
    resolver: Arc<dyn Resolver>,
    routes: Arc<ProxyRoutes>,
    rates: Arc<Rates>,
    authority: Option<Arc<CertificateAuthority>>,
}

#[derive(Debug, Default)]
struct Rates {
    hosts: RateWindows,
    tools: RateWindows,
}

/// What one sandbox's connections need.
#[derive(Debug)]
struct Serving {
    limits: Limits,
    resolver: Arc<dyn Resolver>,
    routes: Arc<ProxyRoutes>,
    rates: Arc<Rates>,
    /// What opens tunnels for credentials; `None`: none is opened.
    authority: Option<Arc<CertificateAuthority>>,
    tool: String,
    gatekeeper: Arc<dyn Gatekeeper>,
    places: mpsc::Sender<ConnectionRecord>,
    tasks: TaskTracker,
    /// Ends every connection at once.
    cut: CancellationToken,
}

/// [`ProxyConfig`] in the units that are used.
#[derive(Clone, Copy, Debug)]
struct Limits {
    head_bytes: usize,
    head: Duration,
    connect: Duration,
    idle: Duration,
    total: Duration,
    sent_max: u64,
    received_max: u64,
    host_per_minute: u32,
    tool_per_minute: u32,
}

impl Proxy {
    /// A proxy with these limits that looks names up by `resolver`.
    pub fn new(config: ProxyConfig, resolver: Arc<dyn Resolver>) -> Self {
        Self {
            config: Arc::new(config),
            resolver,
            routes: Arc::default(),
            rates: Arc::default(),
            authority: None,
        }
    }

    /// Opens tunnels to hosts that a credential is bound to.
    #[must_use]
    pub fn with_authority(mut self, authority: Option<Arc<CertificateAuthority>>) -> Self {
        self.authority = authority;
        self
    }

    /// Reaches hosts through the proxies of the owner's network.
    #[must_use]
    pub fn with_routes(mut self, routes: Arc<ProxyRoutes>) -> Self {
        self.routes = routes;
        self
    }

    /// Accepts on a sandbox's listener until `stop`, in the name of `tool`. Returns when every connection has ended
    /// and every record has been handed over. Programs of the sandbox then have no network.
    ///
    /// # Errors
    ///
    /// If the listener cannot be used, or records cannot be written; then every connection is cut.
    pub async fn serve(
        &self,
        listener: OwnedFd,
        gatekeeper: Arc<dyn Gatekeeper>,
        tool: &str,
        stop: CancellationToken,
    ) -> Result<(), ProxyError> {
        let listener = listener_of(listener).map_err(ProxyError::Listener)?;
        let (places, records) = mpsc::channel(self.config.records.max(1));
        let cut = CancellationToken::new();
        // Records go through one task, so that many connections share one write.
        let keeping = tokio::spawn(keep(records, Arc::clone(&gatekeeper), cut.clone()));
        let serving = Arc::new(Serving {
            limits: self.limits(),
            resolver: Arc::clone(&self.resolver),
            routes: Arc::clone(&self.routes),
            rates: Arc::clone(&self.rates),
            authority: self.authority.clone(),
            tool: tool.to_owned(),
            gatekeeper,
            places,
            tasks: TaskTracker::new(),
            cut: cut.clone(),
        });
        // When this future is dropped, nothing of the sandbox's goes on.
        let _guard = cut.clone().drop_guard();
        let tasks = serving.tasks.clone();
        tokio::select! {
            () = accept(&listener, &serving, self.config.connections.max(1)) => {}
            () = stop.cancelled() => {}
            () = cut.cancelled() => {}
        }
        // From here on nothing is accepted; the tasks hold what they need.
        drop((listener, serving));
        tasks.close();
        // If the sandbox has ended, its connections end without help, in the right order.
        tokio::select! {
            () = tasks.wait() => {}
            () = tokio::time::sleep(GRACE) => {}
            () = cut.cancelled() => {}
        }
        cut.cancel();
        tasks.wait().await;
        // All senders are dropped now, so the task that writes records ends after the last one.
        keeping.await.unwrap_or_else(|why| Err(NotRecorded(why.to_string())))?;
        Ok(())
    }

    fn limits(&self) -> Limits {
        let config = &self.config;
        Limits {
            // The library panics on smaller buffers.
            head_bytes: config.head_bytes.max(HEAD_MIN),
            head: Duration::from_millis(config.head_ms),
            connect: Duration::from_millis(config.connect_ms),
            idle: Duration::from_millis(config.idle_ms),
            total: Duration::from_millis(config.total_ms),
            sent_max: config.sent_max,
            received_max: config.received_max,
            host_per_minute: config.host_per_minute,
            tool_per_minute: config.tool_per_minute,
        }
    }
}

/// Accepts as long as there is room: for a connection, and for its record.
async fn accept(listener: &TcpListener, serving: &Arc<Serving>, connections: usize) {
    let slots = Arc::new(Semaphore::new(connections));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        // The place for the record comes first: no connection without one.
        let Some(place) = serving.place().await else { return };
        match listener.accept().await {
            Ok((client, _)) => {
                serving.tasks.spawn(exchange::serve_requests(Arc::clone(serving), client, place, slot));
            }
            // The client had left already, or descriptors are short: open connections must end first.
            Err(why) => {
                tracing::warn!(%why, "a connection to the proxy could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Hands records over, as many as there are at once. The first failure ends the proxy.
async fn keep(
    mut records: mpsc::Receiver<ConnectionRecord>,
    gatekeeper: Arc<dyn Gatekeeper>,
    cut: CancellationToken,
) -> Result<(), NotRecorded> {
    loop {
        let mut batch = Vec::new();
        // Zero means that every sender is dropped.
        if records.recv_many(&mut batch, BATCH_MAX).await == 0 {
            return Ok(());
        }
        if let Err(why) = gatekeeper.store_records(batch).await {
            cut.cancel();
            return Err(why);
        }
    }
}

impl Serving {
    /// A place for a record; `None` once records are not written any longer.
    async fn place(&self) -> Option<Place> {
        tokio::select! {
            place = self.places.clone().reserve_owned() => place.ok(),
            () = self.cut.cancelled() => None,
        }
    }

    fn begin(&self, place: Place) -> Arc<Flow> {
        Flow::begin_flow(place, self.limits.sent_max, self.limits.received_max)
    }

    /// Whether there is room for one more connection in this minute.
    fn admit(&self, target: &Target) -> Result<(), Refusal> {
        let now = Instant::now();
        let host = target.host.to_string();
        // A refusal by the tool's rate leaves the host's untouched.
        let admitted = self.rates.tools.admit_connection(&self.tool, self.limits.tool_per_minute, now);
        admitted
            .and_then(|()| self.rates.hosts.admit_connection(&host, self.limits.host_per_minute, now))
            .map_err(|wait| Refusal::Rate { host, retry_secs: wait.as_secs() + 1 })
    }
}
