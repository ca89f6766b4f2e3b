//! The server for the front end: HTTP/1.1 on a Unix socket that only its owner can open, and on loopback if that is wanted.
//! Each request shows the front end's token, and runs as a task of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::front_end::{FrontEndToken, TokenFile};
use super::router::CaseRouter;
use super::routes::{CaseAnswer, CaseCaller, CaseRoutes, MAX_BODY_BYTES};
use super::socket::{MAX_SOCKETS, open_socket};
use crate::accept::{Acceptor, LocalSocket, SocketError};

/// The most connections of each kind at once; one more waits until another ends.
pub const MAX_CONNECTIONS: usize = 1_024;
/// The time that the front end has to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The seconds after which a request may be tried again where something was away.
const RETRY_SECS: u64 = 2;

/// The places where the front end connects.
#[derive(Clone, Debug)]
pub struct CasePlaces {
    /// The Unix socket.
    pub socket: PathBuf,
    /// The address on loopback, if one is wanted.
    pub listen: Option<SocketAddr>,
    /// The file with the digest of the front end's token.
    pub token: TokenFile,
}

/// The sockets for the front end, open.
#[derive(Debug)]
pub struct CaseServer {
    local: LocalSocket,
    network: Option<TcpListener>,
    token: TokenFile,
}

/// What all requests share.
#[derive(Debug)]
pub(super) struct ServedCases {
    pub(super) routes: CaseRoutes,
    token: TokenFile,
    /// Requests that run, each to its end.
    work: TaskTracker,
    /// Places for WebSockets.
    pub(super) sockets: Arc<Semaphore>,
    pub(super) stop: CancellationToken,
}

impl CaseServer {
    /// Opens the sockets. The caller holds the home's lock.
    ///
    /// # Errors
    ///
    /// If a place cannot be used.
    pub async fn bind(places: CasePlaces) -> Result<Self, SocketError> {
        let CasePlaces { socket, listen, token } = places;
        let network = match listen {
            Some(address) => {
                let failed = |source| SocketError { place: address.to_string(), source };
                Some(TcpListener::bind(address).await.map_err(failed)?)
            }
            None => None,
        };
        Ok(Self { local: LocalSocket::bind(&socket)?, network, token })
    }

    /// Returns the address on loopback.
    pub fn address(&self) -> Option<SocketAddr> {
        self.network.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Serves the front end until `stop` is cancelled; then waits until every request has ended.
    pub async fn serve_front_end(self, router: CaseRouter, stop: CancellationToken) {
        let Self { local, network, token } = self;
        let shared = Arc::new(ServedCases {
            routes: CaseRoutes(router),
            token,
            work: TaskTracker::new(),
            sockets: Arc::new(Semaphore::new(MAX_SOCKETS)),
            stop: stop.clone(),
        });
        let routes = Router::new()
            .route("/cases/{id}/socket", get(answer_socket))
            .fallback(answer_plain)
            .with_state(Arc::clone(&shared));
        let service = TowerToHyperService::new(routes);
        let (near, far) =
            (Acceptor::with_room(MAX_CONNECTIONS, stop.clone()), Acceptor::with_room(MAX_CONNECTIONS, stop));
        let listening = async {
            if let Some(listener) = &network {
                let accept = || async {
                    let (stream, _) = listener.accept().await?;
                    // Messages are small and wanted at once.
                    let _ = stream.set_nodelay(true);
                    Ok(stream)
                };
                far.accept_connections(accept, service.clone()).await;
            }
        };
        tokio::join!(near.accept_connections(|| local.accept_stream(), service.clone()), listening);
        drop((local, network));
        near.wait_for_end().await;
        far.wait_for_end().await;
        shared.work.close();
        shared.work.wait().await;
    }
}

impl ServedCases {
    /// Answers a request as a task of its own, so that a client that goes away cuts nothing off.
    pub(super) async fn answer_whole(
        self: &Arc<Self>,
        (method, path): (String, String),
        query: Option<String>,
        body: Bytes,
    ) -> CaseAnswer {
        let routes = self.routes.clone();
        let work = self.work.spawn(async move {
            let asked = (method.as_str(), path.as_str());
            routes.answer_request(&CaseCaller::FrontEnd, asked, query.as_deref(), &body).await
        });
        work.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a request about a case was not carried through");
            CaseAnswer::refuse_with(500, "the request was not carried through")
        })
    }

    /// Returns the token that counts now.
    pub(super) fn current_token(&self) -> Option<FrontEndToken> {
        self.token.read_token()
    }

    /// Registers a WebSocket, for which the server waits at its end.
    pub(super) fn track_socket(&self) -> tokio_util::task::task_tracker::TaskTrackerToken {
        self.work.token()
    }

    /// Refuses who does not show the token of the front end. It is read anew, so that a new one counts at once.
    fn refuse_stranger(&self, headers: &HeaderMap) -> Option<Response> {
        let mut shown = headers.get_all(header::AUTHORIZATION).iter();
        // Two headers could be read as either.
        let shown = match (shown.next(), shown.next()) {
            (Some(shown), None) => shown.to_str().ok(),
            (_, _) => None,
        };
        let known = self.token.read_token();
        if known.is_some_and(|token| token.is_shown_in(shown)) {
            return None;
        }
        let why = "the token of the front end is needed; `writ fleet token` prints one";
        let mut response = json_response(&CaseAnswer::refuse_with(401, why));
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        Some(response)
    }
}

async fn answer_plain(State(shared): State<Arc<ServedCases>>, request: Request) -> Response {
    // Before the body is read: who proves nothing sends nothing.
    if let Some(refused) = shared.refuse_stranger(request.headers()) {
        return refused;
    }
    let (parts, body) = request.into_parts();
    let body = match read_body(body).await {
        Ok(body) => body,
        Err(refused) => return json_response(&refused),
    };
    let asked = (parts.method.as_str().to_owned(), parts.uri.path().to_owned());
    let answer = shared.answer_whole(asked, parts.uri.query().map(str::to_owned), body).await;
    json_response(&answer)
}

async fn answer_socket(
    State(shared): State<Arc<ServedCases>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    if let Some(refused) = shared.refuse_stranger(request.headers()) {
        return refused;
    }
    match open_socket(shared, &id, request).await {
        Ok(response) => response,
        Err(refused) => json_response(&refused),
    }
}

async fn read_body(body: Body) -> Result<Bytes, CaseAnswer> {
    let read = Limited::new(body, MAX_BODY_BYTES).collect();
    let read = tokio::time::timeout(BODY_TIMEOUT, read).await;
    let read = read.map_err(|_| CaseAnswer::refuse_with(408, "the body took too long; send it at once"))?;
    let read = read.map_err(|error| match error.is::<LengthLimitError>() {
        true => CaseAnswer::refuse_with(413, "the body is too large"),
        false => CaseAnswer::refuse_with(400, "the body broke off"),
    })?;
    Ok(read.to_bytes())
}

fn json_response(answer: &CaseAnswer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let mut response = (status, kind, answer.body.to_string()).into_response();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_SECS));
    }
    response
}
