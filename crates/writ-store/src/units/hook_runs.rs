//! Runs of a project's hooks around the attempts at its units.

use rusqlite::{Connection, params};
use writ_types::unit::Timestamp;

use super::{MAX_TITLE_BYTES, UnitKey, cut};
use crate::codec::{self, execute, get_time, query};
use crate::error::StoreError;

/// The newest runs of hooks that stay of each unit: those of a few hundred attempts.
pub const MAX_HOOK_RUNS: usize = 1_000;

/// One run of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRunRow {
    /// The unit.
    pub key: UnitKey,
    /// The number of the dispatch; of a hook before it, that of the one before.
    pub attempt: u32,
    /// The kind of the hook, such as `before_run`.
    pub hook: String,
    /// The path of its script in the project.
    pub script: String,
    /// `passed`, `blocked`, `failed`, `timed_out` or `not_run`.
    pub outcome: String,
    /// The reason, in words; empty if it has passed.
    pub reason: String,
    /// What it has written, cut.
    pub output: String,
    /// When it began.
    pub began_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
}

pub(super) fn add_hook_run(conn: &Connection, row: &HookRunRow) -> Result<(), StoreError> {
    codec::check_bytes("script of a hook", &row.script, MAX_TITLE_BYTES)?;
    let HookRunRow { key, attempt, hook, script, outcome, reason, output, began_at, ended_at } = row;
    let (project, unit) = (&key.project, &key.id);
    let (began, ended) = (began_at.as_millis(), ended_at.as_millis());
    let sql = "INSERT INTO unit_hook_run
               (project, unit, attempt, hook, script, outcome, reason, output, began_at, ended_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    execute(
        conn,
        sql,
        params![project, unit, attempt, hook, script, outcome, cut(reason), cut(output), began, ended],
    )?;
    let sql = "DELETE FROM unit_hook_run WHERE project = ?1 AND unit = ?2 AND n <=
               (SELECT n FROM unit_hook_run WHERE project = ?1 AND unit = ?2 ORDER BY n DESC LIMIT 1 OFFSET ?3)";
    execute(conn, sql, params![project, unit, codec::limit(MAX_HOOK_RUNS)])?;
    Ok(())
}

pub(crate) fn hook_runs(conn: &Connection, key: &UnitKey) -> Result<Vec<HookRunRow>, StoreError> {
    let sql = "SELECT * FROM unit_hook_run WHERE project = ?1 AND unit = ?2 ORDER BY n LIMIT ?3";
    query(conn, sql, params![key.project, key.id, codec::limit(MAX_HOOK_RUNS)], |row| {
        Ok(HookRunRow {
            key: key.clone(),
            attempt: row.get("attempt")?,
            hook: row.get("hook")?,
            script: row.get("script")?,
            outcome: row.get("outcome")?,
            reason: row.get("reason")?,
            output: row.get("output")?,
            began_at: get_time(row, "began_at")?,
            ended_at: get_time(row, "ended_at")?,
        })
    })
}
