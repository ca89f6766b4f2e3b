//! Rows of the memory and their full-text indexes.

mod changes;
mod linked;
mod listed;
mod scope;
mod terms;
mod vectors;
mod words;

use rusqlite::{Connection, Row, params};
use writ_types::action::{MemoryKind, MemoryTrust, Remember};
use writ_types::id::{EntrySeq, MemoryId, SessionId};
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use crate::codec::{self, execute, get_time, int, query, query_one, to_name};
use crate::error::{Conflict, StoreError};

pub(crate) use changes::apply_memory_op;
pub use changes::{ChangeBatch, MemoryChange, MemoryOp, MemoryQuestion, QuestionState};
pub(crate) use linked::{effects_of, memories_about};
pub use listed::{MemoryStats, OpenQuestion};
pub(crate) use listed::{
    last_changes, memories_after, memories_at_rows, memories_with_status, memory_stats, open_questions,
    questions_about, rows_asked, rows_undone,
};
pub use scope::MemoryScope;
pub(crate) use scope::{readable_rows, rows_about, rows_within};
use terms::Query;
pub use terms::Unsearchable;
pub(crate) use terms::extra_terms;
pub use vectors::{MAX_MODEL_BYTES, NewVector, StoredCode, StoredVector, VectorSpace};
pub(crate) use vectors::{codes_after, spaces, unembedded, vectors_of_rows};
pub use words::{WordPattern, WordTerm};
pub(crate) use words::{memories_fitting, word_candidates};
pub use writ_types::api::memory::{MemorySource, MemoryStatus, QuestionKind};

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
    /// What is so of it besides its text.
    pub traits: MemoryTraits,
    /// The number of its row, which indexes name it by.
    pub row: i64,
}

/// The longest text of a memory, in bytes: written as JSON it fits into one frame, even if every byte is escaped.
pub const MAX_MEMORY_BYTES: usize = 256 * 1024;

/// The most uses that are counted: far below the largest number of a row.
pub const MAX_USES: u64 = 1_000_000_000_000;

/// The most names that a memory refers to.
pub const MAX_ENTITIES: usize = 16;

/// The longest name that a memory refers to, in bytes.
pub const MAX_ENTITY_BYTES: usize = 128;

/// The most causes of a memory.
pub const MAX_CAUSES: usize = 16;

/// The properties of a memory besides its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryTraits {
    /// Its state.
    pub status: MemoryStatus,
    /// The party that it is from.
    pub source: MemorySource,
    /// Its importance, in thousandths.
    pub importance: u16,
    /// True if it is never archived.
    pub pinned: bool,
    /// When it happened, if that is known and another time than when it was remembered.
    pub happened: Option<Timestamp>,
    /// The names that it refers to, in the form that `writ-memory` gives them.
    pub entities: Vec<String>,
    /// The memories that it follows from.
    pub causes: Vec<MemoryId>,
    /// The number of times that it was put into a context.
    pub uses: u64,
    /// The last of these times.
    pub used_at: Option<Timestamp>,
    /// The number of times that its text was changed.
    pub edits: u64,
}

impl Default for MemoryTraits {
    fn default() -> Self {
        Self {
            status: MemoryStatus::Active,
            source: MemorySource::Agent,
            importance: 500,
            pinned: false,
            happened: None,
            entities: Vec::new(),
            causes: Vec::new(),
            uses: 0,
            used_at: None,
            edits: 0,
        }
    }
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
    /// What is so of it besides its text.
    pub traits: MemoryTraits,
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
    codec::check_bytes("memory", &item.text, MAX_MEMORY_BYTES)?;
    let traits = &memory.traits;
    check_traits(traits)?;
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO memory (id, session, kind, trust, taint, at, entry, text, secret, terms,
             status, source, importance, pinned, happened, entity_refs, causal_refs, uses, used_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
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
            to_name("memory status", &traits.status)?,
            to_name("memory source", &traits.source)?,
            traits.importance,
            traits.pinned,
            traits.happened.map(Timestamp::as_millis),
            codec::to_json("entities", &traits.entities)?,
            codec::to_json("causes", &traits.causes)?,
            int(traits.uses.min(MAX_USES)),
            traits.used_at.map(Timestamp::as_millis),
        ],
    )?;
    if added == 0 {
        Err(Conflict::Exists { what: "memory", id: memory.id.to_string() }.into())
    } else {
        Ok(())
    }
}

fn check_traits(traits: &MemoryTraits) -> Result<(), StoreError> {
    if traits.importance > 1000 {
        return Err(StoreError::TooLarge { what: "importance", limit: 1000 });
    }
    if traits.entities.len() > MAX_ENTITIES {
        return Err(StoreError::TooLarge { what: "names of a memory", limit: MAX_ENTITIES });
    }
    if traits.causes.len() > MAX_CAUSES {
        return Err(StoreError::TooLarge { what: "causes of a memory", limit: MAX_CAUSES });
    }
    traits.entities.iter().try_for_each(|name| codec::check_bytes("name", name, MAX_ENTITY_BYTES))
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
        traits: decode_traits(row)?,
        row: row.get("n")?,
    })
}

fn decode_traits(row: &Row<'_>) -> Result<MemoryTraits, StoreError> {
    let time = |column: &str| -> Result<Option<Timestamp>, StoreError> {
        Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_millis))
    };
    Ok(MemoryTraits {
        status: codec::from_name("memory status", row.get("status")?)?,
        source: codec::from_name("memory source", row.get("source")?)?,
        importance: row.get("importance")?,
        pinned: row.get("pinned")?,
        happened: time("happened")?,
        entities: codec::from_json("entities", &row.get::<_, String>("entity_refs")?)?,
        causes: codec::from_json("causes", &row.get::<_, String>("causal_refs")?)?,
        uses: codec::get_uint(row, "uses")?,
        used_at: time("used_at")?,
        edits: codec::get_uint(row, "edits")?,
    })
}

pub(crate) fn search_memory(
    conn: &Connection,
    text: &str,
    session: Option<SessionId>,
    secrets: Secrets,
    limit: usize,
) -> Result<Vec<MemoryHit>, StoreError> {
    let scope = MemoryScope { session, secrets, span: None };
    let mut hits = Vec::new();
    for (row, score) in word_candidates(conn, text, scope, limit)? {
        let memory = query_one(conn, "SELECT * FROM memory WHERE n = ?1", [row], decode_memory)?;
        hits.extend(memory.map(|memory| MemoryHit { memory, score }));
    }
    Ok(hits)
}

pub(crate) fn explain_search(text: &str) -> Option<Unsearchable> {
    Query::parse(text).unsearchable
}

pub(crate) fn read_memory(conn: &Connection, memory: MemoryId) -> Result<Option<Memory>, StoreError> {
    query_one(conn, "SELECT * FROM memory WHERE id = ?1", [memory.to_string()], decode_memory)
}

/// Returns the memories that are in every context, at most so many of each kind.
pub(crate) fn pinned_memories(
    conn: &Connection,
    secrets: Secrets,
    limit: usize,
) -> Result<Vec<Memory>, StoreError> {
    // Memories of external origin are never pinned, and preferences only if the owner has confirmed them.
    let sql = "SELECT * FROM memory WHERE kind = ?1 AND session IS NULL AND (secret = 0 OR ?2)
               AND status = 'active' AND taint <> 'external' AND (trust <> 'working' OR ?3)
               ORDER BY n DESC LIMIT ?4";
    let mut pinned = Vec::new();
    for kind in [MemoryKind::Profile, MemoryKind::Preference] {
        let unconfirmed = kind == MemoryKind::Profile;
        let values = params![
            to_name("memory kind", &kind)?,
            secrets == Secrets::Told,
            unconfirmed,
            codec::limit(limit)
        ];
        pinned.extend(query(conn, sql, values, decode_memory)?);
    }
    Ok(pinned)
}

// === impl Memory ===

impl Memory {
    /// Returns true if a search of a session may find it: it is active, belongs to all sessions or to that one, and is
    /// secret only where secrets may be read.
    pub fn is_readable(&self, session: Option<SessionId>, secrets: Secrets) -> bool {
        let in_scope = self.item.session.is_none() || self.item.session == session;
        let is_clear = !self.item.secret || secrets == Secrets::Told;
        in_scope && is_clear && self.traits.status == MemoryStatus::Active
    }
}

#[cfg(test)]
mod tests;
