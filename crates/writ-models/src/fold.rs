//! An answer, folded from the frames of a stream. Pure: frames in, answer or error out.

mod anthropic;

mod openai;

mod responses;

mod gemini;

mod ollama;

use serde_json::Value;
use writ_types::chat::{ModelReply, StopReason, ToolCall, Usage, estimate_tokens};
use writ_types::unit::{ByteCount, Tokens};

use crate::config::ProviderKind;
use crate::error::{EndlessLimit, Failure};

pub(crate) use crate::refusal::provider_error;

/// The largest answer, in bytes: text, names and arguments together. 128 K tokens, the most that a known
/// model gives, are about half a megabyte.
pub(crate) const MAX_REPLY_BYTES: usize = 8 * 1024 * 1024;

/// Bytes that an answer may have per token that was asked for. Long runs of spaces are one token.
const MAX_BYTES_PER_TOKEN: u64 = 64;

/// Bytes that every answer may have, however few tokens were asked for.
pub(crate) const MIN_REPLY_BYTES: usize = 64 * 1024;

/// The largest arguments of one call: 1 MiB.
pub(crate) const MAX_ARGUMENT_BYTES: usize = 1024 * 1024;

/// The most tool calls in one answer. Models that use tools in parallel ask for a handful.
pub(crate) const MAX_CALLS: usize = 128;

/// The status of an error that comes within a stream, where the provider names none.
const STREAM_ERROR: u16 = 500;

/// The longest name or id that is kept.
pub(crate) const MAX_NAME_BYTES: usize = 256;

/// More of an answer, as it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Call { id: String, name: String },
}

/// Which format is folded, and how far it got.
#[derive(Debug)]
pub(crate) enum Fold {
    Anthropic(anthropic::Blocks, Draft),
    OpenAi(openai::Slots, Draft),
    Responses(responses::Items, Draft),
    Gemini(Draft),
    Ollama(Draft),
}

impl Fold {
    /// Begins. `call_prefix` begins the ids of calls that come without one; it differs from request to request.
    pub(crate) fn new(kind: ProviderKind, max_output: Tokens, call_prefix: String) -> Self {
        let draft = Draft::new(max_output, call_prefix);
        match kind {
            ProviderKind::Anthropic => Self::Anthropic(anthropic::Blocks::default(), draft),
            ProviderKind::OpenAi | ProviderKind::OpenRouter => Self::OpenAi(openai::Slots::default(), draft),
            ProviderKind::OpenAiResponses => Self::Responses(responses::Items::default(), draft),
            ProviderKind::Gemini => Self::Gemini(draft),
            ProviderKind::Ollama => Self::Ollama(draft),
        }
    }

    /// Takes one frame. `true`: it was the last one.
    pub(crate) fn frame(&mut self, data: &str) -> Result<bool, Failure> {
        match self {
            Self::Anthropic(blocks, draft) => blocks.frame(draft, data),
            Self::OpenAi(slots, draft) => slots.frame(draft, data),
            Self::Responses(items, draft) => items.frame(draft, data),
            Self::Gemini(draft) => gemini::frame(draft, data),
            Self::Ollama(draft) => ollama::frame(draft, data),
        }
    }

    pub(crate) const fn draft(&mut self) -> &mut Draft {
        match self {
            Self::Anthropic(_, draft)
            | Self::OpenAi(_, draft)
            | Self::Responses(_, draft)
            | Self::Gemini(draft)
            | Self::Ollama(draft) => draft,
        }
    }
}

/// An answer that is not complete yet.
#[derive(Debug)]
pub(crate) struct Draft {
    text: String,
    calls: Vec<DraftCall>,
    stop: Option<StopReason>,
    model: String,
    bytes: usize,
    limit: usize,
    call_prefix: String,
    pub(crate) usage: Usage,
    pub(crate) pieces: Vec<Piece>,
}

#[derive(Debug)]
struct DraftCall {
    id: String,
    name: String,
    arguments: String,
}

impl Draft {
    fn new(max_output: Tokens, call_prefix: String) -> Self {
        let by_tokens = max_output.get().saturating_mul(MAX_BYTES_PER_TOKEN);
        let limit = usize::try_from(by_tokens).unwrap_or(usize::MAX).clamp(MIN_REPLY_BYTES, MAX_REPLY_BYTES);
        Self {
            text: String::new(),
            calls: Vec::new(),
            stop: None,
            model: String::new(),
            bytes: 0,
            limit,
            call_prefix,
            usage: Usage::default(),
            pieces: Vec::new(),
        }
    }

    /// Counts bytes that are kept or at least were said.
    fn count(&mut self, bytes: usize) -> Result<(), Failure> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limit {
            let limit = ByteCount::new(u64::try_from(self.limit).unwrap_or(u64::MAX));
            return Err(Failure::Endless { limit: EndlessLimit::Size(limit) });
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.count(text.len())?;
        if !text.is_empty() {
            self.text.push_str(text);
            self.pieces.push(Piece::Text(text.to_owned()));
        }
        Ok(())
    }

    /// Begins a call; returns its place.
    fn call(&mut self, id: Option<&str>, name: Option<&str>) -> Result<usize, Failure> {
        let (Some(id), Some(name)) = (id.filter(|id| !id.is_empty()), name.filter(|name| !name.is_empty()))
        else {
            return Err(Failure::Invalid { what: "a tool call without id or name" });
        };
        if id.len() > MAX_NAME_BYTES || name.len() > MAX_NAME_BYTES {
            return Err(Failure::Invalid { what: "a tool call with an id or name of absurd length" });
        }
        if self.calls.iter().any(|call| call.id == id) {
            return Err(Failure::Invalid { what: "two tool calls with one id" });
        }
        if self.calls.len() >= MAX_CALLS {
            return Err(Failure::TooManyCalls { limit: MAX_CALLS });
        }
        self.count(id.len() + name.len())?;
        self.pieces.push(Piece::Call { id: id.to_owned(), name: name.to_owned() });
        self.calls.push(DraftCall { id: id.to_owned(), name: name.to_owned(), arguments: String::new() });
        Ok(self.calls.len() - 1)
    }

    fn arguments(&mut self, place: usize, more: &str) -> Result<(), Failure> {
        let Some(call) = self.calls.get_mut(place) else {
            return Err(Failure::Invalid { what: "arguments without a tool call" });
        };
        call.arguments.push_str(more);
        if call.arguments.len() > MAX_ARGUMENT_BYTES {
            let limit = ByteCount::new(u64::try_from(MAX_ARGUMENT_BYTES).unwrap_or(u64::MAX));
            return Err(Failure::ArgumentsTooLong { limit });
        }
        self.count(more.len())
    }

    /// Begins a call in a format whose calls may have no id; without one, it is given one.
    fn call_with_or_without_id(&mut self, id: Option<&str>, name: Option<&str>) -> Result<usize, Failure> {
        match id.filter(|id| !id.is_empty()) {
            Some(id) => self.call(Some(id), name),
            None => {
                let made = format!("{}_{}", self.call_prefix, self.calls.len());
                self.call(Some(&made), name)
            }
        }
    }

    /// Arguments that come as a value: an object is taken as it is, text as the text of arguments.
    fn value_arguments(&mut self, place: usize, value: Option<&Value>) -> Result<(), Failure> {
        match value {
            None | Some(Value::Null) => Ok(()),
            Some(Value::String(text)) => self.arguments(place, text),
            Some(value) => self.arguments(place, &value.to_string()),
        }
    }

    /// Arguments that come once more, whole.
    fn whole_arguments(&mut self, place: usize, whole: &str) -> Result<(), Failure> {
        match self.calls.get_mut(place) {
            Some(call) if call.arguments != whole => {
                call.arguments.clear();
                self.arguments(place, whole)
            }
            Some(_) | None => Ok(()),
        }
    }

    fn model(&mut self, value: &Value) {
        if self.model.is_empty()
            && let Some(model) = value.as_str()
        {
            self.model = model.chars().take(MAX_NAME_BYTES).collect();
        }
    }

    /// The whole answer, once the stream has ended.
    ///
    /// # Errors
    ///
    /// If there was no stop reason, or one that does not fit.
    pub(crate) fn finish(&mut self, input_estimate: Tokens) -> Result<ModelReply, Failure> {
        let stop = self.stop.take().ok_or(Failure::Cut)?;
        let stop = match stop {
            StopReason::ToolUse if self.calls.is_empty() => {
                return Err(Failure::Invalid { what: "it stopped for tools and named none" });
            }
            // Some compatible servers call every end «stop».
            StopReason::EndTurn if !self.calls.is_empty() => StopReason::ToolUse,
            StopReason::EndTurn
            | StopReason::ToolUse
            | StopReason::MaxTokens
            | StopReason::ContentFilter
            | StopReason::Other(_) => stop,
        };
        if self.usage == Usage::default() {
            // A server that does not count: better an estimate than a call for free.
            let said = self.calls.iter().map(|call| estimate_tokens(&call.arguments));
            let output = said.fold(estimate_tokens(&self.text), Tokens::saturating_add);
            self.usage = Usage { input: input_estimate, output, ..Usage::default() };
        }
        Ok(ModelReply {
            text: std::mem::take(&mut self.text),
            calls: self.calls.drain(..).map(DraftCall::finish).collect(),
            stop,
            usage: self.usage,
            model: std::mem::take(&mut self.model),
        })
    }
}

impl DraftCall {
    /// Arguments that are a JSON object are parsed; anything else is kept as text, for the tool to refuse.
    fn finish(self) -> ToolCall {
        let arguments = if self.arguments.trim().is_empty() {
            Value::Object(serde_json::Map::new())
        } else {
            match serde_json::from_str(&self.arguments) {
                Ok(Value::Object(fields)) => Value::Object(fields),
                Ok(_) | Err(_) => Value::String(self.arguments),
            }
        };
        ToolCall { id: self.id, name: self.name, arguments }
    }
}

fn parsed(data: &str) -> Result<Value, Failure> {
    match serde_json::from_str(data) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) | Err(_) => Err(Failure::Invalid { what: "a stream frame is no JSON object" }),
    }
}

/// The most tokens that a count of one call is believed to have: more than the largest window that is sold, of ten million.
const MAX_COUNTED: u64 = 16 * 1024 * 1024;

/// A count of tokens; anything else counts as none given, so that no provider's slip uses up the budget of a day.
fn tokens(usage: &Value, key: &str) -> Option<Tokens> {
    usage.get(key).and_then(Value::as_u64).filter(|count| *count <= MAX_COUNTED).map(Tokens::new)
}
