//! Requests in Anthropic's format, checked as the provider does.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::HeaderMap;
use serde_json::{Map, Value};
use writ_types::chat::Role;

use crate::model_server::files::file_of;
use crate::model_server::http::Refusal;
use crate::model_server::parsed::{
    ParsedCall, ParsedMessage, ParsedRequest, ParsedResult, ParsedTool, ServedFormat,
};

const KNOWN_KEYS: [&str; 16] = [
    "model",
    "messages",
    "max_tokens",
    "system",
    "tools",
    "tool_choice",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "metadata",
    "thinking",
    "service_tier",
    "output_config",
    "container",
];

pub(crate) fn parse(headers: &HeaderMap, body: &[u8], key: Option<&str>) -> Result<ParsedRequest, Refusal> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let unauthorized = |text: &str| Refusal::unauthorized("authentication_error", text.to_owned());
    let given = header("x-api-key").ok_or_else(|| unauthorized("x-api-key header is required"))?;
    if given.is_empty() || key.is_some_and(|key| key != given) {
        return Err(unauthorized("invalid x-api-key"));
    }
    if header("anthropic-version") != Some("2023-06-01") {
        return Err(Refusal::invalid("anthropic-version: header is required"));
    }
    if !header("content-type").is_some_and(|value| value.starts_with("application/json")) {
        return Err(Refusal::invalid("content-type: application/json is required"));
    }
    let raw: Value = serde_json::from_slice(body)
        .map_err(|error| Refusal::invalid(format!("The request body is not valid JSON: {error}")))?;
    let fields = object(&raw, "body")?;
    if let Some(unknown) = fields.keys().find(|key| !KNOWN_KEYS.contains(&key.as_str())) {
        return Err(Refusal::invalid(format!("{unknown}: Extra inputs are not permitted")));
    }
    let max_tokens =
        fields.get("max_tokens").ok_or_else(|| Refusal::invalid("max_tokens: Field required"))?;
    let max_output_tokens = max_tokens
        .as_u64()
        .filter(|tokens| *tokens > 0)
        .ok_or_else(|| Refusal::invalid("max_tokens: must be greater than or equal to 1"))?;
    let tools = match fields.get("tools") {
        None => Vec::new(),
        Some(tools) => array(tools, "tools")?.iter().enumerate().map(tool).collect::<Result<_, _>>()?,
    };
    unique_tools(&tools)?;
    let messages = messages(fields, &tools)?;
    Ok(ParsedRequest {
        format: ServedFormat::Anthropic,
        model: string(fields, "model", "model")?.to_owned(),
        stream: fields.get("stream").and_then(Value::as_bool).unwrap_or(false),
        include_usage: true,
        system: fields.get("system").map_or(Ok(String::new()), |system| text_of(system, "system"))?,
        messages,
        tools,
        max_output_tokens: Some(max_output_tokens),
        raw: raw.clone(),
    })
}

fn tool((index, tool): (usize, &Value)) -> Result<ParsedTool, Refusal> {
    let at = format!("tools.{index}");
    let fields = object(tool, &at)?;
    let name = string(fields, "name", &format!("{at}.name"))?;
    if !is_tool_name(name) {
        return Err(Refusal::invalid(format!(
            "{at}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        )));
    }
    let schema = fields
        .get("input_schema")
        .filter(|schema| schema.get("type").and_then(Value::as_str) == Some("object"))
        .ok_or_else(|| Refusal::invalid(format!("{at}.input_schema.type: Input should be 'object'")))?;
    let description = fields.get("description").and_then(Value::as_str).unwrap_or_default();
    Ok(ParsedTool { name: name.to_owned(), description: description.to_owned(), schema: schema.clone() })
}

fn unique_tools(tools: &[ParsedTool]) -> Result<(), Refusal> {
    let names: BTreeSet<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    if names.len() == tools.len() {
        Ok(())
    } else {
        Err(Refusal::invalid("tools: Tool names must be unique."))
    }
}

/// Reads the conversation and checks its order: a call is answered by the very next message, and nothing
/// else is.
fn messages(fields: &Map<String, Value>, tools: &[ParsedTool]) -> Result<Vec<ParsedMessage>, Refusal> {
    let list = fields.get("messages").ok_or_else(|| Refusal::invalid("messages: Field required"))?;
    let list = array(list, "messages")?;
    let mut parsed: Vec<ParsedMessage> = Vec::new();
    let mut open: BTreeMap<String, String> = BTreeMap::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (index, message) in list.iter().enumerate() {
        let at = format!("messages.{index}");
        let message = one_message(message, &at, &open)?;
        if parsed.is_empty() && message.role != Role::User {
            return Err(Refusal::invalid("messages: first message must use the \"user\" role"));
        }
        // Results come first: a call that has none in the very next message is refused, as the provider does.
        for result in &message.results {
            open.remove(&result.call_id);
        }
        if let Some(id) = open.keys().next() {
            return Err(Refusal::invalid(format!(
                "{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {id}."
            )));
        }
        for call in &message.calls {
            if !seen.insert(call.id.clone()) {
                return Err(Refusal::invalid(format!("{at}: `tool_use` ids must be unique")));
            }
            // The real provider refuses calls in a request that offers no tools any more.
            if tools.is_empty() {
                return Err(Refusal::invalid("tools: Field required when messages hold `tool_use` blocks"));
            }
            open.insert(call.id.clone(), call.name.clone());
        }
        parsed.push(message);
    }
    if parsed.is_empty() {
        return Err(Refusal::invalid("messages: at least one message is required"));
    }
    match open.keys().next() {
        None => Ok(parsed),
        Some(id) => Err(Refusal::invalid(format!(
            "messages: `tool_use` ids were found without `tool_result` blocks immediately after: {id}."
        ))),
    }
}

fn one_message(message: &Value, at: &str, open: &BTreeMap<String, String>) -> Result<ParsedMessage, Refusal> {
    let fields = object(message, at)?;
    let role = match string(fields, "role", &format!("{at}.role"))? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => {
            return Err(Refusal::invalid(format!("{at}.role: Unexpected role \"{other}\"")));
        }
    };
    let content =
        fields.get("content").ok_or_else(|| Refusal::invalid(format!("{at}.content: Field required")))?;
    let mut parsed = ParsedMessage { role, text: String::new(), calls: Vec::new(), results: Vec::new() };
    if let Some(text) = content.as_str() {
        non_empty(text, at)?;
        text.clone_into(&mut parsed.text);
        return Ok(parsed);
    }
    let blocks = array(content, &format!("{at}.content"))?;
    if blocks.is_empty() {
        return Err(Refusal::invalid(format!("{at}: all messages must have non-empty content")));
    }
    for (index, block) in blocks.iter().enumerate() {
        add_block(&mut parsed, block, &format!("{at}.content.{index}"), open)?;
    }
    // In this format results are blocks of a user's message; the tests see one form for all formats.
    if !parsed.results.is_empty() {
        parsed.role = Role::Tool;
    }
    Ok(parsed)
}

/// Thinking comes before what it led to.
fn first(parsed: &ParsedMessage, at: &str) -> Result<(), Refusal> {
    if parsed.text.is_empty() && parsed.calls.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(format!("{at}: `thinking` blocks must come before text and `tool_use` blocks")))
}

fn add_block(
    parsed: &mut ParsedMessage,
    block: &Value,
    at: &str,
    open: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let fields = object(block, at)?;
    match (string(fields, "type", &format!("{at}.type"))?, parsed.role) {
        ("text", _) => {
            let text = string(fields, "text", &format!("{at}.text"))?;
            non_empty(text, at)?;
            parsed.text.push_str(text);
        }
        ("tool_use", Role::Assistant) => {
            let id = string(fields, "id", &format!("{at}.id"))?;
            if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
                return Err(Refusal::invalid(format!(
                    "{at}.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
                )));
            }
            let arguments = fields
                .get("input")
                .filter(|input| input.is_object())
                .ok_or_else(|| Refusal::invalid(format!("{at}.input: Input should be a valid dictionary")))?;
            let name = string(fields, "name", &format!("{at}.name"))?.to_owned();
            parsed.calls.push(ParsedCall { id: id.to_owned(), name, arguments: arguments.clone() });
        }
        ("thinking", Role::Assistant) => {
            first(parsed, at)?;
            string(fields, "thinking", &format!("{at}.thinking"))?;
            let signature = string(fields, "signature", &format!("{at}.signature"))?;
            non_empty(signature, at)?;
        }
        ("redacted_thinking", Role::Assistant) => {
            first(parsed, at)?;
            string(fields, "data", &format!("{at}.data"))?;
        }
        ("tool_result", Role::User) => {
            let call_id = string(fields, "tool_use_id", &format!("{at}.tool_use_id"))?;
            let name = open.get(call_id).ok_or_else(|| {
                Refusal::invalid(format!(
                    "{at}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each `tool_result` \
                     block must have a corresponding `tool_use` block in the previous message."
                ))
            })?;
            if !parsed.text.is_empty() {
                return Err(Refusal::invalid(format!("{at}: `tool_result` blocks must come before text")));
            }
            let text = fields.get("content").map_or(Ok(String::new()), |content| text_of(content, at))?;
            parsed.results.push(ParsedResult { call_id: call_id.to_owned(), name: name.clone(), text });
        }
        ("image" | "document", Role::User) => {
            drop(file_of(fields, at).transpose()?);
        }
        (other, _) => {
            return Err(Refusal::invalid(format!("{at}: unexpected block type '{other}' here")));
        }
    }
    Ok(())
}

/// A text, or text blocks joined.
fn text_of(content: &Value, at: &str) -> Result<String, Refusal> {
    if let Some(text) = content.as_str() {
        return Ok(text.to_owned());
    }
    let mut joined = String::new();
    for block in array(content, at)? {
        joined.push_str(string(object(block, at)?, "text", at)?);
    }
    Ok(joined)
}

fn non_empty(text: &str, at: &str) -> Result<(), Refusal> {
    if text.is_empty() {
        Err(Refusal::invalid(format!("{at}: text content blocks must be non-empty")))
    } else {
        Ok(())
    }
}

pub(crate) fn is_tool_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

pub(crate) fn object<'a>(value: &'a Value, at: &str) -> Result<&'a Map<String, Value>, Refusal> {
    value.as_object().ok_or_else(|| Refusal::invalid(format!("{at}: Input should be an object")))
}

pub(crate) fn array<'a>(value: &'a Value, at: &str) -> Result<&'a Vec<Value>, Refusal> {
    value.as_array().ok_or_else(|| Refusal::invalid(format!("{at}: Input should be a valid list")))
}

pub(crate) fn string<'a>(fields: &'a Map<String, Value>, key: &str, at: &str) -> Result<&'a str, Refusal> {
    match fields.get(key) {
        None => Err(Refusal::invalid(format!("{at}: Field required"))),
        Some(value) => {
            value.as_str().ok_or_else(|| Refusal::invalid(format!("{at}: Input should be a valid string")))
        }
    }
}
