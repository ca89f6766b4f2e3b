//! Subscriptions of a session: files, lines and URLs, read into the context at the beginning of each turn.
//!
//! Each reading is an action of its own that passes the door. A reading that would need an ask is not made;
//! the item then contains the reason, as does an item that cannot be read.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use writ_agent::event::WorkspaceItem;
use writ_inspect::prepared::{Prepared, Sink};
use writ_store::batch::Op;
use writ_tools::outcome::PerformedOutcome;
use writ_tools::render::render_result;
use writ_types::chat::{CHARS_PER_TOKEN, estimate_tokens};
use writ_types::error::ToReport as _;
use writ_types::quarantine::Quarantine;
use writ_types::taint::Label;

use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::outcome::outcome_entry;
use crate::passage;
use crate::pending::Pending;
use crate::perform::{self, subscribe};
use crate::place::CallPlace;
use crate::session::{SUBSCRIPTIONS, Session};
use crate::subscription::{Subscription, TOOL};
use crate::trace;

/// The most estimated tokens of all subscriptions of a session together: an eighteenth of the default context.
const MAX_TOKENS: u64 = 10_000;
/// The longest that readings may delay a turn: after it no reading begins, and the last ends within a fetch's
/// limit.
const READING_MAX: Duration = Duration::from_secs(20);

impl Session {
    /// Notes which subscriptions a text of this turn refers to.
    pub(crate) fn refer(&self, text: &str) {
        self.state().subscriptions.note_references(text);
    }
}

/// Renews the subscriptions that a turn has referred to: in its person's message, in its reply, or in an
/// action ([`Session::refer`]). An approved subscription lasts only as long as it was approved for. Returns
/// `None` if nothing changes.
pub(crate) fn renewal<'a>(session: &'a Session, number: u64, said: &[&str]) -> Option<Renewal<'a>> {
    for text in said {
        session.refer(text);
    }
    // Where they are being changed right now, nothing begins anew: the next reference does it.
    let one_at_a_time = session.granting.try_lock().ok()?;
    let mut state = session.state();
    let referred = std::mem::take(&mut state.subscriptions.referred);
    let mut list = state.subscriptions.list.clone();
    for one in list.iter_mut().filter(|one| !one.approved && referred.contains(&one.id)) {
        one.last_turn = one.last_turn.max(number.saturating_add(one.turns));
    }
    if list == state.subscriptions.list {
        return None;
    }
    let value = Some(serde_json::to_value(&list).ok()?);
    drop(state);
    let op = Op::SetSessionMetadata { session: session.id, key: SUBSCRIPTIONS.to_owned(), value };
    Some(Renewal { session, list, op, _one_at_a_time: one_at_a_time })
}

/// Renewed subscriptions that are not stored yet; it holds the lock, so that nothing else changes them until
/// then.
pub(crate) struct Renewal<'a> {
    session: &'a Session,
    list: Vec<Subscription>,
    pub(crate) op: Op,
    _one_at_a_time: tokio::sync::MutexGuard<'a, ()>,
}

impl Renewal<'_> {
    /// It is stored.
    pub(crate) fn stored(self) {
        self.session.state().subscriptions.list = self.list;
    }
}

/// Reads everything that the session is subscribed to, until `cancel` says so, and ends what has had its turns.
///
/// # Errors
///
/// If the store cannot be written. What cannot be read says so in its text.
pub(crate) async fn materialize(
    place: &CallPlace,
    cancel: &CancellationToken,
) -> Result<Vec<WorkspaceItem>, EngineError> {
    let list = still_kept(place).await?;
    place.services.count_subscriptions();
    let titles = list.iter().map(|one| estimate_tokens(&one.title()).get());
    let mut left = MAX_TOKENS.saturating_sub(titles.sum());
    let mut items = Vec::new();
    let began = place.services.journal.clock.now();
    for one in list {
        let (text, label) = if cancel.is_cancelled() {
            ("[not read: the turn was stopped]".to_owned(), one.label())
        } else if place.services.journal.clock.now().time_since(began) < READING_MAX {
            let span = trace::subscription(place.session.id, place.turn);
            look(place, &one, cancel).instrument(span).await?
        } else {
            ("[not read: the others took too long]".to_owned(), one.label())
        };
        let text = within(&text, left);
        left = left.saturating_sub(estimate_tokens(&text).get());
        items.push(WorkspaceItem { title: one.title(), id: one.id, text, label, done: false });
    }
    Ok(items)
}

/// The subscriptions that have turns left; the others end.
async fn still_kept(place: &CallPlace) -> Result<Vec<Subscription>, EngineError> {
    // Until they are written only: the readings may note new hosts, which takes the same lock.
    let _one_at_a_time = place.session.granting.lock().await;
    let all = place.session.state().subscriptions.list.clone();
    let list: Vec<Subscription> = all.iter().filter(|one| one.last_turn >= place.number).cloned().collect();
    if list.len() < all.len() {
        subscribe::keep_subscriptions(&place.services, &place.session, list.clone()).await?;
    }
    Ok(list)
}

/// Reads the current content of a subscription. The result also carries the label of the target.
async fn look(
    place: &CallPlace,
    one: &Subscription,
    cancel: &CancellationToken,
) -> Result<(String, Label), EngineError> {
    let own = one.label();
    let reader = if one.is_of_the_web() { "web_fetch" } else { "file_read" };
    if place.services.servers.registry().quarantine_of(reader) != Quarantine::Never {
        let why = format!("[not read: the results of {reader} are withheld from you]");
        return Ok((why, own));
    }
    let standing =
        RequestContext { mode: place.session.mode(), ..RequestContext::of(&place.authority, place.spent) };
    let permit = match passage::pass(&place.services, reading(place, one), standing).await? {
        Passage::Permit(permit) => permit,
        Passage::Denied(denial) => {
            return Ok((
                place
                    .services
                    .journal
                    .redactor
                    .mask_text(&format!("[not read: {}]", denial.outside_text()))
                    .into_owned(),
                own,
            ));
        }
        Passage::Ask(_) => {
            let why = "[not read: its host has to be listed, or the user has to write its URL]";
            return Ok((why.to_owned(), own));
        }
        Passage::Simulated(_) => {
            return Ok(("[not read: this session only simulates]".to_owned(), own));
        }
    };
    let attempt = permit.attempt();
    let prepared = permit.prepared().clone();
    let reading = perform::perform(place, *permit, cancel);
    let read = tokio::select! {
        biased;
        // A reading that the stop has ended says nothing of what was to be read.
        () = place.services.life.stop_now.cancelled() => return Err(EngineError::Stopping),
        read = reading => read,
    };
    let (mut outcome, mut ops) = match read {
        Ok(performed) => (performed.outcome, performed.ops),
        // A turn can go on without what it is subscribed to.
        Err(EngineError::Sandbox(error)) => {
            (PerformedOutcome::Failed { report: error.report() }, Pending::new())
        }
        Err(error) => return Err(error),
    };
    let rendered = render_result(&prepared, &mut outcome, &place.services.journal.redactor);
    ops.push(place.services.journal.entry(place.session.id, place.at(), outcome_entry(attempt, &rendered)));
    place.services.journal.store.commit(ops.into_relaxed()).await?;
    let mut label = rendered.label;
    label.join(&own);
    Ok((rendered.text.into_string(), label))
}

/// Prepares the reading of a subscription. It rests on the subscription, which has passed the door already.
fn reading(place: &CallPlace, one: &Subscription) -> Prepared {
    Prepared {
        agent: place.profile.agent.clone(),
        session: Some(place.session.id),
        turn: place.turn,
        turn_number: place.number,
        call: None,
        tool: TOOL.to_owned(),
        sinks: vec![Sink { argument: "target".to_owned(), value: one.target.clone() }],
        label: one.reading_label(),
        bindings: Default::default(),
        idempotent: true,
        intent: format!("read what the session is subscribed to: {}", one.title()),
        action: one.action(),
    }
}

/// The number of the newest turn of a session: the one that runs, which may not be stored yet, or the last one.
pub(crate) fn newest_turn(running: Option<u64>, next: u64) -> u64 {
    running.unwrap_or_default().max(next.saturating_sub(1))
}

/// A text within a number of estimated tokens, with a mark where something is missing.
fn within(text: &str, tokens: u64) -> String {
    if estimate_tokens(text).get() <= tokens {
        return text.to_owned();
    }
    let chars = usize::try_from(tokens.saturating_mul(CHARS_PER_TOKEN)).unwrap_or(usize::MAX);
    let kept: String = text.chars().take(chars).collect();
    format!("{kept}\n[cut: the subscriptions of a session have {MAX_TOKENS} tokens together]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_from_the_newest_turn() {
        assert_eq!(newest_turn(None, 1), 0, "before the first");
        assert_eq!(newest_turn(None, 16), 15, "nothing runs: the last one");
        assert_eq!(newest_turn(Some(16), 16), 16, "it runs and is not stored yet");
        assert_eq!(newest_turn(Some(16), 17), 16, "it runs and is stored");
    }

    /// Rows: SIL-087 (the cut)
    #[test]
    fn texts_are_cut_to_what_is_left() {
        assert_eq!(within("short", 100), "short");
        let cut = within(&"x".repeat(1_000), 10);
        assert!(
            cut.starts_with(&"x".repeat(30)) && !cut.contains(&"x".repeat(41)) && cut.contains("[cut"),
            "{cut}"
        );
        assert!(within("text", 0).starts_with("\n[cut"));
    }
}
