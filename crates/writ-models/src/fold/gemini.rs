//! Reads the stream frames of Gemini's `streamGenerateContent`.

use serde_json::Value;
use writ_types::chat::StopReason;
use writ_types::unit::Tokens;

use super::{Draft, STREAM_ERROR, parse_frame, provider_error, read_tokens};
use crate::error::Failure;

/// Adds one frame to the draft. Returns true for the last one: it has a finish reason, or a blocked prompt.
pub(crate) fn fold_frame(draft: &mut Draft, data: &str) -> Result<bool, Failure> {
    let frame = parse_frame(data)?;
    if let Some(error) = frame.get("error").filter(|error| !error.is_null()) {
        return Err(provider_error(error, STREAM_ERROR, None));
    }
    draft.count_bytes(1)?;
    draft.model(frame.get("modelVersion").unwrap_or(&Value::Null));
    read_usage(draft, frame.get("usageMetadata").unwrap_or(&Value::Null));
    // A blocked prompt has no candidates and no finish reason.
    if let Some(reason) = frame.pointer("/promptFeedback/blockReason").and_then(Value::as_str) {
        tracing::debug!(reason, "the prompt was blocked");
        draft.stop = Some(StopReason::ContentFilter);
        return Ok(true);
    }
    let Some(candidate) = frame.pointer("/candidates/0") else {
        let expected = frame.get("candidates").is_some() || frame.get("usageMetadata").is_some();
        let what = "a stream frame with neither candidates nor usage";
        return if expected { Ok(false) } else { Err(Failure::Invalid { what }) };
    };
    for part in candidate.pointer("/content/parts").and_then(Value::as_array).into_iter().flatten() {
        self::fold_part(draft, part)?;
    }
    match candidate.get("finishReason").and_then(Value::as_str) {
        None => Ok(false),
        // The server could not parse or match the call that its model wrote, so there is nothing to perform.
        Some("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL") => {
            Err(Failure::Invalid { what: "the model stopped at a malformed or unexpected tool call" })
        }
        Some(reason) => {
            draft.stop = Some(finish_reason(reason));
            Ok(true)
        }
    }
}

fn fold_part(draft: &mut Draft, part: &Value) -> Result<(), Failure> {
    if let Some(call) = part.get("functionCall") {
        let field = |key: &str| call.get(key).and_then(Value::as_str);
        let place = draft.call(field("id"), field("name"))?;
        draft.sign_call(place, part.get("thoughtSignature"))?;
        return draft.value_arguments(place, call.get("args"));
    }
    let text = part.get("text").and_then(Value::as_str).unwrap_or_default();
    if part.get("thought").and_then(Value::as_bool) == Some(true) {
        // Thinking is not stored, but its bytes count: it could be endless as well.
        return draft.count_bytes(text.len());
    }
    draft.push_text(text)
}

fn finish_reason(reason: &str) -> StopReason {
    match reason {
        "STOP" => StopReason::EndTurn,
        "MAX_TOKENS" => StopReason::MaxTokens,
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY" => {
            StopReason::ContentFilter
        }
        other => StopReason::Other(other.chars().take(64).collect()),
    }
}

/// Reads token counts, which are totals up to this frame. Thinking is counted apart from the answer, and billed like it.
fn read_usage(draft: &mut Draft, usage: &Value) {
    if let Some(input) = read_tokens(usage, "promptTokenCount") {
        // A later frame without a cached count means that nothing was cached.
        draft.usage.input = input;
        draft.usage.cache_read = read_tokens(usage, "cachedContentTokenCount").unwrap_or(Tokens::ZERO);
    }
    let said = read_tokens(usage, "candidatesTokenCount");
    let thought = read_tokens(usage, "thoughtsTokenCount");
    if said.is_some() || thought.is_some() {
        draft.usage.output = said.unwrap_or_default().saturating_add(thought.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SCL-026
    #[test]
    fn finish_reasons_are_unified_and_unknown_ones_kept() {
        for (word, reason) in [
            ("STOP", StopReason::EndTurn),
            ("MAX_TOKENS", StopReason::MaxTokens),
            ("SAFETY", StopReason::ContentFilter),
            ("RECITATION", StopReason::ContentFilter),
            ("FINISH_REASON_UNSPECIFIED", StopReason::Other("FINISH_REASON_UNSPECIFIED".into())),
        ] {
            assert_eq!(finish_reason(word), reason);
        }
    }

    #[test]
    fn thinking_is_counted_and_billed_but_not_said() {
        let mut draft = Draft::new(Tokens::new(100), "call".into());
        let data = r#"{"candidates":[{"content":{"parts":[{"text":"hmm","thought":true},{"text":"yes"}]},"finishReason":"STOP"}],
            "usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":1,"thoughtsTokenCount":5}}"#;
        assert!(fold_frame(&mut draft, data).expect("a good frame"));
        let reply = draft.finish_answer(Tokens::ZERO).expect("whole");
        assert_eq!((reply.text.as_str(), reply.usage.output), ("yes", Tokens::new(6)));
    }

    #[test]
    fn a_blocked_prompt_is_a_refusal_and_a_failed_call_an_error() {
        let mut draft = Draft::new(Tokens::new(100), "call".into());
        assert!(
            fold_frame(&mut draft, r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#).expect("a good frame")
        );
        assert_eq!(draft.finish_answer(Tokens::ZERO).expect("whole").stop, StopReason::ContentFilter);
        let mut draft = Draft::new(Tokens::new(100), "call".into());
        let failed = fold_frame(&mut draft, r#"{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}"#);
        assert!(matches!(failed, Err(Failure::Invalid { .. })));
    }
}
