//! Work that rests on a person's approval: which approved requests are being performed, and what stops when one is revoked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use writ_store::reads::ApprovalReads as _;

use tokio_util::sync::CancellationToken;
use writ_types::id::AskId;

use crate::error::EngineError;
use crate::journal::Journal;

/// Registry of the work that runs on approvals: attempts, and servers that an attempt started.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApprovedWork(Arc<Mutex<RunningWork>>);

/// Each with what stops it.
#[derive(Debug, Default)]
struct RunningWork {
    next: u64,
    by_number: BTreeMap<u64, (AskId, CancellationToken)>,
}

/// Something that runs on an approval; it is forgotten when this is dropped.
#[derive(Debug)]
pub(crate) struct WorkGuard {
    acting: ApprovedWork,
    number: u64,
    stop: CancellationToken,
}

impl ApprovedWork {
    /// Every holder leaves the map whole, so poison is ignored.
    fn running(&self) -> MutexGuard<'_, RunningWork> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that something begins on an approval; `cancel` stops it as well.
    pub(crate) fn begin(&self, ask: &AskId, cancel: &CancellationToken) -> WorkGuard {
        let stop = cancel.child_token();
        let mut running = self.running();
        let number = running.next;
        running.next = number.wrapping_add(1);
        running.by_number.insert(number, (ask.clone(), stop.clone()));
        WorkGuard { acting: self.clone(), number, stop }
    }

    /// Returns true if an attempt or a server runs on this approval.
    pub(crate) fn is_on(&self, ask: &AskId) -> bool {
        self.running().by_number.values().any(|(on, _)| on == ask)
    }

    /// Stops what runs on an approval; how many that were.
    pub(crate) fn stop(&self, ask: &AskId) -> usize {
        let running = self.running();
        let on = running.by_number.values().filter(|(on, _)| on == ask);
        on.map(|(_, stop)| stop.cancel()).count()
    }
}

impl WorkGuard {
    /// Returns the token that stops this work.
    pub(crate) const fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        self.acting.running().by_number.remove(&self.number);
    }
}

/// Approved work of an engine.
#[derive(Debug)]
pub(crate) struct Approved {
    journal: Arc<Journal>,
    /// Requests that are being performed: their intents are open, but nothing of them is unknown.
    performing: Mutex<BTreeSet<AskId>>,
    pub(crate) acting: ApprovedWork,
}

impl Approved {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        Self { journal, performing: Mutex::default(), acting: ApprovedWork::default() }
    }

    /// The approved asks that are being performed. Every holder leaves the set whole, so poison is ignored.
    pub(crate) fn performing(&self) -> MutexGuard<'_, BTreeSet<AskId>> {
        self.performing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_performing(&self, ask: &AskId) -> bool {
        self.performing().contains(ask)
    }

    /// Notes that an attempt or a server begins on an approval. One that was taken back since its use was written stops it at once.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn begin_on(
        &self,
        ask: &AskId,
        cancel: &CancellationToken,
    ) -> Result<WorkGuard, EngineError> {
        // Registered before the store is read: a revocation writes first and stops what is registered then, so one sees the other.
        let begun = self.acting.begin(ask, cancel);
        if self.journal.store.approval(ask).await?.is_some_and(|approval| approval.revoked) {
            begun.stop().cancel();
        }
        Ok(begun)
    }
}
