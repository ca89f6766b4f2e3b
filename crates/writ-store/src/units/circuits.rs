//! The circuits of models: which of them have failed in a row, and until when they are passed over.

use rusqlite::{Connection, params};
use writ_types::unit::Timestamp;

use super::{MAX_TITLE_BYTES, cut};
use crate::codec::{self, execute, get_time, query};
use crate::error::StoreError;

/// The most circuits of a project, those that failed last; a configuration has far fewer models.
pub const MAX_CIRCUITS: usize = 1_000;

/// The circuit of a model that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitRow {
    /// The project's folder.
    pub project: String,
    /// The model, as `provider/name`.
    pub model: String,
    /// The tier that it was asked in last.
    pub tier: String,
    /// The time at which it was opened, and the time from which the model is asked again; `None`: it is closed.
    pub tripped: Option<(Timestamp, Timestamp)>,
    /// The time of the last failure.
    pub failed_at: Timestamp,
    /// The failures in a row.
    pub fail_count: u32,
    /// The last failure, in words.
    pub reason: String,
}

pub(super) fn set_circuit(conn: &Connection, row: &CircuitRow) -> Result<(), StoreError> {
    for text in [&row.model, &row.tier] {
        codec::check_bytes("circuit of a model", text, MAX_TITLE_BYTES)?;
    }
    let (tripped_at, resets_at) = row.tripped.map(|(at, until)| (at.as_millis(), until.as_millis())).unzip();
    let sql = "INSERT INTO circuit_breaker
               (project, model, tier, tripped_at, resets_at, failed_at, fail_count, reason)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
               ON CONFLICT (project, model) DO UPDATE SET tier = ?3, tripped_at = ?4, resets_at = ?5,
               failed_at = ?6, fail_count = ?7, reason = ?8";
    let CircuitRow { project, model, tier, failed_at, fail_count, reason, .. } = row;
    let failed_at = failed_at.as_millis();
    execute(
        conn,
        sql,
        params![project, model, tier, tripped_at, resets_at, failed_at, fail_count, cut(reason)],
    )?;
    // Names that no settings have any more would stay for ever.
    let sql = "DELETE FROM circuit_breaker WHERE project = ?1 AND model NOT IN
               (SELECT model FROM circuit_breaker WHERE project = ?1 ORDER BY failed_at DESC, model LIMIT ?2)";
    execute(conn, sql, params![project, codec::limit(MAX_CIRCUITS)])?;
    Ok(())
}

pub(super) fn clear_circuits(
    conn: &Connection,
    project: &str,
    model: Option<&str>,
) -> Result<(), StoreError> {
    let sql = "DELETE FROM circuit_breaker WHERE project = ?1 AND (?2 IS NULL OR model = ?2)";
    execute(conn, sql, params![project, model])?;
    Ok(())
}

pub(crate) fn circuits(conn: &Connection, project: &str) -> Result<Vec<CircuitRow>, StoreError> {
    let sql = "SELECT * FROM circuit_breaker WHERE project = ?1 ORDER BY model LIMIT ?2";
    query(conn, sql, params![project, codec::limit(MAX_CIRCUITS)], |row| {
        let tripped_at: Option<i64> = row.get("tripped_at")?;
        let tripped = tripped_at
            .map(|_| Ok::<_, StoreError>((get_time(row, "tripped_at")?, get_time(row, "resets_at")?)));
        Ok(CircuitRow {
            project: row.get("project")?,
            model: row.get("model")?,
            tier: row.get("tier")?,
            tripped: tripped.transpose()?,
            failed_at: get_time(row, "failed_at")?,
            fail_count: row.get("fail_count")?,
            reason: row.get("reason")?,
        })
    })
}
