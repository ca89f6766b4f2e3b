//! A line: the private socket that a lent client speaks to, and the bytes carried to the permitted host.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::connect::{Resolver as _, Stream, SystemResolver, dial_addresses};
use crate::error::Fault;
use crate::host::HostPort;
use crate::relay::relay_request;
use crate::tunnel::{TunnelFault, dial_proxy, open_tunnel};
use crate::upstream::{ProxyRoutes, Upstream};

/// The most connections that one permit's work may open, unless it is known to need more.
///
/// One request needs one, and one more if the server closes it between two uses.
pub(crate) const MAX_CONNECTIONS: usize = 4;

/// Connections that a line must have left to be used for another permit.
const SPARE_CONNECTIONS: usize = 2;

/// Bytes that may still come in on a line at rest: the end of an answer of which the work had read enough.
const REST_RECEIVED: u64 = 16 * 1024;

/// Bytes carried at once. A TLS record is at most 16 KiB, so larger steps gain nothing.
const STEP: usize = 16 * 1024;

/// The bounds of one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineLimits {
    pub(crate) connect: Duration,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Connections; more are closed unanswered.
    pub(crate) connections: usize,
}

/// The destination of a line.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// The permitted host.
    pub(crate) host: HostPort,
    pub(crate) place: HostRoute,
}

/// The way to a permitted host.
#[derive(Clone, Debug)]
pub(crate) enum HostRoute {
    /// The owner's own configuration names the host: through the network's proxy if there is one for it, else it is
    /// looked up.
    Named,
    /// The addresses that were judged, and no others.
    Judged(Vec<SocketAddr>),
    /// Through this proxy and not otherwise.
    Through(Arc<Upstream>),
}

/// An open line. Dropping it closes every connection and removes the socket.
#[derive(Debug)]
pub(crate) struct Line {
    path: PathBuf,
    accepting: JoinHandle<()>,
    faults: Faults,
    carried: Carried,
    accepted: Arc<AtomicUsize>,
}

/// Bytes carried so far, over all connections of a line.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    /// The bytes that may come in all; moved on by the work, see [`Allowance`](crate::perform::Allowance).
    allowed: Arc<AtomicU64>,
    /// True while the line is at rest between two permits: nothing is sent then.
    resting: Arc<AtomicBool>,
    /// True if more came than was allowed.
    overrun: Arc<AtomicBool>,
}

impl Default for Carried {
    fn default() -> Self {
        let allowed = Arc::new(AtomicU64::new(u64::MAX));
        Self {
            sent: Arc::default(),
            received: Arc::default(),
            allowed,
            resting: Arc::default(),
            overrun: Arc::default(),
        }
    }
}

impl Carried {
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub(crate) fn allowed_bytes(&self) -> u64 {
        self.allowed.load(Ordering::Relaxed)
    }

    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Relaxed)
    }

    fn is_resting(&self) -> bool {
        self.resting.load(Ordering::SeqCst)
    }

    /// From here on, so many bytes more may come in.
    pub(crate) fn allow_more(&self, more: u64) {
        self.allowed.store(self.received_bytes().saturating_add(more), Ordering::Relaxed);
    }
}

/// The first fault. It is recorded before the client can see its connection end.
#[derive(Clone, Debug, Default)]
struct Faults(Arc<Mutex<Option<Fault>>>);

impl Faults {
    fn record_fault(&self, fault: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
    }

    fn record_first(&self) -> Option<Fault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Line {
    /// Binds the socket at `path` and starts carrying.
    pub(crate) fn open_line(
        path: PathBuf,
        way: Way,
        routes: Arc<ProxyRoutes>,
        limits: LineLimits,
    ) -> io::Result<Self> {
        let listener = UnixListener::bind(&path)?;
        let faults = Faults::default();
        let carried = Carried::default();
        let accepted = Arc::new(AtomicUsize::new(0));
        let ours = (faults.clone(), carried.clone(), Arc::clone(&accepted));
        let accepting = tokio::spawn(accept_client(listener, (way, routes), limits, ours));
        Ok(Self { path, accepting, faults, carried, accepted })
    }

    pub(crate) fn socket_path(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn carried_bytes(&self) -> &Carried {
        &self.carried
    }

    /// The first thing that went wrong, if anything did.
    pub(crate) fn first_fault(&self) -> Option<Fault> {
        self.faults.record_first()
    }

    /// Returns true if the line may serve another permit: nothing went wrong on it, and it has connections
    /// left.
    pub(crate) fn may_be_kept(&self) -> bool {
        let left = MAX_CONNECTIONS.saturating_sub(self.accepted.load(Ordering::SeqCst));
        left >= SPARE_CONNECTIONS && self.first_fault().is_none() && !self.carried.is_overrun()
    }

    /// Lays it to rest between two permits: what is sent from here on cuts it.
    pub(crate) fn put_to_rest(&self) {
        self.carried.resting.store(true, Ordering::SeqCst);
        self.carried.allow_more(REST_RECEIVED);
    }

    /// Wakes the line for another permit, with a count of bytes that begins at zero.
    pub(crate) fn wake_line(&self) {
        // The counters first: nothing counts for the new permit before the line is awake.
        self.carried.sent.store(0, Ordering::SeqCst);
        self.carried.received.store(0, Ordering::SeqCst);
        self.carried.allowed.store(u64::MAX, Ordering::SeqCst);
        self.carried.resting.store(false, Ordering::SeqCst);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Aborting the acceptor drops its `JoinSet`, which aborts every connection.
        self.accepting.abort();
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "a line's socket was gone already");
        }
    }
}

async fn accept_client(
    listener: UnixListener,
    (way, routes): (Way, Arc<ProxyRoutes>),
    limits: LineLimits,
    (faults, carried, accepted): (Faults, Carried, Arc<AtomicUsize>),
) {
    let mut connections = JoinSet::new();
    let way = Arc::new(way);
    for _ in 0..limits.connections {
        let Ok((local, _)) = listener.accept().await else { break };
        accepted.fetch_add(1, Ordering::SeqCst);
        // No permit stands behind a connection to a line at rest.
        if carried.is_resting() {
            tracing::warn!("a line at rest was knocked at");
            continue;
        }
        if !is_ours(&local) {
            tracing::warn!("a foreign process knocked at a line");
            continue;
        }
        let (way, faults, carried) = (Arc::clone(&way), faults.clone(), carried.clone());
        let routes = Arc::clone(&routes);
        connections.spawn(async move {
            carry_connection(local, (&way, &routes), limits, (&faults, &carried)).await
        });
    }
    // Nothing more is accepted; the connections that are open finish.
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Returns true if this process itself is at the other end. The folder is private to the user already; this
/// also stops other programs of the same user from using a line.
fn is_ours(local: &UnixStream) -> bool {
    let pid = i32::try_from(std::process::id()).ok();
    match local.peer_cred() {
        // If the system does not name the process (some BSDs), the mode of the folder is the only protection.
        Ok(peer) => peer.pid().is_none() || peer.pid() == pid,
        Err(_) => false,
    }
}

/// The first byte of a TLS connection: that of a handshake record (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

async fn carry_connection(
    local: UnixStream,
    (way, routes): (&Way, &ProxyRoutes),
    limits: LineLimits,
    (faults, carried): (&Faults, &Carried),
) {
    let (mut from_client, to_client) = local.into_split();
    let mut first = Vec::new();
    if may_be_proxied(way, routes) {
        // Which proxy it is, and how it is spoken to, depends on whether this is TLS: the client speaks first in either.
        first.resize(STEP, 0);
        match from_client.read(&mut first).await {
            Ok(count @ 1..) => first.truncate(count),
            Ok(0) | Err(_) => return,
        }
    }
    let far = match connect_host(way, routes, first.first() == Some(&TLS_HANDSHAKE), limits).await {
        Ok(far) => far,
        Err(fault) => return faults.record_fault(fault),
    };
    // The bytes that were read to choose a proxy go out first.
    let from_client = std::io::Cursor::new(first).chain(from_client);
    match far {
        Far::Host(stream) => {
            let (from_host, to_host) = stream.into_split();
            let ends = (from_client, to_client, from_host, to_host);
            copy_both(ends, way, limits, (faults, carried), acknowledge_received).await;
        }
        Far::Proxy(stream, proxy) => {
            // The relay rewrites heads, so the limits are counted on this side of it.
            let (near, relayed) = tokio::io::duplex(STEP);
            let (from_host, to_host) = tokio::io::split(near);
            let ends = (from_client, to_client, from_host, to_host);
            let refused = |why| faults.record_fault(proxy_fault(way, &proxy, why));
            let relaying = relay_request(relayed, stream, (Arc::clone(&proxy), way.host.clone()), refused);
            tokio::join!(copy_both(ends, way, limits, (faults, carried), |_| {}), relaying);
        }
    }
}

/// Copies both ways until either has too much, or both have ended.
async fn copy_both<R: AsyncRead + Unpin>(
    (from_client, to_client, from_host, to_host): (
        impl AsyncRead + Unpin,
        impl AsyncWrite + Unpin,
        R,
        impl AsyncWrite + Unpin,
    ),
    way: &Way,
    limits: LineLimits,
    (faults, carried): (&Faults, &Carried),
    acknowledge: impl Fn(&R),
) {
    let host = &way.host;
    let too_much_sent = || faults.record_fault(Fault::TooMuchSent { host: host.clone(), limit: limits.sent });
    let too_much_received = || {
        // Only the limit of this connection is reported as a fault; if the limit of the whole work is used up, the work reports it.
        if carried.received_bytes() > limits.received {
            faults.record_fault(Fault::TooMuchReceived { host: host.clone(), limit: limits.received });
        } else {
            carried.overrun.store(true, Ordering::Relaxed);
        }
    };
    // The allowance can change while bytes flow, so both bounds are read for each step.
    let received = || limits.received.min(carried.allowed_bytes());
    let sent = || if carried.is_resting() { 0 } else { limits.sent };
    let out = copy_stream(from_client, to_host, (&carried.sent, sent), too_much_sent, |_| {});
    let back =
        copy_stream(from_host, to_client, (&carried.received, received), too_much_received, acknowledge);
    // Too much either way ends both; an ordinary end lets the other way finish.
    if let Err(LineOverflow) = tokio::try_join!(out, back).map(|_| ()) {
        tracing::debug!(%host, "a line was cut");
    }
}

fn may_be_proxied(way: &Way, routes: &ProxyRoutes) -> bool {
    match &way.place {
        HostRoute::Named => !routes.is_empty(),
        HostRoute::Judged(_) => false,
        HostRoute::Through(_) => true,
    }
}

/// The other end of a line.
enum Far {
    /// The host itself, or a tunnel to it.
    Host(Stream),
    /// A proxy that takes plain requests.
    Proxy(Stream, Arc<Upstream>),
}

fn proxy_fault(way: &Way, proxy: &Upstream, why: TunnelFault) -> Fault {
    Fault::Proxy { host: way.host.clone(), proxy: proxy.to_string(), why }
}

async fn connect_host(
    way: &Way,
    routes: &ProxyRoutes,
    secure: bool,
    limits: LineLimits,
) -> Result<Far, Fault> {
    let host = &way.host;
    let proxy = match &way.place {
        HostRoute::Named => routes.proxy_for(host.host(), host.port(), secure),
        HostRoute::Judged(_) => None,
        HostRoute::Through(proxy) => Some(proxy),
    };
    // Looking up, dialling and the proxy's answer share one limit.
    let limit = limits.connect;
    let Some(proxy) = proxy else {
        let connecting = tokio::time::timeout(limit, connect_directly(way)).await;
        return connecting
            .unwrap_or_else(|_| Err(Fault::ConnectTimeout { host: host.clone(), limit }))
            .map(Far::Host);
    };
    let connecting = async {
        if secure {
            open_tunnel(proxy, host.host(), host.port()).await.map(Far::Host)
        } else {
            dial_proxy(proxy).await.map(|stream| Far::Proxy(stream, Arc::clone(proxy)))
        }
    };
    let connected = tokio::time::timeout(limit, connecting).await;
    connected
        .unwrap_or_else(|_| Err(TunnelFault::Unreachable(format!("no answer within {limit:?}"))))
        .map_err(|why| proxy_fault(way, proxy, why))
}

/// Connects to a host for bytes of any kind: itself, or a tunnel to it.
pub(crate) async fn connect_secure(
    way: &Way,
    routes: &ProxyRoutes,
    limit: Duration,
) -> Result<Stream, Fault> {
    let limits = LineLimits { connect: limit, sent: 0, received: 0, connections: 0 };
    match connect_host(way, routes, true, limits).await? {
        Far::Host(stream) => Ok(stream),
        // A proxy that takes plain requests is for those alone.
        Far::Proxy(_, proxy) => {
            Err(proxy_fault(way, &proxy, TunnelFault::Unreachable("it opened no tunnel".to_owned())))
        }
    }
}

async fn connect_directly(way: &Way) -> Result<Stream, Fault> {
    let host = &way.host;
    let unresolved = |cause: String| Fault::Unresolved { host: host.clone(), cause };
    let addresses = match &way.place {
        HostRoute::Judged(judged) => judged.clone(),
        HostRoute::Named | HostRoute::Through(_) => {
            let found = SystemResolver.resolve_name(host.host(), host.port()).await;
            let found = found.map_err(|error| unresolved(error.to_string()))?;
            found.into_iter().map(|address| SocketAddr::new(address, host.port())).collect()
        }
    };
    if addresses.is_empty() {
        return Err(unresolved("no address".to_owned()));
    }
    let unreachable = |error: io::Error| Fault::Unreachable { host: host.clone(), cause: error.to_string() };
    dial_addresses(&addresses).await.map_err(unreachable)
}

/// Acknowledges received bytes at once. A host that waits for that before it sends the next small piece would
/// wait forty milliseconds on a connection that was used before.
fn acknowledge_received(from_host: &OwnedReadHalf) {
    #[cfg(all(any(target_os = "linux", target_os = "android"), not(writ_other_system)))]
    if let Err(error) = from_host.as_ref().set_quickack(true) {
        tracing::trace!(%error, "TCP_QUICKACK was refused");
    }
    #[cfg(any(not(any(target_os = "linux", target_os = "android")), writ_other_system))]
    let _ = from_host;
}

/// More bytes than allowed.
struct LineOverflow;

/// Copies until the end or the limit. An error of either side is an end: the other side sees a cut stream.
async fn copy_stream<R: AsyncRead + Unpin>(
    mut from: R,
    mut to: impl AsyncWrite + Unpin,
    (carried, limit): (&AtomicU64, impl Fn() -> u64),
    too_much: impl Fn(),
    read: impl Fn(&R),
) -> Result<(), LineOverflow> {
    let mut step = vec![0; STEP];
    loop {
        let count = match from.read(&mut step).await {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        read(&from);
        let count_u64 = u64::try_from(count).unwrap_or(u64::MAX);
        // Counted before it is passed on: bytes above the limit never reach the other side.
        if carried.fetch_add(count_u64, Ordering::Relaxed).saturating_add(count_u64) > limit() {
            too_much();
            return Err(LineOverflow);
        }
        let Some(bytes) = step.get(..count) else { break };
        if to.write_all(bytes).await.is_err() {
            break;
        }
    }
    if let Err(error) = to.shutdown().await {
        tracing::trace!(%error, "the far side was closed already");
    }
    Ok(())
}
