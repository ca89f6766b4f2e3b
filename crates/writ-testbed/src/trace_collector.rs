//! A scripted OpenTelemetry collector: takes traces as OTLP in JSON on a loopback port, strictly.
//!
//! A request that the protocol does not allow is answered with 400 and recorded as a complaint: ids that are no
//! hexadecimal numbers of the right length, spans that end before they begin, unknown fields.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The largest request.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// The most spans in the record; later ones are dropped.
const MAX_SPANS: usize = 100_000;

/// A running collector. Dropping it stops it.
#[derive(Debug)]
pub struct TraceCollector {
    address: SocketAddr,
    record: Arc<Mutex<TraceRecord>>,
    running: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct TraceRecord {
    spans: Vec<ReceivedSpan>,
    complaints: Vec<String>,
    requests: Vec<SeenRequest>,
    refusals: VecDeque<(u16, Option<u64>)>,
}

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRequest {
    /// Its `Authorization`, if it had one.
    pub authorization: Option<String>,
    /// Its body.
    pub body: String,
    /// The status of its answer.
    pub status: u16,
}

/// A span that came.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedSpan {
    /// Its trace, 32 hexadecimal digits.
    pub trace: String,
    /// Its id, 16 hexadecimal digits.
    pub id: String,
    /// The span that it is part of.
    pub parent: Option<String>,
    /// Its name.
    pub name: String,
    /// Its kind, as the protocol numbers them.
    pub kind: u8,
    /// When it began, in nanoseconds since 1970.
    pub start: u64,
    /// When it ended, in nanoseconds since 1970.
    pub end: u64,
    /// True if its status is an error.
    pub failed: bool,
    /// Its attributes; whole numbers as numbers.
    pub attributes: BTreeMap<String, Value>,
    /// The attributes of the sender.
    pub resource: BTreeMap<String, Value>,
}

impl TraceCollector {
    /// Starts a collector on a free loopback port.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let record = Arc::new(Mutex::new(TraceRecord::default()));
        let router = Router::new()
            .route("/v1/traces", post(take))
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .with_state(Arc::clone(&record));
        let running = tokio::spawn(async move {
            if axum::serve(listener, router).await.is_err() {
                // The listener is closed; clients notice that themselves.
            }
        });
        Ok(Self { address, record, running })
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers the next request with this status, and with this `Retry-After` in seconds.
    pub fn refuse_next(&self, status: u16, retry_after: Option<u64>) {
        self.record().refusals.push_back((status, retry_after));
    }

    /// Every span so far, in the order in which they came.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.record().spans.clone()
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<SeenRequest> {
        self.record().requests.clone()
    }

    /// Lists the breaches of the protocol so far.
    pub fn complaints(&self) -> Vec<String> {
        self.record().complaints.clone()
    }

    fn record(&self) -> std::sync::MutexGuard<'_, TraceRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TraceCollector {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// The spans of one trace as lines, each below what it is part of and indented, in the order in which they began.
///
/// # Errors
///
/// If they are not one tree: no root, several, a part of something that is not there, or an id that is used twice.
pub fn render_span_tree(spans: &[ReceivedSpan], trace: &str) -> Result<Vec<String>, String> {
    let mut own: Vec<&ReceivedSpan> = spans.iter().filter(|span| span.trace == trace).collect();
    own.sort_by_key(|span| span.start);
    let ids: BTreeMap<&str, &ReceivedSpan> = own.iter().map(|span| (span.id.as_str(), *span)).collect();
    if ids.len() != own.len() {
        return Err("an id is used twice".to_owned());
    }
    let roots: Vec<&ReceivedSpan> = own.iter().copied().filter(|span| span.parent.is_none()).collect();
    let [root] = roots.as_slice() else { return Err(format!("{} roots", roots.len())) };
    let orphan = own.iter().find(|span| span.parent.as_deref().is_some_and(|id| !ids.contains_key(id)));
    if let Some(orphan) = orphan {
        return Err(format!("'{}' is part of a span that is not there", orphan.name));
    }
    let mut lines = Vec::new();
    let mut due = vec![(*root, 0)];
    while let Some((span, depth)) = due.pop() {
        lines.push(format!("{}{}", "  ".repeat(depth), span.name));
        let parts = own.iter().rev().filter(|part| part.parent.as_deref() == Some(span.id.as_str()));
        due.extend(parts.map(|part| (*part, depth + 1)));
    }
    if lines.len() == own.len() { Ok(lines) } else { Err("spans are part of each other".to_owned()) }
}

async fn take(State(record): State<Arc<Mutex<TraceRecord>>>, headers: HeaderMap, body: Bytes) -> Response {
    let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
    let refusal = record.refusals.pop_front();
    let read = match refusal {
        Some(_) => Ok(Vec::new()),
        None => read(&headers, &body),
    };
    let status = match (&read, refusal) {
        (_, Some((status, _))) => status,
        (Ok(_), None) => 200,
        (Err(_), None) => 400,
    };
    let text = |name: header::HeaderName| Some(headers.get(name)?.to_str().ok()?.to_owned());
    record.requests.push(SeenRequest {
        authorization: text(header::AUTHORIZATION),
        body: String::from_utf8_lossy(&body).into_owned(),
        status,
    });
    match read {
        Ok(spans) => record.spans.extend(spans),
        Err(why) => record.complaints.push(why),
    }
    record.spans.truncate(MAX_SPANS);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match refusal.and_then(|(_, retry_after)| retry_after) {
        Some(secs) => (status, [(header::RETRY_AFTER, secs.to_string())]).into_response(),
        None => (status, axum::Json(json!({}))).into_response(),
    }
}

/// `ExportTraceServiceRequest`, with the fields that are sent, and no others.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourceSpans {
    resource: Resource,
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resource {
    attributes: Vec<Attribute>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeSpans {
    scope: Scope,
    spans: Vec<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scope {
    name: String,
    #[serde(rename = "version")]
    _version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Span {
    trace_id: String,
    span_id: String,
    parent_span_id: Option<String>,
    name: String,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute>,
    status: Status,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Status {
    code: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attribute {
    key: String,
    value: AnyValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AnyValue {
    string_value: Option<String>,
    int_value: Option<String>,
    array_value: Option<ArrayValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrayValue {
    values: Vec<AnyValue>,
}

fn read(headers: &HeaderMap, body: &[u8]) -> Result<Vec<ReceivedSpan>, String> {
    let json = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !json {
        return Err("the content type is not application/json".to_owned());
    }
    let request: Request = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut spans = Vec::new();
    for group in request.resource_spans {
        let resource = attributes(group.resource.attributes)?;
        for scope in group.scope_spans {
            if scope.scope.name.is_empty() {
                return Err("a scope has no name".to_owned());
            }
            for span in scope.spans {
                spans.push(received(span, &resource)?);
            }
        }
    }
    Ok(spans)
}

fn received(span: Span, resource: &BTreeMap<String, Value>) -> Result<ReceivedSpan, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("'{text}': {error}"));
    let (start, end) = (number(&span.start_time_unix_nano)?, number(&span.end_time_unix_nano)?);
    if start == 0 || end < start {
        return Err(format!("'{}' lasts from {start} to {end}", span.name));
    }
    if !(1..=5).contains(&span.kind) || span.name.is_empty() {
        return Err(format!("'{}' has the kind {}", span.name, span.kind));
    }
    Ok(ReceivedSpan {
        trace: id(span.trace_id, 32)?,
        id: id(span.span_id, 16)?,
        parent: span.parent_span_id.map(|parent| id(parent, 16)).transpose()?,
        name: span.name,
        kind: span.kind,
        start,
        end,
        failed: span.status.code == Some(2),
        attributes: attributes(span.attributes)?,
        resource: resource.clone(),
    })
}

fn id(text: String, digits: usize) -> Result<String, String> {
    let hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if text.len() == digits && hex && text.bytes().any(|byte| byte != b'0') {
        Ok(text)
    } else {
        Err(format!("'{text}' is no id of {digits} hexadecimal digits"))
    }
}

fn attributes(list: Vec<Attribute>) -> Result<BTreeMap<String, Value>, String> {
    let mut found = BTreeMap::new();
    for Attribute { key, value } in list {
        if found.insert(key.clone(), any(value)?).is_some() {
            return Err(format!("'{key}' comes twice"));
        }
    }
    Ok(found)
}

fn any(value: AnyValue) -> Result<Value, String> {
    match (value.string_value, value.int_value, value.array_value) {
        (Some(text), None, None) => Ok(Value::String(text)),
        (None, Some(number), None) => {
            number.parse::<i64>().map(Value::from).map_err(|error| format!("'{number}': {error}"))
        }
        (None, None, Some(list)) => {
            list.values.into_iter().map(any).collect::<Result<_, _>>().map(Value::Array)
        }
        _ => Err("a value is not exactly one thing".to_owned()),
    }
}
