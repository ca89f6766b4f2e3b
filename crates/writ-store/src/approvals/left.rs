//! The rest of a session: its asks that wait, and its unused approvals.

use rusqlite::{Connection, params};
use writ_types::id::{AskId, SessionId};

use super::{StoredAsk, decode_ask};
use crate::codec::{self, execute, query};
use crate::error::{Conflict, StoreError};

pub(crate) fn revoke_approval(conn: &Connection, ask: &AskId) -> Result<(), StoreError> {
    let changed = execute(conn, "UPDATE approval SET revoked = 1 WHERE ask = ?1", [ask.as_str()])?;
    if changed == 0 {
        return Err(Conflict::Missing { what: "approval", id: ask.to_string() }.into());
    }
    Ok(())
}

pub(crate) fn revoke_unused(conn: &Connection, session: SessionId) -> Result<(), StoreError> {
    let sql = "UPDATE approval SET revoked = 1
               WHERE ask IN (SELECT id FROM ask WHERE state = 'approved' AND session = ?1)";
    execute(conn, sql, [session.to_string()])?;
    Ok(())
}

pub(crate) fn waiting_asks(
    conn: &Connection,
    session: SessionId,
    limit: usize,
) -> Result<Vec<StoredAsk>, StoreError> {
    let sql = "SELECT * FROM ask WHERE state IN ('open', 'approved') AND session = ?1
               ORDER BY asked_at, id LIMIT ?2";
    let params = params![session.to_string(), codec::limit(limit)];
    query(conn, sql, params, decode_ask)
}

pub(crate) fn waiting_sessions(conn: &Connection) -> Result<Vec<SessionId>, StoreError> {
    let sql = "SELECT session FROM message WHERE state = 'ready'
               UNION SELECT session FROM message WHERE state = 'leased'
               UNION SELECT session FROM ask WHERE state IN ('open', 'approved') AND session IS NOT NULL";
    let decode = |row: &rusqlite::Row<'_>| codec::parse("session id", &row.get::<_, String>(0)?);
    query(conn, sql, [], decode)
}
