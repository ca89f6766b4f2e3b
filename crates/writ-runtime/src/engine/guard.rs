//! Checks the input of people and programs before any of it is stored.

use std::collections::BTreeSet;

use serde_json::Value;
use writ_inspect::show::is_plain;
use writ_policy::inbound::{self, Came, MessageError, MessageToken, NONCE_NAMESPACE, SignedMessage};
use writ_policy::principal::{
    self, AuthError, Authenticated, Directory, Evidence, Inbound, MAX_SENDER_BYTES,
};
use writ_store::batch::{Batch, Op};
use writ_store::queue::EXECUTOR;
use writ_types::digest::Digest;
use writ_types::entry::{Fact, GatePoint, GateVerdict};
use writ_types::error::Report;
use writ_types::frame::ServerFrame;
use writ_types::id::{EntrySeq, SessionId};
use writ_types::recipient::Recipient;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use crate::engine::{Arrival, Engine};
use crate::error::{EngineError, KeysError};
use crate::outcome::REDACTOR;
use crate::pending::Pending;
use crate::services::Services;

/// Attributes that come with a message: taint, signature and sender.
#[derive(Clone, Debug)]
pub struct Along {
    /// The highest trust that its text may get; a sender may quote others.
    pub text_taint: Taint,
    /// The owner's signature over it: a [`MessageToken`].
    pub signature: Option<Value>,
    /// Sender of the message, as verified by the relay.
    pub sender: Option<String>,
}

/// The longest signature that is read, in bytes: claims and signature take about 700.
const MAX_SIGNATURE_BYTES: usize = 4_096;

impl Engine {
    /// As [`Engine::receive`], with what comes along.
    ///
    /// # Errors
    ///
    /// As [`Engine::receive`], or a signature that does not count.
    pub async fn receive_with(
        &self,
        evidence: Evidence,
        session: SessionId,
        client_id: String,
        text: String,
        along: Along,
    ) -> Result<EntrySeq, Report> {
        let inbound = Inbound { session, client_id, text };
        self.receive_for(evidence, EXECUTOR, inbound, along).await
    }

    /// As [`Self::receive_with`], for the agent of a consumer.
    ///
    /// # Errors
    ///
    /// As [`Self::receive_with`], or no such agent.
    pub async fn receive_for(
        &self,
        evidence: Evidence,
        consumer: &str,
        inbound: Inbound,
        along: Along,
    ) -> Result<EntrySeq, Report> {
        let (engine, consumer) = (self.clone(), consumer.to_owned());
        // Runs as a task of its own, so that a message stored with a lease starts its turn even if the sender
        // disconnects.
        let taken =
            self.services
                .life
                .turns
                .spawn(async move {
                    engine.take_in(evidence, inbound, along, (&consumer, Arrival::JoinsTurn)).await
                })
                .await;
        let taken = taken.unwrap_or_else(|error| Err(EngineError::Machine(error.to_string())));
        taken.map_err(|e| self.services.journal.report(&e))
    }

    /// Authenticates a message as it counts in its session, with what makes its signature count once.
    ///
    /// # Errors
    ///
    /// As [`Self::guarded`], or a signature that does not count, which leaves an entry.
    pub(super) async fn spoken(
        &self,
        evidence: Evidence,
        inbound: Inbound,
        directory: &Directory,
        now: Timestamp,
        along: Along,
    ) -> Result<(Authenticated<Inbound>, Option<Op>), EngineError> {
        let (session, client_id) = (inbound.session, inbound.client_id.clone());
        let text = Digest::of_bytes(inbound.text.as_bytes());
        let inbound = self.guarded(evidence, inbound, directory, now).await?;
        let came = Came {
            installation: self.services.config.installation,
            epoch: self.services.config.epoch,
            session,
            client_id: &client_id,
            text,
        };
        let signed = match along.signature {
            Some(token) => match self.signed(token, &came, now).await? {
                Err(error) => return Err(self.unsigned(session, error).await),
                Ok(signed) => Some(signed),
            },
            None => None,
        };
        if along.sender.as_ref().is_some_and(|sender| !is_sender(sender)) {
            let why = format!("sender must be 1 to {MAX_SENDER_BYTES} visible characters, and not 'owner'");
            return Err(EngineError::Params { method: "message".to_owned(), why });
        }
        let nonce = signed.as_ref().map(|signed| {
            let (nonce, expires_at) = signed.nonce();
            Op::RecordNonce { namespace: NONCE_NAMESPACE.to_owned(), nonce: nonce.to_owned(), expires_at }
        });
        let relayed = self.services.sessions.open_one(session).await?.terms.relayed || along.sender.is_some();
        let inbound =
            if relayed { inbound.relayed_by(signed.as_ref(), along.sender.as_deref()) } else { inbound };
        Ok((inbound, nonce))
    }

    async fn signed(
        &self,
        token: Value,
        came: &Came<'_>,
        now: Timestamp,
    ) -> Result<Result<SignedMessage, MessageError>, EngineError> {
        if token.to_string().len() > MAX_SIGNATURE_BYTES {
            return Ok(Err(MessageError::Signature));
        }
        let Ok(token) = serde_json::from_value::<MessageToken>(token) else {
            return Ok(Err(MessageError::Signature));
        };
        Ok(inbound::verify_message(&token, came, &self.services.keys.approvers().await?, now))
    }

    /// Notes that a message was refused for its signature, without anything of it.
    pub(super) async fn unsigned(&self, session: SessionId, error: MessageError) -> EngineError {
        let reason = error.to_string();
        let fact = Fact::Gated {
            point: GatePoint::Input,
            gate: SIGNATURE.to_owned(),
            verdict: GateVerdict::Block,
            reason,
        };
        let entry = self.services.journal.entry(session, None, fact);
        match self.services.journal.store.commit(Batch::relaxed(vec![entry])).await {
            Ok(_) => KeysError::Message(error).into(),
            Err(error) => error.into(),
        }
    }

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
        let judged =
            principal::authenticate(evidence, inbound, directory, &self.services.journal.redactor, now);
        if let Err(AuthError::Credential(names)) = &judged {
            self.note_blocked(session, names).await?;
        }
        Ok(judged?)
    }

    /// Notes that a message was not taken in, without anything of it.
    async fn note_blocked(&self, session: SessionId, names: &[String]) -> Result<(), EngineError> {
        let session = self.services.sessions.open_one(session).await?;
        let reason = format!("the message was mostly {}: it was not stored", names.join(", "));
        let entry = self.services.journal.entry(session.id, None, inbound_fact(GateVerdict::Block, reason));
        self.services.journal.store.commit(Batch::relaxed(vec![entry])).await?;
        Ok(())
    }
}

/// Gate name under which the ledger records signatures that do not count.
const SIGNATURE: &str = "signature";

/// Returns true if this name is valid for a relayed sender. The name `owner` is refused, since a relayed
/// sender is never the owner.
fn is_sender(sender: &str) -> bool {
    let visible = sender.chars().all(|c| !c.is_control()) && is_plain(sender);
    visible && (1..=MAX_SENDER_BYTES).contains(&sender.len()) && !Recipient::looks_like_owner(sender)
}

/// Builds the ledger fact for a decision of the guard of inbound text.
fn inbound_fact(verdict: GateVerdict, reason: String) -> Fact {
    Fact::Gated { point: GatePoint::Input, gate: REDACTOR.to_owned(), verdict, reason }
}

/// Builds the ledger entry and the notice to the sender about credentials that were masked in a message.
pub(super) fn note_masked(services: &Services, session: SessionId, names: &BTreeSet<String>) -> Pending {
    if names.is_empty() {
        return Pending::new();
    }
    let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let reason = format!("{names} in the message was masked before it was stored");
    let text = format!(
        "{reason}. To have a secret used, store it with `writ secrets set NAME` and speak of it as secret:NAME; \
         where others saw it, change it."
    );
    Pending::from([
        services.journal.entry(session, None, inbound_fact(GateVerdict::Transform, reason)),
        Op::Frame { session, frame: Box::new(ServerFrame::Status { text }) },
    ])
}
