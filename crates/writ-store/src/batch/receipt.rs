//! The result of a batch.

use writ_types::id::{AskId, EntrySeq, SessionId};

use crate::error::StoreError;
use crate::queue::Leased;

/// The result of a batch: numbers in the order of its operations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Receipt {
    /// The position of each appended entry in the ledger.
    pub entries: Vec<EntrySeq>,
    /// The frames stored, with their numbers.
    pub frames: Vec<FrameNumber>,
    /// The last entry that the reply of [`Op::Reply`](super::Op::Reply) rests on.
    pub rests_on: Option<EntrySeq>,
    /// The asks opened or found.
    pub asks: Vec<AskOpened>,
    /// The messages leased: `None` for a lease that found nothing.
    pub leased: Vec<Option<Leased>>,
    /// The number of each message that was appended to the outbox.
    pub outbox: Vec<u64>,
    /// The value of each counter after it was added to.
    pub counters: Vec<u64>,
    /// The number of rows changed by operations without a number of their own (requeue, expiry, pruning).
    pub changed: u64,
    /// The transaction that wrote it, counted from one since the store was opened: batches with the
    /// same number were synced together.
    pub transaction: u64,
}

/// The results of a batch and of the operations written before it.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteResults {
    /// The result of the operations written first.
    pub first: Receipt,
    /// The batch; an error took nothing but the batch with it.
    pub batch: Result<Receipt, StoreError>,
}

/// The number of a stored frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameNumber {
    /// The session.
    pub session: SessionId,
    /// The frame's number in it, counted from one.
    pub seq: u64,
}

/// The result of [`Op::OpenAsk`](super::Op::OpenAsk).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskOpened {
    /// The ask that is open now.
    pub ask: AskId,
    /// True if it was open before.
    pub merged: bool,
}
