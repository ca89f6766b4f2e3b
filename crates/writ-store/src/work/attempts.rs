//! The attempts at steps: begun, ended, held, continued, and judged.

use rusqlite::{Connection, params};
use writ_types::api::work::StepState;
use writ_types::id::{ItemId, MessageId};
use writ_types::unit::Timestamp;

use super::{MAX_EVIDENCE_BYTES, MAX_EXECUTORS, cut_said, number, require_item};
use crate::codec::{self, execute, get_uint, query_one};
use crate::error::{Conflict, StoreError};

pub(super) fn begin(
    conn: &Connection,
    (item, step, n): (ItemId, usize, u32),
    message: Option<MessageId>,
    at: Timestamp,
) -> Result<(), StoreError> {
    if message.is_some() {
        check_executors(conn)?;
    }
    // Without a message there is no turn to wait for.
    let state = if message.is_some() { StepState::Running } else { StepState::Checking };
    let sql = "UPDATE work_step SET state = ?3 WHERE item = ?1 AND n = ?2 AND state = ?4";
    let waiting = StepState::Waiting.name();
    let changed = execute(conn, sql, params![item.to_string(), number(step), state.name(), waiting])?;
    if changed == 0 {
        return Err(Conflict::Missing { what: "waiting step", id: format!("{item}/{step}") }.into());
    }
    let attempt = if message.is_some() { "running" } else { "ended" };
    let added = execute(
        conn,
        "INSERT OR IGNORE INTO work_attempt (item, step, n, message, state, began_at, said, verdict, trace, evidence)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, '', '', '', '')",
        params![
            item.to_string(),
            number(step),
            n,
            message.map(|id| id.to_string()),
            attempt,
            at.as_millis()
        ],
    )?;
    if added == 0 {
        return Err(Conflict::Exists { what: "attempt", id: format!("{item}/{step}/{n}") }.into());
    }
    Ok(())
}

pub(super) fn end_turn(
    conn: &Connection,
    message: MessageId,
    (exit, said): (u8, &str),
    at: Timestamp,
) -> Result<(), StoreError> {
    let of: Option<(String, i64, i64)> = query_one(
        conn,
        "UPDATE work_attempt SET state = 'ended', exit = ?2, said = ?3, ended_at = ?4
         WHERE message = ?1 AND state = 'running' RETURNING item, step, n",
        params![message.to_string(), exit, cut_said(said), at.as_millis()],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    // Any other message belongs to a conversation.
    let Some((item, step, n)) = of else { return Ok(()) };
    // Where a later attempt has begun, the step is that one's.
    let sql = "UPDATE work_step SET state = ?3 WHERE item = ?1 AND n = ?2 AND state = ?4
               AND ?5 = (SELECT max(n) FROM work_attempt WHERE item = ?1 AND step = ?2)";
    let (checking, running) = (StepState::Checking.name(), StepState::Running.name());
    execute(conn, sql, params![item, step, checking, running, n])?;
    Ok(())
}

/// Refuses another executor where as many work as may.
fn check_executors(conn: &Connection) -> Result<(), StoreError> {
    let sql = "SELECT count(*) AS n FROM work_attempt WHERE state = 'running'";
    let working = query_one(conn, sql, [], |row| get_uint(row, "n"))?.unwrap_or_default();
    if working >= MAX_EXECUTORS { Err(Conflict::Executors(MAX_EXECUTORS).into()) } else { Ok(()) }
}

pub(super) fn hold(conn: &Connection, (item, step, n): (ItemId, usize, u32)) -> Result<(), StoreError> {
    let sql = "UPDATE work_attempt SET is_held = 1, holds = holds + 1
               WHERE item = ?1 AND step = ?2 AND n = ?3 AND state = 'ended' AND is_held = 0";
    let changed = execute(conn, sql, params![item.to_string(), number(step), n])?;
    require_attempt((item, step, n), changed, "ended attempt")?;
    let sql = "UPDATE work_step SET state = ?3 WHERE item = ?1 AND n = ?2 AND state = ?4";
    let (checking, running) = (StepState::Checking.name(), StepState::Running.name());
    execute(conn, sql, params![item.to_string(), number(step), running, checking])?;
    Ok(())
}

pub(super) fn go_on(
    conn: &Connection,
    (item, step, n): (ItemId, usize, u32),
    message: MessageId,
) -> Result<(), StoreError> {
    check_executors(conn)?;
    let sql = "UPDATE work_attempt SET state = 'running', message = ?4, is_held = 0, exit = NULL, said = '',
               ended_at = NULL WHERE item = ?1 AND step = ?2 AND n = ?3 AND state = 'ended' AND is_held = 1";
    let changed = execute(conn, sql, params![item.to_string(), number(step), n, message.to_string()])?;
    require_attempt((item, step, n), changed, "held attempt")
}

pub(super) fn next_turn(
    conn: &Connection,
    (item, step, n): (ItemId, usize, u32),
    message: MessageId,
) -> Result<(), StoreError> {
    check_executors(conn)?;
    let sql =
        "UPDATE work_attempt SET state = 'running', message = ?4, exit = NULL, said = '', ended_at = NULL
               WHERE item = ?1 AND step = ?2 AND n = ?3 AND state = 'ended' AND is_held = 0";
    let changed = execute(conn, sql, params![item.to_string(), number(step), n, message.to_string()])?;
    require_attempt((item, step, n), changed, "ended attempt")?;
    let sql = "UPDATE work_step SET state = ?3 WHERE item = ?1 AND n = ?2 AND state = ?4";
    let (checking, running) = (StepState::Checking.name(), StepState::Running.name());
    execute(conn, sql, params![item.to_string(), number(step), running, checking])?;
    Ok(())
}

pub(super) fn judge(
    conn: &Connection,
    (item, step, n): (ItemId, usize, u32),
    [verdict, trace, evidence]: [&String; 3],
    state: StepState,
    at: Timestamp,
) -> Result<(), StoreError> {
    codec::check_bytes("evidence of an attempt", evidence, MAX_EVIDENCE_BYTES)?;
    let changed = execute(
        conn,
        "UPDATE work_attempt SET state = 'judged', verdict = ?4, trace = ?5, evidence = ?6, ended_at = ?7
         WHERE item = ?1 AND step = ?2 AND n = ?3 AND state = 'ended' AND is_held = 0",
        params![item.to_string(), number(step), n, verdict, trace, evidence, at.as_millis()],
    )?;
    require_attempt((item, step, n), changed, "ended attempt")?;
    let sql = "UPDATE work_step SET state = ?3 WHERE item = ?1 AND n = ?2 AND state = ?4";
    // A step that was put back meanwhile stays as it is.
    let checking = StepState::Checking.name();
    execute(conn, sql, params![item.to_string(), number(step), state.name(), checking])?;
    Ok(())
}

pub(super) fn rest(conn: &Connection, (item, step): (ItemId, usize), keep: u32) -> Result<(), StoreError> {
    let sql = "UPDATE work_step SET state = ?3 WHERE item = ?1 AND n = ?2";
    let waiting = StepState::Waiting.name();
    require_item(item, execute(conn, sql, params![item.to_string(), number(step), waiting])?)?;
    // Evidence is large: a step that is tried often holds that of its newest attempts alone.
    let sql = "DELETE FROM work_attempt WHERE item = ?1 AND step = ?2 AND n <=
               (SELECT max(n) FROM work_attempt WHERE item = ?1 AND step = ?2) - ?3";
    execute(conn, sql, params![item.to_string(), number(step), keep])?;
    Ok(())
}

fn require_attempt(
    (item, step, n): (ItemId, usize, u32),
    changed: usize,
    what: &'static str,
) -> Result<(), StoreError> {
    if changed == 0 {
        return Err(Conflict::Missing { what, id: format!("{item}/{step}/{n}") }.into());
    }
    Ok(())
}
