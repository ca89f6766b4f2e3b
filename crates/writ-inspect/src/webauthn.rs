//! Passkeys: what a browser says of an authenticator (Web Authentication, level 2), as far as approvals need it.
//!
//! Two ceremonies: [`verify_registration`] takes a new key in, [`verify_assertion()`] checks what a known key has signed. Both are pure:
//! challenge and origin are arguments, and who calls makes sure that a challenge is used once. What a browser
//! sends is bounded before it is read. The key counts, not its maker: no attestation is asked for, and none is
//! believed.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use writ_types::digest::{Digest, canonical_json};

use data::{Attestation, AuthenticatorData, PRESENT, VERIFIED};
use key::CredentialKey;

mod cbor;

mod data;

mod key;

/// The longest `clientDataJSON`, in bytes: browsers write about 200, and may add what others should ignore.
pub const MAX_CLIENT_DATA_BYTES: usize = 4 * 1024;
/// The longest attestation object or authenticator data, in bytes: a key with the longest id takes 1.3 KiB.
pub const MAX_AUTHENTICATOR_BYTES: usize = 8 * 1024;
/// The longest signature, in bytes: one of ES256 takes 72 at most.
pub const MAX_SIGNATURE_BYTES: usize = 128;
/// The longest id of a credential, in bytes (level 2, section 4).
pub const MAX_CREDENTIAL_BYTES: usize = 1023;

/// ECDSA with P-256 and SHA-256, by its number among the algorithms of COSE.
pub const ES256: i64 = -7;
/// Ed25519, by its number among the algorithms of COSE.
pub const EDDSA: i64 = -8;

/// The reason why a passkey, or its signature, does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasskeyError {
    /// Longer than its bound.
    #[error("what the passkey sent is too long ({0})")]
    TooLong(&'static str),
    /// Not in the form that it must have.
    #[error("what the passkey sent cannot be read ({0})")]
    Malformed(&'static str),
    /// Made for enrolling where it should sign, or the reverse.
    #[error("the passkey has answered another kind of question")]
    Kind,
    /// An answer to another challenge.
    #[error("the passkey has answered another challenge")]
    Challenge,
    /// Signed in a page of another server, or inside one.
    #[error("the passkey was used in a page of another server")]
    Origin,
    /// Bound to another site.
    #[error("the passkey belongs to another site")]
    Site,
    /// The authenticator saw no user.
    #[error("the passkey was used without a person")]
    Absent,
    /// The authenticator did not make sure who it was.
    #[error("the passkey did not verify its user")]
    Unverified,
    /// Another algorithm, or a key that does not fit it.
    #[error("the passkey's key is of a kind that is not supported")]
    Key,
    /// An attestation that is not the plain one.
    #[error("the passkey came with an attestation that is not wanted here")]
    Attestation,
    /// Another key, or other data.
    #[error("the passkey's signature is not valid")]
    Signature,
}

/// The page's report of a new passkey: `PublicKeyCredential`, its bytes as base64url.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Registration {
    /// The credential's id.
    pub id: String,
    /// The same.
    pub raw_id: String,
    /// `public-key`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The authenticator's response.
    pub response: RegistrationResponse,
}

/// `AuthenticatorAttestationResponse`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegistrationResponse {
    /// The browser's account of the ceremony.
    #[serde(rename = "clientDataJSON")]
    pub client_data: String,
    /// The key, as the authenticator says it.
    #[serde(rename = "attestationObject")]
    pub attestation: String,
    /// The transports of the authenticator; not used.
    #[serde(default)]
    pub transports: Vec<String>,
}

/// The page's report of a signature: `PublicKeyCredential`, its bytes as base64url.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Assertion {
    /// The credential's id.
    pub id: String,
    /// The same.
    pub raw_id: String,
    /// `public-key`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The authenticator's response.
    pub response: AssertionResponse,
}

/// `AuthenticatorAssertionResponse`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AssertionResponse {
    /// The browser's account of the ceremony.
    #[serde(rename = "clientDataJSON")]
    pub client_data: String,
    /// The authenticator's account of the ceremony.
    #[serde(rename = "authenticatorData")]
    pub authenticator_data: String,
    /// Its signature over both.
    pub signature: String,
    /// The person's name at the authenticator; not used.
    #[serde(default, rename = "userHandle")]
    pub user: Option<String>,
}

/// A passkey that was taken in: which credential, for which site, with which key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passkey {
    credential: String,
    site: String,
    key: CredentialKey,
}

/// The stored form of a [`Passkey`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredPasskey {
    credential: String,
    site: String,
    algorithm: i64,
    key: String,
}

/// A new passkey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enrolled {
    /// The passkey.
    pub passkey: Passkey,
    /// Its counter of signatures; 0: it counts none.
    pub sign_count: u32,
}

/// The content of a valid assertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asserted {
    /// The authenticator has verified its user.
    pub user_verified: bool,
    /// The counter of signatures; 0: it counts none.
    pub sign_count: u32,
}

/// Returns true if a counter may follow another: it grows, or is not used at all. Otherwise the key may have
/// been copied (level 2, section 6.1.1).
pub const fn counts_on(before: u32, now: u32) -> bool {
    now > before || (before == 0 && now == 0)
}

/// The site that passkeys of a page are bound to: the host of its origin, if browsers let passkeys be used there.
pub fn site_of(origin: &str) -> Option<&str> {
    let (host, secure) = match (origin.strip_prefix("https://"), origin.strip_prefix("http://")) {
        (Some(rest), _) => (rest, true),
        (None, Some(rest)) => (rest, false),
        (None, None) => return None,
    };
    let (host, port) = host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port)));
    // Only the form of the port is checked: passkeys are bound to the host.
    let good_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    // An address is no name: the last label of a name has a letter.
    let named = host.split('.').all(label)
        && host.rsplit('.').next().is_some_and(|last| last.bytes().any(|b| b.is_ascii_alphabetic()));
    // Browsers offer passkeys in secure contexts only, and of plain HTTP that is localhost.
    (good_port && named && (secure || host == "localhost")).then_some(host)
}

/// Checks what a browser says of a new passkey. Its person must have been there and been verified.
///
/// # Errors
///
/// The first thing that is wrong with it.
pub fn verify_registration(
    made: &Registration,
    challenge: &Digest,
    origin: &str,
) -> Result<Enrolled, PasskeyError> {
    let site = site_of(origin).ok_or(PasskeyError::Origin)?;
    // Cheap checks of form come first; signatures are verified last.
    let credential = credential_of(&made.kind, &made.id, &made.raw_id)?;
    let hash = client_data(&made.response.client_data, "webauthn.create", challenge, origin)?;
    let object = decode_base64(&made.response.attestation, MAX_AUTHENTICATOR_BYTES, "attestation")?;
    let attestation = Attestation::read_attestation(&object)?;
    let data = AuthenticatorData::read_data(attestation.data, site)?;
    if !data.has_flag(PRESENT) {
        return Err(PasskeyError::Absent);
    }
    if !data.has_flag(VERIFIED) {
        return Err(PasskeyError::Unverified);
    }
    let (id, key) = data.new_key()?;
    // The id stands in the browser's report and in the signed data: only the second one is proven.
    if id != credential {
        return Err(PasskeyError::Malformed("credential"));
    }
    attestation.check_attestation(&key, &hash)?;
    let passkey = Passkey { credential: URL_SAFE_NO_PAD.encode(id), site: site.to_owned(), key };
    Ok(Enrolled { passkey, sign_count: data.sign_count })
}

/// Checks the assertion of an enrolled passkey: ceremony type, challenge, origin, site, presence, and the
/// signature. The counter is only returned: the store compares it, see [`counts_on`].
///
/// # Errors
///
/// The first defect.
pub fn verify_assertion(
    signed: &Assertion,
    passkey: &Passkey,
    challenge: &Digest,
    origin: &str,
) -> Result<Asserted, PasskeyError> {
    let credential = credential_of(&signed.kind, &signed.id, &signed.raw_id)?;
    // Before anything is verified: the answer must be that of the passkey that the question named.
    if URL_SAFE_NO_PAD.encode(credential) != passkey.credential {
        return Err(PasskeyError::Key);
    }
    // A passkey of one site must not sign for a page of another one.
    if site_of(origin) != Some(passkey.site.as_str()) {
        return Err(PasskeyError::Site);
    }
    let hash = client_data(&signed.response.client_data, "webauthn.get", challenge, origin)?;
    let bytes =
        decode_base64(&signed.response.authenticator_data, MAX_AUTHENTICATOR_BYTES, "authenticator data")?;
    let data = AuthenticatorData::read_data(&bytes, &passkey.site)?;
    // A key in an assertion would be one that no one enrolled.
    data.has_no_key()?;
    if !data.has_flag(PRESENT) {
        return Err(PasskeyError::Absent);
    }
    let signature = decode_base64(&signed.response.signature, MAX_SIGNATURE_BYTES, "signature")?;
    // The signature covers the data and the hash of the client data, in this order (level 2, section 7.2).
    passkey.key.check_signature(&[&bytes, hash.as_bytes().as_slice()].concat(), &signature)?;
    Ok(Asserted { user_verified: data.has_flag(VERIFIED), sign_count: data.sign_count })
}

/// The challenge that an answer names, unchecked: to find the question that it belongs to.
pub fn challenge_of(client_data: &str) -> Option<Digest> {
    let bytes = decode_base64(client_data, MAX_CLIENT_DATA_BYTES, "client data").ok()?;
    let said: ClientData = serde_json::from_slice(&bytes).ok()?;
    let challenge = URL_SAFE_NO_PAD.decode(said.challenge).ok()?;
    // Another length is no challenge of ours, so no question is looked for.
    <[u8; 32]>::try_from(challenge).ok().map(Digest::from_bytes)
}

/// Bytes as browsers are given them: base64url without padding.
pub fn text_of(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Passkey {
    /// The credential's id, as base64url.
    pub fn credential_id(&self) -> &str {
        &self.credential
    }

    /// The site that it is bound to.
    pub fn site_id(&self) -> &str {
        &self.site
    }

    /// Returns the stored form; empty if it has no written form, which [`Self::from_bytes`] refuses.
    pub fn to_bytes(&self) -> Vec<u8> {
        let kept = StoredPasskey {
            credential: self.credential.clone(),
            site: self.site.clone(),
            algorithm: self.key.algorithm(),
            key: hex::encode(self.key.to_bytes()),
        };
        canonical_json(&kept).unwrap_or_default()
    }

    /// Restores a passkey from its stored form.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let StoredPasskey { credential, site, algorithm, key } = serde_json::from_slice(bytes).ok()?;
        let key = CredentialKey::from_bytes(algorithm, &hex::decode(key).ok()?).ok()?;
        Some(Self { credential, site, key })
    }
}

impl fmt::Display for Passkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "passkey {} of {}", self.credential, self.site)
    }
}

/// The browser's account of the ceremony. Further fields are ignored, as the standard wants it.
#[derive(Deserialize)]
struct ClientData {
    #[serde(rename = "type")]
    kind: String,
    challenge: String,
    origin: String,
    #[serde(default, rename = "crossOrigin")]
    cross_origin: Option<bool>,
    #[serde(default, rename = "topOrigin")]
    top_origin: Option<String>,
}

/// Checks what the browser says of the question; the hash that is signed.
fn client_data(text: &str, kind: &str, challenge: &Digest, origin: &str) -> Result<Digest, PasskeyError> {
    let bytes = decode_base64(text, MAX_CLIENT_DATA_BYTES, "client data")?;
    let said: ClientData =
        serde_json::from_slice(&bytes).map_err(|_| PasskeyError::Malformed("client data"))?;
    if said.kind != kind {
        return Err(PasskeyError::Kind);
    }
    // The canonical encoding is compared: another spelling of the same bytes is none that a browser makes.
    if said.challenge != URL_SAFE_NO_PAD.encode(challenge.as_bytes()) {
        return Err(PasskeyError::Challenge);
    }
    // Inside a frame of another page, a person sees that page and not the question.
    if said.origin != origin || said.cross_origin == Some(true) || said.top_origin.is_some() {
        return Err(PasskeyError::Origin);
    }
    Ok(Digest::of_bytes(&bytes))
}

/// Reads the id of a credential, which is given twice.
fn credential_of(kind: &str, id: &str, raw: &str) -> Result<Vec<u8>, PasskeyError> {
    if kind != "public-key" || id != raw {
        return Err(PasskeyError::Malformed("credential"));
    }
    decode_base64(id, MAX_CREDENTIAL_BYTES, "credential")
}

/// Bytes from base64url without padding, bounded before they are read.
fn decode_base64(text: &str, limit: usize, what: &'static str) -> Result<Vec<u8>, PasskeyError> {
    // The length of the text bounds that of the bytes before any of them is decoded.
    if text.len() > limit.div_ceil(3).saturating_mul(4) {
        return Err(PasskeyError::TooLong(what));
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| PasskeyError::Malformed(what))?;
    if bytes.len() > limit { Err(PasskeyError::TooLong(what)) } else { Ok(bytes) }
}
