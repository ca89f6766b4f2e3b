//! Goals: checks that are repeated, and the tasks that mend what they find.
//!
//! A goal has a row among the jobs, which says when its checks run next. A failed check reports, or starts a task that
//! does what the goal's plan says and is checked by the same checks. That task is part of what was approved: it runs
//! under the goal's key, within its budget, and one at a time.

use std::sync::Arc;
use std::time::Duration;

use writ_plan::machine::WorkEvent;
use writ_store::batch::{Batch, Op};
use writ_store::jobs::JobOp;
use writ_store::reads::{JobReads as _, WorkReads as _};
use writ_store::work::{AttemptState, ItemMove, WorkItem, WorkOp};
use writ_types::api::work::{StepState, WorkState};
use writ_types::unit::Timestamp;
use writ_types::work::{GoalCycle, OnFailure, OnStuck, PlanDocument, Verdict, WorkKind};

use super::evidence::verdict_named;
use super::{ItemCourse, attempt, move_on, verify};
use crate::clock::format_schedule;
use crate::error::EngineError;
use crate::proposals::{commit_news, news, steps::step_rows};
use crate::services::Services;
use crate::work_calls::{GOAL_PREFIX, worked};

/// The most runs of a goal's checks of which the evidence is stored.
const MAX_RUNS: u32 = 100;

/// The name of a goal's job.
pub(crate) fn job_of(item: &WorkItem) -> String {
    format!("{GOAL_PREFIX}{}", item.id)
}

/// The task that a goal starts: what its plan says is to be done, until its checks pass.
pub(crate) fn spawned(goal: &PlanDocument) -> PlanDocument {
    PlanDocument {
        kind: WorkKind::Task,
        cycle: None,
        // No person is asked in between, so nothing waits for advice either.
        on_stuck: OnStuck::Stop,
        ..goal.clone()
    }
}

/// Runs the checks of a goal if they are due. Returns true if it is to be looked at again at once.
pub(super) async fn run_due(services: &Arc<Services>, course: &ItemCourse) -> Result<bool, EngineError> {
    let Some(GoalCycle { every_minutes, on_failure }) = course.document.cycle else { return Ok(false) };
    // Before the interval: a goal without money would only find out at its next failure.
    if course.is_spent() {
        move_on(services, course, WorkEvent::SpendOut, "its budget is used up").await?;
        return Ok(false);
    }
    let step = course.rows.first().map(|row| row.state);
    match step {
        Some(StepState::Checking) => {
            return verify::check_step(services, course, 0).await;
        }
        // A run was judged: its result is written, and the step waits for the next.
        Some(StepState::Done | StepState::Failed) => {
            settle_run(services, course, (every_minutes, on_failure)).await?;
            return Ok(true);
        }
        Some(StepState::Waiting | StepState::Running) | None => {}
    }
    let name = job_of(&course.item);
    let (now, schedule) = (services.journal.clock.now(), format_schedule(interval(every_minutes)));
    let Some(job) = services.journal.store.job(&name).await? else {
        // The first run is at once: its owner sees what the checks say now.
        let scheduled = JobOp::Schedule { name, schedule, next_run: Some(now) };
        services.journal.store.commit(Batch::relaxed(vec![Op::Jobs(scheduled)])).await?;
        return Ok(true);
    };
    // A task that mends is not disturbed by another run of the checks.
    if is_mended(services, course).await? {
        return Ok(false);
    }
    // One that is further away than the interval is due: it was written by a clock that was ahead.
    let is_due = |next: Timestamp| next <= now || next > now.plus_duration(interval(every_minutes));
    if !job.next_run.is_some_and(is_due) {
        return Ok(false);
    }
    if course.item.project.is_some() {
        // Changes of a failed task are discarded: neither the checks nor the next task may see them.
        services.workspace(&course.session).await?.discard_changes().await?;
    }
    attempt::begin(services, course, 0).await?;
    Ok(true)
}

/// Writes the result of a run down: reports it, or starts the task that mends.
async fn settle_run(
    services: &Arc<Services>,
    course: &ItemCourse,
    (every_minutes, on_failure): (u32, OnFailure),
) -> Result<(), EngineError> {
    let (item, now) = (&course.item, services.journal.clock.now());
    let last = course.attempts_at(0).filter(|attempt| attempt.state == AttemptState::Judged).last();
    let Some(last) = last else { return Ok(()) };
    let verdict = verdict_named(&last.verdict);
    let next_run = Some(now.plus_duration(interval(every_minutes)));
    let mut ops = vec![
        Op::Jobs(JobOp::Finish {
            name: job_of(item),
            at: now,
            result: if verdict == Verdict::Pass { "ok".to_owned() } else { last.verdict.clone() },
            next_run,
        }),
        // In the commit of the result: a crash in between would count the same run twice.
        Op::Work(WorkOp::Rest { item: item.id, step: 0, keep: MAX_RUNS }),
    ];
    if verdict != Verdict::Pass {
        match on_failure {
            OnFailure::SpawnTask => ops.extend(spawn(services, course)?),
            OnFailure::Report => {
                let text = "a check of the goal has not passed: `writ work show` has the evidence";
                ops.push(news(services, item, &course.rows, (item.state, "", text)));
            }
        }
    }
    commit_news(services, item, Batch::synced(ops)).await?;
    for child in services.journal.store.children_of(item.id).await? {
        services.life.work.call_item(child);
    }
    Ok(())
}

/// The operations that start the task of a goal. It needs no question of its own: the goal's card showed it.
fn spawn(services: &Services, course: &ItemCourse) -> Result<Vec<Op>, EngineError> {
    let (goal, now) = (&course.item, services.journal.clock.now());
    // Derived and not written by a model: exactly this was shown on the card of the goal.
    let document = spawned(&course.document);
    let item = WorkItem {
        id: services.journal.ids.item(now),
        kind: document.kind.name().to_owned(),
        goal: Some(goal.id),
        state: WorkState::Proposed,
        version: 0,
        reason: String::new(),
        document: serde_json::to_string(&document).unwrap_or_default(),
        round: 0,
        consultations: 0,
        report: String::new(),
        created_at: now,
        changed_at: now,
        ..goal.clone()
    };
    let begun = ItemMove {
        item: item.id,
        version: 0,
        state: WorkState::Running,
        is_active: true,
        reason: "a check of its goal has not passed".to_owned(),
        at: now,
    };
    let steps = step_rows(&document);
    let why = "started by its goal, under the goal's approval";
    Ok(vec![
        worked(&services.journal, &item, "", WorkState::Running.name(), why),
        news(services, &item, &steps, (WorkState::Running, "", why)),
        Op::Work(WorkOp::Propose(Box::new((item, steps)))),
        Op::Work(WorkOp::Move(begun)),
    ])
}

/// Returns true while a task that mends for a goal is not over.
async fn is_mended(services: &Services, course: &ItemCourse) -> Result<bool, EngineError> {
    Ok(!services.journal.store.children_of(course.item.id).await?.is_empty())
}

fn interval(minutes: u32) -> Duration {
    Duration::from_secs(u64::from(minutes).saturating_mul(60))
}
