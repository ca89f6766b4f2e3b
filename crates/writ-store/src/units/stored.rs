//! Reads of units.

use rusqlite::{Connection, Row, params};
use writ_types::id::PilotId;
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use super::{
    GateRow, MAX_READY, MAX_UNITS, PilotBlocker, PilotSession, RunRow, TransitionRow, UnitCost, UnitKey,
    UnitLine, UnitRow, UnitRunEnd,
};
use crate::codec::{self, get_time, get_uint, query, query_one};
use crate::error::StoreError;

const LINE: &str = "SELECT id, parent, title, phase, phase_status, attempt, fence, priority, is_over,
                    claim_holder IS NOT NULL AS is_claimed, workspace IS NOT NULL AS has_begun, created_at FROM unit";

pub(super) fn decode_session(row: &Row<'_>) -> Result<PilotSession, StoreError> {
    Ok(PilotSession {
        id: codec::parse("autopilot session id", &row.get::<_, String>("id")?)?,
        project: row.get("project")?,
        status: row.get("status")?,
        created_at: get_time(row, "created_at")?,
        updated_at: get_time(row, "updated_at")?,
    })
}

fn decode_line(row: &Row<'_>) -> Result<UnitLine, StoreError> {
    Ok(UnitLine {
        id: row.get("id")?,
        parent: row.get("parent")?,
        title: row.get("title")?,
        phase: row.get("phase")?,
        phase_status: row.get("phase_status")?,
        attempt: row.get("attempt")?,
        fence: get_uint(row, "fence")?,
        priority: row.get("priority")?,
        is_over: row.get("is_over")?,
        is_claimed: row.get("is_claimed")?,
        has_begun: row.get("has_begun")?,
        created_at: get_time(row, "created_at")?,
    })
}

fn decode_unit(row: &Row<'_>) -> Result<UnitRow, StoreError> {
    // Both or neither, as the table demands.
    let holder: Option<String> = row.get("claim_holder")?;
    let until = row.get::<_, Option<i64>>("claim_until")?.map(Timestamp::from_millis);
    Ok(UnitRow {
        key: UnitKey { project: row.get("project")?, id: row.get("id")? },
        session: codec::parse("autopilot session id", &row.get::<_, String>("session")?)?,
        parent: row.get("parent")?,
        kind: row.get("kind")?,
        title: row.get("title")?,
        description: row.get("description")?,
        metadata: row.get("metadata")?,
        workflow: row.get("workflow")?,
        workflow_hash: codec::parse("digest of a workflow", &row.get::<_, String>("workflow_hash")?)?,
        phase: row.get("phase")?,
        phase_status: row.get("phase_status")?,
        attempt: row.get("attempt")?,
        is_over: row.get("is_over")?,
        open_blockers: row.get("open_blockers")?,
        fence: get_uint(row, "fence")?,
        claim: holder.zip(until),
        not_before: get_time(row, "not_before")?,
        priority: row.get("priority")?,
        worker_host: row.get("worker_host")?,
        workspace: row.get("workspace")?,
        archived_at: row.get::<_, Option<i64>>("archived_at")?.map(Timestamp::from_millis),
        created_at: get_time(row, "created_at")?,
        updated_at: get_time(row, "updated_at")?,
    })
}

pub(super) fn decode_run(row: &Row<'_>) -> Result<RunRow, StoreError> {
    let run = codec::parse("run id", &row.get::<_, String>("id")?)?;
    let end = match row.get::<_, Option<i64>>("ended_at")? {
        Some(at) => Some(UnitRunEnd {
            run,
            outcome: row.get("outcome")?,
            error_code: row.get("error_code")?,
            input: Tokens::new(get_uint(row, "input_tokens")?),
            output: Tokens::new(get_uint(row, "output_tokens")?),
            cost: MicroUsd::new(get_uint(row, "cost_micro_usd")?),
            at: Timestamp::from_millis(at),
        }),
        None => None,
    };
    Ok(RunRow {
        id: run,
        unit: row.get("unit_snap")?,
        attempt: row.get("attempt")?,
        phase: row.get("phase")?,
        host: row.get("worker_host")?,
        workspace: row.get("workspace")?,
        started_at: get_time(row, "started_at")?,
        end,
    })
}

/// Returns the session of a project that was changed last.
pub(crate) fn pilot_session(conn: &Connection, project: &str) -> Result<Option<PilotSession>, StoreError> {
    let sql = "SELECT * FROM pilot_session WHERE project = ?1 ORDER BY updated_at DESC, id DESC LIMIT 1";
    query_one(conn, sql, [project], decode_session)
}

/// Returns the sessions with a status, oldest first.
pub(crate) fn pilot_sessions(conn: &Connection, status: &str) -> Result<Vec<PilotSession>, StoreError> {
    let sql = "SELECT * FROM pilot_session WHERE status = ?1 ORDER BY id LIMIT ?2";
    query(conn, sql, params![status, codec::limit(usize::MAX)], decode_session)
}

/// Returns the units of a project that belong to no other and are not archived: milestones, and tasks that were asked for directly.
pub(crate) fn top_units(conn: &Connection, project: &str) -> Result<Vec<UnitRow>, StoreError> {
    // By the index of parents, so that the number of units does not count.
    let sql = "SELECT * FROM unit WHERE project = ?1 AND parent IS NULL AND archived_at IS NULL
               ORDER BY created_at, id LIMIT ?2";
    query(conn, sql, params![project, codec::limit(usize::MAX)], decode_unit)
}

/// Returns the units of a project that are not archived, oldest first, with all that is known of them.
pub(crate) fn whole_units(
    conn: &Connection,
    project: &str,
    limit: usize,
) -> Result<Vec<UnitRow>, StoreError> {
    let sql =
        "SELECT * FROM unit WHERE project = ?1 AND archived_at IS NULL ORDER BY created_at, id LIMIT ?2";
    query(conn, sql, params![project, codec::limit(limit)], decode_unit)
}

pub(crate) fn unit(conn: &Connection, key: &UnitKey) -> Result<Option<UnitRow>, StoreError> {
    let sql = "SELECT * FROM unit WHERE project = ?1 AND id = ?2";
    query_one(conn, sql, params![key.project, key.id], decode_unit)
}

pub(crate) fn unit_lines(
    conn: &Connection,
    project: &str,
    limit: usize,
) -> Result<Vec<UnitLine>, StoreError> {
    let sql = format!("{LINE} WHERE project = ?1 AND archived_at IS NULL ORDER BY created_at, id LIMIT ?2");
    query(conn, &sql, params![project, codec::limit(limit)], decode_line)
}

/// Returns the ids of all units of a project, archived ones as well.
pub(crate) fn unit_ids(conn: &Connection, project: &str) -> Result<Vec<String>, StoreError> {
    // By the primary key alone: nothing of the rows is read. As many as may be planned, which is more than one read has elsewhere.
    let sql = "SELECT id FROM unit WHERE project = ?1 ORDER BY id LIMIT ?2";
    query(conn, sql, params![project, i64::try_from(MAX_UNITS).unwrap_or(i64::MAX)], |row| Ok(row.get(0)?))
}

/// Returns the units that can be dispatched now: the most urgent first, then the oldest.
pub(crate) fn ready(conn: &Connection, project: &str, now: Timestamp) -> Result<Vec<UnitLine>, StoreError> {
    // The conditions are those of the index `unit_ready`, in its order: nothing is sorted.
    let sql = format!(
        "{LINE} WHERE project = ?1 AND is_over = 0 AND open_blockers = 0 AND claim_holder IS NULL AND archived_at IS NULL
         AND not_before <= ?2 ORDER BY coalesce(priority, 5), created_at, id LIMIT ?3"
    );
    query(conn, &sql, params![project, now.as_millis(), codec::limit(MAX_READY)], decode_line)
}

/// Returns the units that workers have, the oldest first.
pub(crate) fn claimed(conn: &Connection, project: &str) -> Result<Vec<UnitLine>, StoreError> {
    let sql =
        format!("{LINE} WHERE project = ?1 AND claim_holder IS NOT NULL ORDER BY created_at, id LIMIT ?2");
    query(conn, &sql, params![project, codec::limit(MAX_READY)], decode_line)
}

/// Returns the ids of the units that one waits for and that are not over.
pub(crate) fn waits_for(conn: &Connection, key: &UnitKey) -> Result<Vec<String>, StoreError> {
    let sql =
        "SELECT b.blocked_by FROM unit_blocker b JOIN unit u ON u.project = b.project AND u.id = b.blocked_by
               WHERE b.project = ?1 AND b.unit = ?2 AND u.is_over = 0 ORDER BY b.blocked_by";
    query(conn, sql, params![key.project, key.id], |row| Ok(row.get(0)?))
}

pub(crate) fn transitions(conn: &Connection, key: &UnitKey) -> Result<Vec<TransitionRow>, StoreError> {
    let sql = "SELECT * FROM unit_transition WHERE project = ?1 AND unit = ?2 ORDER BY n LIMIT ?3";
    query(conn, sql, params![key.project, key.id, codec::limit(usize::MAX)], |row| {
        Ok(TransitionRow {
            from: row.get("from_phase")?,
            to: row.get("to_phase")?,
            reason: row.get("reason")?,
            at: get_time(row, "at")?,
        })
    })
}

pub(crate) fn runs(conn: &Connection, key: &UnitKey) -> Result<Vec<RunRow>, StoreError> {
    let sql = "SELECT * FROM unit_run WHERE project = ?1 AND unit_snap = ?2 ORDER BY attempt LIMIT ?3";
    query(conn, sql, params![key.project, key.id, codec::limit(usize::MAX)], decode_run)
}

/// Returns the costs of the runs of a project, added up for each unit: one look, whatever the number of units.
pub(crate) fn costs(conn: &Connection, project: &str, since: Timestamp) -> Result<Vec<UnitCost>, StoreError> {
    let sql = "SELECT unit_snap, sum(cost_micro_usd) AS cost,
                      sum(CASE WHEN ended_at >= ?2 THEN cost_micro_usd ELSE 0 END) AS since
               FROM unit_run WHERE project = ?1 AND unit_snap IS NOT NULL AND ended_at IS NOT NULL
               GROUP BY unit_snap ORDER BY unit_snap LIMIT ?3";
    query(conn, sql, params![project, since.as_millis(), codec::limit(MAX_UNITS)], |row| {
        Ok(UnitCost {
            unit: row.get("unit_snap")?,
            cost: MicroUsd::new(get_uint(row, "cost")?),
            since: MicroUsd::new(get_uint(row, "since")?),
        })
    })
}

pub(crate) fn gates(conn: &Connection, key: &UnitKey) -> Result<Vec<GateRow>, StoreError> {
    let sql = "SELECT * FROM unit_gate WHERE project = ?1 AND unit = ?2 ORDER BY n LIMIT ?3";
    query(conn, sql, params![key.project, key.id, codec::limit(usize::MAX)], |row| {
        Ok(GateRow {
            key: UnitKey { project: row.get("project")?, id: row.get("unit")? },
            gate: row.get("gate")?,
            passed: row.get("passed")?,
            attempt: row.get("attempt")?,
            max_retries: row.get("max_retries")?,
            output: row.get("output")?,
            duration_ms: get_uint(row, "duration_ms")?,
            at: get_time(row, "at")?,
        })
    })
}

pub(crate) fn counters(conn: &Connection, key: &UnitKey) -> Result<Vec<(String, u64)>, StoreError> {
    let sql = "SELECT name, value FROM unit_counter WHERE project = ?1 AND unit = ?2 ORDER BY name LIMIT ?3";
    query(conn, sql, params![key.project, key.id, codec::limit(usize::MAX)], |row| {
        Ok((row.get("name")?, get_uint(row, "value")?))
    })
}

/// Returns the text of a workflow by its SHA-256.
pub(crate) fn pin(conn: &Connection, hash: &str) -> Result<Option<String>, StoreError> {
    let sql = "SELECT content FROM workflow_pin WHERE hash = ?1";
    query_one(conn, sql, [hash], |row| Ok(row.get(0)?))
}

pub(crate) fn open_blockers(conn: &Connection, session: PilotId) -> Result<Vec<PilotBlocker>, StoreError> {
    let sql = "SELECT * FROM pilot_blocker WHERE session = ?1 AND resolved_at IS NULL ORDER BY id LIMIT ?2";
    query(conn, sql, params![session.to_string(), codec::limit(usize::MAX)], |row| {
        Ok(PilotBlocker {
            id: codec::parse("blocker id", &row.get::<_, String>("id")?)?,
            session,
            event: row.get("event")?,
            unit: row.get("unit")?,
            detail: row.get("detail")?,
            created_at: get_time(row, "created_at")?,
        })
    })
}
