//! The host's side of an agent's ways out: accepts its connections, and passes its requests on to the two servers.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Either, Full, LengthLimitError, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use writ_egress::identity::ServerIdentity;
use writ_egress::local::{LocalAnswer, LocalConnection, LocalError, LocalServer};
use writ_sandbox::exec::Listener;

use crate::head::{self, Destination};
use crate::keys::AgentKeys;
use crate::names::TLS_PORT;
use crate::refusals::{RefusalReason, Refusals};

/// The most headers of one message.
const HEADERS_MAX: usize = 100;
/// The largest body of a request to the security proxy, in bytes: twice what it takes, so that it is the one to refuse most.
const PROXY_BODY_MAX: usize = 128 * 1024;
/// The time after a failed accept: descriptors are short until a connection ends.
const PAUSE: Duration = Duration::from_millis(100);

/// The bounds of an agent's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardLimits {
    /// Connections at once at each port; more wait to be accepted.
    pub connections: usize,
    /// Size of a request's head, in bytes.
    pub head: usize,
    /// Size of a request's body, in bytes.
    pub request: usize,
    /// Size of an answer's body, in bytes.
    pub answer: usize,
    /// The longest time of a greeting, of a request's head, of the body of a request to the proxy, and of a connection
    /// without a request.
    pub head_time: Duration,
    /// The longest time until a server's answer begins.
    pub answer_time: Duration,
    /// The longest time of a connection.
    pub total_time: Duration,
}

impl Default for ForwardLimits {
    fn default() -> Self {
        Self {
            connections: 64,
            head: 32 * 1024,
            // Prompts with pictures.
            request: 32 * 1024 * 1024,
            answer: 64 * 1024 * 1024,
            head_time: Duration::from_secs(10),
            // A model may think for minutes.
            answer_time: Duration::from_secs(10 * 60),
            total_time: Duration::from_secs(60 * 60),
        }
    }
}

/// The servers behind the names.
#[derive(Debug)]
pub struct Servers {
    /// The security proxy.
    pub proxy: LocalServer,
    /// The router of models; `None`: there is none, and requests for it are refused.
    pub router: Option<LocalServer>,
}

/// Passes the requests of one agent on.
#[derive(Debug)]
pub struct Forwarder {
    servers: Servers,
    keys: AgentKeys,
    identity: ServerIdentity,
    refusals: Arc<Refusals>,
    limits: ForwardLimits,
}

/// The body of an answer: our own, or a server's.
type AnswerBody = Either<Full<Bytes>, PassedBody>;

impl Forwarder {
    /// Makes the forwarder of an agent.
    pub const fn new(
        servers: Servers,
        keys: AgentKeys,
        identity: ServerIdentity,
        refusals: Arc<Refusals>,
        limits: ForwardLimits,
    ) -> Self {
        Self { servers, keys, identity, refusals, limits }
    }

    /// Accepts on a listener until `stop`; then every connection is cut.
    ///
    /// # Errors
    ///
    /// If the listener cannot be used.
    pub async fn serve_listener(
        self: Arc<Self>,
        listener: Listener,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let port = listener.port();
        let listener = std::net::TcpListener::from(OwnedFd::from(listener));
        listener.set_nonblocking(true)?;
        self.accept_on(TcpListener::from_std(listener)?, port, stop).await;
        Ok(())
    }

    /// Accepts as long as there is room.
    pub(crate) async fn accept_on(
        self: Arc<Self>,
        listener: TcpListener,
        port: u16,
        stop: CancellationToken,
    ) {
        let slots = Arc::new(Semaphore::new(self.limits.connections.max(1)));
        let tasks = TaskTracker::new();
        let accepting = async {
            loop {
                // Taken first: what has no room waits in the kernel's queue.
                let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
                let client = match listener.accept().await {
                    Ok((client, _)) => client,
                    Err(why) => {
                        tracing::warn!(%why, "an agent's connection could not be accepted");
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                };
                let (this, stop) = (Arc::clone(&self), stop.clone());
                tasks.spawn(async move {
                    let total = this.limits.total_time;
                    tokio::select! {
                        () = this.serve_client(client, port) => {}
                        () = tokio::time::sleep(total) => {}
                        () = stop.cancelled() => {}
                    }
                    drop(slot);
                });
            }
        };
        tokio::select! {
            () = accepting => {}
            () = stop.cancelled() => {}
        }
        // From here on the agent has no way out.
        drop(listener);
        tasks.close();
        tasks.wait().await;
    }

    async fn serve_client<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: &Arc<Self>,
        client: S,
        port: u16,
    ) {
        if port != TLS_PORT {
            return self.serve_requests(client, port).await;
        }
        match self.identity.greet_client(client, self.limits.head_time).await {
            Ok(client) => self.serve_requests(client, port).await,
            Err(why) => {
                tracing::debug!(%why, "an agent did not greet");
                self.refusals.count_refusal(RefusalReason::Handshake, port, None);
            }
        }
    }

    /// Serves the requests of one connection, one after the other.
    async fn serve_requests<S: AsyncRead + AsyncWrite + Unpin + Send>(
        self: &Arc<Self>,
        client: S,
        port: u16,
    ) {
        let service = service_fn(|request| {
            let this = Arc::clone(self);
            async move { Ok::<_, Infallible>(this.answer_request(request, port).await) }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_time)
            .max_buf_size(self.limits.head)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(client), service)
            .await;
        if let Err(why) = served {
            // The library has answered what it could not read.
            if why.is_parse() {
                self.refusals.count_refusal(RefusalReason::Malformed, port, None);
            } else if why.is_timeout() {
                self.refusals.count_refusal(RefusalReason::Slow, port, None);
            }
        }
    }

    async fn answer_request(&self, request: Request<Incoming>, port: u16) -> Response<AnswerBody> {
        let (mut head, body) = request.into_parts();
        let destination = match head::judge_head(&head, port) {
            Ok(destination) => destination,
            Err((reason, name)) => return self.refuse_request(reason, port, Some(&name)),
        };
        let name = Some(destination.name());
        // Refused before a byte of it is read.
        let declared =
            head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if declared.is_some_and(|length| length > self.limits.request) {
            return self.refuse_request(RefusalReason::TooLarge, port, name);
        }
        if head::rewrite_head(&mut head, destination) {
            self.refusals.count_refusal(RefusalReason::ForgedHeader, port, name);
        }
        // The proxy is everyone's: what an agent sends slowly waits here, and takes none of its connections meanwhile.
        let body = match destination {
            Destination::Router => Either::Right(Limited::new(body, self.limits.request)),
            Destination::Proxy => match self.read_whole(body).await {
                Ok(body) => Either::Left(Full::new(body)),
                Err(reason) => return self.refuse_request(reason, port, name),
            },
        };
        if let Err(why) = self.keys.sign_head(&mut head.headers) {
            tracing::warn!(%why, "an agent's request cannot be given its keys");
            return self.refuse_request(RefusalReason::NoKey, port, name);
        }
        let server = match destination {
            Destination::Proxy => Some(&self.servers.proxy),
            Destination::Router => self.servers.router.as_ref(),
        };
        // A home without a router still has its agents' proxy.
        let Some(server) = server else { return self.refuse_request(RefusalReason::Unreachable, port, name) };
        let request = Request::from_parts(head, body);
        match server.send_request(request, self.limits.answer_time).await {
            Ok(answer) => {
                self.pass_answer(answer).unwrap_or_else(|reason| self.refuse_request(reason, port, name))
            }
            Err(why) => {
                let reason = if is_too_large(&why) {
                    RefusalReason::TooLarge
                } else {
                    // The agent learns nothing about the host.
                    tracing::warn!(%why, "an agent's request was not answered");
                    RefusalReason::Unreachable
                };
                self.refuse_request(reason, port, name)
            }
        }
    }

    /// Reads the body of a request to the proxy, which is short.
    async fn read_whole(&self, body: Incoming) -> Result<Bytes, RefusalReason> {
        let read = Limited::new(body, self.limits.request.min(PROXY_BODY_MAX)).collect();
        match tokio::time::timeout(self.limits.head_time, read).await {
            Ok(Ok(read)) => Ok(read.to_bytes()),
            Ok(Err(why)) if why.is::<LengthLimitError>() => Err(RefusalReason::TooLarge),
            Ok(Err(_)) => Err(RefusalReason::Malformed),
            Err(_) => Err(RefusalReason::Slow),
        }
    }

    fn pass_answer(&self, answer: LocalAnswer) -> Result<Response<AnswerBody>, RefusalReason> {
        let (mut head, body) = answer.response.into_parts();
        // A length that is announced and not met would break the connection without a reason.
        if usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX) > self.limits.answer {
            return Err(RefusalReason::LongAnswer);
        }
        head::strip_hops(&mut head.headers);
        let body =
            PassedBody { body: Limited::new(body, self.limits.answer), _connection: answer.connection };
        Ok(Response::from_parts(head, Either::Right(body)))
    }

    /// Counts a refusal and answers it with its reason and nothing else.
    fn refuse_request(&self, reason: RefusalReason, port: u16, name: Option<&str>) -> Response<AnswerBody> {
        self.refusals.count_refusal(reason, port, name);
        // The name is not repeated: it is the agent's own word.
        let text = serde_json::json!({ "error": reason.as_str() }).to_string();
        let mut response = Response::new(Either::Left(Full::new(Bytes::from(text))));
        *response.status_mut() = status_of(reason);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

const fn status_of(reason: RefusalReason) -> StatusCode {
    match reason {
        RefusalReason::OtherName | RefusalReason::Plain => StatusCode::MISDIRECTED_REQUEST,
        RefusalReason::Tunnel | RefusalReason::Handshake => StatusCode::FORBIDDEN,
        RefusalReason::Malformed | RefusalReason::ForgedHeader => StatusCode::BAD_REQUEST,
        RefusalReason::NoKey => StatusCode::UNAUTHORIZED,
        RefusalReason::Slow => StatusCode::REQUEST_TIMEOUT,
        RefusalReason::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        RefusalReason::LongAnswer => StatusCode::BAD_GATEWAY,
        RefusalReason::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Returns true if a request broke off because its body is too large.
fn is_too_large(error: &LocalError) -> bool {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = source {
        if error.is::<LengthLimitError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// The body of a server's answer, with the connection that it comes over.
#[derive(Debug)]
struct PassedBody {
    body: Limited<Incoming>,
    _connection: LocalConnection,
}

impl Body for PassedBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
