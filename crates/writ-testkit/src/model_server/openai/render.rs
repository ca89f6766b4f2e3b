//! Answers in OpenAI's format.

use serde_json::{Value, json};

use crate::model_server::http::pieces;
use crate::model_server::parsed::ParsedRequest;
use crate::model_server::reply::{Reply, Stop};

/// In how many pieces a call's arguments are streamed.
const ARGUMENT_PIECES: usize = 5;

/// A fixed time of creation, so that answers are the same in every run.
const CREATED: u64 = 1_700_000_000;

fn finish_reason(stop: Stop) -> String {
    match stop {
        Stop::EndTurn => "stop".to_owned(),
        Stop::ToolUse => "tool_calls".to_owned(),
        Stop::MaxTokens => "length".to_owned(),
        Stop::ContentFilter => "content_filter".to_owned(),
        Stop::Raw(word) => word,
    }
}

fn usage(request: &ParsedRequest, reply: &Reply) -> Value {
    let (input, output) = (reply.input(request), reply.output());
    json!({
        "prompt_tokens": input, "completion_tokens": output, "total_tokens": input.saturating_add(output),
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    })
}

fn call_id(request: &ParsedRequest, index: usize) -> String {
    format!("call_{:02}_{index:02}", request.messages.len())
}

/// The whole answer at once.
pub(crate) fn whole(request: &ParsedRequest, reply: &Reply) -> Value {
    let content = if reply.texts.is_empty() { Value::Null } else { Value::String(reply.texts.concat()) };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !reply.calls.is_empty() {
        let calls = reply.calls.iter().enumerate().map(|(index, call)| {
            let id = call.id.clone().unwrap_or_else(|| call_id(request, index));
            json!({"id": id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
        });
        message["tool_calls"] = calls.collect();
    }
    json!({
        "id": "chatcmpl-scripted", "object": "chat.completion", "created": CREATED, "model": request.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(reply.stops())}],
        "usage": usage(request, reply),
    })
}

/// The answer as server-sent events.
pub(crate) fn frames(request: &ParsedRequest, reply: &Reply) -> Vec<String> {
    let chunk = |choices: Value, usage: Value| {
        let data = json!({
            "id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": CREATED,
            "model": request.model, "choices": choices, "usage": usage,
        });
        format!("data: {data}\n\n")
    };
    let delta = |delta: Value| {
        chunk(json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]), Value::Null)
    };
    let mut frames = vec![delta(json!({"role": "assistant", "content": "", "refusal": null}))];
    frames.extend(reply.texts.iter().map(|text| delta(json!({"content": text}))));
    for (index, call) in reply.calls.iter().enumerate() {
        let id = call.id.clone().unwrap_or_else(|| call_id(request, index));
        let function = json!({"name": call.name, "arguments": ""});
        frames.push(delta(json!({
            "tool_calls": [{"index": index, "id": id, "type": "function", "function": function}],
        })));
        for piece in pieces(&call.arguments, ARGUMENT_PIECES) {
            let function = json!({"arguments": piece});
            frames.push(delta(json!({"tool_calls": [{"index": index, "function": function}]})));
        }
    }
    let finish = finish_reason(reply.stops());
    let last = json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": finish}]);
    frames.push(chunk(last, Value::Null));
    // Usage comes only if it was asked for, in a frame without choices.
    if request.include_usage {
        frames.push(chunk(json!([]), usage(request, reply)));
    }
    frames.push("data: [DONE]\n\n".to_owned());
    frames
}

/// The answer as OpenRouter streams it: with comments that keep the line open, the provider that it chose, and
/// what the answer cost.
pub(crate) fn router_frames(request: &ParsedRequest, reply: &Reply) -> Vec<String> {
    let comment = ": OPENROUTER PROCESSING\n\n".to_owned();
    let routed = |frame: String| {
        let Some(Ok(mut data)) = frame.strip_prefix("data: ").map(serde_json::from_str::<Value>) else {
            return frame;
        };
        data["id"] = json!("gen-scripted");
        data["provider"] = json!("Scripted");
        if let Some(finish) = data.pointer("/choices/0/finish_reason").filter(|finish| !finish.is_null()) {
            data["choices"][0]["native_finish_reason"] = finish.clone();
        }
        if data["usage"].is_object() {
            data["usage"]["cost"] = json!(0.000_12);
        }
        format!("data: {data}\n\n")
    };
    std::iter::once(comment).chain(frames(request, reply).into_iter().map(routed)).collect()
}

/// One more piece of the text.
pub(crate) fn more_text() -> String {
    let choices = json!([{"index": 0, "delta": {"content": "and on and on and on "}, "finish_reason": null}]);
    format!("data: {}\n\n", json!({"object": "chat.completion.chunk", "choices": choices}))
}

/// A tool call without id and name.
pub(crate) fn malformed_call() -> String {
    let delta = json!({"tool_calls": [{"index": 7, "type": "function", "function": {"arguments": "{}"}}]});
    let choices = json!([{"index": 0, "delta": delta, "finish_reason": null}]);
    format!("data: {}\n\n", json!({"object": "chat.completion.chunk", "choices": choices}))
}
