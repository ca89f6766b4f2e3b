//! Frames of OpenAI Responses.

use std::collections::BTreeMap;

use serde_json::Value;
use writ_types::chat::StopReason;
use writ_types::unit::Tokens;

use super::{Draft, STREAM_ERROR, parse_frame, provider_error, read_tokens};
use crate::error::Failure;

/// The calls of an answer: the place in the draft for each item's index in the stream.
#[derive(Debug, Default)]
pub(crate) struct Items(BTreeMap<u64, usize>);

impl Items {
    pub(crate) fn frame(&mut self, draft: &mut Draft, data: &str) -> Result<bool, Failure> {
        let frame = parse_frame(data)?;
        let response = frame.get("response").unwrap_or(&Value::Null);
        draft.model(response.get("model").unwrap_or(&Value::Null));
        draft.count_bytes(1)?;
        match frame.get("type").and_then(Value::as_str).unwrap_or_default() {
            "response.output_item.added" => self.added(draft, &frame)?,
            "response.output_text.delta" | "response.refusal.delta" => {
                draft.push_text(read_delta(&frame)?)?
            }
            "response.function_call_arguments.delta" => {
                // Arguments belong to an item that was announced; anything else is another format.
                let place = self.0.get(&read_index(&frame)?);
                let what = "arguments without a tool call";
                let place = place.ok_or(Failure::Invalid { what })?;
                draft.arguments(*place, read_delta(&frame)?)?;
            }
            "response.output_item.done" => self.done(draft, &frame)?,
            "response.completed" => {
                draft.stop = Some(StopReason::EndTurn);
                read_usage(draft, response);
                return Ok(true);
            }
            "response.incomplete" => {
                let reason = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
                draft.stop = Some(read_incomplete(reason.unwrap_or_default()));
                read_usage(draft, response);
                return Ok(true);
            }
            "response.failed" => {
                read_usage(draft, response);
                let error = response.get("error").unwrap_or(&Value::Null);
                return Err(provider_error(error, STREAM_ERROR, None));
            }
            // Its fields lie in the frame itself, or below `error`.
            "error" => {
                let error = frame.get("error").filter(|error| error.is_object()).unwrap_or(&frame);
                return Err(provider_error(error, STREAM_ERROR, None));
            }
            "" => return Err(Failure::Invalid { what: "a stream frame without a type" }),
            // Reasoning and events of later versions are not stored, but their deltas are counted, since they
            // could have no end. The frames that repeat what was streamed are not.
            _ => draft.count_bytes(frame.get("delta").and_then(Value::as_str).map_or(0, str::len))?,
        }
        Ok(false)
    }

    fn added(&mut self, draft: &mut Draft, frame: &Value) -> Result<(), Failure> {
        let item = frame.get("item").unwrap_or(&Value::Null);
        if item.get("type").and_then(Value::as_str) != Some("function_call") {
            return Ok(());
        }
        let field = |key: &str| item.get(key).and_then(Value::as_str);
        let place = draft.call(field("call_id"), field("name"))?;
        self.0.insert(read_index(frame)?, place);
        draft.arguments(place, field("arguments").unwrap_or_default())
    }

    /// Takes the whole arguments of a finished call. They replace the streamed pieces, of which some may be missing.
    fn done(&mut self, draft: &mut Draft, frame: &Value) -> Result<(), Failure> {
        let item = frame.get("item").unwrap_or(&Value::Null);
        match item.get("type").and_then(Value::as_str) {
            Some("function_call") => {}
            Some("reasoning") if item.get("encrypted_content").is_some_and(Value::is_string) => {
                return draft.open_block(item).map(|_| ());
            }
            Some(_) | None => return Ok(()),
        }
        // An item that is done without having been added is taken as a whole.
        let Some(place) = self.0.get(&read_index(frame)?).copied() else {
            return self.added(draft, frame);
        };
        match item.get("arguments").and_then(Value::as_str) {
            Some(whole) if !whole.is_empty() => draft.whole_arguments(place, whole),
            Some(_) | None => Ok(()),
        }
    }
}

fn read_index(frame: &Value) -> Result<u64, Failure> {
    let index = frame.get("output_index").and_then(Value::as_u64);
    index.ok_or(Failure::Invalid { what: "an output item without an index" })
}

fn read_delta(frame: &Value) -> Result<&str, Failure> {
    frame.get("delta").and_then(Value::as_str).ok_or(Failure::Invalid { what: "a delta without text" })
}

fn read_incomplete(reason: &str) -> StopReason {
    match reason {
        "max_output_tokens" => StopReason::MaxTokens,
        "content_filter" => StopReason::ContentFilter,
        other => StopReason::Other(other.chars().take(64).collect()),
    }
}

fn read_usage(draft: &mut Draft, response: &Value) {
    let usage = response.get("usage").unwrap_or(&Value::Null);
    if let Some(input) = read_tokens(usage, "input_tokens") {
        draft.usage.input = input;
    }
    if let Some(output) = read_tokens(usage, "output_tokens") {
        draft.usage.output = output;
    }
    if let Some(details) = usage.get("input_tokens_details") {
        draft.usage.cache_read = read_tokens(details, "cached_tokens").unwrap_or(Tokens::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SCL-026
    #[test]
    fn reasons_of_incomplete_answers_are_unified_and_unknown_ones_kept() {
        for (word, reason) in [
            ("max_output_tokens", StopReason::MaxTokens),
            ("content_filter", StopReason::ContentFilter),
            ("", StopReason::Other(String::new())),
            ("max_tool_calls", StopReason::Other("max_tool_calls".into())),
        ] {
            assert_eq!(read_incomplete(word), reason);
        }
    }
}
