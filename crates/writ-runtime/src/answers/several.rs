//! Asks that several people must approve.

use writ_policy::approval::{self, Approval, ApprovalError, ApprovalToken, Approver};
use writ_store::approvals::StoredAsk as AskRow;
use writ_store::batch::{Batch, NewPart, Op};
use writ_store::reads::ApprovalReads as _;
use writ_types::entry::{ApprovalScope, Decision, Entry, Fact};
use writ_types::error::Exit;

use crate::error::EngineError;
use crate::interface::Answered;
use crate::services::Services;

/// Result of checking one answer to an ask that may need several people.
pub(super) enum AnswerCheck {
    /// It is complete: what it answers can be settled.
    Whole(Box<Approval>),
    /// Answer that is complete together with those that other people gave meanwhile, and is stored already.
    /// The claims of this token are those of the answer.
    Joined(Box<ApprovalToken>, Box<Approval>),
    /// Others must say yes as well.
    Part(Answered),
}

/// Checks that the answer is the announced one. One of several required approvals is stored until all are
/// there.
///
/// # Errors
///
/// The reason the answer does not count, or a store that cannot be used.
pub(super) async fn checked(
    services: &Services,
    ask: &AskRow,
    token: &ApprovalToken,
    (decision, scope, reason): (Decision, ApprovalScope, &str),
) -> Result<AnswerCheck, EngineError> {
    if token.claims.decision != decision || token.claims.answer_scope() != scope {
        return Err(ApprovalError::Mismatch("the signed answer is another one").into());
    }
    match services.keys.approval_of(ask, token).await? {
        Err(ApprovalError::TooFew { .. }) => {}
        // Enough people have approved, but the last answer did not carry the ask through. Any of them can
        // resume it by approving again.
        Err(ApprovalError::Twice) => {
            return kept_whole(services, ask).await?.ok_or(ApprovalError::Twice.into());
        }
        whole => return Ok(AnswerCheck::Whole(Box::new(whole?))),
    }
    let kept = keep_part(services, ask, token, reason).await?;
    // Another person may have approved at the same moment. The call that sees both approvals continues for
    // both.
    Ok(kept_whole(services, ask).await?.unwrap_or(AnswerCheck::Part(kept)))
}

/// Returns the stored approvals of an ask as complete, or `None` while more people have to approve.
///
/// # Errors
///
/// If the store cannot be read.
async fn kept_whole(services: &Services, ask: &AskRow) -> Result<Option<AnswerCheck>, EngineError> {
    let parts = services.journal.store.approval_parts(&ask.card.ask_id).await?;
    let last =
        parts.into_iter().filter_map(|part| serde_json::from_value::<ApprovalToken>(part).ok()).next_back();
    let Some(last) = last else { return Ok(None) };
    let whole = services.keys.approval_of(ask, &last).await?.ok();
    Ok(whole.map(|whole| AnswerCheck::Joined(Box::new(last), Box::new(whole))))
}

/// Stores one person's signed approval until the other required people have approved.
///
/// # Errors
///
/// If the approval is not valid on its own, or the store cannot be written.
pub(super) async fn keep_part(
    services: &Services,
    ask: &AskRow,
    token: &ApprovalToken,
    reason: &str,
) -> Result<Answered, EngineError> {
    let (card, now) = (&ask.card, services.journal.clock.now());
    let approval = approval::verify_approval(
        token,
        &services.keys.expected(ask)?,
        &services.keys.approvers().await?,
        services.journal.valid_now(),
    )?;
    let by = approval.signer_keys().iter().next().cloned().unwrap_or_default();
    let given = card.approved_by.len().saturating_add(1);
    let covers = format!("{given} of {} people have approved", card.approvers);
    let fact = Fact::Answered {
        ask: card.ask_id.clone(),
        decision: Decision::Approve,
        scope: ApprovalScope::Once,
        covers: covers.clone(),
        by: by.clone(),
        reason: reason.to_owned(),
    };
    let (session, turn, turn_number) = (card.session, ask.prepared.turn, ask.prepared.turn_number);
    let entry = Entry { at: now, session, turn, turn_number, fact };
    let token_json = serde_json::to_value(token).unwrap_or_default();
    let part = NewPart { ask: card.ask_id.clone(), by, token: token_json, at: now };
    let mut ops = vec![Op::Append(Box::new(entry)), Op::StorePart(part)];
    if let (Approver::Passkey { .. }, Some(used)) = (&token.claims.approver, approval.passkey_use()) {
        let key = services.keys.passkey_row(&used.credential).await?.ok_or(ApprovalError::UnknownApprover)?;
        ops.push(Op::CountPasskey { key: key.id, sign_count: used.sign_count });
    }
    services.journal.store.commit(Batch::synced(ops)).await?;
    let text = format!("{covers}; it waits for the others.");
    Ok(Answered { state: "open".to_owned(), reason: String::new(), text, exit: Exit::Waiting })
}
