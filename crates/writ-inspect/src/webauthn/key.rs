//! Public keys of passkeys, of the two supported algorithms: ES256 and EdDSA.

use ed25519_dalek::VerifyingKey as Ed25519Key;
use p256::ecdsa::VerifyingKey as P256Key;
use p256::ecdsa::signature::Verifier as _;

use super::cbor::CborValue;
use super::{EDDSA, ES256, PasskeyError};

/// A public key of an authenticator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CredentialKey {
    P256(P256Key),
    Ed25519(Ed25519Key),
}

impl CredentialKey {
    /// Reads a COSE key (RFC 9053). It must have the members of its algorithm and no others.
    pub(super) fn read_key(value: &CborValue<'_>) -> Result<Self, PasskeyError> {
        let CborValue::Map(members) = value else { return Err(PasskeyError::Key) };
        let member = |label: i64| {
            members.iter().find_map(|(key, value)| (*key == CborValue::Int(label)).then_some(value))
        };
        let (kind, algorithm, curve) = (member(1), member(3), member(-1));
        let is = |value: Option<&CborValue<'_>>, number: i64| value == Some(&CborValue::Int(number));
        let Some(CborValue::Bytes(x)) = member(-2) else { return Err(PasskeyError::Key) };
        // Each combination stands for one algorithm: a key of one used with another is refused.
        if is(algorithm, ES256) && is(kind, 2) && is(curve, 1) && members.len() == 5 {
            let Some(CborValue::Bytes(y)) = member(-3) else { return Err(PasskeyError::Key) };
            if x.len() != 32 || y.len() != 32 {
                return Err(PasskeyError::Key);
            }
            // The prefix 4 says that both coordinates follow (SEC 1, section 2.3.3); the library checks that
            // they lie on the curve.
            let point = [&[4][..], x, y].concat();
            return P256Key::from_sec1_bytes(&point).map(Self::P256).map_err(|_| PasskeyError::Key);
        }
        if is(algorithm, EDDSA) && is(kind, 1) && is(curve, 6) && members.len() == 4 {
            return Self::ed25519(x);
        }
        Err(PasskeyError::Key)
    }

    fn ed25519(bytes: &[u8]) -> Result<Self, PasskeyError> {
        let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| PasskeyError::Key)?;
        let key = Ed25519Key::from_bytes(&bytes).map_err(|_| PasskeyError::Key)?;
        // A weak key has signatures that fit any text.
        if key.is_weak() { Err(PasskeyError::Key) } else { Ok(Self::Ed25519(key)) }
    }

    /// Reads a key that [`Self::to_bytes`] has written.
    pub(super) fn from_bytes(algorithm: i64, bytes: &[u8]) -> Result<Self, PasskeyError> {
        match algorithm {
            ES256 => P256Key::from_sec1_bytes(bytes).map(Self::P256).map_err(|_| PasskeyError::Key),
            EDDSA => Self::ed25519(bytes),
            _ => Err(PasskeyError::Key),
        }
    }

    /// Returns the bytes of the key alone: a compressed point (SEC 1) for ES256, 32 bytes for EdDSA.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::P256(key) => key.to_encoded_point(true).as_bytes().to_vec(),
            Self::Ed25519(key) => key.as_bytes().to_vec(),
        }
    }

    pub(super) const fn algorithm(&self) -> i64 {
        match self {
            Self::P256(_) => ES256,
            Self::Ed25519(_) => EDDSA,
        }
    }

    pub(super) fn check_signature(&self, message: &[u8], signature: &[u8]) -> Result<(), PasskeyError> {
        let refused = |_| PasskeyError::Signature;
        match self {
            Self::P256(key) => {
                let signature = p256::ecdsa::Signature::from_der(signature).map_err(refused)?;
                key.verify(message, &signature).map_err(refused)
            }
            Self::Ed25519(key) => {
                let signature = ed25519_dalek::Signature::from_slice(signature).map_err(refused)?;
                // The strict check refuses signatures that other libraries accept for other keys.
                key.verify_strict(message, &signature).map_err(refused)
            }
        }
    }
}
