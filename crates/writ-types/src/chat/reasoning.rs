//! Reasoning that a model's provider wants back.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Part, ToolCall};

/// The most bytes of reasoning that one reply may carry. 64 K tokens of thinking, the most that a provider documents for
/// one call with tools, are about a quarter of it; signatures add a few kilobytes.
pub const MAX_REASONING_BYTES: usize = 1024 * 1024;

/// A piece of reasoning that goes back unchanged to the model that made it. No person and no other model
/// reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The provider's name in the configuration.
    pub provider: String,
    /// The model's name in the configuration.
    pub model: String,
    /// The number of calls of its reply that came before it.
    pub calls_before: usize,
    /// The piece itself.
    pub form: ReasoningForm,
}

/// The form in which a piece of reasoning comes and goes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "form", content = "data", rename_all = "snake_case")]
pub enum ReasoningForm {
    /// Plain text.
    Text(String),
    /// A block of the provider's own format, signed or encrypted.
    Block(Value),
    /// The signature of the call that follows it.
    CallSignature(String),
}

impl Reasoning {
    /// Returns true if the piece belongs to this model of this provider.
    pub fn is_of(&self, provider: &str, model: &str) -> bool {
        self.provider == provider && self.model == model
    }

    /// The size of the piece, in bytes.
    pub fn byte_count(&self) -> usize {
        match &self.form {
            ReasoningForm::Text(text) | ReasoningForm::CallSignature(text) => text.len(),
            ReasoningForm::Block(block) => block.to_string().len(),
        }
    }

    /// Returns the text that a person can read, as far as the provider shows it; empty where all of it is encrypted.
    pub fn readable_text(&self) -> String {
        let block = match &self.form {
            ReasoningForm::Text(text) => return text.clone(),
            ReasoningForm::CallSignature(_) => return String::new(),
            ReasoningForm::Block(block) => block,
        };
        // Anthropic has `thinking`, OpenRouter `text` or `summary`, OpenAI Responses a list of summaries.
        let own = ["thinking", "text", "summary"].into_iter().filter_map(|field| block.get(field)?.as_str());
        let listed = ["summary", "content"].into_iter().filter_map(|field| block.get(field)?.as_array());
        let listed = listed.flatten().filter_map(|item| item.get("text")?.as_str());
        own.chain(listed).collect::<Vec<_>>().join("\n")
    }

    /// Returns true if a test holds for one of its texts.
    pub fn any_text(&self, holds: &dyn Fn(&str) -> bool) -> bool {
        match &self.form {
            ReasoningForm::Text(text) | ReasoningForm::CallSignature(text) => holds(text),
            ReasoningForm::Block(block) => holds(&block.to_string()),
        }
    }
}

/// The parts of an assistant's message: its text and its calls, each piece of reasoning where it came. Pieces beyond the calls
/// are left out.
pub fn assistant_parts(
    reasoning: Vec<Reasoning>,
    text: String,
    calls: impl IntoIterator<Item = ToolCall>,
) -> Vec<Part> {
    let mut reasoning = reasoning.into_iter().peekable();
    let mut reasoned_before = |calls: usize| -> Vec<Part> {
        let next = || reasoning.next_if(|piece| piece.calls_before <= calls);
        std::iter::from_fn(next).map(Part::Reasoning).collect()
    };
    let mut parts = Vec::new();
    let mut text = (!text.is_empty()).then_some(Part::Text { text });
    for (place, call) in calls.into_iter().enumerate() {
        parts.extend(reasoned_before(place));
        parts.extend(text.take());
        parts.push(Part::Call(call));
    }
    parts.extend(text);
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_person_can_read_is_found_in_each_form() {
        let piece = |form| Reasoning { provider: "p".into(), model: "m".into(), calls_before: 0, form };
        let block = |block| piece(ReasoningForm::Block(block)).readable_text();
        assert_eq!(piece(ReasoningForm::Text("so".into())).readable_text(), "so");
        assert_eq!(piece(ReasoningForm::CallSignature("c2ln".into())).readable_text(), "");
        assert_eq!(block(json!({ "type": "thinking", "thinking": "so", "signature": "c2ln" })), "so");
        assert_eq!(block(json!({ "type": "redacted_thinking", "data": "ZGF0YQ" })), "");
        assert_eq!(block(json!({ "type": "reasoning.text", "text": "so", "format": "x" })), "so");
        let summary =
            json!([{ "type": "summary_text", "text": "one" }, { "type": "summary_text", "text": "two" }]);
        assert_eq!(
            block(json!({ "type": "reasoning", "summary": summary, "encrypted_content": "ZGF0YQ" })),
            "one\ntwo"
        );
    }
}
