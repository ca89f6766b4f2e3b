//! Questions to the planner about an item that does not come further: guidance for its next attempt, then another plan, then a
//! person (SIL-223, SIL-224).
//!
//! Question and state are one commit, and the end of the wait follows from the stored time of the state, so a restart waits as
//! long as there is left. Answers count in the last commit of the planner's turn: [`crate::planner::answer`].

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use writ_plan::machine::{MAX_CONSULTATIONS, MAX_QUESTIONS, WorkEvent, next_state};
use writ_plan::write::write_plan;
use writ_store::batch::{Batch, Op};
use writ_store::reads::WorkReads as _;
use writ_store::work::{ItemMove, WorkOp};
use writ_types::api::work::StepState;
use writ_types::taint::Taint;

use super::moves::stop_waiting;
use super::{ItemCourse, attempt, end_stuck, move_on};
use crate::error::EngineError;
use crate::planner::answer::{question_of, trace_of};
use crate::planner::{PlannerMessage, PlannerRequest, request_ops};
use crate::profile::PLANNER;
use crate::proposals::{commit_news, news};
use crate::services::Services;
use crate::session::Interrupt;
use crate::work_calls::worked;

/// The longest question, in characters: what a plan of many steps and the newest outputs need.
const MAX_QUESTION_CHARS: usize = 60_000;

/// Asks the planner for guidance about a step.
///
/// # Errors
///
/// If the item is not as it was read, or the store cannot be written.
pub(super) async fn ask_guidance(
    services: &Arc<Services>,
    course: &ItemCourse,
    step: usize,
) -> Result<(), EngineError> {
    let text = format!(
        "A step of the plan '{}' does not come further. Give guidance for its next attempt. What its agent was told, and what \
         came of it:\n\n{}",
        course.item.title,
        attempt::instructions(course, step)
    );
    let why = "waits for the planner's guidance";
    ask(services, course, (step, PlannerMessage::ConsultPlanner, MAX_CONSULTATIONS), (text, why)).await
}

/// Asks the planner for another plan, because a step has failed. A task of a goal has none of its own: a person is asked.
///
/// # Errors
///
/// As [`ask_guidance`].
pub(super) async fn ask_replan(
    services: &Arc<Services>,
    course: &ItemCourse,
    step: usize,
) -> Result<(), EngineError> {
    // The plan of a task is a part of what was approved for its goal.
    if course.item.goal.is_some() {
        return end_stuck(services, course, step).await;
    }
    let mut text = format!(
        "The plan below has failed. Write another whole plan for what is left. Steps that are done stay done; leave them out, \
         and give each other step a new name unless it stays as it is. The checks of the whole stay.\n\n{}\n",
        write_plan(&course.document)
    );
    for row in course.rows.iter().filter(|row| row.state == StepState::Done) {
        let _ = writeln!(text, "Done: {} ({})", row.name, row.title);
    }
    let _ = write!(text, "\nThe step that has failed:\n\n{}", attempt::instructions(course, step));
    let why = "waits for another plan of the planner";
    ask(services, course, (step, PlannerMessage::ReplanRequest, MAX_QUESTIONS), (text, why)).await
}

async fn ask(
    services: &Arc<Services>,
    course: &ItemCourse,
    (step, kind, question): (usize, PlannerMessage, u32),
    (text, why): (String, &str),
) -> Result<(), EngineError> {
    let item = &course.item;
    // Paused or ended in between: then the question can wait, or is of no use.
    let Some(state) = next_state(item.state, WorkEvent::Consult) else { return Ok(()) };
    let request = PlannerRequest {
        kind,
        trace: trace_of(item.id, item.round, question),
        text: text.chars().take(MAX_QUESTION_CHARS).collect(),
        // It quotes what programs have printed.
        taint: Taint::External,
        principal: format!("harness:{}", item.id),
    };
    let (_, asked) = request_ops(services, course.session.id, request).await?;
    let name = course.rows.get(step).map(|row| row.name.as_str()).unwrap_or_default();
    let mut ops = vec![
        worked(&services.journal, item, name, state.name(), why),
        news(services, item, &course.rows, (state, name, why)),
        Op::Work(WorkOp::Move(ItemMove {
            item: item.id,
            version: item.version,
            state,
            is_active: true,
            reason: why.to_owned(),
            at: services.journal.clock.now(),
        })),
    ];
    // Without guidance to ask for, the other plan is still the second question.
    ops.extend((item.consultations..question).map(|_| Op::Work(WorkOp::Consult { item: item.id })));
    ops.extend(asked);
    commit_news(services, item, Batch::synced(ops)).await?;
    services.life.wake.notify_one();
    call_at_end(services, course);
    Ok(())
}

/// Calls for a look at the item when the wait is over. After a restart the looks at all items do.
fn call_at_end(services: &Arc<Services>, course: &ItemCourse) {
    let (item, services) = (course.item.id, Arc::clone(services));
    tokio::spawn(async move {
        // Read anew: the wait begins with the state's change.
        let Ok(Some(stored)) = services.journal.store.work_item(item).await else { return };
        let (_, until) = question_of(&stored);
        loop {
            // Asked again after each wait: the clock may have been set.
            let now = services.journal.clock.now();
            if now > until {
                return services.life.work.call_item(item);
            }
            let left = until.time_since(now).saturating_add(Duration::from_millis(1));
            tokio::select! {
                () = services.life.draining.cancelled() => return,
                () = services.journal.clock.wait(now, left) => {}
            }
        }
    });
}

/// Looks after an item that waits for the planner: once the time is over, it goes on without an answer.
///
/// # Errors
///
/// As [`ask_guidance`].
pub(super) async fn look_after(services: &Arc<Services>, course: &ItemCourse) -> Result<bool, EngineError> {
    let (_, until) = question_of(&course.item);
    if services.journal.clock.now() <= until {
        return Ok(false);
    }
    stop_waiting(services, course).await?;
    let running = course.session.state().turn_for(PLANNER).map(|running| running.turn);
    if let Some(turn) = running {
        // One that has ended meanwhile has nothing to stop.
        let _stopped = course.session.interrupt(Some(turn), Interrupt::Cancel);
    }
    move_on(services, course, WorkEvent::Advise, "the planner has not answered in time").await?;
    Ok(true)
}
