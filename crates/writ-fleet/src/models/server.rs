//! The socket of the model router: who may open it, and how much it takes.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_runtime::clock::{Clock as _, Ids, SystemClock};
use writ_runtime::engine::Engine;
use writ_runtime::routed::{AnswerEvent, AnswerStream, CallReport, MAIN_MODEL, RoutedReply, RoutingError};

use super::clients::ServedModels;
use super::refusal::{Refusal, WireFormat};
use super::stream::{EventWriter, KEEP_ALIVE, event_stream};
use super::{anthropic, openai};
use crate::accept::{Acceptor, LocalSocket, SocketError};

/// The most connections at once; one more waits until another ends.
pub const MAX_CONNECTIONS: usize = 1_024;
/// The largest body of a request, in bytes. The ledger takes a prompt of this size in one entry.
pub const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;
/// The time that a client has to send the body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// The header with the base key, which the launcher adds.
pub const BASE_KEY: HeaderName = HeaderName::from_static("writ-base-key");
/// The header with the task key.
pub const TASK_KEY: HeaderName = HeaderName::from_static("writ-task-key");
/// The header that tells the clients of both formats whether to try again by themselves.
const RETRY: HeaderName = HeaderName::from_static("x-should-retry");

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The socket of the model router.
#[derive(Debug)]
pub struct RouterSocket {
    socket: LocalSocket,
    observer: Option<mpsc::Sender<CallReport>>,
}

impl RouterSocket {
    /// Makes the socket with mode 0600. The caller holds the home's lock, so that an old one belongs to no running engine.
    ///
    /// # Errors
    ///
    /// If the folder is missing or not writable.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        Ok(Self { socket: LocalSocket::bind(path)?, observer: None })
    }

    /// Reports the tokens of every call and every refusal into a channel. While it is full, answers wait; a closed one is ignored.
    #[must_use]
    pub fn with_observer(self, observer: mpsc::Sender<CallReport>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Serves agents until `stop` is cancelled; then waits until every answer has ended.
    pub async fn serve_agents(self, engine: Engine, stop: CancellationToken) {
        // Agents may call at any time: the engine does not end for want of clients.
        let guest = engine.guest();
        let router = match self.observer {
            Some(observer) => engine.model_router().with_observer(observer),
            None => engine.model_router(),
        };
        let models = ServedModels::Keyed(router);
        let service = service_fn(move |request| {
            let models = models.clone();
            async move { Ok::<_, Infallible>(answer_request(&models, request).await) }
        });
        let acceptor = Acceptor::with_room(MAX_CONNECTIONS, stop);
        acceptor.accept_connections(|| self.socket.accept_stream(), service).await;
        // No one connects any more; what is under way ends.
        drop(self.socket);
        acceptor.wait_for_end().await;
        drop(guest);
    }
}

pub(super) async fn answer_request(models: &ServedModels, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().trim_end_matches('/').to_owned();
    let path = models.full_path(path);
    let is_anthropic = path == "/v1/messages" || request.headers().contains_key("anthropic-version");
    let format = if is_anthropic { WireFormat::Anthropic } else { WireFormat::OpenAi };
    let answered = match (request.method(), path.as_str()) {
        (&Method::POST, "/v1/chat/completions") => complete_chat(models, request).await,
        (&Method::POST, "/v1/messages") => create_message(models, request).await,
        (&Method::GET, "/v1/models") => list_models(models, &request, format).await,
        (_, "/v1/chat/completions" | "/v1/messages" | "/v1/models") => {
            let text = format!("{path} does not take {}", request.method());
            Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", text)
                .with_hint("models are listed with GET and asked with POST"))
        }
        (_, path) => {
            Err(Refusal::new(StatusCode::NOT_FOUND, "not_found", format!("there is no {path} here"))
                .with_hint("there are /v1/chat/completions, /v1/messages and /v1/models"))
        }
    };
    answered.unwrap_or_else(|refusal| json_response(refusal.status, &refusal.body(format)))
}

fn json_response(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if !status.is_success() {
        // The router has tried again where that makes sense; a client's own tries would multiply that.
        headers.insert(RETRY, HeaderValue::from_static("false"));
    }
    response
}

async fn read_body(request: Request<Incoming>) -> Result<Value, Refusal> {
    let body = Limited::new(request.into_body(), MAX_BODY_BYTES).collect();
    let late = || {
        Refusal::new(StatusCode::REQUEST_TIMEOUT, "late", "the body took too long".to_owned())
            .with_hint("send it again")
    };
    let body = tokio::time::timeout(BODY_TIMEOUT, body).await.map_err(|_| late())?;
    let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => {
            let text = format!("the request has more than {MAX_BODY_BYTES} bytes");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", text)
                .with_hint("send fewer or shorter messages")
        }
        None => Refusal::new(StatusCode::BAD_REQUEST, "broken", "the body broke off".to_owned())
            .with_hint("send it again"),
    })?;
    serde_json::from_slice(&body.to_bytes())
        .map_err(|error| Refusal::invalid("", &format!("is no JSON: {error}")))
}

async fn complete_chat(models: &ServedModels, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let client = models.admit_client(request.headers()).await?;
    let wanted = openai::read_request(&read_body(request).await?, client.leniency())?;
    let now = SystemClock.now();
    let head = openai::ChatHead {
        id: Ids.attempt(now).to_string(),
        created: now.as_millis() / 1_000,
        model: wanted.prompt.model.clone(),
        has_usage: wanted.has_usage,
    };
    let answer = client.ask_model(wanted.prompt);
    if wanted.is_streamed {
        return stream_answer(EventWriter::OpenAi(head), answer).await;
    }
    let whole = whole_answer(answer).await?;
    Ok(json_response(StatusCode::OK, &head.whole_answer(&whole)))
}

async fn create_message(
    models: &ServedModels,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let client = models.admit_client(request.headers()).await?;
    let wanted = anthropic::read_request(&read_body(request).await?, client.leniency())?;
    let (id, model) = (Ids.attempt(SystemClock.now()).to_string(), wanted.prompt.model.clone());
    let head = anthropic::MessageHead { id, model };
    let answer = client.ask_model(wanted.prompt);
    if wanted.is_streamed {
        return stream_answer(EventWriter::Anthropic(head, false), answer).await;
    }
    let whole = whole_answer(answer).await?;
    Ok(json_response(StatusCode::OK, &head.whole_answer(&whole)))
}

async fn whole_answer(mut answer: AnswerStream) -> Result<RoutedReply, Refusal> {
    while let Some(event) = answer.next_event().await {
        match event {
            // The whole answer repeats it.
            AnswerEvent::Text(_) => {}
            AnswerEvent::Whole(whole) => return Ok(*whole),
            AnswerEvent::Failed(error) => return Err(error.into()),
        }
    }
    Err(RoutingError::Unrecorded.into())
}

async fn stream_answer(writer: EventWriter, mut answer: AnswerStream) -> Result<Response<Body>, Refusal> {
    // An early refusal has its status; after a while the client needs a sign of life more than that.
    let first = match tokio::time::timeout(KEEP_ALIVE, answer.next_event()).await {
        Ok(Some(AnswerEvent::Failed(error))) => return Err(error.into()),
        Ok(first) => first,
        Err(_) => None,
    };
    let body = StreamBody::new(event_stream(writer, answer, first)).boxed_unsync();
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

async fn list_models(
    models: &ServedModels,
    request: &Request<Incoming>,
    format: WireFormat,
) -> Result<Response<Body>, Refusal> {
    let names = models.admit_client(request.headers()).await?.list_models().await?;
    let names = names.iter().map(String::as_str).chain([MAIN_MODEL]);
    let list = match format {
        WireFormat::OpenAi => {
            let model = |id: &str| json!({ "id": id, "object": "model", "created": 0, "owned_by": "writ" });
            json!({ "object": "list", "data": names.map(model).collect::<Vec<_>>() })
        }
        WireFormat::Anthropic => {
            let model = |id: &str| json!({ "type": "model", "id": id, "display_name": id, "created_at": "1970-01-01T00:00:00Z" });
            let data: Vec<_> = names.map(model).collect();
            let (first, last) =
                (data.first().map(|model| &model["id"]), data.last().map(|model| &model["id"]));
            json!({ "data": data, "has_more": false, "first_id": first, "last_id": last })
        }
    };
    Ok(json_response(StatusCode::OK, &list))
}
