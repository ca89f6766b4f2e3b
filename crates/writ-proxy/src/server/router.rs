//! The paths for the router of cases. Each request shows the token of this socket.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{FromRef, Path, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;
use writ_store::error::{Conflict, StoreError};
use writ_types::unit::Timestamp;

use crate::error::ProxyError;
use crate::proxy::Proxy;

/// The largest body, in bytes.
const MAX_BODY_BYTES: usize = 512 * 1024;

/// A case to open.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseRequest {
    customer: String,
    case: String,
    tenant: Option<String>,
    #[serde(default)]
    known: BTreeMap<String, Vec<String>>,
}

/// A text of a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseText {
    text: String,
}

/// Keys to revoke, by their revocation ids.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeysToRevoke {
    ids: Vec<String>,
    /// When they would have ended anyway.
    expires: Option<String>,
}

/// What the routes share.
#[derive(Clone)]
struct RouterState {
    proxy: Proxy,
    /// The end of the server, at which no one waits for events any more.
    stop: CancellationToken,
}

impl FromRef<RouterState> for Proxy {
    fn from_ref(state: &RouterState) -> Self {
        state.proxy.clone()
    }
}

/// Returns the routes of the router.
pub(super) fn build_routes(proxy: Proxy, token: SecretString, stop: CancellationToken) -> Router {
    let admission = middleware::from_fn(move |request, next| admit_router(token.clone(), request, next));
    Router::new()
        .route("/v1/cases", post(open_case))
        .route("/v1/cases/{token}", delete(close_case))
        .route("/v1/cases/{token}/mask", post(mask_text))
        .route("/v1/cases/{token}/restore", post(restore_text))
        .route("/v1/events", get(read_events))
        .route("/v1/revocations", post(revoke_keys))
        .route("/v1/operations/reload", post(reload_declared))
        .layer(admission)
        .with_state(RouterState { proxy, stop })
}

fn refuse_with(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}

async fn admit_router(token: SecretString, request: Request, next: Next) -> Response {
    let shown = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = shown.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    // Compared in constant time, though only its own user can connect.
    if bool::from(shown.as_bytes().ct_eq(token.expose_secret().as_bytes())) {
        next.run(request).await
    } else {
        refuse_with(StatusCode::UNAUTHORIZED, "the token of this socket is needed")
    }
}

async fn read<T: DeserializeOwned>(request: Request) -> Result<T, Response> {
    let bytes = to_bytes(request.into_body(), MAX_BODY_BYTES).await;
    let bytes = bytes.map_err(|_| refuse_with(StatusCode::UNPROCESSABLE_ENTITY, "the body is too large"))?;
    serde_json::from_slice(&bytes).map_err(|error| {
        refuse_with(StatusCode::UNPROCESSABLE_ENTITY, &format!("the body is malformed: {error}"))
    })
}

async fn open_case(State(proxy): State<Proxy>, request: Request) -> Response {
    let wanted: CaseRequest = match read(request).await {
        Ok(wanted) => wanted,
        Err(refused) => return refused,
    };
    let CaseRequest { customer, case, tenant, known } = wanted;
    let opened = proxy.open_case(tenant.as_deref(), &customer, &case, &known).await;
    respond_with(StatusCode::CREATED, opened.map(|tokens| json!(tokens)))
}

async fn close_case(State(proxy): State<Proxy>, Path(token): Path<String>) -> Response {
    respond_with(StatusCode::OK, proxy.close_case(&token).await.map(|()| json!({})))
}

async fn mask_text(State(proxy): State<Proxy>, Path(token): Path<String>, request: Request) -> Response {
    let given: CaseText = match read(request).await {
        Ok(given) => given,
        Err(refused) => return refused,
    };
    let masked = proxy.mask_text(&token, &given.text).await;
    respond_with(StatusCode::OK, masked.map(|text| json!({ "text": text })))
}

async fn restore_text(State(proxy): State<Proxy>, Path(token): Path<String>, request: Request) -> Response {
    let given: CaseText = match read(request).await {
        Ok(given) => given,
        Err(refused) => return refused,
    };
    let restored = proxy.restore_text(&token, &given.text).await;
    respond_with(StatusCode::OK, restored.map(|text| json!({ "text": text })))
}

async fn read_events(State(state): State<RouterState>, uri: Uri) -> Response {
    let mut given = BTreeMap::from([("after", 0), ("wait", 0)]);
    for part in uri.query().unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
        let read = part.split_once('=').and_then(|(name, text)| Some((name, text.parse::<u64>().ok()?)));
        match read.and_then(|(name, number)| Some((given.get_mut(name)?, number))) {
            Some((place, number)) => *place = number,
            None => {
                let error = "after is the number of an event, and wait a number of seconds";
                return refuse_with(StatusCode::UNPROCESSABLE_ENTITY, error);
            }
        }
    }
    let number = |name| given.get(name).copied().unwrap_or_default();
    let page = tokio::select! {
        page = state.proxy.read_events(number("after"), Duration::from_secs(number("wait"))) => page,
        () = state.stop.cancelled() => return refuse_with(StatusCode::SERVICE_UNAVAILABLE, "the proxy ends"),
    };
    Json(page).into_response()
}

async fn revoke_keys(State(proxy): State<Proxy>, request: Request) -> Response {
    let wanted: KeysToRevoke = match read(request).await {
        Ok(wanted) => wanted,
        Err(refused) => return refused,
    };
    let expires = match wanted.expires.as_deref().map(Timestamp::from_rfc_3339) {
        Some(None) => return refuse_with(StatusCode::UNPROCESSABLE_ENTITY, "expires is no time"),
        Some(Some(at)) => Some(at),
        None => None,
    };
    respond_with(StatusCode::OK, proxy.revoke_keys(&wanted.ids, expires).await.map(|()| json!({})))
}

async fn reload_declared(State(proxy): State<Proxy>) -> Response {
    match proxy.reload_operations() {
        Ok(()) => respond_with(StatusCode::OK, Ok(json!({}))),
        Err(error) => refuse_with(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
    }
}

fn respond_with(status: StatusCode, done: Result<Value, ProxyError>) -> Response {
    let error = match done {
        Ok(body) => return (status, Json(body)).into_response(),
        Err(error) => error,
    };
    match &error {
        ProxyError::Store(StoreError::Conflict(Conflict::Missing { .. })) => {
            refuse_with(StatusCode::NOT_FOUND, "there is no such case")
        }
        ProxyError::Name(_) => refuse_with(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
        ProxyError::Store(_)
        | ProxyError::Door(_)
        | ProxyError::Seal(_)
        | ProxyError::Key(_)
        | ProxyError::Rules(_)
        | ProxyError::Operation { .. }
        | ProxyError::Listen { .. }
        | ProxyError::Certificate { .. } => {
            tracing::error!(%error, "a request of the router could not be served");
            refuse_with(StatusCode::SERVICE_UNAVAILABLE, "the store cannot be used")
        }
    }
}
