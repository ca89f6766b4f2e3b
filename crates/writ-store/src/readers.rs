//! Connections that only read, for callers that may block: a snapshot each, beside the writer.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::bounds::{BUSY_TIMEOUT_MS, READER_CACHE_KIB, READERS};
use crate::error::StoreError;

/// The most prepared statements of a connection: more than the store has.
pub(crate) const STATEMENT_CACHE: usize = 128;

/// Opens connections that read one database.
#[derive(Clone, Debug)]
pub(crate) struct ReadSource {
    path: PathBuf,
    key: [u8; 32],
}

/// A connection that reads.
pub(crate) struct Reader {
    pub(crate) conn: Connection,
    /// The public key that rows of the ledger are signed with.
    pub(crate) key: [u8; 32],
}

impl ReadSource {
    pub(crate) fn new(path: &Path, key: [u8; 32]) -> Self {
        Self { path: path.to_owned(), key }
    }

    pub(crate) const fn key(&self) -> [u8; 32] {
        self.key
    }

    pub(crate) fn open(&self) -> Result<Reader, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(&self.path, flags)?;
        conn.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS))?;
        conn.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
        // A negative size counts KiB.
        conn.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
        // Plans depend on no value that is bound, so a statement is not planned anew with each value.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        Ok(Reader { conn, key: self.key })
    }
}

/// The reads of the store for callers that may block their thread: offline commands and tests.
///
/// Each method is that of the same name in the traits of reads. At most [`READERS`] connections, opened when they are
/// first needed.
pub struct BlockingReads {
    source: ReadSource,
    pool: Mutex<Pool>,
    returned: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Reader>,
    open: usize,
}

/// A connection on loan, which goes back when this is dropped.
struct Loan<'a> {
    reads: &'a BlockingReads,
    reader: Option<Reader>,
}

impl BlockingReads {
    pub(crate) fn new(source: ReadSource) -> Self {
        Self { source, pool: Mutex::default(), returned: Condvar::new() }
    }

    /// Runs `read` on a connection, waiting for one if all are in use.
    pub(crate) fn run<T, E: From<StoreError>>(
        &self,
        read: impl FnOnce(&Reader) -> Result<T, E>,
    ) -> Result<T, E> {
        let loan = self.lend()?;
        match &loan.reader {
            Some(reader) => read(reader),
            None => Err(StoreError::Closed.into()),
        }
    }

    fn lend(&self) -> Result<Loan<'_>, StoreError> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(reader) = pool.idle.pop() {
                return Ok(Loan { reads: self, reader: Some(reader) });
            }
            // Opened on demand: most offline commands need one.
            if pool.open < READERS {
                let reader = self.source.open()?;
                pool.open += 1;
                return Ok(Loan { reads: self, reader: Some(reader) });
            }
            pool = self.returned.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut pool = self.reads.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.idle.extend(self.reader.take());
        self.reads.returned.notify_one();
    }
}

impl fmt::Debug for BlockingReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingReads").field("source", &self.source).finish_non_exhaustive()
    }
}
