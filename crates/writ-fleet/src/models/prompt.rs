//! Building a prompt of the parts that both formats have.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use writ_types::chat::{ChatMessage, ModelRequest, Part, Role, ToolCall, ToolOutcome, ToolResult, ToolSpec};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Tokens;

/// The most tokens of an answer where the request does not say. Known models have a limit of their own below it or above.
pub(super) const DEFAULT_MAX_TOKENS: u64 = 8_192;

/// A prompt that grows message by message.
#[derive(Debug, Default)]
pub(super) struct PromptBuilder {
    system: Vec<String>,
    messages: Vec<Arc<ChatMessage>>,
    /// The names of called tools by the ids of their calls: results name only those.
    called: BTreeMap<String, String>,
    tools: Vec<ToolSpec>,
}

/// Returns the label of everything that an agent outside says: it may rest on anything.
fn agent_label() -> Label {
    // What names persons is found by the runtime, which also knows what a provider may read.
    Label { private: false, ..Label::new(Taint::External) }
}

impl PromptBuilder {
    /// Adds an instruction.
    pub(super) fn add_system(&mut self, text: String) {
        if !text.is_empty() {
            self.system.push(text);
        }
    }

    /// Adds a message; one without parts is left out, since no provider takes it.
    pub(super) fn add_message(&mut self, role: Role, parts: Vec<Part>) {
        if parts.is_empty() {
            return;
        }
        self.messages.push(Arc::new(ChatMessage { role, parts, label: agent_label() }));
    }

    /// Returns the part for a call of a tool, and remembers its name for the result.
    pub(super) fn call_part(&mut self, id: &str, name: &str, arguments: Value) -> Part {
        self.called.insert(id.to_owned(), name.to_owned());
        Part::Call(ToolCall { id: id.to_owned(), name: name.to_owned(), arguments })
    }

    /// Returns the part for the result of a call.
    pub(super) fn result_part(&self, call_id: &str, text: String, is_error: bool) -> Part {
        Part::Result(ToolResult {
            call_id: call_id.to_owned(),
            name: self.called.get(call_id).cloned().unwrap_or_default(),
            outcome: if is_error { ToolOutcome::Failed } else { ToolOutcome::Done },
            text,
            label: agent_label(),
            fields: Vec::new(),
            kept: None,
        })
    }

    /// Adds a tool.
    pub(super) fn add_tool(&mut self, name: &str, description: &str, schema: Value) {
        self.tools.push(ToolSpec { name: name.to_owned(), description: description.to_owned(), schema });
    }

    /// Removes all tools: the model is to call none.
    pub(super) fn remove_tools(&mut self) {
        self.tools.clear();
    }

    /// Returns the request.
    pub(super) fn finish_request(self, max_tokens: Option<u64>) -> ModelRequest {
        ModelRequest {
            system: self.system.join("\n\n"),
            messages: self.messages,
            tools: self.tools.into(),
            max_output_tokens: Tokens::new(max_tokens.unwrap_or(DEFAULT_MAX_TOKENS)),
            form: None,
            effort: None,
        }
    }
}

/// Returns a text part, unless it is empty.
pub(super) fn text_part(text: String) -> Option<Part> {
    (!text.is_empty()).then_some(Part::Text { text })
}
