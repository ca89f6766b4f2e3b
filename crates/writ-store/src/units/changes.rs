//! Sessions, plans of units, workflows, gates, and what holds a session up.

use rusqlite::{Connection, params};
use writ_types::digest::Digest;
use writ_types::id::PilotId;
use writ_types::unit::Timestamp;

use super::{
    GateRow, MAX_BLOCKERS, MAX_GATE_BYTES, MAX_TITLE_BYTES, MAX_UNIT_TEXT_BYTES, MAX_UNITS, NewUnit,
    PilotBlocker, PilotSession, UnitKey, UnitTexts, cut,
};
use crate::codec::{self, execute, get_uint, int, query_one};
use crate::error::{Conflict, StoreError};

pub(super) fn open_session(conn: &Connection, session: &PilotSession) -> Result<(), StoreError> {
    codec::check_bytes("folder of a project", &session.project, MAX_TITLE_BYTES)?;
    let id = session.id.to_string();
    if query_one(conn, "SELECT 1 FROM pilot_session WHERE id = ?1", [&id], |_| Ok(()))?.is_some() {
        return Err(Conflict::Exists { what: "autopilot session", id }.into());
    }
    let sql =
        "INSERT INTO pilot_session (id, project, status, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5)";
    let (created, updated) = (session.created_at.as_millis(), session.updated_at.as_millis());
    execute(conn, sql, params![id, session.project, session.status, created, updated])?;
    Ok(())
}

pub(super) fn move_session(
    conn: &Connection,
    session: PilotId,
    status: &str,
    at: Timestamp,
) -> Result<(), StoreError> {
    let sql = "UPDATE pilot_session SET status = ?2, updated_at = ?3 WHERE id = ?1";
    let changed = execute(conn, sql, params![session.to_string(), status, at.as_millis()])?;
    require(changed, "autopilot session", || session.to_string())
}

pub(super) fn add_units(
    conn: &Connection,
    session: PilotId,
    units: &[NewUnit],
    at: Timestamp,
) -> Result<(), StoreError> {
    let sql = "SELECT project FROM pilot_session WHERE id = ?1";
    let Some(project) = query_one(conn, sql, [session.to_string()], |row| Ok(row.get::<_, String>(0)?))?
    else {
        return Err(Conflict::Missing { what: "autopilot session", id: session.to_string() }.into());
    };
    // Archived ones too: their rows are never deleted.
    let sql = "SELECT count(*) AS n FROM unit WHERE project = ?1";
    let there = query_one(conn, sql, [&project], |row| get_uint(row, "n"))?.unwrap_or_default();
    if usize::try_from(there).unwrap_or(usize::MAX).saturating_add(units.len()) > MAX_UNITS {
        return Err(StoreError::TooLarge { what: "number of units of a project", limit: MAX_UNITS });
    }
    for unit in units {
        add_unit(conn, (session, &project), unit, at)?;
    }
    // After all are there, since a unit may wait for one that is planned with it.
    for unit in units {
        add_blockers(conn, &project, (&unit.id, &unit.blocked_by))?;
    }
    Ok(())
}

fn add_unit(
    conn: &Connection,
    (session, project): (PilotId, &str),
    unit: &NewUnit,
    at: Timestamp,
) -> Result<(), StoreError> {
    codec::check_bytes("title of a unit", &unit.title, MAX_TITLE_BYTES)?;
    codec::check_bytes("name of a workflow", &unit.workflow, MAX_TITLE_BYTES)?;
    codec::check_bytes("description of a unit", &unit.description, MAX_UNIT_TEXT_BYTES)?;
    codec::check_bytes("metadata of a unit", &unit.metadata, MAX_UNIT_TEXT_BYTES)?;
    let Some((kind, parent)) = place_of(&unit.id) else {
        return Err(Conflict::Order("the id of a unit says its place, as task/m1/s2/t3 does").into());
    };
    // Archived units keep their ids.
    let sql = "SELECT 1 FROM unit WHERE project = ?1 AND id = ?2";
    if query_one(conn, sql, params![project, unit.id], |_| Ok(()))?.is_some() {
        return Err(Conflict::Exists { what: "unit", id: unit.id.clone() }.into());
    }
    if let Some(parent) = &parent
        && query_one(conn, sql, params![project, parent], |_| Ok(()))?.is_none()
    {
        return Err(Conflict::Missing { what: "parent of a unit", id: parent.clone() }.into());
    }
    execute(
        conn,
        "INSERT INTO unit (project, id, session, parent, kind, title, description, metadata, workflow, workflow_hash,
         phase, phase_status, priority, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'pending', ?12, ?13, ?13)",
        params![
            project,
            unit.id,
            session.to_string(),
            parent,
            kind,
            unit.title,
            unit.description,
            unit.metadata,
            unit.workflow,
            unit.workflow_hash.to_string(),
            unit.phase,
            unit.priority,
            at.as_millis(),
        ],
    )?;
    Ok(())
}

/// Returns the kind of a unit and its parent, by its id: three kinds, three levels. Tasks `task/m0/s0/t{n}` have no parent.
fn place_of(id: &str) -> Option<(&'static str, Option<String>)> {
    let mut parts = id.split('/');
    let kind = parts.next()?;
    let numbers = parts.map(|part| part.split_at_checked(1)).collect::<Option<Vec<_>>>()?;
    // One way to write each number, so that an id names one folder; six digits are more than a person plans.
    let is_number = |digits: &str| {
        (1..=6).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && (digits == "0" || !digits.starts_with('0'))
    };
    if !numbers.iter().all(|(_, digits)| is_number(digits)) {
        return None;
    }
    match (kind, numbers.as_slice()) {
        ("milestone", [("m", _)]) => Some(("milestone", None)),
        ("slice", [("m", m), ("s", _)]) => Some(("slice", Some(format!("milestone/m{m}")))),
        // No slice has these numbers: such a task has no plan around it.
        ("task", [("m", "0"), ("s", "0"), ("t", _)]) => Some(("task", None)),
        ("task", [("m", m), ("s", s), ("t", _)]) => Some(("task", Some(format!("slice/m{m}/s{s}")))),
        _ => None,
    }
}

fn add_blockers(
    conn: &Connection,
    project: &str,
    (unit, blocked_by): (&str, &[String]),
) -> Result<(), StoreError> {
    if blocked_by.len() > MAX_BLOCKERS {
        return Err(StoreError::TooLarge { what: "number of units that one waits for", limit: MAX_BLOCKERS });
    }
    for by in blocked_by {
        let sql = "SELECT is_over FROM unit WHERE project = ?1 AND id = ?2";
        let Some(is_over) = query_one(conn, sql, params![project, by], |row| Ok(row.get::<_, bool>(0)?))?
        else {
            return Err(Conflict::Missing { what: "blocker of a unit", id: by.clone() }.into());
        };
        // Everything that the blocker waits for, however far.
        let sql = "WITH RECURSIVE above(id) AS (
                       VALUES (?3)
                       UNION
                       SELECT b.blocked_by FROM above a JOIN unit_blocker b ON b.project = ?1 AND b.unit = a.id)
                   SELECT 1 FROM above WHERE id = ?2";
        if query_one(conn, sql, params![project, unit, by], |_| Ok(()))?.is_some() {
            return Err(Conflict::Order("units may not wait for each other in a circle").into());
        }
        // A blocker that is named twice counts once.
        let sql = "INSERT OR IGNORE INTO unit_blocker (project, unit, blocked_by) VALUES (?1, ?2, ?3)";
        let added = execute(conn, sql, params![project, unit, by])?;
        if added > 0 && !is_over {
            let sql = "UPDATE unit SET open_blockers = open_blockers + 1 WHERE project = ?1 AND id = ?2";
            execute(conn, sql, params![project, unit])?;
        }
    }
    Ok(())
}

pub(super) fn revise(conn: &Connection, texts: &UnitTexts) -> Result<(), StoreError> {
    codec::check_bytes("title of a unit", &texts.title, MAX_TITLE_BYTES)?;
    codec::check_bytes("description of a unit", &texts.description, MAX_UNIT_TEXT_BYTES)?;
    codec::check_bytes("metadata of a unit", &texts.metadata, MAX_UNIT_TEXT_BYTES)?;
    let UnitKey { project, id } = &texts.key;
    let sql = "UPDATE unit SET title = ?4, description = ?5, metadata = ?6, priority = ?7, updated_at = ?8
               WHERE project = ?1 AND id = ?2 AND fence = ?3 AND is_over = 0 AND archived_at IS NULL";
    let UnitTexts { title, description, metadata, priority, at, .. } = texts;
    let fence = int(texts.fence);
    let changed = execute(
        conn,
        sql,
        params![project, id, fence, title, description, metadata, priority, at.as_millis()],
    )?;
    require(changed, "open unit", || id.clone())?;
    let Some(blocked_by) = &texts.blocked_by else { return Ok(()) };
    execute(conn, "DELETE FROM unit_blocker WHERE project = ?1 AND unit = ?2", params![project, id])?;
    // From zero: of the new blockers only those count that are not over.
    execute(conn, "UPDATE unit SET open_blockers = 0 WHERE project = ?1 AND id = ?2", params![project, id])?;
    add_blockers(conn, project, (id, blocked_by))
}

pub(super) fn store_pin(
    conn: &Connection,
    (name, content): (&str, &str),
    at: Timestamp,
) -> Result<(), StoreError> {
    codec::check_bytes("name of a workflow", name, MAX_TITLE_BYTES)?;
    codec::check_bytes("text of a workflow", content, MAX_UNIT_TEXT_BYTES)?;
    // The hash is that of the text that is stored, and not a caller's word.
    let sql = "INSERT OR IGNORE INTO workflow_pin (hash, name, content, pinned_at) VALUES (?1, ?2, ?3, ?4)";
    let hash = Digest::of_bytes(content.as_bytes()).to_string();
    execute(conn, sql, params![hash, name, content, at.as_millis()])?;
    Ok(())
}

pub(super) fn choose_workflow(
    conn: &Connection,
    key: &UnitKey,
    (workflow, hash): (&str, Digest),
    phase: &str,
) -> Result<(), StoreError> {
    // No claim was ever made while the fence is zero.
    let sql = "UPDATE unit SET workflow = ?3, workflow_hash = ?4, phase = ?5
               WHERE project = ?1 AND id = ?2 AND fence = 0
               AND EXISTS (SELECT 1 FROM workflow_pin WHERE hash = ?4)";
    let changed = execute(conn, sql, params![key.project, key.id, workflow, hash.to_string(), phase])?;
    require(changed, "pinned workflow and unit that was not dispatched", || key.id.clone())
}

pub(super) fn record_gate(conn: &Connection, result: &GateRow) -> Result<(), StoreError> {
    codec::check_bytes("name of a gate", &result.gate, MAX_TITLE_BYTES)?;
    execute(
        conn,
        "INSERT INTO unit_gate (project, unit, gate, passed, attempt, max_retries, output, duration_ms, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            result.key.project,
            result.key.id,
            result.gate,
            result.passed,
            result.attempt,
            result.max_retries,
            cut_bytes(&result.output),
            int(result.duration_ms),
            result.at.as_millis(),
        ],
    )?;
    Ok(())
}

/// Returns the beginning of an output, without half a letter at its end.
fn cut_bytes(output: &str) -> &str {
    &output[..output.floor_char_boundary(MAX_GATE_BYTES)]
}

pub(super) fn raise(conn: &Connection, blocker: &PilotBlocker) -> Result<(), StoreError> {
    let sql = "INSERT INTO pilot_blocker (id, session, event, unit, detail, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let PilotBlocker { id, session, event, unit, detail, created_at } = blocker;
    let at = created_at.as_millis();
    execute(conn, sql, params![id.to_string(), session.to_string(), event, unit, cut(detail), at])?;
    Ok(())
}

pub(super) fn resolve(
    conn: &Connection,
    session: PilotId,
    (event, unit): (&str, &str),
    (by, at): (&str, Timestamp),
) -> Result<(), StoreError> {
    // A resolved blocker is not changed again: who resolved it is evidence.
    let sql = "UPDATE pilot_blocker SET resolved_at = ?4, resolved_by = ?5
               WHERE session = ?1 AND event = ?2 AND unit = ?3 AND resolved_at IS NULL";
    let changed = execute(conn, sql, params![session.to_string(), event, unit, at.as_millis(), by])?;
    require(changed, "open blocker of", || format!("{event} {unit}"))
}

pub(super) fn require(
    changed: usize,
    what: &'static str,
    id: impl FnOnce() -> String,
) -> Result<(), StoreError> {
    if changed == 0 { Err(Conflict::Missing { what, id: id() }.into()) } else { Ok(()) }
}
