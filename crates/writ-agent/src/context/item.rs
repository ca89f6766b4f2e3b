//! Messages made of memories and subscriptions.

use writ_types::chat::{ChatMessage, Part, Role};
use writ_types::taint::Taint;

use super::{MAX_MEMORY_CHARS, MAX_TITLE_CHARS};
use crate::event::{CarriedItem, MemoryItem, WorkspaceItem};
use crate::text;

pub(super) fn memory_message(item: &MemoryItem) -> ChatMessage {
    let mut text = text::cut_text(&item.text, MAX_MEMORY_CHARS);
    // Foreign text is fenced, so that the model can distinguish it from instructions.
    if item.label.taint == Taint::External {
        text = text::mark_external("memory", &text);
    }
    let text = format!("[Memory, {}] {text}", format!("{:?}", item.kind).to_lowercase());
    ChatMessage { role: Role::System, parts: vec![Part::Text { text }], label: item.label.clone() }
}

/// Returns the message of something of the conversation before the history.
pub(super) fn carried_message(item: &CarriedItem) -> ChatMessage {
    let mut text = item.text.clone();
    if item.label.taint == Taint::External {
        text = text::mark_external("conversation", &text);
    }
    let text = format!("[{}] {text}", text::plain_name(&item.source));
    ChatMessage { role: Role::System, parts: vec![Part::Text { text }], label: item.label.clone() }
}

/// Returns the message of a subscription. Its title names what a model has chosen: it stands quoted, and inside the mark of external data.
pub(super) fn workspace_message(item: &WorkspaceItem) -> ChatMessage {
    let mut text = format!("\"{}\"\n{}", short_title(&item.title), item.text);
    if item.label.taint == Taint::External {
        text = text::mark_external("subscription", &text);
    }
    let text = format!("[Subscription {}] {text}", text::plain_name(&item.id));
    ChatMessage { role: Role::System, parts: vec![Part::Text { text }], label: item.label.clone() }
}

/// One line of at most [`MAX_TITLE_CHARS`](super::MAX_TITLE_CHARS) characters that ends no quotation, opens no bracket and turns no text round.
fn short_title(text: &str) -> String {
    let plain = |c: char| {
        // Quotation marks, brackets and direction marks could imitate the fence around the title.
        let disturbs = c.is_control()
            || matches!(c, '"' | '[' | ']' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            || matches!(c, '\u{27e6}' | '\u{27e7}' | '\u{301a}' | '\u{301b}');
        if disturbs { '_' } else { c }
    };
    text.chars().take(MAX_TITLE_CHARS).map(plain).collect()
}
