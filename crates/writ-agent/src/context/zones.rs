//! The zones of a request besides the system zone: their content, and the order in which items are evicted.

use std::collections::VecDeque;
use std::sync::Arc;

use writ_types::chat::{
    ChatMessage, FileRef, ModelRequest, Part, Role, estimate_tokens, estimate_tokens_of_chars,
};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Tokens;

use super::item::{carried_message, memory_message, workspace_message};
use super::old::{self, EvictedMessages, Results};
use super::system::system_text;
use super::{Assembled, ItemUse, MAX_NOTE_SHARE, MESSAGE_OVERHEAD, Zone, group, system_message};
use crate::config::Profile;
use crate::event::{CarriedItem, ContextSeed, MemoryItem};
use crate::notice;
use crate::text;

/// The limits of the zones other than the system zone: `room` in all, and shares of `total` by `profile`.
pub(super) struct Budget {
    pub(super) room: Tokens,
    pub(super) profile: Profile,
    pub(super) total: Tokens,
}

/// Messages that are evicted together: a single message, or calls with their results.
struct MessageUnit {
    messages: Vec<Arc<ChatMessage>>,
    source: String,
    tokens: u64,
    pinned: bool,
    /// The index of its first message in the history; `None`: it is not from the history.
    place: Option<usize>,
}

/// Settings for building the zones.
#[derive(Clone, Copy)]
pub(super) struct Showing {
    /// The most characters of one text.
    pub(super) most_chars: usize,
    /// The results that are shown.
    pub(super) results: Results,
    /// The age in turns up to which results are shown when room is scarce.
    pub(super) mask_after: u32,
}

/// Everything but the system zone.
pub(super) struct Zones {
    /// The parts that replace the conversation before the history, such as its summary.
    carried: Vec<MessageUnit>,
    owner_profile: Vec<MessageUnit>,
    /// The note about evicted history, if any.
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
    pub(super) fn build_zones(
        seed: &ContextSeed,
        hits: &[MemoryItem],
        current: &[ChatMessage],
        showing: Showing,
    ) -> Self {
        let Showing { most_chars, results, .. } = showing;
        let memory =
            |item: &MemoryItem, pinned| MessageUnit::single_message(memory_message(item), most_chars, pinned);
        let mut rehydrated = Vec::new();
        if seed.rehydrated && !seed.history.is_empty() {
            rehydrated.push(MessageUnit::single_message(
                system_message(notice::REHYDRATED),
                most_chars,
                true,
            ));
        }
        let groups = group::group_messages(current.iter().cloned().map(Arc::new).enumerate());
        let last = groups.len().saturating_sub(1);
        let mut current: Vec<MessageUnit> = groups
            .into_iter()
            .enumerate()
            .map(|(n, group)| {
                let is_masked = n < last && results >= Results::OfTheLastStep;
                let messages = mask_if(is_masked, group.messages);
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
            carried: seed.carried.iter().map(|item| MessageUnit::carried_item(item, most_chars)).collect(),
            owner_profile: seed
                .curated
                .iter()
                .map(|item| MessageUnit::carried_item(item, most_chars))
                .chain(seed.owner_profile.iter().map(|item| memory(item, true)))
                .collect(),
            history: history_units(seed, showing),
            left_out: Vec::new(),
            rehydrated,
            hits: hits.iter().map(|item| memory(item, false)).collect(),
            workspace: seed
                .workspace
                .iter()
                .map(|item| MessageUnit {
                    source: if item.done { DONE.to_owned() } else { "note".to_owned() },
                    ..MessageUnit::single_message(workspace_message(item), most_chars, false)
                })
                .collect(),
            setting: seed
                .setting
                .iter()
                .map(|text| {
                    let text = format!("{text} {}", seed.interaction.mode().instruction());
                    MessageUnit::single_message(system_message(&text), most_chars, true)
                })
                .collect(),
            current,
        }
    }

    /// Removes unpinned items until the rest fits, and returns the number of removed ones.
    pub(super) fn evict_units(&mut self, budget: &Budget) -> usize {
        let chronicle_share = budget.profile.chronicle_pct.share_of(budget.total).get();
        let memory_share = budget.profile.memory_pct.share_of(budget.total).get();
        let mut total = self.count_tokens();
        let mut chronicle = sum_tokens(&self.history);
        let mut memory = sum_tokens(&self.owner_profile) + sum_tokens(&self.hits);
        let mut evicted = 0;
        let mut left_out = EvictedMessages::default();
        let room_for_note = MAX_NOTE_SHARE.share_of(budget.total).get();
        let with_note = budget.room.get().saturating_sub(room_for_note);
        while total > budget.room.get() {
            // History goes first if it exceeds its share, memory does not exceed its own, or no recalled memory is left.
            let history_first = chronicle > chronicle_share || memory <= memory_share || self.hits.is_empty();
            let gone = if history_first && let Some(unit) = self.pop_history() {
                chronicle -= unit.tokens;
                left_out.add_messages(&unit.messages);
                unit
            } else if let Some(unit) = self.hits.pop() {
                memory -= unit.tokens;
                unit
            } else if let Some(oldest) = self.carried.iter().position(|unit| !unit.pinned) {
                self.carried.remove(oldest)
            } else if let Some(done) = self.workspace.iter().rposition(|unit| unit.source == DONE) {
                self.workspace.remove(done)
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
            && let Some(unit) = self.pop_history()
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

    /// Removes the oldest unit of the history that is not pinned.
    fn pop_history(&mut self) -> Option<MessageUnit> {
        if self.history.front().is_some_and(|unit| !unit.pinned) {
            return self.history.pop_front();
        }
        let oldest = self.history.iter().position(|unit| !unit.pinned)?;
        self.history.remove(oldest)
    }

    /// Returns the largest item that is never evicted: its name, and its estimated tokens.
    pub(super) fn largest_pinned(&self) -> Option<(String, Tokens)> {
        let zones = [&self.owner_profile, &self.carried, &self.rehydrated, &self.setting, &self.current];
        let pinned = zones.into_iter().flatten().chain(&self.history).filter(|unit| unit.pinned);
        pinned.max_by_key(|unit| unit.tokens).map(|unit| (unit.describe_unit(), Tokens::new(unit.tokens)))
    }

    pub(super) fn count_tokens(&self) -> u64 {
        sum_tokens(&self.owner_profile)
            + sum_tokens(&self.carried)
            + sum_tokens(&self.left_out)
            + sum_tokens(&self.history)
            + sum_tokens(&self.rehydrated)
            + sum_tokens(&self.hits)
            + sum_tokens(&self.workspace)
            + sum_tokens(&self.setting)
            + sum_tokens(&self.current)
    }

    pub(super) fn finish_request(
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
        let mut place_unit = |zone, unit: MessageUnit| {
            let mut taint = Taint::Owner;
            let count = unit.messages.len();
            for message in unit.messages {
                taint = taint.join(message.label.taint);
                label.join(&message.label);
                messages.push(message);
            }
            let MessageUnit { source, tokens, pinned, place, .. } = unit;
            items.push(ItemUse {
                zone,
                source,
                tokens: Tokens::new(tokens),
                pinned,
                taint,
                messages: count,
                place,
            });
        };
        // This is the order of the request. Parts that change more often come later, so that the provider
        // can reuse its cache of the beginning.
        self.owner_profile.into_iter().for_each(|unit| place_unit(Zone::Memory, unit));
        self.carried.into_iter().for_each(|unit| place_unit(Zone::Chronicle, unit));
        self.left_out.into_iter().for_each(|unit| place_unit(Zone::Chronicle, unit));
        self.history.into_iter().for_each(|unit| place_unit(Zone::Chronicle, unit));
        self.rehydrated.into_iter().for_each(|unit| place_unit(Zone::Chronicle, unit));
        self.hits.into_iter().for_each(|unit| place_unit(Zone::Memory, unit));
        self.workspace.into_iter().for_each(|unit| place_unit(Zone::Workspace, unit));
        self.setting.into_iter().for_each(|unit| place_unit(Zone::Workspace, unit));
        self.current.into_iter().for_each(|unit| place_unit(Zone::Current, unit));
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

// === impl MessageUnit ===

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
        Self { messages, source, tokens, pinned, place: None }
    }

    fn carried_item(item: &CarriedItem, most_chars: usize) -> Self {
        // A pinned item is never shortened. If it does not fit, an error names it.
        let most_chars = if item.pinned { usize::MAX } else { most_chars };
        let unit = Self::single_message(carried_message(item), most_chars, item.pinned);
        Self { source: item.source.clone(), ..unit }
    }

    /// Describes a unit for a person: its kind, and the beginning of its text.
    fn describe_unit(&self) -> String {
        let parts = self.messages.iter().flat_map(|message| &message.parts);
        let text = parts.into_iter().find_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            Part::Result(result) => Some(result.text.as_str()),
            Part::Call(_) | Part::Reasoning(_) | Part::File(_) => None,
        });
        let name = match self.source.as_str() {
            "user" => "your message",
            "assistant" | "tool" => "the last step of the turn",
            other => other,
        };
        format!("{name} («{}…»)", text::plain_name(text.unwrap_or_default().trim_start()))
    }
}

/// The source of a workspace item that is done.
const DONE: &str = "done";

fn mask_if(is_masked: bool, messages: Vec<Arc<ChatMessage>>) -> Vec<Arc<ChatMessage>> {
    if is_masked { messages.into_iter().map(old::mask_results).collect() } else { messages }
}

/// Returns the history as it is shown, without messages of inactive topics. If room is scarce, old results are masked and trivial
/// messages dropped.
fn history_units(
    seed: &ContextSeed,
    Showing { most_chars, results, mask_after }: Showing,
) -> VecDeque<MessageUnit> {
    let ages = old::ages_in_turns(&seed.history);
    let is_scarce = results >= Results::OfRecentTurns;
    // The note of an earlier restart is not repeated from the history.
    let history = seed.history.iter().enumerate().filter(|(_, message)| !is_rehydration_note(message));
    let groups = group::group_messages(history.map(|(place, message)| (place, Arc::clone(message))));
    let units = groups.into_iter().filter_map(|group| {
        // A call is not shown without its results: pinning one of them pins all.
        let pinned = group.has_place(&seed.pinned_places);
        // A step and its results belong to the topic in which the step began.
        if !pinned && seed.hidden_places.binary_search(&group.place).is_ok() {
            return None;
        }
        if is_scarce && !pinned && group.messages.iter().all(|message| old::is_trivial(message)) {
            return None;
        }
        let age = ages.get(group.place).copied().unwrap_or_default();
        let is_old = results >= Results::OfThisTurn || (is_scarce && age > mask_after);
        // A pinned message is shown whole.
        let most_chars = if pinned { usize::MAX } else { most_chars };
        let unit = MessageUnit::new(mask_if(is_old && !pinned, group.messages), most_chars, pinned);
        Some(MessageUnit { place: Some(group.place), ..unit })
    });
    units.collect()
}

fn sum_tokens<'a>(units: impl IntoIterator<Item = &'a MessageUnit>) -> u64 {
    units.into_iter().map(|unit| unit.tokens).sum()
}

/// Returns a message as the model receives it: long texts cut, external results marked as data.
fn cut_message(mut message: Arc<ChatMessage>, most_chars: usize) -> Arc<ChatMessage> {
    if message.parts.iter().all(|part| is_shown_whole(part, most_chars)) {
        return message;
    }
    let parts = &mut Arc::make_mut(&mut message).parts;
    // Reasoning cannot be cut: providers accept a message without it, but not with a part of it.
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

pub(super) fn message_tokens(message: &ChatMessage) -> u64 {
    // An estimate only, since providers count differently: a request can still be refused as too long.
    let part_tokens = |part: &Part| match part {
        // Files that the text names are added to the request just before it is sent.
        Part::Text { text } if message.role == Role::User => {
            estimate_tokens(text).get().saturating_add(FileRef::tokens_of_files(text))
        }
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

fn is_rehydration_note(message: &ChatMessage) -> bool {
    let note = |part: &Part| matches!(part, Part::Text { text } if text == notice::REHYDRATED);
    message.role == Role::System && message.parts.iter().all(note)
}
