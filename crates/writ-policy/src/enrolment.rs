//! Leave to enrol a passkey: signed by an enrolled approver key, for one code, for ten minutes.
//!
//! A session of the page alone cannot enrol a key: the code is shown in the terminal that holds the approver
//! key, and only its hash reaches the engine.

use std::time::Duration;

use ed25519_dalek::{Signature, Signer as _, SigningKey};
use serde::{Deserialize, Serialize};
use writ_types::digest::{Digest, NotCanonical, canonical_json};
use writ_types::id::InstallationId;
use writ_types::unit::Timestamp;

use crate::approval::{ApprovalError, Approvers, MAX_SKEW_MS, is_nonce};
use writ_inspect::show::is_plain;

/// Separates leave to enrol from everything else that the same key signs.
const DOMAIN: &[u8] = b"writ enrolment v1\n";
/// The namespace of nonces of enrolments in the nonce store.
pub const NONCE_NAMESPACE: &str = "enrolment";
/// The lifetime of a leave to enrol.
pub const ENROLMENT_TTL: Duration = Duration::from_secs(10 * 60);
/// The longest name of a passkey, in characters.
pub const MAX_NAME_CHARS: usize = 64;

/// The signed content of a leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrolmentClaims {
    /// The installation that it is good for.
    pub installation: InstallationId,
    /// The epoch that it is good for.
    pub epoch: u64,
    /// SHA-256 of the code that must be shown.
    pub code: Digest,
    /// The name of the new passkey.
    pub name: String,
    /// Random, 16 bytes, hexadecimal.
    pub nonce: String,
    /// When it was signed.
    pub issued_at: Timestamp,
    /// When it ends, at most [`ENROLMENT_TTL`] later.
    pub expires_at: Timestamp,
    /// The enrolled approver key that signs: its public half, hexadecimal.
    pub approver: String,
}

/// Leave to enrol one passkey.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrolmentGrant {
    /// The claims under the signature.
    pub claims: EnrolmentClaims,
    /// Ed25519 over the domain and the claims' canonical form, hexadecimal.
    pub signature: String,
}

/// Leave that was checked. Made only by [`verify_enrolment`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enrolment {
    claims: EnrolmentClaims,
}

impl Enrolment {
    /// Returns the signed claims.
    pub const fn claims(&self) -> &EnrolmentClaims {
        &self.claims
    }

    /// Returns true if this is the code and the leave has not expired.
    pub fn admits_code(&self, code: &str, now: Timestamp) -> bool {
        // The code proves that the person who enrols was shown it by the owner.
        now < self.claims.expires_at && Digest::of_bytes(code.as_bytes()) == self.claims.code
    }
}

impl EnrolmentGrant {
    /// Signs claims.
    ///
    /// # Errors
    ///
    /// If the claims have no canonical form.
    pub fn sign_claims(claims: EnrolmentClaims, key: &SigningKey) -> Result<Self, NotCanonical> {
        let signature = hex::encode(key.sign(&signed_bytes(&claims)?).to_bytes());
        Ok(Self { claims, signature })
    }
}

fn signed_bytes(claims: &EnrolmentClaims) -> Result<Vec<u8>, NotCanonical> {
    Ok([DOMAIN, &canonical_json(claims)?].concat())
}

/// Checks leave to enrol: an enrolled approver key has signed it, for this installation and epoch, not for long.
///
/// # Errors
///
/// The first thing that is wrong with it.
pub fn verify_enrolment(
    grant: &EnrolmentGrant,
    (installation, epoch): (InstallationId, u64),
    approvers: &Approvers,
    now: Timestamp,
) -> Result<Enrolment, ApprovalError> {
    let claims = &grant.claims;
    // A key that was revoked in the meantime is not found.
    let key = approvers.keys.get(&claims.approver).ok_or(ApprovalError::UnknownApprover)?;
    let mut bytes = [0; 64];
    hex::decode_to_slice(&grant.signature, &mut bytes).map_err(|_| ApprovalError::Signature)?;
    let message = signed_bytes(claims).map_err(|_| ApprovalError::Signature)?;
    key.verify_strict(&message, &Signature::from_bytes(&bytes)).map_err(|_| ApprovalError::Signature)?;
    if claims.installation != installation || claims.epoch != epoch {
        // The name is shown in lists and on cards, so it must not contain what could deceive.
        return Err(ApprovalError::Foreign);
    }
    if !is_nonce(&claims.nonce) {
        return Err(ApprovalError::Nonce);
    }
    let name = &claims.name;
    if name.trim().is_empty() || name.chars().count() > MAX_NAME_CHARS || !is_plain(name) {
        return Err(ApprovalError::Mismatch("the name of the passkey"));
    }
    let early = claims.issued_at.as_millis() > now.as_millis().saturating_add(MAX_SKEW_MS);
    // A signer could write any end into the claims, so the lifetime is bounded here as well.
    if early || now >= claims.expires_at || claims.expires_at > claims.issued_at.plus_duration(ENROLMENT_TTL)
    {
        return Err(ApprovalError::Expired);
    }
    Ok(Enrolment { claims: claims.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{EPOCH, NOW, approver, approvers, harness, installation, key, later};

    const TEN_MINUTES: Duration = Duration::from_secs(600);
    const CODE: &str = "0123456789abcdef0123456789abcdef";

    fn good() -> EnrolmentClaims {
        EnrolmentClaims {
            installation: installation(),
            epoch: EPOCH,
            code: Digest::of_bytes(CODE.as_bytes()),
            name: "phone".into(),
            nonce: "00112233445566778899aabbccddeeff".into(),
            issued_at: NOW,
            expires_at: NOW.plus_duration(TEN_MINUTES),
            approver: hex::encode(approver().verifying_key().as_bytes()),
        }
    }

    fn check(grant: &EnrolmentGrant) -> Result<Enrolment, ApprovalError> {
        verify_enrolment(grant, (installation(), EPOCH), &approvers(), NOW)
    }

    fn signed(claims: EnrolmentClaims) -> EnrolmentGrant {
        EnrolmentGrant::sign_claims(claims, &approver()).expect("signs")
    }

    #[test]
    fn leave_to_enrol_is_good_for_its_code_and_for_ten_minutes() {
        let leave = check(&signed(good())).expect("good");
        assert!(leave.admits_code(CODE, NOW));
        assert!(!leave.admits_code(CODE, NOW.plus_duration(TEN_MINUTES)));
        assert!(!leave.admits_code("", NOW) && !leave.admits_code(&CODE[1..], NOW));
    }

    #[test]
    fn leave_counts_from_an_enrolled_approver_key_alone() {
        let stranger = hex::encode(key(9).verifying_key().as_bytes());
        let by_stranger = EnrolmentClaims { approver: stranger, ..good() };
        let forged = EnrolmentGrant::sign_claims(by_stranger, &key(9)).expect("signs");
        assert_eq!(check(&forged), Err(ApprovalError::UnknownApprover));
        // The engine itself cannot give it: its key is no approver's.
        let own = hex::encode(harness().verifying_key().as_bytes());
        let by_harness = EnrolmentClaims { approver: own, ..good() };
        let forged = EnrolmentGrant::sign_claims(by_harness, &harness()).expect("signs");
        assert_eq!(check(&forged), Err(ApprovalError::UnknownApprover));
        let borrowed = EnrolmentGrant::sign_claims(good(), &harness()).expect("signs");
        assert_eq!(check(&borrowed), Err(ApprovalError::Signature));
        let nobody = Approvers { keys: Default::default(), ..approvers() };
        let said = verify_enrolment(&signed(good()), (installation(), EPOCH), &nobody, NOW);
        assert_eq!(said, Err(ApprovalError::UnknownApprover), "without an approver key nobody enrols");
    }

    #[test]
    fn every_claim_counts() {
        let long = "x".repeat(MAX_NAME_CHARS + 1);
        let refused = [
            (EnrolmentClaims { epoch: EPOCH + 1, ..good() }, ApprovalError::Foreign),
            (
                EnrolmentClaims { installation: InstallationId::from_parts(NOW, 9), ..good() },
                ApprovalError::Foreign,
            ),
            (EnrolmentClaims { nonce: "00".into(), ..good() }, ApprovalError::Nonce),
            (
                EnrolmentClaims { name: " ".into(), ..good() },
                ApprovalError::Mismatch("the name of the passkey"),
            ),
            (EnrolmentClaims { name: long, ..good() }, ApprovalError::Mismatch("the name of the passkey")),
            (
                EnrolmentClaims { name: "a\u{202e}b".into(), ..good() },
                ApprovalError::Mismatch("the name of the passkey"),
            ),
            (EnrolmentClaims { expires_at: NOW, ..good() }, ApprovalError::Expired),
            (EnrolmentClaims { expires_at: later(600_001), ..good() }, ApprovalError::Expired),
            (EnrolmentClaims { issued_at: later(MAX_SKEW_MS + 1), ..good() }, ApprovalError::Expired),
        ];
        for claims in [
            EnrolmentClaims { name: "x".repeat(MAX_NAME_CHARS), ..good() },
            EnrolmentClaims { issued_at: later(MAX_SKEW_MS), ..good() },
        ] {
            assert!(check(&signed(claims.clone())).is_ok(), "exactly at a bound: {claims:?}");
        }
        for (claims, error) in refused {
            assert_eq!(check(&signed(claims.clone())), Err(error), "{claims:?}");
        }
        let changed = [
            EnrolmentClaims { name: "another".into(), ..good() },
            EnrolmentClaims { code: Digest::of_bytes(b"another"), ..good() },
            EnrolmentClaims { expires_at: later(1), ..good() },
        ];
        for claims in changed {
            let forged = EnrolmentGrant { claims, ..signed(good()) };
            assert_eq!(check(&forged), Err(ApprovalError::Signature));
        }
        let cut = EnrolmentGrant { signature: String::new(), ..signed(good()) };
        assert_eq!(check(&cut), Err(ApprovalError::Signature));
    }
}
