//! JSON-RPC 2.0 in lines, as far as this protocol uses it.

use serde_json::{Value, json};

use crate::bounds::{MAX_ERROR_CHARS, MAX_ID_BYTES};

/// The longest name of a method that is looked at, in bytes.
const MAX_METHOD_BYTES: usize = 256;
/// The number of the error for a method that is not offered.
pub(crate) const METHOD_NOT_FOUND: i64 = -32_601;
/// The number of the error for what a method does not take.
pub(crate) const INVALID_PARAMS: i64 = -32_602;
/// The number of the error with which an agent demands a login.
pub(crate) const AUTH_REQUIRED: i64 = -32_000;

/// A message of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AcpMessage {
    /// An answer to the request with this number.
    Answer { id: u64, result: Result<Value, AcpAnswerError> },
    /// A request, with the id that its answer must have.
    Request { id: Value, method: String, params: Value },
    /// News.
    News { method: String, params: Value },
    /// A line that means nothing here: a log, a part of one, a list of messages.
    Stray,
}

/// Finds the id of a question for permission in the beginning of a line. The ids of inner objects have other names.
pub(crate) fn find_question(head: &[u8]) -> Option<Value> {
    let head = String::from_utf8_lossy(head);
    let value_of = |name: &str| {
        let (_, rest) = head.split_once(name)?;
        rest.trim_start().strip_prefix(':').map(str::trim_start)
    };
    let method = value_of("\"method\"")?;
    if !method.starts_with("\"session/request_permission\"") {
        return None;
    }
    // The first value of what follows; what comes after it is not looked at.
    let id = serde_json::Deserializer::from_str(value_of("\"id\"")?).into_iter::<Value>().next()?.ok()?;
    is_answerable(&id).then_some(id)
}

/// An error in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcpAnswerError {
    pub(crate) code: i64,
    /// The agent's words, cut.
    pub(crate) message: String,
}

impl AcpMessage {
    /// Reads a line. Never fails: what is no message is [`Self::Stray`].
    pub(crate) fn parse_line(line: &[u8]) -> Self {
        let Ok(Value::Object(mut fields)) = serde_json::from_slice(line) else { return Self::Stray };
        let id = fields.remove("id").filter(|id| !id.is_null());
        if let Some(method) = fields.get("method") {
            let method = method.as_str().filter(|method| method.len() <= MAX_METHOD_BYTES).map(str::to_owned);
            let params = fields.remove("params").unwrap_or_default();
            return match (method, id) {
                (Some(method), None) => Self::News { method, params },
                (Some(method), Some(id)) if is_answerable(&id) => Self::Request { id, method, params },
                (Some(_) | None, _) => Self::Stray,
            };
        }
        // Our ids are numbers; another one was never asked.
        let Some(id) = id.as_ref().and_then(Value::as_u64) else { return Self::Stray };
        if let Some(error) = fields.get("error").filter(|error| !error.is_null()) {
            return Self::Answer { id, result: Err(AcpAnswerError::read_error(error)) };
        }
        match fields.remove("result") {
            Some(result) => Self::Answer { id, result: Ok(result) },
            None => Self::Stray,
        }
    }
}

impl AcpAnswerError {
    fn read_error(error: &Value) -> Self {
        let words = error.get("message").and_then(Value::as_str).unwrap_or_default();
        Self {
            // One without a number is an error as well.
            code: error.get("code").and_then(Value::as_i64).unwrap_or_default(),
            message: words.chars().filter(|char| !char.is_control()).take(MAX_ERROR_CHARS).collect(),
        }
    }
}

fn is_answerable(id: &Value) -> bool {
    match id {
        Value::Number(_) => true,
        // It is sent back as it came, so its size is bounded.
        Value::String(text) => text.len() <= MAX_ID_BYTES,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

fn line_of(message: &Value) -> Vec<u8> {
    // In JSON a line end stands only between tokens, and none is written there.
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

pub(crate) fn request_line(id: u64, method: &str, params: &Value) -> Vec<u8> {
    line_of(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

pub(crate) fn news_line(method: &str, params: &Value) -> Vec<u8> {
    line_of(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

pub(crate) fn answer_line(id: &Value, result: &Value) -> Vec<u8> {
    line_of(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

pub(crate) fn refusal_line(id: &Value, code: i64, why: &str) -> Vec<u8> {
    line_of(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why } }))
}
