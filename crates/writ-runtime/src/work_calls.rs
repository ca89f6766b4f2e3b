//! Calls for a look at work items: a turn of a step has ended, or a person has written something.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};
use writ_inspect::prepared::Prepared;
use writ_store::batch::Op;
use writ_store::error::StoreError;
use writ_store::reads::WorkReads as _;
use writ_store::work::{ItemMove, WorkItem, WorkOp};
use writ_types::api::work::WorkState;
use writ_types::entry::Fact;
use writ_types::id::ItemId;

use crate::journal::Journal;
use crate::session::{Session, outlives};

/// The beginning of the names of the jobs of goals.
pub(crate) const GOAL_PREFIX: &str = "goal.";

/// The autopilot's decision about an attempt of which a turn has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptOrder {
    /// Another turn begins with this text.
    Next {
        /// Its number in the attempt.
        turn: u32,
        /// The text.
        text: Arc<str>,
        /// The end of the turn before, for the record.
        after: Arc<str>,
    },
    /// The attempt is judged.
    End,
}

/// The items that are to be looked at, and the wake-up of the task that does it.
#[derive(Debug, Default)]
pub(crate) struct WorkCalls {
    /// At most as many as there are open items; one that is called twice stands once.
    called: Mutex<BTreeSet<ItemId>>,
    pub(crate) wake: Notify,
    /// The items about which a question is being asked now.
    asking: Arc<Mutex<BTreeSet<ItemId>>>,
    /// The items with a step that waits because as many executors work as may.
    crowded: Mutex<BTreeSet<ItemId>>,
    /// The times in a row that an item could not be moved on.
    failures: Mutex<BTreeMap<ItemId, u32>>,
    /// Set once an item was seen: before, no lane has a message.
    begun: AtomicBool,
    /// What follows the last turns of attempts; one for each open attempt at most. A restart ends the attempts themselves.
    turn_orders: Mutex<BTreeMap<ItemId, AttemptOrder>>,
    /// The number of changes of plans of the autopilot and of their attempts.
    pilot: watch::Sender<u64>,
}

impl WorkCalls {
    /// Calls for a look at the item that has its steps run in a session; other sessions have none.
    pub(crate) fn call(&self, session: &Session) {
        let Some(work) = session.terms.work else { return };
        self.call_item(work.item);
        let crowded = std::mem::take(&mut *self.crowded.lock().unwrap_or_else(PoisonError::into_inner));
        for item in crowded {
            self.call_item(item);
        }
    }

    /// Notes that an item waits until fewer executors work. Returns true if it was not noted yet: then one may have ended
    /// in between.
    pub(crate) fn wait_for_room(&self, item: ItemId) -> bool {
        self.crowded.lock().unwrap_or_else(PoisonError::into_inner).insert(item)
    }

    /// Counts a time that an item could not be moved on. Returns how often that was in a row.
    pub(crate) fn count_failure(&self, item: ItemId) -> u32 {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(item).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// Forgets the failures of an item.
    pub(crate) fn forget_failures(&self, item: ItemId) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(&item);
    }

    /// Calls for a look at an item.
    pub(crate) fn call_item(&self, item: ItemId) {
        self.begun.store(true, Ordering::Release);
        self.called.lock().unwrap_or_else(PoisonError::into_inner).insert(item);
        self.wake.notify_one();
    }

    /// Takes the items that were called for.
    pub(crate) fn take(&self) -> BTreeSet<ItemId> {
        std::mem::take(&mut *self.called.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that the question about an item is being asked, until the returned value is dropped.
    pub(crate) fn begin_asking(&self, item: ItemId) -> AskingItem {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner).insert(item);
        AskingItem { item, asking: Arc::clone(&self.asking) }
    }

    /// Notes that the question about an item is being asked, as [`Self::begin_asking`] does. Returns `None` while another task asks it.
    pub(crate) fn try_asking(&self, item: ItemId) -> Option<AskingItem> {
        let is_free = self.asking.lock().unwrap_or_else(PoisonError::into_inner).insert(item);
        is_free.then(|| AskingItem { item, asking: Arc::clone(&self.asking) })
    }

    /// Notes that a plan of the autopilot, or an attempt of one, has changed.
    pub(crate) fn note_pilot(&self) {
        self.pilot.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// Watches for changes of plans of the autopilot and of their attempts, from now on.
    pub(crate) fn watch_pilot(&self) -> watch::Receiver<u64> {
        self.pilot.subscribe()
    }

    /// Sets what follows the last turn of an attempt.
    pub(crate) fn order_turn(&self, item: ItemId, order: AttemptOrder) {
        self.turn_orders.lock().unwrap_or_else(PoisonError::into_inner).insert(item, order);
    }

    /// Returns what follows the last turn of an attempt, if that was decided.
    pub(crate) fn turn_order(&self, item: ItemId) -> Option<AttemptOrder> {
        self.turn_orders.lock().unwrap_or_else(PoisonError::into_inner).get(&item).cloned()
    }

    /// Forgets what was to follow a turn: it was done, or the attempt is over.
    pub(crate) fn forget_order(&self, item: ItemId) {
        self.turn_orders.lock().unwrap_or_else(PoisonError::into_inner).remove(&item);
    }

    /// Returns true once there was an item.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }
}

/// A question that is being asked.
#[derive(Debug)]
pub(crate) struct AskingItem {
    item: ItemId,
    asking: Arc<Mutex<BTreeSet<ItemId>>>,
}

impl Drop for AskingItem {
    fn drop(&mut self) {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.item);
    }
}

/// The ledger's entry about an item or a step of it.
pub(crate) fn worked(journal: &Journal, item: &WorkItem, step: &str, state: &str, reason: &str) -> Op {
    let reason = reason.chars().take(crate::outcome::MAX_SUMMARY).collect();
    let (step, state) = (step.to_owned(), state.to_owned());
    let fact = Fact::Worked { item: item.id, step, state, reason };
    journal.entry(item.session, None, fact)
}

/// The change of an item's state, as it was read, with the entry about it.
pub(crate) fn change_state(journal: &Journal, item: &WorkItem, state: WorkState, why: &str) -> Vec<Op> {
    let change = ItemMove {
        item: item.id,
        version: item.version,
        state,
        is_active: !state.is_over(),
        reason: why.to_owned(),
        at: journal.clock.now(),
    };
    vec![worked(journal, item, "", state.name(), why), Op::Work(WorkOp::Move(change))]
}

/// Returns the id under which the message is sent that begins an attempt.
pub(crate) fn attempt_id(item: &WorkItem, step: usize, n: u32) -> String {
    // Another plan has other steps under the same numbers.
    format!("{}/{}/{step}/{n}", item.id, item.round)
}

/// The word before the number of a continuation in the id of its message.
const HOLD: &str = "/hold";

/// Returns the id under which the message is sent with which an attempt goes on after it was held so many times.
pub(crate) fn continued_id(begun: &str, holds: u32) -> String {
    format!("{begun}{HOLD}{holds}")
}

/// Returns the id under which the message of a later turn of an attempt is sent.
pub(crate) fn turn_id(begun: &str, turn: u32) -> String {
    format!("{begun}/turn{turn}")
}

/// Returns the ids of the messages of an attempt that were sent before one of them.
pub(crate) fn earlier_ids(client_id: &str) -> Vec<String> {
    let Some((begun, holds)) = client_id.rsplit_once(HOLD) else { return Vec::new() };
    let holds: u32 = holds.parse().unwrap_or_default();
    std::iter::once(begun.to_owned()).chain((1..holds).map(|hold| continued_id(begun, hold))).collect()
}

/// Returns the state of the work item that an action of its session belongs to, if nothing of the item may be done any more.
/// What the owner applies or undoes of its changes is the owner's own, and stays possible.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn ended_item(
    journal: &Journal,
    session: &Session,
    prepared: &Prepared,
) -> Result<Option<WorkState>, StoreError> {
    let Some(work) = session.terms.work.filter(|_| !outlives(prepared)) else { return Ok(None) };
    let item = journal.store.work_item(work.item).await?;
    Ok(item.map(|item| item.state).filter(|state| state.is_over()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_has_all_of_its_messages_before_the_last() {
        assert_eq!(earlier_ids("item/0/2/1"), Vec::<String>::new());
        assert_eq!(earlier_ids(&continued_id("item/0/2/1", 1)), ["item/0/2/1"]);
        let third = earlier_ids(&continued_id("item/0/2/1", 3));
        assert_eq!(third, ["item/0/2/1", "item/0/2/1/hold1", "item/0/2/1/hold2"]);
    }
}
