//! Rows of the memory and their full-text indexes.

mod terms;

use rusqlite::{Connection, Row, params};
use writ_types::action::{MemoryKind, MemoryTrust, Remember};
use writ_types::id::{EntrySeq, MemoryId, SessionId};
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use crate::codec::{self, execute, get_time, int, query, query_one, to_name};
use crate::error::{Conflict, StoreError};

use terms::Query;
pub use terms::Unsearchable;
pub(crate) use terms::extra_terms;

/// Something that is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Its id.
    pub id: MemoryId,
    /// The text and its properties.
    pub item: Remember,
    /// When it was remembered.
    pub at: Timestamp,
    /// The entry that recorded it, if any.
    pub entry: Option<EntrySeq>,
}

/// The choice between reading secret memories and leaving them out; left out, they take no place of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrets {
    /// Included: the caller is cleared for them, or withholds them.
    Told,
    /// As if they were not there.
    Kept,
}

/// A memory that a search has found.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryHit {
    /// The memory.
    pub memory: Memory,
    /// The BM25 score: larger is better.
    pub score: f64,
}

/// Something to remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMemory {
    /// Its id.
    pub id: MemoryId,
    /// The text and its properties.
    pub item: Remember,
    /// When.
    pub at: Timestamp,
}

pub(crate) fn store_memory(
    conn: &Connection,
    memory: &NewMemory,
    entry: Option<EntrySeq>,
) -> Result<(), StoreError> {
    let item = &memory.item;
    // The schema has the same check; this one has an error that people understand.
    if item.taint == Taint::External && item.trust != MemoryTrust::Working {
        return Err(StoreError::TaintedTrust);
    }
    codec::check_size("memory", &item.text)?;
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO memory (id, session, kind, trust, taint, at, entry, text, secret, terms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            memory.id.to_string(),
            item.session.map(|id| id.to_string()),
            to_name("memory kind", &item.memory_kind)?,
            to_name("trust", &item.trust)?,
            item.taint.as_str(),
            memory.at.as_millis(),
            entry.map(|entry| int(entry.0)),
            item.text,
            item.secret,
            extra_terms(&item.text),
        ],
    )?;
    if added == 0 {
        Err(Conflict::Exists { what: "memory", id: memory.id.to_string() }.into())
    } else {
        Ok(())
    }
}

pub(crate) fn delete_memory(conn: &Connection, memory: MemoryId) -> Result<(), StoreError> {
    let deleted = execute(conn, "DELETE FROM memory WHERE id = ?1", [memory.to_string()])?;
    if deleted == 0 {
        return Err(Conflict::Missing { what: "memory", id: memory.to_string() }.into());
    }
    Ok(())
}

fn decode_memory(row: &Row<'_>) -> Result<Memory, StoreError> {
    let kind: MemoryKind = codec::from_name("memory kind", row.get("kind")?)?;
    let trust: MemoryTrust = codec::from_name("trust", row.get("trust")?)?;
    let taint: Taint = codec::from_name("taint", row.get("taint")?)?;
    Ok(Memory {
        id: codec::parse("memory id", &row.get::<_, String>("id")?)?,
        item: Remember {
            text: row.get("text")?,
            memory_kind: kind,
            trust,
            taint,
            secret: row.get("secret")?,
            session: codec::parse_option("session id", row.get("session")?)?,
        },
        at: get_time(row, "at")?,
        entry: row.get::<_, Option<i64>>("entry")?.map(|seq| EntrySeq(codec::uint(seq))),
    })
}

pub(crate) fn search_memory(
    conn: &Connection,
    text: &str,
    session: Option<SessionId>,
    secrets: Secrets,
    limit: usize,
) -> Result<Vec<MemoryHit>, StoreError> {
    let expression = Query::parse(text).expression;
    // FTS5 would call an empty expression a syntax error.
    if expression.is_empty() {
        return Ok(Vec::new());
    }
    // SQLite's bm25 is negative, and smaller is better. What both indexes find counts twice.
    let sql = "SELECT m.*, sum(found.score) AS score FROM (
                   SELECT rowid AS n, -bm25(memory_fts) AS score FROM memory_fts WHERE memory_fts MATCH ?1
                   UNION ALL
                   SELECT rowid, -bm25(memory_terms) FROM memory_terms WHERE memory_terms MATCH ?1
               ) AS found JOIN memory m ON m.n = found.n
               WHERE (m.session IS NULL OR m.session = ?2) AND (m.secret = 0 OR ?3)
               GROUP BY m.n ORDER BY score DESC, m.n LIMIT ?4";
    let session = session.map(|id| id.to_string());
    let params = params![expression, session, secrets == Secrets::Told, codec::limit(limit)];
    query(conn, sql, params, |row| Ok(MemoryHit { memory: decode_memory(row)?, score: row.get("score")? }))
}

pub(crate) fn explain_search(text: &str) -> Option<Unsearchable> {
    Query::parse(text).unsearchable
}

pub(crate) fn read_memory(conn: &Connection, memory: MemoryId) -> Result<Option<Memory>, StoreError> {
    query_one(conn, "SELECT * FROM memory WHERE id = ?1", [memory.to_string()], decode_memory)
}

pub(crate) fn memories_of_kind(
    conn: &Connection,
    kind: MemoryKind,
    secrets: Secrets,
    limit: usize,
) -> Result<Vec<Memory>, StoreError> {
    let sql = "SELECT * FROM memory WHERE kind = ?1 AND session IS NULL AND (secret = 0 OR ?2)
               ORDER BY n DESC LIMIT ?3";
    let params = params![to_name("memory kind", &kind)?, secrets == Secrets::Told, codec::limit(limit)];
    query(conn, sql, params, decode_memory)
}

#[cfg(test)]
mod tests;
