//! Tool calls of Chat Completions, joined from their pieces.
//!
//! Servers differ in what a piece names: its index, its id, both in each piece, or neither. [`CallSlots`] decides whether a
//! piece continues a call or begins another one, so that each call is made exactly once.

use serde_json::Value;

use super::{Arguments, Draft};
use crate::error::Failure;

/// The calls of an answer, in the order of their first pieces.
#[derive(Debug, Default)]
pub(crate) struct CallSlots {
    slots: Vec<CallSlot>,
    /// The number of the current frame.
    frame: u64,
}

#[derive(Debug)]
struct CallSlot {
    /// The call's place in the draft.
    place: usize,
    index: Option<u64>,
    /// The last frame that had a piece of it.
    frame: u64,
}

/// One piece of a call. Empty fields count as absent.
struct CallPiece<'a> {
    index: Option<u64>,
    id: Option<String>,
    name: Option<&'a str>,
    arguments: Option<&'a Value>,
    /// Gemini's signature, in the field that its compatible interface has for it.
    signature: Option<&'a Value>,
    /// Its position in the list of pieces, if the list has several.
    position: usize,
}

impl<'a> CallPiece<'a> {
    fn read(call: &'a Value, position: usize) -> Self {
        // Some servers leave out the `function` level.
        let function = call.get("function").filter(|function| function.is_object()).unwrap_or(call);
        let index = call.get("index");
        let index = index
            // Some write the index as text.
            .and_then(|index| index.as_u64().or_else(|| index.as_str().and_then(|text| text.parse().ok())));
        let id = match call.get("id") {
            Some(Value::String(id)) if !id.is_empty() => Some(id.clone()),
            Some(Value::Number(id)) => Some(id.to_string()),
            Some(_) | None => None,
        };
        let name = function.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let arguments = function.get("arguments").filter(|value| !value.is_null());
        let signature = call.pointer("/extra_content/google/thought_signature");
        Self { index, id, name, arguments, signature, position }
    }

    /// Returns true if the arguments are a whole object that differs from those of the call.
    fn has_other_arguments(&self, draft: &Draft, place: usize) -> bool {
        match self.arguments {
            Some(Value::String(text)) => {
                text.trim() != draft.arguments_of(place).trim() && Arguments::of(text) == Arguments::Complete
            }
            Some(Value::Object(_)) => {
                self.arguments.map(Value::to_string) != Some(draft.arguments_of(place).into())
            }
            Some(_) | None => false,
        }
    }
}

impl CallSlots {
    /// Takes the calls of one frame: a list, one call alone, or nothing.
    pub(super) fn frame(&mut self, draft: &mut Draft, calls: &Value) -> Result<(), Failure> {
        self.frame = self.frame.saturating_add(1);
        match calls {
            Value::Array(calls) => {
                for (position, call) in calls.iter().enumerate().filter(|(_, call)| call.is_object()) {
                    self.piece(draft, &CallPiece::read(call, position))?;
                }
                Ok(())
            }
            Value::Object(_) => self.piece(draft, &CallPiece::read(calls, 0)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn piece(&mut self, draft: &mut Draft, piece: &CallPiece<'_>) -> Result<(), Failure> {
        let slot = self.candidate(draft, piece).filter(|slot| !self.begins_another(draft, *slot, piece));
        let slot = match slot {
            Some(slot) => slot,
            None => {
                let place = draft.open_call()?;
                self.slots.push(CallSlot { place, index: piece.index, frame: self.frame });
                self.slots.len() - 1
            }
        };
        let Some(slot) = self.slots.get_mut(slot) else { return Ok(()) };
        slot.frame = self.frame;
        slot.index = slot.index.or(piece.index);
        draft.name_call(slot.place, piece.id.as_deref(), piece.name)?;
        draft.sign_call(slot.place, piece.signature)?;
        draft.more_arguments(slot.place, piece.arguments)
    }

    /// The call that a piece may belong to: by its index, else by its id, else by its position, else the last one.
    fn candidate(&self, draft: &Draft, piece: &CallPiece<'_>) -> Option<usize> {
        let last = self.slots.len().checked_sub(1);
        // From the end, since a number is reused by some servers for a later call.
        let by_id = |id: &String| {
            self.slots.iter().rposition(|slot| draft.provider_id(slot.place) == Some(id.as_str()))
        };
        if let Some(index) = piece.index {
            let by_index = self.slots.iter().rposition(|slot| slot.index == Some(index));
            let bare = |slot: &usize| {
                self.slots.get(*slot).is_some_and(|slot| slot.index.is_none())
                    && piece.id.is_none()
                    && piece.name.is_none()
            };
            return by_index.or_else(|| piece.id.as_ref().and_then(by_id)).or_else(|| last.filter(bare));
        }
        // A piece with an unknown id belongs to the last call, if no other rule says otherwise.
        if let Some(id) = &piece.id {
            return by_id(id).or(last);
        }
        let by_position = (piece.name.is_none() && piece.position > 0).then_some(piece.position);
        by_position.filter(|position| *position < self.slots.len()).or(last)
    }

    /// Returns true if a piece begins another call than `slot`, which its index, id or position points to.
    fn begins_another(&self, draft: &Draft, slot: usize, piece: &CallPiece<'_>) -> bool {
        let Some(slot) = self.slots.get(slot) else { return true };
        let place = slot.place;
        let has_other_id = match (draft.provider_id(place), &piece.id) {
            (Some(known), Some(id)) => known != id,
            (None, _) | (_, None) => false,
        };
        let state = draft.arguments_state(place);
        // Two pieces in one frame that both could begin a call are two calls.
        let is_same_frame = slot.frame == self.frame;
        let Some(name) = piece.name else {
            // Some make a new id for each piece: only after complete arguments does it say something.
            return has_other_id && (state == Arguments::Complete || is_same_frame);
        };
        let known = draft.name_of(place);
        if known.is_empty() {
            return has_other_id && state == Arguments::Empty;
        }
        if is_same_frame || known != name {
            return true;
        }
        match state {
            // Name and new id are repeated in each piece.
            Arguments::Partial => false,
            Arguments::Empty => has_other_id,
            Arguments::Complete => has_other_id || piece.has_other_arguments(draft, place),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Fold;
    use crate::config::ProviderKind;
    use writ_types::chat::{ModelReply, StopReason};
    use writ_types::unit::Tokens;

    /// Folds deltas, and a frame with a stop reason if one is named; returns the answer.
    fn fold(deltas: &[serde_json::Value], stop: Option<&str>) -> ModelReply {
        let mut fold = Fold::new(ProviderKind::OpenAi, Tokens::new(1_000), "own".to_owned());
        for delta in deltas {
            let frame = json!({ "choices": [{ "index": 0, "delta": delta }] });
            assert!(!fold.frame(&frame.to_string()).expect("a frame"));
        }
        if let Some(stop) = stop {
            let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": stop }] });
            fold.frame(&last.to_string()).expect("the last frame");
        }
        assert!(fold.frame("[DONE]").expect("the end"));
        fold.draft().finish_answer(Tokens::new(1)).expect("an answer")
    }

    fn calls(reply: &ModelReply) -> Vec<(&str, String)> {
        reply.calls.iter().map(|call| (call.name.as_str(), call.arguments.to_string())).collect()
    }

    /// Each list of pieces is one call of `read` with `{"path":"a"}`, however its server cuts it.
    ///
    /// Rows: SCL-011
    #[test]
    fn one_call_in_pieces_is_one_call() {
        let object = json!({ "path": "a" });
        let forms = [
            // No index; no id; an empty id; an id that is repeated, and one that is new in each piece.
            vec![
                json!([{ "id": "x", "function": { "name": "read", "arguments": "{\"path\"" } }]),
                json!([{ "function": { "arguments": ":\"a\"}" } }]),
            ],
            vec![json!([{ "index": 0, "function": { "name": "read", "arguments": "{\"path\":\"a\"}" } }])],
            vec![
                json!([{ "index": 0, "id": "", "function": { "name": "read", "arguments": "{\"path\"" } }]),
                json!([{ "index": 0, "id": "", "function": { "name": "", "arguments": ":\"a\"}" } }]),
            ],
            vec![
                json!([{ "id": "x", "function": { "name": "read", "arguments": "{\"path\"" } }]),
                json!([{ "id": "x", "function": { "name": "read", "arguments": ":\"a\"}" } }]),
            ],
            vec![
                json!([{ "index": 0, "id": "x", "function": { "name": "read", "arguments": "{\"path\"" } }]),
                json!([{ "index": 0, "id": "y", "function": { "arguments": ":\"a\"}" } }]),
            ],
            // The name after the id, and after the arguments have begun.
            vec![
                json!([{ "index": 0, "id": "x" }]),
                json!([{ "index": 0, "function": { "name": "read" } }]),
                json!([{ "index": 0, "function": { "arguments": "{\"path\":\"a\"}" } }]),
            ],
            vec![
                json!([{ "index": 0, "id": "x", "function": { "arguments": "{\"path\":" } }]),
                json!([{ "index": 0, "function": { "name": "read", "arguments": "\"a\"}" } }]),
            ],
            // An object in place of a text; the same whole call twice; an index as a text; one call without a list.
            vec![json!([{ "index": 0, "id": "x", "function": { "name": "read", "arguments": object } }])],
            vec![
                json!([{ "index": 0, "id": "x", "function": { "name": "read", "arguments": "{\"path\":\"a\"}" } }]),
                json!([{ "index": 0, "id": "x", "function": { "name": "read", "arguments": "{\"path\":\"a\"}" } }]),
            ],
            vec![
                json!([{ "index": "0", "id": "x", "function": { "name": "read", "arguments": "{\"path\"" } }]),
                json!([{ "index": "0", "function": { "arguments": ":\"a\"}" } }]),
            ],
            vec![json!({ "id": "x", "function": { "name": "read", "arguments": "{\"path\":\"a\"}" } })],
        ];
        for form in forms {
            let deltas: Vec<_> =
                form.iter().map(|calls| json!({ "content": null, "tool_calls": calls })).collect();
            // A stop that is no stop for tools, and none at all, end the same answer.
            for stop in [Some("tool_calls"), Some("stop"), None] {
                let reply = fold(&deltas, stop);
                assert_eq!(calls(&reply), [("read", object.to_string())], "{form:?} {stop:?}");
                assert_eq!(reply.stop, StopReason::ToolUse);
                assert!(!reply.calls[0].id.is_empty());
            }
        }
        let old = json!({ "function_call": { "name": "read", "arguments": "{\"path\":\"a\"}" } });
        assert_eq!(calls(&fold(&[old], Some("function_call"))), [("read", object.to_string())]);
    }

    /// Several calls stay several, with ids that differ, though their server gives them one index, one id or none.
    ///
    /// Rows: SCL-011
    #[test]
    fn several_calls_stay_several() {
        let whole = |id: Option<&str>, index: Option<u64>, path: &str| {
            let arguments = json!({ "path": path }).to_string();
            json!({ "id": id, "index": index, "function": { "name": "read", "arguments": arguments } })
        };
        let forms = [
            vec![json!([whole(Some("x"), Some(0), "a"), whole(Some("y"), Some(0), "b")])],
            vec![json!([whole(None, None, "a"), whole(None, None, "b")])],
            vec![json!([whole(Some("x"), None, "a")]), json!([whole(Some("y"), None, "b")])],
            vec![json!([whole(Some("x"), Some(0), "a")]), json!([whole(Some("y"), Some(0), "b")])],
            vec![json!([whole(Some(""), Some(0), "a")]), json!([whole(Some(""), Some(0), "b")])],
            vec![json!([whole(Some("x"), Some(0), "a"), whole(Some("x"), Some(1), "b")])],
            vec![
                json!([{ "index": 0, "id": "x", "function": { "name": "read", "arguments": "{\"path\":" } },
                        { "index": 1, "id": "y", "function": { "name": "read", "arguments": "{\"path\":" } }]),
                json!([{ "index": 0, "function": { "arguments": "\"a\"}" } },
                        { "index": 1, "function": { "arguments": "\"b\"}" } }]),
            ],
        ];
        for form in forms {
            let deltas: Vec<_> =
                form.iter().map(|calls| json!({ "content": "So.", "tool_calls": calls })).collect();
            let reply = fold(&deltas, Some("tool_calls"));
            let expected = ["a", "b"].map(|path| ("read", json!({ "path": path }).to_string()));
            assert_eq!(calls(&reply), expected, "{form:?}");
            assert_ne!(reply.calls[0].id, reply.calls[1].id, "{form:?}");
            assert!(reply.text.starts_with("So."));
        }
        let empty = json!({ "tool_calls": [{ "index": 0, "id": "x", "function": { "name": "now", "arguments": "" } }] });
        assert_eq!(calls(&fold(&[empty], Some("tool_calls"))), [("now", "{}".to_owned())]);
    }

    /// Content as parts, null or absent; thinking in fields and in the text; usage and blank frames anywhere.
    ///
    /// Rows: SCL-011
    #[test]
    fn content_of_every_form_is_read() {
        let deltas = [
            json!({ "role": "assistant", "content": null, "reasoning_content": "hm" }),
            json!({ "reasoning": "hm", "reasoning_details": [{ "text": "hm" }] }),
            json!({ "content": "<th" }),
            json!({ "content": "ink>secret</think>" }),
            json!({ "content": [{ "type": "thinking", "thinking": [{ "type": "text", "text": "no" }] }, { "type": "text", "text": "Yes" }] }),
            json!({}),
            json!({ "content": ["." ] }),
        ];
        let reply = fold(&deltas, Some("STOP"));
        assert_eq!((reply.text.as_str(), reply.stop), ("Yes.", StopReason::EndTurn));
        let mut fold = Fold::new(ProviderKind::OpenAi, Tokens::new(1_000), "own".to_owned());
        for frame in [
            r#"{"choices":[]}"#,
            r#"{"choices":[{"delta":{"content":"Yes"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#,
        ] {
            assert!(!fold.frame(frame).expect("a frame"), "{frame}");
        }
        // No end mark: the stop reason is enough.
        let reply = fold.draft().finish_answer(Tokens::new(1)).expect("an answer");
        assert_eq!(
            (reply.text.as_str(), reply.usage.input, reply.usage.output),
            ("Yes", Tokens::new(9), Tokens::new(2))
        );
    }
}
