//! Changes of an item's state: the state, its entry, its report, and the end of what waits for it are one commit.

use std::sync::Arc;

use writ_plan::machine::{WorkEvent, next_state};
use writ_store::approvals::{AskState, StoredAsk};
use writ_store::batch::{Batch, Op};
use writ_store::config::MAX_READ_ROWS;
use writ_store::error::StoreError;
use writ_store::jobs::JobOp;
use writ_store::queue::QueuedMessage;
use writ_store::reads::{ApprovalReads as _, AskReads as _, PlanReads as _, WorkReads as _};
use writ_store::work::WorkOp;
use writ_types::api::work::WorkState;
use writ_types::error::Exit;
use writ_types::work::WorkKind;

use super::{ItemCourse, goal, pilot, report};
use crate::asks::tell;
use crate::closing;
use crate::error::{EngineError, WorkError};
use crate::profile::PLANNER;
use crate::proposals::{PROPOSE, commit_news, news};
use crate::services::Services;
use crate::session::Session;
use crate::work_calls::change_state;

/// The reason with which a card, a message or a child ends together with its item.
const ENDED: &str = "its work item does not go on";

/// Changes the state of an item, and of the tasks that it has started as a goal: entries, reports, news, and the end of
/// what waits for it are one commit, so that a crash leaves all or nothing of it.
///
/// # Errors
///
/// If the event does not fit the state, if something was changed meanwhile, or the store cannot be written.
pub(crate) async fn move_on(
    services: &Services,
    course: &ItemCourse,
    event: WorkEvent,
    why: &str,
) -> Result<WorkState, EngineError> {
    let event = pilot::event_of(course, event);
    if next_state(course.item.state, event).is_some_and(ends) {
        close_turns(services, course).await?;
    }
    let (state, mut ops) = change(services, course, event, why).await?;
    let children = services.journal.store.children_of(course.item.id).await?;
    let mut ended = Vec::from_iter(state.is_over().then(|| Arc::clone(&course.session)));
    let mut stopped = Vec::new();
    for id in &children {
        let Some(child) = ItemCourse::read(services, *id).await? else { continue };
        let event = with_goal(event, state);
        // A task that has ended stays as it ended.
        if event.is_some_and(|event| next_state(child.item.state, event).is_none()) {
            continue;
        }
        if let Some(event) = event {
            let above = if child.is_attempt() { "plan" } else { "goal" };
            let text = format!("its {above} was changed: {why}");
            if child.is_attempt() && ends(state) {
                close_turns(services, &child).await?;
            }
            let (child_state, changes) = change(services, &child, event, &text).await?;
            ops.extend(changes);
            ended.extend(child_state.is_over().then(|| Arc::clone(&child.session)));
            if child.is_attempt() && ends(state) {
                ops.extend(end_messages(services, &child, |_| true).await?);
                stopped.push(child);
            }
        }
    }
    if ends(state) {
        ops.extend(end_messages(services, course, |_| true).await?);
    }
    commit_news(services, &course.item, Batch::synced(ops)).await?;
    for child in children {
        services.life.work.call_item(child);
    }
    if course.is_attempt() && ends(state) {
        pilot::stop(course).await;
    }
    for child in stopped {
        pilot::stop(&child).await;
    }
    // A turn that still ran may have asked while the commit was made; from now on it is refused.
    for session in ended {
        for ask in waiting_cards(services, &session).await? {
            tell::end_ask(services, &ask, ENDED).await?;
        }
    }
    pilot::tell_above(services, course);
    Ok(state)
}

/// Returns true if nothing is worked on in a state without a person's word.
pub(crate) const fn ends(state: WorkState) -> bool {
    state.is_over() || matches!(state, WorkState::Stuck)
}

/// The event of a goal's task, after one of the goal.
const fn with_goal(event: WorkEvent, state: WorkState) -> Option<WorkEvent> {
    match (event, ends(state)) {
        // Without its goal there is no approval under which a task could go on.
        (_, true) => Some(WorkEvent::Cancel),
        (WorkEvent::Pause, false) => Some(WorkEvent::Pause),
        (WorkEvent::Resume, false) => Some(WorkEvent::Resume),
        (_, false) => None,
    }
}

/// The operations that change the state of one item.
async fn change(
    services: &Services,
    course: &ItemCourse,
    event: WorkEvent,
    why: &str,
) -> Result<(WorkState, Vec<Op>), EngineError> {
    let item = &course.item;
    let state = next_state(item.state, event).ok_or_else(|| WorkError::State {
        item: item.id,
        state: item.state.name().to_owned(),
        wanted: event_name(event),
    })?;
    let mut ops = change_state(&services.journal, item, state, why);
    let mut text = why.to_owned();
    if ends(state) {
        // The report needs the evidence of all attempts, which other readings leave out.
        let shown = ItemCourse::read_shown(services, item.id).await?;
        text = report::write_report(shown.as_ref().unwrap_or(course), state, why);
        ops.push(Op::Work(WorkOp::Report { item: item.id, report: text.clone() }));
        ops.extend(report::note_in_origin(services, item, (state, &text)));
        if course.document.kind == WorkKind::Goal {
            ops.push(Op::Jobs(JobOp::Remove { name: goal::job_of(item) }));
        }
    }
    if state == WorkState::Cancelled {
        ops.extend(end_consent(services, course).await?);
    }
    if ends(state) && state != WorkState::Done {
        ops.extend(pilot::end_rest(services, course));
    }
    if state.is_over() {
        for ask in waiting_cards(services, &course.session).await? {
            ops.extend(tell::ending_ops(services, &ask, ENDED));
        }
    }
    ops.push(news(services, item, &course.rows, (state, "", &text)));
    Ok((state, ops))
}

/// Returns the cards of an item's session that nothing may come of any more: its turns have asked them, or its owner has. The one
/// about its plan is ended with its approval.
async fn waiting_cards(services: &Services, session: &Session) -> Result<Vec<StoredAsk>, EngineError> {
    let mut cards = services.journal.store.waiting_asks(session.id, MAX_READ_ROWS).await?;
    cards.retain(|ask| {
        ask.prepared.tool != PROPOSE && !services.life.approved.is_performing(&ask.card.ask_id)
    });
    Ok(cards)
}

/// Ends the question about an item's plan, and takes its approval and its key back.
async fn end_consent(services: &Services, course: &ItemCourse) -> Result<Vec<Op>, EngineError> {
    let (store, now) = (&services.journal.store, services.journal.clock.now());
    // The task of a goal has no approval of its own.
    let Some(id) = course.item.ask.as_ref().filter(|_| course.item.goal.is_none()) else {
        return Ok(Vec::new());
    };
    let mut ops = Vec::new();
    if store.approval(id).await?.is_some_and(|approval| !approval.revoked) {
        ops.push(Op::RevokeApproval { ask: id.clone() });
        let plan = store.plan_of(id, services.journal.valid_now()).await?;
        ops.extend(plan.map(|plan| Op::Revoke {
            id: plan.key.to_string(),
            at: now,
            expires_at: Some(plan.ends_at),
        }));
    }
    if let Some(ask) = store.ask(id).await?
        && matches!(ask.state, AskState::Open | AskState::Approved)
        && !services.life.approved.is_performing(id)
    {
        ops.extend(tell::ending_ops(services, &ask, ENDED));
    }
    Ok(ops)
}

/// Closes the turns that were cut off, by a failure or the end of their engine, and whose messages wait to be tried again: before the
/// end of the item, whose report says what they have used. If the item goes on after all, its message begins another turn. A turn that
/// runs is left to its own end.
async fn close_turns(services: &Services, course: &ItemCourse) -> Result<(), EngineError> {
    for message in closing::waiting_messages(services, &course.session).await? {
        let id = message.record.message;
        if course.session.runs(None) {
            return Ok(());
        }
        let ops = closing::close_open_turn(services, &course.session, id, ENDED).await?;
        if !ops.is_empty() {
            services.journal.store.commit(Batch::synced(ops)).await?;
        }
    }
    Ok(())
}

/// Takes those of the messages back that wait in an item's session. What is leased is ended by its turn.
async fn end_messages(
    services: &Services,
    course: &ItemCourse,
    ends: impl Fn(&QueuedMessage) -> bool,
) -> Result<Vec<Op>, EngineError> {
    let mut ops = Vec::new();
    for message in closing::waiting_messages(services, &course.session).await?.into_iter().filter(ends) {
        let (message, at) = (message.record.message, services.journal.clock.now());
        // No turn works on it: one that was cut off is closed, and has nothing to report.
        let said = String::new();
        ops.push(Op::EndMessage { message, fence: None, error: ENDED.to_owned() });
        ops.push(Op::Work(WorkOp::EndTurn { message, exit: Exit::Interrupted.code(), said, at }));
    }
    Ok(ops)
}

/// Takes the questions to the planner back that wait, each in a commit of its own. The steps beside them go on.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(super) async fn stop_waiting(services: &Services, course: &ItemCourse) -> Result<(), EngineError> {
    for pair in end_messages(services, course, |message| message.consumer == PLANNER).await?.chunks(2) {
        match services.journal.store.commit(Batch::relaxed(pair.to_vec())).await {
            // It was leased in between: its turn ends without our help.
            Ok(_) | Err(StoreError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

const fn event_name(event: WorkEvent) -> &'static str {
    match event {
        WorkEvent::Approve => "begun",
        WorkEvent::Deny => "refused",
        WorkEvent::Pause => "paused",
        WorkEvent::Resume => "resumed",
        WorkEvent::Cancel => "cancelled",
        WorkEvent::Retry => "retried",
        WorkEvent::Consult => "asked about",
        WorkEvent::Advise => "advised",
        WorkEvent::Replan => "planned anew",
        WorkEvent::Stick => "handed to a person",
        WorkEvent::SpendOut => "ended without a budget",
        WorkEvent::Finish => "finished",
        WorkEvent::Fail => "ended as failed",
    }
}

/// Ends or pauses the task of a goal that does not run: nothing of it may go on alone. Returns true if it was.
pub(super) async fn follow_goal(services: &Arc<Services>, course: &ItemCourse) -> Result<bool, EngineError> {
    let Some(goal) = course.item.goal else { return Ok(false) };
    let state = services.journal.store.work_item(goal).await?.map(|goal| goal.state);
    let above = if course.is_attempt() { "plan" } else { "goal" };
    let event = match state {
        Some(WorkState::Running) => return Ok(false),
        Some(WorkState::Paused) if course.item.state == WorkState::Running => WorkEvent::Pause,
        Some(WorkState::Paused) => return Ok(false),
        Some(
            WorkState::Proposed
            | WorkState::Consulting
            | WorkState::Stuck
            | WorkState::OverBudget
            | WorkState::Done
            | WorkState::Failed
            | WorkState::Cancelled
            | WorkState::Denied,
        )
        | None => WorkEvent::Cancel,
    };
    move_on(services, course, event, &format!("its {above} does not go on")).await?;
    Ok(true)
}

/// Gives an item up that cannot be moved on, again and again: a person looks at it, with the error.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(super) async fn give_up(
    services: &Services,
    id: writ_types::id::ItemId,
    why: &str,
) -> Result<(), EngineError> {
    let Some(course) = ItemCourse::read(services, id).await? else { return Ok(()) };
    let can = |event| next_state(course.item.state, event).is_some();
    // A proposal has no state in which a person helps: it ends.
    let event = if can(WorkEvent::Stick) { WorkEvent::Stick } else { WorkEvent::Cancel };
    if can(event) {
        move_on(services, &course, event, &format!("it could not be gone on with: {why}")).await?;
    }
    Ok(())
}
