//! A server of one page. It answers HTTP on persistent connections, and accepts the beginning of TLS without
//! speaking it.

#![expect(clippy::disallowed_types, reason = "a build tool serves what it measures on loopback")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use anyhow::Result;

/// Connections at once: all clients, and what proxies keep open beside.
const THREADS: usize = 128;
/// The stack of a thread that only copies, in bytes.
const STACK: usize = 256 * 1024;
/// Bytes of the page.
pub(super) const PAGE: usize = 1_024;
/// The byte that the page consists of.
const FILL: u8 = b'p';
/// The first byte of what is TLS, and how long the header of a record is.
const HANDSHAKE: u8 = 0x16;
const RECORD: usize = 5;
/// Longer than what anybody here says at once.
const MAX_HEAD: usize = 16 * 1024;

/// The server. It ends with this process.
#[derive(Debug)]
pub(super) struct Pages {
    port: u16,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    /// A request of so many bytes, and whether the connection ends with it.
    Request { bytes: usize, last: bool },
    /// The first record of a tunnel.
    Hello,
    /// Not all of it is there.
    Part,
}

impl Pages {
    /// Serves on a free port of loopback.
    pub(super) fn serve() -> Result<Self> {
        let listener = Arc::new(TcpListener::bind(("127.0.0.1", 0))?);
        let port = listener.local_addr()?.port();
        for _ in 0..THREADS {
            let listener = Arc::clone(&listener);
            std::thread::Builder::new().stack_size(STACK).spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    // Clients that leave early are measured elsewhere.
                    let _left = talk(stream);
                }
            })?;
        }
        Ok(Self { port })
    }

    /// Returns its port.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }
}

/// Answers all of a connection.
fn talk(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut said, mut step) = (Vec::new(), [0; 4_096]);
    loop {
        match asked(&said) {
            RequestKind::Request { bytes, last } => {
                said.drain(..bytes);
                stream.write_all(&answer(last))?;
                if last {
                    return Ok(());
                }
            }
            RequestKind::Hello => return stream.write_all(&page()),
            RequestKind::Part => {
                let count = stream.read(&mut step)?;
                if count == 0 || said.len() > MAX_HEAD {
                    return Ok(());
                }
                said.extend(step.iter().take(count));
            }
        }
    }
}

fn asked(said: &[u8]) -> RequestKind {
    if said.first() == Some(&HANDSHAKE) {
        let length = match said {
            [_, _, _, high, low, ..] => RECORD + usize::from(u16::from_be_bytes([*high, *low])),
            _ => return RequestKind::Part,
        };
        return if said.len() >= length { RequestKind::Hello } else { RequestKind::Part };
    }
    let Some(end) = said.windows(4).position(|part| part == b"\r\n\r\n") else { return RequestKind::Part };
    let head = String::from_utf8_lossy(said.get(..end).unwrap_or_default()).to_ascii_lowercase();
    RequestKind::Request { bytes: end + 4, last: head.lines().any(|line| line == "connection: close") }
}

fn answer(last: bool) -> Vec<u8> {
    let connection = if last { "Connection: close\r\n" } else { "" };
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {PAGE}\r\n{connection}\r\n");
    [head.into_bytes(), page()].concat()
}

/// The page.
pub(super) fn page() -> Vec<u8> {
    vec![FILL; PAGE]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_when_all_of_it_is_there() {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n";
        assert_eq!(asked(request), RequestKind::Request { bytes: request.len(), last: true });
        assert_eq!(asked(&request[..request.len() - 1]), RequestKind::Part);
        let two = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /";
        assert_eq!(asked(two), RequestKind::Request { bytes: two.len() - 5, last: false });
        assert_eq!(asked(&[0x16, 3, 1, 0, 2, 1]), RequestKind::Part);
        assert_eq!(asked(&[0x16, 3, 1, 0, 2, 1, 1]), RequestKind::Hello);
        assert_eq!((asked(&[0x16, 3]), asked(b"")), (RequestKind::Part, RequestKind::Part));
    }
}
