//! Methods about asks, approvals and undo.

use std::collections::BTreeMap;
use std::sync::Arc;

use writ_inspect::show;
use writ_policy::principal::Authenticated;
use writ_policy::review::{self, GroupMember, ReviewedAsk};
use writ_store::approvals::{AskState, StoredAsk};
use writ_store::reads::{AskReads as _, UndoReads as _};
use writ_types::api::approval::{AskFilter, AskGroup, AskList, AskName, AskReview, GroupedAsk};
use writ_types::api::project::{
    AnswerOutcome, AttemptName, LatestUndo, SessionOrProject, UndoOffer, UndoOffers, UndoOutcome,
};
use writ_types::frame::Card;
use writ_types::id::{AskId, SessionId};

use super::{MAX_LISTED, MAX_LISTED_BYTES, find_session, gates};
use crate::engine::{Answered, Undone};
use crate::error::EngineError;
use crate::services::Services;
use crate::{undo, way_back};

/// The most answered asks that what waits is compared with.
const MAX_COMPARED: usize = 1_000;

/// Lists asks, and gates that ask about a text.
pub(super) async fn list_asks(services: &Services, filter: AskFilter) -> Result<AskList, EngineError> {
    let state = if filter.all { None } else { Some(AskState::Open) };
    let asks = services.journal.store.asks(state, MAX_LISTED).await?;
    let (asks, more) = fit_cards(asks.into_iter().map(|ask| ask.card).collect(), MAX_LISTED_BYTES);
    Ok(AskList { asks, more, gates: gates::waiting_gates(services) })
}

/// The first cards that fit into `most` bytes of JSON, and how many are left out.
fn fit_cards(mut cards: Vec<Card>, most: usize) -> (Vec<Card>, usize) {
    let mut bytes = 0_usize;
    let fit = cards.iter().take_while(|card| {
        let size = serde_json::to_string(card).map_or(usize::MAX, |text| text.len());
        bytes = bytes.saturating_add(size);
        bytes <= most
    });
    let fit = fit.count();
    let more = cards.len().saturating_sub(fit);
    cards.truncate(fit);
    (cards, more)
}

/// Shows the complete card of an ask.
pub(super) async fn show_ask(services: &Services, AskName { ask: id }: AskName) -> Result<Card, EngineError> {
    let ask = services.journal.store.ask(&id).await?;
    Ok(ask.ok_or(EngineError::NoAsk(id))?.card)
}

/// Groups open asks by likeness, and marks what is unusual about each.
pub(super) async fn review_asks(services: &Services) -> Result<AskReview, EngineError> {
    let waiting = services.journal.store.asks(Some(AskState::Open), MAX_LISTED).await?;
    let latest = services.journal.store.latest_asks(MAX_COMPARED).await?;
    let approved: Vec<ReviewedAsk<'_>> =
        latest.iter().filter(|ask| ask.state == AskState::Used).map(as_compared).collect();
    let groups = review::review_asks(&waiting.iter().map(as_compared).collect::<Vec<_>>(), &approved);
    let cards: BTreeMap<&AskId, &Card> = waiting.iter().map(|ask| (&ask.card.ask_id, &ask.card)).collect();
    let member = |member: &GroupMember| {
        let card = cards.get(&member.ask);
        GroupedAsk {
            ask_id: member.ask.clone(),
            anomalies: member.anomalies.clone(),
            alone: member.alone.map(str::to_owned),
            together: member.goes_with_others(),
            band: member.band,
            risk: card.map(|card| card.risk),
            intent: card.map(|card| show::escape_line(&card.intent)),
        }
    };
    let groups = groups.iter().map(|group| AskGroup {
        likeness: group.likeness.clone(),
        asks: group.members.iter().map(member).collect(),
    });
    Ok(AskReview { groups: groups.collect() })
}

fn as_compared(ask: &StoredAsk) -> ReviewedAsk<'_> {
    ReviewedAsk {
        ask: &ask.card.ask_id,
        prepared: &ask.prepared,
        risk: ask.card.risk,
        approvers: ask.card.approvers,
        shown_bytes: ask.card.shown.len(),
        at: ask.card.asked_at,
    }
}

/// Undoes what an attempt has done, or asks a person first.
pub(super) async fn undo_attempt(
    services: &Arc<Services>,
    who: &Authenticated<()>,
    AttemptName { attempt }: AttemptName,
) -> Result<UndoOutcome, EngineError> {
    let (doing, who) = (Arc::clone(services), who.clone());
    // A task of its own, as for an answer to an ask: it ends even if the caller disconnects.
    let undone = services.life.turns.spawn(async move { undo::undo(&doing, &who, attempt).await }).await;
    let undone = undone.unwrap_or_else(|error| Err(EngineError::Machine(error.to_string())));
    Ok(match undone? {
        Undone::Asked(ask_id) => UndoOutcome::Asked { state: "asked".to_owned(), ask_id },
        Undone::Settled(Answered { state, reason, text, exit }) => {
            UndoOutcome::Settled(AnswerOutcome { state, reason, text, exit })
        }
    })
}

/// Lists what one tap undoes now, in every session.
pub(super) async fn list_undos(services: &Services) -> Result<UndoOffers, EngineError> {
    let ways = services.journal.store.undos_until(services.journal.valid_now(), MAX_LISTED).await?;
    let undos = ways.iter().map(|way| UndoOffer {
        attempt: way.attempt,
        session: way.session,
        at: way.at,
        until: way.until,
        project: show::escape_line(&way.way.root),
        files: way.way.changes.len(),
    });
    Ok(UndoOffers { undos: undos.collect() })
}

/// Finds the latest change of a session's project that can be undone.
pub(super) async fn latest_undo(
    services: &Services,
    joined: Option<SessionId>,
    which: &SessionOrProject,
) -> Result<LatestUndo, EngineError> {
    let session = find_session(which, services, joined).await?;
    Ok(LatestUndo { session: session.id, attempt: way_back::last_way_back(services, session.id).await? })
}

#[cfg(test)]
mod tests {
    use writ_types::digest::Digest;
    use writ_types::entry::Risk;
    use writ_types::unit::Timestamp;

    use super::*;

    #[test]
    fn a_long_list_is_cut_and_says_so() {
        let card = |shown: &str| Card {
            ask_id: "Ab3dEf9Z".parse().expect("an id"),
            session: None,
            action: "write_file".to_owned(),
            intent: "apply".to_owned(),
            risk: Risk::Medium,
            rationale: String::new(),
            choices: Vec::new(),
            shown: shown.to_owned(),
            prepared: Digest::of_bytes(b"prepared"),
            shown_hash: Digest::of_bytes(shown.as_bytes()),
            asked_at: Timestamp::from_millis(0),
            expires_at: Timestamp::from_millis(1),
            state: "open".to_owned(),
            task: None,
            standing: None,
            values: Vec::new(),
            host: None,
            approvers: 1,
            approved_by: Vec::new(),
            undo_secs: 0,
        };
        let cards = vec![card("short"), card(&"x".repeat(2_000)), card("short")];
        assert_eq!(fit_cards(cards.clone(), 10_000).1, 0);
        let (fit, more) = fit_cards(cards, 1_000);
        assert_eq!((fit.len(), more), (1, 2), "in order: none is passed over");
    }
}
