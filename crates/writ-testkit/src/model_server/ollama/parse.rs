//! Requests in Ollama's format. The real server forgives more; everything that it would misread is refused
//! here.

use std::collections::VecDeque;

use axum::http::HeaderMap;
use serde_json::{Map, Value};
use writ_types::chat::Role;

use crate::model_server::anthropic::parse::{array, object, string};
use crate::model_server::files::images_of;
use crate::model_server::http::Refusal;
use crate::model_server::openai::parse::bearer;
use crate::model_server::parsed::{
    ParsedCall, ParsedMessage, ParsedRequest, ParsedResult, ParsedTool, ServedFormat,
};

const KNOWN_KEYS: [&str; 8] =
    ["model", "messages", "tools", "stream", "options", "format", "keep_alive", "think"];

const KNOWN_MESSAGE_KEYS: [&str; 6] = ["role", "content", "thinking", "images", "tool_calls", "tool_name"];

/// Calls without their results: id and name, oldest first. The format has no ids, so results come in order.
type Open = VecDeque<(String, String)>;

pub(crate) fn parse(headers: &HeaderMap, body: &[u8], key: Option<&str>) -> Result<ParsedRequest, Refusal> {
    bearer(headers, key)?;
    let raw: Value = serde_json::from_slice(body).map_err(|error| Refusal::invalid(error.to_string()))?;
    let fields = object(&raw, "body")?;
    known(fields, &KNOWN_KEYS, "body")?;
    let tools = match fields.get("tools") {
        None | Some(Value::Null) => Vec::new(),
        Some(tools) => array(tools, "tools")?.iter().map(tool).collect::<Result<_, _>>()?,
    };
    let options = fields.get("options").unwrap_or(&Value::Null);
    let max_output_tokens = options.get("num_predict").and_then(Value::as_u64);
    let (system, messages) = messages(fields)?;
    Ok(ParsedRequest {
        format: ServedFormat::Ollama,
        model: string(fields, "model", "model")?.to_owned(),
        // Unlike everywhere else, streaming is what happens unless it is refused.
        stream: fields.get("stream").and_then(Value::as_bool).unwrap_or(true),
        include_usage: true,
        system: system.join("\n\n"),
        messages,
        tools,
        max_output_tokens,
        raw: raw.clone(),
    })
}

fn known(fields: &Map<String, Value>, known: &[&str], at: &str) -> Result<(), Refusal> {
    match fields.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(Refusal::invalid(format!("{at}: unknown field \"{unknown}\""))),
    }
}

fn tool(tool: &Value) -> Result<ParsedTool, Refusal> {
    let fields = object(tool, "tools")?;
    if string(fields, "type", "tools.type")? != "function" {
        return Err(Refusal::invalid("tools.type: must be function"));
    }
    let function = fields.get("function").and_then(Value::as_object);
    let function = function.ok_or_else(|| Refusal::invalid("tools.function: is missing"))?;
    let name = string(function, "name", "tools.function.name")?;
    let schema = function
        .get("parameters")
        .filter(|schema| schema.get("type").and_then(Value::as_str) == Some("object"))
        .ok_or_else(|| Refusal::invalid("tools.function.parameters: must be an object schema"))?;
    let description = function.get("description").and_then(Value::as_str).unwrap_or_default();
    Ok(ParsedTool { name: name.to_owned(), description: description.to_owned(), schema: schema.clone() })
}

fn messages(fields: &Map<String, Value>) -> Result<(Vec<String>, Vec<ParsedMessage>), Refusal> {
    let list = fields.get("messages").ok_or_else(|| Refusal::invalid("messages: is missing"))?;
    let mut system = Vec::new();
    let mut parsed: Vec<ParsedMessage> = Vec::new();
    let mut open = Open::new();
    let mut calls = 0;
    for (index, message) in array(list, "messages")?.iter().enumerate() {
        let at = format!("messages[{index}]");
        let fields = object(message, &at)?;
        known(fields, &KNOWN_MESSAGE_KEYS, &at)?;
        let role = string(fields, "role", &at)?;
        let text = match fields.get("content") {
            None | Some(Value::Null) => String::new(),
            Some(_) => string(fields, "content", &at)?.to_owned(),
        };
        // Every call must have its result before anybody else speaks.
        if role != "tool" {
            all_answered(&open, &at)?;
        }
        match role {
            "system" => system.push(text),
            "user" => {
                images_of(fields, &at)?;
                parsed.push(spoken(Role::User, text));
            }
            "assistant" => {
                let called = tool_calls(fields, &at, &mut calls)?;
                open.extend(called.iter().map(|call| (call.id.clone(), call.name.clone())));
                parsed.push(ParsedMessage { calls: called, ..spoken(Role::Assistant, text) });
            }
            "tool" => result(&mut parsed, &mut open, text, &at)?,
            other => {
                return Err(Refusal::invalid(format!(
                    "invalid role: {other}, must be one of [system, user, assistant, tool]"
                )));
            }
        }
    }
    all_answered(&open, "messages")?;
    if parsed.is_empty() {
        return Err(Refusal::invalid("messages: nothing is asked"));
    }
    Ok((system, parsed))
}

fn all_answered(open: &Open, at: &str) -> Result<(), Refusal> {
    match open.front() {
        None => Ok(()),
        Some((_, name)) => Err(Refusal::invalid(format!("{at}: a call of {name} has no tool message"))),
    }
}

fn spoken(role: Role, text: String) -> ParsedMessage {
    ParsedMessage { role, text, calls: Vec::new(), results: Vec::new() }
}

fn tool_calls(fields: &Map<String, Value>, at: &str, number: &mut usize) -> Result<Vec<ParsedCall>, Refusal> {
    let Some(list) = fields.get("tool_calls") else { return Ok(Vec::new()) };
    let mut calls = Vec::new();
    for call in array(list, at)? {
        let function = call.get("function").and_then(Value::as_object);
        let function = function.ok_or_else(|| Refusal::invalid(format!("{at}: a call without function")))?;
        let name = string(function, "name", at)?.to_owned();
        let arguments = function.get("arguments").filter(|arguments| arguments.is_object());
        let arguments = arguments.cloned().ok_or_else(|| {
            Refusal::invalid(format!("{at}: json: cannot unmarshal arguments into an object"))
        })?;
        calls.push(ParsedCall { id: format!("ollama_{number:02}"), name, arguments });
        *number += 1;
    }
    Ok(calls)
}

/// A tool message answers the oldest call that has no answer.
fn result(parsed: &mut Vec<ParsedMessage>, open: &mut Open, text: String, at: &str) -> Result<(), Refusal> {
    let (call_id, name) =
        open.pop_front().ok_or_else(|| Refusal::invalid(format!("{at}: a tool message without its call")))?;
    let result = ParsedResult { call_id, name, text };
    match parsed.last_mut().filter(|last| last.role == Role::Tool) {
        Some(last) => last.results.push(result),
        None => parsed.push(ParsedMessage { results: vec![result], ..spoken(Role::Tool, String::new()) }),
    }
    Ok(())
}
