//! Lists and counts of memories.

use rusqlite::{Connection, params};
use writ_types::id::MemoryId;
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

pub(crate) fn open_questions(conn: &Connection, limit: usize) -> Result<Vec<OpenQuestion>, StoreError> {
    let sql = "SELECT * FROM memory_question WHERE state = 'open' ORDER BY id LIMIT ?1";
    read_questions(conn, sql, params![codec::limit(limit)])
}

/// Returns the open questions about one memory, in either place, oldest first.
pub(crate) fn questions_about(
    conn: &Connection,
    memory: MemoryId,
    limit: usize,
) -> Result<Vec<OpenQuestion>, StoreError> {
    let sql = "SELECT q.* FROM memory_question q JOIN memory m ON m.n = q.n OR m.n = q.other
               WHERE m.id = ?1 AND q.state = 'open' ORDER BY q.id LIMIT ?2";
    read_questions(conn, sql, params![memory.to_string(), codec::limit(limit)])
}

/// Returns the rows that the owner was asked about with a kind of question, answered or not, ascending, and how many of these
/// questions are open.
pub(crate) fn rows_asked(conn: &Connection, kind: QuestionKind) -> Result<(Vec<i64>, usize), StoreError> {
    let sql = "SELECT n, state = 'open' AS open FROM memory_question WHERE kind = ?1 ORDER BY n";
    let asked: Vec<(i64, bool)> = query(conn, sql, [to_name("kind of a question", &kind)?], |row| {
        Ok((row.get("n")?, row.get("open")?))
    })?;
    let open = asked.iter().filter(|(_, open)| *open).count();
    Ok((asked.into_iter().map(|(row, _)| row).collect(), open))
}

/// Returns the rows of which a change was undone that a batch with such a beginning of its name had made, ascending.
pub(crate) fn rows_undone(conn: &Connection, beginning: &str) -> Result<Vec<i64>, StoreError> {
    let sql = "SELECT DISTINCT n FROM memory_change WHERE undone = 1 AND substr(batch, 1, length(?1)) = ?1 ORDER BY n";
    query(conn, sql, [beginning], |row| Ok(row.get("n")?))
}

fn read_questions(
    conn: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<OpenQuestion>, StoreError> {
    let at_row = |row: i64| query_one(conn, "SELECT * FROM memory WHERE n = ?1", [row], decode_memory);
    let questions = query(conn, sql, params, |row| {
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
