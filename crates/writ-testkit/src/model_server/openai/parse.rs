//! Requests in OpenAI's format, checked as the provider does.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use serde_json::{Map, Value};
use writ_types::chat::Role;

use crate::model_server::anthropic::parse::{array, is_tool_name, object, string};
use crate::model_server::files::file_of;
use crate::model_server::http::Refusal;
use crate::model_server::parsed::{
    ParsedCall, ParsedMessage, ParsedRequest, ParsedResult, ParsedTool, ServedFormat,
};

const KNOWN_KEYS: [&str; 22] = [
    "model",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "n",
    "stop",
    "seed",
    "user",
    "response_format",
    "reasoning_effort",
    "verbosity",
    "service_tier",
    "store",
    "metadata",
    "prompt_cache_key",
];

/// OpenRouter's keys beside OpenAI's.
const ROUTER_KEYS: [&str; 8] =
    ["usage", "provider", "models", "route", "transforms", "plugins", "reasoning", "top_k"];

/// Checks key and content type, the same in every format of OpenAI's family.
pub(crate) fn bearer(headers: &HeaderMap, key: Option<&str>) -> Result<(), Refusal> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let given = header("authorization").map(|value| value.strip_prefix("Bearer ").unwrap_or_default());
    if given == Some("") || key.is_some_and(|key| given != Some(key)) {
        let text =
            if given.is_some() { "Incorrect API key provided." } else { "You didn't provide an API key." };
        return Err(Refusal::unauthorized("invalid_request_error", text.to_owned()));
    }
    if !header("content-type").is_some_and(|value| value.starts_with("application/json")) {
        return Err(Refusal::invalid("Unsupported content type."));
    }
    Ok(())
}

pub(crate) fn parse(
    format: ServedFormat,
    headers: &HeaderMap,
    body: &[u8],
    key: Option<&str>,
) -> Result<ParsedRequest, Refusal> {
    bearer(headers, key)?;
    let router = format == ServedFormat::OpenRouter;
    if router && !headers.contains_key("authorization") {
        return Err(Refusal::unauthorized("invalid_request_error", "No auth credentials found".to_owned()));
    }
    let raw: Value = serde_json::from_slice(body)
        .map_err(|_| Refusal::invalid("We could not parse the JSON body of your request."))?;
    let fields = object(&raw, "body")?;
    let known = |key: &str| KNOWN_KEYS.contains(&key) || (router && ROUTER_KEYS.contains(&key));
    if let Some(unknown) = fields.keys().find(|key| !known(key)) {
        return Err(Refusal::invalid(format!("Unrecognized request argument supplied: {unknown}")));
    }
    let stream = fields.get("stream").and_then(Value::as_bool).unwrap_or(false);
    let options = fields.get("stream_options").filter(|options| !options.is_null());
    if options.is_some() && !stream {
        return Err(Refusal::invalid(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        ));
    }
    let tools = match fields.get("tools") {
        None => Vec::new(),
        Some(tools) => array(tools, "tools")?.iter().enumerate().map(tool).collect::<Result<_, _>>()?,
    };
    // The real provider refuses an empty list, so a client has to leave it out.
    if fields.contains_key("tools") && tools.is_empty() {
        return Err(Refusal::invalid("Invalid 'tools': empty array."));
    }
    let (system, messages) = messages(fields)?;
    Ok(ParsedRequest {
        format,
        model: string(fields, "model", "model")?.to_owned(),
        stream,
        include_usage: options
            .and_then(|options| options.get("include_usage"))
            .and_then(Value::as_bool)
            .unwrap_or(false),
        system,
        messages,
        tools,
        max_output_tokens: max_tokens(fields)?,
        raw: raw.clone(),
    })
}

fn max_tokens(fields: &Map<String, Value>) -> Result<Option<u64>, Refusal> {
    let given: Vec<&Value> =
        ["max_tokens", "max_completion_tokens"].iter().filter_map(|key| fields.get(*key)).collect();
    match given.as_slice() {
        [] => Ok(None),
        [tokens] => match tokens.as_u64() {
            Some(tokens) if tokens > 0 => Ok(Some(tokens)),
            Some(_) | None => Err(Refusal::invalid("Invalid 'max_tokens': integer below minimum value.")),
        },
        [_, _, ..] => {
            Err(Refusal::invalid("Setting 'max_tokens' and 'max_completion_tokens' is not supported."))
        }
    }
}

fn tool((index, tool): (usize, &Value)) -> Result<ParsedTool, Refusal> {
    let at = format!("tools[{index}]");
    let fields = object(tool, &at)?;
    if string(fields, "type", &at)? != "function" {
        return Err(Refusal::invalid(format!("Invalid value: '{at}.type'.")));
    }
    let function = fields
        .get("function")
        .and_then(Value::as_object)
        .ok_or_else(|| Refusal::invalid(format!("Missing required parameter: '{at}.function'.")))?;
    let name = string(function, "name", &format!("{at}.function.name"))?;
    if !is_tool_name(name) || name.len() > 64 {
        return Err(Refusal::invalid(format!(
            "Invalid '{at}.function.name': string does not match pattern."
        )));
    }
    let schema = function.get("parameters").cloned().unwrap_or(Value::Null);
    if schema.get("type").is_some_and(|kind| kind.as_str() != Some("object")) {
        return Err(Refusal::invalid(format!(
            "Invalid schema for function '{name}': schema must be an object."
        )));
    }
    let description = function.get("description").and_then(Value::as_str).unwrap_or_default();
    Ok(ParsedTool { name: name.to_owned(), description: description.to_owned(), schema })
}

/// Reads the conversation and checks its order: every call is answered before anybody else speaks.
fn messages(fields: &Map<String, Value>) -> Result<(String, Vec<ParsedMessage>), Refusal> {
    let list = fields
        .get("messages")
        .ok_or_else(|| Refusal::invalid("Missing required parameter: 'messages'."))
        .and_then(|list| array(list, "messages"))?;
    let mut system: Vec<String> = Vec::new();
    let mut parsed: Vec<ParsedMessage> = Vec::new();
    let mut open: BTreeMap<String, String> = BTreeMap::new();
    for (index, message) in list.iter().enumerate() {
        let at = format!("messages[{index}]");
        let fields = object(message, &at)?;
        let role = string(fields, "role", &format!("{at}.role"))?;
        // Every call must have its result before anybody else speaks.
        if role != "tool" {
            all_answered(&open)?;
        }
        match role {
            "system" | "developer" => system.push(content(fields, &at, true)?),
            "user" => parsed.push(spoken(Role::User, content(fields, &at, true)?)),
            "assistant" => {
                let message = assistant(fields, &at)?;
                open.extend(message.calls.iter().map(|call| (call.id.clone(), call.name.clone())));
                parsed.push(message);
            }
            "tool" => {
                let result = result(fields, &at, &mut open)?;
                // In this format each result is a message; the tests see the results of one answer together.
                match parsed.last_mut().filter(|last| last.role == Role::Tool) {
                    Some(last) => last.results.push(result),
                    None => {
                        parsed.push(ParsedMessage {
                            results: vec![result],
                            ..spoken(Role::Tool, String::new())
                        });
                    }
                }
            }
            other => {
                return Err(Refusal::invalid(format!("Invalid value: '{other}' for '{at}.role'.")));
            }
        }
    }
    all_answered(&open)?;
    if parsed.is_empty() {
        return Err(Refusal::invalid("Invalid 'messages': empty array."));
    }
    Ok((system.join("\n\n"), parsed))
}

fn all_answered(open: &BTreeMap<String, String>) -> Result<(), Refusal> {
    match open.keys().next() {
        None => Ok(()),
        Some(id) => Err(Refusal::invalid(format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
             'tool_call_id'. The following tool_call_ids did not have response messages: {id}"
        ))),
    }
}

fn spoken(role: Role, text: String) -> ParsedMessage {
    ParsedMessage { role, text, calls: Vec::new(), results: Vec::new() }
}

fn assistant(fields: &Map<String, Value>, at: &str) -> Result<ParsedMessage, Refusal> {
    let calls = match fields.get("tool_calls") {
        None => Vec::new(),
        Some(calls) => array(calls, &format!("{at}.tool_calls"))?
            .iter()
            .enumerate()
            .map(|(index, one)| call(one, &format!("{at}.tool_calls[{index}]")))
            .collect::<Result<Vec<_>, _>>()?,
    };
    if fields.contains_key("tool_calls") && calls.is_empty() {
        return Err(Refusal::invalid(format!("Invalid '{at}.tool_calls': empty array.")));
    }
    let text = content(fields, at, calls.is_empty())?;
    Ok(ParsedMessage { calls, ..spoken(Role::Assistant, text) })
}

fn call(value: &Value, at: &str) -> Result<ParsedCall, Refusal> {
    let fields = object(value, at)?;
    let id = string(fields, "id", &format!("{at}.id"))?.to_owned();
    if string(fields, "type", &format!("{at}.type"))? != "function" {
        return Err(Refusal::invalid(format!("Invalid value: '{at}.type'.")));
    }
    let function = fields
        .get("function")
        .and_then(Value::as_object)
        .ok_or_else(|| Refusal::invalid(format!("Missing required parameter: '{at}.function'.")))?;
    let name = string(function, "name", &format!("{at}.function.name"))?.to_owned();
    let arguments = string(function, "arguments", &format!("{at}.function.arguments"))?;
    let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| Value::String(arguments.to_owned()));
    Ok(ParsedCall { id, name, arguments })
}

fn result(
    fields: &Map<String, Value>,
    at: &str,
    open: &mut BTreeMap<String, String>,
) -> Result<ParsedResult, Refusal> {
    let call_id = string(fields, "tool_call_id", &format!("{at}.tool_call_id"))?;
    let name = open.remove(call_id).ok_or_else(|| {
        Refusal::invalid(
            "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
        )
    })?;
    Ok(ParsedResult { call_id: call_id.to_owned(), name, text: content(fields, at, true)? })
}

/// A text, or text parts joined.
fn content(fields: &Map<String, Value>, at: &str, required: bool) -> Result<String, Refusal> {
    match fields.get("content") {
        None | Some(Value::Null) if !required => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let is_user = fields.get("role").and_then(Value::as_str) == Some("user");
            let mut joined = String::new();
            for part in parts {
                let part = object(part, at)?;
                if is_user && file_of(part, at).transpose()?.is_some() {
                    continue;
                }
                joined.push_str(string(part, "text", at)?);
            }
            Ok(joined)
        }
        Some(_) | None => {
            Err(Refusal::invalid(format!("Invalid value for '{at}.content': expected a string.")))
        }
    }
}
