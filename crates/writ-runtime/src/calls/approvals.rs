//! What is asked, what is approved, and what is undone.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use writ_policy::principal::Authenticated;
use writ_policy::review::{self, Asked, Member};
use writ_policy::show;
use writ_store::approvals::{Ask, AskState};
use writ_types::frame::Card;
use writ_types::id::{AskId, AttemptId, SessionId};

use super::{MAX_LISTED, MAX_LISTED_BYTES, WhichSession, gates, value};
use crate::core::Core;
use crate::engine::{Answered, Undone};
use crate::error::EngineError;

/// The most answered asks that what waits is compared with.
const MAX_COMPARED: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListAsks {
    #[serde(default)]
    all: bool,
}

/// What is asked, and which gates ask about a text.
pub(super) fn list(core: &Core, list: &ListAsks) -> Result<Value, EngineError> {
    let state = if list.all { None } else { Some(AskState::Open) };
    let asks = core.store.asks(state, MAX_LISTED)?;
    let (cards, more) = fitting(asks.into_iter().map(|ask| ask.card).collect(), MAX_LISTED_BYTES);
    Ok(json!({ "asks": cards, "more": more, "gates": gates::waiting(core) }))
}

/// The first cards that fit into `most` bytes of JSON, and how many are left out.
fn fitting(mut cards: Vec<Card>, most: usize) -> (Vec<Card>, usize) {
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShowAsk {
    pub(super) ask: AskId,
}

/// One ask, whole.
pub(super) fn show(core: &Core, show: ShowAsk) -> Result<Value, EngineError> {
    let ask = core.store.ask(&show.ask)?;
    value(&ask.ok_or(EngineError::NoAsk(show.ask))?.card)
}

/// What waits, in groups of what is alike, with what is unusual about each.
pub(super) fn review(core: &Core) -> Result<Value, EngineError> {
    let waiting = core.store.asks(Some(AskState::Open), MAX_LISTED)?;
    let latest = core.store.latest_asks(MAX_COMPARED)?;
    let approved: Vec<Asked<'_>> =
        latest.iter().filter(|ask| ask.state == AskState::Used).map(compared).collect();
    let groups = review::review(&waiting.iter().map(compared).collect::<Vec<_>>(), &approved);
    let cards: BTreeMap<&AskId, &Card> = waiting.iter().map(|ask| (&ask.card.ask_id, &ask.card)).collect();
    let member = |member: &Member| {
        let card = cards.get(&member.ask);
        json!({
            "ask_id": member.ask, "anomalies": member.anomalies, "alone": member.alone,
            "together": member.goes_with_others(), "risk": card.map(|card| card.risk),
            "intent": card.map(|card| show::escape_line(&card.intent)),
        })
    };
    let groups = groups.iter().map(|group| {
        json!({ "likeness": group.likeness, "asks": group.members.iter().map(member).collect::<Vec<_>>() })
    });
    Ok(json!({ "groups": groups.collect::<Vec<_>>() }))
}

fn compared(ask: &Ask) -> Asked<'_> {
    Asked {
        ask: &ask.card.ask_id,
        prepared: &ask.prepared,
        risk: ask.card.risk,
        approvers: ask.card.approvers,
        shown_bytes: ask.card.shown.len(),
        at: ask.card.asked_at,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WhichAttempt {
    attempt: AttemptId,
}

/// Undoes what an attempt has done, or asks whether to.
pub(super) async fn undo(
    core: &Arc<Core>,
    who: &Authenticated<()>,
    which: &WhichAttempt,
) -> Result<Value, EngineError> {
    let (doing, who, attempt) = (Arc::clone(core), who.clone(), which.attempt);
    // In a task of its own, as an answer to an ask.
    let undone = core.turns.spawn(async move { doing.undo(&who, attempt).await }).await;
    let undone = undone.unwrap_or_else(|error| Err(EngineError::Machine(error.to_string())));
    Ok(match undone? {
        Undone::Asked(ask) => json!({ "state": "asked", "ask_id": ask }),
        Undone::Settled(Answered { state, reason, text, exit }) => {
            json!({ "state": state, "reason": reason, "text": text, "exit": exit })
        }
    })
}

/// What one tap undoes now, in every session.
pub(super) fn undos(core: &Core) -> Result<Value, EngineError> {
    let ways = core.store.undos_until(core.valid_now(), MAX_LISTED)?;
    let shown = ways.iter().map(|way| {
        json!({
            "attempt": way.attempt, "session": way.session, "at": way.at, "until": way.until,
            "project": show::escape_line(&way.way.root), "files": way.way.changes.len(),
        })
    });
    Ok(json!({ "undos": shown.collect::<Vec<_>>() }))
}

/// What was brought into the project last and can be undone.
pub(super) fn last(
    core: &Core,
    joined: Option<SessionId>,
    which: &WhichSession,
) -> Result<Value, EngineError> {
    let session = which.find(core, joined)?;
    Ok(json!({ "session": session.id, "attempt": core.last_way_back(session.id)? }))
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
            prepared: Digest::of(b"prepared"),
            shown_hash: Digest::of(shown.as_bytes()),
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
        assert_eq!(fitting(cards.clone(), 10_000).1, 0);
        let (fit, more) = fitting(cards, 1_000);
        assert_eq!((fit.len(), more), (1, 2), "in order: none is passed over");
    }
}
