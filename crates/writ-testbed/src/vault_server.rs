//! A scripted vault server: logins and version 2 of the key-value engine, on a loopback port, as its documents say.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The most requests in the record.
const MAX_KEPT: usize = 1_000;

/// The content and state of the server.
#[derive(Clone, Debug, Default)]
pub struct VaultScript {
    /// Tokens that it takes.
    pub tokens: Vec<String>,
    /// A role and its secret, and the token that they are given.
    pub app_role: Option<(String, String, String)>,
    /// Secrets by `mount/path`.
    pub secrets: BTreeMap<String, Value>,
    /// True if it is sealed.
    pub sealed: bool,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct VaultServer {
    address: SocketAddr,
    shared: Arc<VaultServerState>,
    running: JoinHandle<()>,
}

#[derive(Debug)]
struct VaultServerState {
    script: VaultScript,
    seen: Mutex<Vec<String>>,
}

impl VaultServer {
    /// Starts a server on a free loopback port.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn start(script: VaultScript) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(VaultServerState { script, seen: Mutex::default() });
        let router = Router::new()
            .route("/v1/auth/token/lookup-self", get(lookup))
            .route("/v1/auth/approle/login", post(login))
            .route("/v1/{mount}/data/{*path}", get(read))
            .with_state(Arc::clone(&shared));
        let running = tokio::spawn(async move {
            if axum::serve(listener, router).await.is_err() {
                // The listener is closed; clients notice that themselves.
            }
        });
        Ok(Self { address, shared, running })
    }

    /// Its address.
    pub fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lists the requests, in order: `lookup`, `login`, or `read MOUNT/PATH`.
    pub fn seen_requests(&self) -> Vec<String> {
        self.shared.seen().clone()
    }
}

impl Drop for VaultServer {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl VaultServerState {
    fn seen(&self) -> MutexGuard<'_, Vec<String>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: String) {
        let mut seen = self.seen();
        if seen.len() < MAX_KEPT {
            seen.push(what);
        }
    }

    fn refused(&self, headers: &HeaderMap) -> Option<Response> {
        if self.script.sealed {
            return Some(errors(StatusCode::SERVICE_UNAVAILABLE, &["Vault is sealed"]));
        }
        let given = headers.get("x-vault-token").and_then(|token| token.to_str().ok()).unwrap_or_default();
        let role = self.script.app_role.as_ref().map(|(_, _, token)| token);
        let known = self.script.tokens.iter().chain(role).any(|token| token == given);
        (!known).then(|| errors(StatusCode::FORBIDDEN, &["permission denied"]))
    }
}

fn errors(status: StatusCode, texts: &[&str]) -> Response {
    (status, axum::Json(json!({ "errors": texts }))).into_response()
}

async fn lookup(State(shared): State<Arc<VaultServerState>>, headers: HeaderMap) -> Response {
    shared.note("lookup".to_owned());
    shared.refused(&headers).unwrap_or_else(|| axum::Json(json!({ "data": { "ttl": 3600 } })).into_response())
}

async fn login(State(shared): State<Arc<VaultServerState>>, body: Bytes) -> Response {
    shared.note("login".to_owned());
    if shared.script.sealed {
        return errors(StatusCode::SERVICE_UNAVAILABLE, &["Vault is sealed"]);
    }
    let given: Value = serde_json::from_slice(&body).unwrap_or_default();
    let fits = |(role, secret, _): &&(String, String, String)| {
        given["role_id"] == role.as_str() && given["secret_id"] == secret.as_str()
    };
    match shared.script.app_role.as_ref().filter(fits) {
        Some((_, _, token)) => {
            let auth = json!({ "client_token": token, "lease_duration": 1200, "renewable": true });
            axum::Json(json!({ "auth": auth, "data": null })).into_response()
        }
        None => errors(StatusCode::BAD_REQUEST, &["invalid role or secret ID"]),
    }
}

async fn read(
    State(shared): State<Arc<VaultServerState>>,
    Path((mount, path)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let name = format!("{mount}/{path}");
    shared.note(format!("read {name}"));
    if let Some(refused) = shared.refused(&headers) {
        return refused;
    }
    match shared.script.secrets.get(&name) {
        Some(fields) => {
            let metadata = json!({ "version": 1, "destroyed": false, "deletion_time": "" });
            axum::Json(json!({ "data": { "data": fields, "metadata": metadata } })).into_response()
        }
        None => errors(StatusCode::NOT_FOUND, &[]),
    }
}
