//! The part of a restore that is one operation of a batch.

use rusqlite::{Connection, params};
use writ_types::unit::Timestamp;

use crate::codec::execute;
use crate::error::StoreError;

/// The error of messages that a restore gave up.
const GIVEN_UP: &str = "given up: a backup was restored";

/// Voids everything that waits. Nothing of it may run again without a request: it may have run after the
/// backup was made.
pub(crate) fn void_waiting(conn: &Connection, at: Timestamp, mark: &str) -> Result<(), StoreError> {
    let at = at.as_millis();
    execute(
        conn,
        "UPDATE message SET state = 'dead', error = ?1 WHERE state IN ('ready', 'leased')",
        [GIVEN_UP],
    )?;
    execute(
        conn,
        "UPDATE ask SET state = 'expired', resolved_at = ?1, reason = ?2 WHERE state IN ('open', 'approved')",
        params![at, GIVEN_UP],
    )?;
    // An approval may have been used after the backup; used up ones say so in the row.
    execute(conn, "UPDATE approval SET revoked = 1 WHERE executions_used < max_uses", [])?;
    // A message may have been delivered after the backup was made, and is not sent again.
    execute(conn, "DELETE FROM outbox", [])?;
    let newest = "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'outbox'), 0)";
    execute(conn, &format!("UPDATE outbox_cursor SET n = {newest}"), [])?;
    // The projects may have changed since the backup was made, so earlier changes cannot be undone any more.
    execute(conn, "DELETE FROM undo", [])?;
    execute(conn, "UPDATE session SET metadata = json_set(metadata, '$.' || ?1, json('true'))", [mark])?;
    Ok(())
}
