//! The profile of a step's turn: that of its lane, with the tools that its plan names.

use std::sync::Arc;

use writ_plan::run::run_steps;
use writ_store::config::MAX_READ_ROWS;
use writ_store::ledger::row::{LedgerQuery, LedgerRow};
use writ_store::queue::{Leased, QueuedMessage};
use writ_store::reads::{LedgerReads as _, QueueReads as _, TurnReads as _, WorkReads as _};
use writ_store::work::AttemptState;
use writ_types::api::work::WorkState;
use writ_types::entry::{Entry, Fact};
use writ_types::id::TurnId;
use writ_types::interaction::{Interaction, InteractionRegister, ModeInputs};
use writ_types::taint::Taint;
use writ_types::unit::MicroUsd;

use crate::error::{EngineError, WorkError};
use crate::planner::PlannerMessage;
use crate::profile::AgentProfile;
use crate::proposals::read_document;
use crate::services::Services;
use crate::session::Session;
use crate::work_calls::earlier_ids;

/// Returns the profile of a leased message: for a step with tools of its own, the lane with those alone.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn profile_of(
    services: &Services,
    lease: &Leased,
    profile: Arc<AgentProfile>,
) -> Result<Arc<AgentProfile>, EngineError> {
    if !profile.is_step {
        return Ok(profile);
    }
    let message = lease.message.record.message;
    let Some(attempt) = services.journal.store.work_attempt_of(message).await? else { return Ok(profile) };
    let Some(item) = services.journal.store.work_item(attempt.item).await? else { return Ok(profile) };
    let document = read_document(&item)?;
    let steps = run_steps(&document);
    let Some(step) = steps.get(attempt.step) else { return Ok(profile) };
    let tools =
        if step.tools.is_empty() { profile.tools.clone() } else { profile.narrowed_tools(&step.tools) };
    let modes = ModeInputs {
        planner_override: step.interaction,
        work_item_mode: document.interaction,
        ..profile.modes
    };
    Ok(Arc::new(AgentProfile { tools, modes, ..profile.as_ref().clone() }))
}

/// Returns the labels with which a turn begins: its plan's, its owner's, and what the origin of its message demands.
pub(super) fn begin_interaction(profile: &AgentProfile, session: &Session, taint: Taint) -> Interaction {
    let is_work = profile.is_step || session.terms.order.is_some();
    let register = if is_work { InteractionRegister::Execution } else { InteractionRegister::Exploration };
    // The text of a step was approved with its plan, whatever it was made of.
    let risk_requires_confirmation = taint > Taint::Owner && !profile.is_step;
    Interaction { register, inputs: ModeInputs { risk_requires_confirmation, ..profile.modes } }
}

/// Returns the cost of the turns that an attempt had before the one of this message: however often it was held, it has the money of
/// one turn.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn cost_before(
    services: &Services,
    profile: &AgentProfile,
    lease: &Leased,
) -> Result<MicroUsd, EngineError> {
    let (session, mut cost) = (lease.message.record.session, MicroUsd::ZERO);
    // A person's client may name its messages alike.
    if !profile.is_step {
        return Ok(cost);
    }
    for earlier in earlier_ids(&lease.message.client_id) {
        let Some(message) = services.journal.store.message_by_client_id(session, &earlier).await? else {
            continue;
        };
        if let Some(turn) = services.journal.store.turn_opened_by(session, message.record.message).await? {
            cost = cost.saturating_add(cost_so_far(services, turn.id).await?);
        }
    }
    Ok(cost)
}

/// Returns the cost of a turn's model calls until now, read from the ledger.
pub(super) async fn cost_so_far(services: &Services, turn: TurnId) -> Result<MicroUsd, EngineError> {
    let query = LedgerQuery {
        event: Some("model_called".to_owned()),
        turn: Some(turn),
        limit: MAX_READ_ROWS,
        ..LedgerQuery::default()
    };
    let rows = services.journal.store.ledger_search(&query).await?;
    let cost = |entry: Entry| if let Fact::ModelCalled { cost, .. } = entry.fact { cost } else { None };
    let costs = rows.iter().filter_map(LedgerRow::entry).filter_map(cost);
    Ok(costs.fold(MicroUsd::ZERO, MicroUsd::saturating_add))
}

/// Returns why a message is not worked on: of a step, that its item does not go on or the attempt is another round's; of the
/// planner, that its kind is unknown.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn refuse_over(
    services: &Services,
    message: &QueuedMessage,
) -> Result<Option<EngineError>, EngineError> {
    let Ok(profile) = services.profiles.find_consumer(&message.consumer) else { return Ok(None) };
    if profile.is_planner() && PlannerMessage::read_id(&message.client_id).is_none() {
        let id: String = message.client_id.chars().take(64).collect();
        return Ok(Some(EngineError::Machine(format!("the planner takes no message of this kind: '{id}'"))));
    }
    if !profile.is_step {
        return Ok(None);
    }
    let store = &services.journal.store;
    // A message without an attempt is of one that has gone on with another.
    let Some(attempt) = store.work_attempt_of(message.record.message).await? else {
        return Ok(Some(WorkError::Unknown(message.client_id.clone()).into()));
    };
    let Some(item) = store.work_item(attempt.item).await? else { return Ok(None) };
    let is_of_now = attempt.state == AttemptState::Running;
    let goes_on = !item.state.is_over() && item.state != WorkState::Stuck;
    let state = item.state.name().to_owned();
    let over = WorkError::State { item: item.id, state, wanted: "worked on" };
    Ok((!is_of_now || !goes_on).then(|| over.into()))
}
