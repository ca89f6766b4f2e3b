//! Statements at a file of SQLite.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::ffi::{SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_ROWID, SQLITE_CONSTRAINT_UNIQUE};
use rusqlite::types::{Value as SqlValue, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{Bound, PreparedStatement};
use crate::error::PerformError;
use crate::result::{MAX_RESULT_BYTES, OperationResult, RowCollector};

/// The most connections to one file.
const MAX_CONNECTIONS: usize = 4;
/// The number of steps of SQLite's machine between two looks at the clock.
const STEPS: i32 = 1_000;
/// The codes of a key that another row has (SQLite, result and error codes).
const TAKEN: [i32; 3] = [SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE, SQLITE_CONSTRAINT_ROWID];

/// A file of SQLite.
#[derive(Debug)]
pub(crate) struct SqliteDatabase {
    file: Arc<SqliteFile>,
    places: Arc<Semaphore>,
    /// The place of the one statement that changes something: others would sleep until SQLite's lock is free.
    writing: Arc<Semaphore>,
}

/// The file and the connections to it that rest.
#[derive(Debug)]
struct SqliteFile {
    path: PathBuf,
    resting: Mutex<Vec<Connection>>,
}

impl SqliteDatabase {
    pub(crate) fn new(path: PathBuf) -> Self {
        let file = SqliteFile { path, resting: Mutex::new(Vec::new()) };
        Self {
            file: Arc::new(file),
            places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            writing: Arc::new(Semaphore::new(1)),
        }
    }

    /// Runs a statement off the async threads.
    pub(crate) async fn run_prepared(
        &self,
        prepared: PreparedStatement,
        limit: Duration,
    ) -> Result<OperationResult, PerformError> {
        let deadline = Instant::now() + limit;
        let taken = async {
            let writing = match prepared.rendered.is_read {
                true => None,
                false => Some(Arc::clone(&self.writing).acquire_owned().await.ok()?),
            };
            Some((writing, Arc::clone(&self.places).acquire_owned().await.ok()?))
        };
        let Ok(Some(place)) = tokio::time::timeout(limit, taken).await else { return Err(too_slow()) };
        let file = Arc::clone(&self.file);
        let running = tokio::task::spawn_blocking(move || {
            // The place is freed by the working thread: a caller that stops waiting makes no room for one more.
            let result = file.run_statement(&prepared, deadline);
            drop(place);
            result
        });
        // A thread that panicked may have committed.
        running.await.unwrap_or_else(|_| Err(PerformError::unknown("the statement's thread ended")))
    }
}

impl SqliteFile {
    fn run_statement(
        &self,
        prepared: &PreparedStatement,
        deadline: Instant,
    ) -> Result<OperationResult, PerformError> {
        let rested = self.resting.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match rested {
            Some(connection) => connection,
            None => {
                self.open_connection().map_err(|why| classify_error("the database cannot be opened", &why))?
            }
        };
        // The wait for a place has taken its part of the limit.
        let left = deadline.saturating_duration_since(Instant::now());
        connection.busy_timeout(left).map_err(|why| classify_error("the database is not usable", &why))?;
        connection
            .progress_handler(STEPS, Some(move || Instant::now() >= deadline))
            .map_err(|why| classify_error("the database is not usable", &why))?;
        let result = perform_statement(&connection, prepared);
        // A connection with an error may hold an open transaction, which closing it rolls back.
        if result.is_ok() {
            let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
            if resting.len() < MAX_CONNECTIONS {
                resting.push(connection);
            }
        }
        result
    }

    fn open_connection(&self) -> Result<Connection, rusqlite::Error> {
        // Not created: a path with a mistake would be an empty database.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        // A misspelled column in double quotes would be a text.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        // Others may have made the file: its views and triggers call harmless functions alone, and no statement can corrupt it.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        Ok(connection)
    }
}

fn perform_statement(
    connection: &Connection,
    prepared: &PreparedStatement,
) -> Result<OperationResult, PerformError> {
    // A change takes the lock at once: taken only after a read, it would be refused if another program wrote in between.
    let begin = if prepared.rendered.is_read { "BEGIN" } else { "BEGIN IMMEDIATE" };
    connection.execute_batch(begin).map_err(|why| classify_error("no transaction could begin", &why))?;
    let result = run_rows(connection, prepared);
    match result {
        Ok(result) if !prepared.is_rehearsal => match connection.execute_batch("COMMIT") {
            Ok(()) => Ok(result),
            // Still in the transaction: nothing was committed, and closing the connection rolls it back.
            Err(why) if !connection.is_autocommit() => {
                Err(classify_error("the transaction did not commit", &why))
            }
            Err(why) => {
                Err(PerformError::unknown(describe_error("the transaction may have committed", &why)))
            }
        },
        Ok(result) => {
            connection
                .execute_batch("ROLLBACK")
                .map_err(|why| classify_error("the trial was not taken back", &why))?;
            Ok(result)
        }
        Err(error) => Err(error),
    }
}

fn run_rows(connection: &Connection, prepared: &PreparedStatement) -> Result<OperationResult, PerformError> {
    let sql = &prepared.rendered.sql;
    // Its message names tables and columns alone: the values are not in the text.
    let refused = |why: rusqlite::Error| {
        PerformError::not_performed(format!("the database refuses the statement: {why}"))
    };
    let mut statement = connection.prepare_cached(sql).map_err(refused)?;
    // SQLite must come to the same judgement as the parser before anything runs.
    if statement.readonly() != prepared.rendered.is_read {
        return Err(PerformError::not_performed("the statement does other things than it says"));
    }
    let values = prepared.values.iter().map(as_sql);
    let mut rows = statement
        .query(rusqlite::params_from_iter(values))
        .map_err(|why| classify_error("the statement failed", &why))?;
    let mut collector = RowCollector::new(&prepared.columns);
    while let Some(row) = rows.next().map_err(|why| classify_error("the statement failed", &why))? {
        let cells: Vec<ValueRef<'_>> = (0..prepared.columns.len())
            .map(|index| row.get_ref(index))
            .collect::<Result<_, _>>()
            .map_err(|why| classify_error("a row could not be read", &why))?;
        // Looked at before anything is copied.
        let fits =
            cells.iter().map(|cell| cell_bytes(*cell)).fold(0, usize::saturating_add) <= MAX_RESULT_BYTES;
        let taken =
            if fits { collector.add_row(cells.into_iter().map(as_json)) } else { collector.overflow() };
        // A read can stop; a change runs to its end, and returns fewer rows than it changed.
        if !taken && prepared.rendered.is_read {
            break;
        }
    }
    drop(rows);
    let changed = if prepared.rendered.is_read { 0 } else { connection.changes() };
    Ok(collector.finish(changed))
}

fn as_sql(value: &Bound) -> SqlValue {
    match value {
        Bound::Null => SqlValue::Null,
        Bound::Text(text) => SqlValue::Text(text.clone()),
        Bound::Integer(number) => SqlValue::Integer(*number),
        Bound::Number(number) => SqlValue::Real(*number),
        Bound::Boolean(flag) => SqlValue::Integer(i64::from(*flag)),
    }
}

const fn cell_bytes(cell: ValueRef<'_>) -> usize {
    match cell {
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 8,
        ValueRef::Text(bytes) => bytes.len(),
        ValueRef::Blob(bytes) => bytes.len().saturating_mul(2),
    }
}

fn as_json(cell: ValueRef<'_>) -> Value {
    match cell {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).into(),
        // As PostgreSQL writes it.
        ValueRef::Blob(bytes) => format!("\\x{}", hex::encode(bytes)).into(),
    }
}

fn too_slow() -> PerformError {
    PerformError::not_performed("the database did not answer in time")
}

fn classify_error(what: &str, why: &rusqlite::Error) -> PerformError {
    let what = describe_error(what, why);
    // Other constraints say nothing of a row that is not the case's.
    let is_taken =
        matches!(why, rusqlite::Error::SqliteFailure(code, _) if TAKEN.contains(&code.extended_code));
    if is_taken { PerformError::Taken { what } } else { PerformError::not_performed(what) }
}

/// The kind of an error. Its message can repeat values.
fn describe_error(what: &str, why: &rusqlite::Error) -> String {
    let rusqlite::Error::SqliteFailure(code, _) = why else { return what.to_owned() };
    #[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum; the rest is known by its number")]
    let kind = match code.code {
        ErrorCode::OperationInterrupted => "it took too long",
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => "another program holds the database",
        ErrorCode::ConstraintViolation => "a constraint of the table forbids it",
        ErrorCode::CannotOpen => "there is no such file, or it may not be opened",
        ErrorCode::NotADatabase => "the file is no database",
        ErrorCode::ReadOnly => "the file may not be written",
        ErrorCode::DiskFull => "the disk is full",
        _ => "",
    };
    let separator = if kind.is_empty() { "" } else { ": " };
    format!("{what}{separator}{kind} (SQLite {})", code.extended_code)
}
