//! The store itself: opening, committing, reading.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::Rng as _;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use writ_types::id::InstallationId;
use writ_types::unit::Timestamp;

use crate::batch::{Batch, Op, Receipt, WriteResults};
use crate::bounds::{BUSY_TIMEOUT_MS, MAX_BATCH_OPS, WRITER_CACHE_KIB};
use crate::config::{Killer, StoreConfig};
use crate::error::StoreError;
use crate::ledger::append::Tail;
use crate::ledger::head::{HeadSigner, origin};
use crate::marks::StoreMarks;
use crate::memory::Unsearchable;
use crate::pool::ReadPool;
use crate::queue::Leased;
use crate::readers::{BlockingReads, ReadSource, Reader, STATEMENT_CACHE};
use crate::schema::{MIGRATIONS, check_not_newer, migrate};
use crate::writer::WriterHandle;
use crate::{approvals, filesystem, memory, settings};

/// Pages of the write-ahead log (4 KiB each) after which it is copied into the database: SQLite's own
/// default of 1,000 stalls a busy writer too often.
const WAL_CHECKPOINT_PAGES: u32 = 4_000;

/// The size to which the write-ahead log is truncated once it was copied into the database: a burst of writes does
/// not occupy the disk afterwards.
const WAL_KEPT_BYTES: u32 = 64 * 1024 * 1024;

/// The store of one home. Clones share it; the writer ends when the last one is dropped.
#[derive(Clone)]
pub struct Store {
    shared: Arc<StoreParts>,
}

struct StoreParts {
    // Dropped before the writer: the last connection that closes copies the log into the database, and only
    // the writer can write.
    pool: ReadPool,
    blocking: BlockingReads,
    /// `None`: the store was opened for reading only.
    writer: Option<WriterHandle>,
    installation: InstallationId,
    public_key: [u8; 32],
    marks: Arc<StoreMarks>,
}

/// The work that a store has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreActivity {
    /// Reads that were run by a thread of the pool.
    pub handed_over: u64,
    /// Brief reads that were done on the caller's thread.
    pub brief: u64,
    /// Transactions that were committed.
    pub transactions: u64,
}

impl Store {
    /// Opens the database, creates it if there is none, and starts the writer.
    ///
    /// The end of the ledger is checked against its last signed head; the rest is checked by
    /// `Store::verify_ledger`. The caller must hold the home's [`crate::lock::HomeLock`].
    ///
    /// # Errors
    ///
    /// If the place is not usable (network file system, permissions), the schema is newer or was
    /// changed, the signer's key is not the ledger's, or the ledger's end does not match its head.
    pub fn open(config: &StoreConfig, signer: Arc<dyn HeadSigner>) -> Result<Self, StoreError> {
        // Before SQLite creates the file, which would get the mode of the umask.
        filesystem::make_private(&config.path)?;
        let mut conn = open_writer(config)?;
        migrate(&mut conn, MIGRATIONS)?;
        let installation = settings::ensure_installation(&conn, new_installation)?;
        let public_key = signer.public_key();
        let tail = Tail::load(&conn, &origin(installation), signer, &config.rotations)?;
        let source = ReadSource::new(&config.path, public_key);
        // Read before the writer starts: from then on, the writer sets the mark before each revocation.
        let revoked = approvals::is_anything_revoked(&conn)?.into();
        let marks = Arc::new(StoreMarks { revoked, ..StoreMarks::default() });
        let writer = WriterHandle::start(conn, tail, Killer::new(config), Arc::clone(&marks))?;
        Ok(Self::assemble(Some(writer), source, installation, marks))
    }

    /// Opens the database for reading, while another process may write it. Every commit fails with
    /// [`StoreError::Closed`].
    ///
    /// # Errors
    ///
    /// If it cannot be read, or its schema is newer.
    pub fn open_read_only(path: &Path, public_key: [u8; 32]) -> Result<Self, StoreError> {
        let source = ReadSource::new(path, public_key);
        let conn = source.open()?.conn;
        check_not_newer(&conn, MIGRATIONS)?;
        let installation = settings::installation_of(&conn)?;
        // Another process may revoke at any time, so revocations are always looked up.
        let marks = Arc::new(StoreMarks { revoked: true.into(), ..StoreMarks::default() });
        Ok(Self::assemble(None, source, installation, marks))
    }

    fn assemble(
        writer: Option<WriterHandle>,
        source: ReadSource,
        installation: InstallationId,
        marks: Arc<StoreMarks>,
    ) -> Self {
        let public_key = source.key();
        let pool = ReadPool::new(source.clone());
        let blocking = BlockingReads::new(source);
        let shared = StoreParts { pool, blocking, writer, installation, public_key, marks };
        Self { shared: Arc::new(shared) }
    }

    /// Writes a batch; returns once it is as durable as the batch demands.
    ///
    /// Dropping the future does not cancel a batch that the writer has received.
    ///
    /// # Errors
    ///
    /// If a condition does not hold or the database cannot be written; then nothing of it was written.
    pub async fn commit(&self, batch: Batch) -> Result<Receipt, StoreError> {
        self.commit_after(Vec::new(), batch).await?.batch
    }

    /// Writes `first` and the batch in one transaction that is as durable as the batch demands. `first` is written
    /// even if the batch is refused.
    ///
    /// # Errors
    ///
    /// As [`Self::commit`], for `first`: if that cannot be written, the batch is not written either. The result of
    /// the batch is in the returned value.
    pub async fn commit_after(&self, first: Vec<Op>, batch: Batch) -> Result<WriteResults, StoreError> {
        if first.len().max(batch.ops.len()) > MAX_BATCH_OPS {
            return Err(StoreError::TooLarge { what: "batch", limit: MAX_BATCH_OPS });
        }
        self.shared.writer.as_ref().ok_or(StoreError::Closed)?.commit(first, batch).await
    }

    /// [`Self::commit`] for code that is not async; blocks the thread.
    ///
    /// # Errors
    ///
    /// As [`Self::commit`].
    pub fn commit_blocking(&self, batch: Batch) -> Result<Receipt, StoreError> {
        // Without tokio's cooperative budget: this thread only waits, and has no other task to yield to.
        block_on(tokio::task::coop::unconstrained(self.commit(batch)))
    }

    /// Returns the id of the installation, which was created with the database.
    pub fn installation(&self) -> InstallationId {
        self.shared.installation
    }

    /// Returns the public key that verifies the signatures of rows and heads.
    pub fn public_key(&self) -> [u8; 32] {
        self.shared.public_key
    }

    /// Returns the reads for callers that may block their thread.
    pub fn blocking(&self) -> &BlockingReads {
        &self.shared.blocking
    }

    /// Returns true if anything was ever revoked; always true if another process writes.
    pub(crate) fn is_anything_revoked(&self) -> bool {
        self.shared.marks.revoked.load(Ordering::Acquire)
    }

    /// Returns the version of approvals, answered asks and approver keys: it changes with each commit that may change
    /// them. Data that was read after this call is current while the version stays the same. `None` if another
    /// process writes.
    pub fn consent_version(&self) -> Option<u64> {
        self.shared.writer.as_ref().map(|_| self.shared.marks.consent.load(Ordering::Acquire))
    }

    /// Returns the work that was done since the store was opened.
    pub fn activity(&self) -> StoreActivity {
        let transactions = self.shared.marks.transactions.load(Ordering::Relaxed);
        let (handed_over, brief) = self.shared.pool.read_counts();
        StoreActivity { handed_over, brief, transactions }
    }

    /// Runs a read on a thread of the pool, with a connection that sees every commit already acknowledged.
    pub(crate) async fn run<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    {
        self.shared.pool.run(read).await
    }

    /// Runs a read of a few rows on this thread if a connection is free, and otherwise as [`Store::run`] does.
    pub(crate) async fn run_brief<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    {
        self.shared.pool.run_brief(read).await
    }

    #[cfg(test)]
    pub(crate) fn pool(&self) -> &ReadPool {
        &self.shared.pool
    }

    /// Leases the oldest message that is due. No other message of its session is leased until this one is done.
    ///
    /// # Errors
    ///
    /// If the database cannot be written.
    pub async fn lease(
        &self,
        now: Timestamp,
        owner: &str,
        ttl: Duration,
    ) -> Result<Option<Leased>, StoreError> {
        let receipt = self.commit(Batch::relaxed(vec![Op::lease(now, owner, ttl)])).await?;
        Ok(receipt.leased.into_iter().next().flatten())
    }

    /// Leases the oldest message that is due for a consumer. No other message of its session is leased for this
    /// consumer until this one is done.
    ///
    /// # Errors
    ///
    /// If the database cannot be written.
    pub async fn lease_for(
        &self,
        consumer: &str,
        now: Timestamp,
        owner: &str,
        ttl: Duration,
    ) -> Result<Option<Leased>, StoreError> {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let (consumer, owner) = (consumer.to_owned(), owner.to_owned());
        let op = Op::LeaseFor { consumer, now, owner, ttl_ms };
        let receipt = self.commit(Batch::relaxed(vec![op])).await?;
        Ok(receipt.leased.into_iter().next().flatten())
    }

    /// Returns the reason why a search for this text cannot find anything, or not everything, if there is one.
    pub fn explain_search(text: &str) -> Option<Unsearchable> {
        memory::explain_search(text)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("installation", &self.shared.installation).finish_non_exhaustive()
    }
}

fn open_writer(config: &StoreConfig) -> Result<Connection, StoreError> {
    let conn = Connection::open(&config.path)?;
    conn.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS))?;
    conn.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    // Reads continue while a batch is written.
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "foreign_keys", "ON")?;
    conn.pragma_update(None, "trusted_schema", "OFF")?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Pages for the rollback of a savepoint stay out of the system's temporary folder.
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    // Deleted content is overwritten in the file.
    conn.pragma_update(None, "secure_delete", "ON")?;
    // A negative size counts KiB.
    conn.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    conn.pragma_update(None, "wal_autocheckpoint", WAL_CHECKPOINT_PAGES)?;
    conn.pragma_update(None, "journal_size_limit", WAL_KEPT_BYTES)?;
    if let Some(pages) = config.max_pages {
        conn.pragma_update(None, "max_page_count", pages)?;
    }
    Ok(conn)
}

fn new_installation() -> InstallationId {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp::from_millis(0).plus_duration(since);
    InstallationId::from_parts(now, rand::rng().random())
}

/// Runs a future to its end on this thread. Unlike tokio's `block_on`, it may be called within a runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[cfg(test)]
mod tests;
