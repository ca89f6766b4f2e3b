//! A request as a script sees it, in no vendor's words.

use std::collections::BTreeMap;

use serde_json::Value;
use writ_types::chat::Role;

use super::files::{ParsedFile, all_files};

/// The wire format of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedFormat {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions.
    OpenAi,
    /// OpenRouter: OpenAI Chat Completions with additions of its own.
    OpenRouter,
    /// OpenAI Responses.
    Responses,
    /// Gemini, `generateContent` and `streamGenerateContent`.
    Gemini,
    /// Ollama's own chat API.
    Ollama,
}

/// A tool call of an earlier answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedCall {
    /// Its id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Its arguments; text where they were no JSON.
    pub arguments: Value,
}

/// A tool's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedResult {
    /// The id of the call.
    pub call_id: String,
    /// The tool's name, taken from the call.
    pub name: String,
    /// The text as the model reads it.
    pub text: String,
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedMessage {
    /// The speaker. Results are [`Role::Tool`] in all formats.
    pub role: Role,
    /// Its text, pieces joined.
    pub text: String,
    /// The assistant's tool calls.
    pub calls: Vec<ParsedCall>,
    /// Tool results.
    pub results: Vec<ParsedResult>,
}

/// A tool on offer.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedTool {
    /// Its name.
    pub name: String,
    /// Its description for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: Value,
}

/// A checked request.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedRequest {
    /// The format of the request.
    pub format: ServedFormat,
    /// The model asked for.
    pub model: String,
    /// True if the answer is to be streamed.
    pub stream: bool,
    /// True if a stream is to end with its usage (OpenAI's `stream_options.include_usage`).
    pub include_usage: bool,
    /// The system text, pieces joined.
    pub system: String,
    /// The conversation, oldest first.
    pub messages: Vec<ParsedMessage>,
    /// The tools on offer.
    pub tools: Vec<ParsedTool>,
    /// The most tokens of the answer, where the request says so.
    pub max_output_tokens: Option<u64>,
    /// The body as it came.
    pub raw: Value,
}

impl ParsedRequest {
    /// The text of the last message that is the user's own.
    pub fn last_user_text(&self) -> &str {
        let said = self.messages.iter().rev().find(|m| m.role == Role::User && !m.text.is_empty());
        said.map_or("", |message| message.text.as_str())
    }

    /// All tool results, oldest first.
    pub fn results(&self) -> impl DoubleEndedIterator<Item = &ParsedResult> {
        self.messages.iter().flat_map(|message| &message.results)
    }

    /// All tool calls, oldest first.
    pub fn calls(&self) -> impl DoubleEndedIterator<Item = &ParsedCall> {
        self.messages.iter().flat_map(|message| &message.calls)
    }

    /// The images and PDF files of the conversation, oldest first.
    pub fn files(&self) -> Vec<ParsedFile> {
        all_files(&self.raw)
    }

    /// Returns true if a tool of this name is offered.
    pub fn offers_tool(&self, tool: &str) -> bool {
        self.tools.iter().any(|offered| offered.name == tool)
    }

    /// The characters of everything that the model reads: what scripted usage is counted from.
    pub(crate) fn characters(&self) -> u64 {
        let messages = self.messages.iter().map(|message| {
            let calls: usize = message.calls.iter().map(|call| call.arguments.to_string().len()).sum();
            let results: usize = message.results.iter().map(|result| result.text.chars().count()).sum();
            message.text.chars().count() + calls + results
        });
        let tools: usize =
            self.tools.iter().map(|tool| tool.description.len() + tool.schema.to_string().len()).sum();
        let total = self.system.chars().count() + messages.sum::<usize>() + tools;
        u64::try_from(total).unwrap_or(u64::MAX)
    }
}

/// A request as it was recorded, whether it passed the checks or not.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedRequest {
    /// The path.
    pub path: String,
    /// The headers, names in lower case. Keys are replaced: see [`Self::key_digest`].
    pub headers: BTreeMap<String, String>,
    /// SHA-256 of the key that came with it, as hexadecimal digits; the key itself is not stored.
    pub key_digest: Option<String>,
    /// The body; `Null` where it was no JSON.
    pub body: Value,
    /// The status it was answered with.
    pub status: u16,
}
