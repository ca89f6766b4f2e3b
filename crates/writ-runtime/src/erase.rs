//! Payloads of the ledger that go: when the owner says so, and when they are old. What is left is proven as before.

use std::time::Duration;

use writ_store::batch::{Batch, Op};
use writ_store::ledger::erase::MAX_ERASED_AT_ONCE;
use writ_store::reads::LedgerReads as _;
use writ_types::entry::Fact;
use writ_types::id::EntrySeq;
use writ_types::unit::Timestamp;

use crate::error::EngineError;
use crate::services::Services;

/// A day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
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
