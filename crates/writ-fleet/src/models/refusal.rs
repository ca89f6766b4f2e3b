//! Refusals, in the form that the clients of each format read.

use hyper::StatusCode;
use serde_json::{Value, json};
use writ_runtime::routed::RoutingError;
use writ_types::entry::DenyReason;

/// The code of a refusal of a field that cannot be served.
const UNSUPPORTED: &str = "unsupported_parameter";

/// The format of a request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireFormat {
    /// OpenAI Chat Completions.
    OpenAi,
    /// Anthropic Messages.
    Anthropic,
}

/// The reason that there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    code: &'static str,
    text: String,
    /// The field that is to blame.
    param: Option<String>,
}

impl Refusal {
    /// A refusal with a stable code.
    pub(super) const fn new(status: StatusCode, code: &'static str, text: String) -> Self {
        Self { status, code, text, param: None }
    }

    /// Adds what the caller can do about it; clients show the one text alone.
    pub(super) fn with_hint(mut self, hint: &str) -> Self {
        self.text = format!("{}; {hint}", self.text);
        self
    }

    /// A field that is malformed.
    pub(super) fn invalid(field: &str, what: &str) -> Self {
        let name = if field.is_empty() { "the request" } else { field };
        Self {
            param: Some(field.to_owned()),
            ..Self::new(StatusCode::BAD_REQUEST, "invalid_value", format!("{name} {what}"))
        }
    }

    /// A field that cannot be served.
    pub(super) fn unsupported(field: &str, why: &str) -> Self {
        Self { code: UNSUPPORTED, ..Self::invalid(field, why) }
    }

    /// Returns true if the request is well-formed, and has a part that cannot be served.
    pub(super) fn is_unsupported(&self) -> bool {
        self.code == UNSUPPORTED
    }

    /// The body of a response with this refusal, and the data of an event in a stream.
    pub(super) fn body(&self, format: WireFormat) -> Value {
        match format {
            WireFormat::OpenAi => json!({ "error": {
                "message": self.text, "type": self.openai_kind(), "param": self.param, "code": self.code,
            } }),
            WireFormat::Anthropic => {
                json!({ "type": "error", "error": { "type": self.anthropic_kind(), "message": self.text } })
            }
        }
    }

    fn openai_kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            400..=499 => "invalid_request_error",
            _ => "server_error",
        }
    }

    fn anthropic_kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            400..=499 => "invalid_request_error",
            _ => "api_error",
        }
    }
}

impl From<RoutingError> for Refusal {
    fn from(error: RoutingError) -> Self {
        let text = error.to_string();
        let (status, code) = match &error {
            RoutingError::Unproven(_) => (StatusCode::UNAUTHORIZED, "invalid_keys"),
            RoutingError::Refused { reason: DenyReason::UsedUp, .. } => {
                (StatusCode::FORBIDDEN, "quota_used_up")
            }
            RoutingError::Refused { .. } => (StatusCode::FORBIDDEN, "refused"),
            RoutingError::UnknownModel(_) => (StatusCode::NOT_FOUND, "model_not_found"),
            RoutingError::Unrecorded => (StatusCode::SERVICE_UNAVAILABLE, "ledger_unwritable"),
            RoutingError::TooLong(_) => (StatusCode::BAD_REQUEST, "context_length_exceeded"),
            RoutingError::NoAnswer(_) => (StatusCode::BAD_GATEWAY, "no_answer"),
        };
        Self::new(status, code, text)
    }
}
