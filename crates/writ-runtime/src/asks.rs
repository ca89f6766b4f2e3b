//! Asks: opened by the door, answered by people, performed exactly as approved.

pub(crate) mod open;
pub(crate) mod outcome;
pub(crate) mod task;
pub(crate) mod tell;

use writ_inspect::show::ShownText;
use writ_policy::door::Ask;
use writ_policy::taint::endorsable_values;
use writ_store::approvals::{AskState, StoredAsk as AskRow};
use writ_store::batch::{Batch, NewAsk, Op};
use writ_store::reads::AskReads as _;
use writ_types::entry::{DenyReason, Entry, Fact};
use writ_types::frame::Card;
use writ_types::id::AskId;

use crate::error::EngineError;
use crate::services::Services;
use crate::session::{APPLY, Session, is_over};
use crate::way_back::UNDO_WINDOW;
use crate::work_calls::ended_item;

/// The reason why nothing is asked or done any more for a work item that has ended.
pub(crate) const ITEM_ENDED: &str = "Its work item has ended.";

/// Opens an ask, or finds the one that is open for the same content. `detail` is shown with the action. The
/// inner error explains in words that the action cannot be shown completely, or that its session is closed.
///
/// # Errors
///
/// If the store cannot be written.
pub(crate) async fn open_ask(
    services: &Services,
    session: &Session,
    ask: Ask,
    detail: &str,
) -> Result<Result<AskId, String>, EngineError> {
    let shown = match ShownText::new(&ask.prepared, detail) {
        Ok(shown) => shown,
        Err(unshowable) => return Ok(Err(unshowable.to_string())),
    };
    if let Some(why) = refusal_to_ask(services, session, &ask).await? {
        return Ok(Err(why));
    }
    let now = services.journal.valid_now();
    let expires_at = now.plus_duration(services.outside.settings.now().approval_ttl);
    let id = services.journal.ids.ask();
    let (task, standing) = (task::offer(&ask), task::standing_offer(&ask));
    let values = if ask.approvers > 1 { Vec::new() } else { endorsable_values(&ask.prepared, &ask.rules) };
    let host = services.reach.trustable(session, &ask).await?;
    let card = Card {
        ask_id: id.clone(),
        session: Some(session.id),
        action: ask.prepared.action.kind().as_str().to_owned(),
        intent: ask.prepared.intent.clone(),
        risk: ask.risk,
        rationale: ask.reason.clone(),
        choices: task::choices(task.as_deref(), standing.as_deref(), &values, host.as_deref()),
        shown: shown.text().to_owned(),
        prepared: ask.hash,
        shown_hash: shown.hash(),
        asked_at: now,
        expires_at,
        state: AskState::Open.as_str().to_owned(),
        task,
        standing,
        values,
        host,
        approvers: ask.approvers,
        approved_by: Vec::new(),
        undo_secs: if ask.prepared.tool == APPLY { UNDO_WINDOW.as_secs() } else { 0 },
    };
    let fact = Fact::Asked {
        ask: id,
        prepared: ask.hash,
        action: ask.prepared.action.clone(),
        risk: ask.risk,
        reason: ask.reason,
        shown: shown.hash(),
        expires_at,
    };
    let entry = Entry {
        at: services.journal.clock.now(),
        session: Some(session.id),
        turn: ask.prepared.turn,
        turn_number: ask.prepared.turn_number,
        fact,
    };
    let op = Op::OpenAsk(Box::new(NewAsk { card, prepared: ask.prepared.clone(), entry }));
    // On disk before the card is shown: a signed answer must find its question, also after a power failure.
    let receipt = services.journal.commit_for(&session.hub, Batch::synced(vec![op])).await?;
    let opened = receipt.asks.into_iter().next();
    // The item may have ended while the card was written, and has not seen it then.
    if let Some(opened) = &opened
        && ended_item(&services.journal, session, &ask.prepared).await?.is_some()
    {
        end_late_card(services, &opened.ask).await?;
        return Ok(Err(ITEM_ENDED.to_owned()));
    }
    Ok(opened.map(|opened| opened.ask).ok_or_else(|| "the ask was not stored".to_owned()))
}

/// Returns why nothing is asked any more: the session is closed, or its work item has ended.
async fn refusal_to_ask(
    services: &Services,
    session: &Session,
    ask: &Ask,
) -> Result<Option<String>, EngineError> {
    if is_over(session, &ask.prepared) {
        return Ok(Some(EngineError::SessionClosed(session.id).to_string()));
    }
    let ended = ended_item(&services.journal, session, &ask.prepared).await?;
    Ok(ended.map(|_| ITEM_ENDED.to_owned()))
}

/// Ends a card that was opened after the end of its work item.
async fn end_late_card(services: &Services, ask: &AskId) -> Result<(), EngineError> {
    match services.journal.store.ask(ask).await? {
        Some(card) => tell::end_ask(services, &card, ITEM_ENDED).await,
        None => Ok(()),
    }
}

/// The ledger's record that what was asked is not done.
pub(crate) fn refusal_of(services: &Services, ask: &AskRow, why: &str) -> Op {
    let fact = Fact::Denied {
        prepared: Some(ask.card.prepared),
        kind: ask.prepared.action.kind(),
        reason: DenyReason::Approval,
        rule: format!("ask {}", ask.card.ask_id),
        text: why.to_owned(),
        outside: why.to_owned(),
        requester: None,
    };
    Op::Append(Box::new(Entry {
        at: services.journal.clock.now(),
        session: ask.card.session,
        turn: ask.prepared.turn,
        turn_number: ask.prepared.turn_number,
        fact,
    }))
}
