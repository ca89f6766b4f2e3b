//! Earlier approvals that may cover an action: approved plans, approvals for a task, and standing ones.

use std::collections::BTreeSet;

use writ_inspect::prepared::Prepared;
use writ_policy::approval::{self, Approval, ApprovalError, ApprovalToken};
use writ_policy::door::{Ask, Facts};
use writ_policy::keys::{Authority, KeyToken};
use writ_policy::pattern::{self, standing};
use writ_policy::plan::ApprovedPlan;
use writ_store::approvals::{PlanRow, StoredApproval, StoredAsk};
use writ_store::reads::{ApprovalReads as _, PlanReads as _};
use writ_types::digest::Digest;
use writ_types::id::AskId;

use super::Door;
use crate::error::EngineError;

/// The most plans of one session that are searched for one that covers an action, and that are listed.
pub(crate) const MAX_PLANS: usize = 64;
/// The most approvals for tasks that are searched or listed.
pub(crate) const MAX_LISTED: usize = 500;

/// Earlier approvals that an action is tried with.
#[derive(Default)]
pub(super) struct Earlier {
    /// An approval for a task, or a standing one.
    pub(super) approval: Option<Result<Approval, ApprovalError>>,
    /// A plan. Where only planned actions are performed, it stays beside an approval, which uses no step of it.
    pub(super) writ: Option<Box<Writ>>,
    /// Set once approvals were searched.
    pub(super) searched: bool,
    /// The plans that the action was tried with.
    pub(super) tried: BTreeSet<AskId>,
}

impl Earlier {
    pub(super) const fn is_any(&self) -> bool {
        self.approval.is_some() || self.writ.is_some()
    }

    /// Adds what was found to the facts of the decision.
    pub(super) fn add_to<'a>(&'a self, mut facts: Facts<'a>) -> Facts<'a> {
        if let Some(writ) = &self.writ {
            writ.govern(&mut facts);
        }
        facts.approval = self.approval.as_ref().or(facts.approval);
        facts
    }
}

/// A plan that covers an action, with the authority of its key.
#[derive(Debug)]
pub(crate) struct Writ {
    pub(crate) authority: Authority,
    pub(crate) plan: ApprovedPlan,
}

impl Writ {
    /// Makes the door decide under the plan's own key.
    pub(crate) const fn govern<'a>(&'a self, facts: &mut Facts<'a>) {
        facts.authority = &self.authority;
        facts.plan.in_force = Some(&self.plan);
    }
}

impl Door {
    /// The newest approved plan of an action's session that has a step for it and was not `tried`, checked as if it had just
    /// been given. What was looked at is tried from then on.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(super) async fn writ_for(
        &self,
        prepared: &Prepared,
        policy: Digest,
        tried: &mut BTreeSet<AskId>,
    ) -> Result<Option<Box<Writ>>, EngineError> {
        let (Some(session), now) = (prepared.session, self.journal.valid_now()) else { return Ok(None) };
        for (row, ask, stored) in
            self.journal.store.plans_left_with_approvals(Some(session), now, MAX_PLANS).await?
        {
            if !tried.insert(row.ask.clone()) {
                continue;
            }
            let Some(writ) = self.writ(&row, (&ask, stored), policy).await? else { continue };
            if writ.plan.steps_for(prepared).next().is_some() {
                return Ok(Some(Box::new(writ)));
            }
        }
        Ok(None)
    }

    /// A plan as it was approved, if all of that still counts: signature, key, rules, epoch, time, money.
    pub(crate) async fn writ(
        &self,
        row: &PlanRow,
        (ask, stored): (&StoredAsk, StoredApproval),
        policy: Digest,
    ) -> Result<Option<Writ>, EngineError> {
        let Ok(token) = serde_json::from_value::<ApprovalToken>(stored.token) else { return Ok(None) };
        let Ok(approval) = self.keys.approval_of(ask, &token).await? else { return Ok(None) };
        let Ok(key) = KeyToken::try_from(row.token.clone()) else { return Ok(None) };
        let Ok(authority) = self.keys.verifier.verify_task(&key) else { return Ok(None) };
        // The key of its agent may have been taken back after it was minted.
        if !self.keys.revoked(&authority).await?.is_empty() {
            return Ok(None);
        }
        let plan = ApprovedPlan::new(&ask.prepared, &approval, (ask.card.risk, policy), row.left.clone());
        Ok(plan.map(|plan| Writ { authority, plan }))
    }

    /// An earlier approval that covers an ask, checked as if it had just been given: one for the task, or one that
    /// stands and has enough left.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(super) async fn task_approval(&self, ask: &Ask) -> Result<Option<Approval>, EngineError> {
        let own = ask.pattern.as_ref().map(pattern::pattern_digest).transpose()?;
        let recurring = standing::pattern_digests(&ask.recurring)?;
        let now = self.journal.valid_now();
        for (pattern, amount) in own.map(|own| (own, None)).into_iter().chain(recurring) {
            for (asked, stored) in self.journal.store.task_approvals(Some(pattern), now, MAX_LISTED).await? {
                let Ok(token) = serde_json::from_value::<ApprovalToken>(stored.token) else { continue };
                // A person has seen the risk on the card: a similar action that is riskier is asked about anew.
                let covers = token.claims.task.is_some_and(|task| ask.risk <= task.risk);
                let suffices = stored
                    .total_left
                    .is_none_or(|left| amount.is_some_and(|amount| amount.millionths() <= left));
                if !covers || !suffices {
                    continue;
                }
                let checked = approval::verify_approval(
                    &token,
                    &self.keys.expected(&asked)?,
                    &self.keys.approvers().await?,
                    now,
                );
                if let Ok(approval) = checked {
                    return Ok(Some(approval));
                }
            }
        }
        Ok(None)
    }
}
