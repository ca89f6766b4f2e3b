//! The pool of threads that read for async callers.
//!
//! A read is handed over by a queue and answered by a oneshot channel, so that no thread of an async runtime waits for
//! a connection or a disk. A thread is started when a read finds none idle, up to [`READERS`], and has its own
//! connection with its own prepared statements. Brief reads, of a few rows by an index, are done on the caller's thread
//! where that need not wait for a connection.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::bounds::{BRIEF_READERS, READ_QUEUE, READERS};
use crate::error::StoreError;
use crate::readers::{ReadSource, Reader};

/// A read on its way: given a connection, or the reason why there is none. Returns false if the connection may be in
/// the middle of something and must not be used again.
type ReadJob = Box<dyn FnOnce(Result<&Reader, StoreError>) -> bool + Send>;

/// The threads; dropping it joins them after the reads that run.
pub(crate) struct ReadPool {
    shared: Arc<PoolState>,
    room: Arc<Semaphore>,
    /// Connections for reads on the caller's thread, each opened when it is first used.
    brief: [Mutex<Option<Reader>>; BRIEF_READERS],
    /// The numbers of reads so far: handed over, and brief.
    counts: [AtomicU64; 2],
}

struct PoolState {
    source: ReadSource,
    state: Mutex<PoolQueue>,
    handed_over: Condvar,
}

#[derive(Default)]
struct PoolQueue {
    jobs: VecDeque<ReadJob>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that wait for a job, those included that were woken and have not taken it yet.
    idle: usize,
    is_closed: bool,
}

impl ReadPool {
    pub(crate) fn new(source: ReadSource) -> Self {
        let shared = PoolState { source, state: Mutex::default(), handed_over: Condvar::new() };
        let brief = std::array::from_fn(|_| Mutex::default());
        let (room, counts) = (Arc::new(Semaphore::new(READ_QUEUE)), Default::default());
        Self { shared: Arc::new(shared), room, brief, counts }
    }

    /// Returns the numbers of reads that were handed over to a thread, and of those on the caller's.
    pub(crate) fn read_counts(&self) -> (u64, u64) {
        let [handed_over, brief] = &self.counts;
        (handed_over.load(Ordering::Relaxed), brief.load(Ordering::Relaxed))
    }

    /// Runs `read` on a thread of the pool. Dropping the future leaves out a read that has not begun.
    ///
    /// # Errors
    ///
    /// The read's own; that no thread or connection can be had; that the read has panicked.
    pub(crate) async fn run<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    {
        let permit = Arc::clone(&self.room).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (reply, answer) = oneshot::channel();
        let [handed_over, _] = &self.counts;
        handed_over.fetch_add(1, Ordering::Relaxed);
        self.hand_over(job(read, reply, permit))?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Runs a read of a few rows by an index on the caller's thread if a connection is free, and else on one of the pool.
    ///
    /// # Errors
    ///
    /// Those of [`ReadPool::run`].
    pub(crate) async fn run_brief<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    {
        // Handing a read over wakes two threads in a row, which takes several times as long as such a read.
        match self.run_here(read) {
            Ok(result) => result,
            Err(read) => self.run(read).await,
        }
    }

    /// Runs a read on this thread, or gives it back if no connection is free.
    fn run_here<T, F>(&self, read: F) -> Result<Result<T, StoreError>, F>
    where
        F: FnOnce(&Reader) -> Result<T, StoreError>,
    {
        // Never waits for the lock: the caller's thread belongs to an async runtime.
        let Some(mut place) = self.brief.iter().find_map(|place| place.try_lock().ok()) else {
            return Err(read);
        };
        let [_, brief] = &self.counts;
        brief.fetch_add(1, Ordering::Relaxed);
        let reader = match place.take() {
            Some(reader) => reader,
            None => match self.shared.source.open() {
                Ok(reader) => reader,
                Err(error) => return Ok(Err(error)),
            },
        };
        let Ok(result) = catch_unwind(AssertUnwindSafe(|| read(&reader))) else {
            // The connection may be in the middle of something: it is closed.
            return Ok(Err(StoreError::ReadPanicked));
        };
        *place = Some(reader);
        Ok(result)
    }

    fn hand_over(&self, job: ReadJob) -> Result<(), StoreError> {
        let mut state = self.shared.lock();
        // As many jobs as idle threads already stand in the queue, so none is free for this one.
        if state.jobs.len() >= state.idle && state.threads.len() < READERS {
            match self.shared.spawn(state.threads.len()) {
                Ok(thread) => state.threads.push(thread),
                // Fewer threads than wanted still read, only later.
                Err(error) if state.threads.is_empty() => return Err(error),
                Err(error) => tracing::warn!(%error, "a thread that reads could not be started"),
            }
        }
        state.jobs.push_back(job);
        // Woken after the lock is free, so that the thread does not wake only to wait for it.
        drop(state);
        self.shared.handed_over.notify_one();
        Ok(())
    }
}

/// A read as a job: answers `reply`, and gives its place in the queue back.
fn job<T, F>(read: F, reply: oneshot::Sender<Result<T, StoreError>>, permit: OwnedSemaphorePermit) -> ReadJob
where
    T: Send + 'static,
    F: FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
{
    Box::new(move |reader| {
        drop(permit);
        if reply.is_closed() {
            return true;
        }
        // The thread outlives a read that panics; what the read has borrowed is not used again.
        let done = reader.map(|reader| catch_unwind(AssertUnwindSafe(|| read(reader))));
        let (is_whole, result) = match done {
            Ok(Ok(result)) => (true, result),
            Ok(Err(_)) => (false, Err(StoreError::ReadPanicked)),
            Err(error) => (true, Err(error)),
        };
        // An answer that is not waited for any more is dropped.
        let _unread = reply.send(result);
        is_whole
    })
}

impl Drop for ReadPool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.shared.handed_over.notify_all();
        for thread in threads {
            // A panic outside a read has already been reported by the panic hook.
            let _ended = thread.join();
        }
    }
}

impl PoolState {
    fn lock(&self) -> MutexGuard<'_, PoolQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(self: &Arc<Self>, number: usize) -> Result<JoinHandle<()>, StoreError> {
        let own = Arc::clone(self);
        std::thread::Builder::new().name(format!("writ-read-{number}")).spawn(move || own.serve()).map_err(
            |error| StoreError::Path { path: "reading thread".to_owned(), message: error.to_string() },
        )
    }

    /// Runs jobs until the pool is closed.
    fn serve(&self) {
        let mut reader = None;
        while let Some(job) = self.next_job() {
            let opened = match reader.take() {
                Some(open) => Ok(open),
                None => self.source.open(),
            };
            // A connection that a panic may have left in a transaction is closed, and the next job opens another.
            match opened {
                Ok(open) => reader = job(Ok(&open)).then_some(open),
                Err(error) => {
                    job(Err(error));
                }
            }
        }
    }

    fn next_job(&self) -> Option<ReadJob> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state.idle += 1;
            state = self.handed_over.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

impl fmt::Debug for ReadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadPool").field("threads", &self.shared.lock().threads.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
