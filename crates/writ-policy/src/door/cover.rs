//! Approvals that cover an action: one for exactly this action, or one for its pattern.

use std::collections::BTreeSet;

use writ_types::digest::Digest;
use writ_types::entry::{Decision, DenyReason, Risk};
use writ_types::frame::Pattern;
use writ_types::unit::{Amount, Timestamp};

use super::Refusal;
use crate::approval::{Approval, TaskTerms};
use crate::pattern::standing::Recurring;
use crate::pattern::{self, standing};
use crate::permit::ApprovalUse;
use crate::reasons::asks_about_this_time;
use writ_inspect::egress::EgressScope;
use writ_inspect::prepared::Prepared;

/// The patterns of an action: for one session's task, and for a standing approval.
#[derive(Default)]
pub(crate) struct Alike {
    pub(crate) pattern: Option<Pattern>,
    pub(crate) recurring: Vec<Recurring>,
}

impl Alike {
    /// Under the rules with digest `policy`. What cannot be undone, what several people must approve, and what is asked about
    /// for this one time, is like nothing else.
    pub(crate) fn patterns_of(
        (prepared, policy): (&Prepared, Digest),
        rules: &BTreeSet<String>,
        (risk, approvers): (Risk, u8),
        egress: &EgressScope,
    ) -> Self {
        if risk >= Risk::Irreversible || approvers > 1 || asks_about_this_time(rules) {
            return Self::default();
        }
        let pattern = pattern::pattern_of(prepared, policy, rules, egress);
        Self { pattern, recurring: standing::standing_patterns(prepared, policy, rules, egress) }
    }

    /// Returns the amount to count against the total if signed terms cover the action.
    fn covered_amount(&self, task: &TaskTerms) -> Option<Option<Amount>> {
        match task.standing {
            None => {
                // The pattern is derived from this action, so that only its digest has to be compared.
                let own = self.pattern.as_ref().and_then(|pattern| pattern::pattern_digest(pattern).ok());
                (own == Some(task.pattern)).then_some(None)
            }
            Some(signed) => {
                let own = standing::pattern_digests(&self.recurring).ok()?;
                let (_, amount) = own.into_iter().find(|(pattern, _)| *pattern == task.pattern)?;
                // The amount counts if a total was signed, and only then.
                (amount.is_some() == signed.total.is_some() && amount <= signed.total).then_some(amount)
            }
        }
    }
}

/// The use of an approval that covers an action at `now`; a refusal if it does not.
pub(super) fn use_of(
    approval: &Approval,
    hash: Digest,
    (alike, risk, approvers): (&Alike, Risk, u8),
    now: Timestamp,
) -> Result<ApprovalUse, Refusal> {
    let claims = approval.claims();
    let refuse = |text: &str| Err((DenyReason::Approval, format!("ask {}", claims.ask), text.to_owned()));
    // A signed no is final in every scope.
    if claims.decision == Decision::Deny {
        return Err((DenyReason::Person, format!("ask {}", claims.ask), "a person refused".to_owned()));
    }
    if approval.count_people() < usize::from(approvers) {
        return refuse("more people must say yes");
    }
    // An action of a higher risk than the shown one is not what its signer agreed to.
    let terms = claims.task.filter(|task| risk <= task.risk);
    let covered = terms.and_then(|task| alike.covered_amount(&task));
    // The shown action is approved independently of its pattern, unless it counts against a total.
    let counts = claims.task.and_then(|task| task.standing).is_some_and(|standing| standing.total.is_some());
    if covered.is_none() && (claims.prepared != hash || counts) {
        return refuse("the approval was given for something else");
    }
    if now >= claims.expires_at {
        return refuse("the approval has expired");
    }
    let (ask, nonce) = (claims.ask.clone(), claims.nonce.clone());
    Ok(ApprovalUse { ask, prepared: hash, nonce, task: claims.task, amount: covered.flatten(), plan: None })
}
