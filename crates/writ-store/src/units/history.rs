//! The units of a project that are over.

use rusqlite::{Connection, params};
use writ_types::unit::{MicroUsd, Timestamp};

use crate::codec::{self, get_time, get_uint, query};
use crate::error::StoreError;

/// The most units that one look at the history shows.
pub const MAX_HISTORY: usize = 1_000;

/// The units that are looked for: everything that is set must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Their last run has ended at this time or later.
    pub since: Option<Timestamp>,
    /// They have a run in this phase.
    pub phase: Option<String>,
    /// The status of their last phase.
    pub status: Option<String>,
    /// Their workflow.
    pub workflow: Option<String>,
    /// A model that was chosen for a run, as `provider/name`.
    pub model: Option<String>,
    /// The most units, the newest.
    pub limit: usize,
}

/// A unit that is over, with the sums of its runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitHistoryRow {
    /// The unit.
    pub unit: String,
    /// Its title.
    pub title: String,
    /// The name of its workflow.
    pub workflow: String,
    /// The phase of its last run.
    pub phase: String,
    /// The status of its last phase.
    pub status: String,
    /// The models that were chosen for its runs, each once.
    pub models: Vec<String>,
    /// The number of its runs.
    pub runs: u64,
    /// The end of its last run.
    pub ended_at: Timestamp,
    /// The cost of its runs.
    pub cost: MicroUsd,
}

/// Returns the units of a project that are over and were worked on, the newest first.
pub(crate) fn history(
    conn: &Connection,
    project: &str,
    filter: &HistoryFilter,
) -> Result<Vec<UnitHistoryRow>, StoreError> {
    let sql = "SELECT u.id, u.title, u.workflow, u.phase_status, count(*) AS runs, max(r.ended_at) AS ended_at,
                      sum(r.cost_micro_usd) AS cost,
                      (SELECT l.phase FROM unit_run l WHERE l.project = u.project AND l.unit_snap = u.id
                       ORDER BY l.attempt DESC LIMIT 1) AS phase,
                      (SELECT json_group_array(DISTINCT c.model) FROM unit_choice c
                       WHERE c.project = u.project AND c.unit = u.id) AS models
               FROM unit u JOIN unit_run r ON r.project = u.project AND r.unit_snap = u.id
               WHERE u.project = ?1 AND u.is_over = 1 AND r.ended_at IS NOT NULL
               AND (?3 IS NULL OR EXISTS (SELECT 1 FROM unit_run p WHERE p.project = u.project AND p.unit_snap = u.id AND p.phase = ?3))
               AND (?4 IS NULL OR u.phase_status = ?4) AND (?5 IS NULL OR u.workflow = ?5)
               AND (?6 IS NULL OR EXISTS (SELECT 1 FROM unit_choice c WHERE c.project = u.project AND c.unit = u.id AND c.model = ?6))
               GROUP BY u.id HAVING ?2 IS NULL OR max(r.ended_at) >= ?2 ORDER BY ended_at DESC, u.id LIMIT ?7";
    let HistoryFilter { since, phase, status, workflow, model, limit } = filter;
    let since = since.map(Timestamp::as_millis);
    let limit = codec::limit((*limit).min(MAX_HISTORY));
    query(conn, sql, params![project, since, phase, status, workflow, model, limit], |row| {
        Ok(UnitHistoryRow {
            unit: row.get("id")?,
            title: row.get("title")?,
            workflow: row.get("workflow")?,
            phase: row.get("phase")?,
            status: row.get("phase_status")?,
            models: codec::from_json("models of a unit", &row.get::<_, String>("models")?)?,
            runs: get_uint(row, "runs")?,
            ended_at: get_time(row, "ended_at")?,
            cost: MicroUsd::new(get_uint(row, "cost")?),
        })
    })
}
