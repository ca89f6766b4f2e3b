//! Reads for programs that watch the autopilots of a home: sessions that are not over, tries that wait, and sums.

use rusqlite::{Connection, params};
use writ_types::id::PilotId;
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use super::stored::decode_session;
use super::{MAX_READY, PilotSession};
use crate::codec::{self, get_time, get_uint, query, query_one};
use crate::error::StoreError;

/// The most sessions that one look shows.
pub const MAX_SHOWN_SESSIONS: usize = 100;

/// A unit that waits for another try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryRow {
    /// The unit.
    pub unit: String,
    /// The number of its newest dispatch.
    pub attempt: u32,
    /// The time of the next try.
    pub due_at: Timestamp,
    /// The code of the last run's error; without one its outcome.
    pub error: String,
}

/// The sums of a project over its runs that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PilotSums {
    /// Tokens that were read by models.
    pub input: Tokens,
    /// Tokens that models have written.
    pub output: Tokens,
    /// The cost.
    pub cost: MicroUsd,
    /// The time of all runs together, in milliseconds.
    pub millis: u64,
}

/// Returns the sessions that are not over, oldest first.
pub(crate) fn active_sessions(conn: &Connection) -> Result<Vec<PilotSession>, StoreError> {
    let sql = "SELECT * FROM pilot_session WHERE status NOT IN ('complete', 'failed') ORDER BY id LIMIT ?1";
    query(conn, sql, [codec::limit(MAX_SHOWN_SESSIONS)], decode_session)
}

/// Returns a session.
pub(crate) fn session(conn: &Connection, id: PilotId) -> Result<Option<PilotSession>, StoreError> {
    query_one(conn, "SELECT * FROM pilot_session WHERE id = ?1", [id.to_string()], decode_session)
}

/// Returns the units of a project that wait for another try, the next one first.
pub(crate) fn retries(conn: &Connection, project: &str, now: Timestamp) -> Result<Vec<RetryRow>, StoreError> {
    let sql = "SELECT u.id, u.attempt, u.not_before, r.error_code, r.outcome FROM unit u
               JOIN unit_run r ON r.project = u.project AND r.unit_snap = u.id AND r.attempt = u.attempt
               WHERE u.project = ?1 AND u.is_over = 0 AND u.claim_holder IS NULL AND u.archived_at IS NULL AND u.not_before > ?2
               AND r.outcome <> 'success'
               ORDER BY u.not_before, u.id LIMIT ?3";
    query(conn, sql, params![project, now.as_millis(), codec::limit(MAX_READY)], |row| {
        let code: String = row.get("error_code")?;
        Ok(RetryRow {
            unit: row.get("id")?,
            attempt: row.get("attempt")?,
            due_at: get_time(row, "not_before")?,
            error: if code.is_empty() { row.get("outcome")? } else { code },
        })
    })
}

/// Returns the sums of a project.
pub(crate) fn sums(conn: &Connection, project: &str) -> Result<PilotSums, StoreError> {
    let runs = "SELECT coalesce(sum(input_tokens), 0) AS input, coalesce(sum(output_tokens), 0) AS output,
                       coalesce(sum(cost_micro_usd), 0) AS cost, coalesce(sum(max(ended_at - started_at, 0)), 0) AS millis
                FROM unit_run WHERE project = ?1 AND unit_snap IS NOT NULL AND ended_at IS NOT NULL";
    let sums = query_one(conn, runs, [project], |row| {
        Ok(PilotSums {
            input: Tokens::new(get_uint(row, "input")?),
            output: Tokens::new(get_uint(row, "output")?),
            cost: MicroUsd::new(get_uint(row, "cost")?),
            millis: get_uint(row, "millis")?,
        })
    })?;
    Ok(sums.unwrap_or_default())
}
