//! The units with spans that are not written yet.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Notify, RwLock};
use writ_autopilot::unit_id::UnitId;

/// Starts the task that writes spans.
type StartWriter = Box<dyn Fn() + Send + Sync>;

/// The trace of an open project: a unit stands in the queue once, however much of it has happened.
#[derive(Default)]
pub(crate) struct SpanQueue {
    waiting: Mutex<WaitingUnits>,
    start: OnceLock<StartWriter>,
    /// Wakes those that wait for the spans of a unit.
    changed: Notify,
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
    /// Those of them that a person waits for: they come first.
    wanted: BTreeSet<UnitId>,
    /// True while a task writes.
    is_written: bool,
    /// The unit that is taken.
    taken: Option<UnitId>,
    /// The number of writes that have failed, and the last of them.
    failures: u64,
    last_failure: Option<(UnitId, String)>,
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
        self.enter(unit, false);
    }

    /// Has the spans of a unit written as [`Self::emit`] does, but next, and waits for it. Returns the reason if they cannot be written
    /// now.
    pub(crate) async fn write_next(&self, unit: UnitId) -> Result<(), String> {
        let mut failures = self.lock().failures;
        self.enter(unit, true);
        loop {
            // Before the look, so that no change between look and wait is missed.
            let changed = self.changed.notified();
            let has_ended = {
                let waiting = self.lock();
                let has_ended = std::mem::replace(&mut failures, waiting.failures) != waiting.failures;
                match &waiting.last_failure {
                    Some((failed, why)) if has_ended && *failed == unit => return Err(why.clone()),
                    _ if !waiting.units.contains(&unit) && waiting.taken != Some(unit) => return Ok(()),
                    _ => has_ended,
                }
            };
            if has_ended {
                // With the failure of another unit.
                self.enter(unit, true);
            }
            changed.await;
        }
    }

    fn enter(&self, unit: UnitId, is_wanted: bool) {
        let must_start = {
            let mut waiting = self.lock();
            waiting.units.insert(unit);
            if is_wanted {
                waiting.wanted.insert(unit);
            }
            self.start.get().is_some() && !std::mem::replace(&mut waiting.is_written, true)
        };
        if let Some(start) = self.start.get().filter(|_| must_start) {
            start();
        }
    }

    /// Takes the next unit; `None`: the task ends.
    pub(crate) fn take(&self) -> Option<UnitId> {
        let mut waiting = self.lock();
        let unit = match waiting.wanted.pop_first() {
            Some(unit) => {
                waiting.units.remove(&unit);
                Some(unit)
            }
            None => waiting.units.pop_first(),
        };
        waiting.is_written = unit.is_some();
        waiting.taken = unit;
        self.changed.notify_waiters();
        unit
    }

    /// Puts a unit back after a failed write of its spans, and ends the task: the next unit brings another try.
    pub(crate) fn put_back(&self, unit: UnitId, why: String) {
        let mut waiting = self.lock();
        waiting.units.insert(unit);
        waiting.is_written = false;
        waiting.taken = None;
        waiting.failures = waiting.failures.saturating_add(1);
        waiting.last_failure = Some((unit, why));
        self.changed.notify_waiters();
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
        queue.put_back(first, "the disk is full".to_owned());
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

    /// A unit that a person waits for comes first. The wait ends with its write or with its failure, and outlasts the failure of another
    /// unit.
    #[tokio::test]
    async fn a_wait_ends_with_the_write_of_its_unit() {
        let (queue, started) = (SpanQueue::default(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&started);
        queue.set_writer(Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        }));
        let (other, unit) = (UnitId::Task(1, 1, 1), UnitId::Task(1, 1, 2));
        let why = || "the disk is full".to_owned();
        queue.emit(other);
        assert_eq!(queue.take(), Some(other));
        let (failed, ()) = tokio::join!(queue.write_next(unit), async {
            queue.put_back(other, why());
            while started.load(Ordering::SeqCst) < 2 {
                tokio::task::yield_now().await;
            }
            assert_eq!(queue.take(), Some(unit));
            queue.put_back(unit, why());
        });
        assert_eq!(failed, Err(why()));
        let (written, ()) = tokio::join!(queue.write_next(unit), async {
            assert_eq!((queue.take(), queue.take(), queue.take()), (Some(unit), Some(other), None));
        });
        assert_eq!(written, Ok(()));
    }
}
