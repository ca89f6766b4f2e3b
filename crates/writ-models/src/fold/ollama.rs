//! Lines of Ollama's own chat API.

use serde_json::Value;
use writ_types::chat::StopReason;
use writ_types::unit::Tokens;

use super::{Draft, STREAM_ERROR, parse_frame, provider_error, read_tokens};
use crate::error::Failure;

/// Takes one line. The one that is `done` is the last.
pub(crate) fn fold_frame(draft: &mut Draft, data: &str) -> Result<bool, Failure> {
    let frame = parse_frame(data)?;
    if let Some(error) = frame.get("error").filter(|error| !error.is_null()) {
        return Err(provider_error(error, STREAM_ERROR, None));
    }
    draft.count_bytes(1)?;
    draft.model(frame.get("model").unwrap_or(&Value::Null));
    let done = frame.get("done").and_then(Value::as_bool);
    let message = frame.get("message").unwrap_or(&Value::Null);
    if done.is_none() && message.is_null() {
        return Err(Failure::Invalid { what: "a line with neither message nor end" });
    }
    let field = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
    draft.push_answer(field("content"))?;
    // Not stored, but counted, since it too could have no end.
    draft.count_bytes(field("thinking").len())?;
    // Calls come whole in this format.
    for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
        let id = call.get("id").and_then(Value::as_str);
        let place = draft.call(id, call.pointer("/function/name").and_then(Value::as_str))?;
        draft.value_arguments(place, call.pointer("/function/arguments"))?;
    }
    // Only the last line has counts and a reason.
    if done != Some(true) {
        return Ok(false);
    }
    read_usage(draft, &frame);
    draft.stop = Some(done_reason(frame.get("done_reason").and_then(Value::as_str).unwrap_or_default()));
    Ok(true)
}

fn done_reason(reason: &str) -> StopReason {
    match reason {
        "stop" => StopReason::EndTurn,
        "length" => StopReason::MaxTokens,
        "content_filter" => StopReason::ContentFilter,
        other => StopReason::Other(other.chars().take(64).collect()),
    }
}

fn read_usage(draft: &mut Draft, frame: &Value) {
    if let Some(input) = read_tokens(frame, "prompt_eval_count") {
        draft.usage.input = input;
        draft.usage.cache_read = read_tokens(frame, "prompt_eval_cached_count").unwrap_or(Tokens::ZERO);
    }
    if let Some(output) = read_tokens(frame, "eval_count") {
        draft.usage.output = output;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SCL-026
    #[test]
    fn done_reasons_are_unified_and_unknown_ones_kept() {
        for (word, reason) in [
            ("stop", StopReason::EndTurn),
            ("length", StopReason::MaxTokens),
            ("load", StopReason::Other("load".into())),
            ("", StopReason::Other(String::new())),
        ] {
            assert_eq!(done_reason(word), reason);
        }
    }
}
