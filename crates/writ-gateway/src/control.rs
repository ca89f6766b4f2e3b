//! `control.sock`: who may connect, and how many.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::ready;
use futures::{SinkExt as _, StreamExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::codec::{Framed, LinesCodec, LinesCodecError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use writ_policy::principal::Evidence;
use writ_runtime::engine::{Engine, Surface};
use writ_types::error::{Exit, Report, ToReport};
use writ_types::frame::MAX_FRAME_BYTES;

use crate::connection::{self, ClientInput, ClientOutput, ClientTerms};
use crate::line::Shape;

/// The most clients at once; one more waits until another leaves.
pub const MAX_CONNECTIONS: usize = 256;

/// The pause after a client could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The reason why `control.sock` cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The socket cannot be made.
    #[error("cannot listen on {path}: {source}")]
    Listen {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl ToReport for ControlError {
    fn report(&self) -> Report {
        match self {
            Self::Listen { path, source } => {
                Report::new(Exit::Config, "control.listen", "the engine cannot open its control socket")
                    .with_inside(format!("{}: {source}", path.display()))
                    .with_hint("check that the folder 'runtime' of the home exists, is yours and is writable")
            }
        }
    }
}

/// The socket, ready to be opened to clients.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    /// The temporary path, which clients do not look for.
    aside: PathBuf,
    path: PathBuf,
}

impl Control {
    /// Makes the socket with mode 0600 under a temporary path: a client that found it in its place could see
    /// it end because the engine does not start. The caller holds the home's lock, so an old socket belongs
    /// to no running engine.
    ///
    /// # Errors
    ///
    /// If the folder is missing or not writable.
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        let failed = |source| ControlError::Listen { path: path.to_owned(), source };
        let aside = path.with_extension("new");
        // The caller holds the lock of the home, so what lies here is of an engine that has ended.
        for old in [path, &aside] {
            match std::fs::remove_file(old) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
        // The home has mode 0700, so no other user reaches it before its mode is set.
        let listener = UnixListener::bind(&aside).map_err(failed)?;
        std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self { listener, aside, path: path.to_owned() })
    }

    /// Puts the socket in its place, so that clients find it.
    ///
    /// # Errors
    ///
    /// If the folder is missing or not writable.
    pub fn open_socket(self) -> Result<OpenControl, ControlError> {
        std::fs::rename(&self.aside, &self.path)
            .map_err(|source| ControlError::Listen { path: self.path.clone(), source })?;
        Ok(OpenControl { listener: self.listener, path: self.path })
    }
}

/// The socket in its place: clients wait there to be accepted.
#[derive(Debug)]
pub struct OpenControl {
    listener: UnixListener,
    path: PathBuf,
}

impl OpenControl {
    /// Serves clients until `stop` is cancelled; then waits until every connection has ended.
    pub async fn serve_clients(self, engine: Engine, stop: CancellationToken) {
        // The bound is taken before a client is accepted, so that others wait in the system's queue.
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = accept_client(&self.listener, &room) => accepted,
            };
            let Some((stream, place)) = accepted else { continue };
            let (engine, stop) = (engine.clone(), stop.clone());
            connections.spawn(async move {
                serve_stream(stream, engine, stop).await;
                drop(place);
            });
        }
        // The listener first: a client must not connect to a socket that is not served.
        drop(self.listener);
        let _ = std::fs::remove_file(&self.path);
        connections.close();
        connections.wait().await;
    }
}

/// Serves one client. The kernel says who it is.
async fn serve_stream(stream: UnixStream, engine: Engine, stop: CancellationToken) {
    // Without the kernel's word a client is no one, and is refused with its first frame.
    let evidence = stream.peer_cred().map_or(Evidence::None, |cred| Evidence::PeerUid(cred.uid()));
    let (sink, lines) = Framed::new(stream, LinesCodec::new_with_max_length(MAX_FRAME_BYTES)).split();
    let heard = lines.take_while(|line| ready(!is_broken(line))).map(|line| match line {
        Ok(line) => ClientInput::Frame(line),
        Err(LinesCodecError::MaxLineLengthExceeded) => ClientInput::TooLarge(MAX_FRAME_BYTES),
        Err(LinesCodecError::Io(_)) => ClientInput::NotUtf8,
    });
    let said = sink.with_flat_map(|said| {
        futures::stream::iter(match said {
            ClientOutput::Frame(line) => Some(Ok::<_, LinesCodecError>(line)),
            ClientOutput::Ping | ClientOutput::Close(_) => None,
        })
    });
    let terms = ClientTerms {
        evidence,
        prove: None,
        surface: Surface::Local,
        shape: Shape::Plain,
        // Only its own process can open this socket, so there is no silence to guard against.
        session: None,
        idle: None,
        pace: None,
    };
    connection::run(heard, said, terms, engine, stop).await;
}

/// Returns true if the connection cannot be used further. A line that is not UTF-8 is the client's mistake.
fn is_broken(line: &Result<String, LinesCodecError>) -> bool {
    matches!(line, Err(LinesCodecError::Io(error)) if error.kind() != io::ErrorKind::InvalidData)
}

async fn accept_client(
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine that ends while it starts would otherwise take clients along that have already found it.
    #[tokio::test]
    async fn the_socket_is_found_only_when_it_is_opened() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("control.sock");
        std::fs::write(&path, "of an engine that was killed").expect("writes");
        let control = Control::bind(&path).expect("binds");
        assert!(!path.exists());
        let open = control.open_socket().expect("opens");
        UnixStream::connect(&path).await.expect("is there");
        assert_eq!(std::fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o600);
        let names: Vec<_> = dir.path().read_dir().expect("reads").collect();
        assert_eq!(names.len(), 1, "{names:?}");
        drop(open);
    }
}
