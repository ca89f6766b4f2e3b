//! A WebSocket client of the server.

#![expect(
    clippy::disallowed_types,
    reason = "a build tool is a client of the server that it soaks and measures"
)]

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::link::Numbered;
use task_process::Ended;

/// Longer than a server may take to answer a handshake.
const PATIENCE: Duration = Duration::from_secs(30);
/// The buffer of a client that reads slowly, in bytes: the least that the system allows.
const SMALL: u32 = 2_048;

/// The address and token of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) token: String,
}

impl Server {
    /// Asks for something over HTTP; the status and the body of the answer.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<(u16, Value)> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: localhost:{}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.port,
            self.token,
            body.len()
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.map_err(|_| gone())?;
        stream.write_all(request.as_bytes()).await.map_err(|_| gone())?;
        let mut answer = Vec::new();
        let reading = timeout(PATIENCE, stream.read_to_end(&mut answer));
        reading.await.context("the server does not answer")?.map_err(|_| gone())?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(gone)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.context("an answer without a status")?, serde_json::from_str(body).unwrap_or_default()))
    }
}

/// A port of loopback that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// A connection. Every call fails with [`Ended`] once the server has stopped.
#[derive(Debug)]
pub(crate) struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    /// Connects. What the server has to say to a client with a small buffer waits in the server.
    pub(crate) async fn open(server: &Server, path: &str, small: bool) -> Result<Self> {
        let mut request = format!("ws://localhost:{}{path}", server.port).into_client_request()?;
        let bearer = format!("Bearer {}", server.token).parse()?;
        request.headers_mut().insert("authorization", bearer);
        let socket = TcpSocket::new_v4()?;
        if small {
            socket.set_recv_buffer_size(SMALL)?;
        }
        let stream = socket.connect(([127, 0, 0, 1], server.port).into()).await.map_err(|_| gone())?;
        stream.set_nodelay(true)?;
        let opening = timeout(PATIENCE, client_async(request, stream));
        match opening.await.context("the server does not answer a handshake")? {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(Error::Http(answer)) => bail!("the server answers a handshake with {}", answer.status()),
            Err(_) => Err(gone()),
        }
    }

    /// Says something.
    pub(crate) async fn send(&mut self, frame: &Value) -> Result<()> {
        self.0.send(Message::text(frame.to_string())).await.map_err(|_| gone())
    }

    /// Receives the next frame.
    pub(crate) async fn receive(&mut self) -> Result<Numbered> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => {
                    let frame: Value = serde_json::from_str(&text)?;
                    let seq = frame.get("seq").and_then(Value::as_u64).context("a frame without a number")?;
                    return Ok(Numbered { seq, frame });
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Binary(_) | Message::Frame(_))) => bail!("a frame is no text"),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(gone()),
            }
        }
    }

    /// Breaks off without a word.
    pub(crate) fn break_off(self) -> Result<()> {
        // The system sends a reset instead of an end.
        self.0.get_ref().set_zero_linger()?;
        Ok(())
    }
}

fn gone() -> anyhow::Error {
    anyhow::Error::new(Ended("the server".to_owned()))
}
