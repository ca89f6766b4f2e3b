//! The proof that one attempt passed the door, and the journal that makes it so.
//!
//! A [`Permit`] has private fields and is made in one place, `Grant::redeem` of the door. It is neither
//! `Clone` nor serialisable, and the performer of the action consumes it.
//!
//! A performer is written like this:
//!
//! ```
//! use writ_inspect::prepared::Prepared;
//! use writ_policy::permit::{Permit, PermitExpired};
//! use writ_types::unit::Timestamp;
//!
//! fn perform(permit: Permit, now: Timestamp) -> Result<Prepared, PermitExpired> {
//!     Ok(permit.open(now)?.prepared)
//! }
//! ```
//!
//! No permit outside the door: its fields are private.
//!
//! ```compile_fail,E0451
//! use writ_policy::permit::{Opened, Permit};
//! use writ_types::{id::EntrySeq, unit::Timestamp};
//!
//! fn forge(opened: Opened, entry: EntrySeq, expires_at: Timestamp) -> Permit {
//!     Permit { opened, entry, expires_at }
//! }
//! ```
//!
//! Nor is there another function that makes one.
//!
//! ```compile_fail,E0624
//! use writ_policy::{permit::Permit, prepared::Prepared};
//! use writ_types::{id::{AttemptId, EntrySeq}, unit::Timestamp};
//!
//! fn forge(prepared: Prepared, attempt: AttemptId, entry: EntrySeq, at: Timestamp) -> Permit {
//!     Permit::new(prepared, attempt, entry, (at, None))
//! }
//! ```
//!
//! A performer takes only a permit. It does not accept a prepared action or a grant in its place:
//!
//! ```compile_fail,E0308
//! use writ_policy::{permit::Permit, prepared::Prepared};
//!
//! fn perform(permit: Permit) {}
//! fn without_asking(prepared: Prepared) {
//!     perform(prepared)
//! }
//! ```
//!
//! ```compile_fail,E0308
//! use writ_policy::{door::Grant, permit::Permit};
//!
//! fn perform(permit: Permit) {}
//! fn unwritten(grant: Grant) {
//!     perform(grant)
//! }
//! ```
//!
//! One permit, one attempt: it cannot be copied, and what consumed it has it no longer.
//!
//! ```compile_fail,E0599
//! fn twice(permit: writ_policy::permit::Permit) -> [writ_policy::permit::Permit; 2] {
//!     [permit.clone(), permit]
//! }
//! ```
//!
//! ```compile_fail,E0382
//! fn twice(permit: writ_policy::permit::Permit, now: writ_types::unit::Timestamp) {
//!     let _ = permit.open(now);
//!     let _ = permit.open(now);
//! }
//! ```
//!
//! It cannot leave the process.
//!
//! ```compile_fail,E0277
//! fn send(permit: &writ_policy::permit::Permit) -> Vec<u8> {
//!     writ_types::digest::canonical_json(permit).unwrap_or_default()
//! }
//! ```
//!
//! What it rests on cannot be made up either: an authority comes from two verified keys, an approval from a
//! verified signature, a message from evidence.
//!
//! ```compile_fail,E0451
//! use writ_policy::keys::{Authority, BaseClaims, TaskClaims};
//!
//! fn forge(base: BaseClaims, task: TaskClaims) -> Authority {
//!     Authority { base, task, revocation_ids: Default::default() }
//! }
//! ```
//!
//! ```compile_fail,E0451
//! use writ_policy::approval::{Approval, ApprovalClaims};
//!
//! fn forge(claims: ApprovalClaims) -> Approval {
//!     Approval { claims }
//! }
//! ```
//!
//! ```compile_fail,E0451
//! use writ_policy::principal::{Authenticated, Inbound, Principal};
//! use writ_types::unit::Timestamp;
//!
//! fn forge(value: Inbound, at: Timestamp) -> Authenticated<Inbound> {
//!     Authenticated { principal: Principal::Owner, at, value }
//! }
//! ```

use std::collections::BTreeSet;
use std::future::Future;

use writ_types::action::Action;
use writ_types::digest::Digest;
use writ_types::entry::{Entry, Requester, SealedText};
use writ_types::id::{AskId, AttemptId, EntrySeq, KeyId};
use writ_types::unit::{Amount, Timestamp};

use crate::approval::TaskTerms;
pub use crate::budget::Reservation;
use crate::budget::{Ceilings, Exhausted};
use crate::keys::limits::LimitUse;
use writ_inspect::prepared::Prepared;

/// The durability of an intent before its action is performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On disk: it survives a loss of power.
    Synced,
    /// Handed to the operating system: it survives the end of the process. For reads and model calls.
    Relaxed,
}

/// The use of an approval: consumed exactly once, or, for a task, as often as was signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalUse {
    /// The ask that was approved.
    pub ask: AskId,
    /// The hash that the approval was given for.
    pub prepared: Digest,
    /// The approval's nonce.
    pub nonce: String,
    /// Of an approval for the task, or a standing one: the pattern and the uses that were signed.
    pub task: Option<TaskTerms>,
    /// The amount that counts against the total of a standing approval.
    pub amount: Option<Amount>,
    /// The step of an approved plan that it is.
    pub plan: Option<PlanUse>,
}

/// The use of a step of an approved plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanUse {
    /// The step's place in the plan, counted from zero.
    pub step: u32,
    /// The number of times that the step may be done.
    pub times: u32,
    /// The task key that the plan's approval has minted.
    pub key: KeyId,
}

/// Everything that [`Journal::redeem`] writes in one transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Redemption {
    /// This attempt.
    pub attempt: AttemptId,
    /// The intent, ready to be appended.
    pub intent: Entry,
    /// The approval that it uses up, if it needed one.
    pub approval: Option<ApprovalUse>,
    /// The reserved amounts.
    pub reservation: Reservation,
    /// The ids of what it rests on, none of which may have been revoked since it was decided.
    pub keys: BTreeSet<String>,
    /// The shared limits that must still admit it when it is set aside.
    pub ceilings: Ceilings,
    /// The counters of an operation of the security proxy, and the name under which it is performed only once.
    pub operation: OperationUse,
    /// The durability that the intent needs.
    pub durability: Durability,
}

/// What an operation of the security proxy uses up. Empty for every other action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationUse {
    /// Amounts that count against limits of the day.
    pub uses: Vec<LimitUse>,
    /// The name under which it is done once.
    pub once: Option<OnceName>,
}

/// The name of a request, under which it is performed once however often it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceName {
    /// The case and operation in which the name counts.
    pub scope: String,
    /// The name.
    pub name: String,
    /// The hash of the request, so that another request is not taken for it.
    pub request: Digest,
}

/// The origin of a request at the security proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOrigin {
    /// The program that makes it.
    pub requester: Requester,
    /// The beginning of its prompt, sealed, which a refusal records in place of the whole.
    pub denied_prompt: Option<SealedText>,
    /// The name under which it is performed once, if it has one.
    pub once: Option<OnceName>,
    /// True if it only reads: its intent need not be on disk first.
    pub only_reads: bool,
}

impl RequestOrigin {
    /// Returns the program as a refusal names it.
    pub fn denied_requester(&self) -> Requester {
        // Each field by name: a copy of the whole prompt would have megabytes.
        let Requester { agent, base, task, operation, data, sealed_prompt: _ } = &self.requester;
        Requester {
            agent: agent.clone(),
            base: *base,
            task: *task,
            operation: operation.clone(),
            data: data.clone(),
            sealed_prompt: self.denied_prompt.clone(),
        }
    }
}

/// The reason why a redemption was refused. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedeemError {
    /// The approval was used already, is not there, or was made for something else.
    #[error("approval {0} is used up or not valid for this action")]
    ApprovalSpent(AskId),
    /// A key that it rests on was revoked since it was decided.
    #[error("the key was revoked while it was decided")]
    Revoked,
    /// Others have taken what was left of a limit since it was decided.
    #[error("{}", .0.reason_text())]
    Exhausted(Exhausted),
    /// The day's limit of a key has not enough left for this parameter.
    #[error("the day's limit of '{0}' is used up")]
    UsedUp(String),
    /// It was begun before under this name.
    #[error("a request with the name '{0}' was begun before")]
    Repeated(String),
    /// The ledger could not be written: nothing is performed.
    #[error("the ledger could not be written: {0}")]
    Unwritable(String),
}

/// The store's side of the door. Implemented in `writ-store` alone.
pub trait Journal {
    /// Writes approval use, nonce, counters, reservation and intent in one transaction, or nothing.
    ///
    /// # Errors
    ///
    /// If the approval cannot be consumed, a shared limit is reached, or the ledger cannot be written.
    fn redeem(&self, redemption: Redemption) -> impl Future<Output = Result<EntrySeq, RedeemError>> + Send;
}

/// Proof that one attempt passed the door.
#[derive(Debug)]
#[must_use = "a permit that is not performed leaves an open intent"]
pub struct Permit {
    opened: Opened,
    entry: EntrySeq,
    expires_at: Timestamp,
    saving: Option<Saving>,
    approval: Option<AskId>,
    /// That approval was given for this action alone.
    by_itself: bool,
}

/// The part of a fetch's permit that lets its answer be saved: once, to the file that the permit names. The network is
/// asked by one performer and the file written by another; this is the second one's proof.
///
/// ```compile_fail,E0451
/// let forged = writ_policy::permit::Saving { path: "a".to_owned(), large: false };
/// ```
#[derive(Debug)]
#[must_use = "nothing is saved separately"]
pub struct Saving {
    path: String,
    large: bool,
}

impl Saving {
    /// Returns true if more than the usual size may be saved.
    pub const fn is_large(&self) -> bool {
        self.large
    }

    /// Consumes it. Only the performer calls this. The path is relative to the work folder.
    pub fn open(self) -> String {
        self.path
    }
}

/// A permit that was consumed: what is to be performed, once, now.
#[derive(Debug)]
#[non_exhaustive]
pub struct Opened {
    /// The action to perform.
    pub prepared: Prepared,
    /// The attempt that its outcome names.
    pub attempt: AttemptId,
}

/// The permit was not used in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the permit expired at {0}")]
pub struct PermitExpired(pub Timestamp);

impl Permit {
    pub(crate) fn new(
        prepared: Prepared,
        attempt: AttemptId,
        entry: EntrySeq,
        (expires_at, used): (Timestamp, Option<&ApprovalUse>),
    ) -> Self {
        let saving = if let Action::Fetch(fetch) = &prepared.action {
            fetch.save_to.clone().map(|path| Saving { path, large: fetch.large })
        } else {
            None
        };
        // An approval of a pattern or a plan was given before this action was known.
        let by_itself = used.is_some_and(|used| used.task.is_none() && used.plan.is_none());
        let approval = used.map(|used| used.ask.clone());
        Self { opened: Opened { prepared, attempt }, entry, expires_at, saving, approval, by_itself }
    }

    /// Takes out what lets the answer of a fetch be saved; there is nothing to take a second time.
    pub const fn take_saving(&mut self) -> Option<Saving> {
        self.saving.take()
    }

    /// The action that is permitted.
    pub const fn action(&self) -> &Action {
        &self.opened.prepared.action
    }

    /// Returns the permitted action in full.
    pub const fn prepared(&self) -> &Prepared {
        &self.opened.prepared
    }

    /// Returns the ask with the approval that was used, if there was one: revoking that approval also ends
    /// this.
    pub const fn approval(&self) -> Option<&AskId> {
        self.approval.as_ref()
    }

    /// Returns true if a person has approved exactly this action: neither as a step of a plan nor through a
    /// pattern.
    pub const fn is_approved_by_itself(&self) -> bool {
        self.by_itself
    }

    /// The attempt that the outcome must name.
    pub const fn attempt(&self) -> AttemptId {
        self.opened.attempt
    }

    /// The ledger entry of the intent.
    pub const fn entry(&self) -> EntrySeq {
        self.entry
    }

    /// Consumes the permit. Only performers call this.
    ///
    /// # Errors
    ///
    /// If the permit has expired.
    pub fn open(self, now: Timestamp) -> Result<Opened, PermitExpired> {
        // Late performance could rest on keys and rules that are no longer in force.
        if now >= self.expires_at { Err(PermitExpired(self.expires_at)) } else { Ok(self.opened) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{NOW, fetch, later, prepared};
    use writ_types::action::Fetch;
    use writ_types::digest::Digest;

    fn permit(action: Action, used: Option<&ApprovalUse>) -> Permit {
        Permit::new(prepared(action), AttemptId::from_parts(NOW, 1), EntrySeq(7), (later(1_000), used))
    }

    /// What may be saved is in the permit, once, and as large as was decided.
    #[test]
    fn what_may_be_saved_is_taken_once() {
        let url = "https://docs.example/a";
        assert!(permit(Action::Fetch(fetch(url)), None).take_saving().is_none());
        for large in [false, true] {
            let fetch = Fetch { save_to: Some("a/b.pdf".into()), large, ..fetch(url) };
            let mut permit = permit(Action::Fetch(fetch), None);
            let saving = permit.take_saving().expect("may be saved");
            assert_eq!((saving.is_large(), saving.open().as_str()), (large, "a/b.pdf"));
            assert!(permit.take_saving().is_none(), "once");
        }
    }

    /// A permit tells whose yes it has used, and whether that was about this action alone.
    #[test]
    fn a_permit_names_the_approval_that_it_has_used() {
        let request = || Action::Fetch(fetch("https://docs.example/a"));
        let none = permit(request(), None);
        assert_eq!((none.approval(), none.is_approved_by_itself()), (None, false));
        let ask = AskId::from_random(3);
        let once = ApprovalUse {
            ask: ask.clone(),
            prepared: Digest::of_bytes(b"x"),
            nonce: "00".repeat(16),
            task: None,
            amount: None,
            plan: None,
        };
        let alone = permit(request(), Some(&once));
        assert_eq!((alone.approval(), alone.is_approved_by_itself()), (Some(&ask), true));
        let terms = crate::approval::TaskTerms {
            pattern: Digest::of_bytes(b"p"),
            risk: writ_types::entry::Risk::Medium,
            uses: 2,
            standing: None,
        };
        let alike = permit(request(), Some(&ApprovalUse { task: Some(terms), ..once }));
        assert_eq!((alike.approval(), alike.is_approved_by_itself()), (Some(&ask), false));
    }
}
