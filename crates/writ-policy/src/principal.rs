//! Principals: evidence becomes an authenticated, bounded, normalised message.

use std::collections::BTreeSet;
use std::fmt;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use subtle::{Choice, ConstantTimeEq as _};
use unicode_normalization::UnicodeNormalization as _;
use writ_types::digest::{Digest, canonical_json};
use writ_types::entry::InboundRecord;
use writ_types::id::SessionId;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use crate::inbound::SignedMessage;
use crate::order::StandingOrder;
use writ_inspect::redact::{Guarded, Redactor};

/// The longest message accepted, in bytes: about four long novels' chapters, far beyond what a person types.
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// The name in the ledger for an unverified sender on a relayed channel.
pub const RELAYED: &str = "relayed";
/// The longest name of a sender on a channel that is relayed, in bytes.
pub const MAX_SENDER_BYTES: usize = 128;

/// An authenticated source of words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Principal {
    /// The owner of the home.
    Owner,
    /// Another person that the owner has named.
    Member(String),
    /// A person who may answer asks.
    Approver(String),
    /// A person who may look.
    Viewer(String),
    /// A customer in one case; its text is external.
    Guest {
        /// The case.
        case: String,
    },
    /// The harness, under a standing order of the owner.
    Harness {
        /// The order.
        order: String,
    },
}

impl Principal {
    /// Returns the taint of this principal's own words.
    pub const fn taint(&self) -> Taint {
        match self {
            // A standing order speaks with its owner's words, which they have signed.
            Self::Owner | Self::Harness { .. } => Taint::Owner,
            Self::Member(_) | Self::Approver(_) | Self::Viewer(_) => Taint::Auth,
            Self::Guest { .. } => Taint::External,
        }
    }

    /// Returns true if this principal may open turns.
    pub const fn may_ask(&self) -> bool {
        match self {
            Self::Owner | Self::Member(_) | Self::Guest { .. } | Self::Harness { .. } => true,
            Self::Approver(_) | Self::Viewer(_) => false,
        }
    }

    /// Returns true if this principal may answer asks.
    pub const fn may_approve(&self) -> bool {
        match self {
            Self::Owner | Self::Approver(_) => true,
            Self::Member(_) | Self::Viewer(_) | Self::Guest { .. } | Self::Harness { .. } => false,
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner => f.write_str("owner"),
            Self::Member(name) => write!(f, "member:{name}"),
            Self::Approver(name) => write!(f, "approver:{name}"),
            Self::Viewer(name) => write!(f, "viewer:{name}"),
            Self::Guest { case } => write!(f, "guest:{case}"),
            Self::Harness { order } => write!(f, "harness:{order}"),
        }
    }
}

/// The evidence that a surface has about a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The kernel's word for the user id of the process at the other end of `control.sock`.
    PeerUid(u32),
    /// A secret of the home that only its owner can have read: the token of the API, or that of a page's session.
    Bearer(BearerProof),
    /// Nothing.
    None,
}

/// The stored form of a bearer secret: its SHA-256. A reader of the store gets no secret from it, since
/// secrets are random and long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BearerHash(Digest);

impl BearerHash {
    /// The hash of a secret.
    pub fn hash_secret(secret: &str) -> Self {
        Self(Digest::of_bytes(secret.as_bytes()))
    }

    /// Wraps a stored hash.
    pub const fn from_digest(digest: Digest) -> Self {
        Self(digest)
    }

    /// Returns the hash, to be stored.
    pub const fn digest(&self) -> Digest {
        self.0
    }
}

/// Proof that one of the home's secrets was presented. Made only by [`prove_bearer`].
///
/// ```compile_fail,E0451
/// let _ = writ_policy::principal::BearerProof { shown: () };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BearerProof {
    shown: (),
}

/// Compares a presented secret with the valid ones, in the same time for right and wrong ones.
pub fn prove_bearer<'a>(shown: &str, known: impl IntoIterator<Item = &'a BearerHash>) -> Option<BearerProof> {
    let shown = BearerHash::hash_secret(shown);
    let same = |found: Choice, known: &BearerHash| found | shown.0.as_bytes().ct_eq(known.0.as_bytes());
    // Every secret is compared, and all of each, so the time says nothing about how close a guess was.
    bool::from(known.into_iter().fold(Choice::from(0), same)).then_some(BearerProof { shown: () })
}

/// The identities that the installation has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The user id that owns the home folder.
    pub home_uid: u32,
}

/// A message as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// The session that it is for.
    pub session: SessionId,
    /// The client's id of the message; unique per session.
    pub client_id: String,
    /// The text.
    pub text: String,
}

/// Something that is known to come from a principal. Made only by [`authenticate`] and [`identify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated<T> {
    principal: Principal,
    at: Timestamp,
    value: T,
    masked: BTreeSet<String>,
}

impl<T> Authenticated<T> {
    /// Attributes a message to the sender that a relay names. It counts as the owner's only with the owner's
    /// signature; any other sender is a guest.
    #[must_use]
    pub fn relayed_by(self, signed: Option<&SignedMessage>, sender: Option<&str>) -> Self {
        let principal = match (signed, sender) {
            // The owner's signature proves the sender, also where a relay has passed it on.
            (Some(_), _) => return self,
            (None, Some(sender)) => Principal::Guest { case: format!("{RELAYED}/{sender}") },
            (None, None) => Principal::Guest { case: RELAYED.to_owned() },
        };
        Self { principal, ..self }
    }

    /// Attributes a message to the harness: under a standing order the owner's own process speaks for no
    /// person.
    #[must_use]
    pub fn under_order(self, order: &StandingOrder) -> Self {
        // The order has fewer rights than its owner, so the owner's process must not lend its own.
        let principal = match self.principal {
            Principal::Owner => Principal::Harness { order: order.claims().order.to_string() },
            other @ (Principal::Member(_)
            | Principal::Approver(_)
            | Principal::Viewer(_)
            | Principal::Guest { .. }
            | Principal::Harness { .. }) => other,
        };
        Self { principal, ..self }
    }

    /// Returns the principal.
    pub const fn principal(&self) -> &Principal {
        &self.principal
    }

    /// When it was authenticated.
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Returns the authenticated value.
    pub const fn get_value(&self) -> &T {
        &self.value
    }

    /// Returns the names of the credentials that were masked in the text.
    pub const fn masked_names(&self) -> &BTreeSet<String> {
        &self.masked
    }
}

/// The reason why a message is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The evidence proves no identity of the installation.
    #[error("not the owner of this home")]
    Unknown,
    /// The message is empty.
    #[error("the message is empty")]
    Empty,
    /// The message is too long.
    #[error("the message has {bytes} bytes; the limit is {MAX_MESSAGE_BYTES}")]
    TooLong {
        /// Its size.
        bytes: usize,
    },
    /// The client's id of the message is not 1 to 128 visible ASCII characters.
    #[error("client_id must be 1 to 128 visible ASCII characters")]
    ClientId,
    /// Most of the message is credentials: these, by name.
    #[error("the message is a credential ({}): it was neither stored nor passed on", .0.join(", "))]
    Credential(Vec<String>),
    /// This principal may not do that.
    #[error("{0} may not do that")]
    NotAllowed(Principal),
}

/// Identifies the principal.
///
/// # Errors
///
/// If the evidence proves no identity of the directory.
pub fn identify(
    evidence: Evidence,
    directory: &Directory,
    now: Timestamp,
) -> Result<Authenticated<()>, AuthError> {
    match evidence {
        // The kernel's word about a user id cannot be forged by the other process.
        Evidence::PeerUid(uid) if uid == directory.home_uid => {
            Ok(Authenticated { principal: Principal::Owner, at: now, value: (), masked: BTreeSet::new() })
        }
        Evidence::Bearer(BearerProof { shown: () }) => {
            Ok(Authenticated { principal: Principal::Owner, at: now, value: (), masked: BTreeSet::new() })
        }
        Evidence::PeerUid(_) | Evidence::None => Err(AuthError::Unknown),
    }
}

/// Authenticates, bounds and normalises (NFC, no NUL) a message, and masks the credentials in it: the only
/// way to an `Authenticated<Inbound>`.
///
/// # Errors
///
/// If no identity is proven, the principal may not open turns, or the message is empty, too long or mostly a
/// credential.
pub fn authenticate(
    evidence: Evidence,
    inbound: Inbound,
    directory: &Directory,
    redactor: &Redactor,
    now: Timestamp,
) -> Result<Authenticated<Inbound>, AuthError> {
    let who = identify(evidence, directory, now)?;
    if !who.principal.may_ask() {
        return Err(AuthError::NotAllowed(who.principal));
    }
    if inbound.text.len() > MAX_MESSAGE_BYTES {
        return Err(AuthError::TooLong { bytes: inbound.text.len() });
    }
    // NFC first, so that two spellings of one letter are one, and no NUL ends a text early for some readers.
    let text: String = inbound.text.nfc().filter(|c| *c != '\0').collect();
    if text.trim().is_empty() {
        return Err(AuthError::Empty);
    }
    let id = &inbound.client_id;
    // The id stands in frames and records, so it is short and visible.
    if id.is_empty() || id.len() > 128 || !id.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(AuthError::ClientId);
    }
    // Masked before it is stored: what the store never had it cannot give away.
    let (text, masked) = match redactor.judge_message(&text) {
        Guarded::Passed(clean, masked) => (clean.into_string(), masked),
        Guarded::Blocked(names) => return Err(AuthError::Credential(names.into_iter().collect())),
    };
    // A client may put a credential into its id by mistake.
    let client_id = redactor.mask_text(&inbound.client_id).into_owned();
    let value = Inbound { text, client_id, ..inbound };
    Ok(Authenticated { principal: who.principal, at: now, value, masked })
}

/// Signs the record of a message together with its taint and turn number; the result is hexadecimal.
///
/// # Errors
///
/// If the record has no canonical form.
pub fn sign_record(
    record: &InboundRecord,
    key: &SigningKey,
) -> Result<String, writ_types::digest::NotCanonical> {
    Ok(hex::encode(key.sign(&canonical_json(record)?).to_bytes()))
}

/// Verifies the signature of a record.
pub fn record_is_signed(record: &InboundRecord, signature: &str, key: &VerifyingKey) -> bool {
    let mut bytes = [0; 64];
    hex::decode_to_slice(signature, &mut bytes).is_ok()
        && canonical_json(record)
            .is_ok_and(|message| key.verify_strict(&message, &Signature::from_bytes(&bytes)).is_ok())
}

#[cfg(test)]
mod tests {
    use writ_types::id::MessageId;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);
    const DIRECTORY: Directory = Directory { home_uid: 1000 };

    fn inbound(text: &str) -> Inbound {
        Inbound { session: SessionId::from_parts(NOW, 1), client_id: "c1".into(), text: text.into() }
    }

    /// Rows: SIL-167 (in part: the owner) SIL-013
    #[test]
    fn only_the_owner_of_the_home_is_the_owner() {
        let message =
            authenticate(Evidence::PeerUid(1000), inbound("hi"), &DIRECTORY, &Redactor::default(), NOW)
                .expect("owner");
        assert_eq!(message.principal(), &Principal::Owner);
        assert_eq!(message.principal().taint(), Taint::Owner);
        for evidence in [Evidence::PeerUid(0), Evidence::PeerUid(1001), Evidence::None] {
            assert_eq!(
                authenticate(evidence, inbound("hi"), &DIRECTORY, &Redactor::default(), NOW),
                Err(AuthError::Unknown)
            );
        }
    }

    /// What a client calls a message is kept, too, and a secret of the home in it is masked as in the text.
    #[test]
    fn the_name_of_a_message_holds_no_secret() {
        let secret = "hunter2-of-the-mail";
        let redactor = Redactor::default();
        redactor.learn_secrets(&[writ_inspect::redact::KnownSecret {
            name: "secret:mail".into(),
            value: secret.into(),
        }]);
        let named = |client_id: String| {
            let inbound = Inbound { client_id, ..inbound("hi") };
            authenticate(Evidence::PeerUid(1000), inbound, &DIRECTORY, &redactor, NOW).expect("owner")
        };
        assert_eq!(named("c1".into()).get_value().client_id, "c1");
        let masked = named(format!("c-{secret}"));
        assert_eq!(masked.get_value().client_id, "c-[masked:secret:mail]");
    }

    /// Rows: SIL-019 SCL-078
    #[test]
    fn who_shows_a_secret_of_the_home_is_its_owner_and_nobody_else() {
        let known = ["one secret", "another secret"].map(BearerHash::hash_secret);
        for secret in ["one secret", "another secret"] {
            let proof = prove_bearer(secret, &known).expect("known");
            let message =
                authenticate(Evidence::Bearer(proof), inbound("hi"), &DIRECTORY, &Redactor::default(), NOW)
                    .expect("owner");
            assert_eq!(message.principal().taint(), Taint::Owner);
        }
        for wrong in ["", "one secre", "one secret ", "One secret", &"x".repeat(1 << 20)] {
            assert_eq!(prove_bearer(wrong, &known), None);
        }
        assert_eq!(prove_bearer("one secret", &[]), None, "where no secret counts, none is good");
        let twice = [known[0], known[0]];
        assert!(prove_bearer("one secret", &twice).is_some(), "listed twice");
        let kept = BearerHash::from_digest(known[0].digest());
        assert!(prove_bearer("one secret", [&kept]).is_some());
    }

    /// Who may do what, by name.
    #[test]
    fn principals_have_names_and_rights() {
        let named = |name: &str| name.to_owned();
        for (who, name, asks, approves) in [
            (Principal::Owner, "owner", true, true),
            (Principal::Member(named("ann")), "member:ann", true, false),
            (Principal::Approver(named("bob")), "approver:bob", false, true),
            (Principal::Viewer(named("cy")), "viewer:cy", false, false),
            (Principal::Guest { case: named("x/1") }, "guest:x/1", true, false),
            (Principal::Harness { order: named("nightly") }, "harness:nightly", true, false),
        ] {
            assert_eq!((who.to_string().as_str(), who.may_ask(), who.may_approve()), (name, asks, approves));
        }
    }

    /// Rows: SCL-043
    #[test]
    fn messages_are_bounded_and_normalised() {
        let owner = Evidence::PeerUid(1000);
        assert_eq!(
            authenticate(owner, inbound(" \n\0"), &DIRECTORY, &Redactor::default(), NOW),
            Err(AuthError::Empty)
        );
        let long = "x".repeat(1_048_577);
        assert_eq!(
            authenticate(owner, inbound(&long), &DIRECTORY, &Redactor::default(), NOW),
            Err(AuthError::TooLong { bytes: 1_048_577 })
        );
        let message = authenticate(owner, inbound("e\u{301}\0"), &DIRECTORY, &Redactor::default(), NOW)
            .expect("accepted");
        assert_eq!(message.get_value().text, "\u{e9}");
        assert_eq!((message.at(), message.masked_names().len()), (NOW, 0));
        let most = "x".repeat(1_048_576);
        assert!(authenticate(owner, inbound(&most), &DIRECTORY, &Redactor::default(), NOW).is_ok());
        for (bytes, good) in [(0, false), (1, true), (128, true), (129, false)] {
            let named = Inbound { client_id: "c".repeat(bytes), ..inbound("hi") };
            let said = authenticate(owner, named, &DIRECTORY, &Redactor::default(), NOW);
            assert_eq!(said.is_ok(), good, "an id of {bytes} bytes");
        }
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let said = format!("use {token} for what I have told you about the release of next week, please");
        let message =
            authenticate(owner, inbound(&said), &DIRECTORY, &Redactor::default(), NOW).expect("accepted");
        assert!(
            !message.get_value().text.contains(&token) && message.masked_names().len() == 1,
            "{:?}",
            message.masked_names()
        );
        let named = Inbound { client_id: "a b".into(), ..inbound("hi") };
        assert_eq!(
            authenticate(owner, named, &DIRECTORY, &Redactor::default(), NOW),
            Err(AuthError::ClientId)
        );
    }

    /// Rows: SIL-024
    #[test]
    fn a_record_is_signed_with_its_taint_and_turn() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let record = InboundRecord {
            message: MessageId::from_parts(NOW, 1),
            session: SessionId::from_parts(NOW, 1),
            turn_number: 3,
            principal: "owner".into(),
            taint: Taint::Owner,
            text: Digest::of_bytes(b"hi"),
            at: NOW,
        };
        let signature = sign_record(&record, &key).expect("signs");
        assert!(record_is_signed(&record, &signature, &key.verifying_key()));
        let renumbered = InboundRecord { turn_number: 4, ..record.clone() };
        assert!(!record_is_signed(&renumbered, &signature, &key.verifying_key()));
        let relabelled = InboundRecord { taint: Taint::External, ..record };
        assert!(!record_is_signed(&relabelled, &signature, &key.verifying_key()));
    }

    /// Rows: SIL-383 SIL-416
    #[test]
    fn the_same_text_counts_as_the_channel_that_it_came_through() {
        let said = || {
            authenticate(Evidence::PeerUid(1000), inbound("hi"), &DIRECTORY, &Redactor::default(), NOW)
                .expect("the relay is the owner's own program")
        };
        let (named, anybody) = (said().relayed_by(None, Some("ann")), said().relayed_by(None, None));
        // The owner has named nobody: a relay's word makes no member.
        let guest = Principal::Guest { case: format!("{RELAYED}/ann") };
        assert_eq!((named.principal(), named.principal().taint()), (&guest, Taint::External));
        assert_eq!(anybody.principal().taint(), Taint::External);
        assert_eq!(said().principal().taint(), Taint::Owner);
        for less in [&named, &anybody] {
            assert!(less.principal().may_ask() && !less.principal().may_approve());
        }
    }

    #[test]
    fn viewers_neither_ask_nor_approve() {
        assert!(!Principal::Viewer("v".into()).may_ask());
        assert!(!Principal::Viewer("v".into()).may_approve());
        assert!(!Principal::Guest { case: "1".into() }.may_approve());
        assert_eq!(Principal::Guest { case: "1".into() }.taint(), Taint::External);
    }
}
