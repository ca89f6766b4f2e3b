//! The memories that a search may find: only they take places.

use rusqlite::{Connection, params};
use writ_types::id::SessionId;
use writ_types::unit::Timestamp;

use super::Secrets;
use crate::codec::{self, query};
use crate::error::StoreError;

/// The memories that a search may find: active ones, of all sessions or of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryScope {
    /// The session of which memories are found beside the common ones.
    pub session: Option<SessionId>,
    /// The treatment of secret memories.
    pub secrets: Secrets,
    /// The time that they are of, from the first moment to before the second; `None`: any.
    pub span: Option<(Timestamp, Timestamp)>,
}

/// The condition of a scope on the memory `m`; its parameters are the first four of a statement.
pub(super) const IN_SCOPE: &str = "m.status = 'active' AND (m.session IS NULL OR m.session = ?1)
    AND (m.secret = 0 OR ?2) AND coalesce(m.happened, m.at) >= ?3 AND coalesce(m.happened, m.at) < ?4";

impl MemoryScope {
    /// Returns the parameters of the condition.
    pub(super) fn values(self) -> (Option<String>, bool, i64, i64) {
        let (start, end) =
            self.span.map_or((i64::MIN, i64::MAX), |(start, end)| (start.as_millis(), end.as_millis()));
        (self.session.map(|id| id.to_string()), self.secrets == Secrets::Told, start, end)
    }
}

/// Returns the first of the given rows that are in a scope, in their order.
pub(crate) fn readable_rows(
    conn: &Connection,
    rows: &[i64],
    scope: MemoryScope,
    limit: usize,
) -> Result<Vec<i64>, StoreError> {
    let sql = format!("SELECT 1 FROM memory m WHERE m.n = ?5 AND {IN_SCOPE}");
    let mut statement = conn.prepare_cached(&sql)?;
    let (session, secret, start, end) = scope.values();
    let mut readable = Vec::new();
    for row in rows.iter().take(crate::bounds::MAX_READ_ROWS) {
        if readable.len() >= limit {
            break;
        }
        if statement.exists(params![session, secret, start, end, row])? {
            readable.push(*row);
        }
    }
    Ok(readable)
}

/// Returns the rows of a span of time, newest first.
pub(crate) fn rows_within(
    conn: &Connection,
    scope: MemoryScope,
    limit: usize,
) -> Result<Vec<i64>, StoreError> {
    // A memory belongs to the time at which its event happened; without one, to the time at which it was stored. There are two
    // queries, because each has an index of its own.
    let sql = "SELECT m.n, m.at AS moment FROM memory m
                   WHERE m.at >= ?3 AND m.at < ?4 AND m.happened IS NULL AND m.status = 'active'
                   AND (m.session IS NULL OR m.session = ?1) AND (m.secret = 0 OR ?2)
               UNION ALL
               SELECT m.n, m.happened FROM memory m
                   WHERE m.happened >= ?3 AND m.happened < ?4 AND m.status = 'active'
                   AND (m.session IS NULL OR m.session = ?1) AND (m.secret = 0 OR ?2)
               ORDER BY moment DESC, n DESC LIMIT ?5";
    let (session, secret, start, end) = scope.values();
    query(conn, sql, params![session, secret, start, end, codec::limit(limit)], |row| Ok(row.get("n")?))
}

/// Returns the rows that refer to a name, newest first.
pub(crate) fn rows_about(
    conn: &Connection,
    name: &str,
    scope: MemoryScope,
    limit: usize,
) -> Result<Vec<i64>, StoreError> {
    // The name is looked up first: its index is short, and the table is long.
    let sql = format!(
        "SELECT e.n FROM memory_entity e CROSS JOIN memory m ON m.n = e.n
         WHERE e.entity = ?5 AND {IN_SCOPE} ORDER BY e.n DESC LIMIT ?6"
    );
    let (session, secret, start, end) = scope.values();
    let values = params![session, secret, start, end, name, codec::limit(limit)];
    query(conn, &sql, values, |row| Ok(row.get(0)?))
}
