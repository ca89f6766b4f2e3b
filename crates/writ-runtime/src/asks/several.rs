//! Asks that several people must approve.

use writ_policy::approval::{self, Approval, ApprovalError, ApprovalToken, Approver};
use writ_store::approvals::Ask as AskRow;
use writ_store::batch::{Batch, NewPart, Op};
use writ_types::entry::{ApprovalScope, Decision, Entry, Fact};
use writ_types::error::Exit;

use crate::core::Core;
use crate::engine::Answered;
use crate::error::EngineError;

/// What an answer comes to.
pub(super) enum Checked {
    /// It is complete: what it answers can be settled.
    Whole(Box<Approval>),
    /// It is complete with what others have said meanwhile, and is kept already: this token's claims are the answer's.
    Joined(Box<ApprovalToken>, Box<Approval>),
    /// Others must say yes as well.
    Part(Answered),
}

impl Core {
    /// Checks an answer, which must be the one that was announced; one of several yeses is kept until it is complete.
    ///
    /// # Errors
    ///
    /// What is wrong with it; or the store cannot be used.
    pub(super) async fn checked(
        &self,
        ask: &AskRow,
        token: &ApprovalToken,
        (decision, scope, reason): (Decision, ApprovalScope, &str),
    ) -> Result<Checked, EngineError> {
        if token.claims.decision != decision || token.claims.scope() != scope {
            return Err(ApprovalError::Mismatch("the signed answer is another one").into());
        }
        match self.approval_of(ask, token)? {
            Err(ApprovalError::TooFew { .. }) => {}
            // Enough have said yes, and whoever was last could not go on for all: anybody who says yes again does.
            Err(ApprovalError::Twice) => return self.kept_whole(ask)?.ok_or(ApprovalError::Twice.into()),
            whole => return Ok(Checked::Whole(Box::new(whole?))),
        }
        let kept = self.keep_part(ask, token, reason).await?;
        // Somebody else may have said yes at the same moment: whoever sees both goes on for both.
        Ok(self.kept_whole(ask)?.unwrap_or(Checked::Part(kept)))
    }

    /// What is kept of an ask, if that is enough.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    fn kept_whole(&self, ask: &AskRow) -> Result<Option<Checked>, EngineError> {
        let parts = self.store.approval_parts(&ask.card.ask_id)?;
        let last = parts
            .into_iter()
            .filter_map(|part| serde_json::from_value::<ApprovalToken>(part).ok())
            .next_back();
        let Some(last) = last else { return Ok(None) };
        let whole = self.approval_of(ask, &last)?.ok();
        Ok(whole.map(|whole| Checked::Joined(Box::new(last), Box::new(whole))))
    }

    /// Everything that was signed of an ask, the given token last.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    fn signed_of(&self, ask: &AskRow, last: &ApprovalToken) -> Result<Vec<ApprovalToken>, EngineError> {
        let parts = self.store.approval_parts(&ask.card.ask_id)?;
        // What can no longer be read counts for nobody.
        let parts = parts.into_iter().filter_map(|part| serde_json::from_value::<ApprovalToken>(part).ok());
        Ok(parts.filter(|part| part != last).chain([last.clone()]).collect())
    }

    /// Checks an approval with everything that others have signed of the same ask.
    ///
    /// # Errors
    ///
    /// Inside, what is wrong with one of them, or that they are too few; else, if the store cannot be read.
    pub(crate) fn approval_of(
        &self,
        ask: &AskRow,
        token: &ApprovalToken,
    ) -> Result<Result<Approval, ApprovalError>, EngineError> {
        let (expected, approvers, now) = (self.expected(ask)?, self.approvers()?, self.valid_now());
        // A no needs nobody else.
        if expected.approvers <= 1 || token.claims.decision == Decision::Deny {
            return Ok(approval::verify(token, &expected, &approvers, now));
        }
        // Whose key no longer counts has said nothing.
        let mut tokens = self.signed_of(ask, token)?;
        tokens.retain(|part| part == token || approval::verify(part, &expected, &approvers, now).is_ok());
        Ok(approval::verify_all(&tokens, &expected, &approvers, now))
    }

    /// Keeps what one of several people has signed, until the others have.
    ///
    /// # Errors
    ///
    /// If it does not count by itself, or the store cannot be written.
    pub(super) async fn keep_part(
        &self,
        ask: &AskRow,
        token: &ApprovalToken,
        reason: &str,
    ) -> Result<Answered, EngineError> {
        let (card, now) = (&ask.card, self.clock.now());
        let approval = approval::verify(token, &self.expected(ask)?, &self.approvers()?, self.valid_now())?;
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
            let key = self.passkey_row(&used.credential)?.ok_or(ApprovalError::UnknownApprover)?;
            ops.push(Op::CountPasskey { key: key.id, sign_count: used.sign_count });
        }
        self.store.commit(Batch::synced(ops)).await?;
        let text = format!("{covers}; it waits for the others.");
        Ok(Answered { state: "open".to_owned(), reason: String::new(), text, exit: Exit::Waiting })
    }
}
