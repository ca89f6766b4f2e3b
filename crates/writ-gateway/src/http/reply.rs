//! Answers: JSON, and errors as `{"error":{"code","text","hint"}}` with the status that fits.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use writ_types::error::{Exit, Report};

/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A refusal, or a failure.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    report: Box<Report>,
    wait: Option<Duration>,
}

impl Refusal {
    /// A refusal with a status of its own.
    pub(crate) fn new(status: StatusCode, code: &str, text: &str) -> Self {
        Self { status, report: Box::new(Report::new(Exit::Denied, code, text)), wait: None }
    }

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: &str) -> Self {
        self.report.hint = hint.to_owned();
        self
    }

    /// Too much at once.
    pub(crate) fn later(wait: Duration) -> Self {
        let mut refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate.limited", "too much at once");
        refusal.wait = Some(wait);
        refusal
    }

    /// Nobody that the home knows.
    pub(crate) fn unknown() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "auth.denied", "not proven to be the owner of this home")
    }

    /// Nothing is there.
    pub(crate) fn nothing() -> Self {
        Self::new(StatusCode::NOT_FOUND, "request.not_found", "there is nothing here")
    }

    /// The request cannot be understood.
    pub(crate) fn malformed(text: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "request.invalid", text)
    }

    /// The report.
    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    /// The status.
    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<Report> for Refusal {
    fn from(report: Report) -> Self {
        Self { status: status(&report), report: Box::new(report), wait: None }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Report { code, outside, inside, hint, .. } = *self.report;
        if inside != outside {
            tracing::warn!(code, inside, "refused");
        }
        let error = json!({ "error": { "code": code, "text": outside, "hint": hint } });
        let mut response = (self.status, json_type(), error.to_string()).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.wait {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs().saturating_add(1)));
        }
        response
    }
}

/// The status of an error of the engine.
fn status(report: &Report) -> StatusCode {
    match report.code.as_str() {
        "session.unknown" | "session.closed" | "ledger.no_entry" | "ask.unknown" | "approval.not_in_force"
        | "undo.unknown" | "outbox.missing" => StatusCode::NOT_FOUND,
        "ask.closed" | "undo.done" => StatusCode::CONFLICT,
        "approval.malformed" => StatusCode::UNPROCESSABLE_ENTITY,
        _ => match report.exit {
            Exit::Usage => StatusCode::BAD_REQUEST,
            Exit::Denied => StatusCode::FORBIDDEN,
            Exit::Waiting => StatusCode::CONFLICT,
            Exit::Budget => StatusCode::TOO_MANY_REQUESTS,
            Exit::Verification => StatusCode::UNPROCESSABLE_ENTITY,
            Exit::Model | Exit::Blocked | Exit::Interrupted => StatusCode::SERVICE_UNAVAILABLE,
            Exit::Bug | Exit::Config | Exit::Ledger | Exit::Done => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

const fn json_type() -> [(header::HeaderName, &'static str); 1] {
    [(header::CONTENT_TYPE, "application/json")]
}

/// A value as the answer.
pub(crate) fn answer(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => (status, json_type(), text).into_response(),
        Err(error) => {
            let report = Report::new(Exit::Bug, "answer.unwritable", "the answer cannot be written");
            Refusal::from(report.inside(error.to_string())).into_response()
        }
    }
}

/// A value as the answer, with status 200.
pub(crate) fn ok(value: &Value) -> Response {
    answer(StatusCode::OK, value)
}

/// The body of a request, up to a limit.
pub(crate) async fn bytes(body: Body, limit: usize) -> Result<Bytes, Refusal> {
    // What is declared as too much is not waited for.
    if body.size_hint().lower() > u64::try_from(limit).unwrap_or(u64::MAX) {
        return Err(too_large(limit));
    }
    let read = Limited::new(body, limit).collect();
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limit)),
        Ok(Err(_)) => Err(Refusal::malformed("the body has broken off")),
        Err(_) => {
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "request.slow", "the body did not come in time"))
        }
    }
}

/// The body of a request as JSON, up to a limit.
pub(crate) async fn read<T: DeserializeOwned>(request: Request, limit: usize) -> Result<T, Refusal> {
    let (parts, body) = request.into_parts();
    check_json(&parts.headers)?;
    parsed(&bytes(body, limit).await?)
}

/// The body of a request as JSON, up to a limit; without a body, the default.
pub(crate) async fn read_or_default<T: DeserializeOwned + Default>(
    request: Request,
    limit: usize,
) -> Result<T, Refusal> {
    let (parts, body) = request.into_parts();
    // No header tells whether there is a body: it may come in chunks.
    let body = bytes(body, limit).await?;
    if body.is_empty() {
        return Ok(T::default());
    }
    check_json(&parts.headers)?;
    parsed(&body)
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::malformed(&format!("not what is expected: {error}")))
}

fn too_large(limit: usize) -> Refusal {
    let text = format!("the body has more than {limit} bytes");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request.too_large", &text)
}

fn check_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    let text = "the body must be application/json";
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "request.media_type", text))
}
