//! The questions of a coding agent to the model of its turn.

use std::pin::pin;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_agent::event::{Event, ModelFailure};
use writ_policy::budget::Spent;
use writ_types::chat::{ModelReply, ModelRequest};
use writ_types::error::{Exit, Report};
use writ_types::taint::Label;
use writ_types::unit::MicroUsd;

use crate::budget::read_spent_of_call;
use crate::coding_agent::{TurnCall, TurnCallError};
use crate::error::EngineError;
use crate::model;
use crate::place::CallPlace;

/// The most calls of one turn: one at a time, an honest agent makes fewer in its two hours. Each of them is in the ledger, also one
/// that was refused.
const MAX_CALLS: u32 = 2_000;
/// The most refusals by a rule, one after another, that an agent is given time to understand.
const MAX_REFUSALS: u32 = 3;

/// The calls of one turn of an agent.
pub(super) struct AgentCalls<'a> {
    place: &'a CallPlace,
    label: &'a Label,
    /// Ends the agent's turn.
    over: &'a CancellationToken,
    made: u32,
    /// Refusals since the last answer.
    refusals: u32,
    used: AgentUse,
}

/// The outcome of the calls of a turn.
#[derive(Debug, Default)]
pub(super) struct AgentUse {
    /// Their cost.
    pub(super) cost: MicroUsd,
    /// The failure after which no further call can be made: a budget has no room for it, or a rule forbids all.
    pub(super) refusal: Option<ModelFailure>,
}

impl<'a> AgentCalls<'a> {
    /// Begins with none. `over` is cancelled where no further call can be made: then the agent has nothing to work with.
    pub(super) fn begin(place: &'a CallPlace, label: &'a Label, over: &'a CancellationToken) -> Self {
        Self { place, label, over, made: 0, refusals: 0, used: AgentUse::default() }
    }

    /// Answers one call after another until `stop`. A call that is under way then is cancelled and recorded.
    pub(super) async fn answer_calls(
        mut self,
        mut calls: mpsc::Receiver<TurnCall>,
        stop: &CancellationToken,
    ) -> AgentUse {
        loop {
            let call = tokio::select! {
                biased;
                () = stop.cancelled() => return self.used,
                call = calls.recv() => call,
            };
            // One at a time: a limit of money would not stop several that are decided at once.
            match call {
                // Its client has left while it waited: nothing was asked, so nothing is recorded.
                Some(call) if call.answer.is_closed() => {}
                Some(call) => self.answer_call(call, stop).await,
                None => return self.used,
            }
        }
    }

    async fn answer_call(&mut self, call: TurnCall, stop: &CancellationToken) {
        let TurnCall { request, mut answer } = call;
        if let Some(refused) = self.refuse_further() {
            // The client may have left by now, here and below.
            return drop(answer.send(Err(refused)));
        }
        self.made = self.made.saturating_add(1);
        let cancel = stop.child_token();
        let made = {
            let mut making = pin!(self.make_call(request, &cancel));
            tokio::select! {
                made = &mut making => made,
                () = answer.closed() => {
                    cancel.cancel();
                    making.await
                }
            }
        };
        match made {
            Ok(event) => {
                self.note_refusal(&event);
                drop(answer.send(answer_of(event)));
            }
            // Without an answer its server says that nothing was recorded.
            Err(error) => tracing::error!(%error, "a model call of a coding agent cannot be recorded"),
        }
    }

    /// Returns the refusal of a call for which the turn has no room. It is made without the door, and leaves no entry.
    fn refuse_further(&self) -> Option<TurnCallError> {
        if let Some(failure) = &self.used.refusal {
            return Some(error_of(failure.clone()));
        }
        let text = format!("the turn has made {MAX_CALLS} model calls, and may make no more");
        let report = Report::new(Exit::Denied, "coding.calls", text)
            .with_hint("give the task another try, or make it smaller");
        (self.made >= MAX_CALLS).then_some(TurnCallError::Refused(report))
    }

    /// Ends the agent's turn at a refusal that the next call would meet, too.
    fn note_refusal(&mut self, event: &Event) {
        let Event::ModelFailed { failure } = event else {
            self.refusals = 0;
            return;
        };
        let exit = exit_of(failure);
        self.refusals = if exit == Exit::Denied { self.refusals.saturating_add(1) } else { 0 };
        if exit == Exit::Budget || self.refusals >= MAX_REFUSALS {
            self.used.refusal = Some(failure.clone());
            self.over.cancel();
        }
    }

    /// Makes one call: before the door, within the budgets of the turn, its session and its plan. It is recorded when this returns.
    async fn make_call(
        &mut self,
        request: ModelRequest,
        cancel: &CancellationToken,
    ) -> Result<Event, EngineError> {
        let mut place = self.place.clone();
        let turn_cost = place.spent.turn_cost.saturating_add(self.used.cost);
        let turn_tool_calls = place.spent.turn_tool_calls;
        let read = read_spent_of_call(&place.services, &place.session, turn_cost, &[]).await?;
        place.spent = Spent { turn_tool_calls, ..read };
        let asked = (request, self.label.clone());
        let called = model::call_for_program(place, turn_cost, asked, cancel.clone());
        let called = Box::pin(called).await?;
        self.used.cost = self.used.cost.saturating_add(called.cost);
        self.place.commit(called.ops).await?;
        Ok(called.event)
    }
}

/// The exit code of a failure.
const fn exit_of(failure: &ModelFailure) -> Exit {
    match failure {
        ModelFailure::SessionExhausted | ModelFailure::DailyExhausted => Exit::Budget,
        ModelFailure::Failed { exit, .. } => *exit,
        ModelFailure::TooLong { .. } => Exit::Model,
    }
}

fn answer_of(event: Event) -> Result<ModelReply, TurnCallError> {
    if let Event::ModelReplied { reply } = event {
        return Ok(reply);
    }
    if let Event::ModelFailed { failure } = event {
        return Err(error_of(failure));
    }
    tracing::error!(?event, "a model call has ended in an event of another kind");
    let why = "the call has no answer";
    let report = Report::new(Exit::Bug, "model.no_answer", why).with_hint("the log has the event");
    Err(TurnCallError::NoAnswer(report))
}

/// The error that the agent reads. A provider's own words are for people alone.
fn error_of(failure: ModelFailure) -> TurnCallError {
    let exit = exit_of(&failure);
    let report = |text: String| {
        Report::new(exit, "model.no_answer", text).with_hint("`writ audit` shows the call and the reason")
    };
    match failure {
        ModelFailure::SessionExhausted => {
            TurnCallError::Budget(report("the token budget of the session is used up".to_owned()))
        }
        ModelFailure::DailyExhausted => {
            TurnCallError::Budget(report("the token budget of the day is used up".to_owned()))
        }
        ModelFailure::TooLong { text, noted, .. } => TurnCallError::TooLong(report(noted.unwrap_or(text))),
        ModelFailure::Failed { text, noted, .. } => {
            let report = report(noted.unwrap_or(text));
            if exit == Exit::Budget {
                TurnCallError::Budget(report)
            } else if exit == Exit::Denied {
                TurnCallError::Refused(report)
            } else {
                TurnCallError::NoAnswer(report)
            }
        }
    }
}
