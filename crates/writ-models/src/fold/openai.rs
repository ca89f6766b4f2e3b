//! Frames of OpenAI Chat Completions, as OpenAI and many other servers send them.

use serde_json::Value;
use writ_types::chat::StopReason;
use writ_types::unit::Tokens;

pub(crate) use super::calls::CallSlots;
use super::{Draft, STREAM_ERROR, parse_frame, provider_error, read_tokens};
use crate::error::Failure;

/// The frame that ends a stream.
const DONE: &str = "[DONE]";

/// The deepest nesting of content parts: a part of thinking has parts of its own.
const MAX_PART_DEPTH: usize = 4;

/// Takes one frame. The one that says `[DONE]` is the last.
pub(crate) fn fold_frame(slots: &mut CallSlots, draft: &mut Draft, data: &str) -> Result<bool, Failure> {
    if data.trim() == DONE {
        draft.mark_end();
        return Ok(true);
    }
    let frame = parse_frame(data)?;
    draft.count_bytes(1)?;
    draft.model(frame.get("model").unwrap_or(&Value::Null));
    read_usage(draft, &frame);
    let choice = frame.pointer("/choices/0");
    // An error may come within a stream that began with status 200.
    if let Some(error) = read_error(&frame, choice) {
        return Err(provider_error(error, STREAM_ERROR, None));
    }
    let Some(choice) = choice else {
        // No choices yet, or none any more: filters, usage, signs of life. An object of another kind is no frame.
        let keys = ["choices", "usage", "object", "type", "id"];
        let is_expected = keys.iter().any(|key| frame.get(key).is_some());
        let what = "a stream frame with neither choices nor usage";
        return if is_expected { Ok(false) } else { Err(Failure::Invalid { what }) };
    };
    read_usage(draft, choice);
    // Servers that do not stream an answer with tools send its whole message instead.
    let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
    // Not shown, but counted, since it too could have no end. What comes in the first form alone goes back as a text.
    draft.count_bytes(content_size(delta.get("reasoning")))?;
    if let Some(text) = delta.get("reasoning_content").filter(|text| !text.is_null()) {
        draft.count_bytes(content_size(Some(text)))?;
        draft.reason(text.as_str().unwrap_or_default());
    }
    for detail in delta.get("reasoning_details").and_then(Value::as_array).into_iter().flatten() {
        draft.detail(detail)?;
    }
    // A refusal is text for the person, as content is.
    for key in ["content", "refusal"] {
        read_content(draft, delta.get(key).unwrap_or(&Value::Null), 0)?;
    }
    slots.frame(draft, delta.get("tool_calls").unwrap_or(&Value::Null))?;
    // The old form has one call without an id. Some servers send it besides the new one.
    if let Some(call) = delta.get("function_call").filter(|call| call.is_object())
        && (draft.is_old_form || slots.is_empty())
    {
        draft.is_old_form = true;
        slots.frame(draft, call)?;
    }
    let reason = choice.get("finish_reason").and_then(Value::as_str).unwrap_or_default();
    // Some servers send an empty reason with each frame.
    if !matches!(reason, "" | "null") {
        draft.stop = Some(finish_reason(reason));
    }
    Ok(false)
}

/// The error of a frame: its own, its choice's, or the frame itself.
fn read_error<'a>(frame: &'a Value, choice: Option<&'a Value>) -> Option<&'a Value> {
    let named = |value: &'a Value| value.get("error").filter(|error| !error.is_null());
    let is_error = frame.get("object").and_then(Value::as_str) == Some("error");
    // A frame can be an error itself, as some servers send it.
    named(frame).or_else(|| choice.and_then(named)).or_else(|| is_error.then_some(frame))
}

/// Takes content: a text, or parts, of which those of text are shown.
fn read_content(draft: &mut Draft, content: &Value, depth: usize) -> Result<(), Failure> {
    match content {
        Value::String(text) => draft.push_answer(text),
        // Nested parts are bounded, so that an answer cannot exhaust the stack.
        Value::Array(parts) if depth < MAX_PART_DEPTH => {
            parts.iter().try_for_each(|part| self::read_content(draft, part, depth + 1))
        }
        Value::Object(part) => match part.get("type").and_then(Value::as_str) {
            None | Some("text" | "output_text" | "refusal") => {
                let text = part.get("text").or_else(|| part.get("refusal"));
                self::read_content(draft, text.unwrap_or(&Value::Null), MAX_PART_DEPTH)
            }
            // Thinking, images, references.
            Some(_) => draft.count_bytes(content_size(Some(content))),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Ok(()),
    }
}

fn content_size(value: Option<&Value>) -> usize {
    match value {
        None | Some(Value::Null) => 0,
        Some(Value::String(text)) => text.len(),
        Some(value) => value.to_string().len(),
    }
}

fn finish_reason(reason: &str) -> StopReason {
    match reason.to_ascii_lowercase().as_str() {
        "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" => StopReason::EndTurn,
        "tool_calls" | "tool_call" | "tool_use" | "function_call" => StopReason::ToolUse,
        "length" | "max_tokens" | "model_length" => StopReason::MaxTokens,
        "content_filter" | "safety" => StopReason::ContentFilter,
        _ => StopReason::Other(reason.chars().take(64).collect()),
    }
}

/// Takes counts from wherever servers put them: the frame, its choice, or a field of their own.
fn read_usage(draft: &mut Draft, holder: &Value) {
    let usage = holder.get("usage").filter(|usage| usage.is_object());
    let Some(usage) = usage.or_else(|| holder.pointer("/x_groq/usage")) else { return };
    if let Some(input) = read_tokens(usage, "prompt_tokens") {
        draft.usage.input = input;
    }
    if let Some(output) = read_tokens(usage, "completion_tokens") {
        draft.usage.output = output;
    }
    if let Some(details) = usage.get("prompt_tokens_details") {
        draft.usage.cache_read = read_tokens(details, "cached_tokens").unwrap_or(Tokens::ZERO);
    } else if let Some(cached) = read_tokens(usage, "prompt_cache_hit_tokens") {
        draft.usage.cache_read = cached;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SCL-026
    #[test]
    fn finish_reasons_are_unified_and_unknown_ones_kept() {
        for (word, reason) in [
            ("stop", StopReason::EndTurn),
            ("tool_calls", StopReason::ToolUse),
            ("function_call", StopReason::ToolUse),
            ("length", StopReason::MaxTokens),
            ("STOP", StopReason::EndTurn),
            ("model_length", StopReason::MaxTokens),
            ("content_filter", StopReason::ContentFilter),
            ("insufficient_system_resource", StopReason::Other("insufficient_system_resource".into())),
        ] {
            assert_eq!(finish_reason(word), reason);
        }
    }
}
