//! Answers of a script.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;

use super::parsed::ParsedRequest;

/// The reason of a scripted model for stopping, in no vendor's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its turn is complete.
    EndTurn,
    /// It wants tools.
    ToolUse,
    /// The answer reached its size limit.
    MaxTokens,
    /// The provider withheld the answer.
    ContentFilter,
    /// A word of the provider that is none of these.
    Raw(String),
}

/// A tool call to answer with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptedCall {
    /// Its id; `None`: the server makes one.
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// Its arguments as sent: usually JSON, but any text is sent as it is.
    pub arguments: String,
}

/// A gate that a test opens.
#[derive(Clone, Debug)]
pub struct ReplyGate(Arc<Semaphore>);

impl Default for ReplyGate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl ReplyGate {
    /// Makes a closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens it permanently.
    pub fn open(&self) {
        self.0.close();
    }

    /// Waits until it is open.
    pub async fn wait_until_open(&self) {
        // A closed semaphore is an open gate: it never gives a permit, only the end.
        while self.0.acquire().await.is_ok() {}
    }
}

/// A fault of an answer.
#[derive(Clone, Debug)]
pub enum ReplyFault {
    /// An HTTP error instead of an answer.
    Status {
        /// The status.
        status: u16,
        /// The `Retry-After` header, if any.
        retry_after: Option<String>,
    },
    /// This response as it is.
    Response {
        /// The status.
        status: u16,
        /// Headers.
        headers: Vec<(&'static str, String)>,
        /// The body.
        body: String,
    },
    /// The refusal of a request that is longer than the model's context of 128,000 tokens.
    ContextTooLong,
    /// The refusal of a request that is longer than a window, in tokens.
    ContextOver {
        /// The window.
        window: u64,
        /// The size of the request.
        sent: u64,
    },
    /// A redirect to another URL.
    Redirect(String),
    /// The connection is cut after this many stream frames; the rest is not sent.
    CutAfter(usize),
    /// The stream ends in good order after this many frames: no stop reason, no error.
    EndAfter(usize),
    /// After this many frames, one that is no JSON.
    GarbageAfter(usize),
    /// After this many frames, one that is no UTF-8.
    InvalidUtf8After(usize),
    /// After this many frames, an error event of the provider.
    ErrorEventAfter(usize),
    /// After this many frames, silence; the connection stays open.
    SilenceAfter(usize),
    /// After this many frames, a tool call without id and name.
    MalformedCallAfter(usize),
    /// After this many frames, this text as it is; then the rest.
    RawAfter(usize, String),
    /// The first byte comes when the gate is opened.
    SlowFirstByte(ReplyGate),
    /// Text without end.
    EndlessText,
    /// One stream frame without end.
    EndlessFrame {
        /// The bytes of each piece that it comes in.
        chunk: usize,
    },
    /// An HTTP error with a body that has no end.
    EndlessErrorBody,
}

/// A scripted answer.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The text, in the pieces that a stream sends it in.
    pub texts: Vec<String>,
    /// The tools that it wants.
    pub calls: Vec<ScriptedCall>,
    /// The reason for stopping; `None`: tools if there are calls, else the end of its turn.
    pub stop: Option<Stop>,
    /// Tokens sent; `None`: a quarter of the request's characters.
    pub input_tokens: Option<u64>,
    /// Of those, tokens that were cached.
    pub cached_tokens: u64,
    /// Of those, tokens written to the cache (Anthropic only).
    pub cache_write_tokens: u64,
    /// Tokens of the answer; `None`: a quarter of its characters.
    pub output_tokens: Option<u64>,
    /// The fault, if there is one.
    pub fault: Option<ReplyFault>,
    /// The pause of the server before each frame of a stream; `None`: none.
    pub pace: Option<Duration>,
}

impl Reply {
    /// A text, streamed in pieces of a few words.
    pub fn text(text: &str) -> Self {
        Self { texts: text.split_inclusive(' ').map(str::to_owned).collect(), ..Self::default() }
    }

    /// One tool call.
    pub fn call(name: &str, arguments: Value) -> Self {
        Self::default().and_call(name, arguments)
    }

    /// Adds a tool call.
    #[must_use]
    pub fn and_call(self, name: &str, arguments: Value) -> Self {
        self.and_raw_call(name, arguments.to_string())
    }

    /// Adds a tool call with any text as its arguments.
    #[must_use]
    pub fn and_raw_call(mut self, name: &str, arguments: impl Into<String>) -> Self {
        self.calls.push(ScriptedCall { id: None, name: name.to_owned(), arguments: arguments.into() });
        self
    }

    /// Stops for this reason.
    #[must_use]
    pub fn with_stop(mut self, stop: Stop) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Says these tokens were used: sent, and of the answer.
    #[must_use]
    pub const fn with_usage(mut self, input: u64, output: u64) -> Self {
        self.input_tokens = Some(input);
        self.output_tokens = Some(output);
        self
    }

    /// Is streamed with this wait before each frame.
    #[must_use]
    pub fn with_pace(mut self, wait: Duration) -> Self {
        self.pace = Some(wait);
        self
    }

    /// Goes wrong.
    #[must_use]
    pub fn with_fault(mut self, fault: ReplyFault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// An HTTP error.
    pub fn status(status: u16) -> Self {
        Self::default().with_fault(ReplyFault::Status { status, retry_after: None })
    }

    /// Too many requests, with the time after which to try again.
    pub fn too_many_requests(retry_after: &str) -> Self {
        Self::default()
            .with_fault(ReplyFault::Status { status: 429, retry_after: Some(retry_after.to_owned()) })
    }

    /// Many tool calls at once.
    pub fn many_calls(count: usize, name: &str) -> Self {
        (0..count).fold(Self::default(), |reply, n| reply.and_call(name, serde_json::json!({ "n": n })))
    }

    /// Makes a tool call with arguments of about this many bytes of JSON.
    pub fn large_arguments(name: &str, bytes: usize) -> Self {
        Self::call(name, serde_json::json!({ "content": "x".repeat(bytes) }))
    }

    /// Returns the reason for stopping, stated or derived.
    pub(crate) fn stops(&self) -> Stop {
        match &self.stop {
            Some(stop) => stop.clone(),
            None if self.calls.is_empty() => Stop::EndTurn,
            None => Stop::ToolUse,
        }
    }

    /// Tokens of the answer.
    pub(crate) fn output(&self) -> u64 {
        let characters = || {
            let texts = self.texts.iter().map(|text| text.chars().count());
            let calls = self.calls.iter().map(|call| call.name.len() + call.arguments.len());
            u64::try_from(texts.chain(calls).sum::<usize>()).unwrap_or(u64::MAX)
        };
        self.output_tokens.unwrap_or_else(|| characters().div_ceil(4))
    }

    /// Tokens sent, cached ones included.
    pub(crate) fn input(&self, request: &ParsedRequest) -> u64 {
        self.input_tokens.unwrap_or_else(|| request.characters().div_ceil(4))
    }
}

/// A source of answers: any closure, or [`list_of_replies`]. It is given no seed; it may derive its answer from the tool
/// results in the request.
pub trait Script: Send + 'static {
    /// Answers a request.
    fn reply(&mut self, request: &ParsedRequest) -> Reply;
}

impl<F: FnMut(&ParsedRequest) -> Reply + Send + 'static> Script for F {
    fn reply(&mut self, request: &ParsedRequest) -> Reply {
        self(request)
    }
}

/// A script that answers with these replies, one after another, and says so when it has run out.
pub fn list_of_replies(replies: impl IntoIterator<Item = Reply>) -> impl Script {
    let mut replies: VecDeque<Reply> = replies.into_iter().collect();
    move |_: &ParsedRequest| replies.pop_front().unwrap_or_else(|| Reply::text("The script has ended."))
}
