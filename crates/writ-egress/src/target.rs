//! Connections for the operations of the fleet: to the databases, mail servers and APIs that the owner's
//! configuration names. The performer of the operation consumes the permit; its agent
//! chooses neither host nor address.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use rustls::pki_types::ServerName;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::deliver::{Endpoint, read_retry_after};
use crate::error::{EgressError, Fault};
use crate::host::HostPort;
use crate::line::{HostRoute, LineLimits, MAX_CONNECTIONS, Way, connect_secure};
use crate::perform::Egress;

/// The most bytes that a request to an API may send, headers and TLS included.
const MAX_REQUEST_BYTES: u64 = 1024 * 1024;
/// The room for headers and TLS besides the body of an answer.
const OVERHEAD_BYTES: u64 = 256 * 1024;

/// The place of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPlace {
    /// A host and a port.
    Host(HostPort),
    /// A Unix socket.
    Socket(PathBuf),
}

/// The reason why there is no connection to a server.
#[derive(Debug, thiserror::Error)]
pub enum TargetFault {
    /// The host was not reached.
    #[error(transparent)]
    Host(#[from] Fault),
    /// The Unix socket was not reached.
    #[error("the socket does not answer: {0}")]
    Socket(#[source] io::Error),
    /// The server's certificate, or its TLS, is none.
    #[error("no TLS with the server: {0}")]
    Tls(#[source] io::Error),
    /// It took too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// Anything that a connection reads and writes.
trait Duplex: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Duplex for T {}

/// A connection to a server, with a bound on what comes in.
pub struct TargetStream {
    inner: Box<dyn Duplex>,
    incoming: IncomingBytes,
}

/// The bytes that may still come in on a connection. Reading fails when they are used up.
#[derive(Clone, Debug)]
pub struct IncomingBytes(Arc<AtomicU64>);

impl IncomingBytes {
    /// Allows so many bytes from here on.
    pub fn allow_bytes(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    fn take_bytes(&self, count: usize) -> io::Result<()> {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(count));
        taken.map(|_| ()).map_err(|_| io::Error::other("the server sends more than it may"))
    }
}

impl TargetStream {
    fn new(inner: impl Duplex + 'static) -> Self {
        Self { inner: Box::new(inner), incoming: IncomingBytes(Arc::new(AtomicU64::new(OVERHEAD_BYTES))) }
    }

    /// The bound on what comes in: a quarter of a megabyte until more is allowed.
    pub fn incoming_bytes(&self) -> IncomingBytes {
        self.incoming.clone()
    }
}

impl fmt::Debug for TargetStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TargetStream").finish_non_exhaustive()
    }
}

impl AsyncRead for TargetStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = &polled {
            let count = buf.filled().len().saturating_sub(before);
            return Poll::Ready(self.incoming.take_bytes(count));
        }
        polled
    }
}

impl AsyncWrite for TargetStream {
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

/// A request to an API of the owner's.
#[derive(Debug)]
pub struct ApiRequest {
    /// The method.
    pub method: &'static str,
    /// The segments of the path below the API's address; each stays one, with any content.
    pub segments: Vec<String>,
    /// The query.
    pub query: Vec<(String, String)>,
    /// Headers with secret values.
    pub headers: Vec<(String, SecretString)>,
    /// The JSON of the body.
    pub body: Option<Vec<u8>>,
}

/// The answer of an API.
#[derive(Debug)]
pub struct ApiAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
    /// The time for which it asks not to be called again, five minutes at most.
    pub retry_after: Option<Duration>,
}

/// The reason why an API gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ApiFailure {
    /// Nothing was sent.
    #[error("{0}")]
    NotSent(String),
    /// The request may have arrived.
    #[error("{0}")]
    Unanswered(String),
}

/// Does what [`Egress::connect_target`] says.
pub(crate) async fn connect_target(
    egress: &Egress,
    place: &TargetPlace,
    limit: Duration,
) -> Result<TargetStream, TargetFault> {
    match place {
        TargetPlace::Host(host) => {
            let way = Way { host: host.clone(), place: HostRoute::Named };
            let stream = connect_secure(&way, &egress.proxy_routes(), limit).await?;
            Ok(TargetStream::new(stream))
        }
        TargetPlace::Socket(path) => connect_socket(path, limit).await,
    }
}

/// Does what [`Egress::secure_target`] says.
pub(crate) async fn secure_target(
    egress: &Egress,
    stream: TargetStream,
    host: &str,
    limit: Duration,
) -> Result<TargetStream, TargetFault> {
    let name =
        ServerName::try_from(host.to_owned()).map_err(|why| TargetFault::Tls(io::Error::other(why)))?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(egress.tls_config()));
    let opening = tokio::time::timeout(limit, connector.connect(name, stream)).await;
    let secure = opening.map_err(|_| TargetFault::Timeout(limit))?.map_err(TargetFault::Tls)?;
    Ok(TargetStream::new(secure))
}

/// Does what [`Egress::call_api`] says.
pub(crate) async fn call_api(
    egress: &Egress,
    at: &Endpoint,
    request: ApiRequest,
    max_answer: usize,
    limit: Duration,
) -> Result<ApiAnswer, ApiFailure> {
    let not_sent = |what: &str| ApiFailure::NotSent(what.to_owned());
    let (url, host) = at.request_parts();
    let url = extend_url(url, &request).ok_or_else(|| not_sent("the request has no address"))?;
    let method: Method = request.method.parse().map_err(|_| not_sent("the method is none"))?;
    let mut headers = Vec::new();
    for (name, value) in &request.headers {
        let name: HeaderName = name.parse().map_err(|_| not_sent("a header has no name"))?;
        let value = HeaderValue::from_str(value.expose_secret());
        let mut value =
            value.map_err(|_| not_sent("the credential holds characters that no header may hold"))?;
        // Marked, so that the HTTP client never writes it into a log or an error.
        value.set_sensitive(true);
        headers.push((name, value));
    }
    let received = u64::try_from(max_answer).unwrap_or(u64::MAX).saturating_add(OVERHEAD_BYTES);
    // Connecting has half of the time, so that its end is known to have sent nothing.
    let limits =
        LineLimits { connect: limit / 2, sent: MAX_REQUEST_BYTES, received, connections: MAX_CONNECTIONS };
    let body = request.body;
    let calling = egress.lend_client(Way { host, place: HostRoute::Named }, limits, async move |lent| {
        let mut request = lent.client.request(method, url);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        let retry_after = read_retry_after(answer.headers());
        Ok::<_, reqwest::Error>(ApiAnswer { status, body: answer.bytes().await?.to_vec(), retry_after })
    });
    let unanswered = || ApiFailure::Unanswered(format!("no answer within {limit:?}"));
    let called = tokio::time::timeout(limit, calling).await.map_err(|_| unanswered())?;
    let answer = called.map_err(classify_failure)?;
    // The library's message can repeat the address, in which values stand.
    let answer =
        answer.map_err(|_| ApiFailure::Unanswered("the connection broke before the answer".to_owned()))?;
    if answer.body.len() > max_answer {
        return Err(ApiFailure::Unanswered("the answer is too long".to_owned()));
    }
    Ok(answer)
}

/// Sorts failures of the way: before anything was sent, or perhaps after.
fn classify_failure(error: EgressError) -> ApiFailure {
    let text = error.to_string();
    match error {
        EgressError::Line(Fault::TooMuchReceived { .. } | Fault::TooMuchSent { .. }) => {
            ApiFailure::Unanswered(text)
        }
        EgressError::Line(
            Fault::Unresolved { .. }
            | Fault::Unreachable { .. }
            | Fault::Proxy { .. }
            | Fault::Certificate { .. }
            | Fault::ConnectTimeout { .. },
        )
        | EgressError::Expired(_)
        | EgressError::NotOutbound(_)
        | EgressError::InvalidHost(_)
        | EgressError::Socket(_)
        | EgressError::Client(_)
        | EgressError::Tls(_) => ApiFailure::NotSent(text),
    }
}

/// The address of a request: every segment and every value is encoded, so that none becomes two.
fn extend_url(mut url: Url, request: &ApiRequest) -> Option<Url> {
    // The library would drop them, and the request would go to another place.
    let is_dots = |segment: &String| matches!(segment.as_str(), "." | "..");
    if request.segments.iter().any(is_dots) {
        return None;
    }
    url.path_segments_mut().ok()?.pop_if_empty().extend(&request.segments);
    if !request.query.is_empty() {
        url.query_pairs_mut().extend_pairs(&request.query);
    }
    Some(url)
}

async fn connect_socket(path: &Path, limit: Duration) -> Result<TargetStream, TargetFault> {
    let connecting = tokio::time::timeout(limit, tokio::net::UnixStream::connect(path)).await;
    let stream = connecting.map_err(|_| TargetFault::Timeout(limit))?.map_err(TargetFault::Socket)?;
    Ok(TargetStream::new(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(segments: &[&str], query: &[(&str, &str)]) -> ApiRequest {
        ApiRequest {
            method: "GET",
            segments: segments.iter().map(|one| (*one).to_owned()).collect(),
            query: query.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
            headers: Vec::new(),
            body: None,
        }
    }

    fn url(segments: &[&str], query: &[(&str, &str)]) -> Option<String> {
        let base = "https://api.example/base".parse().expect("a URL");
        extend_url(base, &request(segments, query)).map(|url| url.to_string())
    }

    #[test]
    fn a_value_stays_one_segment_and_one_value_of_the_query() {
        assert_eq!(
            url(&["v1", "a/b?c#d%2f", ""], &[("k", "1&x=2\r\n")]).as_deref(),
            Some("https://api.example/base/v1/a%2Fb%3Fc%23d%252f/?k=1%26x%3D2%0D%0A")
        );
        assert_eq!(url(&["v1", "%2e%2e"], &[]).as_deref(), Some("https://api.example/base/v1/%252e%252e"));
        for dots in [".", ".."] {
            assert_eq!(url(&["v1", dots], &[]), None, "{dots}");
        }
    }
}
