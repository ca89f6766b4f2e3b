//! What people and programs say is looked at before anything of it is kept.

use std::collections::BTreeSet;

use writ_policy::principal::{self, AuthError, Authenticated, Directory, Evidence, Inbound};
use writ_store::batch::{Batch, Op};
use writ_types::entry::{Fact, GatePoint, GateVerdict};
use writ_types::frame::ServerFrame;
use writ_types::id::SessionId;
use writ_types::unit::Timestamp;

use crate::act::REDACTOR;
use crate::core::Core;
use crate::engine::Engine;
use crate::error::EngineError;

impl Engine {
    /// Authenticates a message. One that is mostly a credential is refused, and leaves an entry without anything of it.
    ///
    /// # Errors
    ///
    /// As [`principal::authenticate`], or if the ledger cannot be written.
    pub(super) async fn guarded(
        &self,
        evidence: Evidence,
        inbound: Inbound,
        directory: &Directory,
        now: Timestamp,
    ) -> Result<Authenticated<Inbound>, EngineError> {
        let session = inbound.session;
        let judged = principal::authenticate(evidence, inbound, directory, &self.core.redactor, now);
        if let Err(AuthError::Credential(names)) = &judged {
            self.note_blocked(session, names).await?;
        }
        Ok(judged?)
    }

    /// Notes that a message was not taken in, without anything of it.
    async fn note_blocked(&self, session: SessionId, names: &[String]) -> Result<(), EngineError> {
        let session = self.core.open_one(session)?;
        let reason = format!("the message was mostly {}: it was not stored", names.join(", "));
        let entry = self.core.entry(session.id, None, inbound_fact(GateVerdict::Block, reason));
        self.core.store.commit(Batch::relaxed(vec![entry])).await?;
        Ok(())
    }
}

/// What the ledger is told of what the guard of inbound text did.
fn inbound_fact(verdict: GateVerdict, reason: String) -> Fact {
    Fact::Gated { point: GatePoint::Input, gate: REDACTOR.to_owned(), verdict, reason }
}

impl Core {
    /// What ledger and sender are told of credentials that were masked in a message.
    pub(super) fn note_masked(&self, session: SessionId, names: &BTreeSet<String>) -> Vec<Op> {
        if names.is_empty() {
            return Vec::new();
        }
        let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let reason = format!("{names} in the message was masked before it was stored");
        let text = format!(
            "{reason}. To have a secret used, store it with `writ secrets set NAME` and speak of it as secret:NAME; \
             where others saw it, change it."
        );
        vec![
            self.entry(session, None, inbound_fact(GateVerdict::Transform, reason)),
            Op::Frame { session, frame: Box::new(ServerFrame::Status { text }) },
        ]
    }
}
