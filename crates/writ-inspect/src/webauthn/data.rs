//! Data of an authenticator, and the attestation that carries a new key.

use writ_types::digest::Digest;

use super::cbor::{self, CborValue};
use super::key::CredentialKey;
use super::{MAX_CREDENTIAL_BYTES, PasskeyError};

/// A person was there (level 2, section 6.1).
pub(super) const PRESENT: u8 = 0x01;
/// The authenticator knew who it was.
pub(super) const VERIFIED: u8 = 0x04;
/// The key may be copied to other devices of its person.
const BACKUP_ELIGIBLE: u8 = 0x08;
/// The key was copied.
const BACKED_UP: u8 = 0x10;
/// A new key follows.
const KEY_FOLLOWS: u8 = 0x40;
/// Extensions follow.
const EXTENSIONS_FOLLOW: u8 = 0x80;

/// Hash of the site, flags, counter.
const FIXED_BYTES: usize = 37;

/// The data of an authenticator about itself and its ceremony.
pub(super) struct AuthenticatorData<'a> {
    flags: u8,
    pub(super) sign_count: u32,
    rest: &'a [u8],
}

impl<'a> AuthenticatorData<'a> {
    pub(super) fn read_data(bytes: &'a [u8], site: &str) -> Result<Self, PasskeyError> {
        let malformed = PasskeyError::Malformed("authenticator data");
        let (fixed, rest) = bytes.split_at_checked(FIXED_BYTES).ok_or(malformed)?;
        let (hash, after) = fixed.split_at_checked(32).ok_or(malformed)?;
        let [flags, counter @ ..] = after else { return Err(malformed) };
        let sign_count = u32::from_be_bytes(counter.try_into().map_err(|_| malformed)?);
        // The authenticator hashes the site that it signs for, so a signature for another one does not fit
        // here.
        if hash != Digest::of_bytes(site.as_bytes()).as_bytes().as_slice() {
            return Err(PasskeyError::Site);
        }
        let data = Self { flags: *flags, sign_count, rest };
        // A key that is backed up must also be marked as one that can be.
        if data.has_flag(BACKED_UP) && !data.has_flag(BACKUP_ELIGIBLE) {
            return Err(malformed);
        }
        Ok(data)
    }

    pub(super) const fn has_flag(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The new key and its credential's id; nothing else may follow but extensions.
    pub(super) fn new_key(&self) -> Result<(&'a [u8], CredentialKey), PasskeyError> {
        let malformed = PasskeyError::Malformed("new key");
        if !self.has_flag(KEY_FOLLOWS) {
            return Err(malformed);
        }
        // The maker's number of its model, then the length of the id.
        let (_, rest) = self.rest.split_at_checked(16).ok_or(malformed)?;
        let (length, rest) = rest.split_at_checked(2).ok_or(malformed)?;
        let length = usize::from(u16::from_be_bytes(length.try_into().map_err(|_| malformed)?));
        // Zero is no id, and the length comes from outside, so it is bounded before it is used.
        if length == 0 || length > MAX_CREDENTIAL_BYTES {
            return Err(malformed);
        }
        let (id, rest) = rest.split_at_checked(length).ok_or(malformed)?;
        let (key, rest) = cbor::read_value(rest).map_err(|_| PasskeyError::Malformed("COSE key"))?;
        // Nothing may follow that was not announced.
        self.check_extensions(rest)?;
        Ok((id, CredentialKey::read_key(&key)?))
    }

    pub(super) fn has_no_key(&self) -> Result<(), PasskeyError> {
        if self.has_flag(KEY_FOLLOWS) {
            return Err(PasskeyError::Malformed("authenticator data"));
        }
        self.check_extensions(self.rest)
    }

    /// Extensions were not asked for; what an authenticator adds is read to its end and not heeded.
    fn check_extensions(&self, rest: &[u8]) -> Result<(), PasskeyError> {
        let malformed = PasskeyError::Malformed("extensions");
        if !self.has_flag(EXTENSIONS_FOLLOW) {
            // Trailing bytes would be signed, and read by no one.
            return if rest.is_empty() { Ok(()) } else { Err(malformed) };
        }
        match cbor::read_value(rest) {
            Ok((CborValue::Map(_), [])) => Ok(()),
            Ok(_) | Err(_) => Err(malformed),
        }
    }
}

/// An attestation object: none, or the key's own signature.
pub(super) struct Attestation<'a> {
    pub(super) data: &'a [u8],
    /// Algorithm and signature, where the key signs for itself.
    own: Option<(i64, &'a [u8])>,
}

impl<'a> Attestation<'a> {
    pub(super) fn read_attestation(object: &'a [u8]) -> Result<Self, PasskeyError> {
        let malformed = PasskeyError::Malformed("attestation");
        // The object must end where the bytes end.
        let Ok((CborValue::Map(members), [])) = cbor::read_value(object) else { return Err(malformed) };
        let member = |name: &str| {
            members.iter().find_map(|(key, value)| (*key == CborValue::Text(name)).then_some(value))
        };
        let Some(CborValue::Bytes(data)) = member("authData") else { return Err(malformed) };
        let own = match (member("fmt"), member("attStmt")) {
            (Some(CborValue::Text("none")), Some(CborValue::Map(statement))) if statement.is_empty() => None,
            (Some(CborValue::Text("packed")), Some(CborValue::Map(statement))) => {
                Some(own_signature(statement)?)
            }
            _ => return Err(PasskeyError::Attestation),
        };
        // Exactly these three members: another one would be a form that is not known here.
        if members.len() == 3 { Ok(Self { data, own }) } else { Err(malformed) }
    }

    pub(super) fn check_attestation(
        &self,
        key: &CredentialKey,
        client_data: &Digest,
    ) -> Result<(), PasskeyError> {
        let Some((algorithm, signature)) = self.own else { return Ok(()) };
        // The key signs for itself, so its algorithm is the key's own.
        if algorithm != key.algorithm() {
            return Err(PasskeyError::Attestation);
        }
        key.check_signature(&[self.data, client_data.as_bytes().as_slice()].concat(), signature)
    }
}

/// The key's own signature (level 2, section 8.2), where no certificate stands beside it.
fn own_signature<'a>(statement: &[(CborValue<'a>, CborValue<'a>)]) -> Result<(i64, &'a [u8]), PasskeyError> {
    let member = |name: &str| {
        statement.iter().find_map(|(key, value)| (*key == CborValue::Text(name)).then_some(value))
    };
    // A third member is a certificate chain, which would have to be verified.
    match (member("alg"), member("sig"), statement.len()) {
        (Some(CborValue::Int(algorithm)), Some(CborValue::Bytes(signature)), 2) => {
            Ok((*algorithm, signature))
        }
        _ => Err(PasskeyError::Attestation),
    }
}
