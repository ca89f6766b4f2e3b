//! Driving one stream.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use futures::Stream as _;
use genai::adapter::AdapterKind;
use genai::chat::{ChatFrameSink, ChatStream, FrameCtx, RawFrameRef};
use genai::resolver::{AuthData, Endpoint};
use genai::{Headers, ModelIden, ServiceTarget};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use writ_egress::http;
use writ_egress::{Allowance, LentClient};
use writ_types::chat::ModelReply;
use writ_types::digest::Digest;
use writ_types::unit::ByteCount;

use super::{CallLimits, Delta, failed};
use crate::config::ProviderKind;
use crate::convert;
use crate::error::{EndlessLimit, Failure, ModelError};
use crate::fold::{AnswerPiece, Fold};
use crate::plan::PlannedCall;
use crate::provider::Provider;
use crate::rate::{RateBoard, RateHeaders};
use crate::refusal::{error_in, provider_error};
use crate::retry::{stated_wait, time_of};

/// The most bytes that may come without a whole frame among them: the largest arguments, which may come in one
/// frame, and some room. Also the largest error body. The library joins the parts of a frame anew with each read,
/// so a larger bound would cost time, not only memory; the line itself keeps to it.
const MAX_FRAME: ByteCount = ByteCount::new(1024 * 1024 + 64 * 1024);

/// The bytes that may come beyond a frame before it is seen: the line runs ahead by the buffers on the way.
const READ_AHEAD: u64 = 1024 * 1024;

/// The most bytes that the line may bring until the next frame.
const MAX_UNSEEN: ByteCount = ByteCount::new(MAX_FRAME.get() + READ_AHEAD);

/// The most time that joining the parts of one frame may take. What comes in pieces of a few bytes would otherwise
/// take minutes to reach the bound on bytes; a large frame in ordinary pieces takes a tenth of a second.
const MAX_JOINING: Duration = Duration::from_secs(5);

/// The most time that a server may take after its stop reason for counts and end mark. Some send neither, and do not
/// close the connection.
const MAX_AFTER_STOP: Duration = Duration::from_secs(10);

/// One attempt at a call.
pub(crate) struct Attempt<'a> {
    pub(crate) planned: &'a PlannedCall,
    pub(crate) key: Option<SecretString>,
    pub(crate) limits: CallLimits,
    pub(crate) deltas: mpsc::Sender<Delta>,
    pub(crate) cancel: CancellationToken,
    pub(crate) rates: &'a RateBoard,
}

/// Sees every frame before the library interprets it, and folds it.
struct Tap {
    tapped: Mutex<Tapped>,
    /// The bytes that may come until the next frame.
    allowance: Allowance,
}

struct Tapped {
    fold: Fold,
    frames: u64,
    /// A frame had data.
    has_data: bool,
    /// Set once: the stream is complete, or it failed.
    end: Option<Result<(), Failure>>,
    /// The limits of the provider that a refusal stated.
    stated: Option<RateHeaders>,
}

impl Tap {
    fn lock(&self) -> MutexGuard<'_, Tapped> {
        self.tapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChatFrameSink for Tap {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        // A whole frame arrived, so the sender has the full allowance for the next one.
        self.allowance.renew_allowance(MAX_UNSEEN);
        let mut tapped = self.lock();
        tapped.frames = tapped.frames.saturating_add(1);
        // Comments and blank frames have no data. Lines may end with a carriage return, and a stream begin with a mark.
        let data = frame.data.trim_start_matches('\u{feff}').trim();
        // After the end nothing counts any more.
        if tapped.end.is_some() || data.is_empty() {
            return;
        }
        tapped.has_data = true;
        match tapped.fold.frame(data) {
            Ok(false) => {}
            Ok(true) => tapped.end = Some(Ok(())),
            Err(failure) => tapped.end = Some(Err(failure)),
        }
    }
}

/// The result of one poll of the stream.
enum PollStep {
    /// Frames came.
    More,
    /// The stream is over, in good order or not.
    Over(Option<Failure>),
}

impl Attempt<'_> {
    /// Sends the request and folds the answer.
    pub(crate) async fn run(self, lent: LentClient) -> Result<ModelReply, ModelError> {
        let call = self.planned.model_call();
        let kind = self.planned.provider().kind;
        let fold = Fold::new(kind, call.max_output_tokens, call_prefix(&call.request));
        let allowance = lent.line_allowance();
        allowance.renew_allowance(MAX_UNSEEN);
        let tapped = Mutex::new(Tapped { fold, frames: 0, has_data: false, end: None, stated: None });
        let tap = Arc::new(Tap { tapped, allowance });
        let mut begun = false;
        // Dropping the stream closes the connection, also when it fails.
        let answer = self.drive(lent.client, &tap, &mut begun).await;
        let mut tapped = tap.lock();
        if let Some(stated) = tapped.stated.take() {
            self.rates.note_answer(&call.provider, stated);
        }
        let draft = tapped.fold.draft();
        let answer = answer.and_then(|()| draft.finish_answer(call.input_tokens)).map(|mut reply| {
            for piece in &mut reply.reasoning {
                (piece.provider, piece.model) = (call.provider.clone(), call.model.clone());
            }
            reply
        });
        // Usage is reported with a failure as well, since the provider bills it.
        answer.map_err(|failure| ModelError { usage: draft.usage, begun, ..failed(self.planned, failure) })
    }

    async fn drive(&self, client: http::Client, tap: &Arc<Tap>, begun: &mut bool) -> Result<(), Failure> {
        let mut stream = self.open(client, tap).await?;
        let start = Instant::now();
        let answer_end = start + self.limits.answer;
        loop {
            let has_stopped = tap.lock().fold.draft().has_stopped();
            let wait =
                // After the stop reason only counts are missing, so the wait is short.
                if has_stopped { MAX_AFTER_STOP.min(self.limits.request) } else { self.limits.request };
            let request_end = Instant::now() + wait;
            let next = timeout_at(request_end.min(answer_end), next_step(&mut stream, tap));
            let step = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(Failure::Cancelled),
                step = next => step,
            };
            let is_over = !matches!(step, Ok(PollStep::More));
            // Text that was held back belongs to the answer, also where it ends early.
            if is_over {
                tap.lock().fold.draft().flush_text();
            }
            // Deltas are sent before the end is judged, so that no text is missing from what was shown.
            self.pass_on(tap, begun).await?;
            match step {
                Ok(PollStep::More) => {}
                // The answer is whole: only its counts or its end mark are missing.
                Err(_) if has_stopped => return Ok(()),
                Ok(PollStep::Over(failure)) => return stream_result(tap, failure),
                Err(_) if Instant::now() >= answer_end => {
                    return Err(Failure::Endless { limit: EndlessLimit::Time(self.limits.answer) });
                }
                Err(_) => return Err(Failure::Timeout { limit: self.limits.request }),
            }
        }
    }

    /// Makes the stream. Nothing is sent before it is polled.
    async fn open(&self, client: http::Client, tap: &Arc<Tap>) -> Result<ChatStream, Failure> {
        let call = self.planned.model_call();
        let provider = self.planned.provider();
        let (request, options) = convert::to_request(provider.kind, call, self.planned.request());
        let sink: Arc<dyn ChatFrameSink> = Arc::<Tap>::clone(tap);
        let options = options
            .with_raw_frame_sink_arc(sink)
            .with_extra_headers(extra_headers(provider.kind, self.key.as_ref()));
        let adapter = match provider.kind {
            ProviderKind::Anthropic => AdapterKind::Anthropic,
            ProviderKind::OpenAi | ProviderKind::OpenRouter => AdapterKind::OpenAI,
            ProviderKind::OpenAiResponses => AdapterKind::OpenAIResp,
            ProviderKind::Gemini => AdapterKind::Gemini,
            ProviderKind::Ollama => AdapterKind::Ollama,
        };
        let target = ServiceTarget {
            endpoint: Endpoint::from_owned(provider.base_url.as_str()),
            auth: auth_data(provider, &call.model, self.key.as_ref()),
            model: ModelIden::new(adapter, call.model.as_str()),
        };
        // The text of these errors may hold the request.
        let unmade = |_| Failure::Unsent("it could not be put together".to_owned());
        let library = genai::Client::builder().with_reqwest(client).build().map_err(unmade)?;
        let opened = library.exec_chat_stream(target, request, Some(&options)).await;
        Ok(opened.map_err(unmade)?.stream)
    }

    /// Sends on what has come since the last time.
    async fn pass_on(&self, tap: &Tap, begun: &mut bool) -> Result<(), Failure> {
        let pieces = std::mem::take(&mut tap.lock().fold.draft().pieces);
        for piece in pieces {
            *begun = true;
            let delta = match piece {
                AnswerPiece::Text(text) => Delta::Text(text),
                AnswerPiece::Call { id, name } => Delta::Call { id, name },
            };
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Err(Failure::Cancelled),
                // A closed receiver takes no deltas; the caller still needs the answer.
                _ = self.deltas.send(delta) => {}
            }
        }
        Ok(())
    }
}

/// Returns the authentication for the library. Without a key it is given the whole request head, since it
/// would send an empty key otherwise.
fn auth_data(provider: &Provider, model: &str, key: Option<&SecretString>) -> AuthData {
    // With a key the library builds the usual headers itself.
    if let Some(key) = key {
        return AuthData::from_single(key.expose_secret());
    }
    let (path, headers) = match provider.kind {
        ProviderKind::Anthropic => {
            ("messages".to_owned(), Headers::from(("anthropic-version".to_owned(), "2023-06-01".to_owned())))
        }
        ProviderKind::OpenAi | ProviderKind::OpenRouter => {
            ("chat/completions".to_owned(), Headers::default())
        }
        ProviderKind::OpenAiResponses => ("responses".to_owned(), Headers::default()),
        ProviderKind::Gemini => (format!("models/{model}:streamGenerateContent?alt=sse"), Headers::default()),
        // The library sends none for it.
        ProviderKind::Ollama => return AuthData::None,
    };
    AuthData::RequestOverride { url: format!("{}{path}", provider.base_url), headers }
}

/// Returns the start of the ids of calls that come without one: the same in every run, another for every
/// request.
fn call_prefix(request: &Digest) -> String {
    let digest = request.to_string();
    format!("call_{}", digest.get(..12).unwrap_or(&digest))
}

/// Headers beside those that the library knows of.
fn extra_headers(kind: ProviderKind, key: Option<&SecretString>) -> Headers {
    match (kind, key) {
        // The library sends no key to it: servers of one's own have none, those behind a gate do.
        (ProviderKind::Ollama, Some(key)) => {
            Headers::from(("authorization".to_owned(), format!("Bearer {}", key.expose_secret())))
        }
        // OpenRouter asks programs to say their name.
        (ProviderKind::OpenRouter, _) => Headers::from(("x-title".to_owned(), "Writ".to_owned())),
        (
            ProviderKind::Anthropic
            | ProviderKind::OpenAi
            | ProviderKind::OpenAiResponses
            | ProviderKind::Gemini
            | ProviderKind::Ollama,
            _,
        ) => Headers::default(),
    }
}

/// Polls until frames came or the stream is over. The tap is asked after every poll, so that a failure is
/// seen even while the library has nothing to say.
async fn next_step(stream: &mut ChatStream, tap: &Tap) -> PollStep {
    let mut joining = Duration::ZERO;
    std::future::poll_fn(|cx| {
        let before = tap.lock().frames;
        let begun = std::time::Instant::now();
        let polled = silent_poll(stream, cx);
        joining += begun.elapsed();
        let mut tapped = tap.lock();
        if tapped.end.is_some() {
            return Poll::Ready(PollStep::Over(None));
        }
        if tap.allowance.is_used_up() {
            let limit = EndlessLimit::Size(MAX_UNSEEN);
            return Poll::Ready(PollStep::Over(Some(Failure::Endless { limit })));
        }
        match polled {
            Poll::Ready(None) => Poll::Ready(PollStep::Over(None)),
            // The frames have been read already: what the library cannot make of one does not matter.
            Poll::Ready(Some(Err(error))) if tapped.frames > before && !is_of_the_line(&error) => {
                Poll::Ready(PollStep::More)
            }
            Poll::Ready(Some(Err(error))) => {
                tapped.stated = stated_limits(&error);
                Poll::Ready(PollStep::Over(Some(classify_error(&error))))
            }
            Poll::Ready(Some(Ok(_))) => Poll::Ready(PollStep::More),
            Poll::Pending if tapped.frames > before => Poll::Ready(PollStep::More),
            Poll::Pending if joining > MAX_JOINING => {
                let limit = EndlessLimit::Time(MAX_JOINING);
                Poll::Ready(PollStep::Over(Some(Failure::Endless { limit })))
            }
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Polls the stream with logging off: the library logs frames and error bodies, which hold what the model and
/// the prompt say. Nothing of ours is logged in there.
fn silent_poll(
    stream: &mut ChatStream,
    cx: &mut Context<'_>,
) -> Poll<Option<genai::Result<genai::chat::ChatStreamEvent>>> {
    let silence = tracing::Dispatch::none();
    tracing::dispatcher::with_default(&silence, || Pin::new(stream).poll_next(cx))
}

/// Returns the result of a stream: an end in the frames counts first, then one of the transport.
fn stream_result(tap: &Tap, failure: Option<Failure>) -> Result<(), Failure> {
    let mut tapped = tap.lock();
    let is_foreign = tapped.frames > 0 && !tapped.has_data;
    match (tapped.end.take(), failure) {
        (Some(end), _) => end,
        (None, None) if is_foreign => {
            Err(Failure::Invalid { what: "it is no stream, as a web page or an answer in one piece is none" })
        }
        // After a stop reason the answer is whole; before it, `finish` calls it cut.
        (None, None | Some(Failure::Cut)) => Ok(()),
        (None, Some(failure)) => Err(failure),
    }
}

/// Returns true if an error is one of line or response, and not of the library's reading.
const fn is_of_the_line(error: &genai::Error) -> bool {
    matches!(error, genai::Error::WebStream { .. })
}

/// Returns the limits that the headers of a refusal state.
fn stated_limits(error: &genai::Error) -> Option<RateHeaders> {
    let genai::Error::WebStream { error, .. } = error else { return None };
    let genai::Error::HttpError { headers, .. } = error.downcast_ref()? else { return None };
    RateHeaders::read_headers(headers, time_of(SystemTime::now()))
}

/// The failure that an error of the library stands for.
fn classify_error(error: &genai::Error) -> Failure {
    if let genai::Error::WebStream { error, .. } = error {
        if let Some(genai::Error::HttpError { status, body, headers, .. }) = error.downcast_ref() {
            let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
            let wait = stated_wait(headers, SystemTime::now());
            // The library follows no redirect; the target is named, so that an owner can correct the URL.
            if let Some(target) = header("location").filter(|_| status.is_redirection()) {
                return provider_error(&format!("Moved to {target}").into(), status.as_u16(), None);
            }
            return read_refusal(status.as_u16(), body, wait);
        }
        if let Some(error) = error.downcast_ref::<http::Error>() {
            return transport_failure(error);
        }
        return Failure::Invalid { what: "the stream is no UTF-8, as a compressed one is none" };
    }
    Failure::Invalid { what: "the stream is not in the provider's format" }
}

fn transport_failure(error: &http::Error) -> Failure {
    // The body broke off in the middle: part of an answer may have come.
    if error.is_body() || error.is_decode() {
        return Failure::Cut;
    }
    // The connection was there, so the server has ended it.
    if !error.is_connect() && !error.is_builder() {
        return Failure::Dropped;
    }
    // Without the URL: a base URL is the owner's, but it need not be everywhere.
    let mut source: &dyn std::error::Error = error;
    while let Some(inner) = source.source() {
        source = inner;
    }
    Failure::Unsent(source.to_string())
}

/// An HTTP error. Anything but 2xx is one; redirects are not followed.
fn read_refusal(status: u16, body: &str, wait: Option<Duration>) -> Failure {
    provider_error(&error_in(body), status, wait)
}
