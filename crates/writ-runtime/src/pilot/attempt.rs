//! Attempts at units: items below a plan, each with a session on a work tree.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use writ_plan::machine::{WorkEvent, next_state};
use writ_sandbox::git::worktrees::is_tree_of;
use writ_store::batch::{Batch, Op};
use writ_store::config::MAX_READ_ROWS;
use writ_store::error::StoreError;
use writ_store::reads::{AskReads as _, UsageReads as _, WorkReads as _};
use writ_store::work::{AttemptState, ItemMove, WorkItem, WorkOp};
use writ_types::api::work::WorkState;
use writ_types::digest::Digest;
use writ_types::id::ItemId;
use writ_types::taint::Taint;
use writ_types::work::{OnStuck, PlanDocument, WorkBudget, WorkKind};

use super::{AttemptLook, AttemptOutcome, AttemptRest, NewAttempt, activity, plan};
use crate::asks::tell;
use crate::budget;
use crate::error::{EngineError, PilotError, WorkError};
use crate::opening;
use crate::proposals::{steps::step_rows, to_json};
use crate::services::Services;
use crate::session::{MODEL, UnderPlan, WorkTerms};
use crate::work::{ItemCourse, is_race, move_on, out_of_order, pilot, turns};
use crate::work_calls::{AttemptOrder, worked};

/// The most attempts of one plan that are open at a time: more than executors work at once, and few among the open items of a home.
pub const MAX_OPEN_ATTEMPTS: usize = 64;
/// The longest instructions of an attempt, in bytes: what fits into the context of most models.
pub const MAX_INSTRUCTION_BYTES: usize = 256 * 1024;
/// The most changes by others that the end of an attempt is put behind.
const MAX_RACES: u32 = 16;
/// The longest wait for the turns of an attempt that was ended: a model's answer is cut off at once, a program has a moment to end.
const MAX_TURN_END: Duration = Duration::from_secs(15);

/// Begins an attempt.
pub(super) async fn start(
    services: &Arc<Services>,
    new: NewAttempt,
    with: Vec<Op>,
) -> Result<ItemId, EngineError> {
    let above = plan::find(services, new.plan).await?;
    let room = check_start(services, &above, &new).await?;
    let max_tokens = least(new.max_tokens, room.0);
    let max_cost = least(new.max_cost, room.1);
    let now = services.journal.clock.now();
    let id = services.journal.ids.item(now);
    let terms = WorkTerms {
        item: id,
        max_tokens,
        max_cost,
        under: Some(UnderPlan { item: above.item.id, session: above.session.id, reads_only: new.reads_only }),
        attempt: new.terms,
    };
    let session = opening::open_for_work(services, new.folder.to_str(), terms).await?;
    session.state().answering.model.clone_from(&new.model);
    let document = document_of(services, &new, (max_tokens, max_cost));
    let item = WorkItem {
        id,
        name: document.id.clone(),
        kind: document.kind.name().to_owned(),
        title: document.title.clone(),
        session: session.id,
        // The plan's own news are enough for a conversation.
        origin: None,
        goal: Some(above.item.id),
        project: session.project().map(str::to_owned),
        state: WorkState::Proposed,
        version: 0,
        reason: String::new(),
        document: to_json(&document)?,
        taint: Taint::External,
        ask: above.item.ask.clone(),
        domains: Vec::new(),
        round: 0,
        consultations: 0,
        report: String::new(),
        max_tokens,
        max_cost,
        created_at: now,
        changed_at: now,
    };
    let why = format!("an attempt at '{}' under the plan's approval", document.id);
    let begun = ItemMove {
        item: id,
        version: 0,
        state: WorkState::Running,
        is_active: true,
        reason: why.clone(),
        at: now,
    };
    let model = new.model.map(serde_json::Value::from);
    let mut ops = vec![
        Op::SetSessionMetadata { session: session.id, key: MODEL.to_owned(), value: model },
        worked(&services.journal, &item, "", WorkState::Running.name(), &why),
        Op::Work(WorkOp::Propose(Box::new((item, step_rows(&document))))),
        Op::Work(WorkOp::Move(begun)),
        // The attempt begins under the plan as it was read: a plan that was paused or ended meanwhile begins none.
        Op::Work(WorkOp::Require { item: above.item.id, version: above.item.version }),
    ];
    ops.extend(with);
    services.journal.store.commit(Batch::synced(ops)).await?;
    services.life.work.call_item(id);
    services.life.work.note_pilot();
    Ok(id)
}

type Room = (Option<writ_types::unit::Tokens>, Option<writ_types::unit::MicroUsd>);

/// Checks that an attempt may begin. Returns what is left of the plan's limits.
async fn check_start(services: &Services, above: &ItemCourse, new: &NewAttempt) -> Result<Room, EngineError> {
    if services.life.draining.is_cancelled() {
        return Err(EngineError::Stopping);
    }
    let bytes = new.instructions.len();
    if bytes > MAX_INSTRUCTION_BYTES {
        let (what, most) = ("text of an attempt", MAX_INSTRUCTION_BYTES);
        return Err(PilotError::TooLarge { what, bytes, most }.into());
    }
    let item = &above.item;
    if item.state != WorkState::Running {
        if item.state == WorkState::OverBudget {
            return Err(PilotError::Budget(item.id).into());
        }
        let why = format!("it is {} ({})", item.state.name(), item.reason);
        return Err(PilotError::NotInForce(why).into());
    }
    if let Some(why) = out_of_order(services, above).await? {
        return Err(PilotError::NotInForce(why).into());
    }
    if above.is_spent() {
        return Err(PilotError::Budget(item.id).into());
    }
    check_folder(above, &new.folder, new.reads_only)?;
    let open = services.journal.store.children_of(item.id).await?.len();
    if open >= MAX_OPEN_ATTEMPTS {
        return Err(PilotError::Busy(open).into());
    }
    budget::read_left(services, &above.session, item.id, (item.max_tokens, item.max_cost)).await
}

/// Checks that a folder is a work tree of the project that the plan was approved for: nothing else was shown on its card. What only
/// reads may do so in the project itself.
///
/// # Errors
///
/// If it is none.
pub(super) fn check_folder(above: &ItemCourse, folder: &Path, reads_only: bool) -> Result<(), PilotError> {
    let project = above.session.terms.project.as_deref();
    let is_fit = |folder: &Path| {
        project.is_some_and(|project| (reads_only && project == folder) || is_tree_of(project, folder))
    };
    if std::fs::canonicalize(folder).is_ok_and(|folder| is_fit(&folder)) {
        Ok(())
    } else {
        Err(PilotError::Folder(folder.to_string_lossy().into_owned()))
    }
}

fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The document of an attempt: one step without checks, tried once. Gates judge it, and the autopilot tries again.
fn document_of(services: &Services, new: &NewAttempt, (max_tokens, max_cost): Room) -> PlanDocument {
    let masked = |text: &str| services.journal.redactor.mask_text(text).into_owned();
    PlanDocument {
        id: new.unit.clone(),
        kind: WorkKind::Task,
        title: masked(&new.title),
        skills: Vec::new(),
        budget: WorkBudget { max_tokens, max_cost, max_attempts: Some(1) },
        steps: Vec::new(),
        checks: Vec::new(),
        gates: Vec::new(),
        on_stuck: OnStuck::Stop,
        interaction: None,
        cycle: None,
        context: String::new(),
        instructions: masked(&new.instructions),
    }
}

/// The longest wait for the folder of an attempt whose changes are shown.
const PENDING_WAIT: Duration = Duration::from_secs(1);

/// Returns the files that an attempt which runs has changed in its sandbox.
pub(super) async fn pending_files(services: &Arc<Services>, id: ItemId) -> Result<Vec<String>, EngineError> {
    let course = find(services, id).await?;
    if course.item.state != WorkState::Running {
        return Ok(Vec::new());
    }
    let workspace = services.workspace(&course.session).await?;
    let changes = workspace.read_changes_within(PENDING_WAIT).await?;
    Ok(changes.changes.into_iter().map(|change| change.path).collect())
}

/// Returns the digest of what an attempt has changed in its sandbox.
pub(super) async fn pending_digest(
    services: &Arc<Services>,
    id: ItemId,
) -> Result<Option<Digest>, EngineError> {
    let course = find(services, id).await?;
    let changes = services.workspace(&course.session).await?.read_changes().await?;
    if changes.changes.is_empty() {
        return Ok(None);
    }
    let files: Vec<(&str, Option<Digest>)> =
        changes.changes.iter().map(|change| (change.path.as_str(), change.after)).collect();
    Ok(Some(Digest::of_canonical(&files)?))
}

pub(super) async fn find(services: &Services, id: ItemId) -> Result<ItemCourse, EngineError> {
    let course = ItemCourse::read(services, id).await?.ok_or_else(|| WorkError::Unknown(id.to_string()))?;
    if course.is_attempt() { Ok(course) } else { Err(PilotError::NoAttempt(id).into()) }
}

/// Looks at an attempt.
pub(super) async fn look(services: &Services, id: ItemId) -> Result<AttemptLook, EngineError> {
    // Before the item: an order that was carried out in between shows in its state.
    let is_ordered = services.life.work.turn_order(id).is_some();
    let course = find(services, id).await?;
    let (item, store) = (&course.item, &services.journal.store);
    let used = store.session_usage(item.session).await?;
    let (context, is_full) = {
        let state = course.session.state();
        (state.context.budget, state.context.is_full)
    };
    if !item.state.is_over() {
        if !is_ordered && let Some(rest) = turns::resting_turn(services, &course).await? {
            let (said, is_cut) = (rest.attempt.said.clone(), rest.is_cut);
            let (tokens, cost) = (used.usage.total_tokens(), used.cost);
            return Ok(AttemptLook::Resting(AttemptRest { said, is_cut, tokens, cost, context }));
        }
        let signs = activity::read_signs(services, &course, is_ordered).await?;
        return Ok(AttemptLook::Running {
            tokens: used.usage.total_tokens(),
            cost: used.cost,
            signs,
            context,
        });
    }
    // One that was cut off by its end has no words of its own.
    let last = course.attempts.last().filter(|attempt| attempt.state != AttemptState::Running);
    Ok(AttemptLook::Ended(AttemptOutcome {
        state: item.state,
        exit: last.and_then(|attempt| attempt.exit).and_then(pilot::exit_of),
        is_full,
        said: last.map(|attempt| attempt.said.clone()).unwrap_or_default(),
        reason: item.reason.clone(),
        input: used.usage.input,
        output: used.usage.output,
        cost: used.cost,
    }))
}

/// Lets an attempt go on with another turn.
pub(super) async fn go_on(
    services: &Services,
    id: ItemId,
    (turn, text): (u32, String),
    after: &str,
) -> Result<(), EngineError> {
    let course = find(services, id).await?;
    let bytes = text.len();
    if bytes > MAX_INSTRUCTION_BYTES {
        let (what, most) = ("text of a turn", MAX_INSTRUCTION_BYTES);
        return Err(PilotError::TooLarge { what, bytes, most }.into());
    }
    // Its next look sees the end.
    if course.item.state.is_over() {
        return Ok(());
    }
    let text = services.journal.redactor.mask_text(&text).as_ref().into();
    services.life.work.order_turn(id, AttemptOrder::Next { turn, text, after: after.into() });
    // After the order: the end of the last question lets the attempt go on.
    withdraw_questions(services, &course).await?;
    services.life.work.call_item(id);
    Ok(())
}

/// The reason with which a question ends that no person answers.
const NO_ANSWER: &str = "the autopilot goes on without an answer";

async fn withdraw_questions(services: &Services, course: &ItemCourse) -> Result<(), EngineError> {
    for ask in services.journal.store.waiting_asks(course.session.id, MAX_READ_ROWS).await? {
        if !services.life.approved.is_performing(&ask.card.ask_id) {
            tell::end_ask(services, &ask, NO_ANSWER).await?;
        }
    }
    Ok(())
}

/// Has an attempt judged that rests.
pub(super) async fn finish(services: &Services, id: ItemId, why: &str) -> Result<(), EngineError> {
    let course = find(services, id).await?;
    if !course.item.state.is_over() {
        let entry = worked(&services.journal, &course.item, "", course.item.state.name(), why);
        services.journal.store.commit(Batch::relaxed(vec![entry])).await?;
        services.life.work.order_turn(id, AttemptOrder::End);
        services.life.work.call_item(id);
    }
    Ok(())
}

/// Ends an attempt. Its turns have ended, too, when this returns, so that all that it has used is written down.
pub(super) async fn end(services: &Services, id: ItemId, why: &str) -> Result<(), EngineError> {
    let mut tries = 0_u32;
    loop {
        let course = find(services, id).await?;
        if next_state(course.item.state, WorkEvent::Cancel).is_none() {
            await_turns(&course).await;
            return Ok(());
        }
        match move_on(services, &course, WorkEvent::Cancel, why).await {
            Ok(_) => {
                await_turns(&course).await;
                break;
            }
            // It has moved on meanwhile: it is read again.
            Err(EngineError::Store(StoreError::Conflict(conflict)))
                if is_race(&conflict) && tries < MAX_RACES =>
            {
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
    services.life.work.call_item(id);
    Ok(())
}

async fn await_turns(course: &ItemCourse) {
    if !course.session.await_turns(MAX_TURN_END).await {
        tracing::warn!(item = %course.item.id, "a turn of an attempt that was ended still runs");
    }
}
