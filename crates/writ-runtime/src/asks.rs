//! Asks: opened by the door, answered by people, performed exactly as approved.

pub(crate) mod acting;
pub(crate) mod open;
pub(crate) mod performing;
mod several;
pub(crate) mod task;
pub(crate) mod tell;

use std::sync::Arc;

use writ_policy::approval::{
    self, ApprovalClaims, ApprovalError, ApprovalToken, Approver, Expected, Signed, TaskTerms,
};
use writ_policy::door::Ask;
use writ_policy::pattern::standing::{self, Limits};
use writ_policy::principal::Authenticated;
use writ_policy::show::Shown;
use writ_policy::taint::endorsable;
use writ_store::approvals::{Ask as AskRow, AskState};
use writ_store::batch::{Batch, NewApproval, NewAsk, Op};
use writ_store::error::{Conflict, StoreError};
use writ_types::entry::{ApprovalScope, Decision, DenyReason, Entry, Fact};
use writ_types::error::Exit;
use writ_types::frame::{Card, TaskOffer};
use writ_types::id::AskId;

use crate::closing::is_over;
use crate::core::Core;
use crate::engine::{Answer, Answered};
use crate::error::EngineError;
use crate::project::APPLY;
use crate::session::Session;
use crate::undo::UNDO_WINDOW;

use several::Checked;
use tell::resolved;

impl Core {
    /// Opens an ask, or finds the one that is open for the same content. `detail` is shown with the action.
    /// What cannot be shown completely, or whose session is closed, cannot be asked: the inner error, in words.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub(crate) async fn open_ask(
        &self,
        session: &Session,
        ask: Ask,
        detail: &str,
    ) -> Result<Result<AskId, String>, EngineError> {
        let shown = match Shown::new(&ask.prepared, detail) {
            Ok(shown) => shown,
            Err(unshowable) => return Ok(Err(unshowable.to_string())),
        };
        if is_over(session, &ask.prepared) {
            return Ok(Err(EngineError::SessionClosed(session.id).to_string()));
        }
        let now = self.valid_now();
        let expires_at = now.plus(self.config.approval_ttl);
        let id = self.ids.ask();
        let (task, standing) = (task::offer(&ask), task::standing_offer(&ask));
        let values = if ask.approvers > 1 { Vec::new() } else { endorsable(&ask.prepared, &ask.rules) };
        let host = self.trustable(session, &ask)?;
        let card = Card {
            ask_id: id.clone(),
            session: Some(session.id),
            action: ask.prepared.action.kind().as_str().to_owned(),
            intent: ask.prepared.intent.clone(),
            risk: ask.risk,
            rationale: ask.reason.clone(),
            choices: task::choices(task.as_deref(), standing.as_deref(), &values, host.as_deref()),
            shown: shown.text().to_owned(),
            prepared: ask.hash,
            shown_hash: shown.hash(),
            asked_at: now,
            expires_at,
            state: AskState::Open.as_str().to_owned(),
            task,
            standing,
            values,
            host,
            approvers: ask.approvers,
            approved_by: Vec::new(),
            undo_secs: if ask.prepared.tool == APPLY { UNDO_WINDOW.as_secs() } else { 0 },
        };
        let fact = Fact::Asked {
            ask: id,
            prepared: ask.hash,
            action: ask.prepared.action.clone(),
            risk: ask.risk,
            reason: ask.reason,
            shown: shown.hash(),
            expires_at,
        };
        let entry = Entry {
            at: self.clock.now(),
            session: Some(session.id),
            turn: ask.prepared.turn,
            turn_number: ask.prepared.turn_number,
            fact,
        };
        let op = Op::OpenAsk(Box::new(NewAsk { card, prepared: ask.prepared, entry }));
        let receipt = self.commit_for(session, Batch::synced(vec![op])).await?;
        let opened = receipt.asks.into_iter().next();
        Ok(opened.map(|opened| opened.ask).ok_or_else(|| "the ask was not stored".to_owned()))
    }

    /// Takes an answer: checks it, writes it down, and performs what was approved.
    ///
    /// # Errors
    ///
    /// If the ask is closed or the approval does not count; the refusal is in the ledger.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        who: &Authenticated<()>,
        id: AskId,
        answer: Answer,
    ) -> Result<Answered, EngineError> {
        let Answer { decision, scope, signed, shown, reason } = answer;
        let reason = self.redactor.mask(&reason).into_owned();
        let unknown = || EngineError::NoAsk(id.clone());
        let ask = self.store.ask(&id)?.ok_or_else(unknown)?;
        let refused = |core: Arc<Self>, ask: AskRow, error: EngineError| async move {
            core.note_refusal(&ask, &error).await?;
            Err(error)
        };
        if ask.state != AskState::Open {
            let state = format!("was answered before: {}", ask.state.as_str());
            return refused(Arc::clone(self), ask, EngineError::AskClosed { ask: id, state }).await;
        }
        let closed = |id| self.session(id).is_ok_and(|session| is_over(&session, &ask.prepared));
        if decision == Decision::Approve
            && let Some(session) = ask.prepared.session.filter(|id| closed(*id))
        {
            return refused(Arc::clone(self), ask, EngineError::SessionClosed(session)).await;
        }
        // A no is one to whatever is asked.
        if decision == Decision::Approve && shown.is_some_and(|shown| shown != ask.card.shown_hash) {
            return refused(Arc::clone(self), ask, EngineError::AskChanged(id)).await;
        }
        let token = match signed {
            None => self.session_token(who, &ask, decision, scope)?,
            Some(signed) => match self.token_of(&id, signed) {
                Ok(token) => token,
                Err(error) => return refused(Arc::clone(self), ask, error.into()).await,
            },
        };
        let (token, approval, is_counted) = match self.checked(&ask, &token, (decision, scope, &reason)).await
        {
            Ok(Checked::Whole(approval)) => (token, *approval, false),
            Ok(Checked::Joined(token, approval)) => (*token, *approval, true),
            Ok(Checked::Part(answered)) => return Ok(answered),
            Err(error @ (EngineError::Approval(_) | EngineError::Store(StoreError::Conflict(_)))) => {
                return refused(Arc::clone(self), ask, error).await;
            }
            Err(error) => return Err(error),
        };
        match self.write_answer(&ask, (&token, is_counted), &approval, reason.clone()).await {
            Ok(()) => {}
            Err(EngineError::Store(StoreError::Conflict(Conflict::Counter(_)))) => {
                return refused(Arc::clone(self), ask, ApprovalError::Copied.into()).await;
            }
            // Somebody else's answer was written in between, or its time has run out.
            Err(EngineError::Store(StoreError::Conflict(Conflict::AskNotOpen(_)))) => {
                let state = "was answered or has ended meanwhile".to_owned();
                return refused(Arc::clone(self), ask, EngineError::AskClosed { ask: id, state }).await;
            }
            Err(error) => return Err(error),
        }
        match decision {
            Decision::Deny => {
                if let Some(session) = ask.prepared.session.filter(|_| ask.prepared.tool == APPLY) {
                    // It stays in the work folder, and no approval for the task covers what a person has refused.
                    self.set_left_behind(self.session(session)?.as_ref(), true).await?;
                }
                self.tell_denial(&ask, &reason).await?;
                let text = "It will not be done.".to_owned();
                Ok(Answered { state: "denied".to_owned(), reason, text, exit: Exit::Done })
            }
            Decision::Approve => self.perform_ask(&ask, Ok(approval)).await,
        }
    }

    /// The approval that somebody's signature makes. A passkey's is the answer to a challenge of this engine:
    /// claims that come along with one were made by nobody knows whom.
    fn token_of(&self, ask: &AskId, signed: Signed) -> Result<ApprovalToken, ApprovalError> {
        match signed {
            Signed::Passkey(signed) => self.answered(ask, *signed),
            Signed::Token(token) => match (&token.claims.approver, &token.passkey) {
                (Approver::Key { .. } | Approver::Session { .. }, None) => Ok(*token),
                (Approver::Passkey { .. }, _) | (_, Some(_)) => Err(ApprovalError::Challenge),
            },
        }
    }

    async fn note_refusal(&self, ask: &AskRow, error: &EngineError) -> Result<(), EngineError> {
        let entry = self.refusal_of(ask, &error.to_string());
        self.store.commit(Batch::synced(vec![entry])).await?;
        Ok(())
    }

    /// The ledger's record that what was asked is not done.
    pub(crate) fn refusal_of(&self, ask: &AskRow, why: &str) -> Op {
        let fact = Fact::Denied {
            prepared: Some(ask.card.prepared),
            kind: ask.prepared.action.kind(),
            reason: DenyReason::Approval,
            rule: format!("ask {}", ask.card.ask_id),
            text: why.to_owned(),
            outside: why.to_owned(),
        };
        Op::Append(Box::new(Entry {
            at: self.clock.now(),
            session: ask.card.session,
            turn: ask.prepared.turn,
            turn_number: ask.prepared.turn_number,
            fact,
        }))
    }

    pub(crate) fn expected(&self, ask: &AskRow) -> Result<Expected, EngineError> {
        let offered = |offer: &TaskOffer| TaskTerms::offered(offer, ask.card.risk);
        Ok(Expected {
            installation: self.config.installation,
            epoch: self.config.epoch,
            ask: ask.card.ask_id.clone(),
            prepared: ask.card.prepared,
            shown: ask.card.shown_hash,
            risk: ask.card.risk,
            expires_at: ask.card.expires_at,
            values: !ask.card.values.is_empty(),
            host: ask.card.host.clone(),
            approvers: ask.card.approvers,
            task: ask.card.task.as_deref().map(offered).transpose()?,
            standing: ask.card.standing.as_deref().map(standing::offered).transpose()?.unwrap_or_default(),
        })
    }

    fn session_token(
        &self,
        who: &Authenticated<()>,
        ask: &AskRow,
        decision: Decision,
        scope: ApprovalScope,
    ) -> Result<ApprovalToken, EngineError> {
        let now = self.valid_now();
        let (task, expires_at) = TaskTerms::signed(&ask.card, scope, &Limits::default(), now)?;
        let claims = ApprovalClaims {
            installation: self.config.installation,
            epoch: self.config.epoch,
            ask: ask.card.ask_id.clone(),
            decision,
            prepared: ask.card.prepared,
            shown: ask.card.shown_hash,
            nonce: self.ids.nonce(),
            issued_at: now,
            expires_at,
            approver: Approver::Session { principal: who.principal().to_string() },
            task,
            values: scope == ApprovalScope::Values,
            host: ask.card.host.clone().filter(|_| scope == ApprovalScope::Host),
        };
        Ok(ApprovalToken::sign(claims, &self.keys.harness)?)
    }

    async fn write_answer(
        &self,
        ask: &AskRow,
        (token, is_counted): (&ApprovalToken, bool),
        approval: &approval::Approval,
        reason: String,
    ) -> Result<(), EngineError> {
        let (now, claims) = (self.clock.now(), &token.claims);
        let mut counted = None;
        let by = match (&claims.approver, approval.passkey()) {
            (Approver::Key { public }, _) => format!("key {public}"),
            (Approver::Session { principal }, _) => principal.clone(),
            (Approver::Passkey { .. }, used) => {
                let used = used.ok_or(ApprovalError::UnknownApprover)?;
                let key = self.passkey_row(&used.credential)?.ok_or(ApprovalError::UnknownApprover)?;
                // The use of one that was kept with other yeses was counted then.
                let count = Op::CountPasskey { key: key.id, sign_count: used.sign_count };
                counted = (!is_counted).then_some(count);
                format!("passkey {} '{}'", key.id, key.label)
            }
        };
        let (state, text) = match claims.decision {
            Decision::Approve => (AskState::Approved, "Approved."),
            Decision::Deny => (AskState::Denied, "Denied: it will not be done."),
        };
        let fact = Fact::Answered {
            ask: claims.ask.clone(),
            decision: claims.decision,
            scope: claims.scope(),
            covers: task::covers(&ask.card, claims),
            by: by.clone(),
            reason: reason.clone(),
        };
        let told = reason.clone();
        let entry = Entry {
            at: now,
            session: ask.card.session,
            turn: ask.prepared.turn,
            turn_number: ask.prepared.turn_number,
            fact,
        };
        let mut ops = vec![
            Op::Append(Box::new(entry)),
            Op::ResolveAsk { ask: claims.ask.clone(), state, at: now, by, reason },
        ];
        ops.extend(counted);
        if claims.decision == Decision::Approve {
            ops.push(Op::StoreApproval(NewApproval {
                ask: claims.ask.clone(),
                prepared: claims.prepared,
                nonce: claims.nonce.clone(),
                token: serde_json::to_value(token).unwrap_or_default(),
                expires_at: claims.expires_at,
                task: claims.task,
            }));
        }
        let Some(session) = ask.card.session else {
            self.store.commit(Batch::synced(ops)).await?;
            return Ok(());
        };
        ops.push(resolved(session, &claims.ask, (state.as_str(), &told), text, Exit::Done));
        let session = self.session(session)?;
        self.commit_for(&session, Batch::synced(ops)).await?;
        Ok(())
    }
}
