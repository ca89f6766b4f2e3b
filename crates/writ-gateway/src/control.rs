//! `control.sock`: who may connect, and how many.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use writ_runtime::engine::Engine;
use writ_types::error::{Exit, Report, ToReport};

use crate::connection;

/// The most clients at once; one more waits until another leaves.
pub const MAX_CONNECTIONS: usize = 256;

/// How long to wait after a client could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why `control.sock` cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The socket cannot be made.
    #[error("cannot listen on {path}: {source}")]
    Listen {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl ToReport for ControlError {
    fn report(&self) -> Report {
        match self {
            Self::Listen { path, source } => {
                Report::new(Exit::Config, "control.listen", "the engine cannot open its control socket")
                    .inside(format!("{}: {source}", path.display()))
                    .hint("check that the folder 'runtime' of the home exists, is yours and is writable")
            }
        }
    }
}

/// The socket, ready to accept.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Makes the socket with mode 0600. The caller holds the home's lock, so an old socket is nobody's.
    ///
    /// # Errors
    ///
    /// If the folder is missing or not writable.
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        let failed = |source| ControlError::Listen { path: path.to_owned(), source };
        match std::fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// Serves clients until told to stop; then waits until every connection has ended.
    pub async fn serve(self, engine: Engine, stop: CancellationToken) {
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = accept(&self.listener, &room) => accepted,
            };
            let Some((stream, place)) = accepted else { continue };
            let (engine, stop) = (engine.clone(), stop.clone());
            connections.spawn(async move {
                connection::run(stream, engine, stop).await;
                drop(place);
            });
        }
        drop(self.listener);
        let _ = std::fs::remove_file(&self.path);
        connections.close();
        connections.wait().await;
    }
}

async fn accept(
    listener: &UnixListener,
    room: &Arc<Semaphore>,
) -> Option<(UnixStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            tracing::warn!(%error, "a client could not be accepted");
            // With no file descriptor left the next try fails at once, too.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}
