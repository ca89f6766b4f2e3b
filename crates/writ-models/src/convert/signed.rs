//! The messages of a Chat Completions request with signed calls.
//!
//! Gemini's compatible interface gives a call's signature in `extra_content` and wants it back there
//! (<https://ai.google.dev/gemini-api/docs/thought-signatures>). The library has no field for it, so the
//! messages are written here, in its place, where there is a signature.

use genai::chat::{Binary, ChatMessage, ChatRequest, ChatRole, ToolCall, ToolResponse};
use serde_json::{Map, Value, json};

use crate::config::ProviderKind;

/// The messages as JSON; `None`: no call is signed, and the library writes them.
pub(super) fn signed_messages(kind: ProviderKind, request: &ChatRequest) -> Option<Value> {
    let is_signed = |message: &ChatMessage| {
        message.content.tool_calls().into_iter().any(|call| call.thought_signatures.is_some())
    };
    if kind != ProviderKind::OpenAi || !request.messages.iter().any(is_signed) {
        return None;
    }
    let system = request.system.iter().map(|text| json!({ "role": "system", "content": text }));
    let said = request.messages.iter().flat_map(signed_message);
    Some(Value::Array(system.chain(said).collect()))
}

/// A message; of results, one for each.
fn signed_message(message: &ChatMessage) -> Vec<Value> {
    let texts: Vec<&str> = message.content.texts();
    let text = texts.join("\n\n");
    match message.role {
        ChatRole::System => vec![json!({ "role": "system", "content": text })],
        ChatRole::User => vec![user_message(message, text)],
        ChatRole::Assistant => vec![assistant_message(message, text)],
        ChatRole::Tool => {
            let written = |result: &ToolResponse| json!({ "role": "tool", "tool_call_id": result.call_id, "content": result.content });
            message.content.tool_responses().into_iter().map(written).collect()
        }
    }
}

/// A message of a person, with its files as the library writes them.
fn user_message(message: &ChatMessage, text: String) -> Value {
    let files = message.content.binaries();
    if files.is_empty() {
        return json!({ "role": "user", "content": text });
    }
    let file_part = |file: &Binary| {
        let (is_image, name) = (file.is_image(), file.name.clone());
        let url = file.clone().into_url();
        if is_image {
            json!({ "type": "image_url", "image_url": { "url": url } })
        } else {
            json!({ "type": "file", "file": { "filename": name, "file_data": url } })
        }
    };
    let mut parts: Vec<Value> = files.into_iter().map(file_part).collect();
    parts.push(json!({ "type": "text", "text": text }));
    json!({ "role": "user", "content": parts })
}

fn assistant_message(message: &ChatMessage, text: String) -> Value {
    let mut fields = Map::new();
    fields.insert("role".to_owned(), "assistant".into());
    fields.insert("content".to_owned(), text.into());
    if let Some(reasoning) = message.content.reasoning_contents().first() {
        fields.insert("reasoning_content".to_owned(), (*reasoning).into());
    }
    let calls: Vec<Value> = message.content.tool_calls().into_iter().map(signed_call).collect();
    if !calls.is_empty() {
        fields.insert("tool_calls".to_owned(), calls.into());
    }
    Value::Object(fields)
}

fn signed_call(call: &ToolCall) -> Value {
    let mut written = json!({
        "type": "function",
        "id": call.call_id,
        "function": { "name": call.fn_name, "arguments": call.fn_arguments.to_string() },
    });
    if let Some(signature) = call.thought_signatures.iter().flatten().next() {
        written["extra_content"] = json!({ "google": { "thought_signature": signature } });
    }
    written
}
