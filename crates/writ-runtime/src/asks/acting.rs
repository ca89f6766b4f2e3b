//! What runs on an approval that may be taken back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use writ_types::id::{AskId, AttemptId};

/// The attempts that run on approvals, each with what stops it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acting(Arc<Mutex<BTreeMap<AttemptId, (AskId, CancellationToken)>>>);

/// One attempt that runs; it is forgotten when this is dropped.
#[derive(Debug)]
pub(crate) struct Begun {
    acting: Acting,
    attempt: AttemptId,
    stop: CancellationToken,
}

impl Acting {
    /// Every holder leaves the map whole, so poison is ignored.
    fn attempts(&self) -> MutexGuard<'_, BTreeMap<AttemptId, (AskId, CancellationToken)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an attempt begins on an approval; `cancel` stops it as well.
    pub(crate) fn begin(&self, ask: &AskId, attempt: AttemptId, cancel: &CancellationToken) -> Begun {
        let stop = cancel.child_token();
        self.attempts().insert(attempt, (ask.clone(), stop.clone()));
        Begun { acting: self.clone(), attempt, stop }
    }

    /// Whether anything runs on an approval.
    pub(crate) fn is_on(&self, ask: &AskId) -> bool {
        self.attempts().values().any(|(on, _)| on == ask)
    }

    /// Stops what runs on an approval; how many attempts that were.
    pub(crate) fn stop(&self, ask: &AskId) -> usize {
        let attempts = self.attempts();
        let on = attempts.values().filter(|(on, _)| on == ask);
        on.map(|(_, stop)| stop.cancel()).count()
    }
}

impl Begun {
    /// What stops the attempt.
    pub(crate) const fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.acting.attempts().remove(&self.attempt);
    }
}
