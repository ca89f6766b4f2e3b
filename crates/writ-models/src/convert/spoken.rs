//! One message of a conversation, with the reasoning that its provider wants back.

use std::sync::Arc;

use genai::chat::{Binary, ChatMessage as Message, ContentPart, CustomPart, MessageContent, ToolCall};
use serde_json::{Value, json};
use writ_types::action::ModelCall;
use writ_types::chat::{AttachedFile, ChatMessage, ModelRequest, Part, Reasoning, ReasoningForm, Role};

use super::{safe_id, safe_name};
use crate::config::ProviderKind;

/// The text in place of the bytes of a file that is not stored any more.
const GONE: &str = "\n(The content of this file is not stored any more.)";

/// A message in the library's words, and the ids of its calls.
pub(super) struct Spoken {
    /// One message, or several where reasoning stands between calls.
    pub(super) messages: Vec<Message>,
    pub(super) calls: Vec<String>,
}

/// Returns true if the model has reasoned in plain text that goes back. Its provider then wants such a text beside all
/// calls, also those of another model (<https://api-docs.deepseek.com/guides/thinking_mode>).
pub(super) fn reasons_in_text(call: &ModelCall, request: &ModelRequest) -> bool {
    request.messages.iter().flat_map(|message| &message.parts).any(|part| match part {
        Part::Reasoning(piece) => {
            piece.is_of(&call.provider, &call.model) && matches!(piece.form, ReasoningForm::Text(_))
        }
        Part::Text { .. } | Part::Call(_) | Part::Result(_) | Part::File(_) => false,
    })
}

/// Converts a message; `None`: it says nothing beside results of tools.
pub(super) fn to_messages(
    kind: ProviderKind,
    call: &ModelCall,
    message: &ChatMessage,
    reasons_in_text: bool,
) -> Option<Spoken> {
    let mut said = ConvertedParts::new(kind);
    for part in &message.parts {
        match part {
            Part::Text { text } => said.text.push_str(text),
            Part::Call(call) => said.call(call),
            Part::Reasoning(piece) if piece.is_of(&call.provider, &call.model) => said.reasoning(piece),
            Part::File(attached) => said.add_file(attached),
            Part::Reasoning(_) | Part::Result(_) => {}
        }
    }
    if said.text.is_empty() && said.calls.is_empty() && said.files.is_empty() {
        return None;
    }
    let calls = said.calls.clone();
    let messages = match message.role {
        Role::Assistant => said.finish(reasons_in_text),
        Role::System if system_may_speak(kind) => vec![Message::system(said.text)],
        Role::System | Role::User | Role::Tool => vec![said.finish_user()],
    };
    Some(Spoken { messages, calls })
}

/// The converted parts of a message.
struct ConvertedParts {
    kind: ProviderKind,
    text: String,
    /// Reasoning and calls, in order.
    steps: Vec<ContentPart>,
    calls: Vec<String>,
    /// The signature of the call that comes next.
    signature: Option<String>,
    has_reasoning_text: bool,
    /// Images and PDF files.
    files: Vec<ContentPart>,
}

impl ConvertedParts {
    const fn new(kind: ProviderKind) -> Self {
        Self {
            kind,
            text: String::new(),
            steps: Vec::new(),
            calls: Vec::new(),
            signature: None,
            has_reasoning_text: false,
            files: Vec::new(),
        }
    }

    fn call(&mut self, call: &writ_types::chat::ToolCall) {
        let mut converted = convert_message(call);
        converted.thought_signatures = self.signature.take().map(|signature| vec![signature]);
        self.calls.push(converted.call_id.clone());
        self.steps.push(ContentPart::ToolCall(converted));
    }

    /// Takes a file. Without its bytes it is named in the text alone.
    fn add_file(&mut self, attached: &AttachedFile) {
        let AttachedFile { file, content } = attached;
        match content {
            Some(content) => {
                let binary =
                    Binary::from_base64(file.media.as_str(), Arc::clone(content), Some(file.name.clone()));
                self.files.push(ContentPart::Binary(binary));
            }
            None => self.text.push_str(GONE),
        }
    }

    /// The message of a person. Files come before the text, as providers advise.
    fn finish_user(self) -> Message {
        if self.files.is_empty() {
            return Message::user(self.text);
        }
        let mut parts = self.files;
        if !self.text.is_empty() {
            parts.push(ContentPart::Text(self.text));
        }
        Message::user(MessageContent::from_parts(parts))
    }

    fn reasoning(&mut self, piece: &Reasoning) {
        match (&piece.form, self.kind) {
            (ReasoningForm::CallSignature(signature), ProviderKind::Gemini | ProviderKind::OpenAi) => {
                self.signature = Some(signature.clone());
            }
            (ReasoningForm::Text(text), ProviderKind::OpenAi) => {
                self.has_reasoning_text = true;
                self.steps.push(ContentPart::ReasoningContent(text.clone()));
            }
            (ReasoningForm::Block(block), ProviderKind::OpenAiResponses) => {
                let encrypted = block.get("encrypted_content").and_then(Value::as_str);
                self.steps.extend(encrypted.map(|text| ContentPart::ThoughtSignature(text.to_owned())));
            }
            (
                ReasoningForm::Block(block),
                ProviderKind::Anthropic | ProviderKind::OpenRouter | ProviderKind::OpenAi,
            ) => {
                self.steps.push(ContentPart::Custom(CustomPart { model_iden: None, data: block.clone() }));
            }
            (ReasoningForm::CallSignature(_), _)
            | (ReasoningForm::Text(_), _)
            | (ReasoningForm::Block(_), ProviderKind::Gemini | ProviderKind::Ollama) => {}
        }
    }

    /// The messages of an assistant. The library moves encrypted reasoning to the front of its message, so a message ends
    /// before each further piece of it.
    fn finish(mut self, reasons_in_text: bool) -> Vec<Message> {
        if reasons_in_text
            && !self.has_reasoning_text
            && !self.calls.is_empty()
            && self.kind == ProviderKind::OpenAi
        {
            self.steps.insert(0, ContentPart::ReasoningContent(String::new()));
        }
        let first_call = self.steps.iter().position(|step| matches!(step, ContentPart::ToolCall(_)));
        if !self.text.is_empty() {
            self.steps.insert(first_call.unwrap_or(self.steps.len()), ContentPart::Text(self.text));
        }
        let mut messages: Vec<Vec<ContentPart>> = vec![Vec::new()];
        let mut is_after_call = false;
        for step in self.steps {
            if is_after_call && matches!(step, ContentPart::ThoughtSignature(_)) {
                messages.push(Vec::new());
            }
            is_after_call = matches!(step, ContentPart::ToolCall(_));
            if let Some(last) = messages.last_mut() {
                last.push(step);
            }
        }
        messages.into_iter().map(|parts| Message::assistant(MessageContent::from_parts(parts))).collect()
    }
}

fn convert_message(call: &writ_types::chat::ToolCall) -> ToolCall {
    let arguments = if call.arguments.is_object() {
        call.arguments.clone()
    } else {
        let text = call.arguments.as_str().map_or_else(|| call.arguments.to_string(), str::to_owned);
        json!({ "invalid_arguments": text })
    };
    ToolCall {
        call_id: safe_id(&call.id),
        fn_name: safe_name(&call.name),
        fn_arguments: arguments,
        thought_signatures: None,
    }
}

/// Returns true if a conversation may have system messages in its midst. Anthropic has none; for Gemini the library would
/// move them to the front, where they undo what is cached.
const fn system_may_speak(kind: ProviderKind) -> bool {
    match kind {
        ProviderKind::OpenAi
        | ProviderKind::OpenAiResponses
        | ProviderKind::OpenRouter
        | ProviderKind::Ollama => true,
        ProviderKind::Anthropic | ProviderKind::Gemini => false,
    }
}
