//! What people ask of work items: to see them, and to propose, pause, resume, cancel and retry them.

use std::sync::Arc;

use writ_plan::machine::{WorkEvent, next_state};
use writ_plan::read::read_plan;
use writ_plan::run::{DEFAULT_ATTEMPTS, attempts_of};
use writ_store::reads::WorkReads as _;
use writ_store::work::{WorkAttempt, WorkItem};
use writ_types::api::work::{
    AttemptDetails, ItemName, PlanProposal, StepDetails, WorkDetails, WorkList, WorkSpending, WorkState,
    WorkSummary,
};
use writ_types::error::ToReport as _;
use writ_types::taint::Taint;

use super::evidence::read_evidence;
use super::{ItemCourse, move_on, stop_waiting};
use crate::error::{EngineError, WorkError};
use crate::proposals::{self, NewWork};
use crate::services::Services;
use crate::session::Interrupt;

/// The most items that are listed.
const MAX_LISTED: usize = 100;

/// Finds an item by its id, or the newest with its name.
///
/// # Errors
///
/// If there is none.
async fn find_item(services: &Services, name: &ItemName) -> Result<WorkItem, EngineError> {
    let store = &services.journal.store;
    let found = match name.item.parse() {
        Ok(id) => store.work_item(id).await?,
        Err(_) => None,
    };
    let found = match found {
        Some(item) => Some(item),
        None => store.work_item_named(&name.item).await?,
    };
    let shown: String = name.item.chars().take(64).collect();
    Ok(found.ok_or(WorkError::Unknown(shown))?)
}

async fn find_course(services: &Services, name: &ItemName) -> Result<ItemCourse, EngineError> {
    let item = find_item(services, name).await?;
    let course = ItemCourse::read(services, item.id).await?;
    Ok(course.ok_or_else(|| WorkError::Unknown(item.id.to_string()))?)
}

/// Lists the newest items.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn list_work(services: &Services) -> Result<WorkList, EngineError> {
    let mut items = Vec::new();
    for item in services.journal.store.work_items(MAX_LISTED).await? {
        if let Some(course) = ItemCourse::read(services, item.id).await? {
            items.push(summary(&course));
        }
    }
    Ok(WorkList { items })
}

/// Shows an item with its steps, attempts and evidence.
///
/// # Errors
///
/// If there is none, or the store cannot be read.
pub(crate) async fn show_work(services: &Services, name: &ItemName) -> Result<WorkDetails, EngineError> {
    Ok(details(&find_course(services, name).await?))
}

/// Proposes a plan that its owner hands in.
///
/// # Errors
///
/// If it is no plan, or cannot be asked about.
pub(crate) async fn propose_work(
    services: &Arc<Services>,
    proposal: PlanProposal,
) -> Result<WorkSummary, EngineError> {
    // What stands in a plan is shown, stored and sent to models, so no secret may.
    let plan = services.journal.redactor.mask_text(&proposal.plan);
    let document = read_plan(&plan).map_err(|error| WorkError::Document(Box::new(error.report())))?;
    let new = NewWork { document, project: proposal.project, origin: None, id: None, taint: Taint::Owner };
    let (item, _) = proposals::propose(services, new).await?;
    let course = ItemCourse::read(services, item).await?;
    Ok(summary(&course.ok_or_else(|| WorkError::Unknown(item.to_string()))?))
}

/// Stops an item for a while: a step that runs ends, no other begins.
///
/// # Errors
///
/// If it is in a state without a pause.
pub(crate) async fn pause_work(services: &Services, name: &ItemName) -> Result<WorkSummary, EngineError> {
    let course = find_course(services, name).await?;
    move_on(services, &course, WorkEvent::Pause, "a person has paused it").await?;
    again(services, &course).await
}

/// Lets a paused item go on.
///
/// # Errors
///
/// If it is not paused.
pub(crate) async fn resume_work(services: &Services, name: &ItemName) -> Result<WorkSummary, EngineError> {
    let course = find_course(services, name).await?;
    move_on(services, &course, WorkEvent::Resume, "a person lets it go on").await?;
    services.life.work.call_item(course.item.id);
    again(services, &course).await
}

/// Ends an item: its question, its waiting messages and its running turns.
///
/// # Errors
///
/// If it is over already.
pub(crate) async fn cancel_work(
    services: &Arc<Services>,
    name: &ItemName,
) -> Result<WorkSummary, EngineError> {
    let course = find_course(services, name).await?;
    move_on(services, &course, WorkEvent::Cancel, "a person has ended it").await?;
    stop_waiting(services, &course).await?;
    let running: Vec<_> = course.session.state().turns.iter().map(|running| running.turn).collect();
    for turn in running {
        // One that has ended meanwhile has nothing to stop.
        let _stopped = course.session.interrupt(Some(turn), Interrupt::Cancel);
    }
    super::goal::unschedule(services, &course).await?;
    services.life.work.call_item(course.item.id);
    again(services, &course).await
}

/// Proposes an item again. What is done of it stays done.
///
/// # Errors
///
/// If it is in a state without a retry, or its plan cannot be asked about.
pub(crate) async fn retry_work(
    services: &Arc<Services>,
    name: &ItemName,
) -> Result<WorkSummary, EngineError> {
    let course = find_course(services, name).await?;
    let item = &course.item;
    if next_state(item.state, WorkEvent::Retry) != Some(WorkState::Proposed) || item.goal.is_some() {
        let state = item.state.name().to_owned();
        return Err(WorkError::State { item: item.id, state, wanted: "retried" }.into());
    }
    let attempts = course.steps.iter().map(|step| attempts_of(&course.document, step)).max();
    let attempts = attempts.unwrap_or(DEFAULT_ATTEMPTS);
    proposals::propose_again(services, item, (item.version, attempts)).await?;
    again(services, &course).await
}

async fn again(services: &Services, course: &ItemCourse) -> Result<WorkSummary, EngineError> {
    let item = course.item.id;
    let course = ItemCourse::read(services, item).await?;
    Ok(summary(&course.ok_or_else(|| WorkError::Unknown(item.to_string()))?))
}

fn summary(course: &ItemCourse) -> WorkSummary {
    let item = &course.item;
    WorkSummary {
        item: item.id,
        name: item.name.clone(),
        kind: item.kind.clone(),
        title: item.title.clone(),
        state: item.state,
        reason: item.reason.clone(),
        session: item.session,
        origin: item.origin,
        goal: item.goal,
        project: item.project.clone(),
        ask: item.ask.clone(),
        steps_done: course
            .rows
            .iter()
            .filter(|row| row.state == writ_types::api::work::StepState::Done)
            .count(),
        steps: course.rows.len(),
        spending: WorkSpending {
            tokens: course.spent.session_tokens,
            cost_micro_usd: course.spent.session_cost,
            max_tokens: item.max_tokens,
            max_cost_micro_usd: item.max_cost,
        },
        changed_at: item.changed_at,
    }
}

fn details(course: &ItemCourse) -> WorkDetails {
    let attempt = |attempt: &WorkAttempt| {
        let (checks, notices) = read_evidence(attempt);
        AttemptDetails {
            attempt: attempt.n,
            began_at: attempt.began_at,
            judged_at: attempt.ended_at.filter(|_| !attempt.verdict.is_empty()),
            said: attempt.said.clone(),
            verdict: attempt.verdict.clone(),
            checks,
            notices,
        }
    };
    let steps = course.rows.iter().enumerate().map(|(n, row)| StepDetails {
        step: row.name.clone(),
        title: row.title.clone(),
        state: row.state,
        after: row.after.clone(),
        attempts: course.attempts_at(n).map(attempt).collect(),
    });
    WorkDetails { summary: summary(course), steps: steps.collect(), report: course.item.report.clone() }
}
