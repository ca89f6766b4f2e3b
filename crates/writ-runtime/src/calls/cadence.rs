//! The cadence of questions, for surfaces: how they were answered, and what that speaks for.

use std::time::Duration;

use writ_policy::cadence::{
    AnswerTime, AnsweredAsk, COUNTED_FOR, LastingApproval, count_answers, speaks_for_asking,
};
use writ_policy::review::describe_likeness;
use writ_store::approvals::{AskState, StoredAsk};
use writ_store::reads::{ApprovalReads as _, AskReads as _, UndoReads as _};
use writ_types::api::approval::{AskCadence, CadenceDirection, CadenceOffer};
use writ_types::unit::Timestamp;

use super::MAX_LISTED;
use crate::error::EngineError;
use crate::services::Services;
use crate::session::APPLY;

/// The most answered asks that are counted, newest first.
const MAX_COUNTED: usize = 1_000;
/// The most offers of one answer: a person reads few.
const MAX_OFFERS: usize = 5;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Measures how questions were answered in the last 30 days.
pub(super) async fn measure_cadence(services: &Services) -> Result<AskCadence, EngineError> {
    let store = &services.journal.store;
    let now = services.journal.valid_now();
    let since = now.minus_duration(COUNTED_FOR);
    let latest = store.latest_asks(MAX_COUNTED).await?;
    let asks: Vec<AnsweredAsk> =
        latest.iter().filter(|ask| ask.card.asked_at >= since).filter_map(answered).collect();
    let (all, alike) = count_answers(&asks);
    let (applied, undone) = store.undo_counts(since).await?;
    let undone_of = |ask: &StoredAsk| if ask.prepared.tool == APPLY { undone } else { 0 };
    let mut offers = Vec::new();
    for ask in store.asks(Some(AskState::Open), MAX_LISTED).await? {
        let likeness = describe_likeness(&ask.prepared);
        let Some(counts) = alike.get(likeness.as_str()) else { continue };
        let undone = undone_of(&ask);
        let lasts = ask.card.standing.is_some() || ask.card.task.is_some();
        let is_new = offers.iter().all(|offer: &CadenceOffer| offer.likeness != likeness);
        if lasts && is_new && counts.speaks_for_longer(usize::try_from(undone).unwrap_or(usize::MAX)) {
            offers.push(CadenceOffer {
                direction: CadenceDirection::Widen,
                ask_id: ask.card.ask_id.clone(),
                likeness,
                approved: counts.approved,
                denied: counts.denied,
                undone,
                median_ms: counts.median.map(millis),
            });
        }
    }
    for (ask, _) in store.task_approvals(None, now, MAX_LISTED).await? {
        let likeness = describe_likeness(&ask.prepared);
        let given_at = ask.resolved_at.unwrap_or(ask.card.asked_at);
        // Only undone changes after the approval count against it.
        let undone = if ask.prepared.tool == APPLY { store.undo_counts(given_at).await?.1 } else { 0 };
        let lasting = LastingApproval {
            ask: ask.card.ask_id.clone(),
            likeness: likeness.clone(),
            given_at,
            undone: usize::try_from(undone).unwrap_or(usize::MAX),
        };
        if let Some(denied) = speaks_for_asking(&lasting, &asks) {
            let counts = alike.get(likeness.as_str());
            offers.push(CadenceOffer {
                direction: CadenceDirection::Narrow,
                ask_id: lasting.ask,
                likeness,
                approved: counts.map_or(0, |counts| counts.approved),
                denied,
                undone,
                median_ms: counts.and_then(|counts| counts.median).map(millis),
            });
        }
    }
    offers.truncate(MAX_OFFERS);
    Ok(AskCadence {
        days: COUNTED_FOR.as_secs() / DAY.as_secs(),
        approved: all.approved,
        denied: all.denied,
        expired: all.expired,
        median_ms: all.median.map(millis),
        applied,
        undone,
        offers,
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The answer to an ask; `None` while it is open.
fn answered(ask: &StoredAsk) -> Option<AnsweredAsk> {
    let answer = match ask.state {
        AskState::Open => return None,
        AskState::Approved | AskState::Used => AnswerTime::Approved,
        AskState::Denied => AnswerTime::Denied,
        AskState::Expired => AnswerTime::Expired,
    };
    let answered_at: Timestamp = ask.resolved_at?;
    Some(AnsweredAsk {
        likeness: describe_likeness(&ask.prepared),
        asked_at: ask.card.asked_at,
        answered_at,
        answer,
    })
}
