//! Answers in the format of OpenAI Responses.

use serde_json::{Value, json};

use crate::model_server::http::pieces;
use crate::model_server::parsed::ParsedRequest;
use crate::model_server::reply::{Reply, Stop};

/// In how many pieces a call's arguments are streamed.
const ARGUMENT_PIECES: usize = 5;

/// A fixed time of creation, so that answers are the same in every run.
const CREATED: u64 = 1_700_000_000;

/// Returns how a response ended: its last event, its status and the reason for being incomplete.
fn ending(stop: Stop) -> (&'static str, &'static str, Option<String>) {
    let incomplete = |reason: &str| ("response.incomplete", "incomplete", Some(reason.to_owned()));
    match stop {
        Stop::EndTurn | Stop::ToolUse => ("response.completed", "completed", None),
        Stop::MaxTokens => incomplete("max_output_tokens"),
        Stop::ContentFilter => incomplete("content_filter"),
        Stop::Raw(word) => incomplete(&word),
    }
}

fn usage(request: &ParsedRequest, reply: &Reply) -> Value {
    let (input, output) = (reply.input(request), reply.output());
    json!({
        "input_tokens": input, "input_tokens_details": {"cached_tokens": reply.cached_tokens},
        "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input.saturating_add(output),
    })
}

fn call_id(request: &ParsedRequest, index: usize) -> String {
    format!("call_{:02}_{index:02}", request.messages.len())
}

/// The items of an answer, whole.
fn output(request: &ParsedRequest, reply: &Reply) -> Vec<Value> {
    let mut items = Vec::new();
    if !reply.texts.is_empty() || reply.calls.is_empty() {
        items.push(json!({
            "id": "msg_scripted", "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": reply.texts.concat(), "annotations": [], "logprobs": []}],
        }));
    }
    for (index, call) in reply.calls.iter().enumerate() {
        items.push(json!({
            "id": format!("fc_scripted_{index}"), "type": "function_call", "status": "completed",
            "call_id": call.id.clone().unwrap_or_else(|| call_id(request, index)),
            "name": call.name, "arguments": call.arguments,
        }));
    }
    items
}

fn response(request: &ParsedRequest, status: &str, output: &[Value], usage: Value) -> Value {
    json!({
        "id": "resp_scripted", "object": "response", "created_at": CREATED, "status": status, "error": null,
        "incomplete_details": null, "instructions": null, "model": request.model, "output": output,
        "parallel_tool_calls": true, "store": false, "usage": usage,
    })
}

fn ended(request: &ParsedRequest, reply: &Reply) -> (&'static str, Value) {
    let (event, status, reason) = ending(reply.stops());
    let mut response = response(request, status, &output(request, reply), usage(request, reply));
    if let Some(reason) = reason {
        response["incomplete_details"] = json!({ "reason": reason });
    }
    (event, response)
}

/// The whole answer at once.
pub(crate) fn whole(request: &ParsedRequest, reply: &Reply) -> Value {
    ended(request, reply).1
}

/// Numbers events as they are made.
#[derive(Default)]
struct EventLines(Vec<String>);

impl EventLines {
    fn push(&mut self, kind: &str, mut data: Value) {
        data["type"] = json!(kind);
        data["sequence_number"] = json!(self.0.len());
        self.0.push(format!("event: {kind}\ndata: {data}\n\n"));
    }
}

/// The answer as server-sent events.
pub(crate) fn frames(request: &ParsedRequest, reply: &Reply) -> Vec<String> {
    let mut events = EventLines::default();
    let begun = response(request, "in_progress", &[], Value::Null);
    events.push("response.created", json!({ "response": begun }));
    events.push("response.in_progress", json!({ "response": begun }));
    for (index, item) in output(request, reply).iter().enumerate() {
        let mut started = item.clone();
        started["status"] = json!("in_progress");
        if item["type"] == "message" {
            started["content"] = json!([]);
            events.push("response.output_item.added", json!({"output_index": index, "item": started}));
            text(&mut events, index, item, &reply.texts);
        } else {
            started["arguments"] = json!("");
            events.push("response.output_item.added", json!({"output_index": index, "item": started}));
            arguments(&mut events, index, item);
        }
        events.push("response.output_item.done", json!({"output_index": index, "item": item}));
    }
    let (event, response) = ended(request, reply);
    events.push(event, json!({ "response": response }));
    events.0
}

fn text(events: &mut EventLines, index: usize, item: &Value, texts: &[String]) {
    let id = &item["id"];
    let at = json!({"item_id": id, "output_index": index, "content_index": 0});
    let with = |key: &str, value: Value| {
        let mut data = at.clone();
        data[key] = value;
        data
    };
    let empty = json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
    events.push("response.content_part.added", with("part", empty));
    for piece in texts {
        events.push("response.output_text.delta", with("delta", json!(piece)));
    }
    events.push("response.output_text.done", with("text", json!(texts.concat())));
    events.push("response.content_part.done", with("part", item["content"][0].clone()));
}

fn arguments(events: &mut EventLines, index: usize, item: &Value) {
    let all = item["arguments"].as_str().unwrap_or_default();
    for piece in pieces(all, ARGUMENT_PIECES) {
        let data = json!({"item_id": item["id"], "output_index": index, "delta": piece});
        events.push("response.function_call_arguments.delta", data);
    }
    let data = json!({"item_id": item["id"], "output_index": index, "arguments": all});
    events.push("response.function_call_arguments.done", data);
}

/// One more piece of the text.
pub(crate) fn more_text() -> String {
    let data = json!({
        "type": "response.output_text.delta", "item_id": "msg_scripted", "output_index": 0, "content_index": 0,
        "delta": "and on and on and on ",
    });
    format!("event: response.output_text.delta\ndata: {data}\n\n")
}

/// A tool call without id and name.
pub(crate) fn malformed_call() -> String {
    let item = json!({"id": "fc_7", "type": "function_call", "status": "in_progress", "arguments": ""});
    let data = json!({"type": "response.output_item.added", "output_index": 7, "item": item});
    format!("event: response.output_item.added\ndata: {data}\n\n")
}
