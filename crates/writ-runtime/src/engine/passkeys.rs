//! Passkeys, for pages: challenges to sign, and enrolling.

use writ_policy::principal::Evidence;
use writ_policy::webauthn::Registration;
use writ_types::digest::Digest;
use writ_types::entry::ApprovalScope;
use writ_types::error::Report;
use writ_types::id::AskId;

use crate::engine::Engine;

impl Engine {
    /// Gives out the challenge whose answer approves an ask as far as `scope`, for a passkey in a page with this
    /// origin; `shown` is the hash of the text that the page shows, where it says so.
    ///
    /// # Errors
    ///
    /// Not somebody who may approve, a closed ask, another text, or no passkey that could answer there.
    pub fn challenge(
        &self,
        evidence: Evidence,
        (ask, scope): (&AskId, ApprovalScope),
        shown: Option<Digest>,
        origin: &str,
    ) -> Result<serde_json::Value, Report> {
        let given = self.may_approve(evidence).and_then(|_| self.core.challenge((ask, scope), shown, origin));
        given.map_err(|e| self.core.report(&e))
    }

    /// Begins to enrol a passkey in a page with this origin, whose person shows the code of a leave.
    ///
    /// # Errors
    ///
    /// Not the owner, no such leave, or an origin where passkeys cannot be used.
    pub fn begin_passkey(
        &self,
        evidence: Evidence,
        code: &str,
        origin: &str,
    ) -> Result<serde_json::Value, Report> {
        let begun = self.may_approve(evidence).and_then(|_| self.core.begin_passkey(code, origin));
        begun.map_err(|e| self.core.report(&e))
    }

    /// Takes in the passkey that a page with this origin has made.
    ///
    /// # Errors
    ///
    /// Not the owner, or a passkey that does not count.
    pub async fn finish_passkey(
        &self,
        evidence: Evidence,
        made: &Registration,
        origin: &str,
    ) -> Result<serde_json::Value, Report> {
        self.may_approve(evidence).map_err(|e| self.core.report(&e))?;
        self.core.finish_passkey(made, origin).await.map_err(|e| self.core.report(&e))
    }
}
