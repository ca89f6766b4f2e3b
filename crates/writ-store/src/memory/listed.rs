//! Lists and counts of memories.

use rusqlite::{Connection, params};
use writ_types::unit::Timestamp;

use super::{ChangeBatch, Memory, MemoryStatus, QuestionKind, decode_memory};
use crate::codec::{self, get_time, get_uint, query, query_one, to_name};
use crate::error::StoreError;

/// A question about a memory that waits for the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenQuestion {
    /// Its number.
    pub id: i64,
    /// Its kind.
    pub kind: QuestionKind,
    /// The memory.
    pub memory: Memory,
    /// The other memory, of a contradiction.
    pub other: Option<Memory>,
    /// When it was asked.
    pub at: Timestamp,
    /// The reason, for people.
    pub reason: String,
}

/// The numbers of memories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// By status and kind, in their names.
    pub counts: Vec<(String, String, u64)>,
    /// The questions that wait.
    pub questions: u64,
    /// The bytes of all texts.
    pub text_bytes: u64,
    /// The number of vectors, by the name of the model and their dimension; true: searches use them.
    pub vectors: Vec<(String, u32, u64, bool)>,
}

pub(crate) fn memories_at_rows(conn: &Connection, rows: &[i64]) -> Result<Vec<Memory>, StoreError> {
    let mut found = Vec::new();
    for row in rows.iter().take(crate::bounds::MAX_READ_ROWS) {
        found.extend(query_one(conn, "SELECT * FROM memory WHERE n = ?1", [row], decode_memory)?);
    }
    Ok(found)
}

pub(crate) fn memories_after(conn: &Connection, row: i64, limit: usize) -> Result<Vec<Memory>, StoreError> {
    let sql = "SELECT * FROM memory WHERE n > ?1 ORDER BY n LIMIT ?2";
    query(conn, sql, params![row, codec::limit(limit)], decode_memory)
}

pub(crate) fn memories_with_status(
    conn: &Connection,
    status: MemoryStatus,
    limit: usize,
) -> Result<Vec<Memory>, StoreError> {
    let sql = "SELECT * FROM memory WHERE status = ?1 ORDER BY n DESC LIMIT ?2";
    query(conn, sql, params![to_name("memory status", &status)?, codec::limit(limit)], decode_memory)
}

pub(crate) fn rows_within(
    conn: &Connection,
    start: Timestamp,
    end: Timestamp,
    limit: usize,
) -> Result<Vec<i64>, StoreError> {
    // What happened at another time than it was remembered at belongs to that time.
    let sql = "SELECT n, at AS moment FROM memory
                   WHERE at >= ?1 AND at < ?2 AND happened IS NULL AND status = 'active'
               UNION ALL
               SELECT n, happened FROM memory
                   WHERE happened >= ?1 AND happened < ?2 AND status = 'active'
               ORDER BY moment DESC, n DESC LIMIT ?3";
    let span = params![start.as_millis(), end.as_millis(), codec::limit(limit)];
    query(conn, sql, span, |row| Ok(row.get("n")?))
}

pub(crate) fn open_questions(conn: &Connection, limit: usize) -> Result<Vec<OpenQuestion>, StoreError> {
    let sql = "SELECT * FROM memory_question WHERE state = 'open' ORDER BY id LIMIT ?1";
    let at_row = |row: i64| query_one(conn, "SELECT * FROM memory WHERE n = ?1", [row], decode_memory);
    let questions = query(conn, sql, [codec::limit(limit)], |row| {
        let Some(memory) = at_row(row.get("n")?)? else { return Ok(None) };
        Ok(Some(OpenQuestion {
            id: row.get("id")?,
            kind: codec::from_name("kind of a question", row.get("kind")?)?,
            memory,
            other: at_row(row.get("other")?)?,
            at: get_time(row, "at")?,
            reason: row.get("reason")?,
        }))
    })?;
    Ok(questions.into_iter().flatten().collect())
}

pub(crate) fn last_changes(conn: &Connection, limit: usize) -> Result<Vec<ChangeBatch>, StoreError> {
    let sql = "SELECT batch, max(at) AS at, count(*) AS changes FROM memory_change WHERE undone = 0
               GROUP BY batch ORDER BY max(id) DESC LIMIT ?1";
    query(conn, sql, [codec::limit(limit)], |row| {
        Ok(ChangeBatch {
            batch: row.get("batch")?,
            at: get_time(row, "at")?,
            changes: get_uint(row, "changes")?,
        })
    })
}

pub(crate) fn memory_stats(conn: &Connection) -> Result<MemoryStats, StoreError> {
    let sql =
        "SELECT status, kind, count(*) AS count FROM memory GROUP BY status, kind ORDER BY status, kind";
    let counts =
        query(conn, sql, [], |row| Ok((row.get("status")?, row.get("kind")?, get_uint(row, "count")?)))?;
    let count = |sql: &str| {
        let count = query_one(conn, sql, [], |row| Ok(codec::uint(row.get(0)?)))?;
        Ok::<u64, StoreError>(count.unwrap_or(0))
    };
    let sql = "SELECT s.model, s.dimension, s.serving,
                   (SELECT count(*) FROM memory_code c
                    WHERE c.key >= s.id * 1099511627776 AND c.key < (s.id + 1) * 1099511627776) AS count
               FROM memory_space s ORDER BY s.id";
    let vectors = query(conn, sql, [], |row| {
        Ok((row.get("model")?, row.get("dimension")?, get_uint(row, "count")?, row.get("serving")?))
    })?;
    Ok(MemoryStats {
        counts,
        questions: count("SELECT count(*) FROM memory_question WHERE state = 'open'")?,
        text_bytes: count("SELECT coalesce(sum(octet_length(text)), 0) FROM memory")?,
        vectors,
    })
}
