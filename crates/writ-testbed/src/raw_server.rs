//! A server that answers each request with given bytes, for answers that no well-behaved server of ours would send.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The largest head of a request, in bytes.
const MAX_HEAD: usize = 64 * 1024;
/// The largest body of a request, in bytes: Anthropic's own limit.
const MAX_BODY: usize = 32 * 1024 * 1024;

/// One answer, as it goes over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The headers, beside those that frame the body.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The most bytes of the body in one HTTP chunk.
    pub chunk: usize,
    /// Breaks the connection off after the body, without the end of it that HTTP demands.
    pub cut: bool,
}

/// One request, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRequest {
    /// The path, with its query.
    pub path: String,
    /// The body; null if it is no JSON.
    pub body: Value,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct RawServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<RawRequest>>>,
    running: JoinHandle<()>,
}

impl RawServer {
    /// Starts a server on a free loopback port that gives each request this answer.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn start(answer: RawAnswer) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&requests);
        let running = tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let request = read_request(&mut connection).await;
                let Ok(request) = request else { continue };
                received.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                if write_answer(&mut connection, &answer).await.is_err() {
                    // The client had enough: what it makes of it is for the test to say.
                }
            }
        });
        Ok(Self { address, requests, running })
    }

    /// Returns its address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every request so far, oldest first.
    pub fn requests(&self) -> Vec<RawRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn read_request(connection: &mut (impl tokio::io::AsyncRead + Unpin)) -> io::Result<RawRequest> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD {
            return Err(invalid());
        }
        head.push(connection.read_u8().await?);
    }
    let head = String::from_utf8(head).map_err(|_| invalid())?;
    let path = head.split(' ').nth(1).ok_or_else(invalid)?.to_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.filter(|length| *length <= MAX_BODY).ok_or_else(invalid)?;
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await?;
    Ok(RawRequest { path, body: serde_json::from_slice(&body).unwrap_or_default() })
}

async fn write_answer(
    connection: &mut (impl tokio::io::AsyncWrite + Unpin),
    answer: &RawAnswer,
) -> io::Result<()> {
    let mut head =
        format!("HTTP/1.1 {} Scripted\r\nconnection: close\r\ntransfer-encoding: chunked\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    connection.write_all(head.as_bytes()).await?;
    for chunk in answer.body.chunks(answer.chunk.max(1)) {
        connection.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await?;
        connection.write_all(chunk).await?;
        connection.write_all(b"\r\n").await?;
        connection.flush().await?;
    }
    if !answer.cut {
        connection.write_all(b"0\r\n\r\n").await?;
    }
    connection.shutdown().await
}
