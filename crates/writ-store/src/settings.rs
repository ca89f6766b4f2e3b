//! Settings that live with the data: installation, epoch, and what the engine keeps for itself.

use rusqlite::{Connection, OptionalExtension as _};
use serde_json::Value;
use writ_types::id::InstallationId;

use crate::codec::{self, execute};
use crate::error::StoreError;

/// The key of the epoch. `backup restore` raises it; approvals and task keys of earlier epochs are void.
pub const EPOCH: &str = "epoch";

/// The epoch of a new installation.
pub const FIRST_EPOCH: u64 = 1;

const INSTALLATION: &str = "installation";

/// The installation's id, made on first use.
pub(crate) fn ensure_installation(
    conn: &Connection,
    make: impl FnOnce() -> InstallationId,
) -> Result<InstallationId, StoreError> {
    if let Some(Value::String(text)) = read_setting(conn, INSTALLATION)? {
        return codec::parse("installation id", &text);
    }
    // First use: made with the database, and never changed.
    let id = make();
    write_setting(conn, INSTALLATION, &Value::String(id.to_string()))?;
    Ok(id)
}

/// The installation's id, where there must be one.
pub(crate) fn installation_of(conn: &Connection) -> Result<InstallationId, StoreError> {
    match read_setting(conn, INSTALLATION)? {
        Some(Value::String(text)) => codec::parse("installation id", &text),
        Some(_) | None => Err(StoreError::Corrupt("it names no installation".to_owned())),
    }
}

/// The epoch in force.
pub(crate) fn epoch_of(conn: &Connection) -> Result<u64, StoreError> {
    Ok(read_setting(conn, EPOCH)?.and_then(|value| value.as_u64()).unwrap_or(FIRST_EPOCH))
}

pub(crate) fn write_setting(conn: &Connection, key: &str, value: &Value) -> Result<(), StoreError> {
    let text = codec::to_json("setting", value)?;
    execute(
        conn,
        "INSERT INTO setting (key, value) VALUES (?1, ?2)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [key, &text],
    )?;
    Ok(())
}

pub(crate) fn read_setting(conn: &Connection, key: &str) -> Result<Option<Value>, StoreError> {
    let text: Option<String> = conn
        .prepare_cached("SELECT value FROM setting WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    text.map(|text| codec::from_json("setting", &text)).transpose()
}
