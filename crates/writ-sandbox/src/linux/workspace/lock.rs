//! Whose turn it is with a work folder.

use std::path::Path;
use std::sync::{Arc, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::Workspace;
use crate::linux::{Inner, WriteLock};

impl Inner {
    /// The lock that all handles on one folder share.
    pub(super) fn lock_of(&self, dir: &Path) -> WriteLock {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(dir).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = WriteLock::default();
        locks.insert(dir.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

impl Workspace {
    /// The same folder, for work that does not wait for others who use the folder once `cancel` is cancelled: then
    /// it ends with [`SandboxError::Cancelled`](crate::error::SandboxError::Cancelled) or
    /// [`ApplyError::Cancelled`](crate::apply::ApplyError::Cancelled), and nothing was done. Where nobody uses
    /// the folder, the work is done all the same; a program has a token of its own.
    #[must_use]
    pub fn until(&self, cancel: &CancellationToken) -> Self {
        Self { cancel: cancel.clone(), ..self.clone() }
    }

    /// Waits until nobody else uses the folder; `None`: cancelled.
    pub(super) async fn lock(&self) -> Option<OwnedMutexGuard<()>> {
        tokio::select! {
            biased;
            held = Arc::clone(&self.write).lock_owned() => Some(held),
            () = self.cancel.cancelled() => None,
        }
    }
}
