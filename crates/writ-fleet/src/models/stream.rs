//! An answer as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, stream};
use hyper::body::Frame;
use serde_json::Value;
use writ_runtime::routed::{AnswerEvent, AnswerStream, RoutedReply, RoutingError};

use super::refusal::{Refusal, WireFormat};
use super::{anthropic, openai};

/// The pause after which a sign of life is sent: clients and what lies between give up on silent connections.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Writes the events of one format.
#[derive(Debug)]
pub(super) enum EventWriter {
    /// OpenAI Chat Completions.
    OpenAi(openai::ChatHead),
    /// Anthropic Messages; true once the block of text has begun.
    Anthropic(anthropic::MessageHead, bool),
}

impl EventWriter {
    fn opening(&self) -> String {
        match self {
            Self::OpenAi(head) => data_line(&head.opening_chunk()),
            Self::Anthropic(head, _) => named_event(&head.opening_event()),
        }
    }

    fn text(&mut self, text: &str) -> String {
        match self {
            Self::OpenAi(head) => data_line(&head.text_chunk(text)),
            Self::Anthropic(_, has_begun) => {
                let start =
                    if std::mem::replace(has_begun, true) { None } else { Some(anthropic::text_start()) };
                start.iter().chain([&anthropic::text_delta(text)]).map(named_event).collect()
            }
        }
    }

    fn closing(&self, answer: &RoutedReply) -> String {
        match self {
            Self::OpenAi(head) => {
                let chunks: String = head.closing_chunks(answer).iter().map(data_line).collect();
                chunks + "data: [DONE]\n\n"
            }
            Self::Anthropic(_, has_begun) => {
                let stop = has_begun.then(anthropic::text_stop);
                let events = anthropic::MessageHead::closing_events(answer, usize::from(*has_begun));
                stop.iter().chain(&events).map(named_event).collect()
            }
        }
    }

    fn failure(&self, error: RoutingError) -> String {
        let refusal = Refusal::from(error);
        match self {
            // Clients of this format find an error by its field, and wait for no end after it.
            Self::OpenAi(_) => data_line(&refusal.body(WireFormat::OpenAi)),
            Self::Anthropic(..) => named_event(&refusal.body(WireFormat::Anthropic)),
        }
    }

    const fn sign_of_life(&self) -> &'static str {
        match self {
            Self::OpenAi(_) => ": waiting\n\n",
            Self::Anthropic(..) => "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        }
    }
}

fn data_line(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// An event is named by its type.
fn named_event(data: &Value) -> String {
    let name = data.get("type").and_then(Value::as_str).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}

/// The progress of a stream.
struct Progress {
    writer: EventWriter,
    answer: AnswerStream,
    /// The event that has come already.
    first: Option<AnswerEvent>,
    has_opened: bool,
}

/// Returns the body of a streamed answer, of which `first` has come already.
pub(super) fn event_stream(
    writer: EventWriter,
    answer: AnswerStream,
    first: Option<AnswerEvent>,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
    let start = Progress { writer, answer, first, has_opened: false };
    stream::unfold(Some(start), |progress| async {
        let mut progress = progress?;
        if !std::mem::replace(&mut progress.has_opened, true) {
            let opening = progress.writer.opening();
            return Some((frame_of(opening), Some(progress)));
        }
        let event = match progress.first.take() {
            Some(event) => Some(event),
            None => match tokio::time::timeout(KEEP_ALIVE, progress.answer.next_event()).await {
                Ok(event) => event,
                Err(_) => {
                    let sign = progress.writer.sign_of_life().to_owned();
                    return Some((frame_of(sign), Some(progress)));
                }
            },
        };
        match event {
            Some(AnswerEvent::Text(text)) => {
                let text = progress.writer.text(&text);
                Some((frame_of(text), Some(progress)))
            }
            Some(AnswerEvent::Whole(answer)) => Some((frame_of(progress.writer.closing(&answer)), None)),
            Some(AnswerEvent::Failed(error)) => Some((frame_of(progress.writer.failure(error)), None)),
            // The task has ended without a word: the client must not take that for a whole answer.
            None => Some((frame_of(progress.writer.failure(RoutingError::Unrecorded)), None)),
        }
    })
}

fn frame_of(text: String) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(Bytes::from(text)))
}
