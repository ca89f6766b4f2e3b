//! Vectors of texts: each request passes the door, is counted and is written to the ledger like any other model call.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use writ_inspect::prepared::Prepared;
use writ_memory::embedder::EmbedError;
use writ_models::ModelRole;
use writ_models::embedding::{EmbeddingReply, PlannedEmbedding};
use writ_models::error::ModelError;
use writ_models::provider::Route;
use writ_policy::budget::{Exhausted, Spent};
use writ_policy::door::Mode;
use writ_store::batch::{Batch, Op, UsageDelta, UsageShare};
use writ_store::reads::SessionReads as _;
use writ_types::chat::Usage;
use writ_types::entry::{DenyReason, Fact};
use writ_types::error::ToReport as _;
use writ_types::id::AttemptId;
use writ_types::taint::Label;
use writ_types::unit::{MicroUsd, Timestamp};

use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::services::Services;
use crate::session::{CLOSED_AT, Session, Surface};
use crate::{budget, opening, place};

/// Asks the model of a route for the vectors of texts with a label.
///
/// # Errors
///
/// If the store cannot be used. The inner error is the reason for which there are no vectors.
pub(crate) async fn embed_texts(
    services: &Arc<Services>,
    route: &Route,
    (texts, label): (Vec<String>, Label),
    cancel: &CancellationToken,
) -> Result<Result<Vec<Vec<f32>>, EmbedError>, EngineError> {
    let Some(models) = services.outside.models.get() else {
        return Ok(Err(EmbedError::Away("no model is configured".to_owned())));
    };
    if label.clearance() > route.provider.clearance {
        return Ok(Err(EmbedError::Refused("the provider is not cleared for this text".to_owned())));
    }
    let now = services.journal.clock.now();
    // Its `Retry-After` counts for searches and the job alike: a request before would make the wait longer.
    if let Some(left) = services.memories.wait_left(&route.provider.name, now) {
        let why = format!("{} has asked for a wait of {} more seconds", route.provider.name, left.as_secs());
        return Ok(Err(EmbedError::Away(why)));
    }
    let place = engine_place(services).await?;
    let planned = match models.plan_embedding(route, texts, now) {
        Ok(planned) => planned,
        Err(error) => return Ok(Err(EmbedError::Refused(error.report().outside))),
    };
    let prepared = prepared_embedding(&place, &planned, label);
    let standing = RequestContext {
        authority: &place.authority,
        spent: place.spent,
        approval: None,
        task: false,
        mode: Mode::Execute,
        origins: None,
        request: None,
    };
    let permit = match services.door.pass_ungated(Pending::new(), prepared, standing).await? {
        Passage::Permit(permit) => permit,
        Passage::Denied(denial) => {
            let is_used_up = denial.rule == Exhausted::SessionTokens.setting_name();
            if denial.reason == DenyReason::Budget && is_used_up {
                end_session(services, &place.session).await?;
            }
            return Ok(Err(EmbedError::Refused(denial.text.clone())));
        }
        Passage::Ask(_) | Passage::Simulated(_) => {
            let why = "the rules want to be asked before each model call";
            return Ok(Err(EmbedError::Refused(why.to_owned())));
        }
    };
    let attempt = permit.attempt();
    let answer = models.embed(*permit, &planned, cancel, now).await;
    let cost_of = |usage: &Usage| models.embedding_cost(&planned, usage, now);
    record_call(&place, &planned, (attempt, now), (&answer, cost_of)).await?;
    if let Some(wait) = answer.as_ref().err().and_then(|error| error.failure.retry_after()) {
        let until = services.journal.clock.now().plus_duration(wait);
        services.memories.note_wait(&route.provider.name, until);
    }
    Ok(answer.map(|reply| reply.vectors).map_err(|error: ModelError| {
        let why = services.journal.redactor.mask_report(error.report()).outside;
        if error.failure.is_about_content() { EmbedError::Refused(why) } else { EmbedError::Away(why) }
    }))
}

/// Writes a call to the ledger, and counts what it has used.
async fn record_call(
    place: &CallPlace,
    planned: &PlannedEmbedding,
    (attempt, now): (AttemptId, Timestamp),
    (answer, cost_of): (&Result<EmbeddingReply, ModelError>, impl Fn(&Usage) -> Option<MicroUsd>),
) -> Result<(), EngineError> {
    let services = &place.services;
    let (usage, actual, error) = match answer {
        Ok(reply) => (reply.usage, reply.model.clone(), String::new()),
        Err(error) => (Usage::default(), String::new(), super::recorded_error(services, error)),
    };
    let cost = cost_of(&usage);
    let requested = planned.requested_model();
    let (stop, role, sealed_reply) = (None, String::new(), None);
    let is_lasting = answer.as_ref().is_err_and(|error| error.failure.is_lasting());
    let fact = Fact::ModelCalled {
        attempt,
        requested,
        actual,
        stop,
        usage,
        cost,
        error,
        is_lasting,
        role,
        sealed_reply,
    };
    let mut ops = Pending::new();
    ops.push(services.journal.entry(place.session.id, None, fact));
    let delta = UsageDelta {
        session: Some(place.session.id),
        at: services.journal.budget_day(now),
        usage,
        cost: cost.unwrap_or_default(),
        tool_calls: 0,
        model_calls: 1,
    };
    let role = ModelRole::Embedding.as_str().to_owned();
    let share = UsageShare { delta, role, model: planned.requested_model(), item: None };
    ops.extend([Op::AddUsage(delta), Op::AddUsageShare(Box::new(share))]);
    place.commit(ops).await
}

fn prepared_embedding(place: &CallPlace, planned: &PlannedEmbedding, label: Label) -> Prepared {
    Prepared {
        action: planned.action(),
        agent: place.profile.agent.clone(),
        session: Some(place.session.id),
        turn: None,
        turn_number: 0,
        call: None,
        tool: "model".to_owned(),
        sinks: Vec::new(),
        label,
        bindings: Default::default(),
        idempotent: true,
        intent: format!("embed with {}", planned.requested_model()),
    }
}

/// Returns the place under which the engine asks models for itself: its own session, which is in no list and outlives its run.
///
/// # Errors
///
/// If the store cannot be used, or the session cannot be opened.
pub(crate) async fn engine_place(services: &Arc<Services>) -> Result<CallPlace, EngineError> {
    let session = match services.memories.session() {
        Some(session) => session,
        None => {
            let _opening = services.sessions.opening.lock().await;
            let session = match services.journal.store.internal_session().await? {
                Some(row) => services.sessions.get(row.id).await?,
                None => opening::open_session(services, None, false, false, Surface::Engine).await?,
            };
            services.memories.set_session(Some(Arc::clone(&session)));
            session
        }
    };
    let spent: Spent = budget::read_spent(services, &session, MicroUsd::ZERO, &[]).await?;
    let place = place::outside_turn(services, session).await?;
    Ok(CallPlace { spent, ..place })
}

/// Closes the engine's session, since its tokens are used up: the next request opens another.
///
/// # Errors
///
/// If the store cannot be written.
pub(crate) async fn end_session(services: &Services, session: &Session) -> Result<(), EngineError> {
    let at = services.journal.clock.now().to_string();
    let op =
        Op::SetSessionMetadata { session: session.id, key: CLOSED_AT.to_owned(), value: Some(at.into()) };
    services.journal.store.commit(Batch::relaxed(vec![op])).await?;
    session.state().closed = true;
    services.memories.set_session(None);
    Ok(())
}
