//! The parsed histories of sessions in use, held in memory: a turn reads only the messages added since the
//! turn before.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use writ_agent::event::{Event, HistoryRows, StoredEvent};
use writ_store::compaction::Compaction;
use writ_store::error::StoreError;
use writ_store::memory::{Memory, Secrets};
use writ_store::reads::{SessionReads as _, TurnReads as _};
use writ_store::sessions::ChronicleRow;
use writ_store::store::Store;
use writ_types::chat::{ChatMessage, Part};
use writ_types::id::{SessionId, TurnId};
use writ_types::taint::{Label, Source};

use crate::error::EngineError;
/// The most messages of a history that a turn begins with, and that one compaction takes: more are in the log, and the next
/// compaction says how many they are.
pub(crate) const MAX_HISTORY_ROWS: usize = 2_000;

/// The most sessions with a history in memory; with [`MAX_KEPT_BYTES`] their texts take 8 MB at most. Others
/// are read anew.
const MAX_KEPT: usize = 32;

/// The largest size of the texts and sources of a history in memory, in bytes: fifty messages of conversation
/// take less.
const MAX_KEPT_BYTES: usize = 256 * 1024;

/// The parsed histories in memory, by session; at most `MAX_KEPT`.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    kept: BTreeMap<SessionId, CachedHistory>,
    /// Counts the uses, to tell which is the oldest.
    uses: u64,
}

/// The newest messages of a session, oldest first.
type History = VecDeque<HistoryRow>;

#[derive(Debug)]
struct HistoryRow {
    n: u64,
    message: Arc<ChatMessage>,
    /// The size of the message's texts and sources.
    bytes: usize,
}

#[derive(Debug)]
struct CachedHistory {
    messages: History,
    used: u64,
}

impl HistoryRow {
    fn new(n: u64, message: ChatMessage) -> Self {
        Self { n, bytes: bytes_of(&message), message: Arc::new(message) }
    }
}

impl Histories {
    fn take(&mut self, session: SessionId) -> History {
        self.kept.remove(&session).map(|kept| kept.messages).unwrap_or_default()
    }

    /// Drops the history of a session that was erased.
    pub(crate) fn drop_history(&mut self, session: SessionId) {
        self.kept.remove(&session);
    }

    fn keep(&mut self, session: SessionId, messages: History) {
        let bytes: usize = messages.iter().map(|row| row.bytes).sum();
        if bytes > MAX_KEPT_BYTES {
            return;
        }
        self.uses += 1;
        self.kept.insert(session, CachedHistory { messages, used: self.uses });
        let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(session, _)| *session);
        if let Some(oldest) = oldest.filter(|_| self.kept.len() > MAX_KEPT) {
            self.kept.remove(&oldest);
        }
    }
}

/// What a turn begins with.
#[derive(Debug, Default)]
pub(crate) struct TurnHistory {
    /// The messages of its session that no compaction stands for, oldest first.
    pub(crate) messages: Vec<Arc<ChatMessage>>,
    /// The row of each of these messages.
    pub(crate) numbers: Vec<u64>,
    /// The compaction in force.
    pub(crate) compaction: Option<Compaction>,
    /// The pinned memories, newest first.
    pub(crate) pinned: Vec<Memory>,
}

impl TurnHistory {
    /// Returns how its rows are read again.
    pub(crate) fn rows(&self) -> Option<HistoryRows> {
        let count = u64::try_from(self.numbers.len()).unwrap_or(u64::MAX);
        self.numbers.last().map(|last| HistoryRows { last: *last, count })
    }

    /// Takes the messages out that a compaction stands for.
    pub(crate) fn drop_compacted(&mut self, compaction: Compaction) {
        let gone = self.numbers.iter().take_while(|n| **n <= compaction.upto).count();
        self.numbers.drain(..gone);
        self.messages.drain(..gone);
        self.compaction = Some(compaction);
    }
}

/// Returns the messages of a session that no compaction stands for, the compaction, and the memories that are pinned,
/// in one read.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn read_history(
    (store, histories): (&Store, &Mutex<Histories>),
    session: SessionId,
    pinned: Option<(Secrets, usize)>,
) -> Result<TurnHistory, StoreError> {
    // Taken out while it is read: another turn of the session that begins meanwhile reads all of it from the store.
    let mut messages = lock(histories).take(session);
    let after = messages.back().map_or(0, |row| row.n);
    let (compaction, new, pinned) = store.turn_opening(session, after, MAX_HISTORY_ROWS, pinned).await?;
    messages.extend(new.into_iter().map(|ChronicleRow { n, message, .. }| HistoryRow::new(n, message)));
    let upto = compaction.as_ref().map_or(0, |newest| newest.upto);
    let covered = messages.iter().take_while(|row| row.n <= upto).count();
    messages.drain(..covered.max(messages.len().saturating_sub(MAX_HISTORY_ROWS)));
    let history = messages.iter().map(|row| Arc::clone(&row.message)).collect();
    let numbers = messages.iter().map(|row| row.n).collect();
    lock(histories).keep(session, messages);
    Ok(TurnHistory { messages: history, numbers, compaction, pinned })
}

/// Reads the stored events of a turn, with the history that the first of them leaves out.
///
/// # Errors
///
/// If the store cannot be read, or an event in it.
pub(crate) async fn read_turn_events(
    store: &Store,
    session: SessionId,
    turn: TurnId,
) -> Result<Vec<StoredEvent>, EngineError> {
    let mut stored = Vec::new();
    for (n, json) in (0_u64..).zip(store.turn_events(turn).await?) {
        let mut event = StoredEvent::decode_json(&json)
            .map_err(|error| EngineError::StoredEvent { n, why: error.to_string() })?;
        if let Event::Opened(opened) = &mut event.event
            && let Some(rows) = opened.seed.history_rows
        {
            let count = usize::try_from(rows.count).unwrap_or(usize::MAX);
            let rows = store.recent_until(session, rows.last, count).await?;
            opened.seed.history = rows.into_iter().map(|row| Arc::new(row.message)).collect();
        }
        stored.push(event);
    }
    Ok(stored)
}

/// Every holder leaves it whole, so poison is ignored.
fn lock(histories: &Mutex<Histories>) -> MutexGuard<'_, Histories> {
    histories.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the size of a message's texts and sources, in bytes.
fn bytes_of(message: &ChatMessage) -> usize {
    let part_bytes = |part: &Part| match part {
        Part::Text { text } => text.len(),
        Part::Call(call) => call.name.len() + call.arguments.to_string().len(),
        Part::Result(result) => result.text.len() + label_bytes(&result.label),
        Part::Reasoning(piece) => piece.byte_count(),
        Part::File(attached) => attached.content.as_ref().map_or(0, |content| content.len()),
    };
    label_bytes(&message.label) + message.parts.iter().map(part_bytes).sum::<usize>()
}

fn label_bytes(label: &Label) -> usize {
    label.sources.iter().map(|source| size_of::<Source>() + source.origin.len() + source.detail.len()).sum()
}

#[cfg(test)]
mod tests {
    use writ_types::chat::Role;
    use writ_types::taint::Taint;
    use writ_types::unit::Timestamp;

    use super::*;

    fn session(n: usize) -> SessionId {
        SessionId::from_parts(Timestamp::from_millis(0), n as u128)
    }

    fn said(n: u64, bytes: usize) -> HistoryRow {
        let parts = vec![Part::Text { text: "x".repeat(bytes) }];
        HistoryRow::new(n, ChatMessage { role: Role::User, parts, label: Label::new(Taint::Owner) })
    }

    #[test]
    fn the_histories_used_last_are_kept_and_large_ones_are_not() {
        let mut histories = Histories::default();
        for n in 0..MAX_KEPT {
            histories.keep(session(n), VecDeque::from([said(1, 10)]));
        }
        let first = histories.take(session(0));
        assert_eq!(first.len(), 1);
        histories.keep(session(0), first);
        histories.keep(session(MAX_KEPT), VecDeque::from([said(1, 10)]));
        assert_eq!(histories.kept.len(), MAX_KEPT);
        assert!(histories.take(session(1)).is_empty(), "the one used longest ago is gone");
        assert_eq!(histories.take(session(0)).len(), 1);
        histories.keep(session(0), VecDeque::from([said(1, MAX_KEPT_BYTES), said(2, 1)]));
        assert!(histories.take(session(0)).is_empty(), "too large to be kept");
    }
}
