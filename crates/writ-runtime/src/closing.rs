//! Cleanup of a closed session: ends its questions, its messages, and the turn that a crash cut off.

use tokio_util::sync::CancellationToken;
use writ_store::approvals::StoredAsk as AskRow;
use writ_store::batch::{Batch, Op};
use writ_store::config::MAX_READ_ROWS;
use writ_store::error::{Conflict, StoreError};
use writ_store::queue::{Leased, QueuedMessage};
use writ_store::reads::{AskReads as _, QueueReads as _, SessionReads as _, TurnReads as _};
use writ_store::work::WorkOp;
use writ_types::entry::{Fact, TurnPhase};
use writ_types::frame::ServerFrame;
use writ_types::id::{Fence, MessageId};

use crate::asks::tell;
use crate::error::EngineError;
use crate::services::Services;
use crate::session::{CLOSED_AT, Session, is_over};
use crate::settle;

/// The reason given when a question of a closed session ends.
const CLOSED: &str = "Its session was closed.";

/// Returns the token that stops an action outside the session's turns: it fires when the session closes, or,
/// for an action that the owner may do in a closed session, when the engine stops.
pub(crate) fn stopping(services: &Services, session: &Session, outlives: bool) -> CancellationToken {
    let state = session.state();
    if state.closed && outlives { services.life.stop_now.child_token() } else { state.over.child_token() }
}

/// Returns true if the session has something waiting: a question, an approved action, or a message.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn waits(services: &Services, session: &Session) -> Result<bool, EngineError> {
    Ok(!list_ended(services, session).await?.is_empty()
        || !waiting_messages(services, session).await?.is_empty())
}

/// Lists the messages of a session that wait, for any agent, also one that is no longer configured.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn waiting_messages(
    services: &Services,
    session: &Session,
) -> Result<Vec<QueuedMessage>, EngineError> {
    Ok(services.journal.store.pending_for_session(session.id).await?)
}

/// Lists the waiting questions that can be approved no longer because the session is closed, and those with
/// an approval that was taken back.
async fn list_ended(services: &Services, session: &Session) -> Result<Vec<AskRow>, EngineError> {
    let mut over = Vec::new();
    for (ask, approval) in
        services.journal.store.waiting_asks_with_approvals(session.id, MAX_READ_ROWS).await?
    {
        let taken_back = approval.is_some_and(|approval| approval.revoked);
        if taken_back || is_over(session, &ask.prepared) {
            over.push(ask);
        }
    }
    Ok(over)
}

/// Ends what waits in a session that is closed.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn end_rest(services: &Services, session: &Session) -> Result<(), EngineError> {
    for ask in list_ended(services, session).await? {
        // The task that performs it finds the session closed, and ends it.
        if !services.life.approved.is_performing(&ask.card.ask_id) {
            end_closed_ask(services, &ask).await?;
        }
    }
    // A turn that runs may have taken some of them in: the others end after it.
    if session.runs(None) {
        return Ok(());
    }
    for message in waiting_messages(services, session).await? {
        match end_message(services, session, (&message, &EngineError::SessionClosed(session.id)), None).await
        {
            // The dispatcher has it, and ends it.
            Ok(()) | Err(EngineError::Store(StoreError::Conflict(Conflict::Fence(_)))) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Ends the remains of a turn that ran while its session was closed: questions it still asked, messages
/// queued behind it, and results it held back.
pub(crate) async fn end_after_turn(services: &Services, session: &Session) {
    // One that was being started or asked for its tools when the session was closed was passed by then.
    services.servers.stop_session(session.id);
    let dropped = services.journal.store.commit(Batch::relaxed(vec![Op::DropResults(session.id)])).await;
    let ended = match dropped {
        Ok(_) => end_rest(services, session).await,
        Err(error) => Err(error.into()),
    };
    if let Err(error) = ended {
        tracing::error!(session = %session.id, %error, "what is left of a closed session could not be ended");
    }
}

/// Ends a leased message after its session turns out to be closed, or its work item over, so that it is never worked on
/// again.
pub(crate) async fn end_leased(services: &Services, session: &Session, lease: &Leased, why: &EngineError) {
    if let Err(error) = end_message(services, session, (&lease.message, why), Some(lease.fence)).await {
        tracing::error!(%error, "a message could not be ended; the next start tries again");
    }
}

/// Ends a question of a session that is closed.
///
/// # Errors
///
/// If the store cannot be written.
pub(crate) async fn end_closed_ask(services: &Services, ask: &AskRow) -> Result<(), EngineError> {
    tell::end_ask(services, ask, CLOSED).await
}

/// Settles the turn that is open for a message that is not worked on. Returns the operations that close it; none if there is none.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn close_open_turn(
    services: &Services,
    session: &Session,
    message: MessageId,
    why: &str,
) -> Result<Vec<Op>, EngineError> {
    let Some(open) = services.journal.store.unfinished_turn_of(message).await? else { return Ok(Vec::new()) };
    settle::settle_turn(services, open.id).await?;
    let phase = Fact::Phase { phase: TurnPhase::Cancelled, reason: why.to_owned() };
    let entry = services.journal.entry(session.id, Some((open.id, open.number)), phase);
    let (at, state) = (services.journal.clock.now(), "cancelled".to_owned());
    Ok(vec![entry, Op::CloseTurn { turn: open.id, at, state }])
}

/// Ends a message that is not worked on, and the turn that was open for it, and informs the sender. `fence` is
/// the one of its lease, or `None` while it waits in the queue.
///
/// # Errors
///
/// If the store cannot be read or written, or the message is leased elsewhere.
pub(crate) async fn end_message(
    services: &Services,
    session: &Session,
    (message, why): (&QueuedMessage, &EngineError),
    fence: Option<Fence>,
) -> Result<(), EngineError> {
    let (id, report) = (message.record.message, services.journal.report(why));
    let (exit, said, at) = (report.exit.code(), report.outside.clone(), services.journal.clock.now());
    let mut ops = vec![
        Op::EndMessage { message: id, fence, error: report.outside.clone() },
        // If it is that of an attempt, none works on it any more.
        Op::Work(WorkOp::EndTurn { message: id, exit, said, at }),
    ];
    ops.extend(close_open_turn(services, session, id, &report.outside).await?);
    let frame = ServerFrame::Error {
        id: None,
        exit: report.exit,
        code: report.code.clone(),
        text: format!("The message is not answered: {}.", report.outside),
        hint: report.advice().to_owned(),
        answers: vec![message.client_id.clone()],
    };
    ops.push(Op::Frame { session: session.id, frame: Box::new(frame) });
    services.journal.commit_for(&session.hub, Batch::synced(ops)).await?;
    Ok(())
}

/// Ends what the run before has left of sessions that are closed.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn at_start(services: &Services) -> Result<(), EngineError> {
    for id in services.journal.store.waiting_sessions().await? {
        if !services.journal.store.session(id).await?.is_some_and(|row| row.metadata.contains_key(CLOSED_AT))
        {
            continue;
        }
        let ended = match services.sessions.get(id).await {
            Ok(session) => end_rest(services, &session).await,
            Err(error) => Err(error),
        };
        // It must not keep the engine from starting: nothing of it is performed, and the next start tries again.
        if let Err(error) = ended {
            tracing::error!(session = %id, %error, "what is left of a closed session could not be ended");
        }
    }
    Ok(())
}
