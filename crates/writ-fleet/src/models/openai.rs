//! OpenAI Chat Completions.

use serde_json::{Value, json};
use writ_runtime::routed::{AgentPrompt, RoutedReply};
use writ_types::chat::{Part, Role, StopReason, ToolCall, Usage};

use super::fields::{Fields, Leniency, MAX_MESSAGES, MAX_TOOLS};
use super::prompt::{PromptBuilder, text_part};
use super::refusal::Refusal;

/// A request that was read.
#[derive(Debug)]
pub(super) struct ChatRequest {
    pub(super) prompt: AgentPrompt,
    pub(super) is_streamed: bool,
    /// True if a stream ends with its usage.
    pub(super) has_usage: bool,
}

/// Reads a request.
///
/// # Errors
///
/// The field that is malformed, or that cannot be served.
pub(super) fn read_request(body: &Value, leniency: Leniency) -> Result<ChatRequest, Refusal> {
    let fields = Fields::of(body, "")?;
    refuse_unserved(fields, leniency)?;
    let mut prompt = PromptBuilder::default();
    let messages = fields.find_list("messages", MAX_MESSAGES)?;
    if messages.is_empty() {
        return Err(Refusal::invalid("messages", "must have at least one message"));
    }
    for (n, message) in messages.iter().enumerate() {
        read_message(&mut prompt, message, &format!("messages[{n}]"), leniency)?;
    }
    for (n, tool) in fields.find_list("tools", MAX_TOOLS)?.iter().enumerate() {
        read_tool(&mut prompt, tool, &format!("tools[{n}]"))?;
    }
    match fields.find("tool_choice") {
        None => {}
        Some(Value::String(choice)) if choice == "auto" => {}
        Some(Value::String(choice)) if choice == "none" => prompt.remove_tools(),
        Some(_) => {
            leniency.pass_over(Refusal::unsupported("tool_choice", "can be 'auto' or 'none' here"), ())?;
        }
    }
    // The newer name counts where both are given.
    let most = match fields.find_count("max_completion_tokens")? {
        None => fields.find_count("max_tokens")?,
        given => given,
    };
    let has_usage = match fields.find("stream_options") {
        None => false,
        Some(options) => Fields::of(options, "stream_options")?.find_flag("include_usage")?,
    };
    Ok(ChatRequest {
        prompt: AgentPrompt {
            model: fields.need_text("model")?.to_owned(),
            request: prompt.finish_request(most),
        },
        is_streamed: fields.find_flag("stream")?,
        has_usage,
    })
}

/// Refuses what would change the answer and cannot be passed on; settings of taste, such as `temperature`, are ignored.
fn refuse_unserved(fields: Fields<'_>, leniency: Leniency) -> Result<(), Refusal> {
    if fields.find_count("n")?.is_some_and(|n| n > 1) {
        return Err(Refusal::unsupported("n", "can only be 1 here"));
    }
    let stop = fields.refuse_set("stop", "is not supported here: cut the answer where it is read");
    stop.or_else(|refusal| leniency.pass_over(refusal, ()))?;
    fields.refuse_set("functions", "is not supported here: use 'tools'")?;
    fields.refuse_set("audio", "is not supported here: answers are text")?;
    if let Some(format) = fields.find("response_format")
        && Fields::of(format, "response_format")?.need_text("type")? != "text"
    {
        let why = "can only be text here: ask for JSON in the prompt, or offer a tool";
        return leniency.pass_over(Refusal::unsupported("response_format", why), ());
    }
    Ok(())
}

fn read_message(
    prompt: &mut PromptBuilder,
    message: &Value,
    place: &str,
    leniency: Leniency,
) -> Result<(), Refusal> {
    let fields = Fields::of(message, place)?;
    let text = read_content(fields, place, leniency)?;
    match fields.need_text("role")? {
        "system" | "developer" => prompt.add_system(text),
        "user" => prompt.add_message(Role::User, text_part(text).into_iter().collect()),
        "assistant" => {
            let mut parts: Vec<Part> = text_part(text).into_iter().collect();
            for (n, call) in fields.find_list("tool_calls", MAX_TOOLS)?.iter().enumerate() {
                parts.push(read_call(prompt, call, &format!("{place}.tool_calls[{n}]"))?);
            }
            prompt.add_message(Role::Assistant, parts);
        }
        "tool" => {
            let part = prompt.result_part(fields.need_text("tool_call_id")?, text, false);
            prompt.add_message(Role::Tool, vec![part]);
        }
        _ => {
            let known = "must be system, developer, user, assistant or tool";
            return Err(Refusal::invalid(&format!("{place}.role"), known));
        }
    }
    Ok(())
}

/// Reads a text, or a list of text parts, which are joined as they are.
fn read_content(fields: Fields<'_>, place: &str, leniency: Leniency) -> Result<String, Refusal> {
    let place = format!("{place}.content");
    match fields.find("content") {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let read = parts.iter().enumerate().map(|(n, part)| {
                let place = format!("{place}[{n}]");
                let fields = Fields::of(part, &place)?;
                match fields.need_text("type")? {
                    "text" => fields.need_text("text").map(str::to_owned),
                    "refusal" => fields.need_text("refusal").map(str::to_owned),
                    _ => leniency.pass_over(
                        Refusal::unsupported(&format!("{place}.type"), "can only be text here"),
                        Leniency::OMITTED.to_owned(),
                    ),
                }
            });
            read.collect()
        }
        Some(_) => Err(Refusal::invalid(&place, "must be a text or a list of parts")),
    }
}

fn read_call(prompt: &mut PromptBuilder, call: &Value, place: &str) -> Result<Part, Refusal> {
    let fields = Fields::of(call, place)?;
    let place = format!("{place}.function");
    let function = fields.find("function").ok_or_else(|| Refusal::invalid(&place, "is missing"))?;
    let function = Fields::of(function, &place)?;
    let written = function.find_text("arguments")?.unwrap_or("{}");
    // Text that is no JSON is what the model wrote; it goes back as that.
    let arguments = serde_json::from_str(written).unwrap_or_else(|_| Value::String(written.to_owned()));
    Ok(prompt.call_part(fields.need_text("id")?, function.need_text("name")?, arguments))
}

fn read_tool(prompt: &mut PromptBuilder, tool: &Value, place: &str) -> Result<(), Refusal> {
    let fields = Fields::of(tool, place)?;
    if fields.need_text("type")? != "function" {
        return Err(Refusal::unsupported(&format!("{place}.type"), "can only be 'function' here"));
    }
    let place = format!("{place}.function");
    let function = fields.find("function").ok_or_else(|| Refusal::invalid(&place, "is missing"))?;
    let function = Fields::of(function, &place)?;
    let none = json!({ "type": "object", "properties": {} });
    let schema = function.find("parameters").cloned().unwrap_or(none);
    prompt.add_tool(
        function.need_text("name")?,
        function.find_text("description")?.unwrap_or_default(),
        schema,
    );
    Ok(())
}

/// What all parts of one answer repeat.
#[derive(Clone, Debug)]
pub(super) struct ChatHead {
    pub(super) id: String,
    pub(super) created: i64,
    /// The model as it was asked for.
    pub(super) model: String,
    pub(super) has_usage: bool,
}

impl ChatHead {
    fn object(&self, kind: &str, choices: Value) -> Value {
        let id = format!("chatcmpl-{}", self.id);
        json!({ "id": id, "object": kind, "created": self.created, "model": self.model, "choices": choices })
    }

    fn chunk(&self, delta: &Value, reason: Option<&str>) -> Value {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason });
        let mut chunk = self.object("chat.completion.chunk", json!([choice]));
        // The format says so in every chunk but the last, if usage was asked for.
        if self.has_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// Returns the first chunk: a role and no text.
    pub(super) fn opening_chunk(&self) -> Value {
        self.chunk(&json!({ "role": "assistant", "content": "" }), None)
    }

    /// Returns a chunk with more text.
    pub(super) fn text_chunk(&self, text: &str) -> Value {
        self.chunk(&json!({ "content": text }), None)
    }

    /// Returns the last chunks: calls of tools, the reason of the end, and the usage if it was asked for.
    pub(super) fn closing_chunks(&self, answer: &RoutedReply) -> Vec<Value> {
        let reply = &answer.reply;
        let calls = reply.calls.iter().enumerate().map(|(n, call)| {
            let mut written = call_object(call);
            written["index"] = json!(n);
            self.chunk(&json!({ "tool_calls": [written] }), None)
        });
        let mut chunks: Vec<Value> = calls.collect();
        chunks.push(self.chunk(&json!({}), Some(finish_reason(&reply.stop))));
        if self.has_usage {
            let mut last = self.object("chat.completion.chunk", json!([]));
            last["usage"] = usage_object(&reply.usage);
            chunks.push(last);
        }
        chunks
    }

    /// Returns a whole answer.
    pub(super) fn whole_answer(&self, answer: &RoutedReply) -> Value {
        let reply = &answer.reply;
        let calls: Vec<Value> = reply.calls.iter().map(call_object).collect();
        let is_silent = reply.text.is_empty() && !calls.is_empty();
        let text = if is_silent { Value::Null } else { Value::from(reply.text.as_str()) };
        let mut message = json!({ "role": "assistant", "content": text, "refusal": null });
        if !calls.is_empty() {
            message["tool_calls"] = Value::from(calls);
        }
        let reason = finish_reason(&reply.stop);
        let choice = json!({ "index": 0, "message": message, "logprobs": null, "finish_reason": reason });
        let mut object = self.object("chat.completion", json!([choice]));
        object["usage"] = usage_object(&reply.usage);
        object
    }
}

fn call_object(call: &ToolCall) -> Value {
    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": written_arguments(call) } })
}

/// Returns the arguments as text. What the model wrote that is no JSON goes on as it is.
fn written_arguments(call: &ToolCall) -> String {
    match &call.arguments {
        Value::String(text) => text.clone(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    }
}

const fn finish_reason(stop: &StopReason) -> &'static str {
    match stop {
        // Only these words are known to clients.
        StopReason::EndTurn | StopReason::Other(_) => "stop",
        StopReason::ToolUse => "tool_calls",
        StopReason::MaxTokens => "length",
        StopReason::ContentFilter => "content_filter",
    }
}

fn usage_object(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.total_tokens(),
        "prompt_tokens_details": { "cached_tokens": usage.cache_read },
    })
}
