//! Messages that their owner has signed: for channels that others relay.
//!
//! A signature covers the text's hash, its session and its client's id, is good for a few minutes, and counts once.

use std::time::Duration;

use ed25519_dalek::{Signature, Signer as _, SigningKey};
use serde::{Deserialize, Serialize};
use writ_types::digest::{Digest, NotCanonical, canonical_json};
use writ_types::id::{InstallationId, SessionId};
use writ_types::unit::Timestamp;

use crate::approval::{Approvers, MAX_SKEW_MS, is_nonce};

/// Separates signed messages from everything else that the same key signs.
const DOMAIN: &[u8] = b"writ message v1\n";
/// The namespace of nonces of messages in the nonce store.
pub const NONCE_NAMESPACE: &str = "message";
/// The lifetime of a signature. A relay that takes longer has held the message back.
pub const FRESH_FOR: Duration = Duration::from_secs(5 * 60);

/// The signed content of a relayed message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageClaims {
    /// The installation that it is for.
    pub installation: InstallationId,
    /// The epoch that it is for.
    pub epoch: u64,
    /// The session that it is for.
    pub session: SessionId,
    /// The client's id of the message.
    pub client_id: String,
    /// SHA-256 of the text, byte for byte as it is sent.
    pub text: Digest,
    /// Random, 16 bytes, hexadecimal.
    pub nonce: String,
    /// When it was signed.
    pub issued_at: Timestamp,
    /// The enrolled key that signs: its public half, hexadecimal.
    pub signer: String,
}

/// A message's signature, as it comes along with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageToken {
    /// The claims under the signature.
    pub claims: MessageClaims,
    /// Ed25519 over the domain and the claims' canonical form, hexadecimal.
    pub signature: String,
}

/// A message as it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came<'a> {
    /// This installation.
    pub installation: InstallationId,
    /// The epoch in force.
    pub epoch: u64,
    /// The session that it came for.
    pub session: SessionId,
    /// The client's id of it.
    pub client_id: &'a str,
    /// SHA-256 of its text.
    pub text: Digest,
}

/// A signature that was checked, but for its nonce, which must be recorded with the message. Made only by [`verify_message`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedMessage {
    nonce: String,
    ends: Timestamp,
}

/// The reason why a signature does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The signature is missing, invalid, or not by an enrolled key.
    #[error("the message is not signed by an approver key that is enrolled")]
    Signature,
    /// It was made for something else.
    #[error("the signature is for another {0}")]
    Other(&'static str),
    /// It is too old, or from a time to come.
    #[error("the signature is not fresh")]
    Stale,
    /// Its nonce is malformed.
    #[error("the nonce of the signature is malformed")]
    Nonce,
    /// It was used before.
    #[error("the signature was used before")]
    Replayed,
}

impl MessageToken {
    /// Signs claims.
    ///
    /// # Errors
    ///
    /// If the claims have no canonical form.
    pub fn sign_claims(claims: MessageClaims, key: &SigningKey) -> Result<Self, NotCanonical> {
        let signature = hex::encode(key.sign(&signed_bytes(&claims)?).to_bytes());
        Ok(Self { claims, signature })
    }
}

fn signed_bytes(claims: &MessageClaims) -> Result<Vec<u8>, NotCanonical> {
    Ok([DOMAIN, &canonical_json(claims)?].concat())
}

/// Checks a signature: by an enrolled key, for exactly this message, fresh.
///
/// # Errors
///
/// The first thing that is wrong with it.
pub fn verify_message(
    token: &MessageToken,
    came: &Came<'_>,
    approvers: &Approvers,
    now: Timestamp,
) -> Result<SignedMessage, MessageError> {
    let claims = &token.claims;
    // The owner's key and not the relay's: a relay could change or invent messages.
    let key = approvers.keys.get(&claims.signer).ok_or(MessageError::Signature)?;
    let mut bytes = [0; 64];
    hex::decode_to_slice(&token.signature, &mut bytes).map_err(|_| MessageError::Signature)?;
    let message = signed_bytes(claims).map_err(|_| MessageError::Signature)?;
    key.verify_strict(&message, &Signature::from_bytes(&bytes)).map_err(|_| MessageError::Signature)?;
    // Each part is compared, so that a signature for one message fits no other.
    let same = [
        (claims.installation == came.installation && claims.epoch == came.epoch, "installation"),
        (claims.session == came.session, "session"),
        (claims.client_id == came.client_id, "client_id"),
        (claims.text == came.text, "text"),
    ];
    if let Some((_, what)) = same.into_iter().find(|(same, _)| !same) {
        return Err(MessageError::Other(what));
    }
    if !is_nonce(&claims.nonce) {
        return Err(MessageError::Nonce);
    }
    // A signer with a clock that is a little ahead is accepted, within the same bound as for approvals.
    let early = claims.issued_at.as_millis() > now.as_millis().saturating_add(MAX_SKEW_MS);
    let ends = claims.issued_at.plus_duration(FRESH_FOR);
    if early || now >= ends {
        return Err(MessageError::Stale);
    }
    // Hexadecimal digits in capitals are the same nonce, and must not count as a new one.
    Ok(SignedMessage { nonce: claims.nonce.to_ascii_lowercase(), ends })
}

impl SignedMessage {
    /// Returns the nonce, and the time until which it must be recorded so that the message counts once.
    pub fn nonce(&self) -> (&str, Timestamp) {
        // If the clock is set back, an expired message is fresh again: its nonce is recorded for as long
        // again.
        (&self.nonce, self.ends.plus_duration(FRESH_FOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{EPOCH, NOW, approver, approvers, installation, key, later, session};

    fn came() -> Came<'static> {
        Came {
            installation: installation(),
            epoch: EPOCH,
            session: session(1),
            client_id: "c1",
            text: Digest::of_bytes(b"hello"),
        }
    }

    fn claims() -> MessageClaims {
        MessageClaims {
            installation: installation(),
            epoch: EPOCH,
            session: session(1),
            client_id: "c1".into(),
            text: Digest::of_bytes(b"hello"),
            nonce: "00112233445566778899aabbccddeeff".into(),
            issued_at: NOW,
            signer: hex::encode(approver().verifying_key().as_bytes()),
        }
    }

    fn check(claims: MessageClaims, now: Timestamp) -> Result<SignedMessage, MessageError> {
        verify_message(
            &MessageToken::sign_claims(claims, &approver()).expect("signs"),
            &came(),
            &approvers(),
            now,
        )
    }

    /// Rows: SIL-384
    #[test]
    fn a_signature_is_for_one_message_and_for_minutes() {
        let signed = check(claims(), NOW).expect("good");
        assert_eq!(signed.nonce().0, claims().nonce);
        let others = [
            (MessageClaims { epoch: EPOCH + 1, ..claims() }, "installation"),
            (MessageClaims { session: session(2), ..claims() }, "session"),
            (MessageClaims { client_id: "c2".into(), ..claims() }, "client_id"),
            (MessageClaims { text: Digest::of_bytes(b"hello "), ..claims() }, "text"),
        ];
        for (other, what) in others {
            assert_eq!(check(other, NOW), Err(MessageError::Other(what)));
        }
        for nonce in ["", "short", &"z".repeat(32)] {
            assert_eq!(
                check(MessageClaims { nonce: nonce.into(), ..claims() }, NOW),
                Err(MessageError::Nonce)
            );
        }
        let window = 300_000;
        for (after, good) in [(-60_000, true), (window - 1, true), (-60_001, false), (window, false)] {
            assert_eq!(check(claims(), later(after)).is_ok(), good, "{after}");
        }
    }

    /// Rows: SIL-383
    #[test]
    fn nobody_else_signs_for_the_owner() {
        let good = MessageToken::sign_claims(claims(), &approver()).expect("signs");
        let stranger = MessageToken::sign_claims(claims(), &key(9)).expect("signs");
        let own = MessageClaims { signer: hex::encode(key(9).verifying_key().as_bytes()), ..claims() };
        let own = MessageToken::sign_claims(own, &key(9)).expect("signs");
        let mut altered = good.clone();
        altered.claims.issued_at = later(1);
        let cut = MessageToken { signature: good.signature[2..].to_owned(), ..good.clone() };
        for bad in [stranger, own, altered, cut] {
            assert_eq!(
                verify_message(&bad, &came(), &approvers(), NOW),
                Err(MessageError::Signature),
                "{bad:?}"
            );
        }
        assert!(verify_message(&good, &came(), &approvers(), NOW).is_ok());
    }
}
