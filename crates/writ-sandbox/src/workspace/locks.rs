//! The locks of work folders: one for each folder, however many handles there are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The lock of a work folder: it is mounted for writing once at a time.
pub(crate) type WriteLock = Arc<tokio::sync::Mutex<()>>;

/// The locks of the folders that are open.
#[derive(Debug, Default)]
pub(crate) struct FolderLocks(Mutex<BTreeMap<PathBuf, Weak<tokio::sync::Mutex<()>>>>);

impl FolderLocks {
    /// Returns the lock that all handles on one folder share.
    pub(crate) fn lock_of(&self, dir: &Path) -> WriteLock {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Locks of folders that are closed go, so the map does not grow.
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(dir).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = WriteLock::default();
        locks.insert(dir.to_owned(), Arc::downgrade(&lock));
        lock
    }
}
