//! A scripted search provider with the wire formats of Brave Search and Tavily on a loopback port, strict
//! about both.
//!
//! A request that the provider would not take is answered as it would, and recorded as a complaint.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The most requests in the record.
const MAX_KEPT: usize = 1_000;
/// The most results that the providers give at once.
const MAX_RESULTS: u64 = 20;
/// The longest query that Brave takes, in characters.
const MAX_QUERY_CHARS: usize = 400;

/// The answer of the provider to requests with its key.
#[derive(Clone, Debug)]
pub enum SearchAnswer {
    /// Hits: title, address and text of each.
    Hits(Vec<(String, String, String)>),
    /// A status, with the provider's own words about it.
    Status(u16),
    /// Any body with status 200.
    Body(String),
    /// A redirect to this address.
    Redirect(String),
    /// Nothing, for as long as the server runs.
    Silence,
}

/// A search as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSearch {
    /// `brave` or `tavily`.
    pub format: &'static str,
    /// The query.
    pub query: String,
    /// The requested number of results.
    pub max_results: u64,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct SearchServer {
    address: SocketAddr,
    shared: Arc<SearchServerState>,
    running: JoinHandle<()>,
}

#[derive(Debug)]
struct SearchServerState {
    key: String,
    kept: Mutex<SearchRecord>,
}

#[derive(Debug)]
struct SearchRecord {
    answer: SearchAnswer,
    seen: Vec<SeenSearch>,
    complaints: Vec<String>,
}

impl SearchServerState {
    fn kept(&self) -> MutexGuard<'_, SearchRecord> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complain(&self, why: &str) {
        let mut kept = self.kept();
        if kept.complaints.len() < MAX_KEPT {
            kept.complaints.push(why.to_owned());
        }
    }
}

impl SearchServer {
    /// Starts a server on a free loopback port, for those who have `key`.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn start(key: &str, answer: SearchAnswer) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let kept = Mutex::new(SearchRecord { answer, seen: Vec::new(), complaints: Vec::new() });
        let shared = Arc::new(SearchServerState { key: key.to_owned(), kept });
        let router = Router::new()
            .route("/res/v1/web/search", get(brave))
            .route("/search", post(tavily))
            .with_state(Arc::clone(&shared));
        let running = tokio::spawn(async move {
            if axum::serve(listener, router).await.is_err() {
                // The listener is closed; clients notice that themselves.
            }
        });
        Ok(Self { address, shared, running })
    }

    /// Returns the address of this provider: `brave` or `tavily`.
    pub fn base_url(&self, provider: &str) -> String {
        let path = if provider == "brave" { "res/v1/" } else { "" };
        format!("http://{}/{path}", self.address)
    }

    /// Sets the answer from now on.
    pub fn set_answer(&self, answer: SearchAnswer) {
        self.shared.kept().answer = answer;
    }

    /// Every search that had the key, in order.
    pub fn seen_searches(&self) -> Vec<SeenSearch> {
        self.shared.kept().seen.clone()
    }

    /// Lists the faults of all requests so far.
    pub fn complaints(&self) -> Vec<String> {
        self.shared.kept().complaints.clone()
    }
}

impl Drop for SearchServer {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn brave(State(shared): State<Arc<SearchServerState>>, uri: Uri, headers: HeaderMap) -> Response {
    if headers.get("x-subscription-token").is_none_or(|token| *token != shared.key) {
        shared.complain("brave: a wrong token");
        return brave_error(422, "SUBSCRIPTION_TOKEN_INVALID");
    }
    let (mut query, mut count, mut wrong) = (String::new(), MAX_RESULTS, Vec::new());
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        match name.as_ref() {
            "q" => query = value.into_owned(),
            "count" => count = value.parse().unwrap_or_default(),
            "text_decorations" if matches!(value.as_ref(), "true" | "false") => {}
            "result_filter" => {}
            other => wrong.push(format!("brave: '{other}' is '{value}'")),
        }
    }
    let chars = query.chars().count();
    if chars == 0 || chars > MAX_QUERY_CHARS || !(1..=MAX_RESULTS).contains(&count) || !wrong.is_empty() {
        shared.complain(&format!("brave: {chars} characters, {count} results, {wrong:?}"));
        return brave_error(422, "VALIDATION");
    }
    say(&shared, SeenSearch { format: "brave", query, max_results: count }, brave_error_of, |query, hits| {
        let results: Vec<Value> = hits
            .iter()
            .map(|(title, url, text)| json!({ "title": title, "url": url, "description": text, "language": "en" }))
            .collect();
        let web = (!hits.is_empty()).then(|| json!({ "type": "search", "results": results }));
        json!({ "type": "search", "query": { "original": query }, "web": web })
    })
    .await
}

fn brave_error(status: u16, code: &str) -> Response {
    let status_code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = json!({ "type": "ErrorResponse", "error": { "id": "0", "status": status, "code": code, "detail": code } });
    (status_code, axum::Json(body)).into_response()
}

fn brave_error_of(status: u16) -> Response {
    brave_error(status, if status == 429 { "RATE_LIMITED" } else { "INTERNAL" })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TavilyRequest {
    query: String,
    max_results: u64,
    #[serde(rename = "search_depth")]
    _search_depth: String,
    #[serde(rename = "include_answer")]
    _include_answer: bool,
    #[serde(rename = "include_raw_content")]
    _include_raw_content: bool,
    #[serde(rename = "include_images")]
    _include_images: bool,
}

async fn tavily(State(shared): State<Arc<SearchServerState>>, headers: HeaderMap, body: Bytes) -> Response {
    let bearer = format!("Bearer {}", shared.key);
    if headers.get(header::AUTHORIZATION).is_none_or(|token| *token != bearer) {
        shared.complain("tavily: a wrong token");
        return tavily_error(401);
    }
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let request = serde_json::from_slice::<TavilyRequest>(&body);
    let request = match request {
        Ok(request) if is_json && !request.query.is_empty() && request.max_results <= MAX_RESULTS => request,
        Ok(_) | Err(_) => {
            shared.complain("tavily: a wrong request");
            return tavily_error(400);
        }
    };
    let seen = SeenSearch { format: "tavily", query: request.query, max_results: request.max_results };
    say(&shared, seen, tavily_error, |query, hits| {
        let results: Vec<Value> = hits
            .iter()
            .map(|(title, url, text)| {
                json!({ "title": title, "url": url, "content": text, "score": 0.9, "raw_content": null })
            })
            .collect();
        json!({ "query": query, "follow_up_questions": null, "answer": null, "images": [], "results": results,
                "response_time": 0.5 })
    })
    .await
}

fn tavily_error(status: u16) -> Response {
    let status_code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status_code, axum::Json(json!({ "detail": { "error": "refused" } }))).into_response()
}

/// Keeps a search and answers it as the script says.
async fn say(
    shared: &SearchServerState,
    seen: SeenSearch,
    error: impl Fn(u16) -> Response,
    body: impl Fn(&str, &[(String, String, String)]) -> Value,
) -> Response {
    let (query, answer) = (seen.query.clone(), {
        let mut kept = shared.kept();
        if kept.seen.len() < MAX_KEPT {
            kept.seen.push(seen);
        }
        kept.answer.clone()
    });
    match answer {
        SearchAnswer::Hits(hits) => axum::Json(body(&query, &hits)).into_response(),
        SearchAnswer::Status(status) => error(status),
        SearchAnswer::Body(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        SearchAnswer::Redirect(to) => (StatusCode::FOUND, [(header::LOCATION, to)]).into_response(),
        SearchAnswer::Silence => std::future::pending().await,
    }
}
