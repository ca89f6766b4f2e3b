//! The listening socket of a sandbox: its own programs connect to it, and nothing else can.

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::TcpListener;

use crate::connect::Stream;

/// The listening socket of a sandbox, for a server that answers its programs itself and connects them to no host.
#[derive(Debug)]
pub struct SandboxListener(TcpListener);

impl SandboxListener {
    /// Takes a socket that a sandbox has handed out.
    ///
    /// # Errors
    ///
    /// If it is no listening socket, or the runtime cannot watch it.
    pub fn from_socket(socket: OwnedFd) -> io::Result<Self> {
        listener_of(socket).map(Self)
    }

    /// Waits for the next connection of a program.
    ///
    /// # Errors
    ///
    /// If it had left already, or descriptors are short.
    pub async fn accept_stream(&self) -> io::Result<Stream> {
        self.0.accept().await.map(|(stream, _)| stream)
    }
}

/// Makes a listener of a socket that a sandbox has handed out.
pub(crate) fn listener_of(socket: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
