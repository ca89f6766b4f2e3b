//! Plans on their way to the person: messages of the queue, which a loop of the harness takes.
//!
//! The planner's turn puts its plan into the queue of what comes back to the person, and waits until it was handed over, since its last
//! words say what came of it. A result counts in the session of its request alone, and only if that session has asked the
//! planner under the same trace; every other one is set aside unseen. A task that a gate's block spawns takes the same
//! way, and nothing waits for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use writ_plan::read::read_plan;
use writ_policy::principal;
use writ_store::batch::{Batch, NewMessageRow, Op};
use writ_store::error::{Conflict, StoreError};
use writ_store::queue::{Leased, MAX_ATTEMPTS, MessageState, PROXY, QueuedMessage};
use writ_store::reads::QueueReads as _;
use writ_types::digest::Digest;
use writ_types::entry::{Fact, InboundRecord};
use writ_types::taint::Taint;

use super::card;
use super::{PlannerMessage, fallback_plan};
use crate::closing;
use crate::config::LEASE_TTL;
use crate::error::EngineError;
use crate::plan_results::{Handed, is_task};
use crate::profile::PLANNER;
use crate::services::Services;
use crate::session::Session;

/// The kind of a message that brings a plan back.
const PLAN_RESULT: &str = "plan_result";
/// The sender in the records of results.
const SENDER: &str = "harness:planner";
/// The holder named in leases of results.
const OWNER: &str = "results";
/// The longest wait before the queue is looked at without a call.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Checks that an id of a message is not one that only the harness gives: it reads the kind of its own messages from their ids (SIL-219).
///
/// # Errors
///
/// If it is one of those.
pub(crate) fn check_client_id(id: &str) -> Result<(), EngineError> {
    if PlannerMessage::read_id(id).is_none() && read_trace(id).is_none() && !is_task(id) {
        return Ok(());
    }
    let why = "client_id begins with a kind of message that only the harness sends".to_owned();
    Err(EngineError::Params { method: "message".to_owned(), why })
}

fn read_trace(id: &str) -> Option<&str> {
    id.strip_prefix(PLAN_RESULT)?.strip_prefix('/')
}

/// Puts a plan into the queue of what comes back to the person, and waits until it was handed over. Done again after a crash,
/// it is the same result, and the same card.
///
/// # Errors
///
/// If the store cannot be written, or the engine stops.
pub(crate) async fn send_back(
    services: &Arc<Services>,
    session: &Arc<Session>,
    request: &InboundRecord,
    (trace, text, taint): (&str, &str, Taint),
) -> Result<Handed, EngineError> {
    let id = format!("{PLAN_RESULT}/{trace}");
    // Before the commit: the loop may be done with it at once.
    let handed = services.life.results.register(session.id, &id);
    let sent = commit_result(services, session, request, (&id, text, taint)).await;
    let handed = match sent {
        Ok(is_new) => {
            services.life.results.wake.notify_one();
            await_handed(services, session, (&id, is_new), handed).await
        }
        Err(error) => Err(error),
    };
    services.life.results.forget(session.id, &id);
    handed
}

/// Stores a result. Returns false if it is there already.
async fn commit_result(
    services: &Services,
    session: &Session,
    request: &InboundRecord,
    (id, text, taint): (&str, &str, Taint),
) -> Result<bool, EngineError> {
    let now = services.journal.clock.now();
    let text = services.journal.redactor.clean_text(text.to_owned()).into_string();
    let record = InboundRecord {
        message: services.journal.ids.message(now),
        session: session.id,
        // It opens no turn: it belongs to that of its request.
        turn_number: request.turn_number,
        principal: SENDER.to_owned(),
        taint,
        text: Digest::of_bytes(text.as_bytes()),
        at: now,
    };
    let signature = principal::sign_record(&record, &services.keys.held.harness)?;
    let fact = Fact::Received { record: record.clone(), text: text.clone(), signature };
    let row = Box::new(NewMessageRow { record, client_id: id.to_owned(), text });
    let ops = vec![
        services.journal.entry(session.id, None, fact),
        Op::EnqueueFor { consumer: PROXY.to_owned(), message: row },
    ];
    match services.journal.commit_for(&session.hub, Batch::synced(ops)).await {
        Ok(_) => Ok(true),
        Err(EngineError::Store(StoreError::Conflict(Conflict::DuplicateMessage { .. }))) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Waits until a result was handed over, its session is closed, or the engine stops.
async fn await_handed(
    services: &Arc<Services>,
    session: &Arc<Session>,
    (id, is_new): (&str, bool),
    handed: oneshot::Receiver<Handed>,
) -> Result<Handed, EngineError> {
    // A crash may have come between the handing over and the end of the turn.
    if !is_new
        && matches!(
            services.journal.store.message_state(session.id, id).await?,
            Some(MessageState::Acked | MessageState::Dead) | None
        )
    {
        let message = services.journal.store.message_by_client_id(session.id, id).await?;
        let message = message.ok_or_else(|| EngineError::Machine("a result is gone".to_owned()))?;
        return Ok(match hand_over(services, session, &message).await? {
            ResultDelivery::Handed(handed) => handed,
            ResultDelivery::Unfit(why) => Handed::Refused(why),
        });
    }
    let closed = closing::stopping(services, session, false);
    tokio::select! {
        biased;
        handed = handed => handed.map_err(|_| EngineError::Stopping),
        () = services.life.stop_now.cancelled() => Err(EngineError::Stopping),
        () = closed.cancelled() => Ok(Handed::Refused("its session was closed".to_owned())),
    }
}

/// Hands results over until the last turn of the engine has ended: a turn waits for its result also while the engine drains.
pub(crate) async fn run(services: Arc<Services>) {
    loop {
        let woken = services.life.results.wake.notified();
        let wait = match take_up(&services).await {
            Ok(None) => continue,
            Ok(Some(wait)) => wait,
            Err(error) => {
                tracing::error!(%error, "no plan can be handed over; the queue is looked at again soon");
                LOOK_EVERY
            }
        };
        tokio::select! {
            () = services.life.turns.wait() => return,
            () = woken => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Begins to hand over the next result. Returns the wait until the next look if none is due.
async fn take_up(services: &Arc<Services>) -> Result<Option<Duration>, StoreError> {
    let (store, now) = (&services.journal.store, services.journal.clock.now());
    let Some(due) = store.next_due_for(PROXY).await? else { return Ok(Some(LOOK_EVERY)) };
    if due > now {
        return Ok(Some(due.time_since(now).min(LOOK_EVERY)));
    }
    let Some(lease) = store.lease_for(PROXY, now, OWNER, LEASE_TTL).await? else {
        return Ok(Some(LOOK_EVERY));
    };
    let services = Arc::clone(services);
    // As many at once as planners have answered: a slow gate holds up no other plan.
    services.life.turns.clone().spawn(async move {
        deliver(&services, &lease).await;
        services.life.results.wake.notify_one();
    });
    Ok(None)
}

/// Hands one result over, and ends its message: done, set aside, or given back for another try.
async fn deliver(services: &Arc<Services>, lease: &Leased) {
    let (message, fence) = (&lease.message, lease.fence);
    let (session, id) = (message.record.session, message.record.message);
    let delivered = match services.sessions.get(session).await {
        Ok(session) => hand_over(services, &session, message).await,
        Err(error) => Err(error),
    };
    let (op, handed) = match delivered {
        Ok(ResultDelivery::Handed(handed)) => (Op::AckMessage { message: id, fence }, Some(handed)),
        Ok(ResultDelivery::Unfit(why)) => {
            tracing::warn!(%session, why, "a plan was set aside");
            let op = Op::EndMessage { message: id, fence: Some(fence), error: why.clone() };
            (op, Some(Handed::Refused(why)))
        }
        Err(error) => {
            let report = services.journal.report(&error);
            tracing::error!(code = report.code, inside = report.inside, "a plan could not be handed over");
            let is_last = message.attempts >= MAX_ATTEMPTS;
            let (now, error) = (services.journal.clock.now(), report.outside.clone());
            let handed = is_last.then_some(Handed::Refused(report.outside));
            (Op::NackMessage { message: id, fence, now, error }, handed)
        }
    };
    if let Err(error) = services.journal.store.commit(Batch::synced(vec![op])).await {
        tracing::error!(%error, "the end of a plan's message could not be written; the next start hands it over again");
    }
    if let Some(handed) = handed {
        services.life.results.settle(session, &message.client_id, handed);
    }
}

/// The outcome of handing a result over.
enum ResultDelivery {
    /// A person is asked, or may not be asked.
    Handed(Handed),
    /// It answers no request of its session, or is no plan; with the reason.
    Unfit(String),
}

/// Asks a person about the plan of a result, if its session has requested it under the same trace, or about a task.
async fn hand_over(
    services: &Arc<Services>,
    session: &Arc<Session>,
    message: &QueuedMessage,
) -> Result<ResultDelivery, EngineError> {
    let taint = message.record.taint;
    if is_task(&message.client_id) {
        let task = fallback_plan(&message.text);
        let handed = card::hand_over(services, session, task, (&message.record, taint)).await?;
        return Ok(ResultDelivery::Handed(handed));
    }
    let Some(trace) = read_trace(&message.client_id) else {
        return Ok(ResultDelivery::Unfit("a message of this kind brings no plan back".to_owned()));
    };
    let asked = PlannerMessage::PlanRequest.write_id(trace);
    let request = services.journal.store.message_by_client_id(session.id, &asked).await?;
    let Some(request) = request.filter(|request| request.consumer == PLANNER) else {
        return Ok(ResultDelivery::Unfit("its session has requested no plan under this trace".to_owned()));
    };
    let Ok(plan) = read_plan(&message.text) else {
        return Ok(ResultDelivery::Unfit("it is no plan".to_owned()));
    };
    let handed = card::hand_over(services, session, plan, (&request.record, taint)).await?;
    Ok(ResultDelivery::Handed(handed))
}
