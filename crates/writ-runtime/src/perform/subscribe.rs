//! Begins and ends subscriptions.

use writ_inspect::prepared::Prepared;
use writ_store::batch::{Batch, Op};
use writ_store::reads::TurnReads as _;
use writ_tools::outcome::PerformedOutcome;
use writ_types::action::Subscribe;
use writ_types::error::{Exit, Report};
use writ_types::taint::Taint;

use crate::error::EngineError;
use crate::place::CallPlace;
use crate::services::Services;
use crate::session::{SUBSCRIPTIONS, Session};
use crate::subscription::{MAX_SUBSCRIPTIONS, Subscription};
use crate::subscriptions::newest_turn;
/// Begins or ends a subscription, for which a permit has been consumed.
///
/// # Errors
///
/// If the store cannot be written.
pub(crate) async fn subscribe(
    services: &Services,
    place: &CallPlace,
    prepared: &Prepared,
    request: &Subscribe,
) -> Result<PerformedOutcome, EngineError> {
    let failed = |text: String| {
        Ok(PerformedOutcome::Failed { report: Report::new(Exit::Usage, "subscription", text) })
    };
    let _one_at_a_time = place.session.granting.lock().await;
    let mut list = place.session.state().subscriptions.list.clone();
    if request.stop {
        let before = list.len();
        list.retain(|one| one.id != request.target);
        if list.len() == before {
            return failed(format!("there is no subscription '{}'", request.target));
        }
        keep_subscriptions(services, &place.session, list).await?;
        return Ok(PerformedOutcome::Unsubscribed { id: request.target.clone() });
    }
    let running = place.session.state().turns.iter().map(|running| running.number).max();
    let next = services.journal.store.next_turn_number(place.session.id).await?;
    let (last_turn, turns) = (newest_turn(running, next).saturating_add(request.turns), request.turns);
    // Such a URL comes through the door with its owner's word only: written, or given to this ask.
    let taint = prepared.label.taint;
    let approved = taint == Taint::External
        && request.url().is_some()
        && !services.reach.is_owned(prepared, &place.session).await?;
    let same = list.iter_mut().find(|one| one.target == request.target && one.lines == request.lines);
    let id = if let Some(same) = same {
        same.last_turn = last_turn;
        same.turns = turns;
        same.taint = same.taint.join(taint);
        same.approved |= approved;
        same.id.clone()
    } else {
        if list.len() >= MAX_SUBSCRIPTIONS {
            return failed(format!("there are {MAX_SUBSCRIPTIONS} subscriptions already: end one"));
        }
        let taken = |id: &str| list.iter().any(|one| one.id == id);
        let mut ids = (1..=MAX_SUBSCRIPTIONS).map(|n| format!("s{n}"));
        let id = ids.find(|id| !taken(id)).unwrap_or_default();
        let (target, lines) = (request.target.clone(), request.lines);
        list.push(Subscription { id: id.clone(), target, lines, last_turn, turns, taint, approved });
        id
    };
    keep_subscriptions(services, &place.session, list).await?;
    Ok(PerformedOutcome::Subscribed { id, turns })
}

pub(crate) async fn keep_subscriptions(
    services: &Services,
    session: &Session,
    list: Vec<Subscription>,
) -> Result<(), EngineError> {
    let value = serde_json::to_value(&list).map_err(|why| EngineError::Machine(why.to_string()))?;
    let (key, value) = (SUBSCRIPTIONS.to_owned(), Some(value));
    services
        .journal
        .store
        .commit(Batch::relaxed(vec![Op::SetSessionMetadata { session: session.id, key, value }]))
        .await?;
    // Only after the commit: a failed one leaves memory and store alike.
    session.state().subscriptions.list = list;
    services.count_subscriptions();
    Ok(())
}
