//! Connections to the routers: who may open a socket, how many come in at once, and how long their heads may take.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use writ_types::error::{Exit, Report, ToReport};

/// The largest head of a request, in bytes: two keys and the headers of a client.
pub const MAX_HEAD_BYTES: usize = 128 * 1024;
/// The time that a client has to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// The pause after a client could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The reason why a socket cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {place}: {source}")]
pub struct SocketError {
    pub(crate) place: String,
    pub(crate) source: io::Error,
}

impl ToReport for SocketError {
    fn report(&self) -> Report {
        Report::new(Exit::Config, "fleet.listen", "a router of the fleet cannot open its socket")
            .with_inside(self.to_string())
            .with_hint("check that the folder 'runtime' of the home is yours and writable, and that no one has the port")
    }
}

/// A Unix socket of a router, removed when it is dropped.
#[derive(Debug)]
pub struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl LocalSocket {
    /// Makes a socket with mode 0600. The caller holds the home's lock, so that an old one belongs to no running engine.
    ///
    /// # Errors
    ///
    /// If the folder is missing or not writable.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let failed = |source| SocketError { place: path.display().to_string(), source };
        match std::fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        // The folder has mode 0700, so no other user reaches the socket before its mode is set.
        let listener = UnixListener::bind(path).map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Waits for the next connection.
    pub(crate) async fn accept_stream(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The state that the connections of a router share.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    room: Arc<Semaphore>,
    connections: TaskTracker,
    stop: CancellationToken,
}

impl Acceptor {
    /// Creates one with room for so many connections at once; one more waits until another ends.
    pub(crate) fn with_room(room: usize, stop: CancellationToken) -> Self {
        Self { room: Arc::new(Semaphore::new(room)), connections: TaskTracker::new(), stop }
    }

    /// Accepts connections until the stop, and serves each as a task of its own. `accept` waits for the next one.
    pub(crate) async fn accept_connections<A, F, T, S, B>(&self, accept: A, service: S)
    where
        A: Fn() -> F,
        F: Future<Output = io::Result<T>>,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn StdError + Send + Sync>>,
    {
        loop {
            // Room first: without it, clients wait in the queue of the system.
            let Ok(place) = Arc::clone(&self.room).acquire_owned().await else { return };
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = accept() => accepted,
            };
            match accepted {
                Ok(stream) => {
                    let (service, stop) = (service.clone(), self.stop.clone());
                    self.connections.spawn(async move {
                        serve_connection(stream, service, stop).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a client of a router could not be accepted");
                    // With no file descriptor left the next try fails at once, too.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Waits until every connection has ended; after the stop.
    pub(crate) async fn wait_for_end(&self) {
        self.connections.close();
        self.connections.wait().await;
    }
}

async fn serve_connection<T, S, B>(stream: T, service: S, stop: CancellationToken)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            // The answer that is on its way may still end; the engine bounds how long that takes.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to a router has broken off");
    }
}
