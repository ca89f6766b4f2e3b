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
    /// Those of this turn and of the few turns before it (`context.observation_mask_after_turns`).
    OfRecentTurns,
    /// Those of this turn.
    OfThisTurn,
    /// Those of this turn's last step.
    OfTheLastStep,
}

/// The least number of estimated tokens at which a message is never trivial (SIL-076).
const NEVER_TRIVIAL_TOKENS: u64 = 20;

/// The longest text that is looked at, in bytes: twenty tokens are eighty characters of at most four bytes.
const MAX_TRIVIAL_BYTES: usize = 320;

/// The words that a trivial message is made of: it acknowledges, and says nothing else.
const TRIVIAL_WORDS: [&str; 28] = [
    "a", "alright", "and", "bye", "cheers", "cool", "fine", "good", "got", "great", "it", "k", "lot", "many",
    "much", "nice", "ok", "okay", "perfect", "right", "so", "thank", "thanks", "thx", "ty", "very",
    "welcome", "you",
];

/// Returns the age of each message in turns: those of the newest turn of the history have the age 1. A turn begins with the
/// person's messages.
pub(super) fn ages_in_turns(history: &[Arc<ChatMessage>]) -> Vec<u32> {
    let mut ages = vec![0; history.len()];
    let mut age = 1_u32;
    for place in (0..history.len()).rev() {
        ages[place] = age;
        let is_user = |place: usize| history[place].role == Role::User;
        if is_user(place) && (place == 0 || !is_user(place - 1)) {
            age = age.saturating_add(1);
        }
    }
    ages
}

/// Returns true if a message only acknowledges, such as «ok, thanks».
pub(super) fn is_trivial(message: &ChatMessage) -> bool {
    let (Role::User | Role::Assistant, [Part::Text { text }]) = (message.role, message.parts.as_slice())
    else {
        return false;
    };
    if text.len() > MAX_TRIVIAL_BYTES || estimate_tokens(text).get() >= NEVER_TRIVIAL_TOKENS {
        return false;
    }
    let mut words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).peekable();
    words.peek().is_some()
        && words.all(|word| TRIVIAL_WORDS.binary_search(&word.to_lowercase().as_str()).is_ok())
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
            let again = match stored_handle(&result.text) {
                Some(number) => format!("`result_read` with the handle \"$r{number}\" shows it again."),
                None => "Call the tool again if you need it.".to_owned(),
            };
            result.text = format!(
                "[This result of {chars} characters was left out, since the conversation is long. {again}]"
            );
            // The text is the harness's own now; how far the call may be trusted stays with the message.
            result.label = Label { taint: Taint::Owner, ..result.label.clone() };
        }
    }
    message
}

/// The most digits of a handle's number.
const MAX_HANDLE_DIGITS: usize = 9;

/// Returns the number of the handle in the note at the end of a result that is stored whole. Only the number is taken over:
/// a result that imitates the note names a handle of its own session at most.
fn stored_handle(text: &str) -> Option<u64> {
    let (_, number) = text.strip_suffix("\"}]")?.rsplit_once("{\"handle\": \"$r")?;
    let is_number = number.len() <= MAX_HANDLE_DIGITS && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { number.parse().ok() } else { None }
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

#[cfg(test)]
mod tests {
    use writ_types::chat::{ToolOutcome, ToolResult};

    use super::*;

    fn masked(text: &str) -> String {
        let result = ToolResult {
            call_id: "c".to_owned(),
            name: "exec".to_owned(),
            outcome: ToolOutcome::Done,
            text: text.to_owned(),
            label: Label::new(Taint::External),
            fields: Vec::new(),
            kept: None,
        };
        let message = ChatMessage {
            role: Role::Tool,
            parts: vec![Part::Result(result)],
            label: Label::new(Taint::External),
        };
        match mask_results(Arc::new(message)).parts.as_slice() {
            [Part::Result(result)] => result.text.clone(),
            parts => panic!("{parts:?}"),
        }
    }

    /// A result that is stored whole is read again by its handle; the tool is not called once more for it.
    #[test]
    fn a_masked_result_names_the_handle_under_which_it_is_stored() {
        let long = "x".repeat(400);
        let stored = masked(&format!("{long}[The rest: `result_read` with {{\"handle\": \"$r12\"}}]"));
        assert!(stored.contains("`result_read` with the handle \"$r12\" shows it again"), "{stored}");
        assert!(!stored.contains("Call the tool again"), "{stored}");
        assert!(masked(&long).contains("Call the tool again"));
        assert_eq!(masked("short"), "short");
    }
}
