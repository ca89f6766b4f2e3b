//! Assembles the model's context: zones, budgets, eviction.
//!
//! In the order of the request: *system* (pinned texts, tools; byte-identical between calls), *memory* that
//! is pinned, *chronicle* (the history), memories recalled for this turn, *workspace* (subscriptions),
//! *current* (the turn itself). Only the end of a request differs from that of the one before, so providers
//! can cache the rest.

use std::collections::VecDeque;
use std::sync::Arc;

use writ_types::chat::{ChatMessage, ModelRequest, Part, Role, estimate_tokens, estimate_tokens_of_chars};
use writ_types::error::{Exit, Report, ToReport};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Tokens;

use crate::config::{ContextConfig, Profile, Share};
use crate::event::{ContextSeed, MemoryItem};
use crate::notice;
use crate::text;

mod group;

mod item;

mod old;

mod system;

use item::{memory_message, workspace_message};
pub use old::Results;
pub use system::system_tokens;
use system::{system_items, system_text};

/// Estimated tokens that a message costs besides its text: role and separators (providers document 3 to 5).
pub const MESSAGE_OVERHEAD: u64 = 4;

/// The longest text of one memory in a request, in characters: one giant memory does not flood it.
pub const MAX_MEMORY_CHARS: usize = 2_000;

/// The longest title of a subscription in a request, in characters: a path may have 4,095 bytes.
pub const MAX_TITLE_CHARS: usize = 200;

/// The most of the budget that one text may take before it is cut.
pub const MAX_TEXT_SHARE: Share = Share::of_percent(25);

/// The most of the budget that a note on evicted messages may take.
pub const MAX_NOTE_SHARE: Share = Share::of_percent(5);

/// The shortest that texts are cut to, in characters. What does not fit even so does not fit.
const MIN_TEXT_CHARS: usize = 250;

/// A part of the context with a budget of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Zone {
    /// Pinned texts and tool descriptions.
    System,
    /// Recalled and pinned memories.
    Memory,
    /// The conversation before this turn.
    Chronicle,
    /// The session's subscriptions.
    Workspace,
    /// This turn.
    Current,
}

/// The cost of one item of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemUse {
    /// The zone that holds it.
    pub zone: Zone,
    /// The item's name: `constitution`, `tool file_read`, `memory …`, `user`, …
    pub source: String,
    /// Its estimated tokens.
    pub tokens: Tokens,
    /// True if it can never be evicted.
    pub pinned: bool,
    /// Its trust level.
    pub taint: Taint,
}

/// A request and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembled {
    /// The request.
    pub request: ModelRequest,
    /// The join of the labels of everything in it.
    pub label: Label,
    /// The cost of each part, in the order of the request.
    pub items: Vec<ItemUse>,
    /// The number of evicted items.
    pub evicted: usize,
}

/// The reason that no request could be assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// The system zone is above its limit.
    #[error("the system texts and tool descriptions take {tokens}, context.system_max is {most}")]
    SystemTooLarge {
        /// The tokens needed.
        tokens: Tokens,
        /// The limit.
        most: Tokens,
    },
    /// The pinned items do not fit, even after cutting.
    #[error("the pinned items and this turn take {tokens} at least, the context has room for {most}")]
    DoesNotFit {
        /// The tokens needed.
        tokens: Tokens,
        /// The space left.
        most: Tokens,
    },
}

// === impl Assembled ===

impl Assembled {
    /// The estimated tokens of the whole request.
    pub fn total_tokens(&self) -> Tokens {
        self.items.iter().fold(Tokens::ZERO, |sum, item| sum.saturating_add(item.tokens))
    }
}

/// Assembles a request. Pure: the same arguments give the same request.
///
/// Above the eviction threshold, the results of earlier turns are masked, then those of this turn's earlier
/// steps. Then unpinned items are removed until the request is at or below it: history over its share (oldest
/// first), recalled memory over its share (least relevant first), then the rest of both, then subscriptions
/// (the youngest first), then old steps of this turn. A call and its results are removed together. The user's
/// messages of this turn, its last step and pinned items stay. One text then takes a quarter of the budget at
/// most ([`MAX_TEXT_SHARE`]), less if the items that must stay do not fit; it is cut with a visible mark. A
/// note names the evicted history, if there is room for it.
///
/// # Errors
///
/// If the system zone is above its limit, or pinned items do not fit however short they are cut.
pub fn assemble_context(
    config: &ContextConfig,
    seed: &ContextSeed,
    hits: &[MemoryItem],
    current: &[ChatMessage],
    max_output_tokens: Tokens,
) -> Result<Assembled, ContextError> {
    assemble_showing(Results::All, config, (seed, hits, current), max_output_tokens)
}

/// Works as [`assemble_context`], but shows at most these results, also where there is room for more.
///
/// # Errors
///
/// As [`assemble_context`].
pub fn assemble_showing(
    most: Results,
    config: &ContextConfig,
    (seed, hits, current): (&ContextSeed, &[MemoryItem], &[ChatMessage]),
    max_output_tokens: Tokens,
) -> Result<Assembled, ContextError> {
    let system = system_items(&seed.system, &seed.tools);
    let system_tokens = system.iter().fold(Tokens::ZERO, |sum, item| sum.saturating_add(item.tokens));
    if system_tokens > config.system_max {
        return Err(ContextError::SystemTooLarge { tokens: system_tokens, most: config.system_max });
    }
    let room = config.eviction_threshold().saturating_sub(system_tokens);
    let budget = Budget { room, profile: config.profile_named(&seed.profile), total: config.total_tokens };
    let chars =
        MAX_TEXT_SHARE.share_of(config.total_tokens).get().saturating_mul(writ_types::chat::CHARS_PER_TOKEN);
    let mut most_chars = usize::try_from(chars).unwrap_or(usize::MAX).max(MIN_TEXT_CHARS);
    for results in [Results::All, Results::OfThisTurn, Results::OfTheLastStep] {
        if results < most {
            continue;
        }
        let whole = Zones::build_zones(seed, hits, current, (usize::MAX, results));
        if whole.count_tokens() <= room.get() {
            return Ok(whole.finish_request(seed, system, 0, max_output_tokens));
        }
    }
    loop {
        let mut zones = Zones::build_zones(seed, hits, current, (most_chars, Results::OfTheLastStep));
        let evicted = zones.evict_units(&budget);
        if zones.count_tokens() <= room.get() {
            return Ok(zones.finish_request(seed, system, evicted, max_output_tokens));
        }
        if most_chars <= MIN_TEXT_CHARS {
            return Err(ContextError::DoesNotFit { tokens: Tokens::new(zones.count_tokens()), most: room });
        }
        most_chars = (most_chars / 2).max(MIN_TEXT_CHARS);
    }
}

/// The tokens left for the zones other than the system zone.
struct Budget {
    room: Tokens,
    profile: Profile,
    total: Tokens,
}

/// Messages that are evicted together: a single message, or calls with their results.
struct MessageUnit {
    messages: Vec<Arc<ChatMessage>>,
    source: String,
    tokens: u64,
    pinned: bool,
}

/// Everything but the system zone.
struct Zones {
    owner_profile: Vec<MessageUnit>,
    /// A note on what was evicted of the history.
    left_out: Vec<MessageUnit>,
    history: VecDeque<MessageUnit>,
    rehydrated: Vec<MessageUnit>,
    hits: Vec<MessageUnit>,
    workspace: Vec<MessageUnit>,
    setting: Vec<MessageUnit>,
    current: Vec<MessageUnit>,
}

// === impl Zones ===

impl Zones {
    fn build_zones(
        seed: &ContextSeed,
        hits: &[MemoryItem],
        current: &[ChatMessage],
        (most_chars, results): (usize, Results),
    ) -> Self {
        let memory =
            |item: &MemoryItem, pinned| MessageUnit::single_message(memory_message(item), most_chars, pinned);
        // The note of an earlier restart is not repeated from the history.
        let history = seed.history.iter().filter(|message| !is_rehydration_note(message)).cloned();
        let mut rehydrated = Vec::new();
        if seed.rehydrated && !seed.history.is_empty() {
            rehydrated.push(MessageUnit::single_message(
                system_message(notice::REHYDRATED),
                most_chars,
                true,
            ));
        }
        let masked = |messages: Vec<Arc<ChatMessage>>, is_masked: bool| -> Vec<Arc<ChatMessage>> {
            if is_masked { messages.into_iter().map(old::mask_results).collect() } else { messages }
        };
        let groups = group::group_messages(current.iter().cloned().map(Arc::new));
        let last = groups.len().saturating_sub(1);
        let mut current: Vec<MessageUnit> = groups
            .into_iter()
            .enumerate()
            .map(|(n, messages)| {
                let messages = masked(messages, n < last && results >= Results::OfTheLastStep);
                // The user's own messages of this turn must stay; everything else may be evicted.
                let pinned = messages.iter().any(|message| message.role == Role::User);
                MessageUnit::new(messages, most_chars, pinned)
            })
            .collect();
        // The last step is pinned: the model must see the results that it has just asked for.
        if let Some(last) = current.last_mut() {
            last.pinned = true;
        }
        Self {
            owner_profile: seed.owner_profile.iter().map(|item| memory(item, true)).collect(),
            history: group::group_messages(history)
                .into_iter()
                .map(|messages| masked(messages, results >= Results::OfThisTurn))
                .map(|messages| MessageUnit::new(messages, most_chars, false))
                .collect(),
            left_out: Vec::new(),
            rehydrated,
            hits: hits.iter().map(|item| memory(item, false)).collect(),
            workspace: seed
                .workspace
                .iter()
                .map(|item| MessageUnit::single_message(workspace_message(item), most_chars, false))
                .collect(),
            setting: seed
                .setting
                .iter()
                .map(|text| MessageUnit::single_message(system_message(text), most_chars, true))
                .collect(),
            current,
        }
    }

    /// Lets unpinned items go until the rest fits, and returns how many went.
    fn evict_units(&mut self, budget: &Budget) -> usize {
        let chronicle_share = budget.profile.chronicle_pct.share_of(budget.total).get();
        let memory_share = budget.profile.memory_pct.share_of(budget.total).get();
        let mut total = self.count_tokens();
        let mut chronicle = sum_tokens(&self.history);
        let mut memory = sum_tokens(&self.owner_profile) + sum_tokens(&self.hits);
        let mut evicted = 0;
        let mut left_out = old::EvictedMessages::default();
        let room_for_note = MAX_NOTE_SHARE.share_of(budget.total).get();
        let with_note = budget.room.get().saturating_sub(room_for_note);
        while total > budget.room.get() {
            // History is evicted while it exceeds its share, or where memory has nothing to give.
            let history_first = chronicle > chronicle_share || memory <= memory_share || self.hits.is_empty();
            let gone = if history_first && let Some(unit) = self.history.pop_front() {
                chronicle -= unit.tokens;
                left_out.add_messages(&unit.messages);
                unit
            } else if let Some(unit) = self.hits.pop() {
                memory -= unit.tokens;
                unit
            } else if let Some(unit) = self.workspace.pop() {
                unit
            } else if let Some(oldest) = self.current.iter().position(|unit| !unit.pinned) {
                self.current.remove(oldest)
            } else {
                break;
            };
            total -= gone.tokens;
            evicted += 1;
        }
        // The note about evicted history needs room itself, so further history makes way for it.
        while total > with_note
            && !left_out.is_empty()
            && let Some(unit) = self.history.pop_front()
        {
            left_out.add_messages(&unit.messages);
            total -= unit.tokens;
            evicted += 1;
        }
        let room = budget.room.get().saturating_sub(total).min(room_for_note);
        self.left_out.extend(
            left_out.evicted_note(room).map(|note| MessageUnit::single_message(note, usize::MAX, false)),
        );
        evicted
    }

    fn count_tokens(&self) -> u64 {
        sum_tokens(&self.owner_profile)
            + sum_tokens(&self.left_out)
            + sum_tokens(&self.history)
            + sum_tokens(&self.rehydrated)
            + sum_tokens(&self.hits)
            + sum_tokens(&self.workspace)
            + sum_tokens(&self.setting)
            + sum_tokens(&self.current)
    }

    fn finish_request(
        self,
        seed: &ContextSeed,
        mut items: Vec<ItemUse>,
        evicted: usize,
        max_output_tokens: Tokens,
    ) -> Assembled {
        // The label covers every text of the request, the system text included.
        let mut label = Label::new(Taint::Owner);
        for text in &seed.system {
            label.join(&text.label);
        }
        let mut messages = Vec::new();
        let mut place = |zone, unit: MessageUnit| {
            let mut taint = Taint::Owner;
            for message in unit.messages {
                taint = taint.join(message.label.taint);
                label.join(&message.label);
                messages.push(message);
            }
            let MessageUnit { source, tokens, pinned, .. } = unit;
            // The order of these lines is the order of the request: later parts change more often, for the
            // provider's cache.
            items.push(ItemUse { zone, source, tokens: Tokens::new(tokens), pinned, taint });
        };
        self.owner_profile.into_iter().for_each(|unit| place(Zone::Memory, unit));
        self.left_out.into_iter().for_each(|unit| place(Zone::Chronicle, unit));
        self.history.into_iter().for_each(|unit| place(Zone::Chronicle, unit));
        self.rehydrated.into_iter().for_each(|unit| place(Zone::Chronicle, unit));
        self.hits.into_iter().for_each(|unit| place(Zone::Memory, unit));
        self.workspace.into_iter().for_each(|unit| place(Zone::Workspace, unit));
        self.setting.into_iter().for_each(|unit| place(Zone::Workspace, unit));
        self.current.into_iter().for_each(|unit| place(Zone::Current, unit));
        let request = ModelRequest {
            system: system_text(&seed.system),
            messages,
            tools: seed.tools.clone(),
            max_output_tokens,
            form: None,
            effort: None,
        };
        Assembled { request, label, items, evicted }
    }
}

// === impl Unit ===

impl MessageUnit {
    fn single_message(message: ChatMessage, most_chars: usize, pinned: bool) -> Self {
        Self::new(vec![Arc::new(message)], most_chars, pinned)
    }

    fn new(messages: Vec<Arc<ChatMessage>>, most_chars: usize, pinned: bool) -> Self {
        let source = match messages.first() {
            Some(message) if message.role == Role::System => "note".to_owned(),
            Some(message) => format!("{:?}", message.role).to_lowercase(),
            None => String::new(),
        };
        let messages: Vec<Arc<ChatMessage>> =
            messages.into_iter().map(|message| cut_message(message, most_chars)).collect();
        let tokens = messages.iter().map(|message| message_tokens(message)).sum();
        Self { messages, source, tokens, pinned }
    }
}

fn sum_tokens<'a>(units: impl IntoIterator<Item = &'a MessageUnit>) -> u64 {
    units.into_iter().map(|unit| unit.tokens).sum()
}

/// A message as the model sees it: long texts cut, external results marked as data.
fn cut_message(mut message: Arc<ChatMessage>, most_chars: usize) -> Arc<ChatMessage> {
    if message.parts.iter().all(|part| is_shown_whole(part, most_chars)) {
        return message;
    }
    let parts = &mut Arc::make_mut(&mut message).parts;
    // It cannot be cut; a provider takes a message without it better than with a part of it.
    if most_chars != usize::MAX {
        parts.retain(|part| !matches!(part, Part::Reasoning(_)));
    }
    for part in parts {
        match part {
            Part::Reasoning(_) | Part::File(_) => {}
            Part::Text { text } => *text = text::cut_text(text, most_chars),
            Part::Call(call) => {
                let chars = call.arguments.to_string().chars().count();
                if chars > most_chars {
                    call.arguments = serde_json::json!({ "left_out": format!("{chars} characters") });
                }
            }
            Part::Result(result) => {
                result.text = text::cut_text(&result.text, most_chars);
                if result.label.taint == Taint::External {
                    result.text = text::mark_external(&result.name, &result.text);
                }
            }
        }
    }
    message
}

/// Returns true if a part is sent uncut.
fn is_shown_whole(part: &Part, most_chars: usize) -> bool {
    match part {
        Part::Text { text } => text::fits_in(text, most_chars),
        Part::Call(_) | Part::Reasoning(_) => most_chars == usize::MAX,
        Part::File(_) => true,
        Part::Result(result) => {
            result.label.taint != Taint::External && text::fits_in(&result.text, most_chars)
        }
    }
}

fn message_tokens(message: &ChatMessage) -> u64 {
    // Estimates only: providers count differently, and a turn corrects itself by refusals.
    let part_tokens = |part: &Part| match part {
        Part::Text { text } => estimate_tokens(text).get(),
        Part::Call(call) => {
            estimate_tokens(&call.name).get() + estimate_tokens(&call.arguments.to_string()).get()
        }
        Part::Result(result) => estimate_tokens(&result.text).get(),
        Part::Reasoning(piece) => estimate_tokens_of_chars(piece.byte_count()).get(),
        Part::File(attached) => attached.file.estimated_tokens(),
    };
    MESSAGE_OVERHEAD + message.parts.iter().map(part_tokens).sum::<u64>()
}

/// A note of the harness: its own words, so the owner's trust.
pub(crate) fn system_message(text: &str) -> ChatMessage {
    ChatMessage {
        role: Role::System,
        parts: vec![Part::Text { text: text.to_owned() }],
        label: Label::new(Taint::Owner),
    }
}

fn is_rehydration_note(message: &ChatMessage) -> bool {
    let note = |part: &Part| matches!(part, Part::Text { text } if text == notice::REHYDRATED);
    message.role == Role::System && message.parts.iter().all(note)
}

// === impl ContextError ===

impl ToReport for ContextError {
    fn report(&self) -> Report {
        match self {
            Self::SystemTooLarge { .. } => {
                Report::new(Exit::Config, "agent.system_too_large", self.to_string()).with_hint(
                    "shorten RULES.md or AGENTS.md, offer fewer tools, or raise context.system_max",
                )
            }
            Self::DoesNotFit { .. } => Report::new(Exit::Budget, "agent.context_full", self.to_string())
                .with_hint("send a shorter message, or raise context.total_tokens"),
        }
    }
}
