//! What people ask of work items: to see them, and to propose, pause, resume, cancel and retry them.

use std::sync::Arc;

use writ_plan::machine::{WorkEvent, next_state};
use writ_plan::read::read_plan;
use writ_plan::run::{DEFAULT_ATTEMPTS, attempts_of};
use writ_store::batch::{Batch, Op};
use writ_store::error::StoreError;
use writ_store::reads::WorkReads as _;
use writ_store::work::{WorkAttempt, WorkItem, WorkLine, WorkOp};
use writ_types::api::work::{
    AttemptDetails, DomainChange, ItemName, PlanProposal, StepDetails, StepState, WorkDetails, WorkList,
    WorkQuery, WorkSpending, WorkState, WorkSummary,
};
use writ_types::error::ToReport as _;
use writ_types::taint::Taint;
use writ_types::work::ExecutorOutput;

use super::evidence::read_evidence;
use super::{ItemCourse, is_race, move_on};
use crate::error::{EngineError, WorkError};
use crate::proposals::{self, NewWork};
use crate::services::Services;
use crate::session::Interrupt;

/// The most changes by others that a person's word is put behind.
const MAX_RACES: u32 = 16;
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

/// Lists the newest items, all or those with a domain.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn list_work(services: &Services, query: WorkQuery) -> Result<WorkList, EngineError> {
    let lines = services.journal.store.work_lines(query.domain, MAX_LISTED).await?;
    Ok(WorkList { items: lines.iter().map(summary_of).collect() })
}

/// Adds a domain to an item, or removes it.
///
/// # Errors
///
/// If there is no such item, it has as many domains as it may, or the store cannot be written.
pub(crate) async fn set_domain(
    services: &Services,
    change: DomainChange,
    is_set: bool,
) -> Result<WorkSummary, EngineError> {
    let item = find_item(services, &ItemName { item: change.item }).await?;
    let op = WorkOp::Domain { item: item.id, domain: change.domain, is_set };
    services.journal.store.commit(Batch::relaxed(vec![Op::Work(op)])).await?;
    let course = ItemCourse::read(services, item.id).await?;
    Ok(summary(&course.ok_or_else(|| WorkError::Unknown(item.id.to_string()))?))
}

/// Shows an item with its steps, attempts and evidence.
///
/// # Errors
///
/// If there is none, or the store cannot be read.
pub(crate) async fn show_work(services: &Services, name: &ItemName) -> Result<WorkDetails, EngineError> {
    let item = find_item(services, name).await?;
    let course = ItemCourse::read_shown(services, item.id).await?;
    Ok(details(&course.ok_or_else(|| WorkError::Unknown(item.id.to_string()))?))
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
    // The text of a plan is shown, stored and sent to models, so secrets in it are masked.
    let plan = services.journal.redactor.mask_text(&proposal.plan);
    let document = read_plan(&plan).map_err(|error| WorkError::Document(Box::new(error.report())))?;
    let new = NewWork {
        document,
        project: proposal.project,
        origin: None,
        id: None,
        taint: Taint::Owner,
        branch: None,
    };
    let (item, _) = proposals::propose(services, new).await?;
    let course = ItemCourse::read(services, item).await?;
    Ok(summary(&course.ok_or_else(|| WorkError::Unknown(item.to_string()))?))
}

/// Changes the state of an item as a person wants it. What was changed meanwhile is read again.
pub(crate) async fn change(
    services: &Services,
    name: &ItemName,
    event: WorkEvent,
    why: &str,
) -> Result<ItemCourse, EngineError> {
    let mut tries = 0_u32;
    loop {
        let course = find_course(services, name).await?;
        // A turn or a check may have changed the item since it was read; the order of the person stands all the more.
        match move_on(services, &course, event, why).await {
            Ok(_) => return Ok(course),
            Err(EngineError::Store(StoreError::Conflict(conflict)))
                if is_race(&conflict) && tries < MAX_RACES =>
            {
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Stops an item for a while: a step that runs ends, no other begins.
///
/// # Errors
///
/// If it is in a state without a pause.
pub(crate) async fn pause_work(services: &Services, name: &ItemName) -> Result<WorkSummary, EngineError> {
    let course = change(services, name, WorkEvent::Pause, "a person has paused it").await?;
    again(services, &course).await
}

/// Lets a paused item go on.
///
/// # Errors
///
/// If it is not paused.
pub(crate) async fn resume_work(services: &Services, name: &ItemName) -> Result<WorkSummary, EngineError> {
    let course = change(services, name, WorkEvent::Resume, "a person lets it go on").await?;
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
    let course = change(services, name, WorkEvent::Cancel, "a person has ended it").await?;
    let running: Vec<_> = course.session.state().turns.iter().map(|running| running.turn).collect();
    for turn in running {
        // One that has ended meanwhile has nothing to stop.
        let _stopped = course.session.interrupt(Some(turn), Interrupt::Cancel);
    }
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
    // As many as the most patient step has: each step gets that many more.
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
    summary_of(&WorkLine {
        item: WorkItem { document: String::new(), report: String::new(), ..course.item.clone() },
        steps: course.rows.len(),
        steps_done: course.rows.iter().filter(|row| row.state == StepState::Done).count(),
        tokens: course.spent.session_tokens,
        cost: course.spent.session_cost,
    })
}

fn summary_of(line: &WorkLine) -> WorkSummary {
    let item = &line.item;
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
        domains: item.domains.clone(),
        steps_done: line.steps_done,
        steps: line.steps,
        spending: WorkSpending {
            tokens: line.tokens,
            cost_micro_usd: line.cost,
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
            output: (!attempt.said.is_empty()).then(|| ExecutorOutput::of_words(&attempt.said)),
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
