//! Ways back: what was done, what leads back, and until when one tap is enough.

use rusqlite::{Connection, Row, params};
use writ_types::action::WriteFile;
use writ_types::id::{AttemptId, SessionId};
use writ_types::unit::Timestamp;

use crate::codec::{self, execute, get_time, query, query_one};
use crate::error::{Conflict, StoreError};

/// A way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredUndo {
    /// The attempt that it takes back.
    pub attempt: AttemptId,
    /// The session that it was done in.
    pub session: SessionId,
    /// When.
    pub at: Timestamp,
    /// Until when one tap is enough.
    pub until: Timestamp,
    /// The change that takes it back.
    pub way: WriteFile,
    /// The time at which it was undone; `None` before.
    pub undone_at: Option<Timestamp>,
}

/// The way back from something that was done.
#[derive(Clone, Debug, PartialEq)]
pub struct NewUndo {
    /// The attempt that it takes back.
    pub attempt: AttemptId,
    /// The session that it was done in.
    pub session: SessionId,
    /// When.
    pub at: Timestamp,
    /// Until when one tap is enough.
    pub until: Timestamp,
    /// The change that takes it back.
    pub way: WriteFile,
}

pub(crate) fn store_undo(conn: &Connection, undo: &NewUndo) -> Result<(), StoreError> {
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO undo (attempt, session, at, until, way) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            undo.attempt.to_string(),
            undo.session.to_string(),
            undo.at.as_millis(),
            undo.until.as_millis(),
            codec::to_json("way back", &undo.way)?,
        ],
    )?;
    if added == 0 {
        return Err(Conflict::Exists { what: "way back", id: undo.attempt.to_string() }.into());
    }
    Ok(())
}

pub(crate) fn mark_undone(conn: &Connection, attempt: AttemptId, at: Timestamp) -> Result<(), StoreError> {
    // Compare-and-swap: of two taps one is refused.
    let sql = "UPDATE undo SET undone_at = ?2 WHERE attempt = ?1 AND undone_at IS NULL";
    if execute(conn, sql, params![attempt.to_string(), at.as_millis()])? == 0 {
        return Err(Conflict::Missing { what: "way back", id: attempt.to_string() }.into());
    }
    Ok(())
}

pub(crate) fn delete_undo(conn: &Connection, attempt: AttemptId) -> Result<(), StoreError> {
    execute(conn, "DELETE FROM undo WHERE attempt = ?1", [attempt.to_string()])?;
    Ok(())
}

fn decode_undo(row: &Row<'_>) -> Result<StoredUndo, StoreError> {
    Ok(StoredUndo {
        attempt: codec::parse("attempt id", &row.get::<_, String>("attempt")?)?,
        session: codec::parse("session id", &row.get::<_, String>("session")?)?,
        at: get_time(row, "at")?,
        until: get_time(row, "until")?,
        way: codec::from_json("way back", &row.get::<_, String>("way")?)?,
        undone_at: row.get::<_, Option<i64>>("undone_at")?.map(Timestamp::from_millis),
    })
}

pub(crate) fn read_undo(conn: &Connection, attempt: AttemptId) -> Result<Option<StoredUndo>, StoreError> {
    let sql = "SELECT * FROM undo WHERE attempt = ?1";
    query_one(conn, sql, [attempt.to_string()], decode_undo)
}

pub(crate) fn read_undos(
    conn: &Connection,
    session: SessionId,
    limit: usize,
) -> Result<Vec<StoredUndo>, StoreError> {
    let sql = "SELECT * FROM undo WHERE session = ?1 ORDER BY at DESC, attempt DESC LIMIT ?2";
    query(conn, sql, params![session.to_string(), codec::limit(limit)], decode_undo)
}

pub(crate) fn undos_until(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<StoredUndo>, StoreError> {
    let sql =
        "SELECT * FROM undo WHERE until > ?1 AND undone_at IS NULL AND way ->> '$.changes[0]' IS NOT NULL
               ORDER BY at DESC, attempt DESC LIMIT ?2";
    query(conn, sql, params![now.as_millis(), codec::limit(limit)], decode_undo)
}

/// Counts what was applied since a time and could be undone, and how much of that was undone.
pub(crate) fn undo_counts(conn: &Connection, since: Timestamp) -> Result<(u64, u64), StoreError> {
    let sql = "SELECT count(*) AS kept, count(undone_at) AS undone FROM undo WHERE at >= ?1";
    let counts = query_one(conn, sql, params![since.as_millis()], |row| {
        Ok((codec::get_uint(row, "kept")?, codec::get_uint(row, "undone")?))
    })?;
    Ok(counts.unwrap_or_default())
}

pub(crate) fn old_undos(
    conn: &Connection,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<StoredUndo>, StoreError> {
    let sql = "SELECT * FROM undo WHERE at < ?1 ORDER BY at, attempt LIMIT ?2";
    query(conn, sql, params![before.as_millis(), codec::limit(limit)], decode_undo)
}
