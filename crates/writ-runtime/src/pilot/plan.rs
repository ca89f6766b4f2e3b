//! Plans of the autopilot: proposed, looked at, and moved on.

use std::sync::Arc;

use writ_plan::check::check_plan;
use writ_plan::machine::WorkEvent;
use writ_store::reads::{AskReads as _, SessionReads as _, WorkReads as _};
use writ_types::action::{Action, Plan};
use writ_types::api::work::{ItemName, WorkState};
use writ_types::error::ToReport as _;
use writ_types::id::{AskId, ItemId};
use writ_types::taint::Taint;
use writ_types::work::WorkKind;

use super::{NewPilotPlan, PlanStanding};
use crate::budget;
use crate::error::{EngineError, PilotError, WorkError};
use crate::proposals::{self, NewWork};
use crate::services::Services;
use crate::session::BRANCH;
use crate::work::{ItemCourse, people};

/// Reads a plan.
///
/// # Errors
///
/// If there is none, or the item is something else.
pub(super) async fn find(services: &Services, id: ItemId) -> Result<ItemCourse, EngineError> {
    let course = ItemCourse::read(services, id).await?.ok_or_else(|| WorkError::Unknown(id.to_string()))?;
    if course.document.kind != WorkKind::Pilot {
        return Err(PilotError::NoPlan(id).into());
    }
    Ok(course)
}

/// Asks a person about a plan.
pub(super) async fn propose(
    services: &Arc<Services>,
    new: NewPilotPlan,
) -> Result<(ItemId, AskId), EngineError> {
    let NewPilotPlan { document, project, origin, branch } = new;
    check_plan(&document).map_err(|error| WorkError::Document(Box::new(error.report())))?;
    if document.kind != WorkKind::Pilot {
        return Err(PilotError::Kind(document.kind.name()).into());
    }
    let project = project
        .to_str()
        .ok_or_else(|| EngineError::Project("its path has characters that cannot be shown".to_owned()))?;
    let work = NewWork {
        document,
        project: Some(project.to_owned()),
        origin,
        id: None,
        // A planner has written it, after it has read the project.
        taint: Taint::External,
        branch: Some(branch),
    };
    proposals::propose(services, work).await
}

/// Looks at a plan.
pub(super) async fn read(services: &Services, id: ItemId) -> Result<Option<PlanStanding>, EngineError> {
    let store = &services.journal.store;
    let Some(item) = store.work_item(id).await? else { return Ok(None) };
    if item.kind != WorkKind::Pilot.name() {
        return Err(PilotError::NoPlan(id).into());
    }
    let session = services.sessions.get(item.session).await?;
    let (tokens, cost) = budget::read_plan_used(services, &session, id).await?;
    let asked = match &item.ask {
        Some(ask) => store.ask(ask).await?,
        None => None,
    };
    // The branch on the card counts, because a person has seen it; before an ask, the branch that will be on the card.
    let branch = match asked.map(|ask| ask.prepared.action) {
        Some(Action::Plan(Plan { branch, .. })) => branch,
        Some(_) | None => {
            let row = store.session(item.session).await?;
            row.and_then(|row| row.metadata.get(BRANCH)?.as_str().map(str::to_owned))
        }
    };
    Ok(Some(PlanStanding {
        state: item.state,
        reason: item.reason,
        ask: item.ask,
        session: item.session,
        branch,
        tokens,
        cost,
        cost_left: item.max_cost.map(|most| most.saturating_sub(cost)),
    }))
}

/// Moves a plan on.
pub(super) async fn change(
    services: &Services,
    id: ItemId,
    event: WorkEvent,
    why: &str,
) -> Result<WorkState, EngineError> {
    find(services, id).await?;
    // Approving, and asking again, are a person's.
    if matches!(event, WorkEvent::Approve | WorkEvent::Retry | WorkEvent::Replan) {
        return Err(WorkError::State {
            item: id,
            state: find(services, id).await?.item.state.name().to_owned(),
            wanted: "approved by the autopilot",
        }
        .into());
    }
    people::change(services, &ItemName { item: id.to_string() }, event, why).await?;
    services.life.work.call_item(id);
    let item = services.journal.store.work_item(id).await?;
    Ok(item.ok_or_else(|| WorkError::Unknown(id.to_string()))?.state)
}
