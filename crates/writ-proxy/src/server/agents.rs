//! The paths for agents.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};

use crate::proxy::{Peer, Proxy, ProxyAnswer, ProxyRequest};

/// The header with the base key.
pub(super) const BASE_KEY: &str = "writ-base-key";
/// The header with the task key.
pub(super) const TASK_KEY: &str = "writ-task-key";
/// The header with the name under which a request is performed once.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The largest body of a request, in bytes: parameters are short, and files are none.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// The time in which a body must come.
const BODY_TIMEOUT: Duration = Duration::from_secs(15);

/// The seconds after which an agent with too many requests under way may ask again.
const RETRY_SECS: u64 = 1;

/// Returns the routes of agents.
pub(super) fn build_routes(proxy: Proxy) -> Router {
    Router::new()
        .route("/v1/operations", get(list_granted))
        .route("/v1/operations/{name}", post(run_operation))
        .fallback(refuse_unknown)
        .method_not_allowed_fallback(refuse_method)
        .with_state(proxy)
}

async fn refuse_unknown(State(proxy): State<Proxy>, request: Request) -> Response {
    refuse_path(&proxy, request, StatusCode::NOT_FOUND, "there is no such path").await
}

async fn refuse_method(State(proxy): State<Proxy>, request: Request) -> Response {
    refuse_path(&proxy, request, StatusCode::METHOD_NOT_ALLOWED, "this path has another method").await
}

async fn refuse_path(proxy: &Proxy, request: Request, status: StatusCode, error: &str) -> Response {
    let (head, _) = request.into_parts();
    let path = head.uri.path().to_owned();
    let request = read_head(&head.headers, head.extensions.get().copied(), path, Ok(Vec::new()));
    send_answer(proxy.refuse_path(request, status.as_u16(), error).await)
}

async fn list_granted(State(proxy): State<Proxy>, request: Request) -> Response {
    let (head, _) = request.into_parts();
    let request = read_head(&head.headers, head.extensions.get().copied(), String::new(), Ok(Vec::new()));
    send_answer(proxy.list_operations(request).await)
}

async fn run_operation(
    State(proxy): State<Proxy>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    // What is no text names no operation.
    let name = name.map_or_else(|_| "?".to_owned(), |Path(name)| name);
    let (head, body) = request.into_parts();
    let request = read_head(&head.headers, head.extensions.get().copied(), name, Ok(Vec::new()));
    // Before the body is read: one that does not come takes no place of others.
    let answer = match proxy.admit(&request).await {
        Ok(admission) => {
            let request = ProxyRequest { body: read_body(body).await, ..request };
            proxy.operate_admitted(request, admission).await
        }
        Err(refused) => refused,
    };
    send_answer(answer)
}

fn read_head(
    headers: &HeaderMap,
    peer: Option<Peer>,
    operation: String,
    body: Result<Vec<u8>, String>,
) -> ProxyRequest {
    let once = only_value(headers, IDEMPOTENCY_KEY);
    ProxyRequest {
        peer: peer.unwrap_or(Peer::Remote),
        base: only_value(headers, BASE_KEY),
        task: only_value(headers, TASK_KEY),
        once,
        operation,
        body,
    }
}

/// Returns the value of a header. One that stands twice could be read either way, so it is worth nothing.
fn only_value(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    let text = match values.next() {
        Some(_) => String::new(),
        // What is no text is no key; it counts as shown, and is refused.
        None => first.to_str().unwrap_or_default().to_owned(),
    };
    Some(text)
}

async fn read_body(body: Body) -> Result<Vec<u8>, String> {
    let read = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await;
    match read {
        Ok(Ok(bytes)) => Ok(bytes.to_vec()),
        Ok(Err(_)) => Err(format!("the body could not be read; the limit is {MAX_BODY_BYTES} bytes")),
        Err(_) => Err("the body did not come in time".to_owned()),
    }
}

fn send_answer(answer: ProxyAnswer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(answer.body)).into_response();
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_SECS));
    }
    response
}
