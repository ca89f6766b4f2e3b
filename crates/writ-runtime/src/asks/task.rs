//! Approvals for the task, and standing ones: what is alike is not asked about again, for a while.

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use writ_policy::approval::{self, Approval, ApprovalClaims, ApprovalToken};
use writ_policy::door::Ask;
use writ_policy::pattern::standing::{self, Limits};
use writ_policy::principal::Authenticated;
use writ_policy::taint::endorsement;
use writ_policy::{pattern, reach, show};
use writ_store::approvals::{Approval as Stored, Ask as AskRow};
use writ_store::batch::{Batch, Op};
use writ_types::entry::{ApprovalScope, Decision, Entry, Fact};
use writ_types::frame::{Card, Choice, Pattern, StandingOffer, TaskOffer};
use writ_types::id::AskId;

use super::acting::Begun;
use crate::core::Core;
use crate::error::EngineError;
use crate::undo::UNDO;

/// The most approvals for tasks that are listed.
const MAX_LISTED: usize = 500;

/// What an approval for the task would cover of an ask.
pub(super) fn offer(ask: &Ask) -> Option<Box<TaskOffer>> {
    if ask.prepared.tool == UNDO {
        return None;
    }
    let pattern = ask.pattern.clone()?;
    let secs = pattern::TASK_APPROVAL_TTL.as_secs();
    Some(Box::new(TaskOffer { pattern, uses: pattern::MAX_TASK_USES, secs }))
}

/// What a standing approval would cover of an ask.
pub(super) fn standing_offer(ask: &Ask) -> Option<Box<StandingOffer>> {
    standing::offer(&ask.recurring).map(Box::new)
}

/// The answers to a card, in words.
pub(super) fn choices(
    offer: Option<&TaskOffer>,
    standing: Option<&StandingOffer>,
    values: &[(String, String)],
    host: Option<&str>,
) -> Vec<Choice> {
    let choice = |decision, scope, consequence| Choice { decision, scope, consequence };
    let once = "It is done once, exactly as shown.".to_owned();
    let mut choices = vec![choice(Decision::Approve, ApprovalScope::Once, once)];
    choices.extend(
        offer.map(|offer| choice(Decision::Approve, ApprovalScope::Task, pattern::consequence(offer))),
    );
    if !values.is_empty() {
        choices.push(choice(Decision::Approve, ApprovalScope::Values, endorsement(values)));
    }
    choices.extend(host.map(|host| choice(Decision::Approve, ApprovalScope::Host, reach::trust(host))));
    choices.extend(standing.map(|offer| {
        let consequence = standing::consequence(offer, &Limits::default());
        choice(Decision::Approve, ApprovalScope::Standing, consequence)
    }));
    let no = "Nothing is done; the agent is notified.".to_owned();
    choices.push(choice(Decision::Deny, ApprovalScope::Once, no));
    choices
}

/// What an answer covers besides what was asked about, in words; empty where that is nothing.
pub(super) fn covers(card: &Card, claims: &ApprovalClaims) -> String {
    let Some(terms) = claims.task else {
        let trusted = claims.host.as_deref().map(reach::trust).unwrap_or_default();
        return if claims.values { endorsement(&card.values) } else { trusted };
    };
    let sum = terms.standing.and_then(|standing| standing.total);
    let sum = sum.map(|sum| format!(", {sum} in all")).unwrap_or_default();
    let what = meant(card, claims).map(words).unwrap_or_default();
    format!("{what}; {} times{sum}, until {}", terms.uses, claims.expires_at)
}

/// The pattern that signed terms mean.
fn meant<'a>(card: &'a Card, claims: &ApprovalClaims) -> Option<&'a Pattern> {
    let terms = claims.task?;
    let of_task = card.task.iter().map(|offer| &offer.pattern);
    let standing = card.standing.iter();
    let standing = standing.flat_map(|offer| {
        std::iter::once(&offer.pattern).chain(offer.totals.iter().map(|total| &total.pattern))
    });
    let mut all = of_task.chain(standing);
    all.find(|own| pattern::digest(own).is_ok_and(|digest| digest == terms.pattern))
}

fn words(pattern: &Pattern) -> String {
    if pattern.session.is_some() { pattern::words(pattern) } else { standing::words(pattern) }
}

impl Core {
    /// An earlier approval that covers an ask, checked as if it had just been given: one for the task, or one that
    /// stands and has enough left.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) fn task_approval(&self, ask: &Ask) -> Result<Option<Approval>, EngineError> {
        let own = ask.pattern.as_ref().map(pattern::digest).transpose()?;
        let recurring = standing::digests(&ask.recurring)?;
        let now = self.valid_now();
        for (pattern, amount) in own.map(|own| (own, None)).into_iter().chain(recurring) {
            for (asked, stored) in self.store.task_approvals(Some(pattern), now, MAX_LISTED)? {
                let Ok(token) = serde_json::from_value::<ApprovalToken>(stored.token) else { continue };
                let covers = token.claims.task.is_some_and(|task| ask.risk <= task.risk);
                let suffices = stored
                    .total_left
                    .is_none_or(|left| amount.is_some_and(|amount| amount.millionths() <= left));
                if !covers || !suffices {
                    continue;
                }
                let checked = approval::verify(&token, &self.expected(&asked)?, &self.approvers()?, now);
                if let Ok(approval) = checked {
                    return Ok(Some(approval));
                }
            }
        }
        Ok(None)
    }

    /// The approvals for tasks and the standing ones that are in force, for people.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) fn approvals_in_force(&self) -> Result<Value, EngineError> {
        let rows = self.store.task_approvals(None, self.valid_now(), MAX_LISTED)?;
        let mut shown: Vec<Value> = rows.iter().filter_map(|(ask, stored)| in_force(ask, stored)).collect();
        shown.extend(self.plans_in_force()?);
        shown.extend(self.store.endorsements(None)?.iter().map(|(ask, _)| endorsed(ask)));
        shown.extend(self.trusted()?.iter().map(|trusted| trusted.in_force()));
        Ok(json!({ "approvals": shown }))
    }

    /// Notes that an attempt or a server begins on an approval. One that was taken back since its use was written stops it at once.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) fn begin_on(&self, ask: &AskId, cancel: &CancellationToken) -> Result<Begun, EngineError> {
        let begun = self.acting.begin(ask, cancel);
        if self.store.approval(ask)?.is_some_and(|approval| approval.revoked) {
            begun.stop().cancel();
        }
        Ok(begun)
    }

    /// Takes an approval for a task, or a standing one, back: the next use of it is refused, and what runs on it is
    /// stopped.
    ///
    /// # Errors
    ///
    /// If there is none in force, or the store cannot be written.
    pub(crate) async fn revoke_approval(
        &self,
        who: &Authenticated<()>,
        id: &AskId,
    ) -> Result<Value, EngineError> {
        let now = self.clock.now();
        let none = || EngineError::NotInForce(id.clone());
        let stored = self.store.approval(id)?.ok_or_else(none)?;
        let lasts = stored.max_uses > 1 || stored.standing;
        let is_left =
            lasts && stored.executions_used < stored.max_uses && self.valid_now() < stored.expires_at;
        // One whose last use runs, a server that was started on it for instance, is in force for as long as that takes.
        let in_force = is_left || self.acting.is_on(id);
        // What was called the owner's is so for as long as its conversation.
        let values = stored.token.pointer("/claims/values").is_some_and(|values| *values == json!(true));
        let plan = self.store.plan_of(id, self.valid_now())?;
        let host = stored.token.pointer("/claims/host").and_then(Value::as_str);
        if stored.revoked || !(values || host.is_some() || plan.is_some() || in_force) {
            return Err(none());
        }
        let ask = self.store.ask(id)?.ok_or_else(none)?;
        let scope = if stored.standing { ApprovalScope::Standing } else { ApprovalScope::Task };
        let fact = Fact::Answered {
            ask: id.clone(),
            decision: Decision::Deny,
            scope,
            covers: String::new(),
            by: who.principal().to_string(),
            reason: "the approval was taken back".to_owned(),
        };
        let (session, turn, turn_number) = (ask.card.session, ask.prepared.turn, ask.prepared.turn_number);
        let entry = Entry { at: now, session, turn, turn_number, fact };
        let mut ops = vec![Op::Append(Box::new(entry)), Op::RevokeApproval { ask: id.clone() }];
        // A host may have been approved twice before it was trusted.
        let twins = host.map(|host| self.trusted_by(host)).transpose()?.unwrap_or_default();
        let others = twins.iter().filter(|twin| twin.card.ask_id != *id);
        ops.extend(others.map(|twin| Op::RevokeApproval { ask: twin.card.ask_id.clone() }));
        // The key of a plan ends with its approval.
        ops.extend(plan.map(|plan| Op::Revoke {
            id: plan.key.to_string(),
            at: now,
            expires_at: Some(plan.ends_at),
        }));
        self.store.commit(Batch::synced(ops)).await?;
        // Written first: whatever begins from here on is refused, and what has begun is told to stop.
        let stopped = self.acting.stop(id);
        Ok(json!({ "ask_id": id, "state": "revoked", "stopped": stopped }))
    }
}

/// What a person has called their own: for as long as its conversation.
fn endorsed(ask: &AskRow) -> Value {
    json!({
        "ask_id": ask.card.ask_id,
        "session": ask.card.session,
        "scope": ApprovalScope::Values,
        "covers": endorsement(&ask.card.values),
        "intent": show::escape_line(&ask.card.intent),
        "risk": ask.card.risk,
        "by": ask.resolved_by,
        "uses_left": null,
        "total_left": null,
        "expires_at": null,
    })
}

fn in_force(ask: &AskRow, stored: &Stored) -> Option<Value> {
    let token: ApprovalToken = serde_json::from_value(stored.token.clone()).ok()?;
    let pattern = meant(&ask.card, &token.claims)?;
    let total_left = stored.total_left.and_then(|left| match left {
        0 => Some("0".to_owned()),
        left => writ_types::unit::Amount::from_millionths(left).ok().map(|left| left.to_string()),
    });
    Some(json!({
        "ask_id": ask.card.ask_id,
        "session": pattern.session,
        "scope": token.claims.scope(),
        "covers": words(pattern),
        "intent": show::escape_line(&ask.card.intent),
        "risk": ask.card.risk,
        "by": ask.resolved_by,
        "uses_left": stored.max_uses.saturating_sub(stored.executions_used),
        "total_left": total_left,
        "expires_at": stored.expires_at,
    }))
}
