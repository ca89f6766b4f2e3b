//! Approvals: a person's signature over exactly what was shown.

use std::collections::{BTreeMap, BTreeSet};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use writ_types::digest::{Digest, NotCanonical, canonical_json};
use writ_types::entry::{ApprovalScope, Decision, Risk};
use writ_types::id::{AskId, InstallationId};
use writ_types::unit::{Amount, Timestamp};

use crate::pattern::standing;
use writ_inspect::webauthn::{self, Assertion, Passkey, PasskeyError};

/// Separates approvals from everything else that the same key could sign.
const DOMAIN: &[u8] = b"writ approval v1\n";
/// Separates the challenges of passkeys from everything else that is hashed here.
const PASSKEY_DOMAIN: &[u8] = b"writ approval by passkey v1\n";
/// The namespace of approval nonces in the nonce store.
pub const NONCE_NAMESPACE: &str = "approval";

/// The signer of an answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case", deny_unknown_fields)]
pub enum Approver {
    /// An enrolled approver key, outside the engine's reach.
    Key {
        /// Its public half, hexadecimal.
        public: String,
    },
    /// An enrolled passkey. The assertion names it, since any enrolled person may answer.
    Passkey {
        /// The origin of the page that asks: `http://localhost:8420`.
        origin: String,
    },
    /// The harness, for the session of a person that the surface has authenticated. Reaches medium risk at
    /// most.
    Session {
        /// The person.
        principal: String,
    },
}

impl Approver {
    /// The highest risk that it may approve, at best. What cannot be undone needs a key that verifies its user
    /// each time: a passkey can, and says whether it did.
    const fn highest_risk(&self) -> Risk {
        match self {
            Self::Passkey { .. } => Risk::Irreversible,
            Self::Key { .. } => Risk::High,
            Self::Session { .. } => Risk::Medium,
        }
    }
}

/// The signed content of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalClaims {
    /// The installation that it is good for.
    pub installation: InstallationId,
    /// The epoch that it is good for.
    pub epoch: u64,
    /// The ask that it answers.
    pub ask: AskId,
    /// The answer.
    pub decision: Decision,
    /// Hash of the prepared action.
    pub prepared: Digest,
    /// Hash of the text that was shown.
    pub shown: Digest,
    /// Random, 16 bytes, hexadecimal.
    pub nonce: String,
    /// When it was signed.
    pub issued_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The signer.
    pub approver: Approver,
    /// The terms of an approval for the task, or of a standing one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskTerms>,
    /// Makes the values that the action names count in its session as written by the owner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub values: bool,
    /// The host, with its port, that is trusted from now on, in every session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Claims with their signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalToken {
    /// The claims under the signature.
    pub claims: ApprovalClaims,
    /// Ed25519 over the domain and the claims' canonical form, hexadecimal; empty where a passkey has signed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub signature: String,
    /// The assertion of a passkey over the claims' [challenge](ApprovalClaims::challenge).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passkey: Option<Assertion>,
}

impl ApprovalClaims {
    /// Returns the scope of the answer.
    pub fn answer_scope(&self) -> ApprovalScope {
        match self.task {
            Some(task) => task.scope(),
            None if self.values => ApprovalScope::Values,
            None if self.host.is_some() => ApprovalScope::Host,
            None => ApprovalScope::Once,
        }
    }

    /// Hashes the claims, among them the hashes of the action and of the shown text, as the challenge for a
    /// passkey.
    ///
    /// # Errors
    ///
    /// If the claims have no canonical form.
    pub fn challenge(&self) -> Result<Digest, NotCanonical> {
        Ok(Digest::of_bytes(&[PASSKEY_DOMAIN, &canonical_json(self)?].concat()))
    }
}

/// The signature of an answer, as it was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignedAnswer {
    /// An approval that is complete in itself.
    Token(Box<ApprovalToken>),
    /// An assertion of a passkey: the answer to a challenge, for which the engine holds the claims.
    Passkey(Box<Assertion>),
}

impl SignedAnswer {
    /// Reads a signature: `{"passkey":{…}}`, or an [`ApprovalToken`].
    ///
    /// # Errors
    ///
    /// If it is neither.
    pub fn read_signed(value: serde_json::Value) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct ByPasskey {
            passkey: Box<Assertion>,
        }
        // A passkey's answer has no claims of its own: the engine stored them when it made the challenge.
        if value.get("passkey").is_some() && value.get("claims").is_none() {
            let ByPasskey { passkey } = serde_json::from_value(value)?;
            return Ok(Self::Passkey(passkey));
        }
        serde_json::from_value(value).map(Box::new).map(Self::Token)
    }
}

/// The reason why an approval does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// The signature is not good.
    #[error("the approval's signature is not valid")]
    Signature,
    /// The key is not enrolled, or was revoked.
    #[error("the approver key is not enrolled here, or was revoked")]
    UnknownApprover,
    /// It is for another installation or an earlier epoch.
    #[error("the approval belongs to another installation, or to the time before a restore")]
    Foreign,
    /// It is for another ask, action or text.
    #[error("the approval was given for something else ({0})")]
    Mismatch(&'static str),
    /// It has ended, or begins in the future.
    #[error("the approval is not valid at this time")]
    Expired,
    /// The nonce is not 16 bytes in hexadecimal.
    #[error("the approval's nonce is malformed")]
    Nonce,
    /// The risk is too high for this way of signing (design 3.2, the risk ladder).
    #[error("a risk of '{0:?}' needs a stronger way of signing than this")]
    TooRisky(Risk),
    /// A standing approval, or trust in a host, outlives the conversation and needs the approver's own key.
    #[error("an approval that outlives its conversation needs an approver key or a passkey")]
    NeedsKey,
    /// Where several people must say yes, each signs with their own key.
    #[error("several people must approve this, each with an approver key or a passkey of their own")]
    NeedsKeys,
    /// The same key has signed before.
    #[error("this key has approved it before: another person must")]
    Twice,
    /// Fewer people have approved than must.
    #[error("{given} of {needed} people have approved it")]
    TooFew {
        /// The number of people that have approved.
        given: usize,
        /// The number that must say yes.
        needed: u8,
    },
    /// The assertion of a passkey does not count.
    #[error(transparent)]
    Passkey(#[from] PasskeyError),
    /// The challenge is none of this engine, was answered before, or is too old.
    #[error("the challenge that was signed is not known here, too old, or was answered before")]
    Challenge,
    /// The passkey's counter has not grown: there may be a copy of it.
    #[error("the passkey's counter has not grown since its last use: it may have been copied")]
    Copied,
}

/// The most that the signer's clock may be ahead, in milliseconds.
pub(crate) const MAX_SKEW_MS: i64 = 60_000;

impl ApprovalToken {
    /// Signs claims.
    ///
    /// # Errors
    ///
    /// If the claims have no canonical form.
    pub fn sign_claims(claims: ApprovalClaims, key: &SigningKey) -> Result<Self, NotCanonical> {
        let signature = hex::encode(key.sign(&signed_bytes(&claims)?).to_bytes());
        Ok(Self { claims, signature, passkey: None })
    }

    /// Claims with what a passkey has signed of them.
    pub const fn by_passkey(claims: ApprovalClaims, signed: Assertion) -> Self {
        Self { claims, signature: String::new(), passkey: Some(signed) }
    }
}

/// Returns true for a nonce: 16 bytes in hexadecimal.
pub(crate) fn is_nonce(text: &str) -> bool {
    text.len() == 32 && hex::decode(text).is_ok()
}

fn signed_bytes(claims: &ApprovalClaims) -> Result<Vec<u8>, NotCanonical> {
    Ok([DOMAIN, &canonical_json(claims)?].concat())
}

/// The content that an approval must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The installation.
    pub installation: InstallationId,
    /// The epoch in force.
    pub epoch: u64,
    /// The ask.
    pub ask: AskId,
    /// Hash of the prepared action, as it is now.
    pub prepared: Digest,
    /// Hash of the text that was shown.
    pub shown: Digest,
    /// Its risk.
    pub risk: Risk,
    /// When the ask ends.
    pub expires_at: Timestamp,
    /// A yes may make the values that the action names the owner's.
    pub values: bool,
    /// The host that a yes may make a trusted one.
    pub host: Option<String>,
    /// The number of people that must say yes.
    pub approvers: u8,
    /// The terms that an approval for the task may have, if there can be one.
    pub task: Option<TaskTerms>,
    /// Digests of the patterns that a standing approval may cover, and what was asked about counts of each.
    pub standing: Vec<(Digest, Option<Amount>)>,
}

impl Expected {
    /// Returns true if a card has offered these terms.
    fn offers_terms(&self, terms: &TaskTerms) -> bool {
        let Some(standing) = terms.standing else { return Some(*terms) == self.task };
        let offered = self.standing.iter().any(|(pattern, amount)| {
            *pattern == terms.pattern
                && amount.is_some() == standing.total.is_some()
                && *amount <= standing.total
        });
        offered && terms.risk == self.risk && standing::is_bounded(terms)
    }
}

/// The keys that count as signers.
#[derive(Clone, Debug)]
pub struct Approvers {
    /// Enrolled approver keys that were not revoked, by their public half in hexadecimal.
    pub keys: BTreeMap<String, VerifyingKey>,
    /// Enrolled passkeys that were not removed, by the id of their credential.
    pub passkeys: BTreeMap<String, Passkey>,
    /// The harness's own key, for sessions.
    pub harness: VerifyingKey,
}

/// An approval that was checked against what it must be for. Made only by [`verify_approval`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    claims: ApprovalClaims,
    passkey: Option<PasskeyUse>,
    by: BTreeSet<String>,
}

/// The use of a passkey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasskeyUse {
    /// The id of its credential.
    pub credential: String,
    /// Its counter of signatures, to be compared with the last one: see [`webauthn::counts_on`].
    pub sign_count: u32,
}

impl Approval {
    /// Returns the signed claims.
    pub const fn claims(&self) -> &ApprovalClaims {
        &self.claims
    }

    /// Counts the people that have approved. Two keys count as two people.
    pub fn count_people(&self) -> usize {
        self.by.len()
    }

    /// Returns the keys of the people that have approved.
    pub const fn signer_keys(&self) -> &BTreeSet<String> {
        &self.by
    }

    /// The passkey that has signed it, if one has.
    pub const fn passkey_use(&self) -> Option<&PasskeyUse> {
        self.passkey.as_ref()
    }
}

/// Checks an answer: signature, approver, installation, epoch, content and time. Uses nothing up.
///
/// # Errors
///
/// The first thing that is wrong with it.
pub fn verify_approval(
    token: &ApprovalToken,
    expected: &Expected,
    approvers: &Approvers,
    now: Timestamp,
) -> Result<Approval, ApprovalError> {
    let claims = &token.claims;
    // A denial needs no strength: anyone who may answer may stop an action.
    if claims.decision == Decision::Approve && expected.risk > claims.approver.highest_risk() {
        return Err(ApprovalError::TooRisky(expected.risk));
    }
    let has_key = !matches!(claims.approver, Approver::Session { .. });
    // They outlive the conversation, so the session of a browser is not enough.
    if matches!(claims.answer_scope(), ApprovalScope::Standing | ApprovalScope::Host) && !has_key {
        return Err(ApprovalError::NeedsKey);
    }
    // The harness signs for all sessions with one key, so it cannot show that several people have answered.
    if claims.decision == Decision::Approve && expected.approvers > 1 && !has_key {
        return Err(ApprovalError::NeedsKeys);
    }
    // From here on the claims are the signer's own words.
    let passkey = check_signature(token, expected.risk, approvers)?;
    if claims.installation != expected.installation || claims.epoch != expected.epoch {
        return Err(ApprovalError::Foreign);
    }
    // The ask, the action and the shown text are compared one by one, so that the error names what differs.
    if claims.ask != expected.ask {
        return Err(ApprovalError::Mismatch("another ask"));
    }
    if claims.prepared != expected.prepared {
        return Err(ApprovalError::Mismatch("the action has changed"));
    }
    if claims.shown != expected.shown {
        return Err(ApprovalError::Mismatch("another text was shown"));
    }
    check_scope(claims, expected)?;
    if !is_nonce(&claims.nonce) {
        return Err(ApprovalError::Nonce);
    }
    // Clocks differ a little; a signature from a later time than that is not one that was made.
    let early = claims.issued_at.as_millis() > now.as_millis().saturating_add(MAX_SKEW_MS);
    // A standing approval outlives its ask, which must have been open when it was given: the store sees to that.
    let stands = claims.answer_scope() == ApprovalScope::Standing;
    if early || now >= claims.expires_at || (now >= expected.expires_at && !stands) {
        return Err(ApprovalError::Expired);
    }
    // The claims could name a later end than their terms allow.
    let ends = claims.task.map(|task| claims.issued_at.plus_duration(task.ttl()));
    if ends.is_some_and(|ends| claims.expires_at > ends) {
        return Err(ApprovalError::Mismatch("it would be good for too long"));
    }
    let by = match (&claims.approver, &passkey) {
        (_, Some(used)) => format!("passkey {}", used.credential),
        (Approver::Key { public }, None) => format!("key {public}"),
        (Approver::Session { principal }, None) => principal.clone(),
        // Not reached: `check_signature` has refused a passkey without an assertion.
        (Approver::Passkey { .. }, None) => return Err(ApprovalError::Signature),
    };
    Ok(Approval { claims: claims.clone(), passkey, by: [by].into() })
}

/// Checks that an answer has at most one scope, and one that its card has offered.
fn check_scope(claims: &ApprovalClaims, expected: &Expected) -> Result<(), ApprovalError> {
    // Terms that no card offered would widen an approval beyond what its signer saw.
    if claims.task.is_some_and(|task| claims.decision == Decision::Deny || !expected.offers_terms(&task)) {
        return Err(ApprovalError::Mismatch("another scope was offered"));
    }
    // One of them at a time, and none with a no: a denial has nothing to extend.
    let scopes = [claims.task.is_some(), claims.values, claims.host.is_some()]
        .into_iter()
        .filter(|scope| *scope)
        .count();
    let extra = scopes > 1 || (scopes > 0 && claims.decision == Decision::Deny);
    if extra || (claims.values && !expected.values) || (claims.host.is_some() && claims.host != expected.host)
    {
        return Err(ApprovalError::Mismatch("another scope was offered"));
    }
    Ok(())
}

/// Checks what several people have signed of the same ask: each as [`verify_approval`] does, no two by the same key, and as many
/// as must. The last one's claims are the approval's.
///
/// # Errors
///
/// The first thing that is wrong with one of them, or that they are too few.
pub fn verify_all(
    tokens: &[ApprovalToken],
    expected: &Expected,
    approvers: &Approvers,
    now: Timestamp,
) -> Result<Approval, ApprovalError> {
    let needed = expected.approvers;
    let mut whole: Option<Approval> = None;
    // One person with two keys counts twice, which the owner decides by enrolling them.
    for token in tokens {
        let mut next = verify_approval(token, expected, approvers, now)?;
        if let Some(before) = whole {
            if !next.by.is_disjoint(&before.by) {
                return Err(ApprovalError::Twice);
            }
            next.by.extend(before.by);
        }
        whole = Some(next);
    }
    // The count is made at the end, so that the error says how many are missing.
    let given = whole.as_ref().map_or(0, Approval::count_people);
    whole.filter(|_| given >= usize::from(needed)).ok_or(ApprovalError::TooFew { given, needed })
}

/// Checks the signature by the kind of who signs; the passkey's use, if it was one.
fn check_signature(
    token: &ApprovalToken,
    risk: Risk,
    approvers: &Approvers,
) -> Result<Option<PasskeyUse>, ApprovalError> {
    let claims = &token.claims;
    let key = match (&claims.approver, &token.passkey) {
        // The key is looked up by what the claims name, and only enrolled keys are found.
        (Approver::Key { public }, None) => {
            approvers.keys.get(public).ok_or(ApprovalError::UnknownApprover)?
        }
        (Approver::Session { .. }, None) => &approvers.harness,
        (Approver::Passkey { origin }, Some(signed)) => {
            let passkey = approvers.passkeys.get(&signed.id).ok_or(ApprovalError::UnknownApprover)?;
            let challenge = claims.challenge().map_err(|_| ApprovalError::Signature)?;
            let said = webauthn::verify_assertion(signed, passkey, &challenge, origin)?;
            // An action that cannot be undone needs a person verified by the passkey; touching it is not enough.
            if risk == Risk::Irreversible && claims.decision == Decision::Approve && !said.user_verified {
                return Err(PasskeyError::Unverified.into());
            }
            let credential = passkey.credential_id().to_owned();
            return Ok(Some(PasskeyUse { credential, sign_count: said.sign_count }));
        }
        (Approver::Key { .. } | Approver::Session { .. }, Some(_)) | (Approver::Passkey { .. }, None) => {
            return Err(ApprovalError::Signature);
        }
    };
    let mut bytes = [0; 64];
    hex::decode_to_slice(&token.signature, &mut bytes).map_err(|_| ApprovalError::Signature)?;
    // The bytes are written anew from the parsed claims, so a signature over another spelling is refused.
    let message = signed_bytes(claims).map_err(|_| ApprovalError::Signature)?;
    // The strict check refuses signatures that would fit more than one key.
    key.verify_strict(&message, &Signature::from_bytes(&bytes)).map_err(|_| ApprovalError::Signature)?;
    Ok(None)
}

pub use terms::{ScopeError, StandingTerms, TaskTerms};

mod terms;

#[cfg(test)]
mod tests;
