//! Answers in Gemini's format.

use serde_json::{Value, json};

use crate::model_server::ollama::render::object;
use crate::model_server::parsed::ParsedRequest;
use crate::model_server::reply::{Reply, ScriptedCall, Stop};

fn finish_reason(stop: Stop, calls: bool) -> String {
    match stop {
        // It has no word of its own for tools; without a call, the nearest is the one for a call that failed.
        Stop::ToolUse if !calls => "MALFORMED_FUNCTION_CALL".to_owned(),
        Stop::EndTurn | Stop::ToolUse => "STOP".to_owned(),
        Stop::MaxTokens => "MAX_TOKENS".to_owned(),
        Stop::ContentFilter => "SAFETY".to_owned(),
        Stop::Raw(word) => word,
    }
}

fn call(call: &ScriptedCall) -> Value {
    let mut rendered = json!({"name": call.name, "args": object(&call.arguments)});
    if let Some(id) = &call.id {
        rendered["id"] = json!(id);
    }
    json!({ "functionCall": rendered })
}

fn usage(request: &ParsedRequest, reply: &Reply, output: u64) -> Value {
    let input = reply.input(request);
    let mut usage = json!({
        "promptTokenCount": input, "candidatesTokenCount": output, "totalTokenCount": input.saturating_add(output),
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": input}],
    });
    if reply.cached_tokens > 0 {
        usage["cachedContentTokenCount"] = json!(reply.cached_tokens);
    }
    usage
}

fn response(request: &ParsedRequest, parts: &[Value], finish: Option<&str>, usage: &Value) -> Value {
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
    if let Some(finish) = finish {
        candidate["finishReason"] = json!(finish);
    }
    json!({
        "candidates": [candidate], "usageMetadata": usage, "modelVersion": request.model,
        "responseId": "scripted",
    })
}

/// The whole answer at once.
pub(crate) fn whole(request: &ParsedRequest, reply: &Reply) -> Value {
    let mut parts = Vec::new();
    if !reply.texts.is_empty() {
        parts.push(json!({"text": reply.texts.concat()}));
    }
    parts.extend(reply.calls.iter().map(call));
    let finish = finish_reason(reply.stops(), !reply.calls.is_empty());
    response(request, &parts, Some(&finish), &usage(request, reply, reply.output()))
}

/// The answer as server-sent events: text in pieces, calls whole, each event with the usage so far.
pub(crate) fn frames(request: &ParsedRequest, reply: &Reply) -> Vec<String> {
    let early = usage(request, reply, 1);
    let mut frames: Vec<Value> = Vec::new();
    for text in &reply.texts {
        frames.push(response(request, &[json!({"text": text})], None, &early));
    }
    if !reply.calls.is_empty() {
        let calls: Vec<Value> = reply.calls.iter().map(call).collect();
        frames.push(response(request, &calls, None, &early));
    }
    let finish = finish_reason(reply.stops(), !reply.calls.is_empty());
    let last = usage(request, reply, reply.output());
    frames.push(response(request, &[json!({"text": ""})], Some(&finish), &last));
    frames.iter().map(|frame| format!("data: {frame}\r\n\r\n")).collect()
}

/// One more piece of the text.
pub(crate) fn more_text() -> String {
    let content = json!({"parts": [{"text": "and on and on and on "}], "role": "model"});
    format!("data: {}\r\n\r\n", json!({"candidates": [{"content": content, "index": 0}]}))
}

/// A tool call without a name.
pub(crate) fn malformed_call() -> String {
    let content = json!({"parts": [{"functionCall": {"args": {}}}], "role": "model"});
    format!("data: {}\r\n\r\n", json!({"candidates": [{"content": content, "index": 0}]}))
}
