//! Requests to a server of this machine, over its Unix socket. They need no permit: the path is the caller's, and no byte
//! leaves the machine.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use crate::proxy::{HEAD_MIN, HEADERS_MAX};

/// Size of an answer's head, in bytes.
const HEAD_BYTES: usize = 32 * 1024;

/// The reason why a local server was not asked, or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// Nothing can be connected to.
    #[error("the socket {} cannot be used: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It belongs to another user, who would see the requests.
    #[error("the socket {} belongs to user {owner}", path.display())]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// The user.
        owner: u32,
    },
    /// The request or the answer broke off, or is not HTTP.
    #[error("the server at {} did not answer: {source}", path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// The error of the library.
        source: hyper::Error,
    },
    /// The answer did not begin in time.
    #[error("the server at {} did not answer in time", path.display())]
    Slow {
        /// The socket.
        path: PathBuf,
    },
}

/// An answer, and the connection that carries its body.
#[derive(Debug)]
pub struct LocalAnswer {
    /// The answer.
    pub response: Response<Incoming>,
    /// Dropping it cuts the connection.
    pub connection: LocalConnection,
}

/// A connection to a local server. Dropping it cuts it.
#[derive(Debug)]
pub struct LocalConnection(JoinHandle<()>);

impl Drop for LocalConnection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The Unix socket of a local server.
#[derive(Clone, Debug)]
pub struct LocalServer {
    path: PathBuf,
}

impl LocalServer {
    /// Names a socket; nothing is connected to.
    pub const fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the socket is there and is root's or this user's own.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn check_socket(&self) -> Result<(), LocalError> {
        let failed = |source| LocalError::Connect { path: self.path.clone(), source };
        let found = std::fs::metadata(&self.path).map_err(failed)?;
        if !found.file_type().is_socket() {
            return Err(failed(io::Error::other("it is no socket")));
        }
        self.check_owner(found.uid())
    }

    fn check_owner(&self, owner: u32) -> Result<(), LocalError> {
        if owner == 0 || owner == nix::unistd::geteuid().as_raw() {
            Ok(())
        } else {
            Err(LocalError::Foreign { path: self.path.clone(), owner })
        }
    }

    /// Sends one request on a connection of its own. The answer's head must come within `limit`.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, is another user's, or does not answer.
    pub async fn send_request<B>(
        &self,
        request: Request<B>,
        limit: Duration,
    ) -> Result<LocalAnswer, LocalError>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let failed = |source| LocalError::Connect { path: self.path.clone(), source };
        let broken = |source| LocalError::Answer { path: self.path.clone(), source };
        let asking = async {
            let stream = UnixStream::connect(&self.path).await.map_err(failed)?;
            // The kernel's word on who listens: the path may have been another's since it was checked.
            let owner = stream.peer_cred().map_err(failed)?.uid();
            self.check_owner(owner)?;
            let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
                .max_buf_size(HEAD_BYTES.max(HEAD_MIN))
                .max_headers(HEADERS_MAX)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(broken)?;
            let connection = LocalConnection(tokio::spawn(async move {
                // The reader of the answer sees a connection that broke off.
                let _ended = connection.await;
            }));
            let response = sender.send_request(request).await.map_err(broken)?;
            Ok(LocalAnswer { response, connection })
        };
        let slow = |_elapsed| Err(LocalError::Slow { path: self.path.clone() });
        tokio::time::timeout(limit, asking).await.unwrap_or_else(slow)
    }
}
