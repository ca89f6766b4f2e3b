//! The session of a project. It goes on over restarts, and ends by a person's order, or once nothing was done in it for 30 days.
//!
//! One with open work goes on at any age: what holds its units up belongs to it, and no other session would know of it.

use std::time::Duration;

use writ_store::batch::Op;
use writ_store::reads::UnitReads as _;
use writ_store::units::{MAX_UNITS, PilotSession, UnitOp};
use writ_types::api::pilot::PilotSessionEnded;

use crate::error::AutopilotError;
use crate::project::{OpenProject, new_session};

/// The time without activity after which a session without open work is over (SF 2).
const MAX_INACTIVE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Begins another session before new work, if nothing is open in the one there is and nothing was done in it for [`MAX_INACTIVE`].
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn renew_session(project: &OpenProject) -> Result<(), AutopilotError> {
    let _plans = project.hold_plans().await;
    let store = project.hands.store();
    let Some(session) = store.pilot_session(&project.name).await? else { return Ok(()) };
    // A unit that is handed out without the loop changes no status of the session.
    let newest = store.newest_choice(&project.name, session.id, "").await?;
    let ended = newest.and_then(|(run, _)| run.end).map(|end| end.at);
    let last = ended.unwrap_or(session.updated_at).max(session.updated_at);
    if project.hands.now().time_since(last) > MAX_INACTIVE && find_open(project, &session).await?.is_none() {
        begin_session(project, &session).await?;
    }
    Ok(())
}

/// Ends the session of a project by a person's order. The next work is done in another one.
///
/// # Errors
///
/// If something of it is open, or the store cannot be read or written.
pub(crate) async fn end_session(project: &OpenProject) -> Result<PilotSessionEnded, AutopilotError> {
    let _plans = project.hold_plans().await;
    let session = project.hands.store().pilot_session(&project.name).await?;
    let session = session.ok_or_else(|| AutopilotError::NoPlan { project: project.name.clone() })?;
    if let Some(what) = find_open(project, &session).await? {
        return Err(AutopilotError::SessionOpen { what });
    }
    begin_session(project, &session).await
}

async fn begin_session(
    project: &OpenProject,
    old: &PilotSession,
) -> Result<PilotSessionEnded, AutopilotError> {
    let at = project.hands.now();
    // The newest one is that of the project.
    let session = new_session(&project.name, at.plus_duration(Duration::from_millis(1)));
    let id = session.id;
    let ops = [
        UnitOp::MoveSession { session: old.id, status: "complete".to_owned(), at },
        UnitOp::OpenSession(Box::new(session)),
    ];
    project.hands.commit(ops.map(Op::Units).into()).await?;
    project.change_session(id);
    tracing::info!(ended = %old.id, session = %id, "another session of the autopilot begins");
    Ok(PilotSessionEnded { ended: old.id, session: id })
}

/// Returns what is open in the session of a project, in words; `None`: nothing.
async fn find_open(project: &OpenProject, session: &PilotSession) -> Result<Option<String>, AutopilotError> {
    if session.status == "running" {
        return Ok(Some("its loop".to_owned()));
    }
    let store = project.hands.store();
    let lines = store.unit_lines(&project.name, MAX_UNITS).await?;
    if let Some(line) = lines.iter().find(|line| !line.is_over || line.is_claimed) {
        return Ok(Some(line.id.clone()));
    }
    let blockers = store.open_blockers(session.id).await?;
    Ok(blockers.first().map(|blocker| format!("{} {}", blocker.event, blocker.unit).trim_end().to_owned()))
}
