//! One answer of a model: planned, put before the door, called, tried again where that is sensible.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_agent::event::{Event, ModelFailure};
use writ_models::{Delta, ModelRole, Models, PlannedCall};
use writ_policy::budget::{Exhausted, Spent};
use writ_policy::door::{Denial, Mode};
use writ_policy::prepared::Prepared;
use writ_store::batch::{Batch, Op, UsageDelta};
use writ_types::chat::{ModelReply, ModelRequest, Usage};
use writ_types::entry::{DenyReason, Fact};
use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::frame::ServerFrame;
use writ_types::id::AttemptId;
use writ_types::taint::Label;
use writ_types::unit::MicroUsd;

use crate::act::Place;
use crate::error::EngineError;
use crate::passage::{Passage, Standing};
use crate::segment::Segments;

/// Deltas that may wait to be shown; a slow screen slows the stream down, it loses nothing.
const DELTAS: usize = 64;

/// What came of an effect that calls the model.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) event: Event,
    /// What the ledger must still be told, together with the turn's event.
    pub(crate) ops: Vec<Op>,
    pub(crate) cost: MicroUsd,
}

/// Calls the model of the executor; each attempt passes the door.
///
/// # Errors
///
/// If the store cannot be used; what the model cannot do is an event.
pub(crate) async fn call(
    mut place: Place,
    spent_in_turn: MicroUsd,
    request: ModelRequest,
    label: Label,
    cancel: CancellationToken,
) -> Result<Called, EngineError> {
    let core = Arc::clone(&place.core);
    let Some(models) = &core.models else {
        return Ok(failed(&EngineError::NoModel.report(), Vec::new(), MicroUsd::ZERO));
    };
    let request = Arc::new(request);
    let planned = match models.plan(ModelRole::Executor, request, place.core.clock.now()) {
        Ok(planned) => planned,
        Err(error) => return Ok(failed(&error.report(), Vec::new(), MicroUsd::ZERO)),
    };
    let (mut ops, mut cost, mut tries) = (Vec::new(), MicroUsd::ZERO, 0_u32);
    loop {
        tries = tries.saturating_add(1);
        let turn_cost = spent_in_turn.saturating_add(cost);
        if tries > 1 {
            // Other turns went on spending, and time went by.
            let turn_tool_calls = place.spent.turn_tool_calls;
            place.spent = Spent { turn_tool_calls, ..core.spent(&place.session, turn_cost)? };
            place.authority = core.renewed(&place.session, place.at(), &place.authority).await?;
        }
        let spent = Spent { turn_cost, ..place.spent };
        let standing = Standing { authority: &place.authority, spent, approval: None, mode: Mode::Execute };
        let permit = match place.core.pass(prepared(&place, &planned, &label), standing).await? {
            Passage::Permit(permit) => permit,
            Passage::Denied(denial) => return Ok(Called { event: refused(&denial), ops, cost }),
            Passage::Ask(_) | Passage::Simulated(_) => {
                let report = Report::new(
                    Exit::Denied,
                    "model.asks",
                    "the rules want to be asked before each model call",
                )
                .hint("a rule with @ask covers 'model_call': permit or forbid it instead");
                return Ok(failed(&report, ops, cost));
            }
        };
        let attempt = permit.attempt();
        let (deltas, shown) = mpsc::channel(DELTAS);
        let now = place.core.clock.now();
        let work = models.call(*permit, &planned, deltas, cancel.clone(), now);
        let (answer, ()) = tokio::join!(work, show(&place, shown));
        let error = match answer {
            Ok(reply) => {
                cost += record(&place, models, &planned, attempt, Ok(&reply), &mut ops);
                return Ok(Called { event: Event::ModelReplied { reply }, ops, cost });
            }
            Err(error) => error,
        };
        let report = error.report();
        cost += record(&place, models, &planned, attempt, Err((&error.usage, &report)), &mut ops);
        let Some(wait) = models.backoff().wait(&error, tries) else {
            return Ok(failed(&report, ops, cost));
        };
        // The next try is decided on what this one has really taken.
        core.commit_for(&place.session, Batch::relaxed(std::mem::take(&mut ops))).await?;
        let text = format!("{} Trying again in {} s.", report.outside, wait.as_secs());
        place.session.hub.pass(ServerFrame::Status { text });
        tokio::select! {
            () = cancel.cancelled() => return Ok(failed(&report, ops, cost)),
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn prepared(place: &Place, planned: &PlannedCall, label: &Label) -> Prepared {
    Prepared {
        action: planned.action(),
        agent: place.core.config.agent.clone(),
        session: Some(place.session.id),
        turn: place.turn,
        turn_number: place.number,
        call: None,
        tool: "model".to_owned(),
        sinks: Vec::new(),
        label: label.clone(),
        bindings: Default::default(),
        idempotent: true,
        intent: format!("ask {}", planned.requested()),
    }
}

fn failed(report: &Report, ops: Vec<Op>, cost: MicroUsd) -> Called {
    let failure =
        ModelFailure::Failed { exit: report.exit, text: report.outside.clone(), hint: report.hint.clone() };
    Called { event: Event::ModelFailed { failure }, ops, cost }
}

fn refused(denial: &Denial) -> Event {
    let failure = match (denial.reason, denial.rule.as_str()) {
        (DenyReason::Budget, rule) if rule == Exhausted::SessionTokens.setting() => {
            ModelFailure::SessionExhausted
        }
        (DenyReason::Budget, rule) if rule == Exhausted::DayTokens.setting() => ModelFailure::DailyExhausted,
        (DenyReason::Budget, rule) => ModelFailure::Failed {
            exit: Exit::Budget,
            text: denial.text.clone(),
            hint: format!("raise {rule} in config.toml if that is what you want"),
        },
        (_, rule) => ModelFailure::Failed {
            exit: Exit::Denied,
            text: format!("The model call was refused: {}.", denial.text),
            hint: format!("decided by: {rule}"),
        },
    };
    Event::ModelFailed { failure }
}

/// Notes an attempt for ledger and usage; returns what it cost.
fn record(
    place: &Place,
    models: &Models,
    planned: &PlannedCall,
    attempt: AttemptId,
    answer: Result<&ModelReply, (&Usage, &Report)>,
    ops: &mut Vec<Op>,
) -> MicroUsd {
    let now = place.core.clock.now();
    let usage = match answer {
        Ok(reply) => reply.usage,
        Err((usage, _)) => *usage,
    };
    let cost = models.cost(planned, &usage, now);
    let fact = Fact::ModelCalled {
        attempt,
        requested: planned.requested(),
        actual: answer.map(|reply| reply.model.clone()).unwrap_or_default(),
        stop: answer.ok().map(|reply| reply.stop.clone()),
        usage,
        cost,
        error: answer.err().map(|(_, report)| report.outside.clone()).unwrap_or_default(),
    };
    ops.push(place.core.entry(place.session.id, place.at(), fact));
    let cost = cost.unwrap_or_default();
    ops.push(Op::AddUsage(UsageDelta {
        session: Some(place.session.id),
        at: place.core.budget_day(now),
        usage,
        cost,
        tool_calls: 0,
        model_calls: 1,
    }));
    cost
}

/// Shows text as it comes, gated by segment.
async fn show(place: &Place, mut deltas: mpsc::Receiver<Delta>) {
    let mut segments = Segments::default();
    while let Some(delta) = deltas.recv().await {
        let Delta::Text(text) = delta else { continue };
        release(place, segments.push(&place.core.gates, &text));
    }
    release(place, segments.end(&place.core.gates));
}

fn release(place: &Place, text: String) {
    if let Some(turn) = place.turn.filter(|_| !text.is_empty()) {
        place.session.hub.pass(ServerFrame::Delta { turn, text });
    }
}
