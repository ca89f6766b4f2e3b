//! The store's side of the door.

use writ_policy::permit::{Journal, RedeemError, Redemption};
use writ_types::entry::Fact;
use writ_types::id::EntrySeq;

use crate::batch::{Batch, Op};
use crate::error::{Conflict, StoreError};
use crate::store::Store;

impl Journal for Store {
    async fn redeem(&self, redemption: Redemption) -> Result<EntrySeq, RedeemError> {
        let attempt = redemption.attempt;
        if !matches!(&redemption.intent.fact, Fact::Intent { attempt: named, .. } if *named == attempt) {
            return Err(RedeemError::Unwritable("the entry is not this attempt's intent".to_owned()));
        }
        let batch = Batch { durability: redemption.durability, ops: vec![Op::Redeem(Box::new(redemption))] };
        match self.commit(batch).await {
            Ok(receipt) => receipt
                .entries
                .first()
                .copied()
                .ok_or_else(|| RedeemError::Unwritable("no entry was written".to_owned())),
            Err(StoreError::Conflict(Conflict::ApprovalSpent(ask))) => Err(RedeemError::ApprovalSpent(ask)),
            Err(StoreError::Conflict(Conflict::Exhausted(limit))) => Err(RedeemError::Exhausted(limit)),
            Err(error) => Err(RedeemError::Unwritable(error.to_string())),
        }
    }
}
