//! An answer, folded from the frames of a stream. Pure: frames in, answer or error out.

mod anthropic;

mod arguments;

mod calls;

mod openai;

mod responses;

mod gemini;

mod ollama;

mod reasoning;

mod think;

use serde_json::Value;
use writ_types::chat::{ModelReply, StopReason, ToolCall, Usage, estimate_tokens};
use writ_types::unit::{ByteCount, Tokens};

use crate::config::ProviderKind;
use crate::error::{EndlessLimit, Failure};

pub(crate) use crate::refusal::provider_error;
use arguments::{ArgumentScan, Arguments};

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

/// The longest name or id.
pub(crate) const MAX_NAME_BYTES: usize = 256;

/// More of an answer, as it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AnswerPiece {
    Text(String),
    Call { id: String, name: String },
}

/// The format that is folded, and its state.
#[derive(Debug)]
pub(crate) enum Fold {
    Anthropic(anthropic::Blocks, Draft),
    OpenAi(openai::CallSlots, Draft),
    Responses(responses::Items, Draft),
    Gemini(Draft),
    Ollama(Draft),
}

impl Fold {
    /// Begins. `call_prefix` begins the ids of calls that come without one; it differs from request to request.
    pub(crate) fn new(kind: ProviderKind, max_output: Tokens, call_prefix: String) -> Self {
        let mut draft = Draft::new(max_output, call_prefix);
        draft.may_imply_stop = matches!(kind, ProviderKind::OpenAi | ProviderKind::OpenRouter);
        match kind {
            ProviderKind::Anthropic => Self::Anthropic(anthropic::Blocks::default(), draft),
            ProviderKind::OpenAi | ProviderKind::OpenRouter => Self::OpenAi(Default::default(), draft),
            ProviderKind::OpenAiResponses => Self::Responses(responses::Items::default(), draft),
            ProviderKind::Gemini => Self::Gemini(draft),
            ProviderKind::Ollama => Self::Ollama(draft),
        }
    }

    /// Takes one frame. `true`: it was the last one.
    pub(crate) fn frame(&mut self, data: &str) -> Result<bool, Failure> {
        match self {
            Self::Anthropic(blocks, draft) => blocks.frame(draft, data),
            Self::OpenAi(slots, draft) => openai::fold_frame(slots, draft, data),
            Self::Responses(items, draft) => items.frame(draft, data),
            Self::Gemini(draft) => gemini::fold_frame(draft, data),
            Self::Ollama(draft) => ollama::fold_frame(draft, data),
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
    thinking: think::Thinking,
    reasoning: reasoning::Pieces,
    /// Servers of this format may leave out the stop reason.
    may_imply_stop: bool,
    /// True once the provider has ended the answer.
    is_ended: bool,
    /// Its call came in the form of one function call.
    is_old_form: bool,
    pub(crate) usage: Usage,
    pub(crate) pieces: Vec<AnswerPiece>,
}

#[derive(Debug, Default)]
struct DraftCall {
    /// Empty until the call has a name.
    id: String,
    /// The id in the provider's word, which may not be unique.
    provider_id: Option<String>,
    name: String,
    arguments: String,
    progress: ArgumentScan,
}

impl Draft {
    fn new(max_output: Tokens, call_prefix: String) -> Self {
        let by_tokens = max_output.get().saturating_mul(MAX_BYTES_PER_TOKEN);
        // The bound follows the tokens that were asked for, so a short answer cannot become a long one.
        let limit = usize::try_from(by_tokens).unwrap_or(usize::MAX).clamp(MIN_REPLY_BYTES, MAX_REPLY_BYTES);
        Self {
            text: String::new(),
            calls: Vec::new(),
            stop: None,
            model: String::new(),
            bytes: 0,
            limit,
            call_prefix,
            thinking: think::Thinking::default(),
            reasoning: reasoning::Pieces::default(),
            may_imply_stop: false,
            is_ended: false,
            is_old_form: false,
            usage: Usage::default(),
            pieces: Vec::new(),
        }
    }

    /// Counts bytes that are stored or at least came.
    // Counted before it is stored, so that the bound holds for memory, too.
    fn count_bytes(&mut self, bytes: usize) -> Result<(), Failure> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limit {
            let limit = ByteCount::new(u64::try_from(self.limit).unwrap_or(u64::MAX));
            return Err(Failure::Endless { limit: EndlessLimit::Size(limit) });
        }
        Ok(())
    }

    fn push_text(&mut self, text: &str) -> Result<(), Failure> {
        self.count_bytes(text.len())?;
        self.show_text(text.to_owned());
        Ok(())
    }

    /// Takes text of an answer in which a server may have left thinking.
    fn push_answer(&mut self, text: &str) -> Result<(), Failure> {
        self.count_bytes(text.len())?;
        let text = self.thinking.visible(text);
        self.show_text(text);
        Ok(())
    }

    fn show_text(&mut self, text: String) {
        if !text.is_empty() {
            self.text.push_str(&text);
            self.pieces.push(AnswerPiece::Text(text));
        }
    }

    /// Shows what was held back, once nothing more comes.
    pub(crate) fn flush_text(&mut self) {
        let rest = self.thinking.rest();
        self.show_text(rest);
    }

    /// Records that the provider has ended the answer.
    fn mark_end(&mut self) {
        self.is_ended = true;
    }

    /// Returns true if a stop reason came.
    pub(crate) const fn has_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// Begins a call; returns its place.
    fn call(&mut self, id: Option<&str>, name: Option<&str>) -> Result<usize, Failure> {
        if name.is_none_or(str::is_empty) {
            return Err(Failure::Invalid { what: "a tool call without a name" });
        }
        let place = self.open_call()?;
        self.name_call(place, id, name)?;
        Ok(place)
    }

    /// Begins a call with a name and an id that may come later.
    fn open_call(&mut self) -> Result<usize, Failure> {
        if self.calls.len() >= MAX_CALLS {
            return Err(Failure::TooManyCalls { limit: MAX_CALLS });
        }
        self.calls.push(DraftCall::default());
        Ok(self.calls.len() - 1)
    }

    /// Gives a call an id and a name, as far as it has none. It is announced once it has a name, with an id of our own
    /// where none came, or one that another call has.
    fn name_call(&mut self, place: usize, id: Option<&str>, name: Option<&str>) -> Result<(), Failure> {
        let (id, name) = (id.unwrap_or_default(), name.unwrap_or_default());
        // Ids and names are part of the answer's size.
        self.count_bytes(id.len() + name.len())?;
        if name.len() > MAX_NAME_BYTES {
            return Err(Failure::Invalid { what: "a tool call with a name of absurd length" });
        }
        let Some(call) = self.calls.get(place) else { return Ok(()) };
        // The first id counts: some servers send another one with each piece.
        let known = call.provider_id.is_some();
        let provider_id = (!known && !id.is_empty() && id.len() <= MAX_NAME_BYTES).then(|| id.to_owned());
        let announced = call.name.is_empty() && !name.is_empty();
        // A call is shown when its name is known, and not before.
        let unique = announced.then(|| {
            let own = provider_id.clone().or_else(|| call.provider_id.clone());
            own.filter(|id| self.is_free(id)).unwrap_or_else(|| self.made_id(place))
        });
        let Some(call) = self.calls.get_mut(place) else { return Ok(()) };
        if provider_id.is_some() {
            call.provider_id = provider_id;
        }
        if let Some(unique) = unique {
            self.count_bytes(unique.len())?;
            let Some(call) = self.calls.get_mut(place) else { return Ok(()) };
            call.id.clone_from(&unique);
            name.clone_into(&mut call.name);
            self.pieces.push(AnswerPiece::Call { id: unique, name: name.to_owned() });
        }
        Ok(())
    }

    fn is_free(&self, id: &str) -> bool {
        !self.calls.iter().any(|call| call.id == id)
    }

    /// An id that no other call has: there are fewer calls than numbers.
    fn made_id(&self, place: usize) -> String {
        // There are more numbers than calls, so one of them is free.
        let numbers = place..place.saturating_add(MAX_CALLS + 1);
        let mut made = numbers.map(|number| format!("{}_{number}", self.call_prefix));
        made.find(|id| self.is_free(id)).unwrap_or_default()
    }

    fn name_of(&self, place: usize) -> &str {
        self.calls.get(place).map_or("", |call| &call.name)
    }

    fn provider_id(&self, place: usize) -> Option<&str> {
        self.calls.get(place)?.provider_id.as_deref()
    }

    fn arguments_of(&self, place: usize) -> &str {
        self.calls.get(place).map_or("", |call| &call.arguments)
    }

    fn arguments_state(&self, place: usize) -> Arguments {
        self.calls.get(place).map_or(Arguments::Empty, |call| call.progress.state())
    }

    fn arguments(&mut self, place: usize, more: &str) -> Result<(), Failure> {
        let Some(call) = self.calls.get_mut(place) else {
            return Err(Failure::Invalid { what: "arguments without a tool call" });
        };
        call.arguments.push_str(more);
        call.progress.read(more);
        // Checked after appending, which is at most one frame beyond the bound.
        if call.arguments.len() > MAX_ARGUMENT_BYTES {
            let limit = ByteCount::new(u64::try_from(MAX_ARGUMENT_BYTES).unwrap_or(u64::MAX));
            return Err(Failure::ArgumentsTooLong { limit });
        }
        self.count_bytes(more.len())
    }

    /// Takes more arguments of a call, where a server may repeat them whole or send them as a value.
    fn more_arguments(&mut self, place: usize, value: Option<&Value>) -> Result<(), Failure> {
        let (more, is_value) = match value {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::String(text)) => (text.clone(), false),
            Some(value) => (value.to_string(), true),
        };
        let state = self.arguments_state(place);
        // Only complete arguments can be a repetition; partial ones go on.
        let known = if state == Arguments::Complete { self.arguments_of(place).trim() } else { "" };
        if state != Arguments::Partial && (more.trim().is_empty() || known == more.trim()) {
            return self.count_bytes(more.len());
        }
        // An empty object stands for arguments that are still to come.
        if is_value || known == "{}" {
            return self.whole_arguments(place, &more);
        }
        self.arguments(place, &more)
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
                call.progress = ArgumentScan::default();
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
    pub(crate) fn finish_answer(&mut self, input_estimate: Tokens) -> Result<ModelReply, Failure> {
        self.flush_text();
        // Without a stop reason the answer may be cut, except where the format leaves it out.
        let stop = self.stop.take().or_else(|| self.implied_stop()).ok_or(Failure::Cut)?;
        // A call that a server opened, but never named or filled, is ignored.
        self.calls.retain(|call| !call.name.is_empty() || call.progress.has_begun);
        if self.calls.iter().any(|call| call.name.is_empty()) {
            return Err(Failure::Invalid { what: "a tool call without a name" });
        }
        let stop = match stop {
            // The server could not read a call that the model wrote: the rest of the answer stands.
            StopReason::ToolUse if self.calls.is_empty() && !self.text.trim().is_empty() => {
                StopReason::EndTurn
            }
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
            reasoning: std::mem::take(&mut self.reasoning).finish(),
        })
    }

    /// Returns the stop reason of an answer without one, in a format that some servers leave it out of: only
    /// where the server has ended the answer, or where it has calls and all of them are whole.
    fn implied_stop(&self) -> Option<StopReason> {
        if !self.may_imply_stop {
            return None;
        }
        let is_whole =
            |call: &DraftCall| !call.name.is_empty() && call.progress.state() == Arguments::Complete;
        // Whole arguments show that nothing of the last call is missing.
        if !self.calls.is_empty() && self.calls.iter().all(is_whole) {
            return Some(StopReason::ToolUse);
        }
        (self.is_ended && self.calls.is_empty() && !self.text.is_empty()).then_some(StopReason::EndTurn)
    }
}

impl DraftCall {
    /// Parses arguments that are a JSON object; others stay text, for the tool to refuse.
    fn finish(self) -> ToolCall {
        let arguments = if self.arguments.trim().is_empty() {
            Value::Object(serde_json::Map::new())
        } else {
            // Arguments of another type stay text, so that the tool says what is wrong with them.
            match serde_json::from_str(&self.arguments) {
                Ok(Value::Object(fields)) => Value::Object(fields),
                Ok(Value::Null) => Value::Object(serde_json::Map::new()),
                Ok(_) | Err(_) => Value::String(self.arguments),
            }
        };
        ToolCall { id: self.id, name: self.name, arguments }
    }
}

fn parse_frame(data: &str) -> Result<Value, Failure> {
    match serde_json::from_str(data) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) | Err(_) => Err(Failure::Invalid { what: "a stream frame is no JSON object" }),
    }
}

/// The most tokens that a count of one call is believed to have: more than the largest window that is sold, of ten million.
const MAX_COUNTED: u64 = 16 * 1024 * 1024;

/// A count of tokens; anything else counts as none given, so that no provider's slip uses up the budget of a day.
// A count beyond all windows is a mistake of the provider, and would use up the budget.
fn read_tokens(usage: &Value, key: &str) -> Option<Tokens> {
    usage.get(key).and_then(Value::as_u64).filter(|count| *count <= MAX_COUNTED).map(Tokens::new)
}
