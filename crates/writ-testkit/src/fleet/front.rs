//! A front end: one request over a Unix socket, as a shop's own server would send it.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// The longest answer, in bytes.
const MAX_ANSWER_BYTES: u64 = 4 * 1024 * 1024;
/// The time in which an answer must come.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// An answer over HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontAnswer {
    /// The status.
    pub status: u16,
    /// The body; null if it is no JSON.
    pub body: Value,
}

/// Sends one request on a connection of its own.
///
/// # Errors
///
/// If the server cannot be reached, or its answer is none.
pub async fn send_request(
    socket: &Path,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> io::Result<FrontAnswer> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("\r\n{body}"));
    let exchange = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    let answer = tokio::time::timeout(ANSWER_TIME, exchange)
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    read_answer(&String::from_utf8_lossy(&answer)).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn read_answer(text: &str) -> Option<FrontAnswer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some(FrontAnswer { status, body: serde_json::from_str(body).unwrap_or(Value::Null) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_answer_is_none() {
        let whole = "HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(read_answer(whole), Some(FrontAnswer { status: 201, body: serde_json::json!({}) }));
        for half in ["", "HTTP/1.1 2", "HTTP/1.1 200 OK\r\n", "SMTP 200\r\n\r\n"] {
            assert_eq!(read_answer(half), None, "{half}");
        }
    }
}
