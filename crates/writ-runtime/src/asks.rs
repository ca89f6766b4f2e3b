//! Asks: opened by the door, answered by people, performed exactly as approved.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use writ_policy::approval::{
    self, ApprovalClaims, ApprovalError, ApprovalToken, Approver, Expected,
};
use writ_policy::budget::Spent;
use writ_policy::door::Ask;
use writ_policy::principal::Authenticated;
use writ_policy::show::Shown;
use writ_store::approvals::{Ask as AskRow, AskState};
use writ_store::error::{Conflict, StoreError};
use writ_store::batch::{Batch, NewApproval, NewAsk, NewChronicle, Op};
use writ_tools::render::{Rendered, render};
use writ_types::chat::{ChatMessage, Part, Role, ToolOutcome, ToolResult};
use writ_types::entry::{Decision, DenyReason, Entry, Fact};
use writ_types::frame::{Card, Choice, ServerFrame};
use writ_types::id::{AskId, TurnId};
use writ_types::unit::Timestamp;

use crate::act::{Place, outcome_entry};
use crate::core::Core;
use crate::error::EngineError;
use crate::passage::{Passage, Standing};
use crate::perform;
use crate::project::APPLY;
use crate::session::{Interrupt, Session};

impl Core {
    /// Opens an ask, or finds the one that is open for the same content. `detail` is shown with the action.
    /// What cannot be shown completely cannot be asked: that is the inner error, in words.
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
        let now = self.clock.now();
        let expires_at = now.plus(self.config.approval_ttl);
        let id = self.ids.ask();
        let card = Card {
            ask_id: id.clone(),
            session: Some(session.id),
            action: ask.prepared.action.kind().as_str().to_owned(),
            intent: ask.prepared.intent.clone(),
            risk: ask.risk,
            rationale: ask.reason.clone(),
            choices: choices(),
            shown: shown.text().to_owned(),
            prepared: ask.hash,
            shown_hash: shown.hash(),
            asked_at: now,
            expires_at,
            state: AskState::Open.as_str().to_owned(),
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
            at: now,
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
        decision: Decision,
        token: Option<ApprovalToken>,
        reason: String,
    ) -> Result<(String, String), EngineError> {
        let unknown = || EngineError::AskClosed { ask: id.clone(), state: "is not known here".to_owned() };
        let ask = self.store.ask(&id)?.ok_or_else(unknown)?;
        let refused = |core: Arc<Self>, ask: AskRow, error: EngineError| async move {
            core.note_refusal(&ask, &error).await?;
            Err(error)
        };
        if ask.state != AskState::Open {
            let state = format!("was answered before: {}", ask.state.as_str());
            return refused(Arc::clone(self), ask, EngineError::AskClosed { ask: id, state }).await;
        }
        let token = match token {
            Some(token) => token,
            None => self.session_token(who, &ask, decision)?,
        };
        let approval = match approval::verify(&token, &self.expected(&ask), &self.approvers()?, self.clock.now()) {
            Ok(approval) if approval.claims().decision == decision => approval,
            Ok(_) => {
                let error = ApprovalError::Mismatch("the signed answer is another one");
                return refused(Arc::clone(self), ask, error.into()).await;
            }
            Err(error) => return refused(Arc::clone(self), ask, error.into()).await,
        };
        let by = match &approval.claims().approver {
            Approver::Key { public } => format!("key {public}"),
            Approver::Session { principal } => principal.clone(),
        };
        match self.write_answer(&ask, &token, by, reason).await {
            Ok(()) => {}
            // Somebody else's answer was written in between, or its time has run out.
            Err(EngineError::Store(StoreError::Conflict(Conflict::AskNotOpen(_)))) => {
                let state = "was answered or has ended meanwhile".to_owned();
                return refused(Arc::clone(self), ask, EngineError::AskClosed { ask: id, state }).await;
            }
            Err(error) => return Err(error),
        }
        match decision {
            Decision::Deny => Ok(("denied".to_owned(), "It will not be done.".to_owned())),
            Decision::Approve => {
                let rendered = self.perform_ask(&ask, Ok(approval)).await?;
                Ok(("approved".to_owned(), rendered.text))
            }
        }
    }

    async fn note_refusal(&self, ask: &AskRow, error: &EngineError) -> Result<(), EngineError> {
        let fact = Fact::Denied {
            prepared: Some(ask.card.prepared),
            kind: ask.prepared.action.kind(),
            reason: DenyReason::Approval,
            rule: format!("ask {}", ask.card.ask_id),
            text: error.to_string(),
            outside: error.to_string(),
        };
        let entry = Entry {
            at: self.clock.now(),
            session: ask.card.session,
            turn: ask.prepared.turn,
            turn_number: ask.prepared.turn_number,
            fact,
        };
        self.store.commit(Batch::synced(vec![Op::Append(Box::new(entry))])).await?;
        Ok(())
    }

    pub(crate) fn expected(&self, ask: &AskRow) -> Expected {
        Expected {
            installation: self.config.installation,
            epoch: self.config.epoch,
            ask: ask.card.ask_id.clone(),
            prepared: ask.card.prepared,
            shown: ask.card.shown_hash,
            risk: ask.card.risk,
            expires_at: ask.card.expires_at,
        }
    }

    fn session_token(
        &self,
        who: &Authenticated<()>,
        ask: &AskRow,
        decision: Decision,
    ) -> Result<ApprovalToken, EngineError> {
        let claims = ApprovalClaims {
            installation: self.config.installation,
            epoch: self.config.epoch,
            ask: ask.card.ask_id.clone(),
            decision,
            prepared: ask.card.prepared,
            shown: ask.card.shown_hash,
            nonce: self.ids.nonce(),
            issued_at: self.clock.now(),
            expires_at: ask.card.expires_at,
            approver: Approver::Session { principal: who.principal().to_string() },
        };
        Ok(ApprovalToken::sign(claims, &self.keys.harness)?)
    }

    async fn write_answer(
        &self,
        ask: &AskRow,
        token: &ApprovalToken,
        by: String,
        reason: String,
    ) -> Result<(), EngineError> {
        let (now, claims) = (self.clock.now(), &token.claims);
        let (state, text) = match claims.decision {
            Decision::Approve => (AskState::Approved, "Approved."),
            Decision::Deny => (AskState::Denied, "Denied: it will not be done."),
        };
        let fact = Fact::Answered {
            ask: claims.ask.clone(),
            decision: claims.decision,
            by: by.clone(),
            reason: reason.clone(),
        };
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
        if claims.decision == Decision::Approve {
            ops.push(Op::StoreApproval(NewApproval {
                ask: claims.ask.clone(),
                prepared: claims.prepared,
                nonce: claims.nonce.clone(),
                token: serde_json::to_value(token).unwrap_or_default(),
                expires_at: claims.expires_at,
            }));
        }
        let Some(session) = ask.card.session else {
            self.store.commit(Batch::synced(ops)).await?;
            return Ok(());
        };
        let frame = ServerFrame::ApprovalResolved {
            ask_id: claims.ask.clone(),
            state: state.as_str().to_owned(),
            text: text.to_owned(),
        };
        ops.push(Op::Frame { session, frame: Box::new(frame) });
        let session = self.session(session)?;
        self.commit_for(&session, Batch::synced(ops)).await?;
        Ok(())
    }

    /// Performs what an approval was given for: decided again, with everything that is so now.
    ///
    /// # Errors
    ///
    /// If the store or the sandbox cannot be used at all.
    pub(crate) async fn perform_ask(
        self: &Arc<Self>,
        ask: &AskRow,
        approval: Result<approval::Approval, ApprovalError>,
    ) -> Result<Rendered, EngineError> {
        let prepared = ask.prepared.clone();
        let session = prepared.session.ok_or_else(|| EngineError::AskClosed {
            ask: ask.card.ask_id.clone(),
            state: "belongs to no session".to_owned(),
        })?;
        let session = self.session(session)?;
        // Nothing may change the folder's diff while what was approved of it is applied.
        let _held = match prepared.tool == APPLY {
            true => Some(session.applying.lock().await),
            false => None,
        };
        let at = prepared.turn.map(|turn| (turn, prepared.turn_number));
        let authority = Arc::new(self.grant(&session, at).await?);
        let label = prepared.label.clone();
        let standing = Standing {
            authority: &authority,
            spent: Spent::default(),
            approval: Some(&approval),
            mode: session.mode(),
        };
        let (rendered, ops) = match self.pass(prepared, standing).await? {
            Passage::Denied(denial) => {
                (Rendered { text: denial.outside(), label, outcome: ToolOutcome::Denied }, Vec::new())
            }
            Passage::Simulated(_) => {
                let text = "Not performed: this session only simulates.".to_owned();
                (Rendered { text, label, outcome: ToolOutcome::Simulated }, Vec::new())
            }
            Passage::Ask(_) => {
                let text = "Not performed: it must be asked again.".to_owned();
                (Rendered { text, label, outcome: ToolOutcome::Denied }, Vec::new())
            }
            Passage::Permit(permit) => {
                let attempt = permit.attempt();
                let place = Place {
                    core: Arc::clone(self),
                    session: Arc::clone(&session),
                    turn: at.map(|(turn, _)| turn),
                    number: at.map_or(0, |(_, number)| number),
                    authority: Arc::clone(&authority),
                    spent: Spent::default(),
                };
                let (prepared, performed) =
                    perform::perform(&place, permit, &CancellationToken::new()).await?;
                let rendered = render(&prepared, &performed);
                let entry = self.entry(session.id, at, outcome_entry(attempt, &rendered));
                (rendered, vec![entry])
            }
        };
        self.tell(&session, ask, at, &rendered, ops).await?;
        Ok(rendered)
    }

    /// Tells session, watchers and ledger what came of an approved ask.
    async fn tell(
        &self,
        session: &Session,
        ask: &AskRow,
        at: Option<(TurnId, u64)>,
        rendered: &Rendered,
        mut ops: Vec<Op>,
    ) -> Result<(), EngineError> {
        let id = &ask.card.ask_id;
        let state = if rendered.outcome == ToolOutcome::Done { "used" } else { "failed" };
        ops.push(Op::Frame {
            session: session.id,
            frame: Box::new(ServerFrame::ApprovalResolved {
                ask_id: id.clone(),
                state: state.to_owned(),
                text: rendered.text.clone(),
            }),
        });
        let result = ToolResult {
            call_id: ask.prepared.call.clone().unwrap_or_default(),
            name: ask.prepared.tool.clone(),
            outcome: rendered.outcome,
            text: rendered.text.clone(),
            label: rendered.label.clone(),
        };
        let heard =
            session.interrupt(ask.prepared.turn, Interrupt::Answered(id.clone(), Box::new(result.clone())));
        if !heard {
            ops.push(answered_note(session, at, id, &result, self.clock.now()));
        }
        self.commit_for(session, Batch::synced(ops)).await?;
        Ok(())
    }
}

/// What came of an approved ask, for the turns that come.
pub(crate) fn answered_note(
    session: &Session,
    at: Option<(TurnId, u64)>,
    ask: &AskId,
    result: &ToolResult,
    now: Timestamp,
) -> Op {
    let text = format!("[SYSTEM] Ask {ask} ('{}') was approved. {}", result.name, result.text);
    let message =
        ChatMessage { role: Role::System, parts: vec![Part::Text { text }], label: result.label.clone() };
    Op::Chronicle(Box::new(NewChronicle {
        session: session.id,
        turn: at.map(|(turn, _)| turn),
        turn_number: at.map_or(0, |(_, number)| number),
        at: now,
        message,
    }))
}

fn choices() -> Vec<Choice> {
    vec![
        Choice {
            decision: Decision::Approve,
            consequence: "It is done once, exactly as shown.".to_owned(),
        },
        Choice { decision: Decision::Deny, consequence: "Nothing is done; the agent is told so.".to_owned() },
    ]
}
