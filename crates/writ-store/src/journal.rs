//! The store's side of the door.

use std::sync::{Mutex, PoisonError};

use writ_policy::permit::{Journal, RedeemError, Redemption};
use writ_types::entry::Fact;
use writ_types::id::EntrySeq;

use crate::batch::{Batch, FrameNumber, Op};
use crate::error::{Conflict, StoreError};
use crate::store::Store;

/// The store, with operations that are written before a redemption, in its transaction, also if the
/// redemption is refused. The first redemption takes them along.
#[derive(Debug)]
pub struct JournalWithOps<'a> {
    store: &'a Store,
    first: Mutex<Vec<Op>>,
    frames: Mutex<Vec<FrameNumber>>,
}

impl<'a> JournalWithOps<'a> {
    /// The store, with what is to be written first.
    pub const fn new(store: &'a Store, first: Vec<Op>) -> Self {
        Self { store, first: Mutex::new(first), frames: Mutex::new(Vec::new()) }
    }

    /// The numbers of the frames that were written first, once they are.
    pub fn into_frames(self) -> Vec<FrameNumber> {
        self.frames.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for JournalWithOps<'_> {
    async fn redeem(&self, redemption: Redemption) -> Result<EntrySeq, RedeemError> {
        let first = std::mem::take(&mut *self.first.lock().unwrap_or_else(PoisonError::into_inner));
        let (redeemed, frames) = redeem(self.store, first, redemption).await;
        *self.frames.lock().unwrap_or_else(PoisonError::into_inner) = frames;
        redeemed
    }
}

impl Journal for Store {
    async fn redeem(&self, redemption: Redemption) -> Result<EntrySeq, RedeemError> {
        redeem(self, Vec::new(), redemption).await.0
    }
}

async fn redeem(
    store: &Store,
    first: Vec<Op>,
    redemption: Redemption,
) -> (Result<EntrySeq, RedeemError>, Vec<FrameNumber>) {
    let attempt = redemption.attempt;
    // The door hands over entry and attempt apart; a mismatch would index the wrong one.
    if !matches!(&redemption.intent.fact, Fact::Intent { attempt: named, .. } if *named == attempt) {
        let why = "the entry is not this attempt's intent".to_owned();
        return (Err(RedeemError::Unwritable(why)), Vec::new());
    }
    // One operation, so that approval, nonce, reservation and intent stand or fall together.
    let batch = Batch { durability: redemption.durability, ops: vec![Op::Redeem(Box::new(redemption))] };
    let (written, frames) = match store.commit_after(first, batch).await {
        Ok(written) => (written.batch, written.first.frames),
        Err(error) => (Err(error), Vec::new()),
    };
    let redeemed = match written {
        Ok(receipt) => receipt
            .entries
            .first()
            .copied()
            .ok_or_else(|| RedeemError::Unwritable("no entry was written".to_owned())),
        Err(StoreError::Conflict(Conflict::ApprovalSpent(ask))) => Err(RedeemError::ApprovalSpent(ask)),
        Err(StoreError::Conflict(Conflict::Revoked(_))) => Err(RedeemError::Revoked),
        Err(StoreError::Conflict(Conflict::Exhausted(limit))) => Err(RedeemError::Exhausted(limit)),
        Err(StoreError::Conflict(Conflict::UsedUp(parameter))) => Err(RedeemError::UsedUp(parameter)),
        Err(StoreError::Conflict(Conflict::Repeated(name))) => Err(RedeemError::Repeated(name)),
        // No other outcome of the store leads to a permit.
        Err(error) => Err(RedeemError::Unwritable(error.to_string())),
    };
    (redeemed, frames)
}
