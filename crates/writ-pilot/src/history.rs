//! The units of a project that are over, as people look for them.

use writ_autopilot::phase::PilotPhase;
use writ_autopilot::stand::PhaseStatus;
use writ_store::reads::UnitReads as _;
use writ_store::units::{HistoryFilter, MAX_HISTORY, UnitHistoryRow};
use writ_types::api::pilot::{PilotHistory, PilotHistoryLine, PilotHistoryQuery};

use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::standing::status_name;

/// The number of units that are shown where none is named.
const USUAL: usize = 20;

/// Lists the units that are over, the newest first.
///
/// # Errors
///
/// If a day, a phase or a verdict is none, or the store cannot be read.
pub(crate) async fn list_history(
    project: &OpenProject,
    query: &PilotHistoryQuery,
) -> Result<PilotHistory, AutopilotError> {
    let wrong = |what: &'static str, text: &str| AutopilotError::NoFilter {
        what,
        text: text.chars().filter(|c| !c.is_control()).take(60).collect(),
    };
    let since = match query.since.as_str() {
        "" => None,
        day => Some(project.hands.parse_day(day).ok_or_else(|| wrong("day", day))?),
    };
    let phase = some_of(&query.phase);
    if let Some(phase) = &phase {
        PilotPhase::parse_name(phase).map_err(|_| wrong("phase", phase))?;
    }
    let status = some_of(&query.verdict);
    if let Some(verdict) = &status
        && !PhaseStatus::ALL.into_iter().any(|known| status_name(known) == verdict)
    {
        return Err(wrong("verdict", verdict));
    }
    let limit = if query.limit == 0 { USUAL } else { query.limit.min(MAX_HISTORY) };
    let (workflow, model) = (some_of(&query.workflow), some_of(&query.model));
    let filter = HistoryFilter { since, phase, status, workflow, model, limit };
    let rows = project.hands.store().unit_history(&project.name, filter).await?;
    Ok(PilotHistory { units: rows.into_iter().map(show_row).collect() })
}

fn some_of(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn show_row(row: UnitHistoryRow) -> PilotHistoryLine {
    PilotHistoryLine {
        unit: row.unit,
        title: row.title,
        workflow: row.workflow,
        phase: row.phase,
        verdict: row.status,
        // Without one of its own, a run has that of the engine.
        models: row.models.into_iter().filter(|model| !model.is_empty()).collect(),
        runs: row.runs,
        ended_at: row.ended_at,
        cost: row.cost,
    }
}
