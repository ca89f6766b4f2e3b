//! Vectors of memories, by model, and their codes.

use rusqlite::{Connection, params};

use super::{Memory, decode_memory};
use crate::codec::{self, execute, query, query_one};
use crate::error::{Conflict, StoreError};

/// The longest name of a model, in bytes.
pub const MAX_MODEL_BYTES: usize = 256;

/// The number that the keys of two spaces lie apart: more rows than any table will have.
const KEYS_OF_SPACE: i64 = 1 << 40;

/// The memories of one read that are looked at for those without a vector.
const LOOKED_AT_ONCE: usize = 2_000;

/// The vectors of one model of one dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorSpace {
    /// Its number.
    pub id: i64,
    /// The name of the model.
    pub model: String,
    /// The number of numbers of a vector.
    pub dimension: u32,
    /// True if searches use it.
    pub serving: bool,
    /// The row up to which every memory was looked at.
    pub done_to: i64,
}

/// The code of a vector: one bit for each dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCode {
    /// The row of its memory.
    pub row: i64,
    /// The bits.
    pub code: Vec<u8>,
}

/// The vector of a memory.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredVector {
    /// The row of its memory.
    pub row: i64,
    /// Its numbers.
    pub numbers: Vec<f32>,
}

/// A vector to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NewVector {
    /// The row of its memory.
    pub row: i64,
    /// The number of changes of the text that it was made of; of an older text it is left out.
    pub edits: u64,
    /// The bits of its code.
    pub code: Vec<u8>,
    /// Its numbers.
    pub numbers: Vec<f32>,
}

const fn key_of(space: i64, row: i64) -> i64 {
    space.saturating_mul(KEYS_OF_SPACE).saturating_add(row)
}

pub(crate) fn spaces(conn: &Connection) -> Result<Vec<VectorSpace>, StoreError> {
    query(conn, "SELECT * FROM memory_space ORDER BY id", [], |row| {
        Ok(VectorSpace {
            id: row.get("id")?,
            model: row.get("model")?,
            dimension: row.get("dimension")?,
            serving: row.get("serving")?,
            done_to: row.get("done_to")?,
        })
    })
}

pub(super) fn open_space(conn: &Connection, model: &str, dimension: u32) -> Result<(), StoreError> {
    codec::check_bytes("name of a model", model, MAX_MODEL_BYTES)?;
    // Vectors of before stay; memories that have changed or were added meanwhile are found by looking at all again.
    let sql = "INSERT INTO memory_space (model, dimension) VALUES (?1, ?2)
               ON CONFLICT (model, dimension) DO UPDATE SET done_to = 0";
    execute(conn, sql, params![model, dimension]).map(drop)
}

/// Makes one space the one that searches use.
pub(super) fn serve_space(conn: &Connection, space: i64) -> Result<(), StoreError> {
    let served = execute(conn, "UPDATE memory_space SET serving = (id = ?1)", [space])?;
    if served == 0 {
        return Err(Conflict::Missing { what: "vectors", id: space.to_string() }.into());
    }
    Ok(())
}

/// Deletes some vectors of a space that does not serve, and the space with the last.
pub(super) fn drop_vectors(conn: &Connection, space: i64, limit: usize) -> Result<(), StoreError> {
    let span = params![key_of(space, 0), key_of(space.saturating_add(1), 0), codec::limit(limit)];
    let sql = |table: &str| {
        format!(
            "DELETE FROM {table} WHERE key IN (SELECT key FROM {table} WHERE key >= ?1 AND key < ?2 LIMIT ?3)"
        )
    };
    let deleted = execute(conn, &sql("memory_code"), span)? + execute(conn, &sql("memory_vector"), span)?;
    if deleted == 0 {
        execute(conn, "DELETE FROM memory_space WHERE id = ?1 AND serving = 0", [space])?;
    }
    Ok(())
}

pub(super) fn put_vectors(
    conn: &Connection,
    space: i64,
    vectors: &[NewVector],
    done_to: i64,
) -> Result<(), StoreError> {
    for vector in vectors {
        let bytes: Vec<u8> = vector.numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        // The memory may have changed, or been deleted, while its text was embedded.
        let sql = |table: &str, column: &str| {
            format!(
                "INSERT OR REPLACE INTO {table} (key, {column})
                 SELECT ?1, ?2 FROM memory WHERE n = ?3 AND edits = ?4 AND status = 'active'"
            )
        };
        let (key, edits) = (key_of(space, vector.row), codec::int(vector.edits));
        let stored =
            execute(conn, &sql("memory_code", "code"), params![key, vector.code, vector.row, edits])?;
        execute(conn, &sql("memory_vector", "vector"), params![key, bytes, vector.row, edits])?;
        if stored > 0 {
            execute(conn, "DELETE FROM memory_todo WHERE n = ?1", [vector.row])?;
        }
    }
    execute(conn, "UPDATE memory_space SET done_to = max(done_to, ?2) WHERE id = ?1", [space, done_to])
        .map(drop)
}

/// Removes memories from those to be embedded, since they cannot be.
pub(super) fn skip_rows(conn: &Connection, rows: &[i64]) -> Result<(), StoreError> {
    rows.iter().try_for_each(|row| execute(conn, "DELETE FROM memory_todo WHERE n = ?1", [row]).map(drop))
}

pub(crate) fn codes_after(
    conn: &Connection,
    space: i64,
    row: i64,
    limit: usize,
) -> Result<Vec<StoredCode>, StoreError> {
    let sql = "SELECT key, code FROM memory_code WHERE key > ?1 AND key < ?2 ORDER BY key LIMIT ?3";
    let span = params![key_of(space, row), key_of(space.saturating_add(1), 0), codec::limit(limit)];
    query(conn, sql, span, |found| {
        Ok(StoredCode { row: found.get::<_, i64>("key")? % KEYS_OF_SPACE, code: found.get("code")? })
    })
}

pub(crate) fn vectors_of_rows(
    conn: &Connection,
    space: i64,
    rows: &[i64],
) -> Result<Vec<StoredVector>, StoreError> {
    let mut found = Vec::new();
    // In the order of the file.
    let mut rows: Vec<i64> = rows.iter().copied().take(crate::bounds::MAX_READ_ROWS).collect();
    rows.sort_unstable();
    let mut statement = conn.prepare_cached("SELECT vector FROM memory_vector WHERE key = ?1")?;
    for row in rows {
        let mut rows = statement.query([key_of(space, row)])?;
        if let Some(stored) = rows.next()? {
            let bytes = stored.get_ref("vector")?.as_blob().map_err(rusqlite::Error::from)?;
            let (chunks, _) = bytes.as_chunks::<4>();
            found.push(StoredVector {
                row,
                numbers: chunks.iter().map(|four| f32::from_le_bytes(*four)).collect(),
            });
        }
    }
    Ok(found)
}

pub(crate) fn unembedded(
    conn: &Connection,
    space: i64,
    limit: usize,
) -> Result<(Vec<Memory>, i64), StoreError> {
    let done_to = query_one(conn, "SELECT done_to FROM memory_space WHERE id = ?1", [space], |row| {
        Ok(row.get::<_, i64>(0)?)
    })?;
    let Some(done_to) = done_to else { return Ok((Vec::new(), 0)) };
    let sql = "SELECT m.* FROM memory_todo t JOIN memory m ON m.n = t.n
               WHERE m.status = 'active' ORDER BY t.n LIMIT ?1";
    let changed = query(conn, sql, [codec::limit(limit)], decode_memory)?;
    if !changed.is_empty() {
        return Ok((changed, done_to));
    }
    let sql = "SELECT max(n) FROM (SELECT n FROM memory WHERE n > ?1 ORDER BY n LIMIT ?2)";
    let part = params![done_to, codec::limit(LOOKED_AT_ONCE)];
    let last = query_one(conn, sql, part, |row| Ok(row.get::<_, Option<i64>>(0)?))?.flatten();
    let Some(last) = last else { return Ok((Vec::new(), done_to)) };
    let sql = "SELECT * FROM memory m WHERE n > ?1 AND n <= ?2 AND status = 'active'
                   AND NOT EXISTS (SELECT 1 FROM memory_code WHERE key = ?3 + m.n) ORDER BY n LIMIT ?4";
    let part = params![done_to, last, key_of(space, 0), codec::limit(limit)];
    let next = query(conn, sql, part, decode_memory)?;
    let done_to = if next.len() < limit { last } else { next.last().map_or(last, |memory| memory.row) };
    Ok((next, done_to))
}
