//! The differences between the formats, one table for each question.

use axum::http::{HeaderMap, Uri};
use serde_json::{Value, json};

use super::http::Refusal;
use super::parsed::{ParsedRequest, ServedFormat};
use super::reply::Reply;
use super::{anthropic, gemini, ollama, openai, responses};

/// A request as it came in.
pub(crate) struct IncomingRequest<'a> {
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
}

impl ServedFormat {
    /// Every format.
    pub const ALL: [Self; 6] =
        [Self::Anthropic, Self::OpenAi, Self::OpenRouter, Self::Responses, Self::Gemini, Self::Ollama];

    /// The path that the format's own paths are appended to.
    pub(crate) const fn base_path(self) -> &'static str {
        match self {
            Self::Anthropic | Self::OpenAi | Self::Responses => "/v1/",
            Self::OpenRouter => "/api/v1/",
            Self::Gemini => "/v1beta/",
            Self::Ollama => "/",
        }
    }

    pub(crate) fn parse(
        self,
        sent: &IncomingRequest<'_>,
        key: Option<&str>,
    ) -> Result<ParsedRequest, Refusal> {
        match self {
            Self::Anthropic => anthropic::parse::parse(sent.headers, sent.body, key),
            Self::OpenAi | Self::OpenRouter => openai::parse::parse(self, sent.headers, sent.body, key),
            Self::Responses => responses::parse::parse(sent.headers, sent.body, key),
            Self::Gemini => gemini::parse::parse(sent.uri, sent.headers, sent.body, key),
            Self::Ollama => ollama::parse::parse(sent.headers, sent.body, key),
        }
    }

    /// The frames of a streamed answer.
    pub(crate) fn frames(self, request: &ParsedRequest, reply: &Reply) -> Vec<String> {
        match self {
            Self::Anthropic => anthropic::render::frames(request, reply),
            Self::OpenAi => openai::render::frames(request, reply),
            Self::OpenRouter => openai::render::router_frames(request, reply),
            Self::Responses => responses::render::frames(request, reply),
            Self::Gemini => gemini::render::frames(request, reply),
            Self::Ollama => ollama::render::frames(request, reply),
        }
    }

    /// An answer that is not streamed.
    pub(crate) fn whole(self, request: &ParsedRequest, reply: &Reply) -> Value {
        match self {
            Self::Anthropic => anthropic::render::whole(request, reply),
            Self::OpenAi | Self::OpenRouter => openai::render::whole(request, reply),
            Self::Responses => responses::render::whole(request, reply),
            Self::Gemini => gemini::render::whole(request, reply),
            Self::Ollama => ollama::render::whole(request, reply),
        }
    }

    /// The type of a stream's body.
    pub(crate) const fn stream_type(self) -> &'static str {
        match self {
            Self::Ollama => "application/x-ndjson",
            Self::Anthropic | Self::OpenAi | Self::OpenRouter | Self::Responses | Self::Gemini => {
                "text/event-stream; charset=utf-8"
            }
        }
    }

    /// Returns the text before a frame's data, and its end.
    pub(crate) fn around(self, event: &str) -> (String, &'static str) {
        match self {
            Self::Anthropic | Self::Responses => (format!("event: {event}\ndata: "), "\n\n"),
            Self::OpenAi | Self::OpenRouter => ("data: ".to_owned(), "\n\n"),
            Self::Gemini => ("data: ".to_owned(), "\r\n\r\n"),
            Self::Ollama => (String::new(), "\n"),
        }
    }

    /// The frame with which a provider says in the middle of a stream that it failed.
    pub(crate) fn error_frame(self) -> String {
        let data = match self {
            Self::Responses => json!({
                "type": "error", "code": "server_error", "message": "the server had an error", "param": null,
                "sequence_number": 3,
            }),
            Self::OpenRouter => json!({
                "id": "gen-scripted", "object": "chat.completion.chunk", "provider": "Scripted",
                "error": {"code": "server_error", "message": "Provider disconnected"},
                "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
            }),
            Self::Gemini => self.error_body(&self.status_refusal(503), None),
            Self::Anthropic | Self::OpenAi | Self::Ollama => self.error_body(&self.status_refusal(529), None),
        };
        let (before, after) = self.around("error");
        format!("{before}{data}{after}")
    }

    /// One more piece of a text, as a frame.
    pub(crate) fn more_text(self) -> String {
        match self {
            Self::Anthropic => anthropic::render::more_text(),
            Self::OpenAi | Self::OpenRouter => openai::render::more_text(),
            Self::Responses => responses::render::more_text(),
            Self::Gemini => gemini::render::more_text(),
            Self::Ollama => ollama::render::more_text(),
        }
    }

    /// Returns the number of frames before the first piece of a text.
    pub(crate) const fn frames_before_text(self) -> usize {
        match self {
            Self::Anthropic => 3,
            Self::OpenAi | Self::OpenRouter => 2,
            Self::Responses => 4,
            Self::Gemini | Self::Ollama => 0,
        }
    }

    /// A tool call without id and name, as a frame.
    pub(crate) fn malformed_call(self) -> String {
        match self {
            Self::Anthropic => anthropic::render::malformed_call(),
            Self::OpenAi | Self::OpenRouter => openai::render::malformed_call(),
            Self::Responses => responses::render::malformed_call(),
            Self::Gemini => gemini::render::malformed_call(),
            Self::Ollama => ollama::render::malformed_call(),
        }
    }

    /// The models that exist, in the provider's words.
    pub(crate) fn models(self, names: &[String]) -> Value {
        let all = |model: &dyn Fn(&String) -> Value| names.iter().map(model).collect::<Vec<Value>>();
        match self {
            // One shape for all that share the path.
            Self::Anthropic | Self::OpenAi | Self::OpenRouter | Self::Responses => {
                let data = all(
                    &|id| json!({"id": id, "type": "model", "object": "model", "created": 1_700_000_000, "owned_by": "script"}),
                );
                json!({"object": "list", "data": data, "has_more": false})
            }
            Self::Gemini => json!({ "models": all(&|name| json!({"name": format!("models/{name}")})) }),
            Self::Ollama => json!({ "models": all(&|name| json!({"name": name, "model": name})) }),
        }
    }

    /// The provider's error JSON. `retry_after` in seconds, for the one that says it there.
    pub(crate) fn error_body(self, refusal: &Refusal, retry_after: Option<&str>) -> Value {
        let Refusal { status, kind, message, code } = refusal;
        match self {
            Self::Anthropic => json!({
                "type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted",
            }),
            Self::OpenAi | Self::Responses => {
                json!({ "error": {"message": message, "type": kind, "param": null, "code": code} })
            }
            Self::OpenRouter => {
                json!({ "error": {"code": status, "message": message}, "user_id": "scripted" })
            }
            Self::Gemini => {
                let reason = code.map(
                    |reason| json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}),
                );
                let retry = retry_after.map(|seconds| {
                    json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{seconds}s")})
                });
                let details: Vec<Value> = reason.into_iter().chain(retry).collect();
                json!({ "error": {"code": status, "message": message, "status": kind, "details": details} })
            }
            Self::Ollama => json!({ "error": message }),
        }
    }

    /// Returns the provider's name of a status.
    pub(crate) fn status_refusal(self, status: u16) -> Refusal {
        let anthropic = self == Self::Anthropic;
        let (kind, message) = match (self, status) {
            (Self::Gemini, _) => (google_status(status), "the request was refused"),
            (_, 401) if anthropic => ("authentication_error", "invalid x-api-key"),
            (_, 403) => ("permission_error", "not allowed"),
            (_, 413) => ("request_too_large", "request too large"),
            (_, 429) if anthropic => ("rate_limit_error", "rate limit exceeded"),
            (_, 429) => ("rate_limit_exceeded", "rate limit reached"),
            (_, 529) => ("overloaded_error", "overloaded"),
            (_, 500..) if anthropic => ("api_error", "internal server error"),
            (_, 500..) => ("server_error", "the server had an error"),
            (_, _) => ("invalid_request_error", "the request was refused"),
        };
        Refusal { status, kind, message: message.to_owned(), code: None }
    }

    /// The refusal of a conversation of `sent` tokens that is too long for a window of as many.
    pub(crate) fn context_too_long(self, window: u64, sent: u64) -> Refusal {
        match self {
            Self::Anthropic => {
                Refusal::invalid(format!("prompt is too long: {sent} tokens > {window} maximum"))
            }
            Self::OpenAi => Refusal {
                code: Some("context_length_exceeded"),
                ..Refusal::invalid(format!(
                    "This model's maximum context length is {window} tokens. However, your messages resulted in {sent} \
                     tokens."
                ))
            },
            Self::Responses => Refusal {
                code: Some("context_length_exceeded"),
                ..Refusal::invalid("Your input exceeds the context window of this model.")
            },
            Self::OpenRouter => Refusal::invalid(format!(
                "This endpoint's maximum context length is {window} tokens. However, you requested about {sent} tokens."
            )),
            Self::Gemini => Refusal {
                kind: "INVALID_ARGUMENT",
                ..Refusal::invalid(format!(
                    "The input token count ({sent}) exceeds the maximum number of tokens allowed ({window})."
                ))
            },
            Self::Ollama => Refusal::invalid("the input length exceeds the context length"),
        }
    }

    /// The refusal of a model that does not exist.
    pub(crate) fn unknown_model(self, model: &str) -> Refusal {
        let (kind, message) = match self {
            Self::Gemini => ("NOT_FOUND", format!("models/{model} is not found for API version v1beta")),
            Self::Ollama => ("not_found", format!("model '{model}' not found")),
            Self::Anthropic | Self::OpenAi | Self::OpenRouter | Self::Responses => {
                ("not_found_error", format!("model: {model}"))
            }
        };
        let code = match self {
            Self::OpenAi | Self::Responses => Some("model_not_found"),
            Self::Anthropic | Self::OpenRouter | Self::Gemini | Self::Ollama => None,
        };
        Refusal { status: 404, kind, message, code }
    }
}

/// Google's name for a status.
const fn google_status(status: u16) -> &'static str {
    match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 | 529 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        500.. => "INTERNAL",
        _ => "FAILED_PRECONDITION",
    }
}
