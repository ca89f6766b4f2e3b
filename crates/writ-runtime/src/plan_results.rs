//! Plans on their way to a person: the turns that wait until theirs was handed over, and the ids of tasks to be proposed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use writ_types::id::{AskId, ItemId, MessageId, SessionId};

/// The kind of a message that has a task proposed, as a gate's block does.
const SPAWN_TASK: &str = "spawn_task";

/// Writes the id of a message that has a task proposed.
pub(crate) fn task_id(message: MessageId) -> String {
    format!("{SPAWN_TASK}/{message}")
}

/// Returns true for ids of messages that have a task proposed.
pub(crate) fn is_task(id: &str) -> bool {
    id.strip_prefix(SPAWN_TASK).is_some_and(|rest| rest.starts_with('/'))
}

/// The result of handing a plan to a person.
#[derive(Debug)]
pub(crate) enum Handed {
    /// A card waits, with the item that its approval begins.
    Asked(ItemId, AskId),
    /// It cannot be asked about, with the reason.
    Refused(String),
}

/// A result's session and its id there.
type ResultKey = (SessionId, String);

/// The waiting turns, at most one for each turn that runs, and the wake-up of the loop that hands plans over.
#[derive(Debug, Default)]
pub(crate) struct PlanResults {
    waiting: Mutex<BTreeMap<ResultKey, oneshot::Sender<Handed>>>,
    pub(crate) wake: Notify,
}

impl PlanResults {
    /// Registers a turn that waits for the outcome of a result.
    pub(crate) fn register(&self, session: SessionId, id: &str) -> oneshot::Receiver<Handed> {
        let (sender, receiver) = oneshot::channel();
        self.lock().insert((session, id.to_owned()), sender);
        receiver
    }

    /// Hands the outcome of a result to the turn that waits for it, if one does.
    pub(crate) fn settle(&self, session: SessionId, id: &str, handed: Handed) {
        let waiting = self.lock().remove(&(session, id.to_owned()));
        // A turn that was stopped meanwhile receives nothing; its next run finds the message done.
        let _unheard = waiting.map(|sender| sender.send(handed));
    }

    /// Forgets a turn that waits no longer.
    pub(crate) fn forget(&self, session: SessionId, id: &str) {
        self.lock().remove(&(session, id.to_owned()));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ResultKey, oneshot::Sender<Handed>>> {
        // Each change is one call of the map: a panic elsewhere cannot leave it half-written.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
