//! Frames of Anthropic Messages.

use std::collections::BTreeMap;

use serde_json::Value;
use writ_types::chat::StopReason;
use writ_types::unit::Tokens;

use super::{Draft, STREAM_ERROR, parse_frame, provider_error, read_tokens};
use crate::error::Failure;

/// The content blocks that are open, by index.
#[derive(Debug, Default)]
pub(crate) struct Blocks(BTreeMap<u64, Block>);

#[derive(Clone, Copy, Debug)]
enum Block {
    Text,
    Call(usize),
    /// A call that came with all its arguments, as some gateways send them: the pieces after it repeat all of
    /// them.
    Given(usize),
    /// Thinking, which goes back as it came.
    Thinking(usize),
    /// Any other content, which is ignored.
    Other,
}

impl Blocks {
    pub(crate) fn frame(&mut self, draft: &mut Draft, data: &str) -> Result<bool, Failure> {
        let frame = parse_frame(data)?;
        match frame.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message_start" => {
                if let Some(message) = frame.get("message") {
                    draft.model(message.get("model").unwrap_or(&Value::Null));
                    read_usage(draft, message.get("usage").unwrap_or(&Value::Null));
                }
            }
            "content_block_start" => self.start(draft, &frame)?,
            "content_block_delta" => self.delta(draft, &frame)?,
            "content_block_stop" => {
                self.0.remove(&read_index(&frame)?);
            }
            "message_delta" => {
                if let Some(reason) = frame.pointer("/delta/stop_reason").and_then(Value::as_str) {
                    draft.stop = Some(stop_reason(reason));
                }
                read_usage(draft, frame.get("usage").unwrap_or(&Value::Null));
            }
            "message_stop" => return Ok(true),
            "error" => {
                return Err(provider_error(frame.get("error").unwrap_or(&Value::Null), STREAM_ERROR, None));
            }
            "" => return Err(Failure::Invalid { what: "a stream frame without a type" }),
            // `ping`, and types to come: the provider's documentation asks to pass over them.
            _ => draft.count_bytes(1)?,
        }
        Ok(false)
    }

    fn start(&mut self, draft: &mut Draft, frame: &Value) -> Result<(), Failure> {
        let index = read_index(frame)?;
        let block =
            frame.get("content_block").ok_or(Failure::Invalid { what: "a content block without content" })?;
        let field = |key: &str| block.get(key).and_then(Value::as_str);
        let opened = match field("type").unwrap_or_default() {
            // A block may already begin with text.
            "text" => {
                draft.push_text(field("text").unwrap_or_default())?;
                Block::Text
            }
            "tool_use" => {
                let place = draft.call(field("id"), field("name"))?;
                let input =
                    block.get("input").filter(|input| input.as_object().is_some_and(|of| !of.is_empty()));
                draft.value_arguments(place, input)?;
                if input.is_some() { Block::Given(place) } else { Block::Call(place) }
            }
            "thinking" | "redacted_thinking" => Block::Thinking(draft.open_block(block)?),
            _ => Block::Other,
        };
        draft.count_bytes(1)?;
        self.0.insert(index, opened);
        Ok(())
    }

    fn delta(&mut self, draft: &mut Draft, frame: &Value) -> Result<(), Failure> {
        let block = self
            .0
            .get_mut(&read_index(frame)?)
            .ok_or(Failure::Invalid { what: "a delta without its block" })?;
        let delta = frame.get("delta").unwrap_or(&Value::Null);
        let field = |key: &str| delta.get(key).and_then(Value::as_str);
        match (*block, field("type").unwrap_or_default()) {
            (Block::Text, "text_delta") => {
                draft.push_text(field("text").ok_or(Failure::Invalid { what: "a text delta without text" })?)
            }
            (Block::Call(place), "input_json_delta") => {
                let more =
                    field("partial_json").ok_or(Failure::Invalid { what: "a delta without arguments" })?;
                draft.arguments(place, more)
            }
            (Block::Given(place), "input_json_delta") => {
                let whole = field("partial_json").unwrap_or_default();
                // An empty repetition adds nothing to the arguments that came with the block.
                if matches!(whole.trim(), "" | "{}") {
                    return draft.count_bytes(whole.len().max(1));
                }
                *block = Block::Call(place);
                draft.whole_arguments(place, whole)
            }
            (Block::Thinking(piece), "thinking_delta") => {
                draft.extend_block(piece, "thinking", field("thinking").unwrap_or_default())
            }
            (Block::Thinking(piece), "signature_delta") => {
                draft.extend_block(piece, "signature", field("signature").unwrap_or_default())
            }
            (Block::Text | Block::Call(_) | Block::Given(_), "") => {
                Err(Failure::Invalid { what: "a delta without a type" })
            }
            // Citations and what is to come: counted, since they too could have no end.
            (Block::Text | Block::Call(_) | Block::Given(_) | Block::Thinking(_) | Block::Other, _) => {
                draft.count_bytes(delta.to_string().len())
            }
        }
    }
}

fn read_index(frame: &Value) -> Result<u64, Failure> {
    frame
        .get("index")
        .and_then(Value::as_u64)
        .ok_or(Failure::Invalid { what: "a content block without an index" })
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "end_turn" | "stop_sequence" => StopReason::EndTurn,
        "tool_use" => StopReason::ToolUse,
        "max_tokens" => StopReason::MaxTokens,
        "refusal" => StopReason::ContentFilter,
        other => StopReason::Other(other.chars().take(64).collect()),
    }
}

/// Anthropic counts cached tokens apart from `input_tokens`; later counts replace earlier ones.
fn read_usage(draft: &mut Draft, usage: &Value) {
    if let Some(input) = read_tokens(usage, "input_tokens") {
        let read = read_tokens(usage, "cache_read_input_tokens").unwrap_or(Tokens::ZERO);
        let write = read_tokens(usage, "cache_creation_input_tokens").unwrap_or(Tokens::ZERO);
        // The input is the sum of all three, since the provider counts them apart.
        draft.usage.input = input.saturating_add(read).saturating_add(write);
        draft.usage.cache_read = read;
        draft.usage.cache_write = write;
    }
    if let Some(output) = read_tokens(usage, "output_tokens") {
        draft.usage.output = output;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Some gateways send arguments with the beginning of a call: alone, or once more in pieces.
    ///
    /// Rows: SCL-011
    #[test]
    fn arguments_that_come_with_the_beginning_of_a_call_count() {
        for pieces in [&[][..], &[""], &[" ", "{}"], &["{\"q\":", "\"a\"}"]] {
            let mut draft = Draft::new(Tokens::new(100), "call".into());
            let mut blocks = Blocks::default();
            let mut frame = |frame: Value| blocks.frame(&mut draft, &frame.to_string()).expect("a frame");
            let call = json!({"type": "tool_use", "id": "t", "name": "search", "input": {"q": "a"}});
            frame(json!({"type": "content_block_start", "index": 0, "content_block": call}));
            for piece in pieces {
                let delta = json!({"type": "input_json_delta", "partial_json": piece});
                frame(json!({"type": "content_block_delta", "index": 0, "delta": delta}));
            }
            frame(json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}));
            let reply = draft.finish_answer(Tokens::new(1)).expect("an answer");
            assert_eq!(reply.calls.first().map(|call| call.arguments.clone()), Some(json!({"q": "a"})));
        }
    }

    /// Rows: SCL-026
    #[test]
    fn stop_reasons_are_unified_and_unknown_ones_kept() {
        for (word, reason) in [
            ("end_turn", StopReason::EndTurn),
            ("stop_sequence", StopReason::EndTurn),
            ("tool_use", StopReason::ToolUse),
            ("max_tokens", StopReason::MaxTokens),
            ("refusal", StopReason::ContentFilter),
            ("pause_turn", StopReason::Other("pause_turn".into())),
            ("", StopReason::Other(String::new())),
        ] {
            assert_eq!(stop_reason(word), reason);
        }
    }
}
