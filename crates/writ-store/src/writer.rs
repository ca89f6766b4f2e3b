//! The one writer: a thread that writes all waiting batches in one transaction.
//!
//! A batch that follows others has its own savepoint, so that a failing one takes nothing with it. If the whole
//! transaction fails, each of its batches is tried once more in a transaction of its own.

use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::batch::{Batch, Durability, Op, Receipt};
use crate::config::{Killer, MAX_GROUP_BATCHES, WRITER_QUEUE};
use crate::error::StoreError;
use crate::ledger::append::Tail;

mod apply;

type Reply = oneshot::Sender<Result<Receipt, StoreError>>;

/// A batch and who waits for it.
struct Job {
    work: Work,
    reply: Reply,
}

/// What is to be written for one caller.
struct Work {
    /// Written whatever becomes of the batch; if it cannot be, the batch is not written either.
    first: Vec<Op>,
    batch: Batch,
}

/// The way to the writer; dropping it ends the thread after what waits is written.
#[derive(Debug)]
pub(crate) struct WriterHandle {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl WriterHandle {
    pub(crate) fn start(conn: Connection, tail: Tail, killer: Killer) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel(WRITER_QUEUE);
        let writer = Writer { conn, tail, killer, transactions: 0, synced: true, written: false };
        let thread = std::thread::Builder::new()
            .name("writ-store".to_owned())
            .spawn(move || writer.run(queue))
            .map_err(|error| StoreError::Path {
                path: "writer thread".to_owned(),
                message: error.to_string(),
            })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    pub(crate) async fn commit(&self, first: Vec<Op>, batch: Batch) -> Result<Receipt, StoreError> {
        let (reply, answer) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or(StoreError::Closed)?;
        jobs.send(Job { work: Work { first, batch }, reply }).await.map_err(|_| StoreError::Closed)?;
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

struct Writer {
    conn: Connection,
    tail: Tail,
    killer: Killer,
    transactions: u64,
    synced: bool,
    /// Whether the open transaction has written something already.
    written: bool,
}

impl Writer {
    fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        let mut group = Vec::new();
        while queue.blocking_recv_many(&mut group, MAX_GROUP_BATCHES) > 0 {
            self.write(std::mem::take(&mut group));
        }
    }

    fn write(&mut self, jobs: Vec<Job>) {
        let (batches, replies): (Vec<Work>, Vec<Reply>) =
            jobs.into_iter().map(|job| (job.work, job.reply)).unzip();
        let results = match self.transact(&batches) {
            Ok(results) => results,
            Err(error) if batches.len() == 1 => vec![Err(error)],
            Err(_) => batches.iter().map(|batch| self.transact_alone(batch)).collect(),
        };
        for (reply, result) in replies.into_iter().zip(results) {
            // Nobody waits any more: the batch is written all the same.
            let _ = reply.send(result);
        }
    }

    fn transact_alone(&mut self, batch: &Work) -> Result<Receipt, StoreError> {
        let results = self.transact(std::slice::from_ref(batch))?;
        results.into_iter().next().unwrap_or(Err(StoreError::Closed))
    }

    /// Writes a group in one transaction: a result for each batch, or the error that undid all.
    fn transact(&mut self, batches: &[Work]) -> Result<Vec<Result<Receipt, StoreError>>, StoreError> {
        let before = self.tail.clone();
        let written = self.write_group(batches);
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

    fn write_group(&mut self, batches: &[Work]) -> Result<Vec<Result<Receipt, StoreError>>, StoreError> {
        self.set_durability(batches)?;
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        self.written = false;
        let size = self.tail.size();
        let mut results = Vec::with_capacity(batches.len());
        for batch in batches {
            results.push(self.write_work(batch)?);
        }
        self.tail.seal(&self.conn, size)?;
        self.killer.pass("store.before_commit");
        self.conn.execute_batch("COMMIT")?;
        self.killer.pass("store.after_commit");
        self.transactions += 1;
        self.forget_log(batches);
        for receipt in results.iter_mut().flatten() {
            receipt.transaction = self.transactions;
        }
        Ok(results)
    }

    /// Writes what one caller wants; the outer error is that of [`Self::write_ops`].
    fn write_work(&mut self, work: &Work) -> Result<Result<Receipt, StoreError>, StoreError> {
        if !work.first.is_empty()
            && let Err(error) = self.write_ops(&work.first)?
        {
            return Ok(Err(error));
        }
        self.write_ops(&work.batch.ops)
    }

    /// Writes operations, all or none. The outer error means that the transaction itself is gone.
    fn write_ops(&mut self, ops: &[Op]) -> Result<Result<Receipt, StoreError>, StoreError> {
        let before = self.tail.clone();
        // A savepoint copies every page that is changed after it; the first of a transaction needs none.
        let (begin, keep, undo) = match self.written {
            true => ("SAVEPOINT batch", "RELEASE batch", "ROLLBACK TO batch; RELEASE batch"),
            false => ("", "", "ROLLBACK; BEGIN IMMEDIATE"),
        };
        self.conn.execute_batch(begin)?;
        match apply::apply(&self.conn, &mut self.tail, ops) {
            Ok(receipt) => {
                self.conn.execute_batch(keep)?;
                self.written = true;
                Ok(Ok(receipt))
            }
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
        let erased = |op: &Op| matches!(op, Op::ErasePayload { .. } | Op::Forget { .. });
        if batches.iter().any(|work| work.first.iter().chain(&work.batch.ops).any(erased)) {
            // A reader may hold the log for a moment; the next checkpoint empties it then.
            let emptied = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            if let Err(error) = emptied {
                tracing::warn!(%error, "the write-ahead log could not be emptied after an erasure");
            }
        }
    }

    /// Syncs the transaction unless nobody in it asks for that.
    fn set_durability(&mut self, batches: &[Work]) -> Result<(), StoreError> {
        let synced = batches.iter().any(|work| work.batch.durability == Durability::Synced);
        if synced != self.synced {
            self.conn.pragma_update(None, "synchronous", if synced { "FULL" } else { "NORMAL" })?;
            self.synced = synced;
        }
        Ok(())
    }
}
