//! The loop of a project: hands out what is ready, and writes down what comes of it.
//!
//! Nothing is remembered from tick to tick: each begins with what the store says. A worker's result becomes an event of the pure
//! machine, and what the machine answers is one commit under the fence of the worker's claim.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use writ_autopilot::attempt::RunEnd;
use writ_autopilot::blocker::PauseCause;
use writ_autopilot::claim::CLAIM_TIME;
use writ_autopilot::failure::FailureCode;
use writ_autopilot::hook::HookKind;
use writ_autopilot::machine::{MachineError, NextTry, UnitEvent, UnitMove, apply_event};
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::schedule::next_try_at;
use writ_autopilot::stand::PhaseStatus;
use writ_autopilot::unit_id::{UnitId, UnitType};
use writ_store::batch::Op;
use writ_store::error::StoreError;
use writ_store::reads::WorkReads as _;
use writ_store::units::{UnitLine, UnitOp, UnitRunEnd};
use writ_types::api::work::WorkState;
use writ_types::entry::HookEvent;
use writ_types::id::{ItemId, UnitRunId};
use writ_types::unit::{MicroUsd, Tokens};

use crate::chapters::{ChapterDesk, RunOfUnit};
use crate::error::AutopilotError;
use crate::learned::remember_learnings;
use crate::project::OpenProject;
use crate::standing::{ChangeContext, HeldClaim, UnitRecord, move_ops, outcome_name};
use crate::start::StartStep;
use crate::trace::attempts_of;

mod agent;

mod baseline;

mod benchmark;

mod candidates;

mod choice;

mod claiming;

mod course;

mod diff;

mod documents;

mod ending;

mod ends;

mod faults;

mod gate_input;

mod gates;

mod hidden;

mod hooks;

mod merging;

mod milestone;

mod money;

mod news;

mod notices;
mod pace;

mod question;

mod report_file;

mod reviewing;

mod shipping;

mod single;

mod supervise;

mod tick;

mod trail;

mod turns;

pub(crate) use baseline::Baselines;
pub(crate) use benchmark::measure_models;
pub(crate) use candidates::{ended_units, find_next};
pub(crate) use course::{SeenState, WorkCourse};
pub(crate) use documents::{answer_documents, proposed_documents, waits_for_documents};
pub(crate) use ending::make_up_ends;
pub(crate) use ends::{OpenEnds, finish_ends, withdraw_ends};
use faults::{failure_of, fault, fault_result};
pub(crate) use gates::{argv_of, judge_end, judge_gate, mark_of};
pub(crate) use merging::MergeGates;
use money::MoneyAnswer;
pub(crate) use money::allow_question;
pub(crate) use news::{UnitNews, tell_hooks};
use pace::{LookSignals, wait_for_look};
pub(crate) use shipping::{describe_ship, push_branch, resume_ships, ship_again};
pub(crate) use single::{dispatch_next, dispatch_unit};
use tick::{Tick, tick};

/// The wait after a tick that has failed.
const AFTER_ERROR: Duration = Duration::from_secs(5);
/// The time from one renewal of a claim to the next: three within its time.
const RENEW_EVERY: Duration = Duration::from_secs(CLAIM_TIME.as_secs() / 3);

/// The result of one attempt at a phase.
#[derive(Clone, Debug)]
pub(crate) struct PhaseResult {
    /// The event for the machine.
    pub(crate) event: UnitEvent,
    /// The outcome of the run, as rows name it.
    pub(crate) outcome: &'static str,
    /// The code of an error; `None` without one.
    pub(crate) code: Option<FailureCode>,
    /// The reason, in words: it stands with the transition and with blockers.
    pub(crate) reason: String,
    /// The text that the next attempt reads as its last error; `None`: nothing is wrong any more.
    pub(crate) last_error: Option<String>,
    /// Tokens that were read and written, and the cost.
    pub(crate) used: (Tokens, Tokens, MicroUsd),
}

/// A claim that a worker of this process has.
#[derive(Clone, Debug)]
pub(crate) struct WorkClaim {
    pub(crate) unit: UnitRecord,
    pub(crate) fence: u64,
    pub(crate) run: UnitRunId,
    pub(crate) course: Arc<WorkCourse>,
}

/// Runs the loop of a project until it is stopped, paused, or nothing is left to do.
pub(crate) async fn run_loop(project: Arc<OpenProject>, mut stop: CancellationToken) {
    let draining = project.hands.draining();
    StartStep::Poll.log_step(&project.name);
    loop {
        // The engine's end is no pause: the next start goes on, also where nothing was at work.
        if draining.is_cancelled() {
            return;
        }
        // Counted from here, so that no change during the tick is missed.
        let woken = project.hands.wake();
        project.begin_round();
        let wait = match tick(&project, stop.is_cancelled()).await {
            Ok(Tick::Wait(wait)) => wait,
            Ok(Tick::Ended(status)) => {
                // The end and its status are one: an order between both would be lost, and a reader would see an end that is none.
                let _whole = project.looping.hold_status().await;
                if draining.is_cancelled() {
                    return;
                }
                let Some(next) = project.finish_loop() else {
                    if let Err(error) = project.set_status(status).await {
                        tracing::error!(%error, status, "the end of the autopilot's loop cannot be written");
                    }
                    return;
                };
                stop = next;
                Duration::ZERO
            }
            Err(error) => {
                tracing::error!(%error, "a tick of the autopilot has failed; it is tried again");
                AFTER_ERROR
            }
        };
        let signals = LookSignals { draining: &draining, stop: &stop, wake: &project.looping.wake };
        if !wait_for_look(&signals, woken, wait).await {
            return;
        }
    }
}

fn id_of(line: &UnitLine) -> Option<UnitId> {
    line.id.parse().ok()
}

/// Returns the states of the plans, by the units that have them.
async fn states_of_plans(project: &OpenProject) -> Result<BTreeMap<UnitId, WorkState>, AutopilotError> {
    let mut states = BTreeMap::new();
    for (top, item) in project.plans().await? {
        let state = project.hands.store().work_item(item).await?.map(|item| item.state);
        states.extend(state.map(|state| (top, state)));
    }
    Ok(states)
}

/// Hands a unit out, after the hooks before that; these run beside the loop.
async fn hand_out(project: &Arc<OpenProject>, id: UnitId) {
    let done = if project.config().hooks.has(HookKind::PreDispatch) {
        hooks::dispatch_after_hooks(project, id).await
    } else {
        dispatch(project, id, false).await.map(|_| ())
    };
    match done {
        Ok(()) => {}
        // Another has it, or it was changed since it was read: the next tick reads it anew.
        Err(AutopilotError::Store(StoreError::Conflict(conflict))) => {
            tracing::debug!(unit = %id, ?conflict, "a unit was not handed out");
        }
        Err(error) => {
            let code = failure_of(&error);
            let (code, class) = (code.name(), code.class().name());
            tracing::error!(unit = %id, %error, code, class, "a unit cannot be handed out");
        }
    }
}

/// Claims a unit, with `is_forced` before it is ready, and starts its worker. Returns false if it waits for something and stays as it is.
async fn dispatch(project: &Arc<OpenProject>, id: UnitId, is_forced: bool) -> Result<bool, AutopilotError> {
    // Until the claim: its worker works by the words and under the plan that are read here.
    let _plans = project.hold_plans().await;
    if project.is_dispatch_held() {
        return Ok(false);
    }
    // Its last worker has not done all that follows from its attempt.
    if project.live().contains_key(&id) {
        return Ok(false);
    }
    let unit = project.read_unit(id).await?;
    let plan = project.hands.store().work_item(plan_of(project, id).await?).await?;
    // Edited and asked about anew since the tick has begun.
    if plan.is_none_or(|plan| plan.state != WorkState::Running) {
        return Ok(false);
    }
    if unit.stand.phase == PilotPhase::Merge && !unit.facts.code_depends_on.is_empty() {
        let ended = ended_units(project).await?;
        // Its merge waits for theirs; no try is counted.
        if !unit.facts.code_depends_on.iter().all(|on| ended.contains(&on.to_string())) {
            return Ok(false);
        }
    }
    let (flow, limits) = (project.flow_of(&unit).await?, project.config().limits);
    // Before the claim: a ceiling is no try.
    let asks_agent = documents::asks_agent(project, &unit).await?;
    let money = match money::allow_work(project, (id, unit.stand.phase), asks_agent).await? {
        MoneyAnswer::Most(money) => money,
        MoneyAnswer::Wait => return Ok(false),
        MoneyAnswer::Reached(why) => {
            let made = apply_event(&flow, &limits, &unit.stand, &UnitEvent::Pause(PauseCause::Ceiling))?;
            return commit_move(project, &unit, &made, (None, &why)).await.map(|()| true);
        }
    };
    let made = apply_event(&flow, &limits, &unit.stand, &UnitEvent::Dispatch)?;
    if made.stand.status != PhaseStatus::Running {
        let reason = "it was handed out as often as it may";
        return commit_move(project, &unit, &made, (None, reason)).await.map(|()| true);
    }
    // The state that the machine goes on from is the one that is written with the claim.
    let unit = UnitRecord { stand: made.stand, ..unit };
    let (work, stop) = claiming::claim_unit(project, unit, (money, is_forced)).await?;
    let own = Arc::clone(project);
    project.hands.spawn(project.tasks.track_future(async move {
        tell_hooks(&own, HookEvent::UnitStarted, &UnitNews::of_unit(&work.unit, "running", "")).await;
        work_on(&own, &work, &stop).await;
        if !own.hands.draining().is_cancelled() {
            ending::end_if_over(&own, work.unit.id).await;
            own.trace.emit(work.unit.id);
        }
        ending::free_unit(&own, &work).await;
        // What was cancelled around it has left its folder until now.
        if !own.hands.draining().is_cancelled() {
            ends::try_ends(&own).await;
        }
        own.looping.wake.notify_one();
    }));
    Ok(true)
}

/// Works on a unit in its phase, renews the claim meanwhile, and writes the result down.
async fn work_on(project: &Arc<OpenProject>, work: &WorkClaim, stop: &CancellationToken) {
    let run = work.run.to_string();
    let of = RunOfUnit { id: work.unit.id, title: &work.unit.row.title, run: &run };
    let desk = ChapterDesk { files: &project.files, hands: &project.hands };
    desk.begin_run(of, work.unit.stand.phase.name());
    let result = {
        let working = supervise::run_watched(project, work, stop);
        tokio::pin!(working);
        loop {
            tokio::select! {
                result = &mut working => break result,
                () = tokio::time::sleep(RENEW_EVERY) => {
                    // What another holder has by now must not be worked on any longer.
                    if !claiming::renew_or_lose(project, work).await {
                        stop.cancel();
                    }
                }
            }
        }
    };
    if project.hands.draining().is_cancelled() {
        // The next start ends what this one has begun.
        return;
    }
    let result = match result {
        Ok(result) => result,
        Err(error) => fault_result(&error),
    };
    if let Some(code) = result.code {
        let (unit, phase) = (work.unit.id, work.unit.stand.phase.name());
        let (code, class) = (code.name(), code.class().name());
        tracing::warn!(%unit, phase, outcome = result.outcome, code, class, "a run has not succeeded");
    }
    let attempts = attempts_of(project, work.unit.id).await;
    desk.end_run(of, result.outcome == outcome_name(RunEnd::Success), attempts).await;
    let hold = hooks::hold_for_hooks(project).await;
    let reason = result.reason.clone();
    if let Err(error) = settle(project, work, result).await {
        tracing::error!(unit = %work.unit.id, %error, "the result of an attempt cannot be written");
    }
    remember_learnings(&project.hands, &project.name, work.course.learnings()).await;
    hooks::run_after_run(project, work, &reason, hold).await;
}

async fn run_phase(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    stop: &CancellationToken,
) -> Result<PhaseResult, AutopilotError> {
    match work.unit.stand.phase {
        PilotPhase::Verify if work.unit.id.unit_type() == UnitType::Milestone => {
            milestone::run_gates(project, work, stop).await
        }
        PilotPhase::Verify => gates::run_gates(project, work, stop).await,
        PilotPhase::Merge => merging::merge_unit(project, work, stop).await,
        PilotPhase::Review => reviewing::review(project, work, stop).await,
        PilotPhase::Reassess => agent::reassess(project, work, stop).await,
        PilotPhase::Research | PilotPhase::Plan | PilotPhase::Execute | PilotPhase::Tdd => {
            agent::work_in_phase(project, work, stop).await
        }
        // None of these is handed out.
        PilotPhase::Uat | PilotPhase::Complete => {
            Ok(fault(FailureCode::NoWorker, "the phase has no worker".to_owned()))
        }
    }
}

/// Gives the result of an attempt to the machine, and writes its answer down.
async fn settle(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    result: PhaseResult,
) -> Result<(), AutopilotError> {
    let (unit, flow) = (&work.unit, project.flow_of(&work.unit).await?);
    let limits = project.config().limits;
    let made = match apply_event(&flow, &limits, &unit.stand, &result.event) {
        Ok(made) => made,
        // A decision that is not possible any more is a failed attempt at one.
        Err(MachineError::NoReplanLeft(count)) => {
            let failed = fault(
                FailureCode::NoReplanLeft,
                format!("the unit was planned anew {count} times already: abandon it, or ask"),
            );
            project.files.write_error(unit.id, &failed.reason)?;
            apply_event(&flow, &limits, &unit.stand, &failed.event)?
        }
        Err(error) => {
            tracing::error!(unit = %unit.id, %error, "an event does not fit a unit");
            apply_event(&flow, &limits, &unit.stand, &UnitEvent::Pause(PauseCause::Supervisor))?
        }
    };
    // Before the commit: the next attempt begins after it, and reads them.
    match &result.last_error {
        Some(text) => project.files.write_error(unit.id, text)?,
        None if made.change.is_some() => project.files.write_error(unit.id, "")?,
        None => {}
    }
    let end = UnitRunEnd {
        run: work.run,
        outcome: result.outcome.to_owned(),
        error_code: result.code.map(|code| code.name().to_owned()).unwrap_or_default(),
        input: result.used.0,
        output: result.used.1,
        cost: result.used.2,
        at: project.hands.now(),
    };
    let claim = HeldClaim { fence: work.fence, end: Some(end.clone()) };
    let settled = commit_move(project, unit, &made, (Some(claim), &result.reason)).await;
    if let Err(AutopilotError::Store(StoreError::Conflict(_))) = &settled {
        // Someone else has ended the run: its result does not count, but what it has used is paid.
        project.hands.commit(vec![Op::Units(UnitOp::PayRun(Box::new(end)))]).await?;
    }
    settled
}

/// Commits a move of a unit with what it brings about.
///
/// # Errors
///
/// If the unit was changed meanwhile, or the store cannot be written.
pub(crate) async fn commit_move(
    project: &Arc<OpenProject>,
    unit: &UnitRecord,
    made: &UnitMove,
    (claim, reason): (Option<HeldClaim>, &str),
) -> Result<(), AutopilotError> {
    commit_noted_move(project, unit, made, (claim, reason), None).await
}

/// Commits a move as [`commit_move`] does. With a note that counter is 1 from then on; only a unit that no worker has is noted.
///
/// # Errors
///
/// As those of [`commit_move`].
pub(crate) async fn commit_noted_move(
    project: &Arc<OpenProject>,
    unit: &UnitRecord,
    made: &UnitMove,
    (claim, reason): (Option<HeldClaim>, &str),
    note: Option<String>,
) -> Result<(), AutopilotError> {
    let now = project.hands.now();
    let not_before = next_try_at(made.next, project.config().times.max_backoff, None, now).unwrap_or(now);
    let context = ChangeContext { session: project.session(), now, not_before, reason };
    let mut ops = move_ops(unit, made, claim, &context);
    for op in &mut ops {
        if let Op::Units(UnitOp::Decide(decision)) = op {
            decision.counters.extend(note.clone().map(|note| (note, 1)));
        }
    }
    project.hands.commit(ops).await?;
    news::tell_of_move(project, unit, made, reason).await;
    // Boxed: it is a part of many calls, which would become too deep.
    Box::pin(hooks::run_of_move(project, unit, made)).await;
    if made.next != NextTry::None {
        project.looping.wake.notify_one();
    }
    Ok(())
}

/// Returns the plan that a unit belongs to.
///
/// # Errors
///
/// If it has none.
pub(crate) async fn plan_of(project: &OpenProject, id: UnitId) -> Result<ItemId, AutopilotError> {
    let found = project.plans().await?.get(&id.root()).copied();
    found.ok_or_else(|| AutopilotError::NoPlan { project: project.name.clone() })
}
