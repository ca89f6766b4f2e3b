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

/// The size to which the write-ahead log is cut after it was copied: a burst gives its space back.
const WAL_KEPT_BYTES: u32 = 64 * 1024 * 1024;

/// The store of one home. Clones share it; the writer ends when the last one is dropped.
#[derive(Clone)]
pub struct Store {
    shared: Arc<StoreParts>,
}

struct StoreParts {
    // Dropped before the writer, so that its close is the last one and folds the log into the file.
    pool: ReadPool,
    blocking: BlockingReads,
    /// `None`: opened to be read only.
    writer: Option<WriterHandle>,
    installation: InstallationId,
    public_key: [u8; 32],
    marks: Arc<StoreMarks>,
}

/// The work that a store has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreActivity {
    /// Reads that were handed over to a thread.
    pub handed_over: u64,
    /// Brief reads that were done on the caller's thread.
    pub brief: u64,
    /// Transactions that were committed.
    pub transactions: u64,
}

impl Store {
    /// Opens the database, makes it if there is none, and starts the writer.
    ///
    /// The end of the ledger is checked against its last signed head; the rest is checked by
    /// `Store::verify_ledger`. The caller holds the home's [`crate::lock::HomeLock`].
    ///
    /// # Errors
    ///
    /// If the place is not usable (network file system, permissions), the schema is newer or was
    /// changed, the signer's key is not the ledger's, or the ledger's end does not fit its head.
    pub fn open(config: &StoreConfig, signer: Arc<dyn HeadSigner>) -> Result<Self, StoreError> {
        // Before SQLite makes the file, which it would with the umask's mode.
        filesystem::make_private(&config.path)?;
        let mut conn = open_writer(config)?;
        migrate(&mut conn, MIGRATIONS)?;
        let installation = settings::ensure_installation(&conn, new_installation)?;
        let public_key = signer.public_key();
        let tail = Tail::load(&conn, &origin(installation), signer, &config.rotations)?;
        let source = ReadSource::new(&config.path, public_key);
        // Read before the writer starts: from then on it sets the mark before each revocation.
        let revoked = approvals::is_anything_revoked(&conn)?.into();
        let marks = Arc::new(StoreMarks { revoked, ..StoreMarks::default() });
        let writer = WriterHandle::start(conn, tail, Killer::new(config), Arc::clone(&marks))?;
        Ok(Self::assemble(Some(writer), source, installation, marks))
    }

    /// Opens the database to read it, beside the process that writes it. Every commit is refused as closed.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or its schema is newer.
    pub fn open_read_only(path: &Path, public_key: [u8; 32]) -> Result<Self, StoreError> {
        let source = ReadSource::new(path, public_key);
        let conn = source.open()?.conn;
        check_not_newer(&conn, MIGRATIONS)?;
        let installation = settings::installation_of(&conn)?;
        // The process that writes may revoke at any time.
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

    /// Writes a batch; returns when it is as durable as it asks to be.
    ///
    /// Dropping the future does not take back a batch that the writer has.
    ///
    /// # Errors
    ///
    /// If a condition does not hold or the database cannot be written; then nothing of it was written.
    pub async fn commit(&self, batch: Batch) -> Result<Receipt, StoreError> {
        self.commit_after(Vec::new(), batch).await?.batch
    }

    /// Writes `first`, also if the batch is refused, and the batch, in one transaction that is as durable as
    /// the batch asks to be.
    ///
    /// # Errors
    ///
    /// As [`Self::commit`], of `first`: if that cannot be written, neither is the batch. The result of the
    /// batch is in the answer.
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
        // Without tokio's budget of a task: this thread only waits, and has nothing to yield to.
        block_on(tokio::task::coop::unconstrained(self.commit(batch)))
    }

    /// The installation: made with the database.
    pub fn installation(&self) -> InstallationId {
        self.shared.installation
    }

    /// The public key that rows and heads are signed with.
    pub fn public_key(&self) -> [u8; 32] {
        self.shared.public_key
    }

    /// The reads for callers that may block their thread.
    pub fn blocking(&self) -> &BlockingReads {
        &self.shared.blocking
    }

    /// Returns true if anything was ever revoked.
    pub(crate) fn is_anything_revoked(&self) -> bool {
        self.shared.marks.revoked.load(Ordering::Acquire)
    }

    /// Returns a number that is another one once approvals, answered asks or approver keys may be others than they were;
    /// `None` where another process writes them. What was read after it was returned is good until then.
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

    /// Runs a read of a few rows at once, if a connection is free, and else as [`Store::run`] does.
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

    /// Leases the oldest message that is due; its session has no other until this one is done.
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

    /// Leases the oldest message of a consumer that is due; the session has no other for this consumer until this one is
    /// done.
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

    /// Returns the reason why a search finds nothing, or not all, if there is one.
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
    // Reads go on while a batch is written.
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "foreign_keys", "ON")?;
    conn.pragma_update(None, "trusted_schema", "OFF")?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Pages that a savepoint keeps for its rollback stay out of the system's temporary folder.
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

/// Drives a future on this thread. Unlike a runtime's own, it may be called from anywhere.
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
