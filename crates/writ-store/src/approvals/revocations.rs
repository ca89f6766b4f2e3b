//! Revoked keys, tokens and standing orders, by their revocation ids.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};
use writ_types::unit::Timestamp;

use crate::codec::{self, execute, query, query_one};
use crate::error::{Conflict, StoreError};

/// The longest life of a key whose revocation is deleted after its end, in milliseconds: a day. Others are few, and stay.
pub(super) const SHORT_LIFE_MS: i64 = 24 * 60 * 60 * 1_000;
/// The time for which a revocation is stored after the end of its key, in milliseconds: 30 days. A clock that runs ahead by
/// less, and is set back, brings no key to life again.
const AFTER_END_MS: i64 = 30 * SHORT_LIFE_MS;

pub(crate) fn record_revocation(
    conn: &Connection,
    id: &str,
    at: Timestamp,
    expires_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    execute(
        conn,
        "INSERT OR IGNORE INTO revocation (id, at, expires_at) VALUES (?1, ?2, ?3)",
        params![id, at.as_millis(), expires_at.map(Timestamp::as_millis)],
    )?;
    // Each revocation sweeps up old ones, so that the table stays small without a job.
    let sql = "DELETE FROM revocation WHERE expires_at < ?1 AND expires_at - at <= ?2";
    execute(conn, sql, params![at.as_millis().saturating_sub(AFTER_END_MS), SHORT_LIFE_MS])?;
    Ok(())
}

/// Returns the revocations of keys that have not ended, after an id.
pub(crate) fn revocations_after(
    conn: &Connection,
    now: Timestamp,
    after: &str,
    limit: usize,
) -> Result<Vec<(String, Option<Timestamp>)>, StoreError> {
    let sql = "SELECT id, expires_at FROM revocation
               WHERE id > ?1 AND (expires_at IS NULL OR expires_at > ?2) ORDER BY id LIMIT ?3";
    query(conn, sql, params![after, now.as_millis(), codec::limit(limit)], |row| {
        Ok((row.get("id")?, row.get::<_, Option<i64>>("expires_at")?.map(Timestamp::from_millis)))
    })
}

/// Refuses what rests on a key that was revoked.
pub(crate) fn check_keys(conn: &Connection, keys: &BTreeSet<String>) -> Result<(), StoreError> {
    // Most homes have never revoked anything.
    if !is_anything_revoked(conn)? {
        return Ok(());
    }
    for id in keys {
        if query_one(conn, "SELECT 1 FROM revocation WHERE id = ?1", [id], |_| Ok(()))?.is_some() {
            return Err(Conflict::Revoked(id.clone()).into());
        }
    }
    Ok(())
}

/// Returns true if anything was ever revoked.
pub(crate) fn is_anything_revoked(conn: &Connection) -> Result<bool, StoreError> {
    Ok(query_one(conn, "SELECT 1 FROM revocation LIMIT 1", [], |_| Ok(()))?.is_some())
}

pub(crate) fn is_revoked(conn: &Connection, id: &str) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM revocation WHERE id = ?1";
    Ok(query_one(conn, sql, [id], |_| Ok(()))?.is_some())
}
