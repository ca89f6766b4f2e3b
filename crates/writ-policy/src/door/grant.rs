//! The grant: what the door has allowed, until it is written down.

use std::collections::BTreeSet;

use writ_inspect::prepared::Prepared;
use writ_types::action::Action;
use writ_types::digest::Digest;
use writ_types::entry::{Entry, Fact, Requester};
use writ_types::id::AttemptId;
use writ_types::unit::Timestamp;

use super::Checked;
use crate::budget::Ceilings;
use crate::permit::{
    ApprovalUse, Durability, Journal, OperationUse, Permit, RedeemError, Redemption, RequestOrigin,
    Reservation,
};

/// Leave to perform, once it is written down.
#[derive(Debug)]
#[must_use = "a grant becomes a permit only by redeem"]
pub struct Grant {
    pub(super) checked: Checked,
    pub(super) reservation: Reservation,
    pub(super) ceilings: Ceilings,
    pub(super) approval: Option<ApprovalUse>,
    pub(super) keys: BTreeSet<String>,
    pub(super) expires_at: Timestamp,
    pub(super) operation: OperationUse,
    pub(super) requester: Option<Requester>,
    /// An operation of the security proxy that leaves nothing behind.
    pub(super) only_reads: bool,
}

impl Grant {
    /// Returns the permitted action.
    pub const fn prepared(&self) -> &Prepared {
        &self.checked.prepared
    }

    /// The hash of what was granted.
    pub const fn hash(&self) -> Digest {
        self.checked.hash
    }

    /// The approval that it uses up, if it needed one.
    pub const fn approval(&self) -> Option<&ApprovalUse> {
        self.approval.as_ref()
    }

    /// Adds the origin of a request at the security proxy, which the intent then names.
    pub fn requested_by(mut self, origin: &RequestOrigin) -> Self {
        self.requester = Some(origin.requester.clone());
        self.only_reads = origin.only_reads;
        self.operation.once.clone_from(&origin.once);
        self
    }

    /// Third stage: writes everything in one transaction and makes the permit. The only maker of permits.
    ///
    /// # Errors
    ///
    /// If the approval cannot be consumed, others have taken what was left of a limit, or the ledger cannot be
    /// written; then nothing may be performed.
    pub async fn redeem(
        self,
        journal: &impl Journal,
        attempt: AttemptId,
        now: Timestamp,
    ) -> Result<Permit, RedeemError> {
        // The permit takes the action over, so no second one can be made from the same grant.
        let Checked { prepared, hash, policy: _ } = self.checked;
        let intent = Entry {
            at: now,
            session: prepared.session,
            turn: prepared.turn,
            turn_number: prepared.turn_number,
            fact: Fact::Intent {
                attempt,
                prepared: hash,
                action: prepared.action.clone(),
                call: prepared.call.clone(),
                approval: self.approval.as_ref().map(|used| used.ask.clone()),
                idempotent: prepared.idempotent,
                label: prepared.label.clone(),
                requester: self.requester.map(Box::new),
            },
        };
        // An effect outside must not be possible without its record, also after a loss of power.
        let durability = durability_of(&prepared.action, self.only_reads);
        let redemption = Redemption {
            attempt,
            intent,
            approval: self.approval,
            reservation: self.reservation,
            keys: self.keys,
            ceilings: self.ceilings,
            operation: self.operation,
            durability,
        };
        // The journal consumes approval, nonce and limits in the transaction that writes the intent; if that fails there is no permit.
        // The redemption is consumed by the journal, and the permit says how it was approved.
        let used = redemption.approval.clone();
        let entry = journal.redeem(redemption).await?;
        Ok(Permit::new(prepared, attempt, entry, (self.expires_at, used.as_ref())))
    }
}

/// The intent of an effect is on disk before it happens. Reads, model calls, and what happens in the store itself need
/// only survive the process: there the intent stands before its effect in the same file.
const fn durability_of(action: &Action, only_reads: bool) -> Durability {
    if action.kind().row().is_synced && !only_reads { Durability::Synced } else { Durability::Relaxed }
}
