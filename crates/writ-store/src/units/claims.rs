//! Claims of units, and what is done under them.

use rusqlite::{Connection, params};
use writ_types::id::UnitRunId;
use writ_types::unit::Timestamp;

use super::changes::require;
use super::{MAX_TITLE_BYTES, UnitDecision, UnitKey, UnitRunEnd, UnitTransition, cut};
use crate::codec::{self, execute, int, query, query_one};
use crate::error::{Conflict, StoreError};

/// A worker's claim of a unit, which begins a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStart {
    /// The unit.
    pub key: UnitKey,
    /// The fence that the caller has read; the claim's own is the next.
    pub fence: u64,
    /// The worker.
    pub holder: String,
    /// Until when.
    pub until: Timestamp,
    /// The run that begins.
    pub run: UnitRunId,
    /// Its host: `local`, or that of a worker over SSH.
    pub host: String,
    /// Its workspace.
    pub workspace: String,
    /// True on a person's word: the unit begins before those that it waits for are over, and before the time of its next try.
    pub is_forced: bool,
    /// Now.
    pub now: Timestamp,
}

/// A look at the claims of a project: those that have run out end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSweep {
    /// The project's folder.
    pub project: String,
    /// The units that workers of the caller's own process have, with the fences of their claims. They have not run out, even if the
    /// clock says so: it jumps where the machine was suspended.
    pub live: Vec<(String, u64)>,
    /// Until when those are lengthened.
    pub until: Timestamp,
    /// Now.
    pub now: Timestamp,
}

pub(super) fn claim(conn: &Connection, claim: &RunStart) -> Result<(), StoreError> {
    for text in [&claim.holder, &claim.host, &claim.workspace] {
        codec::check_bytes("name of a worker", text, MAX_TITLE_BYTES)?;
    }
    let UnitKey { project, id } = &claim.key;
    // One statement: of those that try at once, one changes the row. The attempt counts the runs that there are.
    let changed = execute(
        conn,
        "UPDATE unit SET claim_holder = ?4, claim_until = ?5, phase_status = 'running', fence = fence + 1,
             attempt = 1 + coalesce((SELECT max(attempt) FROM unit_run WHERE project = ?1 AND unit_snap = ?2), 0),
             worker_host = ?6, workspace = ?7, updated_at = ?8
         WHERE project = ?1 AND id = ?2 AND fence = ?3 AND (claim_holder IS NULL OR claim_until < ?8)
             AND is_over = 0 AND archived_at IS NULL AND (?9 OR (open_blockers = 0 AND not_before <= ?8))",
        params![
            project,
            id,
            int(claim.fence),
            claim.holder,
            claim.until.as_millis(),
            claim.host,
            claim.workspace,
            claim.now.as_millis(),
            claim.is_forced,
        ],
    )?;
    require(changed, "ready unit", || id.clone())?;
    // A claim that has run out may have left its run open.
    end_runs(conn, &claim.key, "interrupted", claim.now)?;
    // In the same transaction, so that the attempt of the unit is always that of its newest run.
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO unit_run (id, project, kind, unit, unit_snap, attempt, phase, worker_host, workspace, started_at)
         SELECT ?3, project, 'unit_attempt', id, id, attempt, phase, worker_host, workspace, ?4 FROM unit
         WHERE project = ?1 AND id = ?2",
        params![project, id, claim.run.to_string(), claim.now.as_millis()],
    )?;
    if added == 0 {
        return Err(Conflict::Exists { what: "run of a unit", id: claim.run.to_string() }.into());
    }
    Ok(())
}

/// The error code of a run that an operator has ended (SF 20.1).
const BY_OPERATOR: &str = "canceled_by_operator";

fn end_runs(conn: &Connection, key: &UnitKey, outcome: &str, at: Timestamp) -> Result<(), StoreError> {
    let sql = "UPDATE unit_run SET ended_at = ?4, outcome = ?3
               WHERE project = ?1 AND unit_snap = ?2 AND ended_at IS NULL";
    execute(conn, sql, params![key.project, key.id, outcome, at.as_millis()])?;
    Ok(())
}

pub(super) fn renew(
    conn: &Connection,
    (key, fence): (&UnitKey, u64),
    until: Timestamp,
) -> Result<(), StoreError> {
    // A claim that has run out and was not swept goes on: no other worker has come in between, or the fence would have grown.
    let sql = "UPDATE unit SET claim_until = ?4
               WHERE project = ?1 AND id = ?2 AND fence = ?3 AND claim_holder IS NOT NULL";
    let changed = execute(conn, sql, params![key.project, key.id, int(fence), until.as_millis()])?;
    require(changed, "claim of unit", || key.id.clone())
}

pub(super) fn sweep(conn: &Connection, sweep: &ClaimSweep) -> Result<(), StoreError> {
    let ClaimSweep { project, live, until, now } = sweep;
    for (id, fence) in live {
        let sql = "UPDATE unit SET claim_until = ?4
                   WHERE project = ?1 AND id = ?2 AND fence = ?3 AND claim_holder IS NOT NULL AND claim_until < ?4";
        // A claim that was taken away is none, and its worker learns it at its next write.
        execute(conn, sql, params![project, id, int(*fence), until.as_millis()])?;
    }
    // A status that the worker has set last is true still. The plus leaves the index of claims, which are few, to be used.
    let sql = "UPDATE unit SET claim_holder = NULL, claim_until = NULL, updated_at = ?2,
                   phase_status = CASE phase_status WHEN 'running' THEN 'interrupted' ELSE phase_status END
               WHERE +project = ?1 AND claim_until < ?2 AND claim_holder IS NOT NULL RETURNING project, id";
    let ended = query(conn, sql, params![project, now.as_millis()], |row| {
        Ok(UnitKey { project: row.get(0)?, id: row.get(1)? })
    })?;
    for key in &ended {
        end_runs(conn, key, "interrupted", *now)?;
    }
    Ok(())
}

pub(super) fn require_free(
    conn: &Connection,
    (key, fence): (&UnitKey, u64),
    phase: &str,
) -> Result<(), StoreError> {
    let sql = "SELECT 1 FROM unit WHERE project = ?1 AND id = ?2 AND fence = ?3 AND phase = ?4
               AND claim_holder IS NULL AND is_over = 0 AND archived_at IS NULL";
    let found = query_one(conn, sql, params![key.project, key.id, int(fence), phase], |_| Ok(()))?;
    require(usize::from(found.is_some()), "unit in this phase that no worker has", || key.id.clone())
}

pub(super) fn make_transition(conn: &Connection, change: &UnitTransition) -> Result<(), StoreError> {
    let UnitKey { project, id } = &change.key;
    let (fence, at) = (int(change.fence), change.at.as_millis());
    let changed = execute(
        conn,
        "UPDATE unit SET phase = ?5, phase_status = ?6, updated_at = ?7
         WHERE project = ?1 AND id = ?2 AND fence = ?3 AND phase = ?4 AND claim_holder IS NOT NULL",
        params![project, id, fence, change.from, change.to, change.status, at],
    )?;
    require(changed, "unit in this phase under this claim", || id.clone())?;
    // Committed with the new phase: after a crash there is the old phase without this row, or the new one with it.
    note_transition(conn, change)?;
    set_over(conn, &change.key, change.is_over)
}

pub(super) fn decide(conn: &Connection, decision: &UnitDecision) -> Result<(), StoreError> {
    let change = &decision.change;
    let UnitKey { project, id } = &change.key;
    let changed = execute(
        conn,
        "UPDATE unit SET phase = ?5, phase_status = ?6, not_before = ?7, updated_at = ?8
         WHERE project = ?1 AND id = ?2 AND fence = ?3 AND phase = ?4 AND claim_holder IS NULL",
        params![
            project,
            id,
            int(change.fence),
            change.from,
            change.to,
            change.status,
            decision.not_before.as_millis(),
            change.at.as_millis(),
        ],
    )?;
    require(changed, "unit in this phase that no worker has", || id.clone())?;
    if change.from != change.to {
        note_transition(conn, change)?;
    }
    for (counter, value) in &decision.counters {
        codec::check_bytes("name of a counter", counter, MAX_TITLE_BYTES)?;
        let sql = "INSERT INTO unit_counter (project, unit, name, value) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (project, unit, name) DO UPDATE SET value = excluded.value";
        execute(conn, sql, params![project, id, counter, int(*value)])?;
    }
    set_over(conn, &change.key, change.is_over)
}

fn note_transition(conn: &Connection, change: &UnitTransition) -> Result<(), StoreError> {
    let UnitKey { project, id } = &change.key;
    let sql = "INSERT INTO unit_transition (project, unit, from_phase, to_phase, reason, at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let (from, to, at) = (&change.from, &change.to, change.at.as_millis());
    execute(conn, sql, params![project, id, from, to, cut(&change.reason), at])?;
    Ok(())
}

pub(super) fn abandon(conn: &Connection, project: &str, at: Timestamp) -> Result<(), StoreError> {
    // The fence stays: the next claim makes it grow, and only a claim that is there can write.
    let sql = "UPDATE unit SET claim_holder = NULL, claim_until = NULL, updated_at = ?2,
                   phase_status = CASE phase_status WHEN 'running' THEN 'interrupted' ELSE phase_status END
               WHERE project = ?1 AND claim_holder IS NOT NULL RETURNING project, id";
    let ended = query(conn, sql, params![project, at.as_millis()], |row| {
        Ok(UnitKey { project: row.get(0)?, id: row.get(1)? })
    })?;
    for key in &ended {
        end_runs(conn, key, "interrupted", at)?;
    }
    Ok(())
}

/// Notes that nothing more is done for a unit, or that something is again, and counts it for those that wait for it.
fn set_over(conn: &Connection, key: &UnitKey, is_over: bool) -> Result<(), StoreError> {
    let sql = "UPDATE unit SET is_over = ?3 WHERE project = ?1 AND id = ?2 AND is_over <> ?3";
    if execute(conn, sql, params![key.project, key.id, is_over])? == 0 {
        return Ok(());
    }
    // The count of each dependant is changed once, since a change of nothing has returned above.
    let by = if is_over { -1 } else { 1 };
    let sql = "UPDATE unit SET open_blockers = open_blockers + ?3 WHERE project = ?1
               AND id IN (SELECT unit FROM unit_blocker WHERE project = ?1 AND blocked_by = ?2)";
    execute(conn, sql, params![key.project, key.id, by])?;
    Ok(())
}

pub(super) fn release(
    conn: &Connection,
    (key, fence): (&UnitKey, u64),
    (status, not_before): (&str, Timestamp),
    at: Timestamp,
) -> Result<(), StoreError> {
    let changed = execute(
        conn,
        "UPDATE unit SET claim_holder = NULL, claim_until = NULL, phase_status = ?4, not_before = ?5, updated_at = ?6
         WHERE project = ?1 AND id = ?2 AND fence = ?3 AND claim_holder IS NOT NULL",
        params![key.project, key.id, int(fence), status, not_before.as_millis(), at.as_millis()],
    )?;
    require(changed, "claim of unit", || key.id.clone())
}

pub(super) fn cancel(conn: &Connection, key: &UnitKey, at: Timestamp) -> Result<(), StoreError> {
    // The fence grows, so that a worker that has not noticed yet can write nothing.
    let changed = execute(
        conn,
        "UPDATE unit SET claim_holder = NULL, claim_until = NULL, phase_status = 'canceled', fence = fence + 1,
         updated_at = ?3 WHERE project = ?1 AND id = ?2 AND is_over = 0",
        params![key.project, key.id, at.as_millis()],
    )?;
    require(changed, "unit that is not over", || key.id.clone())?;
    let sql =
        "UPDATE unit_run SET error_code = ?3 WHERE project = ?1 AND unit_snap = ?2 AND ended_at IS NULL";
    execute(conn, sql, params![key.project, key.id, BY_OPERATOR])?;
    end_runs(conn, key, "canceled", at)?;
    set_over(conn, key, true)
}

pub(super) fn note_cancel(conn: &Connection, key: &UnitKey, reason: &str) -> Result<(), StoreError> {
    let sql = "UPDATE unit SET metadata = json_set(metadata, '$.cancelled', ?3)
               WHERE project = ?1 AND id = ?2 AND phase_status = 'canceled'";
    let changed = execute(conn, sql, params![key.project, key.id, cut(reason)])?;
    require(changed, "cancelled unit", || key.id.clone())
}

pub(super) fn note_revert(conn: &Connection, key: &UnitKey) -> Result<(), StoreError> {
    let sql = "UPDATE unit SET metadata = json_set(metadata, '$.reverted', json('true'))
               WHERE project = ?1 AND id = ?2 AND is_over = 1";
    let changed = execute(conn, sql, params![key.project, key.id])?;
    require(changed, "unit that is over", || key.id.clone())
}

pub(super) fn note_ship(conn: &Connection, key: &UnitKey, ship: &str) -> Result<(), StoreError> {
    // A question that is written down late does not hide that it was answered, and carried out, meanwhile.
    let sql = "UPDATE unit SET metadata = json_set(metadata, '$.ship', json(?3))
               WHERE project = ?1 AND id = ?2
                 AND (json_extract(metadata, '$.ship.state') IS NOT 'opened' OR json_extract(?3, '$.state') = 'opened')";
    execute(conn, sql, params![key.project, key.id, ship])?;
    Ok(())
}

pub(super) fn end_run(conn: &Connection, end: &UnitRunEnd) -> Result<(), StoreError> {
    // Written once, at the end: what was used until then is in the ledger.
    let changed = execute(
        conn,
        "UPDATE unit_run SET outcome = ?2, error_code = ?3, input_tokens = ?4, output_tokens = ?5,
             cost_micro_usd = ?6, ended_at = ?7
         WHERE id = ?1 AND ended_at IS NULL",
        params![
            end.run.to_string(),
            end.outcome,
            end.error_code,
            int(end.input.get()),
            int(end.output.get()),
            int(end.cost.get()),
            end.at.as_millis(),
        ],
    )?;
    require(changed, "open run of a unit", || end.run.to_string())
}

pub(super) fn pay_run(conn: &Connection, end: &UnitRunEnd) -> Result<(), StoreError> {
    // Only a run that has ended without its costs gets them, and once.
    let sql = "UPDATE unit_run SET input_tokens = ?2, output_tokens = ?3, cost_micro_usd = ?4
               WHERE id = ?1 AND ended_at IS NOT NULL
               AND input_tokens = 0 AND output_tokens = 0 AND cost_micro_usd = 0";
    let used = [end.input.get(), end.output.get(), end.cost.get()].map(int);
    execute(conn, sql, params![end.run.to_string(), used[0], used[1], used[2]])?;
    Ok(())
}

pub(super) fn set_counter(
    conn: &Connection,
    (key, fence): (&UnitKey, u64),
    (counter, value): (&str, u64),
) -> Result<(), StoreError> {
    codec::check_bytes("name of a counter", counter, MAX_TITLE_BYTES)?;
    // No row is chosen without the claim, and none is written then.
    let changed = execute(
        conn,
        "INSERT INTO unit_counter (project, unit, name, value)
         SELECT ?1, ?2, ?4, ?5 FROM unit WHERE project = ?1 AND id = ?2 AND fence = ?3 AND claim_holder IS NOT NULL
         ON CONFLICT (project, unit, name) DO UPDATE SET value = excluded.value",
        params![key.project, key.id, int(fence), counter, int(value)],
    )?;
    require(changed, "claim of unit", || key.id.clone())
}

pub(super) fn archive(conn: &Connection, key: &UnitKey, at: Timestamp) -> Result<(), StoreError> {
    let sql = "UPDATE unit SET archived_at = ?3, updated_at = ?3
               WHERE project = ?1 AND id = ?2 AND is_over = 1 AND archived_at IS NULL";
    let changed = execute(conn, sql, params![key.project, key.id, at.as_millis()])?;
    require(changed, "unit that is over and not archived", || key.id.clone())
}
