//! The open asks of a session.

use writ_store::approvals::AskState;
use writ_store::config::MAX_READ_ROWS;
use writ_store::reads::AskReads as _;
use writ_types::frame::ServerFrame;
use writ_types::id::{AskId, TurnId};

use crate::error::EngineError;
use crate::interface::MAX_OPEN;
use crate::services::Services;
use crate::session::Session;

/// Reads the open asks of a session with the frames that show them: gates first, since a turn waits for them, then cards,
/// oldest first, together at most [`MAX_OPEN`].
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn open_cards(
    services: &Services,
    session: &Session,
) -> Result<Vec<(AskId, ServerFrame)>, EngineError> {
    let gates =
        session.state().gates.waiting.iter().map(|(id, gate)| (id.clone(), gate.frame.clone())).collect();
    let mut open: Vec<_> = gates;
    let asks = services.journal.store.waiting_asks(session.id, MAX_READ_ROWS).await?;
    let asks = asks.into_iter().filter(|ask| ask.state == AskState::Open);
    open.extend(asks.map(|ask| (ask.card.ask_id.clone(), ServerFrame::ApprovalRequest(Box::new(ask.card)))));
    open.truncate(MAX_OPEN);
    Ok(open)
}

/// Returns true while another request that the agent made in this turn waits for an answer or is being performed.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn others_wait(
    services: &Services,
    session: &Session,
    turn: TurnId,
    answered: &AskId,
) -> Result<bool, EngineError> {
    let asks = services.journal.store.waiting_asks(session.id, MAX_READ_ROWS).await?;
    Ok(asks.iter().any(|ask| {
        let id = &ask.card.ask_id;
        let waits = ask.state == AskState::Open || services.life.approved.is_performing(id);
        id != answered && waits && ask.prepared.turn == Some(turn) && ask.prepared.call.is_some()
    }))
}
