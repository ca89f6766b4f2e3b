//! Results of gates, the choices of models before attempts, and the ratings of attempts.

use rusqlite::{Connection, params};
use writ_types::id::{PilotId, UnitRunId};
use writ_types::unit::{MicroUsd, Timestamp};

use super::stored::decode_run;
use super::{MAX_TITLE_BYTES, RunRow, UnitKey};
use crate::codec::{self, execute, get_time, get_uint, int, query, query_one};
use crate::error::StoreError;

/// The most results of one class that a choice rests on: the newest.
pub const MAX_RESULTS: usize = 500;

/// The result of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateRow {
    /// The unit.
    pub key: UnitKey,
    /// Its name.
    pub gate: String,
    /// Set if it lets the unit pass.
    pub passed: bool,
    /// The number of the try, from one.
    pub attempt: u32,
    /// The most retries.
    pub max_retries: u32,
    /// What it has written, cut to [`super::MAX_GATE_BYTES`].
    pub output: String,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// When.
    pub at: Timestamp,
}

/// The choice of a model before an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChoiceRow {
    /// The unit.
    pub key: UnitKey,
    /// The run.
    pub run: UnitRunId,
    /// Its phase.
    pub phase: String,
    /// The class of units that it belongs to.
    pub fingerprint: String,
    /// Its complexity, in thousandths.
    pub score_milli: u32,
    /// Set if the complexity has raised the tier.
    pub is_raised: bool,
    /// The tier that was taken.
    pub tier: String,
    /// The model, as `provider/name`; empty: that of the engine.
    pub model: String,
    /// When.
    pub at: Timestamp,
}

/// The rating of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRow {
    /// The unit.
    pub key: UnitKey,
    /// The run.
    pub run: UnitRunId,
    /// The model, as `provider/name`; empty: that of the engine.
    pub model: String,
    /// The class of units that it belongs to.
    pub fingerprint: String,
    /// `over`, `ok` or `under`.
    pub rating: String,
    /// Set if a person has given it.
    pub is_human: bool,
    /// The time that the attempt took, in milliseconds.
    pub took_ms: u64,
    /// The cost of the attempt.
    pub cost: MicroUsd,
    /// When.
    pub at: Timestamp,
}

pub(super) fn note_choice(conn: &Connection, row: &ChoiceRow) -> Result<(), StoreError> {
    for text in [&row.fingerprint, &row.model, &row.tier] {
        codec::check_bytes("choice of a model", text, MAX_TITLE_BYTES)?;
    }
    let sql = "INSERT INTO unit_choice
               (project, unit, run, phase, fingerprint, score_milli, is_raised, tier, model, at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let ChoiceRow { key, run, phase, fingerprint, score_milli, is_raised, tier, model, at } = row;
    let (project, unit) = (&key.project, &key.id);
    let at = at.as_millis();
    execute(
        conn,
        sql,
        params![project, unit, run.to_string(), phase, fingerprint, score_milli, is_raised, tier, model, at],
    )?;
    Ok(())
}

pub(super) fn add_result(conn: &Connection, row: &ResultRow) -> Result<(), StoreError> {
    let sql = "INSERT INTO model_result
               (project, unit, run, model, fingerprint, rating, is_human, took_ms, cost_micro_usd, at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    execute(
        conn,
        sql,
        params![
            row.key.project,
            row.key.id,
            row.run.to_string(),
            row.model,
            row.fingerprint,
            row.rating,
            row.is_human,
            int(row.took_ms),
            int(row.cost.get()),
            row.at.as_millis(),
        ],
    )?;
    Ok(())
}

pub(crate) fn choices(conn: &Connection, key: &UnitKey) -> Result<Vec<ChoiceRow>, StoreError> {
    let sql = "SELECT * FROM unit_choice WHERE project = ?1 AND unit = ?2 ORDER BY n LIMIT ?3";
    query(conn, sql, params![key.project, key.id, codec::limit(usize::MAX)], |row| {
        Ok(ChoiceRow {
            key: key.clone(),
            run: codec::parse("run id", &row.get::<_, String>("run")?)?,
            phase: row.get("phase")?,
            fingerprint: row.get("fingerprint")?,
            score_milli: row.get("score_milli")?,
            is_raised: row.get("is_raised")?,
            tier: row.get("tier")?,
            model: row.get("model")?,
            at: get_time(row, "at")?,
        })
    })
}

pub(crate) fn results(
    conn: &Connection,
    project: &str,
    fingerprint: &str,
) -> Result<Vec<ResultRow>, StoreError> {
    let sql = "SELECT * FROM (SELECT * FROM model_result WHERE project = ?1 AND fingerprint = ?2
               ORDER BY n DESC LIMIT ?3) ORDER BY n";
    query(conn, sql, params![project, fingerprint, codec::limit(MAX_RESULTS)], |row| {
        Ok(ResultRow {
            key: UnitKey { project: row.get("project")?, id: row.get("unit")? },
            run: codec::parse("run id", &row.get::<_, String>("run")?)?,
            model: row.get("model")?,
            fingerprint: row.get("fingerprint")?,
            rating: row.get("rating")?,
            is_human: row.get("is_human")?,
            took_ms: get_uint(row, "took_ms")?,
            cost: MicroUsd::new(get_uint(row, "cost_micro_usd")?),
            at: get_time(row, "at")?,
        })
    })
}

/// Returns the run of a session that has succeeded or failed last, of those that a model was chosen for, with that choice. With a unit
/// it is one of its runs.
pub(crate) fn newest_choice(
    conn: &Connection,
    (project, session): (&str, PilotId),
    unit: &str,
) -> Result<Option<(RunRow, ChoiceRow)>, StoreError> {
    let sql = "SELECT r.*, c.fingerprint, c.score_milli, c.is_raised, c.tier, c.model, c.at
               FROM unit_run AS r JOIN unit_choice AS c ON c.run = r.id
               JOIN unit AS u ON u.project = r.project AND u.id = r.unit_snap
               WHERE r.project = ?1 AND u.session = ?2 AND (?3 = '' OR r.unit_snap = ?3)
               AND r.outcome IN ('success', 'failure') ORDER BY r.ended_at DESC, c.n DESC LIMIT 1";
    query_one(conn, sql, params![project, session.to_string(), unit], |row| {
        let run = decode_run(row)?;
        let choice = ChoiceRow {
            key: UnitKey { project: row.get("project")?, id: run.unit.clone() },
            run: run.id,
            phase: run.phase.clone(),
            fingerprint: row.get("fingerprint")?,
            score_milli: row.get("score_milli")?,
            is_raised: row.get("is_raised")?,
            tier: row.get("tier")?,
            model: row.get("model")?,
            at: get_time(row, "at")?,
        };
        Ok((run, choice))
    })
}
