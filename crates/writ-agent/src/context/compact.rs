//! The part of a conversation that leaves the context, and the text that its summary is made of.
//!
//! The history itself never changes. A compaction is a record beside it: up to which message the history is
//! summarised, and by which text. The next turn reads the summary and what came after it.

use std::sync::Arc;

use writ_types::chat::{ChatMessage, Part, Role};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Tokens;

use super::old::{self, EvictedMessages};
use super::zones::message_tokens;
use super::{MESSAGE_OVERHEAD, group, system_tokens};
use crate::config::{ContextConfig, Share};
use crate::event::ContextSeed;
use crate::text;

/// The share of the trigger that stays after a compaction: as large a part of the conversation fits again before the next
/// one, so that most turns begin like the one before, which providers cache.
const REMAINING_SHARE: Share = Share::of_percent(50);

/// The least share of the budget that the conversation itself takes where it is compacted for its tokens: less would be
/// summarised again and again where system text and tools alone come near the trigger.
const LEAST_SHARE: Share = Share::of_percent(10);

/// The most characters of a tool's result in the text for the summary: the call and its beginning say what it was.
const MAX_RESULT_CHARS: usize = 600;

/// The most characters of another text in it.
const MAX_MESSAGE_CHARS: usize = 6_000;

/// The fewest characters to which each group is cut where there are many.
const MIN_GROUP_CHARS: usize = 80;

/// The most characters of one part of a remembered exchange: about the longest memory that a request shows whole.
const MAX_EXCHANGE_CHARS: usize = 1_800;

/// The most parts of exchanges that one compaction takes, but for one exchange that alone has more: they are remembered in one
/// transaction. A longer part of a history is compacted in several.
const MAX_EXCHANGES: usize = 256;

/// The reason for a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionReason {
    /// The conversation came near the budget of the context.
    Tokens,
    /// It has more messages than a turn begins with.
    Messages,
    /// The owner asked for it.
    Asked,
}

/// The part of a history that is to be compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionPlan {
    /// The number of its oldest messages that are summarised.
    pub messages: usize,
    /// Their estimated tokens.
    pub tokens: Tokens,
    /// The estimated tokens of the whole request before.
    pub before: Tokens,
    /// The reason.
    pub reason: CompactionReason,
}

/// Messages that leave the context together, as the scorer reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryGroup {
    /// The place of its first message in the history.
    pub place: usize,
    /// Its text.
    pub text: String,
    /// The join of the labels of its messages.
    pub label: Label,
}

/// A person's messages and the agent's answer to them, or a part of that, as they are remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The text.
    pub text: String,
    /// The join of the labels of its messages.
    pub label: Label,
}

/// Decides whether the older part of a history is to be compacted before the next turn: where the context without old
/// results and trivial messages fills more than `compact_at_pct` of its budget, or has more than `most_messages`. At the
/// owner's word (`due` is [`CompactionReason::Asked`]) everything but the newest turn is. With [`CompactionReason::Tokens`] the provider
/// has counted more than that share, whatever is estimated.
pub fn plan_compaction(
    config: &ContextConfig,
    seed: &ContextSeed,
    history: &[Arc<ChatMessage>],
    (most_messages, due): (usize, Option<CompactionReason>),
) -> Option<CompactionPlan> {
    let fixed = system_tokens(seed).get() + carried_tokens(seed);
    let ages = old::ages_in_turns(history);
    let tokens: Vec<u64> = history
        .iter()
        .zip(&ages)
        .map(|(message, age)| tokens_when_scarce(message, *age > config.observation_mask_after_turns))
        .collect();
    let said = tokens.iter().sum();
    let before = fixed.saturating_add(said);
    let least = LEAST_SHARE.share_of(config.total_tokens).get();
    let trigger = config.compact_at_pct.share_of(config.total_tokens).get();
    let is_asked = due == Some(CompactionReason::Asked);
    let is_full = before > trigger || due == Some(CompactionReason::Tokens);
    let reason = if is_asked {
        CompactionReason::Asked
    } else if is_full && said > least {
        CompactionReason::Tokens
    } else if history.len() > most_messages {
        CompactionReason::Messages
    } else {
        return None;
    };
    let messages = if is_asked {
        (0..history.len()).rev().find(|place| opens_turn(history, *place)).unwrap_or_default()
    } else {
        let mut room = REMAINING_SHARE.share_of(Tokens::new(trigger.saturating_sub(fixed))).get();
        // Where the provider counts more than is estimated, the estimates of all may be below that.
        if due == Some(CompactionReason::Tokens) {
            room = room.min(REMAINING_SHARE.share_of(Tokens::new(said)).get());
        }
        first_that_stays(history, &tokens, (most_messages / 2, room))
    };
    // One transaction stores a bounded number of exchanges as memories; the rest leaves the context in the next part.
    let old = history.get(..messages).unwrap_or_default();
    let messages = messages_of_exchanges(old, MAX_EXCHANGES);
    let sum = tokens.iter().take(messages).sum();
    (messages > 0).then_some(CompactionPlan {
        messages,
        tokens: Tokens::new(sum),
        before: Tokens::new(before),
        reason,
    })
}

/// Returns the place of the first message that stays: as many of the newest groups as fit, and at least the newest; where it
/// can be, a turn stays whole.
fn first_that_stays(history: &[Arc<ChatMessage>], tokens: &[u64], (most, room): (usize, u64)) -> usize {
    let groups = group::group_messages(history.iter().cloned().enumerate());
    let mut first = history.len();
    let mut used = 0_u64;
    for group in groups.iter().rev() {
        let size: u64 = tokens.get(group.place..first).unwrap_or_default().iter().sum();
        let is_newest = first == history.len();
        if !is_newest && (history.len() - group.place > most || used.saturating_add(size) > room) {
            break;
        }
        used = used.saturating_add(size);
        first = group.place;
    }
    (first..history.len()).find(|place| opens_turn(history, *place)).unwrap_or(first)
}

/// Returns true if a message of a history is the first of its turn.
fn opens_turn(history: &[Arc<ChatMessage>], place: usize) -> bool {
    let is_user = |place: usize| history.get(place).is_some_and(|message| message.role == Role::User);
    is_user(place) && (place == 0 || !is_user(place - 1))
}

fn carried_tokens(seed: &ContextSeed) -> u64 {
    let memories = seed.owner_profile.iter().map(|item| item.text.as_str());
    let texts = seed.carried.iter().map(|item| item.text.as_str()).chain(memories);
    texts.map(|text| MESSAGE_OVERHEAD + writ_types::chat::estimate_tokens(text).get()).sum()
}

fn tokens_when_scarce(message: &Arc<ChatMessage>, is_old: bool) -> u64 {
    if old::is_trivial(message) {
        return 0;
    }
    if is_old { message_tokens(&old::mask_results(Arc::clone(message))) } else { message_tokens(message) }
}

/// Returns the groups of a part of the history, as a scorer reads them, in at most about `most_chars` characters: short ones
/// whole, long ones cut to the same length. Where even 80 characters of each are too much, the oldest have no text.
pub fn describe_groups(history: &[Arc<ChatMessage>], most_chars: usize) -> Vec<HistoryGroup> {
    let groups = group::group_messages(history.iter().cloned().enumerate());
    let described = groups.into_iter().map(|group| {
        let texts: Vec<String> = group.messages.iter().map(|message| describe_message(message)).collect();
        HistoryGroup { place: group.place, text: texts.join("\n"), label: joined_label(&group.messages) }
    });
    let mut described: Vec<HistoryGroup> = described.collect();
    let sizes: Vec<usize> = described.iter().map(|group| group.text.chars().count()).collect();
    let each = even_share(&sizes, most_chars).max(MIN_GROUP_CHARS);
    let mut room = most_chars;
    for (group, size) in described.iter_mut().zip(sizes).rev() {
        if size > each {
            group.text = text::cut_text(&group.text, each);
        }
        match room.checked_sub(size.min(each)) {
            Some(left) => room = left,
            None => {
                room = 0;
                group.text = "…".to_owned();
            }
        }
    }
    described
}

/// Returns the length to which the longest of some texts are cut so that all of them take at most `most`.
fn even_share(sizes: &[usize], most: usize) -> usize {
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    let mut room = most;
    for (n, size) in sorted.iter().enumerate() {
        let each = room / (sorted.len() - n);
        if *size > each {
            return each;
        }
        room -= size;
    }
    usize::MAX
}

/// Returns a message as a text for people and models, with its speaker; long texts are cut.
pub fn describe_message(message: &ChatMessage) -> String {
    describe_within(message, (MAX_MESSAGE_CHARS, MAX_RESULT_CHARS))
}

/// Returns a message as a text for models, with its speaker, word for word.
pub fn quote_message(message: &ChatMessage) -> String {
    describe_within(message, (usize::MAX, usize::MAX))
}

fn describe_within(message: &ChatMessage, (most_chars, most_of_result): (usize, usize)) -> String {
    let who = match message.role {
        Role::System => "harness",
        Role::User => "person",
        Role::Assistant => "agent",
        Role::Tool => "result",
    };
    let part_text = |part: &Part| match part {
        Part::Text { text } => Some(text::cut_text(text, most_chars)),
        Part::Call(call) => {
            let arguments = text::cut_text(&call.arguments.to_string(), most_of_result);
            Some(format!("calls {} {arguments}", text::plain_name(&call.name)))
        }
        Part::Result(result) => {
            let text = text::cut_text(&result.text, most_of_result);
            Some(format!("{}: {text}", text::plain_name(&result.name)))
        }
        Part::Reasoning(_) | Part::File(_) => None,
    };
    let parts: Vec<String> = message.parts.iter().filter_map(part_text).collect();
    format!("{who}: {}", parts.join("\n"))
}

/// Returns the estimated tokens of these places of a history where they are pinned: whole, with the calls and results that
/// belong to them.
pub fn pinned_tokens(history: &[Arc<ChatMessage>], places: &[usize]) -> Tokens {
    let groups = group::group_messages(history.iter().cloned().enumerate());
    let pinned = groups.iter().filter(|group| group.has_place(places));
    let tokens = pinned.flat_map(|group| &group.messages).map(|message| message_tokens(message));
    Tokens::new(tokens.fold(0, u64::saturating_add))
}

/// Returns what the harness itself says of messages that leave the context: how many they are, and how the person's newest
/// ones begin; in at most `room` tokens, which is enough for the first.
pub fn note_of_messages(messages: &[Arc<ChatMessage>], room: Tokens) -> (String, Label) {
    let mut evicted = EvictedMessages::default();
    evicted.add_messages(messages);
    let note = evicted.evicted_note(room.get().max(MIN_NOTE_TOKENS));
    let text = note.as_ref().and_then(|note| note.parts.first()).map(|part| match part {
        Part::Text { text } => text.clone(),
        Part::Call(_) | Part::Result(_) | Part::Reasoning(_) | Part::File(_) => String::new(),
    });
    let label = note.map_or_else(|| Label::new(Taint::Owner), |note| note.label);
    (text.unwrap_or_default(), label)
}

/// Room for a note without quotations, in tokens.
const MIN_NOTE_TOKENS: u64 = 64;

/// Returns the exchanges of a part of the history, oldest first, for the memory: what the person wrote and the agent answered,
/// in as many parts as that takes. Results of tools are not among them; they stay in the log.
pub fn exchanges(history: &[Arc<ChatMessage>]) -> Vec<Exchange> {
    exchange_starts(history)
        .into_iter()
        .flat_map(|(first, end)| exchange_parts(history.get(first..end).unwrap_or_default()))
        .collect()
}

/// Returns how many of the oldest messages make at most about `most` exchanges; at least those of the first.
pub fn messages_of_exchanges(history: &[Arc<ChatMessage>], most: usize) -> usize {
    let mut count = 0_usize;
    for (first, end) in exchange_starts(history) {
        count = count.saturating_add(exchange_parts(history.get(first..end).unwrap_or_default()).len());
        if count > most && first > 0 {
            return first;
        }
    }
    history.len()
}

/// Returns the first place of each exchange, and the place after its last.
fn exchange_starts(history: &[Arc<ChatMessage>]) -> Vec<(usize, usize)> {
    let opens = |place: &usize| *place == 0 || opens_turn(history, *place);
    let starts: Vec<usize> = (0..history.len()).filter(opens).collect();
    let ends = starts.iter().skip(1).copied().chain([history.len()]);
    starts.iter().copied().zip(ends).collect()
}

/// Returns one exchange as it is remembered: its texts, in parts of at most [`MAX_EXCHANGE_CHARS`].
fn exchange_parts(messages: &[Arc<ChatMessage>]) -> Vec<Exchange> {
    let spoken = messages.iter().filter(|message| matches!(message.role, Role::User | Role::Assistant));
    let mut label: Option<Label> = None;
    let mut text = String::new();
    for message in spoken {
        label.get_or_insert_with(|| message.label.clone()).join(&message.label);
        if old::is_trivial(message) {
            continue;
        }
        let texts = message.parts.iter().filter_map(|part| match part {
            Part::Text { text } if !text.trim().is_empty() => Some(text.as_str()),
            Part::Text { .. } | Part::Call(_) | Part::Result(_) | Part::Reasoning(_) | Part::File(_) => None,
        });
        let said = texts.collect::<Vec<_>>().join("\n");
        if !said.is_empty() {
            let who = if message.role == Role::User { "The person" } else { "The agent" };
            let separator = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{separator}{who}: {said}"));
        }
    }
    let Some(label) = label else { return Vec::new() };
    let parts = text::split_text(&text, MAX_EXCHANGE_CHARS);
    parts.into_iter().map(|text| Exchange { text: text.to_owned(), label: label.clone() }).collect()
}

/// The join of the labels of messages.
pub fn joined_label(messages: &[Arc<ChatMessage>]) -> Label {
    let mut label = Label::new(Taint::Owner);
    for message in messages {
        label.join(&message.label);
    }
    label
}

/// Cuts a text to at most `most` characters, with a mark.
pub fn cut_summary(text: &str, most: usize) -> String {
    text::cut_text(text, most)
}
