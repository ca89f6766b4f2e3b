//! A person's rating of a run: later choices of a model rest on it.

use writ_autopilot::unit_id::UnitId;
use writ_store::batch::Op;
use writ_store::reads::UnitReads as _;
use writ_store::units::{ResultRow, UnitOp};
use writ_types::api::pilot::{PilotRate, PilotRated};

use crate::error::AutopilotError;
use crate::project::OpenProject;

/// Rates the newest run of the session that has succeeded or failed, or that of one unit.
///
/// # Errors
///
/// If there is none, the unit is at work, or the store cannot be read or written.
pub(crate) async fn rate_run(
    project: &OpenProject,
    unit: Option<UnitId>,
    order: &PilotRate,
) -> Result<PilotRated, AutopilotError> {
    let store = project.hands.store();
    if let Some(id) = unit {
        let open = store.unit_runs(project.key_of(id)).await?;
        if open.last().is_some_and(|run| run.end.is_none()) {
            return Err(AutopilotError::Busy { unit: id.to_string() });
        }
    }
    let name = unit.map(|id| id.to_string()).unwrap_or_default();
    let found = store.newest_choice(&project.name, project.session(), &name).await?;
    let found = found.and_then(|(run, choice)| Some((run.end.clone()?, run, choice)));
    let (end, run, choice) = found.ok_or(AutopilotError::NoRun { unit: name })?;
    let row = ResultRow {
        key: choice.key,
        run: choice.run,
        model: choice.model,
        fingerprint: choice.fingerprint,
        rating: order.rating.name().to_owned(),
        is_human: true,
        took_ms: end.at.time_since(run.started_at).as_millis().try_into().unwrap_or(u64::MAX),
        cost: end.cost,
        at: project.hands.now(),
    };
    let rated = PilotRated {
        unit: row.key.id.clone(),
        attempt: run.attempt,
        phase: run.phase,
        model: row.model.clone(),
        class: row.fingerprint.clone(),
        rating: order.rating,
    };
    project.hands.commit(vec![Op::Units(UnitOp::AddResult(Box::new(row)))]).await?;
    Ok(rated)
}
