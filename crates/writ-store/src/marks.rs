//! Marks of the writer that say without a read whether something may have changed.

use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::batch::Op;

/// The marks of a store.
#[derive(Debug, Default)]
pub(crate) struct StoreMarks {
    /// True once anything was revoked: most homes have nothing to look up.
    pub(crate) revoked: AtomicBool,
    /// Grows with each commit after which approvals, asks or approver keys may be others, before its receipt comes.
    pub(crate) consent: AtomicU64,
    /// The number of transactions since the store was opened.
    pub(crate) transactions: AtomicU64,
}

/// Returns true if an operation changes no answered ask, no approval and no approver key. One that is not named here counts
/// as if it did.
pub(crate) fn leaves_consent(op: &Op) -> bool {
    if let Op::Redeem(redemption) = op {
        return redemption.approval.is_none();
    }
    matches!(
        op,
        Op::Append(_)
            | Op::OpenSession(_)
            | Op::Sessions(_)
            | Op::SetSessionMetadata { .. }
            | Op::EnqueueMessage(_)
            | Op::EnqueueFor { .. }
            | Op::LeaseMessage { .. }
            | Op::LeaseFor { .. }
            | Op::Heartbeat { .. }
            | Op::AckMessage { .. }
            | Op::AbsorbMessage { .. }
            | Op::NackMessage { .. }
            | Op::EndMessage { .. }
            | Op::OpenTurn(_)
            | Op::TurnEvent { .. }
            | Op::CloseTurn { .. }
            | Op::Frame { .. }
            | Op::Reply { .. }
            | Op::Chronicle(_)
            | Op::AddUsage(_)
            | Op::OpenAsk(_)
            | Op::KeepResult(_)
            | Op::StoreFile(_)
            | Op::DropResults(_)
            | Op::AddCounter { .. }
            | Op::Remember(_)
            | Op::Jobs(_)
            | Op::Tools(_)
            | Op::Outbox(_)
            | Op::Operations(_)
            | Op::Fleet(_)
    )
}
