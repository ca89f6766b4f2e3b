//! The state of the engine, of its queue and of today's spending.

use std::sync::atomic::Ordering;

use writ_store::approvals::AskState;
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::{
    AskReads as _, LedgerReads as _, QueueReads as _, SessionReads as _, UsageReads as _,
};
use writ_types::api::status::{
    DaySpending, EngineStatus, OpenAttempt, QueueCounts, RunningTurn, SessionSpending,
};
use writ_types::unit::{MicroUsd, Timestamp};

use super::MAX_LISTED;
use crate::budget::read_spent;
use crate::error::EngineError;
use crate::services::Services;

/// Shows the state of the engine.
pub(super) async fn engine_status(services: &Services) -> Result<EngineStatus, EngineError> {
    let now = services.journal.clock.now();
    let day = services.journal.store.day_usage(services.journal.budget_day(now)).await?;
    let queue = services.journal.store.queue_depth().await?;
    let open_intents = services.journal.store.open_intents().await?;
    let running: Vec<RunningTurn> = services
        .sessions
        .loaded()
        .values()
        .flat_map(|session| {
            let turns = session.state().turns.clone().into_iter();
            let session = session.id;
            turns.map(move |running| RunningTurn { session, turn: running.turn, number: running.number })
        })
        .collect();
    let limit = services.config.budget.max_tokens_per_day;
    Ok(EngineStatus {
        installation: services.config.installation,
        epoch: services.config.epoch,
        agent: services.config.agent.clone(),
        posture: services.config.posture.clone(),
        started_at: services.life.started_at.to_string(),
        clock_behind_secs: services.journal.valid_now().time_since(now).as_secs(),
        model: services.outside.models.get().is_some(),
        model_found: services
            .outside
            .models
            .get()
            .and_then(writ_models::Models::detected_model)
            .map(str::to_owned),
        policy: services.rules.in_force.digest(),
        running,
        turns_finished: services.life.turns_finished.load(Ordering::Relaxed),
        queue: QueueCounts { ready: queue.ready, leased: queue.leased, dead: queue.dead },
        open_asks: services.journal.store.asks(Some(AskState::Open), MAX_LISTED).await?.len(),
        sandboxes_ready: services.outside.sandbox.ready_count(),
        servers_running: services.servers.running(),
        case_router: services.life.desks.fleet.get().is_some(),
        open_intents: open_intents
            .iter()
            .map(|open| OpenAttempt { attempt: open.attempt, entry: open.seq })
            .collect(),
        ledger: services.journal.store.ledger_size().await?,
        settings: services.outside.settings.status(),
        session: latest_session(services).await?,
        today: DaySpending {
            tokens: day.usage.total_tokens(),
            limit,
            paused: day.usage.total_tokens() >= limit,
            cost_micro_usd: all_priced(services, services.config.budget.day_begins(now))
                .await?
                .then_some(day.cost),
        },
    })
}

/// Returns the spending of the session that was used last.
async fn latest_session(services: &Services) -> Result<Option<SessionSpending>, EngineError> {
    let Some(row) = services.journal.store.sessions(1).await?.pop() else { return Ok(None) };
    let session = services.sessions.get(row.id).await?;
    let used = read_spent(services, &session, MicroUsd::ZERO, &[]).await?.session_tokens;
    let limit = services.config.budget.max_tokens_per_session;
    Ok(Some(SessionSpending { session: row.id, tokens: used, limit, paused: used >= limit }))
}

/// Returns true if the price of every model call since then is known: a sum without some of them would be too low.
pub(super) async fn all_priced(services: &Services, since: Timestamp) -> Result<bool, EngineError> {
    let query = LedgerQuery {
        event: Some("model_called".to_owned()),
        text: Some("\"cost\":null".to_owned()),
        since: Some(since),
        limit: 1,
        ..LedgerQuery::default()
    };
    Ok(services.journal.store.ledger_search(&query).await?.is_empty())
}
