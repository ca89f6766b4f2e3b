//! The content of a deleted session: what of it is erased, and what is still needed.
//!
//! An erasure has two marks. The first is set with the first step, so that an engine that was killed in between, or one that
//! waits for something, goes on at its next look. The second is set when nothing of the content is left that can go.

use rusqlite::{Connection, params};
use serde_json::Value;
use writ_types::id::SessionId;
use writ_types::unit::Timestamp;

use super::{CLOSED_AT, DELETED_AT, ERASED_AT, ERASING_AT, missing_session, read_session, write_metadata};
use crate::codec::{self, execute, query};
use crate::error::{Conflict, StoreError};
use crate::ledger::erase::{self, MAX_NAMED_ITEMS, SessionRemains};

/// The asks of a session that nothing waits for and no approval in force rests on.
const ENDED_ASKS: &str = "SELECT id FROM ask WHERE session = ?1 AND state NOT IN ('open', 'approved') AND NOT EXISTS (
    SELECT 1 FROM approval WHERE ask = ask.id AND revoked = 0 AND executions_used < max_uses AND expires_at > ?2)";

/// The statements that erase what a session holds besides the ledger.
const STATEMENTS: [&str; 12] = [
    "DELETE FROM chronicle WHERE session = ?1",
    "DELETE FROM frame WHERE session = ?1",
    "DELETE FROM turn_event WHERE turn IN (SELECT id FROM turn WHERE session = ?1)",
    "UPDATE message SET text = '', error = '' WHERE session = ?1",
    "DELETE FROM compaction WHERE session = ?1",
    "DELETE FROM message_file WHERE session = ?1",
    "DELETE FROM kept_result WHERE session = ?1",
    // An episode is a part of the conversation. What was learned from it is a memory of its own, which its owner forgets.
    "DELETE FROM memory WHERE session = ?1 AND kind = 'episode'",
    "DELETE FROM outbox WHERE session = ?1",
    "DELETE FROM undo WHERE session = ?1",
    // Steps and attempts go with their item.
    "DELETE FROM work_item WHERE is_active = 0 AND (session = ?1 OR origin = ?1)",
    "UPDATE session SET project = NULL WHERE id = ?1",
];

/// The tables that rest on asks, those that refer to others first.
const ASK_TABLES: [&str; 4] = ["plan_step", "plan", "approval_part", "approval"];

/// Erases what the session holds besides the ledger, and notes that its erasure has begun.
pub(super) fn erase_session(conn: &Connection, session: SessionId, at: Timestamp) -> Result<(), StoreError> {
    let id = session.to_string();
    let row = read_session(conn, session)?.ok_or_else(|| missing_session(session))?;
    if !row.metadata.contains_key(DELETED_AT) || !row.metadata.contains_key(CLOSED_AT) {
        return Err(Conflict::NotDeleted(session).into());
    }
    // Its end would write the conversation back.
    let open = "SELECT 1 FROM turn WHERE session = ?1 AND ended_at IS NULL";
    if conn.prepare_cached(open)?.exists([&id])? {
        return Err(Conflict::TurnOpen(session).into());
    }
    for sql in STATEMENTS {
        execute(conn, sql, [&id])?;
    }
    for table in ASK_TABLES {
        let sql = format!("DELETE FROM {table} WHERE ask IN ({ENDED_ASKS})");
        execute(conn, &sql, params![id, at.as_millis()])?;
    }
    execute(conn, &format!("DELETE FROM ask WHERE id IN ({ENDED_ASKS})"), params![id, at.as_millis()])?;
    // Names and hosts were content too; what says that it is closed and deleted stays.
    let mut metadata = row.metadata;
    metadata.retain(|key, _| [CLOSED_AT, DELETED_AT, ERASED_AT].contains(&key.as_str()));
    if !metadata.contains_key(ERASED_AT) {
        metadata.insert(ERASING_AT.to_owned(), Value::from(at.to_string()));
    }
    write_metadata(conn, session, &metadata)
}

/// Notes that nothing of a session's content is left that can go.
pub(super) fn end_erasure(conn: &Connection, session: SessionId, at: Timestamp) -> Result<(), StoreError> {
    // Once more: asks and work items that have ended since the first step go now.
    erase_session(conn, session, at)?;
    let SessionRemains { erasable, waiting, lasting: _, items: _ } = session_remains(conn, session, at)?;
    if !erasable.is_empty() || waiting > 0 {
        return Err(Conflict::ContentLeft(session).into());
    }
    let mut metadata = read_session(conn, session)?.ok_or_else(|| missing_session(session))?.metadata;
    metadata.remove(ERASING_AT);
    metadata.entry(ERASED_AT.to_owned()).or_insert_with(|| Value::from(at.to_string()));
    write_metadata(conn, session, &metadata)
}

/// Returns what is left of a session's content.
pub(crate) fn session_remains(
    conn: &Connection,
    session: SessionId,
    now: Timestamp,
) -> Result<SessionRemains, StoreError> {
    let id = session.to_string();
    let mut remains = erase::session_payloads(conn, session, now)?;
    let count = |sql: &str| -> Result<usize, StoreError> {
        let found: i64 = conn.prepare_cached(sql)?.query_row([&id], |row| row.get(0))?;
        Ok(usize::try_from(found).unwrap_or(usize::MAX))
    };
    let others = [
        "SELECT count(*) FROM ask WHERE session = ?1",
        "SELECT count(*) FROM work_item WHERE session = ?1 OR origin = ?1",
        "SELECT count(*) FROM turn WHERE session = ?1 AND ended_at IS NULL",
    ];
    for sql in others {
        remains.waiting = remains.waiting.saturating_add(count(sql)?);
    }
    let sql =
        "SELECT id FROM work_item WHERE is_active = 1 AND (session = ?1 OR origin = ?1) ORDER BY id LIMIT ?2";
    remains.items = query(conn, sql, params![id, codec::limit(MAX_NAMED_ITEMS)], |row| {
        codec::parse("item id", &row.get::<_, String>("id")?)
    })?;
    Ok(remains)
}

/// Returns sessions whose content is to be erased: those deleted until `before`, and those whose erasure has begun; the ones
/// that were never tried first, then those tried longest ago.
pub(crate) fn sessions_to_erase(
    conn: &Connection,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<SessionId>, StoreError> {
    let sql = "SELECT id FROM session WHERE json_extract(metadata, '$.deleted_at') IS NOT NULL
               AND json_extract(metadata, '$.erased_at') IS NULL
               AND (json_extract(metadata, '$.erasing_at') IS NOT NULL OR json_extract(metadata, '$.deleted_at') <= ?1)
               ORDER BY json_extract(metadata, '$.erasing_at') NULLS FIRST, id LIMIT ?2";
    query(conn, sql, params![before.to_string(), codec::limit(limit)], |row| {
        codec::parse("session id", &row.get::<_, String>("id")?)
    })
}
