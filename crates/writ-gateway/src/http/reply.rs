//! Answers: JSON, and errors as `{"error":{"code","text","hint"}}` with the status that fits.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use writ_types::error::{Exit, Report};

/// The time that a client has to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The ways to prove to be the owner.
pub(crate) const SHOW_PROOF: &str = "programs show the token of server.auth_token or of runtime/api.token in the home, \
    pages are opened by the link of `writ status --link`";

/// Returns the seconds that a client should wait.
const fn wait_secs(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(1)
}

/// A refusal, or a failure.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    report: Box<Report>,
    wait: Option<Duration>,
    param: Option<String>,
}

/// The error of a response, for a route that writes errors in a form of its own.
#[derive(Clone, Debug)]
pub(crate) struct ResponseError {
    /// The report.
    pub(crate) report: Report,
    /// The field of the request that it is about.
    pub(crate) param: Option<String>,
}

/// The body of a refusal or failure.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(crate) struct ErrorBody {
    error: ErrorFields,
}

/// An error for programs and people.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct ErrorFields {
    /// Stable; `docs/reference/errors.md` lists all.
    code: String,
    /// The event, in words.
    text: String,
    /// Advice.
    hint: String,
}

impl Refusal {
    /// A refusal with a status of its own, and what to do about it.
    pub(crate) fn new(status: StatusCode, code: &str, text: &str, hint: &str) -> Self {
        let report = Box::new(Report::new(Exit::Denied, code, text).with_hint(hint));
        Self { status, report, wait: None, param: None }
    }

    /// Too much at once.
    pub(crate) fn too_many(wait: Duration) -> Self {
        let hint = format!("wait {} s, then try again", wait_secs(wait));
        let status = StatusCode::TOO_MANY_REQUESTS;
        Self { wait: Some(wait), ..Self::new(status, "rate.limited", "too much at once", &hint) }
    }

    /// Refuses a client without a valid proof.
    pub(crate) fn unproven() -> Self {
        let text = "not proven to be the owner of this home";
        Self::new(StatusCode::UNAUTHORIZED, "auth.denied", text, SHOW_PROOF)
    }

    /// Nothing is there.
    pub(crate) fn not_found() -> Self {
        let hint = "/openapi.json names what is here";
        Self::new(StatusCode::NOT_FOUND, "request.not_found", "there is nothing here", hint)
    }

    /// The request cannot be understood.
    pub(crate) fn malformed(text: &str) -> Self {
        let hint = "correct what is named; /openapi.json says what is taken here";
        Self::new(StatusCode::BAD_REQUEST, "request.invalid", text, hint)
    }

    /// Names the field of the request that the refusal is about.
    pub(crate) fn about_field(self, param: String) -> Self {
        Self { param: Some(param), ..self }
    }

    /// The report.
    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    /// The field of the request that the refusal is about.
    #[cfg(test)]
    pub(crate) fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }
}

impl From<Report> for Refusal {
    fn from(report: Report) -> Self {
        Self { status: status_of(&report), report: Box::new(report), wait: None, param: None }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let report = *self.report;
        let error = ErrorBody {
            error: ErrorFields {
                code: report.code.clone(),
                text: report.outside.clone(),
                hint: report.advice().to_owned(),
            },
        };
        let error = serde_json::to_string(&error).unwrap_or_default();
        if report.inside != report.outside {
            // The inside text may name paths, so it goes to the log alone.
            tracing::warn!(code = report.code, inside = report.inside, "refused");
        }
        let mut response = (self.status, json_type(), error).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.wait {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait_secs(wait)));
        }
        response.extensions_mut().insert(ResponseError { report, param: self.param });
        response
    }
}

/// The status of an error of the engine.
fn status_of(report: &Report) -> StatusCode {
    // Codes that have a meaning of their own in HTTP come first; all others follow the exit code.
    match report.code.as_str() {
        "session.unknown"
        | "session.closed"
        | "ledger.no_entry"
        | "ask.unknown"
        | "approval.not_in_force"
        | "undo.unknown"
        | "case.unknown"
        | "fleet.none"
        | "pilot.none"
        | "pilot.no_plan"
        | "pilot.no_session"
        | "pilot.no_trace"
        | "pilot.no_unit"
        | "outbox.missing" => StatusCode::NOT_FOUND,
        "pilot.busy"
        | "pilot.out_of_place"
        | "pilot.nothing_to_resolve"
        | "case.state"
        | "case.target"
        | "ask.closed"
        | "ask.changed"
        | "undo.done" => StatusCode::CONFLICT,
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
pub(crate) fn json_response(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => (status, json_type(), text).into_response(),
        Err(error) => {
            let report = Report::new(Exit::Bug, "answer.unwritable", "the answer cannot be written")
                .with_inside(error.to_string())
                .with_hint(Exit::Bug.advice());
            Refusal::from(report).into_response()
        }
    }
}

/// A value as the answer, with status 200.
pub(crate) fn json_ok(value: &Value) -> Response {
    json_response(StatusCode::OK, value)
}

/// The body of a request, up to a limit.
pub(crate) async fn read_bytes(body: Body, limit: usize) -> Result<Bytes, Refusal> {
    // A body whose declared size is too large is refused before it is read.
    if body.size_hint().lower() > u64::try_from(limit).unwrap_or(u64::MAX) {
        return Err(too_large(limit));
    }
    // The declared size may be missing or wrong, so the bytes are counted, too.
    let read = Limited::new(body, limit).collect();
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limit)),
        Ok(Err(_)) => Err(Refusal::malformed("the body has broken off")),
        Err(_) => {
            let (text, hint) = ("the body did not come in time", "send it at once, and all of it");
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "request.slow", text, hint))
        }
    }
}

/// The body of a request as JSON, up to a limit.
pub(crate) async fn read_json<T: DeserializeOwned>(request: Request, limit: usize) -> Result<T, Refusal> {
    let (parts, body) = request.into_parts();
    check_json(&parts.headers)?;
    parse_json(&read_bytes(body, limit).await?)
}

/// The body of a request as JSON, up to a limit; without a body, the default.
pub(crate) async fn read_or_default<T: DeserializeOwned + Default>(
    request: Request,
    limit: usize,
) -> Result<T, Refusal> {
    let (parts, body) = request.into_parts();
    // No header tells whether there is a body: it may come in chunks.
    let body = read_bytes(body, limit).await?;
    if body.is_empty() {
        return Ok(T::default());
    }
    check_json(&parts.headers)?;
    parse_json(&body)
}

fn parse_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::malformed(&format!("not what is expected: {error}")))
}

fn too_large(limit: usize) -> Refusal {
    let text = format!("the body has more than {limit} bytes");
    let hint = "send less at once; server.max_message_bytes is the limit of messages";
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request.too_large", &text, hint)
}

fn check_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    let text = "the body must be application/json";
    let hint = "send JSON, with the header Content-Type: application/json";
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "request.media_type", text, hint))
}
