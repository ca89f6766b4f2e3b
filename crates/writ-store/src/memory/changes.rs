//! Changes of memories, each with the state before it, and the questions about them.

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use writ_types::action::MemoryTrust;
use writ_types::id::MemoryId;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use super::vectors::{NewVector, drop_vectors, open_space, put_vectors, serve_space, skip_rows};
use super::{
    MAX_MEMORY_BYTES, MAX_USES, Memory, MemoryStatus, QuestionKind, check_traits, decode_memory, extra_terms,
    read_memory,
};
use crate::codec::{self, execute, int, query, query_one, to_name};
use crate::error::{Conflict, StoreError};

/// The most changes that are stored with the state before them; older ones can no longer be undone.
const MAX_CHANGES: i64 = 100_000;

/// The longest name of a batch of changes, in bytes.
const MAX_BATCH_BYTES: usize = 64;

/// The longest reason of a question, in bytes.
const MAX_REASON_BYTES: usize = 2_048;

/// A change of one memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryChange {
    /// Another text, with the names that it refers to.
    Text {
        /// The text.
        text: String,
        /// The names.
        entities: Vec<String>,
    },
    /// Another status.
    Status(MemoryStatus),
    /// Another confidence. External content is refused as verified or constitutional.
    Trust(MemoryTrust),
    /// A label that is less trusted.
    Taint(Taint),
    /// Another importance, in thousandths.
    Importance(u16),
    /// Pinned or not.
    Pinned(bool),
    /// The uses of another memory, which are added.
    AddUses(u64),
    /// Other causes.
    Causes(Vec<MemoryId>),
}

/// The changes that were made together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeBatch {
    /// Their name.
    pub batch: String,
    /// The time of the last.
    pub at: Timestamp,
    /// Their number.
    pub changes: u64,
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionState {
    /// The owner answered yes.
    Confirmed,
    /// The owner answered no.
    Dismissed,
}

/// A question to the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryQuestion {
    /// Its kind.
    pub kind: QuestionKind,
    /// The memory.
    pub memory: MemoryId,
    /// The other memory, of a contradiction.
    pub other: Option<MemoryId>,
    /// The reason, for people.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// An operation on memories that are there.
#[derive(Clone, Debug, PartialEq)]
pub enum MemoryOp {
    /// Changes a memory, and holds the state before. Conflict if there is none.
    Change {
        /// The memory.
        memory: MemoryId,
        /// The change.
        change: MemoryChange,
        /// The name of the changes that are undone together.
        batch: String,
        /// When.
        at: Timestamp,
    },
    /// Notes that memories were put into a context. Missing ones are left out.
    Used {
        /// Their rows.
        rows: Vec<i64>,
        /// When.
        at: Timestamp,
    },
    /// Asks the owner. A question that was asked before, and answered or not, is not asked again.
    Ask(MemoryQuestion),
    /// Answers the open questions about a memory. Answering none is no error.
    Answer {
        /// The memory.
        memory: MemoryId,
        /// The answer.
        state: QuestionState,
    },
    /// Undoes the changes of a batch, the last first. Conflict if there are none.
    Undo {
        /// The name of the batch.
        batch: String,
    },
    /// Begins the vectors of a model, unless there are some.
    OpenSpace {
        /// The name of the model.
        model: String,
        /// The number of numbers of a vector.
        dimension: u32,
    },
    /// Makes a space the one that searches use. Conflict if there is none.
    ServeSpace(i64),
    /// Deletes some vectors of a space, and the space with the last of them.
    DropVectors {
        /// The space.
        space: i64,
        /// The most vectors that are deleted.
        limit: usize,
    },
    /// Stores vectors; those of texts that have changed since are left out.
    PutVectors {
        /// The space.
        space: i64,
        /// The vectors.
        vectors: Vec<NewVector>,
        /// The row up to which every memory was looked at.
        done_to: i64,
        /// Rows that get no vector.
        skipped: Vec<i64>,
    },
}

pub(crate) fn apply_memory_op(conn: &Connection, op: &MemoryOp) -> Result<(), StoreError> {
    match op {
        MemoryOp::Change { memory, change, batch, at } => change_memory(conn, *memory, change, batch, *at),
        MemoryOp::Used { rows, at } => note_uses(conn, rows, *at),
        MemoryOp::Ask(question) => ask(conn, question),
        MemoryOp::Answer { memory, state } => answer(conn, *memory, *state),
        MemoryOp::Undo { batch } => undo_batch(conn, batch),
        MemoryOp::OpenSpace { model, dimension } => open_space(conn, model, *dimension),
        MemoryOp::ServeSpace(space) => serve_space(conn, *space),
        MemoryOp::DropVectors { space, limit } => drop_vectors(conn, *space, *limit),
        MemoryOp::PutVectors { space, vectors, done_to, skipped } => {
            put_vectors(conn, *space, vectors, *done_to)?;
            skip_rows(conn, skipped)
        }
    }
}

/// The fields of a memory as they were before a change; only those that it has changed are named, so that an undo leaves the
/// others as they are by then.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct FormerState {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<MemoryStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trust: Option<MemoryTrust>,
    #[serde(skip_serializing_if = "Option::is_none")]
    taint: Option<Taint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    importance: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned: Option<bool>,
    /// The uses that were added, which are taken away again.
    #[serde(skip_serializing_if = "Option::is_none")]
    added_uses: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entities: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    causes: Option<Vec<MemoryId>>,
}

impl FormerState {
    /// Returns the fields that a change is about, as they are now.
    fn before(memory: &Memory, change: &MemoryChange) -> Self {
        let (item, traits) = (&memory.item, &memory.traits);
        let none = Self::default();
        match change {
            MemoryChange::Text { .. } => {
                Self { text: Some(item.text.clone()), entities: Some(traits.entities.clone()), ..none }
            }
            MemoryChange::Status(_) => Self { status: Some(traits.status), ..none },
            MemoryChange::Trust(_) => Self { trust: Some(item.trust), ..none },
            MemoryChange::Taint(_) => Self { taint: Some(item.taint), ..none },
            MemoryChange::Importance(_) => Self { importance: Some(traits.importance), ..none },
            MemoryChange::Pinned(_) => Self { pinned: Some(traits.pinned), ..none },
            MemoryChange::AddUses(uses) => Self { added_uses: Some(*uses), ..none },
            MemoryChange::Causes(_) => Self { causes: Some(traits.causes.clone()), ..none },
        }
    }

    /// Brings a memory back to these fields.
    fn restore(self, memory: &mut Memory) {
        let (item, traits) = (&mut memory.item, &mut memory.traits);
        item.text = self.text.unwrap_or_else(|| std::mem::take(&mut item.text));
        item.trust = self.trust.unwrap_or(item.trust);
        item.taint = self.taint.unwrap_or(item.taint);
        traits.status = self.status.unwrap_or(traits.status);
        traits.importance = self.importance.unwrap_or(traits.importance);
        traits.pinned = self.pinned.unwrap_or(traits.pinned);
        traits.uses = traits.uses.saturating_sub(self.added_uses.unwrap_or(0));
        traits.entities = self.entities.unwrap_or_else(|| std::mem::take(&mut traits.entities));
        traits.causes = self.causes.unwrap_or_else(|| std::mem::take(&mut traits.causes));
    }
}

fn existing_memory(conn: &Connection, memory: MemoryId) -> Result<Memory, StoreError> {
    let missing = || Conflict::Missing { what: "memory", id: memory.to_string() };
    Ok(read_memory(conn, memory)?.ok_or_else(missing)?)
}

fn change_memory(
    conn: &Connection,
    id: MemoryId,
    change: &MemoryChange,
    batch: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    codec::check_bytes("name of changes", batch, MAX_BATCH_BYTES)?;
    let mut memory = existing_memory(conn, id)?;
    let before = codec::to_json("state of a memory", &FormerState::before(&memory, change))?;
    let sql = "INSERT INTO memory_change (batch, n, at, before) VALUES (?1, ?2, ?3, ?4)";
    execute(conn, sql, params![batch, memory.row, at.as_millis(), before])?;
    let sql = "DELETE FROM memory_change WHERE id <= (SELECT max(id) FROM memory_change) - ?1";
    execute(conn, sql, [MAX_CHANGES])?;
    match change {
        MemoryChange::Text { text, entities } => {
            memory.item.text.clone_from(text);
            memory.traits.entities.clone_from(entities);
        }
        MemoryChange::Status(status) => memory.traits.status = *status,
        MemoryChange::Trust(trust) => memory.item.trust = *trust,
        // Never more trusted than it was.
        MemoryChange::Taint(taint) => memory.item.taint = memory.item.taint.max(*taint),
        MemoryChange::Importance(importance) => memory.traits.importance = *importance,
        MemoryChange::Pinned(pinned) => memory.traits.pinned = *pinned,
        MemoryChange::AddUses(uses) => {
            memory.traits.uses = memory.traits.uses.saturating_add(*uses).min(MAX_USES);
        }
        MemoryChange::Causes(causes) => memory.traits.causes.clone_from(causes),
    }
    write_state(conn, &memory)
}

/// Writes only what differs, since changes of a text or a status make its vector stale.
fn write_state(conn: &Connection, memory: &Memory) -> Result<(), StoreError> {
    let Memory { item, traits, row, .. } = memory;
    if item.taint == Taint::External && item.trust != MemoryTrust::Working {
        return Err(StoreError::TaintedTrust);
    }
    codec::check_bytes("memory", &item.text, MAX_MEMORY_BYTES)?;
    check_traits(traits)?;
    let sql =
        "UPDATE memory SET trust = ?2, taint = ?3, importance = ?4, pinned = ?5, uses = ?6 WHERE n = ?1";
    let (trust, uses) = (to_name("trust", &item.trust)?, int(traits.uses));
    execute(conn, sql, params![row, trust, item.taint.as_str(), traits.importance, traits.pinned, uses])?;
    let sql = "UPDATE memory SET entity_refs = ?2, causal_refs = ?3
               WHERE n = ?1 AND (entity_refs <> ?2 OR causal_refs <> ?3)";
    let entities = codec::to_json("entities", &traits.entities)?;
    execute(conn, sql, params![row, entities, codec::to_json("causes", &traits.causes)?])?;
    let sql = "UPDATE memory SET status = ?2 WHERE n = ?1 AND status <> ?2";
    execute(conn, sql, params![row, to_name("memory status", &traits.status)?])?;
    let sql = "UPDATE memory SET text = ?2, terms = ?3, edits = edits + 1 WHERE n = ?1 AND text <> ?2";
    execute(conn, sql, params![row, item.text, extra_terms(&item.text)]).map(drop)
}

fn note_uses(conn: &Connection, rows: &[i64], at: Timestamp) -> Result<(), StoreError> {
    // The latest time stays, also where the clock was set back.
    let sql =
        "UPDATE memory SET uses = min(uses + 1, ?3), used_at = max(coalesce(used_at, ?2), ?2) WHERE n = ?1";
    rows.iter().try_for_each(|row| execute(conn, sql, params![row, at.as_millis(), int(MAX_USES)]).map(drop))
}

fn ask(conn: &Connection, question: &MemoryQuestion) -> Result<(), StoreError> {
    codec::check_bytes("reason", &question.reason, MAX_REASON_BYTES)?;
    let row = existing_memory(conn, question.memory)?.row;
    let other = question.other.map(|other| existing_memory(conn, other)).transpose()?;
    let other = other.map_or(0, |other| other.row);
    // The two of a contradiction are one question in either order.
    let sql = "INSERT OR IGNORE INTO memory_question (kind, n, other, at, reason)
               SELECT ?1, ?2, ?3, ?4, ?5
               WHERE NOT EXISTS (SELECT 1 FROM memory_question WHERE kind = ?1 AND n = ?3 AND other = ?2)";
    let kind = to_name("kind of a question", &question.kind)?;
    execute(conn, sql, params![kind, row, other, question.at.as_millis(), question.reason]).map(drop)
}

fn answer(conn: &Connection, memory: MemoryId, state: QuestionState) -> Result<(), StoreError> {
    let row = existing_memory(conn, memory)?.row;
    let sql = "UPDATE memory_question SET state = ?2 WHERE (n = ?1 OR other = ?1) AND state = 'open'";
    execute(conn, sql, params![row, to_name("answer", &state)?]).map(drop)
}

fn undo_batch(conn: &Connection, batch: &str) -> Result<(), StoreError> {
    let sql = "SELECT n, before FROM memory_change WHERE batch = ?1 AND undone = 0 ORDER BY id DESC";
    let states: Vec<(i64, FormerState)> = query(conn, sql, [batch], |row| {
        let before: String = row.get("before")?;
        Ok((row.get("n")?, codec::from_json("state of a memory", &before)?))
    })?;
    if states.is_empty() {
        return Err(Conflict::Missing { what: "changes of memories", id: batch.to_owned() }.into());
    }
    for (row, state) in states {
        let memory = query_one(conn, "SELECT * FROM memory WHERE n = ?1", [row], decode_memory)?;
        // Changes of a memory are deleted with it, so it is there.
        let Some(mut memory) = memory else { continue };
        state.restore(&mut memory);
        write_state(conn, &memory)?;
    }
    execute(conn, "UPDATE memory_change SET undone = 1 WHERE batch = ?1", [batch]).map(drop)
}
