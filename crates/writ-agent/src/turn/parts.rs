//! The texts that a turn's context is made of.

use std::collections::BTreeSet;

use writ_types::chat::{ChatMessage, Role, ToolSpecs};
use writ_types::interaction::Interaction;
use writ_types::taint::{Label, Taint};
use writ_types::unit::Tokens;

use crate::config::AgentConfig;
use crate::context::{self, Assembled, ContextError, Results};
use crate::event::{BudgetSeed, ContextSeed, MemoryItem, SystemSource};
use crate::route::{RouteQuestion, ask_proxy};

/// The texts of a turn's context, from which each request is assembled and each action is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextParts {
    pub(super) seed: ContextSeed,
    /// Memories that were recalled for the messages of this turn.
    pub(super) hits: Vec<MemoryItem>,
    /// The messages of this turn, oldest first.
    pub(super) conversation: Vec<ChatMessage>,
    /// Places in the conversation of notes that end with the turn.
    passing: BTreeSet<usize>,
    /// Notes about answered asks that the model has not been given yet.
    pub(super) news: Vec<ChatMessage>,
}

impl ContextParts {
    pub(super) fn empty() -> Self {
        let budget = BudgetSeed { used: Tokens::ZERO, limit: Tokens::MAX, given: None };
        Self::new(ContextSeed {
            system: Vec::new(),
            tools: ToolSpecs::default(),
            curated: None,
            owner_profile: Vec::new(),
            history: Vec::new(),
            history_rows: None,
            carried: Vec::new(),
            pinned_places: Vec::new(),
            hidden_places: Vec::new(),
            workspace: Vec::new(),
            setting: None,
            interaction: Interaction::default(),
            rehydrated: false,
            profile: String::new(),
            proxy: false,
            budget,
        })
    }

    pub(super) const fn new(seed: ContextSeed) -> Self {
        Self { seed, hits: Vec::new(), conversation: Vec::new(), passing: BTreeSet::new(), news: Vec::new() }
    }

    /// Returns the labels of the turn.
    pub const fn interaction(&self) -> Interaction {
        self.seed.interaction
    }

    /// Adds a message that no later turn reads.
    pub(super) fn push_passing(&mut self, message: ChatMessage) {
        self.passing.insert(self.conversation.len());
        self.conversation.push(message);
    }

    /// Moves the notes about answered asks into the conversation.
    pub(super) fn append_news(&mut self) {
        self.conversation.append(&mut self.news);
    }

    /// Returns the messages of this turn that later turns read.
    pub(super) fn transcript(&self) -> Vec<ChatMessage> {
        let messages = self.conversation.iter().enumerate();
        messages.filter(|(place, _)| !self.passing.contains(place)).map(|(_, one)| one.clone()).collect()
    }

    pub(super) fn assemble_request(
        &self,
        results: Results,
        config: &AgentConfig,
    ) -> Result<Assembled, ContextError> {
        let all = (&self.seed, self.hits.as_slice(), self.conversation.as_slice());
        context::assemble_showing(results, &config.context, all, config.limits.max_output_tokens)
    }

    /// Returns the question to the proxy, the first time that it is due; `None`: there is no proxy, it was asked, or the message
    /// is none for it.
    pub(super) fn take_question(&mut self) -> Option<RouteQuestion> {
        let is_due = std::mem::take(&mut self.seed.proxy);
        let asked = is_due.then(|| ask_proxy(&self.seed, &self.hits, &self.conversation));
        asked.flatten()
    }

    /// Returns the conversation so far, oldest message first: that of the session, then that of this turn.
    pub fn messages(&self) -> impl Iterator<Item = &ChatMessage> {
        self.seed.history.iter().map(AsRef::as_ref).chain(&self.conversation)
    }

    /// Returns the messages of this turn, oldest first.
    pub fn messages_of_turn(&self) -> impl Iterator<Item = &ChatMessage> {
        self.conversation.iter()
    }

    /// Returns the texts of memories that nothing external has gone into.
    pub fn trusted_memories(&self) -> impl Iterator<Item = &str> {
        let items = self.seed.owner_profile.iter().chain(&self.hits);
        items.filter(|item| item.label.taint == Taint::Owner).map(|item| item.text.as_str())
    }

    /// Returns the texts from outside besides the conversation: memories, subscriptions with their titles, and
    /// external texts of the system zone.
    pub fn foreign_texts(&self) -> impl Iterator<Item = &str> {
        let is_foreign = |label: &Label| label.taint == Taint::External;
        let items = self.seed.owner_profile.iter().chain(&self.hits);
        let memories = items.filter(move |item| is_foreign(&item.label)).map(|item| item.text.as_str());
        let carried = self.seed.carried.iter().filter(move |item| is_foreign(&item.label));
        let memories = memories.chain(carried.map(|item| item.text.as_str()));
        let read = self.seed.workspace.iter().filter(move |item| is_foreign(&item.label));
        // A title can carry an instruction as well as a text can.
        let read = read.flat_map(|item| [item.title.as_str(), item.text.as_str()]);
        let system = self.seed.system.iter().filter(move |text| is_foreign(&text.label));
        memories.chain(read).chain(system.map(|text| text.text.as_str()))
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
            || !seed.carried.is_empty()
            || seed.system.iter().any(|text| is_own(text.source))
    }
}
