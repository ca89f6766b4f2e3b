//! The stored inner nodes, read beside the rows: one cursor for each level.

use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, Rows};

use crate::error::StoreError;
use crate::ledger::tree::Hash;

/// The most levels of a tree with 64 bits of leaves.
const MAX_LEVELS: u32 = 64;

/// Opens a statement for each level from 1 up.
pub(super) fn statements(conn: &Connection) -> Result<Vec<CachedStatement<'_>>, StoreError> {
    let levels: Option<i64> = conn.query_row("SELECT max(level) FROM ledger_node", [], |row| row.get(0))?;
    let levels = u32::try_from(levels.unwrap_or(0)).unwrap_or(0).min(MAX_LEVELS);
    (1..=levels)
        .map(|_| Ok(conn.prepare_cached("SELECT idx, hash FROM ledger_node WHERE level = ?1 ORDER BY idx")?))
        .collect()
}

/// A cursor for each level, in the order of the levels.
pub(super) struct Cursors<'a>(Vec<Rows<'a>>);

impl<'a> Cursors<'a> {
    pub(super) fn open(statements: &'a mut [CachedStatement<'_>]) -> Result<Self, StoreError> {
        let rows = (1_i64..).zip(statements).map(|(level, statement)| Ok(statement.query([level])?));
        Ok(Self(rows.collect::<Result<_, StoreError>>()?))
    }

    /// Returns true if the next stored node of a level is this one.
    pub(super) fn next_is(&mut self, level: u32, index: u64, hash: &Hash) -> Result<bool, StoreError> {
        let cursor = usize::try_from(level).ok().and_then(|level| self.0.get_mut(level.checked_sub(1)?));
        let Some(row) = cursor.map(Rows::next).transpose()?.flatten() else { return Ok(false) };
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        Ok(matches!((row.get_ref(0)?, row.get_ref(1)?),
            (ValueRef::Integer(found), ValueRef::Blob(bytes)) if found == index && bytes == hash))
    }

    /// Returns true if stored nodes are left that belong to no row.
    pub(super) fn any_left(&mut self) -> Result<bool, StoreError> {
        for cursor in &mut self.0 {
            if cursor.next()?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
