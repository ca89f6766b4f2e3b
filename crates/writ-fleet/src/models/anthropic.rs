//! Anthropic Messages.

use serde_json::{Map, Value, json};
use writ_runtime::routed::{AgentPrompt, RoutedReply};
use writ_types::chat::{Part, Role, StopReason, ToolCall, Usage};

use super::fields::{Fields, Leniency, MAX_MESSAGES, MAX_TOOLS};
use super::prompt::{PromptBuilder, text_part};
use super::refusal::Refusal;

/// A request that was read.
#[derive(Debug)]
pub(super) struct MessagesRequest {
    pub(super) prompt: AgentPrompt,
    pub(super) is_streamed: bool,
}

/// Reads a request.
///
/// # Errors
///
/// The field that is malformed, or that cannot be served.
pub(super) fn read_request(body: &Value, leniency: Leniency) -> Result<MessagesRequest, Refusal> {
    let fields = Fields::of(body, "")?;
    let stop = fields.refuse_set("stop_sequences", "is not supported here: cut the answer where it is read");
    stop.or_else(|refusal| leniency.pass_over(refusal, ()))?;
    let mut prompt = PromptBuilder::default();
    for text in read_texts(fields.find("system"), "system", leniency)? {
        prompt.add_system(text);
    }
    let messages = fields.find_list("messages", MAX_MESSAGES)?;
    if messages.is_empty() {
        return Err(Refusal::invalid("messages", "must have at least one message"));
    }
    for (n, message) in messages.iter().enumerate() {
        read_message(&mut prompt, message, &format!("messages.{n}"), leniency)?;
    }
    for (n, tool) in fields.find_list("tools", MAX_TOOLS)?.iter().enumerate() {
        read_tool(&mut prompt, tool, &format!("tools.{n}")).or_else(|refusal| {
            if refusal.is_unsupported() { leniency.pass_over(refusal, ()) } else { Err(refusal) }
        })?;
    }
    if let Some(choice) = fields.find("tool_choice") {
        match Fields::of(choice, "tool_choice")?.need_text("type")? {
            "auto" => {}
            "none" => prompt.remove_tools(),
            _ => leniency
                .pass_over(Refusal::unsupported("tool_choice.type", "can be 'auto' or 'none' here"), ())?,
        }
    }
    let most =
        fields.find_count("max_tokens")?.ok_or_else(|| Refusal::invalid("max_tokens", "is missing"))?;
    Ok(MessagesRequest {
        prompt: AgentPrompt {
            model: fields.need_text("model")?.to_owned(),
            request: prompt.finish_request(Some(most)),
        },
        is_streamed: fields.find_flag("stream")?,
    })
}

/// Reads a text, or a list of text blocks.
fn read_texts(content: Option<&Value>, place: &str, leniency: Leniency) -> Result<Vec<String>, Refusal> {
    match content {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(Value::Array(blocks)) => {
            let read = blocks.iter().enumerate().map(|(n, block)| {
                let place = format!("{place}.{n}");
                let fields = Fields::of(block, &place)?;
                match fields.need_text("type")? {
                    "text" => fields.need_text("text").map(str::to_owned),
                    _ => leniency.pass_over(
                        Refusal::unsupported(&format!("{place}.type"), "can only be text here"),
                        Leniency::OMITTED.to_owned(),
                    ),
                }
            });
            read.collect()
        }
        Some(_) => Err(Refusal::invalid(place, "must be a text or a list of blocks")),
    }
}

fn read_message(
    prompt: &mut PromptBuilder,
    message: &Value,
    place: &str,
    leniency: Leniency,
) -> Result<(), Refusal> {
    let fields = Fields::of(message, place)?;
    let role = match fields.need_text("role")? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        _ => return Err(Refusal::invalid(&format!("{place}.role"), "must be user or assistant")),
    };
    let place = format!("{place}.content");
    let Some(Value::Array(blocks)) = fields.find("content") else {
        let texts = read_texts(fields.find("content"), &place, leniency)?;
        prompt.add_message(role, texts.into_iter().filter_map(text_part).collect());
        return Ok(());
    };
    let (mut parts, mut results) = (Vec::new(), Vec::new());
    for (n, block) in blocks.iter().enumerate() {
        let place = format!("{place}.{n}");
        match read_block(prompt, block, &place, leniency)? {
            Some(part @ Part::Result(_)) => results.push(part),
            part => parts.extend(part),
        }
    }
    // Results are messages of their own, before the words beside them.
    prompt.add_message(Role::Tool, results);
    prompt.add_message(role, parts);
    Ok(())
}

fn read_block(
    prompt: &mut PromptBuilder,
    block: &Value,
    place: &str,
    leniency: Leniency,
) -> Result<Option<Part>, Refusal> {
    let fields = Fields::of(block, place)?;
    match fields.need_text("type")? {
        "text" => Ok(text_part(fields.need_text("text")?.to_owned())),
        "tool_use" => {
            let input = fields.find("input").cloned().unwrap_or_else(|| Value::Object(Map::new()));
            Ok(Some(prompt.call_part(fields.need_text("id")?, fields.need_text("name")?, input)))
        }
        "tool_result" => {
            let texts = read_texts(fields.find("content"), &format!("{place}.content"), leniency)?;
            let is_error = fields.find_flag("is_error")?;
            Ok(Some(prompt.result_part(fields.need_text("tool_use_id")?, texts.concat(), is_error)))
        }
        // It is for the provider that wrote it, and this answer may come from another.
        "thinking" | "redacted_thinking" => Ok(None),
        _ => leniency.pass_over(
            Refusal::unsupported(&format!("{place}.type"), "can be text, tool_use or tool_result here"),
            text_part(Leniency::OMITTED.to_owned()),
        ),
    }
}

fn read_tool(prompt: &mut PromptBuilder, tool: &Value, place: &str) -> Result<(), Refusal> {
    let fields = Fields::of(tool, place)?;
    // Tools with another type are run by the provider.
    if fields.find_text("type")?.is_some_and(|kind| kind != "custom") {
        return Err(Refusal::unsupported(&format!("{place}.type"), "can only be 'custom' here"));
    }
    let schema = fields.find("input_schema").cloned();
    let schema = schema.ok_or_else(|| Refusal::invalid(&format!("{place}.input_schema"), "is missing"))?;
    prompt.add_tool(fields.need_text("name")?, fields.find_text("description")?.unwrap_or_default(), schema);
    Ok(())
}

/// What the answer repeats of its request.
#[derive(Clone, Debug)]
pub(super) struct MessageHead {
    pub(super) id: String,
    pub(super) model: String,
}

impl MessageHead {
    fn message(&self, content: &[Value], stop: Option<&str>, usage: &Value) -> Value {
        json!({
            "id": format!("msg_{}", self.id), "type": "message", "role": "assistant", "model": self.model,
            "content": content, "stop_reason": stop, "stop_sequence": null, "usage": usage,
        })
    }

    /// Returns a whole answer.
    pub(super) fn whole_answer(&self, answer: &RoutedReply) -> Value {
        let reply = &answer.reply;
        let text = (!reply.text.is_empty()).then(|| json!({ "type": "text", "text": reply.text }));
        let content: Vec<Value> = text.into_iter().chain(reply.calls.iter().map(call_block)).collect();
        self.message(&content, Some(stop_reason(&reply.stop)), &usage_object(&reply.usage))
    }

    /// Returns the first event. The usage comes with the end: no provider says it before.
    pub(super) fn opening_event(&self) -> Value {
        let message = self.message(&[], None, &usage_object(&Usage::default()));
        json!({ "type": "message_start", "message": message })
    }

    /// Returns the events between the text and the end of a stream: calls of tools, the reason of the end, the usage.
    pub(super) fn closing_events(answer: &RoutedReply, first_index: usize) -> Vec<Value> {
        let reply = &answer.reply;
        let mut events = Vec::new();
        for (index, call) in (first_index..).zip(&reply.calls) {
            // The block begins with no input, and its text follows whole.
            let block = json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": {} });
            let delta = json!({ "type": "input_json_delta", "partial_json": input_of(call).to_string() });
            events.push(json!({ "type": "content_block_start", "index": index, "content_block": block }));
            events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
            events.push(json!({ "type": "content_block_stop", "index": index }));
        }
        let delta = json!({ "stop_reason": stop_reason(&reply.stop), "stop_sequence": null });
        events.push(json!({ "type": "message_delta", "delta": delta, "usage": usage_object(&reply.usage) }));
        events.push(json!({ "type": "message_stop" }));
        events
    }
}

/// Returns the event that begins the block of text.
pub(super) fn text_start() -> Value {
    json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } })
}

/// Returns an event with more text.
pub(super) fn text_delta(text: &str) -> Value {
    json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } })
}

/// Returns the event that ends the block of text.
pub(super) fn text_stop() -> Value {
    json!({ "type": "content_block_stop", "index": 0 })
}

/// Returns the input of a call. The format has objects only, so that text which is no JSON is wrapped in one.
fn input_of(call: &ToolCall) -> Value {
    match &call.arguments {
        Value::Object(_) => call.arguments.clone(),
        Value::Null => json!({}),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            json!({ "invalid_arguments": other })
        }
    }
}

fn call_block(call: &ToolCall) -> Value {
    json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input_of(call) })
}

const fn stop_reason(stop: &StopReason) -> &'static str {
    match stop {
        StopReason::EndTurn | StopReason::Other(_) => "end_turn",
        StopReason::ToolUse => "tool_use",
        StopReason::MaxTokens => "max_tokens",
        StopReason::ContentFilter => "refusal",
    }
}

fn usage_object(usage: &Usage) -> Value {
    // This format counts cached tokens beside the others, not among them.
    let fresh = usage.input.saturating_sub(usage.cache_read).saturating_sub(usage.cache_write);
    json!({
        "input_tokens": fresh, "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cache_read, "cache_creation_input_tokens": usage.cache_write,
    })
}
