//! Old results and old messages: what stands in their place when a conversation is too long.

use std::sync::Arc;

use writ_types::chat::{ChatMessage, Part, Role, estimate_tokens};
use writ_types::taint::{Label, Taint};

use super::MESSAGE_OVERHEAD;
use crate::text;

/// The shortest text of a result that is worth masking, in characters.
const MIN_MASKED_CHARS: usize = 200;

/// The most messages of a person that are quoted after they were evicted, the newest of them.
const MAX_QUOTED: usize = 20;

/// The most characters of one that are quoted.
const MAX_QUOTED_CHARS: usize = 160;

/// The selection of tool results that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Results {
    /// All of them.
    All,
    /// Those of this turn.
    OfThisTurn,
    /// Those of this turn's last step.
    OfTheLastStep,
}

/// Masks the results of a message.
pub(super) fn mask_results(mut message: Arc<ChatMessage>) -> Arc<ChatMessage> {
    let is_long = |part: &Part| match part {
        // A withheld result is referred to by the name in its text.
        Part::Result(result) => result.kept.is_none() && !text::fits_in(&result.text, MIN_MASKED_CHARS),
        Part::Text { .. } | Part::Call(_) | Part::Reasoning(_) | Part::File(_) => false,
    };
    if !message.parts.iter().any(is_long) {
        return message;
    }
    for part in &mut Arc::make_mut(&mut message).parts {
        if !is_long(part) {
            continue;
        }
        if let Part::Result(result) = part {
            let chars = result.text.chars().count();
            result.text = format!(
                "[This result of {chars} characters was left out, since the conversation is long. Call the tool again \
                 if you need it.]"
            );
            // The text is the harness's own now; how far the call may be trusted stays with the message.
            result.label = Label { taint: Taint::Owner, ..result.label.clone() };
        }
    }
    message
}

/// The part of the conversation before this turn that was evicted.
#[derive(Debug, Default)]
pub(super) struct EvictedMessages {
    messages: usize,
    /// Beginnings of what people wrote, oldest first.
    quotes: Vec<(String, Label)>,
}

impl EvictedMessages {
    pub(super) const fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Notes that these messages were evicted.
    pub(super) fn add_messages(&mut self, messages: &[Arc<ChatMessage>]) {
        self.messages = self.messages.saturating_add(messages.len());
        for message in messages.iter().filter(|message| message.role == Role::User) {
            let text = message.parts.iter().find_map(|part| match part {
                Part::Text { text } => Some(text.as_str()),
                Part::Call(_) | Part::Result(_) | Part::Reasoning(_) | Part::File(_) => None,
            });
            let line = text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
            if line.is_empty() {
                continue;
            }
            let quote = if text::fits_in(&line, MAX_QUOTED_CHARS) {
                line
            } else {
                line.chars().take(MAX_QUOTED_CHARS - 1).chain(['…']).collect()
            };
            // Only the newest quotes stay: they are the most useful reminder.
            if self.quotes.len() >= MAX_QUOTED {
                self.quotes.remove(0);
            }
            self.quotes.push((quote, message.label.clone()));
        }
    }

    /// A note on what was left out, with as many quotes as fit into `room` tokens, the newest first; `None` if nothing was,
    /// or there is no room for it.
    pub(super) fn evicted_note(mut self, room: u64) -> Option<ChatMessage> {
        if self.messages == 0 {
            return None;
        }
        // Quotes are dropped one by one until the note fits into its room.
        loop {
            let text = self.note_text();
            if MESSAGE_OVERHEAD + estimate_tokens(&text).get() <= room {
                let mut label = Label::new(Taint::Owner);
                self.quotes.iter().for_each(|(_, of_quote)| label.join(of_quote));
                return Some(ChatMessage { role: Role::System, parts: vec![Part::Text { text }], label });
            }
            if self.quotes.is_empty() {
                return None;
            }
            self.quotes.remove(0);
        }
    }

    fn note_text(&self) -> String {
        let messages = self.messages;
        let mut text = format!(
            "[SYSTEM] {messages} earlier messages of this conversation were left out, since it is longer than you can \
             read."
        );
        if !self.quotes.is_empty() {
            text.push_str(" In them the person wrote, oldest first:");
        }
        for (quote, label) in &self.quotes {
            text.push_str("\n- ");
            let quoted = if label.taint == Taint::External {
                text::mark_external("message", quote)
            } else {
                quote.clone()
            };
            text.push_str(&quoted);
        }
        text
    }
}
