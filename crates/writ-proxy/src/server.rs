//! The sockets of the proxy: one for agents, TLS where that is wanted, and one for the router of cases.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::TlsConfig;
use crate::error::ProxyError;
use crate::proxy::{Peer, Proxy};

use self::limits::{ClientPlaces, TimedStream};

pub use self::limits::{MAX_PER_LAUNCHER, MAX_PER_USER};

mod agents;

mod limits;

mod router;

/// The most connections of one socket at once; others wait in the queue of the system.
pub const MAX_CONNECTIONS: usize = 1_024;
/// The most connections of the router at once.
const MAX_ROUTERS: usize = 64;
/// The time in which the head of a request must come.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// The time for the first bytes of TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest head of a request, in bytes: two keys of the largest size, as text, and room for the rest.
const MAX_HEAD_BYTES: usize = 128 * 1024;
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The places where a proxy listens.
pub struct ServerPlaces {
    /// The socket for agents.
    pub socket: PathBuf,
    /// True if users other than its own may connect to it: the proxy then names them by their user ids.
    pub shared: bool,
    /// The address for TLS, with its certificate.
    pub tls: Option<(SocketAddr, TlsConfig)>,
    /// The socket for the router, which only its own user can open.
    pub router: PathBuf,
    /// The token that the router shows.
    pub router_token: SecretString,
}

impl fmt::Debug for ServerPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerPlaces").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// The sockets of a proxy, open.
pub struct ProxyServer {
    agents: UnixListener,
    tls: Option<(TcpListener, TlsAcceptor)>,
    router: UnixListener,
    router_token: SecretString,
    paths: [PathBuf; 2],
}

impl fmt::Debug for ProxyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyServer").field("paths", &self.paths).finish_non_exhaustive()
    }
}

/// What the connections of one socket share.
#[derive(Clone)]
struct Acceptor {
    routes: Router,
    room: Arc<Semaphore>,
    clients: ClientPlaces,
    connections: TaskTracker,
    stop: CancellationToken,
}

impl ProxyServer {
    /// Opens the sockets. The caller holds the lock of the proxy's folder.
    ///
    /// # Errors
    ///
    /// If a place cannot be used, or the certificate.
    pub async fn bind(places: ServerPlaces) -> Result<Self, ProxyError> {
        let tls = match &places.tls {
            Some((address, config)) => {
                let acceptor = read_certificate(config)?;
                let failed = |source| ProxyError::Listen { place: address.to_string(), source };
                Some((TcpListener::bind(address).await.map_err(failed)?, acceptor))
            }
            None => None,
        };
        Ok(Self {
            agents: listen(&places.socket, if places.shared { 0o666 } else { 0o600 })?,
            router: listen(&places.router, 0o600)?,
            tls,
            router_token: places.router_token,
            paths: [places.socket, places.router],
        })
    }

    /// Returns the address of the TLS socket.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls.as_ref().and_then(|(listener, _)| listener.local_addr().ok())
    }

    /// Serves requests until `stop`; then waits for those that are under way.
    pub async fn serve(self, proxy: Proxy, stop: CancellationToken) {
        let connections = TaskTracker::new();
        let acceptor = |routes, room| Acceptor {
            routes,
            room: Arc::new(Semaphore::new(room)),
            clients: ClientPlaces::default(),
            connections: connections.clone(),
            stop: stop.clone(),
        };
        let agents = acceptor(agents::build_routes(proxy.clone()), MAX_CONNECTIONS);
        // Connections of the network have room of their own: they cannot keep local ones out.
        let remote = acceptor(agents::build_routes(proxy.clone()), MAX_CONNECTIONS);
        let router =
            acceptor(router::build_routes(proxy.clone(), self.router_token, stop.clone()), MAX_ROUTERS);
        let tls = async {
            if let Some((listener, tls)) = self.tls {
                remote.accept_tls(listener, tls).await;
            }
        };
        tokio::join!(agents.accept_local(self.agents), router.accept_local(self.router), tls);
        for path in &self.paths {
            let _ = std::fs::remove_file(path);
        }
        connections.close();
        connections.wait().await;
        proxy.drain().await;
    }
}

/// Opens a socket with a mode. What lies there is of a proxy that has ended.
fn listen(path: &Path, mode: u32) -> Result<UnixListener, ProxyError> {
    let failed = |source| ProxyError::Listen { place: path.display().to_string(), source };
    let aside = path.with_extension("new");
    for old in [path, &aside] {
        match std::fs::symlink_metadata(old) {
            Ok(found) if is_socket(&found) => std::fs::remove_file(old).map_err(failed)?,
            // A file that is no socket was not put there by a proxy.
            Ok(_) => return Err(failed(io::Error::from(io::ErrorKind::AlreadyExists))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    // It appears under its name only with its mode.
    let listener = UnixListener::bind(&aside).map_err(failed)?;
    std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
    std::fs::rename(&aside, path).map_err(failed)?;
    Ok(listener)
}

fn is_socket(found: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    found.file_type().is_socket()
}

/// Reads the certificate and its key.
fn read_certificate(config: &TlsConfig) -> Result<TlsAcceptor, ProxyError> {
    let failed = |path: &Path, why: String| ProxyError::Certificate { path: path.to_owned(), why };
    let chain = CertificateDer::pem_file_iter(&config.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| failed(&config.certificate, error.to_string()))?;
    let key =
        PrivateKeyDer::from_pem_file(&config.key).map_err(|error| failed(&config.key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    let tls = tls.map_err(|error| failed(&config.certificate, error.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(tls)))
}

impl Acceptor {
    async fn accept_local(self, listener: UnixListener) {
        while let Some((accepted, room)) = self.accept(listener.accept()).await {
            let Some((stream, _)) = accepted else { continue };
            // Without the kernel's word there is no user, and no user has this number.
            let (uid, pid) = stream.peer_cred().map_or((u32::MAX, None), |peer| (peer.uid(), peer.pid()));
            let Some(place) = self.clients.take_place(uid, pid.unwrap_or_default()) else {
                tracing::debug!(uid, pid, "a process or its user has too many connections");
                continue;
            };
            let acceptor = self.clone();
            self.connections.spawn(async move {
                acceptor.serve_connection(stream, Peer::Local(uid)).await;
                drop((place, room));
            });
        }
    }

    async fn accept_tls(self, listener: TcpListener, tls: TlsAcceptor) {
        while let Some((accepted, room)) = self.accept(listener.accept()).await {
            let Some((stream, _)) = accepted else { continue };
            let _ = stream.set_nodelay(true);
            let (acceptor, tls) = (self.clone(), tls.clone());
            self.connections.spawn(async move {
                // A client that says nothing must not hold its place.
                if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                    acceptor.serve_connection(stream, Peer::Remote).await;
                }
                drop(room);
            });
        }
    }

    /// Waits for room and a connection; `None` at the end.
    async fn accept<T>(
        &self,
        accepted: impl Future<Output = io::Result<T>>,
    ) -> Option<(Option<T>, OwnedSemaphorePermit)> {
        let accepted = async {
            let room = Arc::clone(&self.room).acquire_owned().await.ok()?;
            match accepted.await {
                Ok(accepted) => Some((Some(accepted), room)),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // With no file descriptor left the next try fails at once, too.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    Some((None, room))
                }
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => None,
            accepted = accepted => accepted,
        }
    }

    async fn serve_connection<S>(&self, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let routes = TowerToHyperService::new(self.routes.clone());
        let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(peer);
            routes.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(TimedStream::new(stream)), service);
        let mut connection = std::pin::pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = self.stop.cancelled() => {
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
