//! Reasoning of an answer that goes back to its provider: collected as it comes, bounded, and shown to no
//! person.

use serde_json::Value;
use writ_types::chat::{MAX_REASONING_BYTES, Reasoning, ReasoningForm};

use super::Draft;
use crate::error::Failure;

/// The most pieces of one answer. A model reasons before each call at most.
const MAX_PIECES: usize = 512;

/// The pieces so far, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pieces: Vec<Reasoning>,
    bytes: usize,
    /// It was more than is carried: then nothing of it is, since a provider refuses a part of it.
    is_too_much: bool,
}

impl Pieces {
    fn push(&mut self, calls_before: usize, form: ReasoningForm) -> usize {
        // Too many pieces make all of them unusable: a provider refuses a part.
        if self.pieces.len() >= MAX_PIECES {
            self.is_too_much = true;
        } else {
            let (provider, model) = (String::new(), String::new());
            self.pieces.push(Reasoning { provider, model, calls_before, form });
        }
        self.pieces.len().saturating_sub(1)
    }

    fn count(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.is_too_much |= self.bytes > MAX_REASONING_BYTES;
    }

    /// The pieces of a whole answer.
    pub(super) fn finish(self) -> Vec<Reasoning> {
        if self.is_too_much {
            tracing::debug!(bytes = self.bytes, "the reasoning of an answer is too large to go back");
            return Vec::new();
        }
        let is_filled = |piece: &Reasoning| match &piece.form {
            ReasoningForm::Text(text) | ReasoningForm::CallSignature(text) => !text.is_empty(),
            ReasoningForm::Block(_) => true,
        };
        let mut pieces: Vec<Reasoning> = self.pieces.into_iter().filter(is_filled).collect();
        // In the order of the calls that they stand before, as providers want them back.
        pieces.sort_by_key(|piece| piece.calls_before);
        pieces
    }
}

impl Draft {
    /// Takes the signature of a call, if one came. A later one takes the place of an earlier one.
    ///
    /// # Errors
    ///
    /// If the answer has become too large.
    pub(super) fn sign_call(&mut self, place: usize, signature: Option<&Value>) -> Result<(), Failure> {
        let Some(signature) = signature.and_then(Value::as_str).filter(|text| !text.is_empty()) else {
            return Ok(());
        };
        self.count_bytes(signature.len())?;
        self.reasoning.count(signature.len());
        let is_of_call = |piece: &&mut Reasoning| {
            piece.calls_before == place && matches!(piece.form, ReasoningForm::CallSignature(_))
        };
        let known = self.reasoning.pieces.iter_mut().find(is_of_call);
        if let Some(Reasoning { form: ReasoningForm::CallSignature(known), .. }) = known {
            signature.clone_into(known);
            return Ok(());
        }
        self.reasoning.push(place, ReasoningForm::CallSignature(signature.to_owned()));
        Ok(())
    }

    /// Takes more reasoning in plain text. It is counted by its caller.
    pub(super) fn reason(&mut self, more: &str) {
        self.reasoning.count(more.len());
        let is_text = |piece: &&mut Reasoning| matches!(piece.form, ReasoningForm::Text(_));
        if let Some(Reasoning { form: ReasoningForm::Text(text), .. }) =
            self.reasoning.pieces.iter_mut().find(is_text)
        {
            text.push_str(more);
            return;
        }
        self.reasoning.push(0, ReasoningForm::Text(more.to_owned()));
    }

    /// Takes a block of the provider's own format, or its beginning; returns its place.
    ///
    /// # Errors
    ///
    /// If the answer has become too large.
    pub(super) fn open_block(&mut self, block: &Value) -> Result<usize, Failure> {
        let bytes = block.to_string().len();
        self.count_bytes(bytes)?;
        self.reasoning.count(bytes);
        Ok(self.reasoning.push(self.calls.len(), ReasoningForm::Block(block.clone())))
    }

    /// Takes more of a text in a block.
    ///
    /// # Errors
    ///
    /// If the answer has become too large.
    pub(super) fn extend_block(&mut self, piece: usize, field: &str, more: &str) -> Result<(), Failure> {
        self.count_bytes(more.len())?;
        self.reasoning.count(more.len());
        if let Some(Reasoning { form: ReasoningForm::Block(block), .. }) =
            self.reasoning.pieces.get_mut(piece)
        {
            extend(block, field, more);
        }
        Ok(())
    }

    /// Takes a detail of OpenRouter's: several with one type and index are pieces of one. Texts grow, other fields are set by
    /// the last piece that has them, as the signature, which comes at the end.
    ///
    /// # Errors
    ///
    /// If the answer has become too large.
    pub(super) fn detail(&mut self, detail: &Value) -> Result<(), Failure> {
        let same = |piece: &&mut Reasoning| match &piece.form {
            ReasoningForm::Block(block) => {
                block.get("type") == detail.get("type")
                    && block.get("index").is_some_and(|index| !index.is_null())
                    && block.get("index") == detail.get("index")
            }
            ReasoningForm::Text(_) | ReasoningForm::CallSignature(_) => false,
        };
        let bytes = detail.to_string().len();
        let known = self.reasoning.pieces.iter_mut().find(same);
        let Some(Reasoning { form: ReasoningForm::Block(block), .. }) = known else {
            return self.open_block(detail).map(|_| ());
        };
        // The last piece brings the signature and other fields; texts are appended.
        for (field, value) in detail.as_object().into_iter().flatten() {
            match (field.as_str(), value.as_str()) {
                ("text" | "summary" | "data", Some(more)) => extend(block, field, more),
                _ if value.is_null() || field == "type" => {}
                _ => {
                    if let Some(fields) = block.as_object_mut() {
                        fields.insert(field.clone(), value.clone());
                    }
                }
            }
        }
        self.reasoning.count(bytes);
        self.count_bytes(bytes)
    }
}

/// Appends to a text field of a block, which it may not have yet.
fn extend(block: &mut Value, field: &str, more: &str) {
    let Some(fields) = block.as_object_mut() else { return };
    match fields.get_mut(field) {
        Some(Value::String(text)) => text.push_str(more),
        Some(_) | None => drop(fields.insert(field.to_owned(), Value::from(more))),
    }
}
