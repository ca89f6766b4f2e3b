//! The keys that people approve with.

use rusqlite::{Connection, Row, params};
use writ_inspect::webauthn::counts_on;
use writ_types::id::KeyId;
use writ_types::unit::Timestamp;

use crate::bounds::MAX_READ_ROWS;
use crate::codec::{self, execute, get_time, query, query_one};
use crate::error::{Conflict, StoreError};

/// A key that people approve with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApproverKey {
    /// Its id.
    pub id: KeyId,
    /// The kind of its holder: `cli`, `passkey`.
    pub kind: String,
    /// Its name for people.
    pub label: String,
    /// The public half, in the form that its kind has (32 bytes for Ed25519).
    pub public_key: Vec<u8>,
    /// When it was enrolled.
    pub enrolled_at: Timestamp,
    /// When it was revoked; `None` while it is in force.
    pub revoked_at: Option<Timestamp>,
}

pub(crate) fn enroll_key(conn: &Connection, key: &ApproverKey) -> Result<(), StoreError> {
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO approver_key (id, kind, label, public_key, enrolled_at, revoked_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            key.id.to_string(),
            key.kind,
            key.label,
            key.public_key,
            key.enrolled_at.as_millis(),
            key.revoked_at.map(Timestamp::as_millis),
        ],
    )?;
    if added == 0 {
        Err(Conflict::Exists { what: "approver key", id: key.id.to_string() }.into())
    } else {
        Ok(())
    }
}

pub(crate) fn revoke_key(conn: &Connection, key: KeyId, at: Timestamp) -> Result<(), StoreError> {
    let changed = execute(
        conn,
        "UPDATE approver_key SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL",
        params![key.to_string(), at.as_millis()],
    )?;
    if changed == 0 {
        return Err(Conflict::Missing { what: "approver key in force", id: key.to_string() }.into());
    }
    Ok(())
}

/// Returns a passkey's signature count. It is stored as a counter under the key's id.
pub(crate) fn counted(conn: &Connection, key: KeyId) -> Result<u32, StoreError> {
    let sql = "SELECT value FROM counter WHERE name = ?1";
    Ok(query_one(conn, sql, [counter(key)], |row| Ok(row.get(0)?))?.unwrap_or(0))
}

fn counter(key: KeyId) -> String {
    format!("passkey {key}")
}

/// Moves a passkey's counter on.
pub(crate) fn count_passkey(conn: &Connection, key: KeyId, sign_count: u32) -> Result<(), StoreError> {
    // Compared in the transaction that writes: a cloned passkey may answer at the same moment.
    if !counts_on(counted(conn, key)?, sign_count) {
        return Err(Conflict::Counter(key).into());
    }
    execute(
        conn,
        "INSERT INTO counter (name, value) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        params![counter(key), sign_count],
    )?;
    Ok(())
}

fn decode_key(row: &Row<'_>) -> Result<ApproverKey, StoreError> {
    Ok(ApproverKey {
        id: codec::parse("key id", &row.get::<_, String>("id")?)?,
        kind: row.get("kind")?,
        label: row.get("label")?,
        public_key: row.get("public_key")?,
        enrolled_at: get_time(row, "enrolled_at")?,
        revoked_at: row.get::<_, Option<i64>>("revoked_at")?.map(Timestamp::from_millis),
    })
}

/// The approver keys, oldest first; the revoked ones too.
pub(crate) fn approver_keys(conn: &Connection) -> Result<Vec<ApproverKey>, StoreError> {
    let sql = "SELECT * FROM approver_key ORDER BY enrolled_at, id LIMIT ?1";
    query(conn, sql, [codec::limit(MAX_READ_ROWS)], decode_key)
}
