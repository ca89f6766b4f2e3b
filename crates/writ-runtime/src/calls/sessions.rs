//! Sessions, for surfaces: listing, showing and closing them.

use serde::Deserialize;
use serde_json::{Value, json};
use writ_store::approvals::{AskState, PlanRow};
use writ_store::batch::{Batch, Op};
use writ_store::config::MAX_READ_ROWS;
use writ_store::sessions::Session as Row;
use writ_types::entry::HookEvent;
use writ_types::id::SessionId;
use writ_types::unit::{MicroUsd, Timestamp};

use super::{MAX_LISTED, keys};
use crate::core::Core;
use crate::error::EngineError;
use crate::session::{CLOSED_AT, Interrupt, Session};

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

/// Closes a session: what it says is kept, and nobody joins it any more. A turn that runs is stopped, and no task key
/// of it is good any more.
pub(super) async fn close(core: &Core, wanted: &OneSession) -> Result<Value, EngineError> {
    let session = core.open_one(wanted.session)?;
    let now = core.clock.now();
    session.state().closed = true;
    let plans = match written(core, &session, now).await {
        Ok(plans) => plans,
        Err(error) => {
            session.state().closed = false;
            return Err(error);
        }
    };
    core.servers.stop_session(session.id);
    // It is over for whoever is in the middle of it.
    let _heard = session.interrupt(None, Interrupt::Cancel);
    for plan in &plans {
        core.acting.stop(&plan.ask);
    }
    end_asks(core, session.id).await?;
    core.tell_of_session(&session, HookEvent::SessionClosed).await?;
    Ok(json!({ "session": session.id, "closed_at": now.to_string() }))
}

/// Ends the questions of a session that is closed; what is being done on one is stopped.
async fn end_asks(core: &Core, session: SessionId) -> Result<(), EngineError> {
    for state in [AskState::Open, AskState::Approved] {
        let asks = core.store.asks(Some(state), MAX_READ_ROWS)?;
        for ask in asks.iter().filter(|ask| ask.card.session == Some(session)) {
            match core.is_performing(&ask.card.ask_id) {
                true => {
                    core.acting.stop(&ask.card.ask_id);
                }
                false => core.end_ask(ask, "Its session was closed.").await?,
            }
        }
    }
    Ok(())
}

/// Writes down that a session is closed, and that its keys end with it. The plans whose keys those are.
async fn written(core: &Core, session: &Session, now: Timestamp) -> Result<Vec<PlanRow>, EngineError> {
    let (mut ops, plans) = keys::ends(core, session, now)?;
    let value = Some(Value::from(now.to_string()));
    ops.push(Op::SetSessionMetadata { session: session.id, key: CLOSED_AT.to_owned(), value });
    ops.push(Op::DropResults(session.id));
    core.store.commit(Batch::synced(ops)).await?;
    Ok(plans)
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
