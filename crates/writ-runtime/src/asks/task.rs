//! Approvals for the task: what is alike is not asked about again, for a while.

use serde_json::{Value, json};
use writ_policy::approval::{self, Approval, ApprovalToken};
use writ_policy::door::Ask;
use writ_policy::principal::Authenticated;
use writ_policy::{pattern, show};
use writ_store::approvals::{Approval as Stored, Ask as AskRow};
use writ_store::batch::{Batch, Op};
use writ_types::entry::{ApprovalScope, Decision, Entry, Fact};
use writ_types::frame::{Choice, TaskOffer};
use writ_types::id::AskId;

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

/// The answers to a card, in words.
pub(super) fn choices(offer: Option<&TaskOffer>) -> Vec<Choice> {
    let choice = |decision, scope, consequence| Choice { decision, scope, consequence };
    let once = "It is done once, exactly as shown.".to_owned();
    let mut choices = vec![choice(Decision::Approve, ApprovalScope::Once, once)];
    choices.extend(
        offer.map(|offer| choice(Decision::Approve, ApprovalScope::Task, pattern::consequence(offer))),
    );
    let no = "Nothing is done; the agent is told so.".to_owned();
    choices.push(choice(Decision::Deny, ApprovalScope::Once, no));
    choices
}

impl Core {
    /// An earlier approval for the task that covers an ask, checked as if it had just been given.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) fn task_approval(&self, ask: &Ask) -> Result<Option<Approval>, EngineError> {
        let Some(pattern) = &ask.pattern else { return Ok(None) };
        let (pattern, now) = (pattern::digest(pattern)?, self.clock.now());
        for (asked, stored) in self.store.task_approvals(Some(pattern), now, MAX_LISTED)? {
            let Ok(token) = serde_json::from_value::<ApprovalToken>(stored.token) else { continue };
            let covers = token.claims.task.is_some_and(|task| ask.risk <= task.risk);
            if !covers {
                continue;
            }
            if let Ok(approval) = approval::verify(&token, &self.expected(&asked)?, &self.approvers()?, now) {
                return Ok(Some(approval));
            }
        }
        Ok(None)
    }

    /// The approvals for tasks that are in force, for people.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) fn approvals_in_force(&self) -> Result<Value, EngineError> {
        let rows = self.store.task_approvals(None, self.clock.now(), MAX_LISTED)?;
        let shown: Vec<Value> = rows.iter().filter_map(|(ask, stored)| in_force(ask, stored)).collect();
        Ok(json!({ "approvals": shown }))
    }

    /// Takes an approval for a task back: the next use of it is refused.
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
        let rows = self.store.task_approvals(None, now, MAX_LISTED)?;
        let found = rows.into_iter().find(|(ask, _)| ask.card.ask_id == *id);
        let (ask, _) = found.ok_or_else(|| EngineError::NotInForce(id.clone()))?;
        let fact = Fact::Answered {
            ask: id.clone(),
            decision: Decision::Deny,
            scope: ApprovalScope::Task,
            by: who.principal().to_string(),
            reason: "the approval for the task was taken back".to_owned(),
        };
        let (session, turn, turn_number) = (ask.card.session, ask.prepared.turn, ask.prepared.turn_number);
        let entry = Entry { at: now, session, turn, turn_number, fact };
        let ops = vec![Op::Append(Box::new(entry)), Op::RevokeApproval { ask: id.clone() }];
        self.store.commit(Batch::synced(ops)).await?;
        Ok(json!({ "ask_id": id, "state": "revoked" }))
    }
}

fn in_force(ask: &AskRow, stored: &Stored) -> Option<Value> {
    let offer = ask.card.task.as_ref()?;
    Some(json!({
        "ask_id": ask.card.ask_id,
        "session": ask.card.session,
        "covers": pattern::words(&offer.pattern),
        "intent": show::escape_line(&ask.card.intent),
        "risk": ask.card.risk,
        "by": ask.resolved_by,
        "uses_left": stored.max_uses.saturating_sub(stored.executions_used),
        "expires_at": stored.expires_at,
    }))
}
