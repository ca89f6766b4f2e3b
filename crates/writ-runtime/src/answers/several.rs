//! Asks that several people must approve.

use writ_policy::approval::{self, Approval, ApprovalError, ApprovalToken, Approver};
use writ_store::approvals::Ask as AskRow;
use writ_store::batch::{Batch, NewPart, Op};
use writ_types::entry::{ApprovalScope, Decision, Entry, Fact};
use writ_types::error::Exit;

use crate::error::EngineError;
use crate::interface::Answered;
use crate::services::Services;

/// What an answer comes to.
pub(super) enum Checked {
    /// It is complete: what it answers can be settled.
    Whole(Box<Approval>),
    /// It is complete with what others have said meanwhile, and is kept already: this token's claims are the answer's.
    Joined(Box<ApprovalToken>, Box<Approval>),
    /// Others must say yes as well.
    Part(Answered),
}

/// Checks an answer, which must be the one that was announced; one of several yeses is kept until it is complete.
///
/// # Errors
///
/// What is wrong with it; or the store cannot be used.
pub(super) async fn checked(
    core: &Services,
    ask: &AskRow,
    token: &ApprovalToken,
    (decision, scope, reason): (Decision, ApprovalScope, &str),
) -> Result<Checked, EngineError> {
    if token.claims.decision != decision || token.claims.scope() != scope {
        return Err(ApprovalError::Mismatch("the signed answer is another one").into());
    }
    match core.keys.approval_of(ask, token)? {
        Err(ApprovalError::TooFew { .. }) => {}
        // Enough have said yes, and whoever was last could not go on for all: anybody who says yes again does.
        Err(ApprovalError::Twice) => return kept_whole(core, ask)?.ok_or(ApprovalError::Twice.into()),
        whole => return Ok(Checked::Whole(Box::new(whole?))),
    }
    let kept = keep_part(core, ask, token, reason).await?;
    // Somebody else may have said yes at the same moment: whoever sees both goes on for both.
    Ok(kept_whole(core, ask)?.unwrap_or(Checked::Part(kept)))
}

/// What is kept of an ask, if that is enough.
///
/// # Errors
///
/// If the store cannot be read.
fn kept_whole(core: &Services, ask: &AskRow) -> Result<Option<Checked>, EngineError> {
    let parts = core.journal.store.approval_parts(&ask.card.ask_id)?;
    let last =
        parts.into_iter().filter_map(|part| serde_json::from_value::<ApprovalToken>(part).ok()).next_back();
    let Some(last) = last else { return Ok(None) };
    let whole = core.keys.approval_of(ask, &last)?.ok();
    Ok(whole.map(|whole| Checked::Joined(Box::new(last), Box::new(whole))))
}

/// Keeps what one of several people has signed, until the others have.
///
/// # Errors
///
/// If it does not count by itself, or the store cannot be written.
pub(super) async fn keep_part(
    core: &Services,
    ask: &AskRow,
    token: &ApprovalToken,
    reason: &str,
) -> Result<Answered, EngineError> {
    let (card, now) = (&ask.card, core.journal.clock.now());
    let approval = approval::verify(
        token,
        &core.keys.expected(ask)?,
        &core.keys.approvers()?,
        core.journal.valid_now(),
    )?;
    let by = approval.by().iter().next().cloned().unwrap_or_default();
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
    if let (Approver::Passkey { .. }, Some(used)) = (&token.claims.approver, approval.passkey()) {
        let key = core.keys.passkey_row(&used.credential)?.ok_or(ApprovalError::UnknownApprover)?;
        ops.push(Op::CountPasskey { key: key.id, sign_count: used.sign_count });
    }
    core.journal.store.commit(Batch::synced(ops)).await?;
    let text = format!("{covers}; it waits for the others.");
    Ok(Answered { state: "open".to_owned(), reason: String::new(), text, exit: Exit::Waiting })
}
