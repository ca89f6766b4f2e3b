//! `STARTTLS`, spoken before the mail library takes the connection over.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use writ_egress::target::TargetStream;

/// The longest line of an answer, in bytes (RFC 5321, section 4.5.3.1.5).
const MAX_LINE_BYTES: usize = 1_000;
/// The most lines of an answer.
const MAX_LINES: usize = 100;
/// The greeting that the library waits for, and that the server has sent before TLS.
const GREETING: &[u8] = b"220 writ.localhost\r\n";

/// A connection to a mail server.
#[derive(Debug)]
pub(crate) struct SmtpStream {
    /// Bytes that are read before those of the connection.
    first: &'static [u8],
    inner: TargetStream,
}

impl SmtpStream {
    /// A connection before the server's greeting.
    pub(crate) const fn plain(inner: TargetStream) -> Self {
        Self { first: b"", inner }
    }

    /// A connection after the server's greeting.
    pub(crate) const fn greeted(inner: TargetStream) -> Self {
        Self { first: GREETING, inner }
    }
}

/// Asks a server for TLS. It is read byte by byte: what a stranger adds in the clear is not taken for the server's.
pub(crate) async fn start_tls(mut stream: TargetStream, hello: &str) -> Result<TargetStream, String> {
    let (_, greeting) = read_answer(&mut stream).await?;
    if greeting != 220 {
        return Err(format!("the mail server does not greet (SMTP {greeting})"));
    }
    let write = |why: io::Error| format!("the mail server does not listen: {why}");
    stream.write_all(format!("EHLO {hello}\r\n").as_bytes()).await.map_err(write)?;
    let (lines, code) = read_answer(&mut stream).await?;
    if code != 250 || !lines.iter().any(|line| line.eq_ignore_ascii_case("STARTTLS")) {
        return Err("the mail server offers no STARTTLS".to_owned());
    }
    stream.write_all(b"STARTTLS\r\n").await.map_err(write)?;
    match read_answer(&mut stream).await? {
        (_, 220) => Ok(stream),
        (_, code) => Err(format!("the mail server refuses STARTTLS (SMTP {code})")),
    }
}

/// An answer's lines and its code.
async fn read_answer(stream: &mut TargetStream) -> Result<(Vec<String>, u16), String> {
    let mut lines = Vec::new();
    while lines.len() < MAX_LINES {
        let mut line = Vec::new();
        loop {
            let byte =
                stream.read_u8().await.map_err(|why| format!("the mail server does not answer: {why}"))?;
            if byte == b'\n' {
                break;
            }
            line.push(byte);
            if line.len() > MAX_LINE_BYTES {
                return Err("the mail server's answer has too long a line".to_owned());
            }
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        let code = line.get(..3).and_then(|code| code.parse().ok());
        let code: u16 = code.ok_or_else(|| "the mail server speaks no SMTP".to_owned())?;
        let is_last = !line.get(3..).is_some_and(|rest| rest.starts_with('-'));
        lines.push(line.get(4..).unwrap_or_default().to_owned());
        if is_last {
            return Ok((lines, code));
        }
    }
    Err("the mail server's answer has too many lines".to_owned())
}

impl AsyncTokioStream for SmtpStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        // Nothing is decided by it: the way out knows the address.
        Ok((Ipv4Addr::UNSPECIFIED, 0).into())
    }
}

impl AsyncRead for SmtpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let (now, later) = self.first.split_at(self.first.len().min(buf.remaining()));
        buf.put_slice(now);
        self.first = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SmtpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
