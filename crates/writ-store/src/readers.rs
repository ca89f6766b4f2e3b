//! Connections that only read: a snapshot each, beside the writer.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::config::{BUSY_TIMEOUT_MS, READER_CACHE_KIB, READERS};
use crate::error::StoreError;

/// How many prepared statements a connection keeps: more than the store has.
pub(crate) const STATEMENT_CACHE: usize = 128;

/// At most [`READERS`] connections, opened when they are first needed.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    pool: Mutex<Pool>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct Pool {
    idle: Vec<Connection>,
    open: usize,
}

/// A connection on loan; it goes back when this is dropped.
struct Loan<'a> {
    readers: &'a Readers,
    conn: Option<Connection>,
}

impl Readers {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), pool: Mutex::default(), returned: Condvar::new() }
    }

    /// Runs `read` on a connection, waiting for one if all are in use.
    pub(crate) fn with<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let loan = self.lend()?;
        match &loan.conn {
            Some(conn) => read(conn),
            None => Err(StoreError::Closed),
        }
    }

    fn lend(&self) -> Result<Loan<'_>, StoreError> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(conn) = pool.idle.pop() {
                return Ok(Loan { readers: self, conn: Some(conn) });
            }
            if pool.open < READERS {
                let conn = open_reader(&self.path)?;
                pool.open += 1;
                return Ok(Loan { readers: self, conn: Some(conn) });
            }
            pool = self.returned.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut pool = self.readers.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.idle.extend(self.conn.take());
        self.readers.returned.notify_one();
    }
}

fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS))?;
    conn.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    // A negative size counts KiB.
    conn.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    // Plans depend on no value that is bound, so a statement is not planned anew with each value.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(conn)
}
