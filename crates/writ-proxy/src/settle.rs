//! Operations that were cut off: what the ledger shows as begun when the proxy starts has an unknown outcome.

use writ_runtime::clock::Clock;
use writ_store::batch::{Batch, Op};
use writ_store::reads::LedgerReads as _;
use writ_store::store::Store;
use writ_types::chat::ToolOutcome;
use writ_types::digest::Digest;
use writ_types::entry::{Entry, Fact};
use writ_types::taint::{Label, Taint};

use crate::error::ProxyError;

/// The most outcomes that are written in one transaction.
const MAX_AT_ONCE: usize = 256;

/// Records the outcome of everything that was under way as unknown. Nothing of it is performed again.
pub(crate) async fn settle_open(store: &Store, clock: &dyn Clock) -> Result<(), ProxyError> {
    let open = store.open_intents().await?;
    for group in open.chunks(MAX_AT_ONCE) {
        let ops = group.iter().map(|intent| {
            Op::Append(Box::new(Entry {
                at: clock.now(),
                session: intent.entry.as_ref().and_then(|entry| entry.session),
                turn: None,
                turn_number: 0,
                fact: Fact::Outcome {
                    attempt: intent.attempt,
                    outcome: ToolOutcome::Unknown,
                    summary: "the proxy ended while it ran".to_owned(),
                    result: Digest::of_bytes(b""),
                    label: Label::new(Taint::External),
                },
            }))
        });
        store.commit(Batch::synced(ops.collect())).await?;
    }
    Ok(())
}
