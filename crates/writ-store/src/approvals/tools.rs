//! The tools, values and hosts that a person has approved.

use rusqlite::{Connection, Row, params};
use serde_json::Value;
use writ_types::id::SessionId;

use super::{StoredAsk, decode_ask};
use crate::codec::{self, query};
use crate::error::StoreError;

/// The most approved tools of one session that are returned.
const MAX_APPROVED_TOOLS: usize = 256;
/// The most answers of one session that are returned as endorsements.
const MAX_ENDORSEMENTS: usize = 256;
/// The most answers that name trusted hosts and are read, those among them that do not count any more.
const MAX_TRUSTING: usize = 4_096;

pub(crate) fn approved_tools(conn: &Connection, session: SessionId) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT DISTINCT json_extract(prepared, '$.tool') AS tool FROM ask
               WHERE session = ?1 AND state = 'used' ORDER BY tool LIMIT ?2";
    let most = codec::limit(MAX_APPROVED_TOOLS);
    query(conn, sql, params![session.to_string(), most], |row| Ok(row.get("tool")?))
}

pub(crate) fn read_endorsements(
    conn: &Connection,
    session: Option<SessionId>,
) -> Result<Vec<(StoredAsk, Value)>, StoreError> {
    let sql = "SELECT ask.*, approval.token FROM ask JOIN approval ON approval.ask = ask.id
               WHERE (?1 IS NULL OR session = ?1) AND state = 'used' AND revoked = 0
               AND json_extract(token, '$.claims.values') ORDER BY asked_at DESC LIMIT ?2";
    let most = codec::limit(MAX_ENDORSEMENTS);
    let session = session.map(|id| id.to_string());
    query(conn, sql, params![session, most], with_token)
}

pub(crate) fn trusted_hosts(conn: &Connection) -> Result<Vec<(StoredAsk, Value)>, StoreError> {
    // The index serves exactly this condition; an inner join could be turned round.
    let sql = "SELECT ask.*, approval.token FROM approval CROSS JOIN ask ON ask.id = approval.ask
               WHERE approval.revoked = 0 AND json_extract(approval.token, '$.claims.host') IS NOT NULL AND ask.state = 'used'
               ORDER BY asked_at DESC LIMIT ?1";
    query(conn, sql, [codec::limit(MAX_TRUSTING)], with_token)
}

fn with_token(row: &Row<'_>) -> Result<(StoredAsk, Value), StoreError> {
    Ok((decode_ask(row)?, codec::from_json("approval", &row.get::<_, String>("token")?)?))
}
