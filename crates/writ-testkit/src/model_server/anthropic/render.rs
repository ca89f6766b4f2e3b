//! Answers in Anthropic's format.

use serde_json::{Value, json};

use crate::model_server::http::pieces;
use crate::model_server::parsed::ParsedRequest;
use crate::model_server::reply::{Reply, Stop};

/// In how many pieces a call's arguments are streamed.
const ARGUMENT_PIECES: usize = 5;

fn stop_reason(stop: Stop) -> String {
    match stop {
        Stop::EndTurn => "end_turn".to_owned(),
        Stop::ToolUse => "tool_use".to_owned(),
        Stop::MaxTokens => "max_tokens".to_owned(),
        Stop::ContentFilter => "refusal".to_owned(),
        Stop::Raw(word) => word,
    }
}

fn input_usage(request: &ParsedRequest, reply: &Reply, output: u64) -> Value {
    // Anthropic's `input_tokens` are those that the cache had no part in.
    let cached = reply.cached_tokens.saturating_add(reply.cache_write_tokens);
    json!({
        "input_tokens": reply.input(request).saturating_sub(cached),
        "cache_creation_input_tokens": reply.cache_write_tokens,
        "cache_read_input_tokens": reply.cached_tokens,
        "output_tokens": output,
    })
}

fn call_id(request: &ParsedRequest, index: usize) -> String {
    format!("toolu_{:02}_{index:02}", request.messages.len())
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// The whole answer at once.
pub(crate) fn whole(request: &ParsedRequest, reply: &Reply) -> Value {
    let mut content = Vec::new();
    if !reply.texts.is_empty() {
        content.push(json!({"type": "text", "text": reply.texts.concat()}));
    }
    for (index, call) in reply.calls.iter().enumerate() {
        let id = call.id.clone().unwrap_or_else(|| call_id(request, index));
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
        content.push(json!({"type": "tool_use", "id": id, "name": call.name, "input": input}));
    }
    json!({
        "id": "msg_scripted", "type": "message", "role": "assistant", "model": request.model,
        "content": content, "stop_reason": stop_reason(reply.stops()), "stop_sequence": null,
        "usage": input_usage(request, reply, reply.output()),
    })
}

/// The answer as server-sent events.
pub(crate) fn frames(request: &ParsedRequest, reply: &Reply) -> Vec<String> {
    let message = json!({
        "id": "msg_scripted", "type": "message", "role": "assistant", "model": request.model, "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": input_usage(request, reply, 1),
    });
    let mut frames = vec![event("message_start", &json!({"type": "message_start", "message": message}))];
    let mut index: usize = 0;
    let wants_text = !reply.texts.is_empty() || reply.calls.is_empty();
    if wants_text {
        frames.push(block_start(index, &json!({"type": "text", "text": ""})));
    }
    // The real provider sends pings between other events, so clients must skip them.
    frames.push(event("ping", &json!({"type": "ping"})));
    if wants_text {
        for text in &reply.texts {
            frames.push(block_delta(index, &json!({"type": "text_delta", "text": text})));
        }
        frames.push(block_stop(index));
        index += 1;
    }
    for (number, call) in reply.calls.iter().enumerate() {
        let id = call.id.clone().unwrap_or_else(|| call_id(request, number));
        frames
            .push(block_start(index, &json!({"type": "tool_use", "id": id, "name": call.name, "input": {}})));
        // The real provider begins arguments with an empty piece.
        frames.push(block_delta(index, &json!({"type": "input_json_delta", "partial_json": ""})));
        for piece in pieces(&call.arguments, ARGUMENT_PIECES) {
            frames.push(block_delta(index, &json!({"type": "input_json_delta", "partial_json": piece})));
        }
        frames.push(block_stop(index));
        index += 1;
    }
    let delta = json!({"stop_reason": stop_reason(reply.stops()), "stop_sequence": null});
    let usage = json!({"output_tokens": reply.output()});
    frames.push(event("message_delta", &json!({"type": "message_delta", "delta": delta, "usage": usage})));
    frames.push(event("message_stop", &json!({"type": "message_stop"})));
    frames
}

fn block_start(index: usize, block: &Value) -> String {
    let data = json!({"type": "content_block_start", "index": index, "content_block": block});
    event("content_block_start", &data)
}

fn block_delta(index: usize, delta: &Value) -> String {
    event("content_block_delta", &json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

fn block_stop(index: usize) -> String {
    event("content_block_stop", &json!({"type": "content_block_stop", "index": index}))
}

/// One more piece of the first text.
pub(crate) fn more_text() -> String {
    block_delta(0, &json!({"type": "text_delta", "text": "and on and on and on "}))
}

/// A tool call without id and name.
pub(crate) fn malformed_call() -> String {
    block_start(7, &json!({"type": "tool_use", "input": {}}))
}
