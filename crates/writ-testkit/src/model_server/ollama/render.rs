//! Answers in Ollama's format: one JSON object a line.

use serde_json::{Value, json};

use crate::model_server::parsed::ParsedRequest;
use crate::model_server::reply::{Reply, ScriptedCall, Stop};

/// A fixed time of creation, so that answers are the same in every run.
const CREATED: &str = "2026-01-01T00:00:00.000000Z";

fn done_reason(stop: Stop) -> String {
    match stop {
        // It has no word of its own for tools, nor for what was withheld.
        Stop::EndTurn | Stop::ToolUse => "stop".to_owned(),
        Stop::MaxTokens => "length".to_owned(),
        Stop::ContentFilter => "content_filter".to_owned(),
        Stop::Raw(word) => word,
    }
}

/// A call. It has no id, unless the script names one.
fn call(call: &ScriptedCall) -> Value {
    let mut rendered = json!({"function": {"name": call.name, "arguments": object(&call.arguments)}});
    if let Some(id) = &call.id {
        rendered["id"] = json!(id);
    }
    rendered
}

/// Arguments as this format has them: an object. What is none is sent as text, which the real server never does.
pub(crate) fn object(arguments: &str) -> Value {
    if arguments.is_empty() {
        return json!({});
    }
    match serde_json::from_str(arguments) {
        Ok(Value::Object(fields)) => Value::Object(fields),
        Ok(_) | Err(_) => Value::String(arguments.to_owned()),
    }
}

fn message(request: &ParsedRequest, message: Value) -> Value {
    json!({"model": request.model, "created_at": CREATED, "message": message, "done": false})
}

fn finish(request: &ParsedRequest, reply: &Reply, said: Value) -> Value {
    let mut last = message(request, said);
    last["done"] = json!(true);
    last["done_reason"] = json!(done_reason(reply.stops()));
    last["prompt_eval_count"] = json!(reply.input(request));
    if reply.cached_tokens > 0 {
        last["prompt_eval_cached_count"] = json!(reply.cached_tokens);
    }
    last["eval_count"] = json!(reply.output());
    for key in ["total_duration", "load_duration", "prompt_eval_duration", "eval_duration"] {
        last[key] = json!(1_000_000);
    }
    last
}

/// The whole answer at once.
pub(crate) fn whole(request: &ParsedRequest, reply: &Reply) -> Value {
    let mut said = json!({"role": "assistant", "content": reply.texts.concat()});
    if !reply.calls.is_empty() {
        said["tool_calls"] = reply.calls.iter().map(call).collect();
    }
    finish(request, reply, said)
}

/// The answer line by line. Calls come whole, all in one line.
pub(crate) fn frames(request: &ParsedRequest, reply: &Reply) -> Vec<String> {
    let said = |text: &str| json!({"role": "assistant", "content": text});
    let mut lines: Vec<Value> = reply.texts.iter().map(|text| message(request, said(text))).collect();
    if !reply.calls.is_empty() {
        let mut calls = said("");
        calls["tool_calls"] = reply.calls.iter().map(call).collect();
        lines.push(message(request, calls));
    }
    lines.push(finish(request, reply, said("")));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// One more piece of the text.
pub(crate) fn more_text() -> String {
    let said = json!({"role": "assistant", "content": "and on and on and on "});
    format!("{}\n", json!({"model": "m", "created_at": CREATED, "message": said, "done": false}))
}

/// A tool call without a name.
pub(crate) fn malformed_call() -> String {
    let said = json!({"role": "assistant", "content": "", "tool_calls": [{"function": {"arguments": {}}}]});
    format!("{}\n", json!({"model": "m", "created_at": CREATED, "message": said, "done": false}))
}
