//! Runs work items: hands their steps to executors, has the results checked, and reports.
//!
//! Everything about an item is in the store, and [`next_moves`] says what is to be done with it as it stands there. Each
//! move is one commit: an attempt begins with its message in the queue, ends in the commit that ends its turn, and is
//! judged once. So a crash at any moment repeats no step and forgets none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use writ_plan::machine::{self, AttemptEnd, Move, StepView, WorkEvent, WorkView, next_moves};
use writ_plan::run::run_steps;
use writ_policy::budget::{BudgetConfig, Spent};
use writ_store::approvals::AskState;
use writ_store::error::{Conflict, StoreError};
use writ_store::ledger::row::{LedgerQuery, LedgerRow};
use writ_store::reads::{AskReads as _, LedgerReads as _, PlanReads as _, WorkReads as _};
use writ_store::work::{AttemptState, MAX_OPEN_ITEMS, WholeItem, WorkAttempt, WorkItem, WorkStepRow};
use writ_types::action::{Action, Plan};
use writ_types::api::work::{StepState, WorkState};
use writ_types::digest::Digest;
use writ_types::entry::{DenyReason, Fact};
use writ_types::error::Exit;
use writ_types::id::ItemId;
use writ_types::unit::{MicroUsd, Tokens};
use writ_types::work::{OnStuck, PlanDocument, WorkKind, WorkStep};

use crate::budget::{read_plan_used, read_spent};
use crate::error::EngineError;
use crate::proposals::{ask_about, read_document};
use crate::services::Services;
use crate::session::Session;

pub(crate) use moves::move_on;

pub(crate) mod attempt;
pub(crate) mod consult;
pub(crate) mod evidence;
pub(crate) mod goal;
mod held;
mod moves;
pub(crate) mod people;
pub(crate) mod pilot;
pub(crate) mod report;
pub(crate) mod turns;
pub(crate) mod verify;

/// The longest wait before all open items are looked at without a call: for approvals that expire, and for work that a
/// crash has cut off between a commit and its call.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The most refusals that are looked at for one of the budget.
const MAX_DENIALS: usize = 50;

/// The times in a row that an item cannot be moved on before a person is asked to look: some minutes.
const MAX_FAILED_MOVES: u32 = 6;

/// The items that are being driven; true: look once more.
type Driven = Arc<Mutex<BTreeMap<ItemId, bool>>>;

/// Drives items until the engine drains.
pub(crate) async fn run(services: Arc<Services>) {
    let driven = Driven::default();
    call_open(&services).await;
    loop {
        let (woken, now) = (services.life.work.wake.notified(), services.journal.clock.now());
        for item in services.life.work.take() {
            drive_soon(&services, &driven, item);
        }
        tokio::select! {
            () = services.life.draining.cancelled() => return,
            () = woken => {}
            () = services.journal.clock.wait(now, LOOK_EVERY) => call_open(&services).await,
        }
    }
}

/// Calls for a look at all open items. After a start their lanes may have messages from before, at which the dispatcher has not
/// looked if it was first: it looks at lanes only once there is an item.
async fn call_open(services: &Services) {
    let items = open_items(services).await;
    for item in &items {
        services.life.work.call_item(*item);
    }
    if !items.is_empty() {
        services.life.wake.notify_one();
    }
}

async fn open_items(services: &Services) -> Vec<ItemId> {
    match services.journal.store.active_work(MAX_OPEN_ITEMS).await {
        Ok(items) => items,
        Err(error) => {
            tracing::error!(%error, "the open work items cannot be read; they are looked at again soon");
            Vec::new()
        }
    }
}

/// Starts the task that drives an item, or has the one that does look once more.
fn drive_soon(services: &Arc<Services>, driven: &Driven, item: ItemId) {
    {
        let mut driven = driven.lock().unwrap_or_else(PoisonError::into_inner);
        // One task for an item: two would make the same move.
        if let Some(again) = driven.get_mut(&item) {
            *again = true;
            return;
        }
        driven.insert(item, false);
    }
    let (services, driven) = (Arc::clone(services), Arc::clone(driven));
    services.life.turns.clone().spawn(async move {
        loop {
            drive(&services, item).await;
            // Asked and removed within one lock, so that a call in between is not missed.
            let mut driven = driven.lock().unwrap_or_else(PoisonError::into_inner);
            if driven.get(&item) == Some(&true) && !services.life.draining.is_cancelled() {
                driven.insert(item, false);
            } else {
                driven.remove(&item);
                return;
            }
        }
    });
}

/// The most changes by others that one look meets before it counts as failed: what conflicts with itself would go on for ever.
const MAX_RACES: u32 = 64;

/// Makes the moves of an item until it waits for something. What fails is tried again with the next look.
async fn drive(services: &Arc<Services>, item: ItemId) {
    let mut races = 0_u32;
    loop {
        if services.life.draining.is_cancelled() {
            return;
        }
        match drive_once(services, item).await {
            Ok(again) => {
                services.life.work.forget_failures(item);
                if !again {
                    return;
                }
            }
            // As many executors work as may: the end of any of them calls. One may have ended before that was noted.
            Err(EngineError::Store(StoreError::Conflict(Conflict::Executors(_)))) => {
                if !services.life.work.wait_for_room(item) {
                    return;
                }
            }
            // Another task has changed the item since it was read: it is read again.
            Err(EngineError::Store(StoreError::Conflict(conflict)))
                if is_race(&conflict) && races < MAX_RACES =>
            {
                races += 1;
                tracing::debug!(%item, ?conflict, "a work item was changed meanwhile");
            }
            Err(error) => return note_failure(services, item, &error).await,
        }
    }
}

/// Writes down that an item could not be moved on. What fails again and again is handed to a person.
async fn note_failure(services: &Arc<Services>, item: ItemId, error: &EngineError) {
    let report = services.journal.report(error);
    tracing::error!(%item, code = report.code, inside = report.inside, "a work item does not go on now");
    if services.life.draining.is_cancelled() || services.life.work.count_failure(item) < MAX_FAILED_MOVES {
        return;
    }
    match moves::give_up(services, item, &report.outside).await {
        Ok(()) => services.life.work.forget_failures(item),
        Err(error) => tracing::error!(%item, %error, "a work item that does not go on cannot be given up"),
    }
}

pub(crate) const fn is_race(conflict: &Conflict) -> bool {
    matches!(
        conflict,
        Conflict::Missing { .. } | Conflict::Exists { .. } | Conflict::Fence(_) | Conflict::AskNotOpen(_)
    )
}

/// An item with all that its moves rest on.
pub(crate) struct ItemCourse {
    pub(crate) item: WorkItem,
    pub(crate) session: Arc<Session>,
    pub(crate) document: PlanDocument,
    /// The steps as they are run.
    pub(crate) steps: Vec<WorkStep>,
    pub(crate) rows: Vec<WorkStepRow>,
    pub(crate) attempts: Vec<WorkAttempt>,
    pub(crate) spent: Spent,
    pub(crate) limits: BudgetConfig,
    /// Set if the door has refused a call of this round because the item's budget has no room for it.
    pub(crate) is_refused: bool,
}

impl ItemCourse {
    /// Reads an item. `None`: there is none.
    pub(crate) async fn read(services: &Services, id: ItemId) -> Result<Option<Self>, EngineError> {
        let Some(whole) = services.journal.store.whole_work_item(id).await? else { return Ok(None) };
        Self::of(services, whole).await.map(Some)
    }

    /// Reads an item with the evidence that people are shown. `None`: there is none.
    pub(crate) async fn read_shown(services: &Services, id: ItemId) -> Result<Option<Self>, EngineError> {
        let Some(whole) = services.journal.store.shown_work_item(id).await? else { return Ok(None) };
        Self::of(services, whole).await.map(Some)
    }

    async fn of(services: &Services, (item, rows, attempts): WholeItem) -> Result<Self, EngineError> {
        let session = services.sessions.get(item.session).await?;
        let document = read_document(&item)?;
        let mut spent = read_spent(services, &session, MicroUsd::ZERO, &[]).await?;
        let mut limits = services.keys.limits_of(Some(&session));
        if document.kind == WorkKind::Pilot {
            // Its attempts spend for it, in sessions of their own.
            (spent.session_tokens, spent.session_cost) = read_plan_used(services, &session, item.id).await?;
            limits.max_tokens_per_session = item.max_tokens.unwrap_or(Tokens::MAX);
            limits.max_cost_per_session = item.max_cost;
        }
        let steps = run_steps(&document);
        let is_refused = is_refused(services, &item, &attempts).await?;
        Ok(Self { item, session, document, steps, rows, attempts, spent, limits, is_refused })
    }

    /// Returns true for an attempt of the autopilot.
    pub(crate) fn is_attempt(&self) -> bool {
        self.session.plan_above().is_some()
    }

    /// Returns the attempts at a step, in their order.
    pub(crate) fn attempts_at(&self, step: usize) -> impl Iterator<Item = &WorkAttempt> {
        self.attempts.iter().filter(move |attempt| attempt.step == step)
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.is_refused
            || self.spent.session_tokens >= self.limits.max_tokens_per_session
            || self.limits.max_cost_per_session.is_some_and(|most| self.spent.session_cost >= most)
    }

    fn view(&self) -> WorkView<'_> {
        let end = |attempt: &WorkAttempt| {
            let verdict = evidence::verdict_named(&attempt.verdict);
            let trace = attempt.trace.parse().unwrap_or(Digest::of_bytes(b""));
            (attempt.state == AttemptState::Judged).then_some(AttemptEnd { verdict, trace })
        };
        let steps = self.rows.iter().enumerate().map(|(n, row)| StepView {
            state: row.state,
            max_attempts: row.max_attempts,
            ends: self.attempts_at(n).filter_map(end).collect(),
        });
        WorkView {
            state: self.item.state,
            plan: &self.steps,
            steps: steps.collect(),
            on_stuck: self.document.on_stuck,
            consultations: self.item.consultations,
            is_spent: self.is_spent(),
        }
    }
}

/// Returns true if an attempt of this round has ended because the budget had no room for its next call.
async fn is_refused(
    services: &Services,
    item: &WorkItem,
    attempts: &[WorkAttempt],
) -> Result<bool, EngineError> {
    let since = item.changed_at;
    let is_out =
        |attempt: &WorkAttempt| attempt.exit == Some(Exit::Budget.code()) && attempt.began_at >= since;
    if !attempts.iter().any(is_out) {
        return Ok(false);
    }
    let query = LedgerQuery {
        event: Some("denied".to_owned()),
        session: Some(item.session),
        since: Some(since),
        limit: MAX_DENIALS,
        ..LedgerQuery::default()
    };
    let rows = services.journal.store.ledger_search(&query).await?;
    // The limit of one turn's tool calls is none of the item's.
    Ok(rows.iter().filter_map(LedgerRow::entry).any(|entry| {
        matches!(&entry.fact, Fact::Denied { reason: DenyReason::Budget, rule, .. } if rule.contains("session"))
    }))
}

/// Makes the next moves of an item. Returns true if it is to be looked at again at once.
async fn drive_once(services: &Arc<Services>, id: ItemId) -> Result<bool, EngineError> {
    let Some(course) = ItemCourse::read(services, id).await? else { return Ok(false) };
    if matches!(course.document.kind, WorkKind::Goal | WorkKind::Pilot) {
        // The turns of its task end in its own session, and call for it.
        for child in services.journal.store.children_of(id).await? {
            services.life.work.call_item(child);
        }
    }
    if course.document.kind == WorkKind::Pilot || course.is_attempt() {
        services.life.work.note_pilot();
    }
    if course.item.state.is_over() {
        services.life.work.forget_order(id);
        return Ok(false);
    }
    // Its owner has closed it: no step can begin there any more.
    if course.session.state().closed {
        move_on(services, &course, WorkEvent::Cancel, "its session was closed").await?;
        return Ok(false);
    }
    if course.item.state == WorkState::Proposed {
        return settle_proposal(services, &course).await;
    }
    if moves::follow_goal(services, &course).await? {
        return Ok(false);
    }
    if course.document.kind == WorkKind::Pilot {
        return pilot::look_after(services, &course).await;
    }
    if course.item.state == WorkState::Consulting {
        return consult::look_after(services, &course).await;
    }
    attempt::end_dead(services, &course).await?;
    let is_goal = course.document.kind == WorkKind::Goal && course.item.state == WorkState::Running;
    let moves = if is_goal { Vec::new() } else { next_moves(&course.view()) };
    let held = held::due(services, &course).await?;
    // Checked before anything is done, and only then: a look at what is under way stays cheap.
    if (is_goal || !moves.is_empty() || !held.is_empty())
        && let Some(why) = out_of_order(services, &course).await?
    {
        move_on(services, &course, WorkEvent::Stick, &why).await?;
        return Ok(false);
    }
    if is_goal {
        return goal::run_due(services, &course).await;
    }
    for attempt in held {
        held::go_on(services, &course, attempt).await?;
    }
    make_moves(services, &course, moves).await
}

/// Makes moves of an item. Returns true if it is to be looked at again at once.
async fn make_moves(
    services: &Arc<Services>,
    course: &ItemCourse,
    moves: Vec<Move>,
) -> Result<bool, EngineError> {
    let mut is_moved = false;
    for one in moves {
        match one {
            Move::Start(step) => {
                attempt::begin(services, course, step).await?;
                // After a step was handed to an executor, its end calls.
                is_moved |= !course.rows.get(step).is_some_and(|row| row.has_executor);
            }
            Move::Check(step) => is_moved |= verify::check_step(services, course, step).await?,
            Move::Consult(step) => {
                consult::ask_guidance(services, course, step).await?;
                is_moved = true;
            }
            Move::Replan(step) => {
                consult::ask_replan(services, course, step).await?;
                is_moved = true;
            }
            Move::Stick(step) => {
                end_stuck(services, course, step).await?;
                is_moved = true;
            }
            Move::Fail(step) => {
                let why = pilot::words_of_failure(course, step)
                    .unwrap_or_else(|| format!("step '{}' has failed its checks", course.rows[step].name));
                move_on(services, course, WorkEvent::Fail, &why).await?;
                pilot::spend_out(services, course).await?;
                is_moved = true;
            }
            Move::SpendOut => {
                move_on(services, course, WorkEvent::SpendOut, "its budget is used up").await?;
                pilot::spend_out(services, course).await?;
                is_moved = true;
            }
            Move::Finish => return finish(services, course).await.map(|()| false),
        }
    }
    Ok(is_moved)
}

/// Looks after an item with a plan that waits for an answer.
async fn settle_proposal(services: &Arc<Services>, course: &ItemCourse) -> Result<bool, EngineError> {
    let Some(ask) = &course.item.ask else {
        // Another task asks; it calls for a look once its question is noted.
        let Some(_asking) = services.life.work.try_asking(course.item.id) else { return Ok(false) };
        // Read anew: the question may have been asked, and even answered, since the item was read. A second one would be a new
        // card for what a person has refused.
        let now = services.journal.store.work_item(course.item.id).await?;
        if now.is_none_or(|now| now.ask.is_some() || now.state != WorkState::Proposed) {
            return Ok(true);
        }
        // The engine ended before the question was asked.
        ask_about(services, &course.item).await?;
        return Ok(false);
    };
    let Some(ask) = services.journal.store.ask(ask).await? else { return Ok(false) };
    let (event, why) = match ask.state {
        AskState::Open | AskState::Approved => return Ok(false),
        AskState::Denied => (WorkEvent::Deny, "a person has refused its plan"),
        AskState::Expired => (WorkEvent::Cancel, pilot::NOT_ANSWERED),
        // It begins the item now; its end calls.
        AskState::Used if services.life.approved.is_performing(&ask.card.ask_id) => return Ok(false),
        // A crash has cut off what it was to begin, and an approval counts once.
        AskState::Used if ask.resolved_at.is_none_or(|at| at < services.life.started_at) => {
            ask_about(services, &course.item).await?;
            return Ok(false);
        }
        // Used, and still proposed: the approval was not for this round, or could not begin it.
        AskState::Used => (WorkEvent::Cancel, "its approval could not be used"),
    };
    move_on(services, course, event, why).await?;
    Ok(false)
}

/// Returns why an item may not go on: its approval is not in force, or what was approved is not what is stored.
pub(crate) async fn out_of_order(
    services: &Services,
    course: &ItemCourse,
) -> Result<Option<String>, EngineError> {
    // An attempt of the autopilot is part of what was approved as its plan.
    let above = match course.session.plan_above() {
        Some(under) => services.journal.store.work_item(under.item).await?,
        None => None,
    };
    let approved_for = above.as_ref().map_or(course.session.id, |plan| plan.session);
    let plans = services.journal.store.plans(Some(approved_for), services.journal.valid_now(), 1).await?;
    let Some(plan) = plans.into_iter().next() else {
        return Ok(Some("the approval of its plan has ended or was taken back".to_owned()));
    };
    let asked = services.journal.store.ask(&plan.ask).await?;
    let approved = asked.as_ref().and_then(|ask| {
        let Action::Plan(Plan { work: Some(work), .. }) = &ask.prepared.action else { return None };
        Some(&work.document)
    });
    // A task that a goal starts is part of what was approved for the goal.
    let is_same = match (course.item.goal, &above) {
        (_, Some(plan)) => approved == Some(&read_document(plan)?),
        (Some(_), None) => approved.is_some_and(|approved| goal::spawned(approved) == course.document),
        (None, None) => approved == Some(&course.document),
    };
    Ok((!is_same).then(|| "its plan is not the one that was approved".to_owned()))
}

/// Hands an item to a person, with the report of what was tried.
async fn end_stuck(services: &Services, course: &ItemCourse, step: usize) -> Result<(), EngineError> {
    let name = course.rows.get(step).map(|row| row.name.as_str()).unwrap_or_default();
    let why = match course.document.on_stuck {
        OnStuck::ConsultPlanner => format!("step '{name}' has failed, and the planner could not help"),
        OnStuck::AskPerson | OnStuck::Stop => format!("step '{name}' has failed in the same way again"),
    };
    move_on(services, course, WorkEvent::Stick, &why).await.map(drop)
}

/// Brings what was verified into the project, and ends the item.
async fn finish(services: &Arc<Services>, course: &ItemCourse) -> Result<(), EngineError> {
    let brought = match course.session.plan_above() {
        Some(under) if under.reads_only => {
            services.workspace(&course.session).await?.discard_changes().await?;
            Ok(())
        }
        Some(_) | None => verify::bring_out(services, course).await?,
    };
    match brought {
        Ok(()) if course.is_attempt() => {
            move_on(services, course, WorkEvent::Finish, "its turn has ended well").await.map(drop)
        }
        Ok(()) => {
            let why = if evidence::is_proven(course) {
                "every check has passed"
            } else {
                "its steps are done; its plan has no checks"
            };
            move_on(services, course, WorkEvent::Finish, why).await.map(drop)
        }
        Err(why) => move_on(services, course, WorkEvent::Stick, &why).await.map(drop),
    }
}

/// Judges the next state of a step: [`machine::judged_state`].
pub(crate) fn judged(course: &ItemCourse, step: usize, end: AttemptEnd) -> StepState {
    let view = course.view();
    match (course.steps.get(step), view.steps.get(step)) {
        (Some(plan), Some(seen)) => machine::judged_state(plan, seen, end),
        // A step that the plan does not have cannot have an attempt.
        _ => StepState::Failed,
    }
}
