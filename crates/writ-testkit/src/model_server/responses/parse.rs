//! Requests in the format of OpenAI Responses, checked as the provider does.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::HeaderMap;
use serde_json::{Map, Value};
use writ_types::chat::Role;

use crate::model_server::anthropic::parse::{array, is_tool_name, object, string};
use crate::model_server::files::file_of;
use crate::model_server::http::Refusal;
use crate::model_server::openai::parse::bearer;
use crate::model_server::parsed::{
    ParsedCall, ParsedMessage, ParsedRequest, ParsedResult, ParsedTool, ServedFormat,
};

/// The fewest tokens that an answer may be limited to.
const MIN_OUTPUT_TOKENS: u64 = 16;

const KNOWN_KEYS: [&str; 23] = [
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "store",
    "max_output_tokens",
    "max_tool_calls",
    "reasoning",
    "text",
    "include",
    "temperature",
    "top_p",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_retention",
    "truncation",
    "metadata",
    "service_tier",
    "user",
];

pub(crate) fn parse(headers: &HeaderMap, body: &[u8], key: Option<&str>) -> Result<ParsedRequest, Refusal> {
    bearer(headers, key)?;
    let raw: Value = serde_json::from_slice(body)
        .map_err(|_| Refusal::invalid("We could not parse the JSON body of your request."))?;
    let fields = object(&raw, "body")?;
    if let Some(unknown) = fields.keys().find(|key| !KNOWN_KEYS.contains(&key.as_str())) {
        return Err(Refusal::invalid(format!("Unknown parameter: '{unknown}'.")));
    }
    let tools = match fields.get("tools") {
        None => Vec::new(),
        Some(tools) => array(tools, "tools")?.iter().enumerate().map(tool).collect::<Result<_, _>>()?,
    };
    let max_output_tokens = match fields.get("max_output_tokens") {
        None | Some(Value::Null) => None,
        Some(tokens) => {
            let tokens = tokens.as_u64().filter(|tokens| *tokens >= MIN_OUTPUT_TOKENS);
            Some(tokens.ok_or_else(|| {
                Refusal::invalid("Invalid 'max_output_tokens': integer below minimum value.")
            })?)
        }
    };
    let (mut system, messages) = input(fields)?;
    // Instructions stand before any message of the system.
    if let Some(instructions) = fields.get("instructions").and_then(Value::as_str) {
        system.insert(0, instructions.to_owned());
    }
    Ok(ParsedRequest {
        format: ServedFormat::Responses,
        model: string(fields, "model", "model")?.to_owned(),
        stream: fields.get("stream").and_then(Value::as_bool).unwrap_or(false),
        include_usage: true,
        system: system.join("\n\n"),
        messages,
        tools,
        max_output_tokens,
        raw: raw.clone(),
    })
}

/// A function: its fields lie beside its type, not below it.
fn tool((index, tool): (usize, &Value)) -> Result<ParsedTool, Refusal> {
    let at = format!("tools[{index}]");
    let fields = object(tool, &at)?;
    if string(fields, "type", &at)? != "function" {
        return Err(Refusal::invalid(format!("Invalid value: '{at}.type'.")));
    }
    // The shape of OpenAI's older format, which this one refuses.
    if fields.contains_key("function") {
        return Err(Refusal::invalid(format!("Unknown parameter: '{at}.function'.")));
    }
    let name = string(fields, "name", &format!("{at}.name"))?;
    if !is_tool_name(name) || name.len() > 64 {
        return Err(Refusal::invalid(format!("Invalid '{at}.name': string does not match pattern.")));
    }
    let schema = fields
        .get("parameters")
        .filter(|schema| schema.get("type").and_then(Value::as_str) == Some("object"))
        .ok_or_else(|| Refusal::invalid(format!("Invalid schema for function '{name}'.")))?;
    let description = fields.get("description").and_then(Value::as_str).unwrap_or_default();
    Ok(ParsedTool { name: name.to_owned(), description: description.to_owned(), schema: schema.clone() })
}

/// Reads the items. Calls and results are items of their own; every call needs its result.
fn input(fields: &Map<String, Value>) -> Result<(Vec<String>, Vec<ParsedMessage>), Refusal> {
    let input =
        fields.get("input").ok_or_else(|| Refusal::invalid("Missing required parameter: 'input'."))?;
    if let Some(text) = input.as_str() {
        return Ok((Vec::new(), vec![spoken(Role::User, text.to_owned())]));
    }
    let mut reader = ItemReader::default();
    for (index, item) in array(input, "input")?.iter().enumerate() {
        reader.item(item, &format!("input[{index}]"))?;
    }
    reader.end()
}

/// The items read so far.
#[derive(Default)]
struct ItemReader {
    system: Vec<String>,
    messages: Vec<ParsedMessage>,
    open: BTreeMap<String, String>,
    seen: BTreeSet<String>,
}

impl ItemReader {
    fn item(&mut self, item: &Value, at: &str) -> Result<(), Refusal> {
        let fields = object(item, at)?;
        match fields.get("type").and_then(Value::as_str).unwrap_or("message") {
            "message" => self.message(fields, at),
            "function_call" => self.call(fields, at),
            "function_call_output" => self.result(fields, at),
            "reasoning" => Ok(()),
            other => Err(Refusal::invalid(format!("Invalid value: '{other}' for '{at}.type'."))),
        }
    }

    fn message(&mut self, fields: &Map<String, Value>, at: &str) -> Result<(), Refusal> {
        let role = string(fields, "role", &format!("{at}.role"))?;
        match role {
            "system" | "developer" => self.system.push(content(fields, at, "input_text")?),
            "user" => self.messages.push(spoken(Role::User, content(fields, at, "input_text")?)),
            "assistant" => self.messages.push(spoken(Role::Assistant, content(fields, at, "output_text")?)),
            other => return Err(Refusal::invalid(format!("Invalid value: '{other}' for '{at}.role'."))),
        }
        Ok(())
    }

    fn call(&mut self, fields: &Map<String, Value>, at: &str) -> Result<(), Refusal> {
        let id = string(fields, "call_id", &format!("{at}.call_id"))?.to_owned();
        if id.is_empty() || id.len() > 64 || !self.seen.insert(id.clone()) {
            return Err(Refusal::invalid(format!("Invalid '{at}.call_id'.")));
        }
        let name = string(fields, "name", &format!("{at}.name"))?.to_owned();
        let arguments = string(fields, "arguments", &format!("{at}.arguments"))?;
        let arguments =
            serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.to_owned()));
        self.open.insert(id.clone(), name.clone());
        let call = ParsedCall { id, name, arguments };
        // In this format each call is an item; the tests see the calls of one answer together.
        match self.messages.last_mut().filter(|last| last.role == Role::Assistant) {
            Some(last) => last.calls.push(call),
            None => {
                self.messages
                    .push(ParsedMessage { calls: vec![call], ..spoken(Role::Assistant, String::new()) });
            }
        }
        Ok(())
    }

    fn result(&mut self, fields: &Map<String, Value>, at: &str) -> Result<(), Refusal> {
        let call_id = string(fields, "call_id", &format!("{at}.call_id"))?.to_owned();
        let name = self.open.remove(&call_id).ok_or_else(|| {
            Refusal::invalid(format!("No tool call found for function call output with call_id {call_id}."))
        })?;
        let text = string(fields, "output", &format!("{at}.output"))?.to_owned();
        let result = ParsedResult { call_id, name, text };
        match self.messages.last_mut().filter(|last| last.role == Role::Tool) {
            Some(last) => last.results.push(result),
            None => {
                self.messages
                    .push(ParsedMessage { results: vec![result], ..spoken(Role::Tool, String::new()) });
            }
        }
        Ok(())
    }

    fn end(self) -> Result<(Vec<String>, Vec<ParsedMessage>), Refusal> {
        if let Some(id) = self.open.keys().next() {
            return Err(Refusal::invalid(format!("No tool output found for function call {id}.")));
        }
        if self.messages.is_empty() {
            return Err(Refusal::invalid("Invalid 'input': empty array."));
        }
        Ok((self.system, self.messages))
    }
}

fn spoken(role: Role, text: String) -> ParsedMessage {
    ParsedMessage { role, text, calls: Vec::new(), results: Vec::new() }
}

/// A text, or parts of the one type that fits the speaker.
fn content(fields: &Map<String, Value>, at: &str, part_type: &str) -> Result<String, Refusal> {
    match fields.get("content") {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let mut joined = String::new();
            for part in parts {
                let part = object(part, at)?;
                if part_type == "input_text" && file_of(part, at).transpose()?.is_some() {
                    continue;
                }
                if part.get("type").and_then(Value::as_str) != Some(part_type) {
                    return Err(Refusal::invalid(format!(
                        "Invalid value for '{at}.content[].type': supported is '{part_type}'."
                    )));
                }
                joined.push_str(string(part, "text", at)?);
            }
            Ok(joined)
        }
        Some(_) | None => Err(Refusal::invalid(format!("Missing required parameter: '{at}.content'."))),
    }
}
