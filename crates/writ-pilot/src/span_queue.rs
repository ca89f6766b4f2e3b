//! The units with spans that are not written yet.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::RwLock;
use writ_autopilot::unit_id::UnitId;

/// Starts the task that writes spans.
type StartWriter = Box<dyn Fn() + Send + Sync>;

/// The trace of an open project: a unit stands in the queue once, however much of it has happened.
#[derive(Default)]
pub(crate) struct SpanQueue {
    waiting: Mutex<WaitingUnits>,
    start: OnceLock<StartWriter>,
    /// Held while the spans of a unit are written: two writers would write them twice.
    pub(crate) writing: tokio::sync::Mutex<()>,
    /// Held for writing while files and index differ, and for reading while both are read.
    pub(crate) files: RwLock<()>,
    /// True while the index is known to have all that the files have. After a failed commit it has not, and what is in the files alone would
    /// be written again.
    pub(crate) is_indexed: AtomicBool,
}

#[derive(Debug, Default)]
struct WaitingUnits {
    units: BTreeSet<UnitId>,
    /// True while a task writes.
    is_written: bool,
}

impl fmt::Debug for SpanQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanQueue").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl SpanQueue {
    /// Sets how the task is started. Until then units wait.
    pub(crate) fn set_writer(&self, start: StartWriter) {
        // Set once, when the project is opened.
        let _set = self.start.set(start);
    }

    /// Has the spans of a unit written that are not, by a task in the background. The caller waits for nothing.
    pub(crate) fn emit(&self, unit: UnitId) {
        let must_start = {
            let mut waiting = self.lock();
            waiting.units.insert(unit);
            self.start.get().is_some() && !std::mem::replace(&mut waiting.is_written, true)
        };
        if let Some(start) = self.start.get().filter(|_| must_start) {
            start();
        }
    }

    /// Takes the next unit; `None`: the task ends.
    pub(crate) fn take(&self) -> Option<UnitId> {
        let mut waiting = self.lock();
        let unit = waiting.units.pop_first();
        waiting.is_written = unit.is_some();
        unit
    }

    /// Puts a unit back after a failed write of its spans, and ends the task: the next unit brings another try.
    pub(crate) fn put_back(&self, unit: UnitId) {
        let mut waiting = self.lock();
        waiting.units.insert(unit);
        waiting.is_written = false;
    }

    fn lock(&self) -> MutexGuard<'_, WaitingUnits> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// However many senders hand in units while nothing is written, each unit is written once, by one task at a time; one that could not be
    /// written is not lost.
    ///
    /// Rows: SF-454 (in part: no sender waits, and nothing is lost while nothing can be written)
    #[test]
    fn no_unit_is_lost_and_one_task_writes() {
        let (queue, started) = (Arc::new(SpanQueue::default()), Arc::new(AtomicUsize::new(0)));
        queue.emit(UnitId::Task(1, 1, 1));
        let count = Arc::clone(&started);
        queue.set_writer(Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        }));
        std::thread::scope(|scope| {
            for slice in 1..=4 {
                let queue = &queue;
                scope.spawn(move || (1..=250).for_each(|task| queue.emit(UnitId::Task(1, slice, task))));
            }
        });
        assert_eq!(started.load(Ordering::SeqCst), 1, "it runs already");
        let first = queue.take().expect("one");
        queue.put_back(first);
        queue.emit(first);
        assert_eq!(started.load(Ordering::SeqCst), 2, "it had ended");
        let mut taken = BTreeSet::new();
        while let Some(unit) = queue.take() {
            assert!(taken.insert(unit), "{unit} twice");
        }
        assert_eq!(taken.len(), 1_000);
        queue.emit(first);
        assert_eq!((started.load(Ordering::SeqCst), queue.take()), (3, Some(first)));
    }
}
