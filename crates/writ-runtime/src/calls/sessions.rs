//! Sessions, for surfaces: listing, showing and closing them.

use std::sync::Arc;

use serde_json::Value;
use writ_store::approvals::PlanRow;
use writ_store::batch::{Batch, Op};
use writ_store::reads::{QueueReads as _, SessionReads as _};
use writ_store::sessions::{DELETED_AT, ERASED_AT, SessionRow as Row};
use writ_types::api::session::{
    SessionClosing, SessionDetails, SessionFilter, SessionList, SessionName, SessionSummary,
};
use writ_types::entry::HookEvent;
use writ_types::id::SessionId;
use writ_types::unit::MicroUsd;

use super::{MAX_LISTED, keys};
use crate::error::EngineError;
use crate::services::Services;
use crate::session::{AGENT, CLOSED_AT, FORKED_FROM, MODEL, Session, TitleRecord};
use crate::{budget, closing};

/// The most waiting messages that are named; the queue of a session is bounded, too.
const MAX_WAITING: usize = 1_000;

/// Lists sessions, the one that was used last first.
pub(super) async fn list_sessions(
    services: &Services,
    filter: SessionFilter,
) -> Result<SessionList, EngineError> {
    let rows = services.journal.store.sessions(MAX_LISTED).await?;
    let mut sessions = Vec::with_capacity(rows.len());
    for row in rows.iter().filter(|row| row.metadata.contains_key(DELETED_AT) == filter.deleted) {
        sessions.push(session_summary(services, row).await?);
    }
    Ok(SessionList { sessions })
}

/// Shows one session, with the entries of its messages that wait for a turn.
pub(super) async fn show_session(
    services: &Services,
    SessionName { session }: SessionName,
) -> Result<SessionDetails, EngineError> {
    let row = services.journal.store.session(session).await?.ok_or(EngineError::NoSession(session))?;
    let summary = session_summary(services, &row).await?;
    let waiting = services.journal.store.pending_for_session(session).await?;
    let waiting = waiting.iter().take(MAX_WAITING).map(|message| message.entry).collect();
    Ok(SessionDetails { summary, waiting })
}

/// Closes a session. Its history stays, but it cannot be joined. Its turn is stopped, its waiting messages end, and its task
/// keys are revoked. A closed session of which something is left is closed again.
pub(super) async fn close_session(
    services: &Arc<Services>,
    SessionName { session }: SessionName,
) -> Result<SessionClosing, EngineError> {
    let closing = Arc::clone(services);
    // A task of its own: the session is closed completely even if the caller disconnects.
    let closed = services.life.turns.spawn(async move { close_now(&closing, session).await });
    closed.await.unwrap_or_else(|error| Err(EngineError::Machine(error.to_string())))
}

async fn close_now(services: &Services, id: SessionId) -> Result<SessionClosing, EngineError> {
    let session = services.sessions.get(id).await?;
    let again = std::mem::replace(&mut session.state().closed, true);
    let written = record_closing(services, &session, again).await;
    if written.is_err() {
        session.state().closed = again;
    }
    let (closed_at, plans) = written?;
    services.servers.stop_session(session.id);
    // Cancels work in progress in this session, and servers that are still starting.
    let over = session.state().over.clone();
    over.cancel();
    for plan in &plans {
        services.life.approved.acting.stop(&plan.ask);
    }
    session.stop_turns().await;
    closing::end_rest(services, &session).await?;
    if !again {
        services.gates.tell_of_session(&session, HookEvent::SessionClosed).await?;
    }
    Ok(SessionClosing { session: session.id, closed_at: closed_at.as_str().unwrap_or_default().to_owned() })
}

/// Records that a session is closed, and revokes its keys and unused approvals. Returns the time it was
/// closed and the plans that use those keys.
///
/// # Errors
///
/// If it was closed before and nothing is left of it, or the store cannot be read or written.
async fn record_closing(
    services: &Services,
    session: &Session,
    again: bool,
) -> Result<(Value, Vec<PlanRow>), EngineError> {
    let now = services.journal.clock.now();
    let (mut ops, plans) = keys::ends_of_keys(services, session, now).await?;
    if again && ops.is_empty() && !closing::waits(services, session).await? {
        return Err(EngineError::SessionClosed(session.id));
    }
    let row = services.journal.store.session(session.id).await?.ok_or(EngineError::NoSession(session.id))?;
    let before = row.metadata.get(CLOSED_AT).cloned();
    let closed_at = before.unwrap_or_else(|| Value::from(now.to_string()));
    let value = Some(closed_at.clone());
    ops.push(Op::SetSessionMetadata { session: session.id, key: CLOSED_AT.to_owned(), value });
    ops.push(Op::DropResults(session.id));
    ops.push(Op::RevokeUnused(session.id));
    services.journal.store.commit(Batch::synced(ops)).await?;
    Ok((closed_at, plans))
}

pub(super) async fn session_summary(services: &Services, row: &Row) -> Result<SessionSummary, EngineError> {
    let session = services.sessions.of_row(row).await?;
    let spent = budget::read_spent(services, &session, MicroUsd::ZERO, &[]).await?;
    let running = session.state().turns.first().map(|running| running.turn);
    let text = |key: &str| row.metadata.get(key).and_then(Value::as_str).map(str::to_owned);
    Ok(SessionSummary {
        session: row.id,
        title: TitleRecord::of_metadata(&row.metadata).map(|title| title.text),
        agent: text(AGENT),
        model: text(MODEL),
        forked_from: row.metadata.get(FORKED_FROM).and_then(|from| serde_json::from_value(from.clone()).ok()),
        project: row.project.clone(),
        turns: row.turn_number,
        seq: row.frame_seq,
        running,
        write: session.terms.write,
        dry_run: session.terms.dry_run,
        relayed: session.terms.relayed,
        created_at: row.created_at.to_string(),
        updated_at: row.updated_at.to_string(),
        closed_at: text(CLOSED_AT),
        tokens: spent.session_tokens,
        limit: services.keys.limits_of(Some(&session)).max_tokens_per_session,
        cost: spent.session_cost,
        deleted_at: text(DELETED_AT),
        erased_at: text(ERASED_AT),
        order: session.terms.order.as_ref().map(|order| order.id),
    })
}
