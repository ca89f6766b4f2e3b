//! Answers of people to requests: checked, written down, and performed exactly as approved.

use std::sync::Arc;

use writ_policy::approval::{
    self, ApprovalClaims, ApprovalError, ApprovalToken, Approver, SignedAnswer, TaskTerms,
};
use writ_policy::pattern::standing::StandingLimits;
use writ_policy::principal::Authenticated;
use writ_store::approvals::{AskState, StoredAsk as AskRow};
use writ_store::batch::{Batch, NewApproval, Op};
use writ_store::error::{Conflict, StoreError};
use writ_store::reads::AskReads as _;
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Decision, Entry, Fact};
use writ_types::error::Exit;
use writ_types::form::{FormError, filled_in};
use writ_types::frame::ServerFrame;
use writ_types::id::AskId;

use crate::asks::tell::{end_ask, resolved, tell_denial};
use crate::asks::{ITEM_ENDED, refusal_of, task};
use crate::error::EngineError;
use crate::interface::{Answer, Answered, GateSaid};
use crate::services::Services;
use crate::session::{APPLY, GateAnswer, is_over};
use crate::work_calls::ended_item;

use several::AnswerCheck;
pub(crate) mod in_force;
pub(crate) mod performing;
mod several;

/// Takes an answer: checks it, writes it down, and performs what was approved.
///
/// # Errors
///
/// If the ask is closed or the approval does not count; the refusal is in the ledger.
pub(crate) async fn answer(
    services: &Arc<Services>,
    who: &Authenticated<()>,
    id: AskId,
    answer: Answer,
) -> Result<Answered, EngineError> {
    let Answer { decision, scope, signed, shown, reason } = answer;
    let reason = services.journal.redactor.mask_text(&reason).into_owned();
    let unknown = || EngineError::NoAsk(id.clone());
    let ask = services.journal.store.ask(&id).await?.ok_or_else(unknown)?;
    let refused = |services: Arc<Services>, ask: AskRow, error: EngineError| async move {
        note_refusal(&services, &ask, &error).await?;
        Err(error)
    };
    if let Some(error) = closed_for(services, &ask, decision, shown).await? {
        return refused(Arc::clone(services), ask, error).await;
    }
    let token = match signed {
        None => session_token(services, who, &ask, decision, scope)?,
        Some(signed) => match token_of(services, &id, signed) {
            Ok(token) => token,
            Err(error) => return refused(Arc::clone(services), ask, error.into()).await,
        },
    };
    let (token, approval, is_counted) =
        match several::checked(services, &ask, &token, (decision, scope, &reason)).await {
            Ok(AnswerCheck::Whole(approval)) => (token, *approval, false),
            Ok(AnswerCheck::Joined(token, approval)) => (*token, *approval, true),
            Ok(AnswerCheck::Part(answered)) => return Ok(answered),
            Err(error @ (EngineError::Approval(_) | EngineError::Store(StoreError::Conflict(_)))) => {
                return refused(Arc::clone(services), ask, error).await;
            }
            Err(error) => return Err(error),
        };
    match write_answer(services, &ask, (&token, is_counted), &approval, reason.clone()).await {
        Ok(()) => {}
        Err(EngineError::Store(StoreError::Conflict(Conflict::Counter(_)))) => {
            return refused(Arc::clone(services), ask, ApprovalError::Copied.into()).await;
        }
        // Another answer was written in between, or the ask has expired.
        Err(EngineError::Store(StoreError::Conflict(Conflict::AskNotOpen(_)))) => {
            let state = "was answered or has ended meanwhile".to_owned();
            return refused(Arc::clone(services), ask, EngineError::AskClosed { ask: id, state }).await;
        }
        Err(error) => return Err(error),
    }
    match decision {
        Decision::Deny => {
            if let Some(session) = ask.prepared.session.filter(|_| ask.prepared.tool == APPLY) {
                // It stays in the work folder, and no approval for the task covers what a person has refused.
                services
                    .sessions
                    .set_left_behind(services.sessions.get(session).await?.as_ref(), true)
                    .await?;
            }
            tell_denial(services, &ask, &reason).await?;
            performing::call_for_work(services, &ask);
            let text = "It will not be done.".to_owned();
            Ok(Answered { state: "denied".to_owned(), reason, text, exit: Exit::Done })
        }
        Decision::Approve => performing::perform_ask(services, &ask, Ok(approval)).await,
    }
}

/// Returns the reason why an ask takes no such answer.
async fn closed_for(
    services: &Services,
    ask: &AskRow,
    decision: Decision,
    shown: Option<Digest>,
) -> Result<Option<EngineError>, EngineError> {
    let id = &ask.card.ask_id;
    if ask.state != AskState::Open {
        let state = format!("was answered before: {}", ask.state.as_str());
        return Ok(Some(EngineError::AskClosed { ask: id.clone(), state }));
    }
    if decision == Decision::Deny {
        // It needs no check of the text shown: it counts for any content, and in a closed session too.
        return Ok(None);
    }
    if let Some(session) = ask.prepared.session
        && let Ok(session) = services.sessions.get(session).await
    {
        if is_over(&session, &ask.prepared) {
            return Ok(Some(EngineError::SessionClosed(session.id)));
        }
        // One that a crash has left open between the item's end and that of its cards.
        if let Some(state) = ended_item(&services.journal, &session, &ask.prepared).await? {
            end_ask(services, ask, ITEM_ENDED).await?;
            let state = format!("belongs to a work item that is {}", state.name());
            return Ok(Some(EngineError::AskClosed { ask: id.clone(), state }));
        }
    }
    let is_changed = shown.is_some_and(|shown| shown != ask.card.shown_hash);
    Ok(is_changed.then(|| EngineError::AskChanged(id.clone())))
}

/// Returns the approval that a signature makes. A passkey must answer a challenge of this engine: claims sent
/// along with one are refused, because their author is unknown.
pub(crate) fn token_of(
    services: &Services,
    ask: &AskId,
    signed: SignedAnswer,
) -> Result<ApprovalToken, ApprovalError> {
    match signed {
        SignedAnswer::Passkey(signed) => services.passkeys.answered(ask, *signed),
        SignedAnswer::Token(token) => match (&token.claims.approver, &token.passkey) {
            (Approver::Key { .. } | Approver::Session { .. }, None) => Ok(*token),
            (Approver::Passkey { .. }, _) | (_, Some(_)) => Err(ApprovalError::Challenge),
        },
    }
}

pub(crate) async fn note_refusal(
    services: &Services,
    ask: &AskRow,
    error: &EngineError,
) -> Result<(), EngineError> {
    let entry = refusal_of(services, ask, &error.to_string());
    services.journal.store.commit(Batch::synced(vec![entry])).await?;
    Ok(())
}

pub(crate) fn session_token(
    services: &Services,
    who: &Authenticated<()>,
    ask: &AskRow,
    decision: Decision,
    scope: ApprovalScope,
) -> Result<ApprovalToken, EngineError> {
    let now = services.journal.valid_now();
    let (task, expires_at) = TaskTerms::terms_to_sign(&ask.card, scope, &StandingLimits::default(), now)?;
    let claims = ApprovalClaims {
        installation: services.config.installation,
        epoch: services.config.epoch,
        ask: ask.card.ask_id.clone(),
        decision,
        prepared: ask.card.prepared,
        shown: ask.card.shown_hash,
        nonce: services.journal.ids.nonce(),
        issued_at: now,
        expires_at,
        approver: Approver::Session { principal: who.principal().to_string() },
        task,
        values: scope == ApprovalScope::Values,
        host: ask.card.host.clone().filter(|_| scope == ApprovalScope::Host),
    };
    Ok(ApprovalToken::sign_claims(claims, &services.keys.held.harness)?)
}

pub(crate) async fn write_answer(
    services: &Services,
    ask: &AskRow,
    (token, is_counted): (&ApprovalToken, bool),
    approval: &approval::Approval,
    reason: String,
) -> Result<(), EngineError> {
    let (now, claims) = (services.journal.clock.now(), &token.claims);
    let mut counted = None;
    let by = match (&claims.approver, approval.passkey_use()) {
        (Approver::Key { public }, _) => format!("key {public}"),
        (Approver::Session { principal }, _) => principal.clone(),
        (Approver::Passkey { .. }, used) => {
            let used = used.ok_or(ApprovalError::UnknownApprover)?;
            let key =
                services.keys.passkey_row(&used.credential).await?.ok_or(ApprovalError::UnknownApprover)?;
            // A passkey approval that was stored with other approvals had its use counted at that time.
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
        scope: claims.answer_scope(),
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
        services.journal.store.commit(Batch::synced(ops)).await?;
        return Ok(());
    };
    ops.push(resolved(session, &claims.ask, (state.as_str(), &told), text, Exit::Done));
    let session = services.sessions.get(session).await?;
    services.journal.commit_for(&session.hub, Batch::synced(ops)).await?;
    Ok(())
}

/// Hands an answer to the turn that waits at a gate; returns false if no turn waits for it. An answer that
/// does not fit leaves the question open.
///
/// # Errors
///
/// If the values filled in do not fit the form.
pub(crate) fn answer_gate(
    services: &Services,
    ask: &AskId,
    by: String,
    said: GateSaid,
) -> Result<bool, FormError> {
    let GateSaid { decision, reason, answers } = said;
    let sessions = services.sessions.loaded();
    let Some(mut state) =
        sessions.values().map(|session| session.state()).find(|state| state.gates.waiting.contains_key(ask))
    else {
        return Ok(false);
    };
    let content = match (decision, state.gates.waiting.get(ask).map(|waiting| &waiting.frame)) {
        (Decision::Approve, Some(ServerFrame::GateApproval { fields, .. })) => filled_in(fields, &answers)?,
        (Decision::Approve | Decision::Deny, _) => Default::default(),
    };
    let reason = reason.chars().take(MAX_REASON_CHARS).collect();
    let waiting = state.gates.waiting.remove(ask);
    // Who does not wait any more is not asked any more.
    let answer = GateAnswer { decision, by, reason, content };
    Ok(waiting.is_some_and(|waiting| waiting.answer.send(answer).is_ok()))
}

/// The longest reason that is stored with an answer to a gate, in characters.
pub(crate) const MAX_REASON_CHARS: usize = 1_000;
