//! Payloads of the ledger that go: when the owner says so, and when they are old. What is left is proven as before.

use std::time::Duration;

use serde_json::Value;
use writ_store::batch::{Batch, Op, SessionOp};
use writ_store::ledger::erase::MAX_ERASED_AT_ONCE;
use writ_store::reads::{LedgerReads as _, SessionReads as _};
use writ_store::sessions::{DELETED_AT, ERASED_AT, SessionRow};
use writ_types::api::session::SessionErasure;
use writ_types::entry::Fact;
use writ_types::id::{EntrySeq, SessionId};
use writ_types::unit::Timestamp;

use crate::error::EngineError;
use crate::services::Services;

/// A day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The time after which the content of a deleted session is erased.
pub(crate) const DELETED_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The number of sessions, the one used last first, among which deleted ones are looked for at once.
const MAX_LOOKED_AT: usize = 10_000;
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

/// Erases the content of a deleted session: its history, and what the ledger holds of it as far as nothing rests on that.
///
/// # Errors
///
/// If it was not deleted and closed, or the store cannot be read or written.
pub(crate) async fn erase_content(
    services: &Services,
    session: SessionId,
    by: &str,
) -> Result<SessionErasure, EngineError> {
    let at = services.journal.clock.now();
    let op = Op::Sessions(SessionOp::Erase { session, at });
    services.journal.store.commit(Batch::synced(vec![op])).await?;
    services.sessions.loaded().remove(&session);
    let mut entries = 0_usize;
    loop {
        let (found, left) = services.journal.store.session_payloads(session, at).await?;
        if found.is_empty() {
            return Ok(SessionErasure { session, entries, left });
        }
        let reason = format!("session {session} was deleted");
        entries = entries.saturating_add(erase(services, found, by, &reason).await?);
    }
}

/// Erases the content of sessions that were deleted long ago; returns how many.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn erase_deleted(services: &Services) -> Result<usize, EngineError> {
    let now = services.journal.clock.now();
    let mut erased = 0_usize;
    for row in services.journal.store.sessions(MAX_LOOKED_AT).await? {
        let is_due = deleted_at(&row).is_some_and(|at| at.plus_duration(DELETED_FOR) <= now);
        if is_due && !row.metadata.contains_key(ERASED_AT) {
            erase_content(services, row.id, "retention").await?;
            erased += 1;
        }
    }
    Ok(erased)
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
