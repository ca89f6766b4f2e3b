//! Has the proxy choose the way of a turn, where the owner has named a model for it.

use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use writ_agent::event::Event;
use writ_agent::route::{RouteDecision, RouteQuestion, TurnRoute};
use writ_models::ModelRole;
use writ_policy::principal::Principal;
use writ_store::batch::Op;
use writ_store::error::StoreError;
use writ_store::queue::EXECUTOR;
use writ_types::chat::{AnswerForm, Role};
use writ_types::id::TurnId;
use writ_types::taint::Label;

use super::{Drive, Watched};
use crate::error::EngineError;
use crate::model::{FormQuestion, ask_form};
use crate::pending::Pending;
use crate::planner::{self, PlannerMessage, PlannerRequest};
use crate::profile::{AgentProfile, Answering};
use crate::services::Services;
use crate::session::Session;
use crate::trace;

/// The name of the form of a decision.
const FORM: &str = "route_decision";

/// Returns true if the proxy chooses the way of a person's message: where the owner has named another model for it than the
/// executor's, and none for the session. Steps, plans and standing orders are work already.
pub(crate) fn has_proxy(services: &Services, session: &Session, profile: &AgentProfile) -> bool {
    let is_configured = services
        .outside
        .models
        .get()
        .is_some_and(|models| models.routes().names_another(ModelRole::Proxy, ModelRole::Executor));
    is_configured
        && profile.consumer == EXECUTOR
        && profile.choice.is_none()
        && session.terms.order.is_none()
        && session.state().answering == Answering::default()
}

/// Asks the proxy, and sends a request to the planner where it says so. Returns false when the engine stops.
pub(super) async fn choose_way(drive: &mut Drive, question: RouteQuestion) -> Result<bool, EngineError> {
    let RouteQuestion { request, label, plans } = question;
    // The entries of the question are written as they come, behind what was done before it.
    drive.write_held().await?;
    let (cancel, place) = (CancellationToken::new(), drive.place().await?);
    let wanted = FormQuestion {
        role: ModelRole::Proxy,
        request,
        label: &label,
        form: AnswerForm::new(FORM, RouteDecision::schema(plans)),
        check: &|decision: &RouteDecision| decision.check(plans),
        fallback: &RouteDecision::without_proxy,
    };
    let asking = ask_form(&place, wanted, &cancel).instrument(trace::agent(ModelRole::Proxy));
    let answer = match drive.watch(cancel.clone(), asking).await {
        Watched::Done(answer) => answer?,
        Watched::Unwanted(answer) => {
            let cost = answer?.cost;
            drive.tally.cost = drive.tally.cost.saturating_add(cost);
            return Ok(true);
        }
        Watched::Stopping(_) => return Ok(false),
    };
    drive.tally.cost = drive.tally.cost.saturating_add(answer.cost);
    if let Some(why) = &answer.unasked {
        tracing::info!(turn = %drive.turn, why, "the proxy could not be asked: the executor answers");
    }
    let mut decision = answer.value;
    if decision.route == TurnRoute::Planner {
        if hand_to_planner(drive, &decision, &label).await? {
            drive.services.life.metrics.routed(TurnRoute::Planner.as_str());
            return Ok(true);
        }
        decision = RouteDecision {
            reason: "the planner's queue is full".to_owned(),
            ..RouteDecision::without_proxy()
        };
    }
    drive.services.life.metrics.routed(decision.route.as_str());
    let labelled = label_turn(drive, &decision);
    drive.hold(Event::Routed { decision }, Pending::from([labelled]))?;
    Ok(true)
}

/// Puts the labels on the turn that it has with the proxy's decision.
fn label_turn(drive: &Drive, decision: &RouteDecision) -> Op {
    let begun = drive.machine.context_parts().interaction();
    let labels = begun.join_proxy(decision.interaction_register, decision.interaction_mode);
    Op::LabelTurn { turn: drive.turn, register: labels.register, mode: labels.mode() }
}

/// Puts the message into the planner's queue, in one commit with the decision: both are there after a crash, or neither.
/// Returns false if the queue is full; then nothing has happened.
async fn hand_to_planner(
    drive: &mut Drive,
    decision: &RouteDecision,
    label: &Label,
) -> Result<bool, EngineError> {
    let principal = drive.session.state().speaker_of(Some(drive.turn)).cloned().unwrap_or(Principal::Owner);
    let request = PlannerRequest {
        kind: PlannerMessage::PlanRequest,
        trace: trace_of(drive.turn),
        text: messages_text(drive),
        taint: principal.taint().join(label.taint),
        principal: principal.to_string(),
    };
    let (message, asked) = planner::request_ops(&drive.services, drive.session.id, request).await?;
    let event = Event::Routed { decision: decision.clone() };
    let mut ops = Pending::from(asked);
    ops.push(label_turn(drive, decision));
    match drive.interject(event, ops).await {
        Ok(()) => {
            tracing::debug!(turn = %drive.turn, %message, "the proxy has a plan made");
            drive.services.life.wake.notify_one();
            Ok(true)
        }
        Err(EngineError::Store(StoreError::QueueFull { .. })) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Links the request with the turn that it comes from. A turn is routed once, so no call has to be named.
fn trace_of(turn: TurnId) -> String {
    format!("{turn}/route")
}

/// The messages of the person that the turn answers, as the gates let them pass.
fn messages_text(drive: &Drive) -> String {
    let said = drive.machine.context_parts().messages_of_turn();
    let texts = said.filter(|message| message.role == Role::User).map(|message| message.said_text());
    texts.collect::<Vec<_>>().join("\n\n")
}
