//! Frames of OpenAI Chat Completions.

use std::collections::BTreeMap;

use serde_json::Value;
use writ_types::chat::StopReason;
use writ_types::unit::Tokens;

use super::{Draft, STREAM_ERROR, parsed, provider_error, tokens};
use crate::error::Failure;

/// The frame that ends a stream.
const DONE: &str = "[DONE]";

/// The places of calls, by the provider's index.
#[derive(Debug, Default)]
pub(crate) struct Slots(BTreeMap<u64, usize>);

impl Slots {
    pub(crate) fn frame(&mut self, draft: &mut Draft, data: &str) -> Result<bool, Failure> {
        if data == DONE {
            return Ok(true);
        }
        let frame = parsed(data)?;
        if let Some(error) = frame.get("error").filter(|error| !error.is_null()) {
            return Err(provider_error(error, STREAM_ERROR, None));
        }
        draft.count(1)?;
        draft.model(frame.get("model").unwrap_or(&Value::Null));
        usage(draft, frame.get("usage").unwrap_or(&Value::Null));
        let Some(choice) = frame.pointer("/choices/0") else {
            let expected = frame.get("choices").is_some() || frame.get("usage").is_some();
            let what = "a stream frame with neither choices nor usage";
            return if expected { Ok(false) } else { Err(Failure::Invalid { what }) };
        };
        let delta = choice.get("delta").unwrap_or(&Value::Null);
        for key in ["content", "refusal"] {
            draft.text(delta.get(key).and_then(Value::as_str).unwrap_or_default())?;
        }
        for key in ["reasoning_content", "reasoning"] {
            // Not kept, but counted, since it too could have no end.
            draft.count(delta.get(key).and_then(Value::as_str).map_or(0, str::len))?;
        }
        if let Some(calls) = delta.get("tool_calls").and_then(Value::as_array) {
            for call in calls {
                self.call(draft, call)?;
            }
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            draft.stop = Some(finish_reason(reason));
        }
        Ok(false)
    }

    /// The first piece of a call has id and name; later ones only its index.
    fn call(&mut self, draft: &mut Draft, call: &Value) -> Result<(), Failure> {
        let field = |path: &str| call.pointer(path).and_then(Value::as_str);
        let id = field("/id").filter(|id| !id.is_empty());
        let index = match (call.get("index").and_then(Value::as_u64), id) {
            (Some(index), _) => index,
            // Some compatible servers send whole calls without an index.
            (None, Some(_)) => self.0.last_key_value().map_or(0, |(last, _)| last.saturating_add(1)),
            (None, None) => return Err(Failure::Invalid { what: "a tool call with neither index nor id" }),
        };
        let place = match self.0.get(&index) {
            Some(place) => *place,
            None => {
                let place = draft.call(id, field("/function/name"))?;
                self.0.insert(index, place);
                place
            }
        };
        draft.arguments(place, field("/function/arguments").unwrap_or_default())
    }
}

fn finish_reason(reason: &str) -> StopReason {
    match reason {
        "stop" => StopReason::EndTurn,
        "tool_calls" | "function_call" => StopReason::ToolUse,
        "length" => StopReason::MaxTokens,
        "content_filter" => StopReason::ContentFilter,
        other => StopReason::Other(other.chars().take(64).collect()),
    }
}

fn usage(draft: &mut Draft, usage: &Value) {
    if let Some(input) = tokens(usage, "prompt_tokens") {
        draft.usage.input = input;
    }
    if let Some(output) = tokens(usage, "completion_tokens") {
        draft.usage.output = output;
    }
    if let Some(details) = usage.get("prompt_tokens_details") {
        draft.usage.cache_read = tokens(details, "cached_tokens").unwrap_or(Tokens::ZERO);
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
            ("content_filter", StopReason::ContentFilter),
            ("insufficient_system_resource", StopReason::Other("insufficient_system_resource".into())),
        ] {
            assert_eq!(finish_reason(word), reason);
        }
    }
}
