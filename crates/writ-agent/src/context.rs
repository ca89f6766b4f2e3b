//! Assembles the model's context: zones, budgets, eviction.
//!
//! In the order of the request: *system* (pinned texts, tools; byte-identical between calls), *memory* that
//! is pinned, *chronicle* (the history), memories recalled for this turn, *workspace* (subscriptions),
//! *current* (the turn itself). Only the end of a request differs from that of the one before, so providers
//! can cache the rest.

use writ_types::chat::{ChatMessage, ModelRequest, Part, Role};
use writ_types::error::{Exit, Report, ToReport};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Tokens;

use crate::config::{ContextConfig, Share};
use crate::event::{ContextSeed, MemoryItem};

pub mod compact;

mod group;

mod item;

mod old;

mod system;

mod zones;

pub use old::Results;
use system::system_items;
pub use system::system_tokens;
use zones::{Budget, Showing, Zones};

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
    /// The number of messages of the request that it is made of: they follow those of the item before it.
    pub messages: usize,
    /// The place of its first message in the history, if it is of the history.
    pub place: Option<usize>,
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// The system zone is above its limit.
    #[error(
        "the system texts and tool descriptions take {tokens}, context.system_max is {most}; the largest is {largest}"
    )]
    SystemTooLarge {
        /// The tokens needed.
        tokens: Tokens,
        /// The limit.
        most: Tokens,
        /// The largest of them, with its tokens.
        largest: String,
    },
    /// The pinned items do not fit, even after cutting.
    #[error(
        "the pinned items and this turn take {tokens} at least, the context has room for {most}; the largest is {largest}"
    )]
    DoesNotFit {
        /// The tokens needed.
        tokens: Tokens,
        /// The space left.
        most: Tokens,
        /// The largest of them, with its tokens.
        largest: String,
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
/// Above the eviction threshold, the results of turns older than `observation_mask_after_turns` are masked and messages
/// that only acknowledge are dropped; then the results of all earlier turns are masked, then those of this turn's
/// earlier steps. Then unpinned items are removed until the request is at or below it: history over its share (oldest
/// first), recalled memory over its share (least relevant first), then the rest of both, then what a compaction has left
/// unpinned, then the workspace (what is done, then the youngest), then old steps of this turn. A call and its results are removed together. The user's
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
        let largest = system.iter().max_by_key(|item| item.tokens);
        let largest = largest.map(|item| describe_large(&item.source, item.tokens)).unwrap_or_default();
        return Err(ContextError::SystemTooLarge { tokens: system_tokens, most: config.system_max, largest });
    }
    let room = config.eviction_threshold().saturating_sub(system_tokens);
    let budget = Budget { room, profile: config.profile_named(&seed.profile), total: config.total_tokens };
    let mut most_chars = largest_text(config);
    let mask_after = config.observation_mask_after_turns;
    let showing = |most_chars, results| Showing { most_chars, results, mask_after };
    for results in [Results::All, Results::OfRecentTurns, Results::OfThisTurn, Results::OfTheLastStep] {
        if results < most {
            continue;
        }
        let whole = Zones::build_zones(seed, hits, current, showing(usize::MAX, results));
        if whole.count_tokens() <= room.get() {
            return Ok(whole.finish_request(seed, system, 0, max_output_tokens));
        }
    }
    loop {
        let mut zones = Zones::build_zones(seed, hits, current, showing(most_chars, Results::OfTheLastStep));
        let evicted = zones.evict_units(&budget);
        if zones.count_tokens() <= room.get() {
            return Ok(zones.finish_request(seed, system, evicted, max_output_tokens));
        }
        if most_chars <= MIN_TEXT_CHARS {
            let most = config.hard_limit().saturating_sub(system_tokens);
            if zones.count_tokens() <= most.get() {
                return Ok(zones.finish_request(seed, system, evicted, max_output_tokens));
            }
            let largest = zones.largest_pinned().map(|(name, tokens)| describe_large(&name, tokens));
            let (tokens, largest) = (Tokens::new(zones.count_tokens()), largest.unwrap_or_default());
            return Err(ContextError::DoesNotFit { tokens, most, largest });
        }
        most_chars = (most_chars / 2).max(MIN_TEXT_CHARS);
    }
}

/// Returns the most characters of one text where room is scarce.
fn largest_text(config: &ContextConfig) -> usize {
    let tokens = MAX_TEXT_SHARE.share_of(config.total_tokens).get();
    let chars = tokens.saturating_mul(writ_types::chat::CHARS_PER_TOKEN);
    usize::try_from(chars).unwrap_or(usize::MAX).max(MIN_TEXT_CHARS)
}

/// The characters of a note beside a text.
const NOTE_CHARS: usize = 250;

/// Returns the most characters of a tool's result that stay uncut also where room is scarce, with a note beside them.
pub fn result_room(config: &ContextConfig) -> usize {
    largest_text(config).saturating_sub(NOTE_CHARS).max(MIN_TEXT_CHARS)
}

fn describe_large(name: &str, tokens: Tokens) -> String {
    format!("{name}, about {tokens}")
}

/// A note of the harness: its own words, so the owner's trust.
pub(crate) fn system_message(text: &str) -> ChatMessage {
    ChatMessage {
        role: Role::System,
        parts: vec![Part::Text { text: text.to_owned() }],
        label: Label::new(Taint::Owner),
    }
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
                .with_hint("send a shorter message, unpin what is pinned (`writ context unpin`), or raise context.total_tokens"),
        }
    }
}
