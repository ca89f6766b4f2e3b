//! Connections: how many, and how long they may take until they say something.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Peer;

/// The most connections at once.
pub(super) const MAX_CONNECTIONS: usize = 2_048;
/// The most connections that have proven nothing yet; one more ends the oldest of them, so that sockets which
/// are opened and left alone block no other client.
const MAX_UNPROVEN: usize = 256;
/// The time that a client has to send the head of a request, the first one and each next one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// The largest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// The pause after a client could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections without proof, oldest first.
#[derive(Debug, Default)]
pub(super) struct UnprovenConnections {
    places: Mutex<VecDeque<UnprovenPlace>>,
}

/// A connection's place among those without proof.
#[derive(Clone, Debug)]
pub(super) struct UnprovenPlace {
    cut: CancellationToken,
    proven: CancellationToken,
}

impl UnprovenPlace {
    /// The connection has proven who is at its other end.
    pub(super) fn set_proven(&self) {
        self.proven.cancel();
    }
}

impl UnprovenConnections {
    /// Gives a new connection a place; the oldest one loses its own if there are too many.
    fn add_connection(&self) -> UnprovenPlace {
        let place = UnprovenPlace { cut: CancellationToken::new(), proven: CancellationToken::new() };
        // The list is whole after every step, so poison is ignored.
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        // Proven connections leave here, so that proving needs no lock.
        places.retain(|place| !place.proven.is_cancelled());
        // The oldest without proof ends, so that idle sockets cannot lock out the owner.
        while places.len() >= MAX_UNPROVEN
            && let Some(oldest) = places.pop_front()
        {
            oldest.cut.cancel();
        }
        places.push_back(place.clone());
        place
    }
}

/// The state that accepted connections share.
#[derive(Clone)]
pub(super) struct Acceptor {
    pub(super) router: Router,
    pub(super) room: Arc<Semaphore>,
    pub(super) waiting: Arc<UnprovenConnections>,
    pub(super) connections: TaskTracker,
    /// No new connections and requests.
    pub(super) closing: CancellationToken,
}

impl Acceptor {
    /// Accepts connections until the server closes.
    pub(super) async fn accept_connections(self, listener: TcpListener) {
        loop {
            // Room first: without it, clients wait in the queue of the system.
            let Ok(room) = Arc::clone(&self.room).acquire_owned().await else { return };
            let accepted = tokio::select! {
                () = self.closing.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => {
                    // Frames are small and wanted at once.
                    let _ = stream.set_nodelay(true);
                    let acceptor = self.clone();
                    self.connections.spawn(async move {
                        acceptor.serve_connection(stream, address).await;
                        drop(room);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // With no file descriptor left the next try fails at once, too.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve_connection<S>(&self, stream: S, address: SocketAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // Each connection begins without proof, and has this place until a request shows one.
        let place = self.waiting.add_connection();
        let peer = Peer { address, place: place.clone() };
        let router = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(peer.clone());
            router.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // A client that sends its head byte by byte is cut off.
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = std::pin::pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            // Dropping the connection closes the socket at once.
            () = place.cut.cancelled() => return,
            () = self.closing.cancelled() => {
                // The request that is being served may still end.
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, "a connection has broken off");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_connection_without_proof_goes_first() {
        let waiting = UnprovenConnections::default();
        let proven = waiting.add_connection();
        proven.set_proven();
        let first = waiting.add_connection();
        let others: Vec<UnprovenPlace> = (1..MAX_UNPROVEN).map(|_| waiting.add_connection()).collect();
        assert!(!first.cut.is_cancelled());
        let new = waiting.add_connection();
        assert!(first.cut.is_cancelled());
        assert!(!proven.cut.is_cancelled() && !new.cut.is_cancelled());
        assert!(others.iter().all(|place| !place.cut.is_cancelled()));
    }
}
