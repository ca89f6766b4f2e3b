//! Memories by what they refer to.

use rusqlite::{Connection, params};
use writ_types::id::MemoryId;

use super::{Memory, decode_memory};
use crate::codec::{self, query};
use crate::error::StoreError;

pub(crate) fn memories_about(
    conn: &Connection,
    entity: &str,
    limit: usize,
) -> Result<Vec<Memory>, StoreError> {
    let sql = "SELECT m.* FROM memory_entity e JOIN memory m ON m.n = e.n
               WHERE e.entity = ?1 AND m.status = 'active' ORDER BY e.n DESC LIMIT ?2";
    query(conn, sql, params![entity, codec::limit(limit)], decode_memory)
}

pub(crate) fn effects_of(
    conn: &Connection,
    memory: MemoryId,
    limit: usize,
) -> Result<Vec<Memory>, StoreError> {
    let sql = "SELECT m.* FROM memory_cause c JOIN memory m ON m.n = c.n
               WHERE c.cause = ?1 AND m.status = 'active' ORDER BY c.n LIMIT ?2";
    query(conn, sql, params![memory.to_string(), codec::limit(limit)], decode_memory)
}
