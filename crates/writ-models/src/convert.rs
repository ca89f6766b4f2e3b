//! A request in the words of `genai`, made so that strict providers accept it.
//!
//! Providers refuse a conversation with one wrong piece for good, so a single bad answer could lock a session.
//! What a model once said wrongly is therefore mended on the way out: calls without results get one, results
//! without calls are left out, names and ids are brought into the accepted alphabet, arguments that were no
//! JSON object are wrapped as `{"invalid_arguments": TEXT}`.

use std::collections::BTreeSet;

use genai::chat::{
    CacheControl, ChatMessage as Message, ChatOptions, ChatRequest, ContentPart, MessageContent,
    ReasoningEffort, Tool, ToolCall, ToolChoice, ToolResponse,
};
use serde_json::json;
use writ_types::chat::{ModelRequest, Part, Role};
use writ_types::unit::Tokens;

use crate::config::ProviderKind;

/// The longest tool name that all providers accept.
const MAX_NAME: usize = 64;

/// What stands in for the result of a call that has none.
const NO_RESULT: &str = "(no result was recorded for this call)";

/// What stands in for a conversation's lost beginning: it must begin with the user.
const EARLIER: &str = "(the beginning of this conversation was left out)";

/// Makes the request and its options.
pub(crate) fn request(
    kind: ProviderKind,
    model: &str,
    request: &ModelRequest,
    max_output: Tokens,
) -> (ChatRequest, ChatOptions) {
    let mut converted = ChatRequest::new(Vec::new());
    match kind {
        // A mark on the system text caches it together with the tools, which come before it.
        ProviderKind::Anthropic if !request.system.is_empty() => {
            converted.messages.push(cached(Message::system(request.system.as_str())));
        }
        ProviderKind::OpenAi if !request.system.is_empty() => converted.system = Some(request.system.clone()),
        ProviderKind::Anthropic | ProviderKind::OpenAi => {}
    }
    let mut said = conversation(kind, request);
    if kind == ProviderKind::Anthropic
        && let Some(last) = said.pop()
    {
        // And one on the last message caches the conversation so far for the next call.
        said.push(cached(last));
    }
    converted.messages.extend(said);
    let (tools, choice) = tools(request);
    converted.tools = (!tools.is_empty()).then_some(tools);
    (converted, options(kind, model, max_output, choice))
}

fn cached(message: Message) -> Message {
    message.with_options(CacheControl::Ephemeral)
}

fn options(kind: ProviderKind, model: &str, max_output: Tokens, choice: Option<ToolChoice>) -> ChatOptions {
    let mut options =
        ChatOptions::default().with_max_tokens(u32::try_from(max_output.get()).unwrap_or(u32::MAX));
    options.tool_choice = choice;
    // The library reads endings such as `-high` of a model's name as a setting. A name is a name: it is put
    // back as it was.
    let mut extra = json!({ "model": model });
    match kind {
        ProviderKind::Anthropic => {}
        ProviderKind::OpenAi => {
            // Any stated effort keeps the name from being read, and a budget is not sent in this format.
            options = options.with_reasoning_effort(ReasoningEffort::Budget(0));
            extra["stream_options"] = json!({ "include_usage": true });
        }
    }
    options.with_extra_body(extra)
}

/// The tools on offer. Where none are, but earlier ones were called, those are named and forbidden: providers
/// want every called tool to be declared.
fn tools(request: &ModelRequest) -> (Vec<Tool>, Option<ToolChoice>) {
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            Tool::new(safe(&tool.name))
                .with_description(tool.description.as_str())
                .with_schema(tool.schema.clone())
        });
        return (tools.collect(), None);
    }
    let parts = request.messages.iter().flat_map(|message| &message.parts);
    let called: BTreeSet<String> = parts
        .filter_map(|part| match part {
            Part::Call(call) => Some(safe(&call.name)),
            Part::Text { .. } | Part::Result(_) => None,
        })
        .collect();
    let choice = (!called.is_empty()).then_some(ToolChoice::None);
    let named = called
        .into_iter()
        .map(|name| Tool::new(name).with_schema(json!({"type": "object", "properties": {}})));
    (named.collect(), choice)
}

/// The messages, results grouped behind their calls.
fn conversation(kind: ProviderKind, request: &ModelRequest) -> Vec<Message> {
    let mut said: Vec<Message> = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut results: Vec<ToolResponse> = Vec::new();
    for message in &request.messages {
        let mut text = String::new();
        let mut calls: Vec<ToolCall> = Vec::new();
        for part in &message.parts {
            match part {
                Part::Text { text: more } => text.push_str(more),
                Part::Call(call) => calls.push(converted(call)),
                Part::Result(result) => {
                    let id = safe(&result.call_id);
                    if let Some(at) = open.iter().position(|open| *open == id) {
                        open.remove(at);
                        results.push(ToolResponse::new(id, result.text.as_str()));
                    }
                }
            }
        }
        if text.is_empty() && calls.is_empty() {
            continue;
        }
        answer(&mut said, &mut open, &mut results);
        open.extend(calls.iter().map(|call| call.call_id.clone()));
        said.push(spoken(kind, message.role, text, calls));
    }
    answer(&mut said, &mut open, &mut results);
    let begins_right = said.first().is_some_and(|first| first.role != genai::chat::ChatRole::Assistant);
    if !begins_right {
        said.insert(0, Message::user(EARLIER));
    }
    said
}

/// Puts all results behind the calls that they answer, with a stand-in for those that are missing.
fn answer(said: &mut Vec<Message>, open: &mut Vec<String>, results: &mut Vec<ToolResponse>) {
    results.extend(open.drain(..).map(|id| ToolResponse::new(id, NO_RESULT)));
    if !results.is_empty() {
        said.push(Message::from(std::mem::take(results)));
    }
}

fn spoken(kind: ProviderKind, role: Role, text: String, calls: Vec<ToolCall>) -> Message {
    match role {
        Role::Assistant => {
            let mut parts = Vec::new();
            if !text.is_empty() {
                parts.push(ContentPart::Text(text));
            }
            parts.extend(calls.into_iter().map(ContentPart::ToolCall));
            Message::assistant(MessageContent::from_parts(parts))
        }
        // Anthropic has no system messages within a conversation.
        Role::System if kind == ProviderKind::OpenAi => Message::system(text),
        Role::System | Role::User | Role::Tool => Message::user(text),
    }
}

fn converted(call: &writ_types::chat::ToolCall) -> ToolCall {
    let arguments = if call.arguments.is_object() {
        call.arguments.clone()
    } else {
        let text = call.arguments.as_str().map_or_else(|| call.arguments.to_string(), str::to_owned);
        json!({ "invalid_arguments": text })
    };
    ToolCall {
        call_id: safe(&call.id),
        fn_name: safe(&call.name),
        fn_arguments: arguments,
        thought_signatures: None,
    }
}

/// A name or id in the alphabet that all providers accept.
fn safe(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = name.chars().map(plain).take(MAX_NAME).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}
