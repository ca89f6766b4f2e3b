//! Payloads of the ledger that go: when the owner says so, and when they are old. What is left is proven as before.

use std::time::Duration;

use serde_json::Value;
use writ_store::batch::{Batch, Op, SessionOp};
use writ_store::ledger::erase::MAX_ERASED_AT_ONCE;
use writ_store::reads::{LedgerReads as _, SessionReads as _};
use writ_store::sessions::{DELETED_AT, ERASED_AT, ERASING_AT, SessionRow};
use writ_types::api::session::SessionErasure;
use writ_types::entry::Fact;
use writ_types::id::{EntrySeq, ItemId, SessionId};
use writ_types::unit::Timestamp;

use crate::error::EngineError;
use crate::services::Services;

/// A day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The time after which the content of a deleted session is erased.
pub(crate) const DELETED_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The most sessions whose erasure is gone on with at once; the next look takes those that were tried longest ago.
const MAX_ERASED_SESSIONS: usize = 1_000;
/// The interval between looks for old payloads, once a look has found none.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(60 * 60);

/// Erases the payloads of entries, all or none, and says so in the ledger. Returns how many.
///
/// # Errors
///
/// If one of them is not there, is erased already, or is needed; or if there are too many.
pub(crate) async fn erase(
    services: &Services,
    mut entries: Vec<EntrySeq>,
    by: &str,
    reason: &str,
) -> Result<usize, EngineError> {
    // Named twice, an entry would be erased twice, which is a conflict and would refuse all of them.
    entries.sort_unstable();
    entries.dedup();
    let wrong = |why: String| EngineError::Params { method: "ledger.erase".to_owned(), why };
    if entries.is_empty() || entries.len() > MAX_ERASED_AT_ONCE {
        return Err(wrong(format!("name 1 to {MAX_ERASED_AT_ONCE} entries at once")));
    }
    if reason.trim().is_empty() {
        return Err(wrong("say why: the reason stays in the ledger".to_owned()));
    }
    let size = services.journal.store.ledger_size().await.unwrap_or(0);
    if let Some(missing) = entries.last().filter(|last| last.0 >= size) {
        return Err(EngineError::NoEntry(*missing));
    }
    let at = services.journal.clock.now();
    let (by, reason, count) = (by.to_owned(), reason.trim().to_owned(), entries.len());
    let mut ops = vec![services.journal.own_entry(Fact::Erased { entries: runs(&entries), by, reason })];
    ops.extend(entries.into_iter().map(|entry| Op::ErasePayload { entry, at }));
    services.journal.store.commit(Batch::synced(ops)).await?;
    Ok(count)
}

/// Erases some of the payloads that are older than the configured retention; returns how many.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn erase_old(services: &Services) -> Result<usize, EngineError> {
    let days = services.config.ledger.retention_days;
    if days == 0 {
        return Ok(0);
    }
    let now = services.journal.clock.now();
    let kept = i64::try_from(DAY.saturating_mul(days).as_millis()).unwrap_or(i64::MAX);
    let before = Timestamp::from_millis(now.as_millis().saturating_sub(kept));
    let old = services.journal.store.old_payloads(before, now).await?;
    if old.is_empty() {
        return Ok(0);
    }
    erase(services, old, "retention", &format!("older than ledger.retention_days = {days}")).await
}

/// Erases the content of a deleted session: what it holds, and what the ledger has of it as far as nothing rests on that. What
/// is needed until something has ended goes at a later look; so does the rest if the engine ends in between.
///
/// # Errors
///
/// If it was not deleted and closed, a turn of it is open, or the store cannot be read or written.
pub(crate) async fn erase_content(
    services: &Services,
    session: SessionId,
    by: &str,
) -> Result<SessionErasure, EngineError> {
    let at = services.journal.clock.now();
    let op = Op::Sessions(SessionOp::Erase { session, at });
    services.journal.store.commit(Batch::synced(vec![op])).await?;
    // After the commit: what is loaded from here on has no content.
    services.sessions.drop_loaded(session);
    let mut entries = 0_usize;
    loop {
        let remains = services.journal.store.session_remains(session, at).await?;
        if !remains.erasable.is_empty() {
            let reason = format!("session {session} was deleted");
            entries = entries.saturating_add(erase(services, remains.erasable, by, &reason).await?);
            continue;
        }
        if remains.waiting == 0 {
            let end = Op::Sessions(SessionOp::EndErasure { session, at });
            services.journal.store.commit(Batch::synced(vec![end])).await?;
        }
        let left = remains.waiting.saturating_add(remains.lasting);
        let hint = hint_about(&remains.items);
        return Ok(SessionErasure { session, entries, left, items: remains.items, hint });
    }
}

/// Returns what can be done about the work items that an erasure waits for.
fn hint_about(items: &[ItemId]) -> String {
    let Some(first) = items.first() else { return String::new() };
    let names: Vec<String> = items.iter().map(ToString::to_string).collect();
    format!(
        "work that goes on needs the rest: {}; `writ work cancel {first}` ends it, else wait for its end. What is left is erased \
         within the hour after that",
        names.join(", ")
    )
}

/// Erases the content of sessions that were deleted long ago, and goes on with erasures that have begun; returns how many it has
/// tried without an error. One that fails keeps no other from being erased.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn erase_deleted(services: &Services) -> Result<usize, EngineError> {
    let before = services.journal.clock.now().minus_duration(DELETED_FOR);
    let mut erased = 0_usize;
    for session in services.journal.store.sessions_to_erase(before, MAX_ERASED_SESSIONS).await? {
        match erase_content(services, session, "retention").await {
            Ok(_) => erased += 1,
            Err(error) => {
                tracing::warn!(%session, %error, "the content of a deleted session is not erased yet")
            }
        }
    }
    Ok(erased)
}

/// Returns true if the content of a session was erased, or is being erased.
pub(crate) fn is_erased(row: &SessionRow) -> bool {
    row.metadata.contains_key(ERASED_AT) || row.metadata.contains_key(ERASING_AT)
}

/// Returns when a session was deleted.
pub(crate) fn deleted_at(row: &SessionRow) -> Option<Timestamp> {
    row.metadata.get(DELETED_AT).and_then(Value::as_str).and_then(Timestamp::from_rfc_3339)
}

/// The first and last of each run of sorted entries.
fn runs(entries: &[EntrySeq]) -> Vec<(EntrySeq, EntrySeq)> {
    let mut runs: Vec<(EntrySeq, EntrySeq)> = Vec::new();
    for entry in entries {
        match runs.last_mut() {
            Some((_, last)) if last.0.checked_add(1) == Some(entry.0) => *last = *entry,
            Some(_) | None => runs.push((*entry, *entry)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_told_by_their_ends() {
        let entries = [1, 2, 3, 7, 9, 10].map(EntrySeq);
        assert_eq!(runs(&entries), [(1, 3), (7, 7), (9, 10)].map(|(a, b)| (EntrySeq(a), EntrySeq(b))));
        assert_eq!(runs(&[]), []);
    }
}
