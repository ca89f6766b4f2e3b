//! A line: the private socket that a lent client speaks to, and the bytes carried to the permitted host.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream, lookup_host};
use tokio::task::{JoinHandle, JoinSet};

use crate::error::Fault;
use crate::host::HostPort;

/// The most connections that one permit's work may open; more are closed unanswered.
///
/// One request needs one, and one more if the server closes it between two uses.
const MAX_CONNECTIONS: usize = 4;

/// The most addresses of a name that are tried, within one connect limit.
const MAX_ADDRESSES: usize = 8;

/// Bytes carried at once. A TLS record is at most 16 KiB, so larger steps gain nothing.
const STEP: usize = 16 * 1024;

/// What one line may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connect: Duration,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// An open line. Dropping it closes every connection and removes the socket.
#[derive(Debug)]
pub(crate) struct Line {
    path: PathBuf,
    accepting: JoinHandle<()>,
    fault: Arc<Mutex<Option<Fault>>>,
}

impl Line {
    /// Binds the socket at `path` and starts carrying.
    pub(crate) fn open(path: PathBuf, host: HostPort, limits: Limits) -> io::Result<Self> {
        let listener = UnixListener::bind(&path)?;
        let fault = Arc::new(Mutex::new(None));
        let accepting = tokio::spawn(accept(listener, host, limits, Arc::clone(&fault)));
        Ok(Self { path, accepting, fault })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The first thing that went wrong, if anything did.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

async fn accept(listener: UnixListener, host: HostPort, limits: Limits, fault: Arc<Mutex<Option<Fault>>>) {
    let mut connections = JoinSet::new();
    let host = Arc::new(host);
    for _ in 0..MAX_CONNECTIONS {
        let Ok((local, _)) = listener.accept().await else { break };
        if !is_ours(&local) {
            tracing::warn!("a foreign process knocked at a line");
            continue;
        }
        let (host, fault) = (Arc::clone(&host), Arc::clone(&fault));
        connections.spawn(async move {
            if let Err(found) = carry(local, &host, limits).await {
                fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(found);
            }
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Whether this process itself is at the other end. The folder is private to the user already; this also
/// keeps other programs of the same user from using a line.
fn is_ours(local: &UnixStream) -> bool {
    let pid = i32::try_from(std::process::id()).ok();
    match local.peer_cred() {
        // Where the system does not tell the process (some BSDs), the folder's mode must do.
        Ok(peer) => peer.pid().is_none() || peer.pid() == pid,
        Err(_) => false,
    }
}

async fn carry(local: UnixStream, host: &HostPort, limits: Limits) -> Result<(), Fault> {
    let timeout = || Fault::ConnectTimeout { host: host.clone(), limit: limits.connect };
    let (from_host, to_host) =
        tokio::time::timeout(limits.connect, connect(host)).await.map_err(|_| timeout())??;
    let (from_client, to_client) = local.into_split();
    let out = copy(from_client, to_host, limits.sent);
    let back = copy(from_host, to_client, limits.received);
    match tokio::join!(out, back) {
        (_, Err(TooMuch)) => Err(Fault::TooMuchReceived { host: host.clone(), limit: limits.received }),
        (Err(TooMuch), _) => Err(Fault::TooMuchSent { host: host.clone(), limit: limits.sent }),
        (Ok(()), Ok(())) => Ok(()),
    }
}

#[expect(clippy::disallowed_types, reason = "this is the one place that opens outbound connections")]
async fn connect(host: &HostPort) -> Result<(impl AsyncRead + use<>, impl AsyncWrite + use<>), Fault> {
    let unresolved = |cause: String| Fault::Unresolved { host: host.clone(), cause };
    let found = lookup_host((host.host(), host.port())).await.map_err(|error| unresolved(error.to_string()))?;
    let addresses: Vec<SocketAddr> = found.take(MAX_ADDRESSES).collect();
    let mut last = None;
    for address in addresses {
        match tokio::net::TcpStream::connect(address).await {
            Ok(stream) => {
                // Small frames matter more than throughput here; a failure costs time only.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY was refused");
                }
                return Ok(stream.into_split());
            }
            Err(error) => last = Some(error),
        }
    }
    Err(match last {
        Some(error) => Fault::Unreachable { host: host.clone(), cause: error.to_string() },
        None => unresolved("no address".to_owned()),
    })
}

/// More bytes than allowed.
struct TooMuch;

/// Copies until the end or the limit. An error of either side is an end: the other side sees a cut stream.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    limit: u64,
) -> Result<(), TooMuch> {
    let mut step = vec![0; STEP];
    let mut carried: u64 = 0;
    loop {
        let count = match from.read(&mut step).await {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        carried = carried.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if carried > limit {
            return Err(TooMuch);
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
