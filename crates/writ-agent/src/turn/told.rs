//! The texts in a turn's context, for judging the actions that follow from them.

use writ_types::chat::{ChatMessage, Role};
use writ_types::taint::{Label, Taint};

use super::Turn;
use crate::event::SystemSource;

impl Turn {
    /// The conversation so far, oldest message first: that of the session, then that of this turn.
    pub fn context_messages(&self) -> impl Iterator<Item = &ChatMessage> {
        self.seed.history.iter().map(AsRef::as_ref).chain(&self.conversation)
    }

    /// Returns the texts of memories in the context that nothing external has gone into.
    pub fn trusted_memories(&self) -> impl Iterator<Item = &str> {
        let items = self.seed.owner_profile.iter().chain(&self.hits);
        items.filter(|item| item.label.taint == Taint::Owner).map(|item| item.text.as_str())
    }

    /// The texts from outside in the context besides the conversation: memories, subscriptions with their titles, and what
    /// the system zone says.
    pub fn foreign_texts(&self) -> impl Iterator<Item = &str> {
        let is_foreign = |label: &Label| label.taint == Taint::External;
        let items = self.seed.owner_profile.iter().chain(&self.hits);
        let memories = items.filter(move |item| is_foreign(&item.label)).map(|item| item.text.as_str());
        let kept = self.seed.workspace.iter().filter(move |item| is_foreign(&item.label));
        let kept = kept.flat_map(|item| [item.title.as_str(), item.text.as_str()]);
        let system = self.seed.system.iter().filter(move |text| is_foreign(&text.label));
        memories.chain(kept).chain(system.map(|text| text.text.as_str()))
    }

    /// Returns true if the context holds text that only the owner is known to have read, besides the newest
    /// request and its results: earlier turns, further messages, memories, rules, notes.
    pub fn holds_private_text(&self) -> bool {
        let seed = &self.seed;
        // The constitution is public: it is part of the program.
        let is_own = |source| source != SystemSource::Constitution;
        let requests = self.conversation.iter().filter(|message| message.role == Role::User).count();
        let remembers = seed.owner_profile.iter().chain(&self.hits).next().is_some();
        requests > 1
            || remembers
            || !seed.history.is_empty()
            || seed.system.iter().any(|text| is_own(text.source))
    }
}
