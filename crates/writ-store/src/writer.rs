//! The one writer: a thread that writes all waiting batches in one transaction.
//!
//! A batch that follows others has its own savepoint, so that a failing one takes nothing with it. If the whole
//! transaction fails, each of its batches is tried once more in a transaction of its own.
//!
//! A batch that need not be synced, and before which none waits, is written by its caller's own thread: that takes as
//! long as a few reads, and less than waking the writer and being woken by it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::batch::{Batch, Durability, Op, Receipt, SessionOp, WriteResults};
use crate::bounds::{MAX_GROUP_BATCHES, WRITER_QUEUE};
use crate::codec::execute;
use crate::config::Killer;
use crate::error::StoreError;
use crate::ledger::append::Tail;
use crate::marks::{StoreMarks, leaves_consent};

mod apply;

/// The outer error means that nothing was written.
type WriteResult = Result<WriteResults, StoreError>;
type Reply = oneshot::Sender<WriteResult>;

/// A batch and who waits for it.
struct WriteJob {
    work: Work,
    reply: Reply,
}

/// The operations of one caller.
struct Work {
    /// Written even if the batch is refused; if these cannot be written, the batch is not written either.
    first: Vec<Op>,
    batch: Batch,
}

/// The way to the writer; dropping it ends the thread after what waits is written.
#[derive(Debug)]
pub(crate) struct WriterHandle {
    jobs: Option<mpsc::Sender<WriteJob>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<WriterState>,
}

/// The state that the writer's thread shares with its callers.
struct WriterState {
    writer: Mutex<Writer>,
    /// Batches that were sent to the thread and are not written yet; wraps for a moment when one is written before it
    /// is counted.
    waiting: AtomicUsize,
}

impl WriterHandle {
    /// Starts the thread, which sets the marks.
    pub(crate) fn start(
        conn: Connection,
        tail: Tail,
        killer: Killer,
        marks: Arc<StoreMarks>,
    ) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel(WRITER_QUEUE);
        let writer = Writer { conn, tail, killer, marks, synced: true, written: false };
        let shared = Arc::new(WriterState { writer: Mutex::new(writer), waiting: AtomicUsize::new(0) });
        let own = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("writ-store".to_owned()).spawn(move || own.run(queue)).map_err(
                |error| StoreError::Path { path: "writer thread".to_owned(), message: error.to_string() },
            )?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), shared })
    }

    pub(crate) async fn commit(&self, first: Vec<Op>, batch: Batch) -> WriteResult {
        let jobs = self.jobs.as_ref().ok_or(StoreError::Closed)?;
        let work = Work { first, batch };
        // Without a sync, waking the writer would cost more than the write.
        if work.batch.durability == Durability::Relaxed
            && let Some(mut writer) = self.shared.idle()
        {
            return writer.transact_alone(&work);
        }
        let (reply, answer) = oneshot::channel();
        jobs.send(WriteJob { work, reply }).await.map_err(|_| StoreError::Closed)?;
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

impl Drop for WriterHandle {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the writer was already answered by `Closed`.
            let _ = thread.join();
        }
    }
}

impl WriterState {
    fn run(&self, mut queue: mpsc::Receiver<WriteJob>) {
        let mut group = Vec::new();
        loop {
            let count = queue.blocking_recv_many(&mut group, MAX_GROUP_BATCHES);
            if count == 0 {
                return;
            }
            // A panic has left the connection without a transaction or in one that the next rolls back.
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            writer.write(std::mem::take(&mut group));
            drop(writer);
            self.waiting.fetch_sub(count, Ordering::AcqRel);
        }
    }

    /// The writer, if it does nothing and nothing waits for it.
    fn idle(&self) -> Option<MutexGuard<'_, Writer>> {
        if self.waiting.load(Ordering::Acquire) > 0 {
            return None;
        }
        self.writer.try_lock().ok()
    }
}

impl std::fmt::Debug for WriterState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriterState").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

struct Writer {
    conn: Connection,
    tail: Tail,
    killer: Killer,
    marks: Arc<StoreMarks>,
    synced: bool,
    /// True if the open transaction has written something already.
    written: bool,
}

impl Writer {
    fn write(&mut self, jobs: Vec<WriteJob>) {
        let (batches, replies): (Vec<Work>, Vec<Reply>) =
            jobs.into_iter().map(|job| (job.work, job.reply)).unzip();
        let results = match self.transact(&batches) {
            Ok(results) => results,
            Err(error) if batches.len() == 1 => vec![Err(error)],
            // One batch must not fail another that only shares its transaction.
            Err(_) => batches.iter().map(|batch| self.transact_alone(batch)).collect(),
        };
        for (reply, result) in replies.into_iter().zip(results) {
            // The caller may have stopped waiting: the batch is written nevertheless.
            let _ = reply.send(result);
        }
    }

    fn transact_alone(&mut self, batch: &Work) -> WriteResult {
        let results = self.transact(std::slice::from_ref(batch))?;
        results.into_iter().next().unwrap_or(Err(StoreError::Closed))
    }

    /// Writes a group in one transaction: a result for each batch, or the error that undid all.
    fn transact(&mut self, batches: &[Work]) -> Result<Vec<WriteResult>, StoreError> {
        // The tail is in memory, so a rollback has to restore it by hand.
        let before = self.tail.clone();
        let written = self.write_group(batches);
        // Before anyone learns of the commit, and also after an error, which may have come after it.
        self.note_consent(batches);
        if written.is_err() {
            self.tail = before;
            if !self.conn.is_autocommit()
                && let Err(error) = self.conn.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "the store could not roll back");
            }
        }
        written
    }

    fn write_group(&mut self, batches: &[Work]) -> Result<Vec<WriteResult>, StoreError> {
        // Before the transaction: SQLite changes this setting in none.
        self.set_durability(batches)?;
        self.note_revocations(batches);
        execute(&self.conn, "BEGIN IMMEDIATE", [])?;
        self.written = false;
        let size = self.tail.size();
        let mut results = Vec::with_capacity(batches.len());
        for batch in batches {
            results.push(self.write_work(batch)?);
        }
        // Once for the group: one signature over its last entry covers the others.
        self.tail.seal(&self.conn, size)?;
        self.killer.pass("store.before_commit");
        execute(&self.conn, "COMMIT", [])?;
        self.killer.pass("store.after_commit");
        let transaction = self.marks.transactions.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.forget_log(batches);
        for written in results.iter_mut().flatten() {
            written.first.transaction = transaction;
            if let Ok(receipt) = &mut written.batch {
                receipt.transaction = transaction;
            }
        }
        Ok(results)
    }

    /// Writes what one caller wants; the outer error is that of [`Self::write_ops`].
    fn write_work(&mut self, work: &Work) -> Result<WriteResult, StoreError> {
        let first = if work.first.is_empty() { Ok(Receipt::default()) } else { self.write_ops(&work.first)? };
        Ok(match first {
            Ok(first) => Ok(WriteResults { first, batch: self.write_ops(&work.batch.ops)? }),
            Err(error) => Err(error),
        })
    }

    /// Writes operations, all or none. The outer error means that the transaction itself was rolled back.
    fn write_ops(&mut self, ops: &[Op]) -> Result<Result<Receipt, StoreError>, StoreError> {
        let before = self.tail.clone();
        // A savepoint copies every page that is changed after it; the first of a transaction needs none.
        let saved = self.written;
        let undo = if saved { "ROLLBACK TO batch; RELEASE batch" } else { "ROLLBACK; BEGIN IMMEDIATE" };
        if saved {
            execute(&self.conn, "SAVEPOINT batch", [])?;
        }
        match apply::apply(&self.conn, &mut self.tail, ops) {
            Ok(receipt) => {
                if saved {
                    execute(&self.conn, "RELEASE batch", [])?;
                }
                self.written = true;
                Ok(Ok(receipt))
            }
            // SQLite has rolled the transaction back, as for a full disk, and the batches before this one with it.
            Err(error) if self.conn.is_autocommit() => Err(error),
            Err(error) => {
                self.tail = before;
                self.conn.execute_batch(undo)?;
                Ok(Err(error))
            }
        }
    }

    /// Empties the write-ahead log after something was erased: it still has the old pages.
    fn forget_log(&self, batches: &[Work]) {
        let erased = |op: &Op| {
            matches!(op, Op::ErasePayload { .. } | Op::Forget { .. })
                || matches!(op, Op::Sessions(SessionOp::Erase { .. } | SessionOp::EndErasure { .. }))
        };
        if batches.iter().any(|work| work.first.iter().chain(&work.batch.ops).any(erased)) {
            // A reader may hold the log for a moment; the next checkpoint empties it then.
            let emptied = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            if let Err(error) = emptied {
                tracing::warn!(%error, "the write-ahead log could not be emptied after an erasure");
            }
        }
    }

    /// Lets those who look up what was revoked do so from here on, before the first revocation is there to be found.
    fn note_revocations(&self, batches: &[Work]) {
        let revokes = |op: &Op| matches!(op, Op::Revoke { .. });
        if batches.iter().any(|work| work.first.iter().chain(&work.batch.ops).any(revokes)) {
            self.marks.revoked.store(true, Ordering::Release);
        }
    }

    /// Lets those who hold what people have approved read it anew.
    fn note_consent(&self, batches: &[Work]) {
        let leaves = |work: &Work| work.first.iter().chain(&work.batch.ops).all(leaves_consent);
        if !batches.iter().all(leaves) {
            self.marks.consent.fetch_add(1, Ordering::Release);
        }
    }

    /// Syncs the transaction unless no batch in it asks for that.
    fn set_durability(&mut self, batches: &[Work]) -> Result<(), StoreError> {
        let synced = batches.iter().any(|work| work.batch.durability == Durability::Synced);
        if synced != self.synced {
            self.conn.pragma_update(None, "synchronous", if synced { "FULL" } else { "NORMAL" })?;
            self.synced = synced;
        }
        Ok(())
    }
}
