//! One attempt of an agent: its turns, one after another, and its end.
//!
//! The first turn has the whole task, each later one a short text that steers. After each the harness looks for a marker, reads the
//! unit's state anew, and lets the supervisor judge; the agent decides neither about another turn nor about its kind.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use writ_autopilot::attempt::{RunEnd, TurnMarker, asks_person};
use writ_autopilot::blocker::PauseCause;
use writ_autopilot::failure::{FailureCode, Recovery};
use writ_autopilot::learning::find_learnings;
use writ_autopilot::machine::{AttemptReport, UnitEvent};
use writ_autopilot::turns::{NO_OPERATOR, TurnEnd, TurnStep, end_between_turns, step_after};
use writ_runtime::pilot::{
    AttemptCalls, AttemptLook, AttemptOutcome, AttemptRest, AttemptSigns, AttemptWait, NewAttempt,
};
use writ_types::api::work::WorkState;
use writ_types::error::Exit;
use writ_types::id::{EntrySeq, ItemId};
use writ_types::unit::{MicroUsd, Tokens};

use super::choice::{choose_model, note_choice};
use super::supervise::{AttemptClock, find_end, judge_turn, next_look};
use super::{PhaseResult, WorkClaim, outcome_name, plan_of};
use crate::circuits::note_calls;
use crate::config::{InputRequired, PilotConfig, PilotTier};
use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::prompts::ContinuePrompt;

/// Returns true for a reply that is the result of its phase.
pub(super) type ResultCheck = dyn Fn(&str) -> bool + Send + Sync;

/// The task of one attempt.
pub(super) struct AgentTask<'a> {
    /// The folder of the work.
    pub(super) folder: PathBuf,
    /// The text of its first turn.
    pub(super) prompt: String,
    /// Set if nothing that it changes comes out.
    pub(super) reads_only: bool,
    /// Says if a reply without a marker is the result already; `None`: the task is one question, and the first reply answers it.
    pub(super) is_result: Option<&'a ResultCheck>,
    /// The number of attempts of this worker at once: they share its money.
    pub(super) together: NonZeroU32,
}

/// An attempt that has ended.
pub(super) struct WorkEnd {
    pub(super) end: RunEnd,
    pub(super) said: String,
    reason: String,
    /// The code of its error; `None`: that of its end.
    code: Option<FailureCode>,
    /// Set if a person has to do something before another try.
    pause: Option<PauseCause>,
    /// Set if a person has paused the loop, so that no further turn was begun.
    pub(super) is_stopped: bool,
    pub(super) used: (Tokens, Tokens, MicroUsd),
}

impl WorkEnd {
    /// The same end by a failure; where its class wants so, a person has to put something in order before another try.
    fn held_by(self, code: FailureCode) -> Self {
        let pause = match code.recovery() {
            Recovery::Hold => Some(PauseCause::Supervisor),
            Recovery::TryAgain | Recovery::LogAlone => self.pause,
        };
        Self { code: Some(code), pause, ..self }
    }
}

/// Runs one attempt to its end.
///
/// # Errors
///
/// If the engine or the store fail.
pub(super) async fn run_agent(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    task: AgentTask<'_>,
    stop: &CancellationToken,
) -> Result<WorkEnd, AutopilotError> {
    let unit = &work.unit;
    let config = project.config();
    let choice = choose_model(project, work).await?;
    let model = match &choice.model {
        Ok(model) => model.clone(),
        Err(none) => {
            let held = held(PauseCause::Supervisor, none.why.clone());
            return Ok(WorkEnd { code: Some(none.code), ..held });
        }
    };
    let max_cost = work.course.left().map(|left| MicroUsd::new(left.get() / u64::from(task.together.get())));
    if max_cost == Some(MicroUsd::ZERO) {
        return Ok(held(PauseCause::Ceiling, "what it was allowed to spend is spent".to_owned()));
    }
    let new = NewAttempt {
        plan: plan_of(project, unit.id).await?,
        folder: task.folder.clone(),
        unit: unit.id.to_string(),
        title: format!("{}: {}", unit.stand.phase.name(), unit.row.title),
        instructions: task.prompt.clone(),
        max_tokens: None,
        max_cost,
        reads_only: task.reads_only,
        model: model.clone(),
        terms: config.attempt_terms(unit.stand.phase, choice.tier),
    };
    note_choice(project, &choice).await?;
    let item = project.hands.start_attempt(new, Vec::new()).await?;
    let mut turns = AgentTurns::new(project, work, &task, (item, model, choice.tier));
    let ended = match turns.run(stop).await {
        Ok(ended) => ended,
        Err(error) => {
            // No one would say what follows its turns.
            if let Err(also) =
                project.hands.end_attempt(item, "the autopilot does not follow it any more").await
            {
                tracing::warn!(unit = %unit.id, error = also.inside, "an attempt after a fault of the autopilot is not ended");
            }
            return Err(error);
        }
    };
    // The passes of a review share what the review may spend.
    work.course.spend(ended.used.2);
    work.course.learn(find_learnings(&ended.said));
    if ended.end != RunEnd::Interrupted || !project.hands.draining().is_cancelled() {
        let calls = turns.read_calls().await?;
        work.course.add_calls(calls);
    }
    Ok(ended)
}

/// The event for which the shell acts on an attempt.
enum TurnEvent {
    /// A turn has ended, and what follows is to be decided.
    Rests(AttemptRest),
    /// It has asked a person.
    Asks,
    /// It is over.
    Over(WorkEnd),
}

/// The turns of one attempt.
struct AgentTurns<'a> {
    project: &'a Arc<OpenProject>,
    work: &'a WorkClaim,
    task: &'a AgentTask<'a>,
    item: ItemId,
    model: Option<String>,
    /// The tier that the model was chosen from.
    tier: PilotTier,
    /// The number of the turn that runs, from one on.
    number: u32,
    /// The last entry of the ledger that was read for the supervisor.
    read: Option<EntrySeq>,
    /// Set if the last turn was cut where it had asked its model as often as one turn may.
    is_cut: bool,
}

impl<'a> AgentTurns<'a> {
    fn new(
        project: &'a Arc<OpenProject>,
        work: &'a WorkClaim,
        task: &'a AgentTask<'a>,
        (item, model, tier): (ItemId, Option<String>, PilotTier),
    ) -> Self {
        Self { project, work, task, item, model, tier, number: 1, read: None, is_cut: false }
    }

    /// Runs the turns to the end of the attempt.
    async fn run(&mut self, stop: &CancellationToken) -> Result<WorkEnd, AutopilotError> {
        let mut clock = AttemptClock::start();
        let mut is_stopped = false;
        loop {
            match self.await_turn(&mut clock, stop).await? {
                TurnEvent::Over(mut ended) => {
                    if self.is_cut && ended.end == RunEnd::Failure {
                        // No ceiling of money, also where there is one: another attempt may be shorter.
                        (ended.pause, ended.code) = (None, None);
                        ended.reason = "its last turn has asked its model as often as one turn may: `limits.max_model_calls_per_turn`".to_owned();
                    }
                    return Ok(WorkEnd { is_stopped, ..ended });
                }
                TurnEvent::Rests(rest) => {
                    is_stopped = self.project.is_stopping();
                    if let Some(ended) = self.follow(&rest, &mut is_stopped).await? {
                        return Ok(ended);
                    }
                }
                TurnEvent::Asks => {
                    if let Some(ended) = self.answer().await? {
                        return Ok(ended);
                    }
                }
            }
        }
    }

    /// Waits for the next event of the attempt, or ends it where one of its times is over.
    async fn await_turn(
        &self,
        clock: &mut AttemptClock,
        stop: &CancellationToken,
    ) -> Result<TurnEvent, AutopilotError> {
        let (project, work) = (self.project, self.work);
        let is_draining = project.hands.draining();
        loop {
            let woken = project.hands.wake();
            let signs = match project.hands.look_at_attempt(self.item).await? {
                AttemptLook::Ended(outcome) => {
                    return Ok(TurnEvent::Over(end_of(outcome, work.course.promised)));
                }
                AttemptLook::Resting(rest) => return Ok(TurnEvent::Rests(rest)),
                AttemptLook::Running { signs, .. } => signs,
            };
            let config = project.config();
            if signs.waits_for == AttemptWait::Answer && config.input_required != InputRequired::Ask {
                return Ok(TurnEvent::Asks);
            }
            let (found, rest) = self.look_at_times(&config, clock, &signs);
            let ended = match found {
                Some(found) => Some(found),
                None => tokio::select! {
                    () = is_draining.cancelled() => return Ok(TurnEvent::Over(stopped(RunEnd::Interrupted))),
                    () = stop.cancelled() => Some((RunEnd::Canceled, "it was ended from outside".to_owned())),
                    () = work.course.is_void.cancelled() => {
                        Some((RunEnd::Interrupted, "a unit that it rests on was abandoned".to_owned()))
                    }
                    () = woken => None,
                    () = tokio::time::sleep(rest) => None,
                },
            };
            if let Some((end, why)) = ended {
                let is_unanswered = signs.waits_for == AttemptWait::Answer && end == RunEnd::Failure;
                let code = is_unanswered.then_some(FailureCode::TurnInputRequired);
                return Ok(TurnEvent::Over(WorkEnd { code, ..self.end_now(end, why).await? }));
            }
        }
    }

    /// Returns how the attempt is to end now, if one of its times is over, and when it is to be looked at again.
    fn look_at_times(
        &self,
        config: &PilotConfig,
        clock: &mut AttemptClock,
        signs: &AttemptSigns,
    ) -> (Option<(RunEnd, String)>, std::time::Duration) {
        let limit = config.times.unit_timeout(self.work.unit.stand.phase);
        let (spent, now) = (clock.look(signs), self.project.hands.now());
        if signs.waits_for == AttemptWait::Answer
            && let Some(limit) = limit
        {
            // No mode waits without an end (SF 7.4).
            let rest = limit.saturating_sub(clock.asked());
            let why = || format!("nobody has answered what it asked: {} s are over", limit.as_secs());
            return (
                rest.is_zero().then(|| (RunEnd::Failure, why())),
                rest.min(config.times.supervisor_interval),
            );
        }
        let found = find_end(config, (signs, spent, limit), now);
        (found, next_look(config, (signs, spent, limit), now))
    }

    /// Does what follows a turn: another one, or the end of the attempt. Returns the end if there is nothing to wait for.
    async fn follow(
        &mut self,
        rest: &AttemptRest,
        is_stopped: &mut bool,
    ) -> Result<Option<WorkEnd>, AutopilotError> {
        let (project, work) = (self.project, self.work);
        self.is_cut = rest.is_cut;
        let marker = TurnMarker::find_in(&rest.said);
        let has_result = self.task.is_result.is_none_or(|is_result| !rest.is_cut && is_result(&rest.said));
        let (number, max_turns) = (self.number, project.config().max_turns);
        // A reply that ends with a question is the last one, unless the settings let the attempt go on without an answer.
        let (asks, mode) = (asks_person(&rest.said) && !has_result, project.config().input_required);
        let is_over = has_result || (asks && mode == InputRequired::Hard);
        let end = TurnEnd { number, marker, has_result: is_over };
        let ended = match marker {
            Some(marker) => format!("turn {number} has ended with {}", marker.name()),
            None if rest.is_cut => format!("turn {number} was cut at its limit of model calls"),
            None => format!("turn {number} has ended without a marker"),
        };
        let TurnStep::Next(next, _) = step_after(&end, max_turns) else {
            // It has come to its own end.
            *is_stopped = false;
            project.hands.finish_attempt(self.item, &ended).await?;
            return Ok(None);
        };
        let unit = project.read_unit(work.unit.id).await?;
        if let Some(end) = end_between_turns(unit.stand.status, unit.row.fence == work.fence) {
            let why = format!("the unit is {} now", unit.row.phase_status);
            return self.end_now(end, why).await.map(Some);
        }
        if *is_stopped {
            project.hands.finish_attempt(self.item, &format!("{ended}, and the loop is paused")).await?;
            return Ok(None);
        }
        let calls = self.read_calls().await?;
        let pending = match self.task.reads_only {
            true => None,
            false => project.hands.pending_digest(self.item).await?,
        };
        if let Some(why) = judge_turn(project, work, (&calls, pending), rest.context).await? {
            work.course.stop_for(why.clone());
            project.hands.finish_attempt(self.item, &format!("{ended}; {why}")).await?;
            return Ok(None);
        }
        let (unit_id, phase, session) = (work.unit.id, work.unit.stand.phase, project.session().to_string());
        let input = ContinuePrompt { unit_id, phase, session_id: &session, turn: next, max_turns };
        let text = match project.prompts.render_continuation(&input) {
            Ok(text) => text,
            // What was used until now is paid, and the session is closed.
            Err(error) => {
                let ended = self.end_now(RunEnd::Failure, error.to_string()).await?;
                return Ok(Some(ended.held_by(FailureCode::PromptRenderFailed)));
            }
        };
        let text =
            if asks && mode == InputRequired::Soft { format!("{NO_OPERATOR}\n\n{text}") } else { text };
        project.hands.continue_attempt(self.item, (next, text), &ended).await?;
        (self.number, self.is_cut) = (next, false);
        Ok(None)
    }

    /// Reacts to a question to a person, as the settings say. Returns the end of the attempt, if it ends.
    async fn answer(&mut self) -> Result<Option<WorkEnd>, AutopilotError> {
        let config = self.project.config();
        // Each answer is a turn, so one that asks without end has its end.
        if config.input_required == InputRequired::Soft && self.number < config.max_turns {
            self.number = self.number.saturating_add(1);
            let asked = format!("turn {} has asked a person", self.number.saturating_sub(1));
            let text = (self.number, NO_OPERATOR.to_owned());
            self.project.hands.continue_attempt(self.item, text, &asked).await?;
            return Ok(None);
        }
        let why = "it has asked a person, and goes on without an answer only with `turn_input_required = \"soft\"` and turns left";
        let ended = self.end_now(RunEnd::Failure, why.to_owned()).await?;
        Ok(Some(WorkEnd { code: Some(FailureCode::TurnInputRequired), ..ended }))
    }

    /// Reads the calls since the last reading.
    async fn read_calls(&mut self) -> Result<AttemptCalls, AutopilotError> {
        let calls = self.project.hands.read_calls(self.item, self.read).await?;
        self.read = calls.last;
        if let Some(model) = &self.model {
            self.project.seen.note_model(model, &calls.models);
        }
        note_calls(self.project, self.tier.name(), &calls).await?;
        Ok(calls)
    }

    /// Ends the attempt; nothing that it has changed comes out.
    async fn end_now(&self, end: RunEnd, why: String) -> Result<WorkEnd, AutopilotError> {
        let hands = &self.project.hands;
        hands.end_attempt(self.item, &why).await?;
        // The tokens used until now are paid, also without a result.
        let used = match hands.look_at_attempt(self.item).await? {
            AttemptLook::Ended(outcome) => (outcome.input, outcome.output, outcome.cost),
            AttemptLook::Running { tokens, cost, .. } => (tokens, Tokens::ZERO, cost),
            AttemptLook::Resting(rest) => (rest.tokens, Tokens::ZERO, rest.cost),
        };
        Ok(WorkEnd { reason: why, used, ..stopped(end) })
    }
}

/// An attempt that does not begin, since a person has to put something in order.
fn held(cause: PauseCause, reason: String) -> WorkEnd {
    WorkEnd { reason, pause: Some(cause), ..stopped(RunEnd::Interrupted) }
}

fn stopped(end: RunEnd) -> WorkEnd {
    WorkEnd {
        end,
        said: String::new(),
        reason: String::new(),
        code: None,
        pause: None,
        is_stopped: false,
        used: (Tokens::ZERO, Tokens::ZERO, MicroUsd::ZERO),
    }
}

fn end_of(outcome: AttemptOutcome, promised: Option<MicroUsd>) -> WorkEnd {
    let end = match outcome.state {
        WorkState::Done => RunEnd::Success,
        WorkState::Cancelled => RunEnd::Canceled,
        WorkState::Proposed
        | WorkState::Running
        | WorkState::Paused
        | WorkState::Consulting
        | WorkState::Stuck
        | WorkState::OverBudget
        | WorkState::Failed
        | WorkState::Denied => RunEnd::Failure,
    };
    let used = (outcome.input, outcome.output, outcome.cost);
    // A ceiling is no failure: another try would meet it, too.
    let is_spent = outcome.state == WorkState::OverBudget
        || (outcome.exit == Some(Exit::Budget) && promised.is_some() && !outcome.is_full);
    // What is set up wrongly fails every attempt of every unit alike.
    let is_misconfigured = outcome.exit == Some(Exit::Config) && end == RunEnd::Failure;
    let pause = match is_spent {
        true => Some(PauseCause::Ceiling),
        false => is_misconfigured.then_some(PauseCause::Supervisor),
    };
    let reason = match promised.filter(|_| is_spent) {
        Some(most) => format!("{}; it might spend {most}, and has spent {}", outcome.reason, outcome.cost),
        // A person has to know what to put in order.
        None if is_misconfigured && !outcome.said.is_empty() => outcome.said.clone(),
        None => outcome.reason,
    };
    // Nothing more could leave its context, or a budget of the engine is used up: the next one begins anew.
    let code =
        (outcome.exit == Some(Exit::Budget) && pause.is_none()).then_some(FailureCode::BudgetExhausted);
    WorkEnd { said: outcome.said, reason, code, pause, used, ..stopped(end) }
}

/// Returns the result of an attempt that has not come to its own end.
pub(super) fn ended_badly(ended: WorkEnd) -> PhaseResult {
    let report = AttemptReport { end: ended.end, marker: None, has_progress: false, is_met: false };
    let why = if ended.reason.is_empty() {
        "the attempt has ended without a result".to_owned()
    } else {
        ended.reason
    };
    let by_end = match ended.end {
        _ if ended.pause == Some(PauseCause::Ceiling) => FailureCode::BudgetExhausted,
        _ if ended.pause.is_some() => FailureCode::ModelUnavailable,
        RunEnd::UnitTimeout => FailureCode::UnitTimeout,
        RunEnd::TurnTimeout => FailureCode::TurnTimeout,
        RunEnd::Stalled => FailureCode::Stalled,
        // No model has answered, so it has not begun.
        RunEnd::Failure if ended.used == (Tokens::ZERO, Tokens::ZERO, MicroUsd::ZERO) => {
            FailureCode::AgentSessionStartup
        }
        RunEnd::Success | RunEnd::Failure => FailureCode::TurnFailed,
        RunEnd::Abandoned => FailureCode::Abandoned,
        RunEnd::Canceled => FailureCode::CanceledByOperator,
        RunEnd::Interrupted => FailureCode::Interrupted,
    };
    PhaseResult {
        event: ended.pause.map_or(UnitEvent::End(report), UnitEvent::Pause),
        outcome: outcome_name(ended.end),
        code: Some(ended.code.unwrap_or(by_end)),
        reason: why.clone(),
        last_error: Some(why),
        used: ended.used,
    }
}
