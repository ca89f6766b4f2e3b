//! Sessions, for surfaces: listing, showing and closing them.

use serde::Deserialize;
use serde_json::{Value, json};
use writ_store::batch::{Batch, Op};
use writ_store::sessions::Session as Row;
use writ_types::entry::HookEvent;
use writ_types::id::SessionId;
use writ_types::unit::MicroUsd;

use super::MAX_LISTED;
use crate::core::Core;
use crate::error::EngineError;
use crate::session::{CLOSED_AT, Interrupt};

/// Which session.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OneSession {
    session: SessionId,
}

/// All sessions, the one that was used last first.
pub(super) fn list(core: &Core) -> Result<Value, EngineError> {
    let rows = core.store.sessions(MAX_LISTED)?;
    let listed: Result<Vec<Value>, EngineError> = rows.iter().map(|row| shown(core, row)).collect();
    Ok(json!({ "sessions": listed? }))
}

/// One session.
pub(super) fn show(core: &Core, wanted: &OneSession) -> Result<Value, EngineError> {
    let row = core.store.session(wanted.session)?.ok_or(EngineError::NoSession(wanted.session))?;
    shown(core, &row)
}

/// Closes a session: what it says is kept, and nobody joins it any more. A turn that runs is stopped.
pub(super) async fn close(core: &Core, wanted: &OneSession) -> Result<Value, EngineError> {
    let session = core.open_one(wanted.session)?;
    let at = core.clock.now().to_string();
    session.state().closed = true;
    let op = Op::SetSessionMetadata {
        session: session.id,
        key: CLOSED_AT.to_owned(),
        value: Some(Value::from(at.as_str())),
    };
    if let Err(error) = core.store.commit(Batch::synced(vec![op, Op::DropResults(session.id)])).await {
        session.state().closed = false;
        return Err(error.into());
    }
    core.servers.stop_session(session.id);
    // It is over for whoever is in the middle of it.
    let _heard = session.interrupt(None, Interrupt::Cancel);
    core.tell_of_session(&session, HookEvent::SessionClosed).await?;
    Ok(json!({ "session": session.id, "closed_at": at }))
}

fn shown(core: &Core, row: &Row) -> Result<Value, EngineError> {
    let session = core.session(row.id)?;
    let spent = core.spent(&session, MicroUsd::ZERO, &[])?;
    let running = session.state().running.as_ref().map(|running| running.turn);
    Ok(json!({
        "session": row.id,
        "project": row.project,
        "turns": row.turn_number,
        "seq": row.frame_seq,
        "running": running,
        "write": session.terms.write,
        "dry_run": session.terms.dry_run,
        "relayed": session.terms.relayed,
        "created_at": row.created_at.to_string(),
        "updated_at": row.updated_at.to_string(),
        "closed_at": row.metadata.get(CLOSED_AT),
        "tokens": spent.session_tokens,
        "limit": core.limits_of(Some(&session)).max_tokens_per_session,
        "order": session.terms.order.as_ref().map(|order| order.id),
    }))
}
