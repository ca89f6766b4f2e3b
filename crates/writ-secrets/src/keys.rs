//! Ed25519 keys inside a document.

use ed25519_dalek::{SigningKey, VerifyingKey};
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use secrecy::ExposeSecret as _;
use zeroize::Zeroizing;

use crate::document::{Document, Hidden};
use crate::error::SecretsError;

/// Makes a key. An existing one is never overwritten.
pub(crate) fn generate(document: &mut Document, role: &'static str) -> Result<VerifyingKey, SecretsError> {
    if document.keys.contains_key(role) {
        return Err(SecretsError::KeyExists(role));
    }
    let mut seed = Zeroizing::new([0; 32]);
    OsRng.try_fill_bytes(seed.as_mut()).map_err(|_| SecretsError::NoRandomness)?;
    document.keys.insert(role.to_owned(), Hidden(hex::encode(seed.as_ref()).into()));
    Ok(SigningKey::from_bytes(&seed).verifying_key())
}

/// Reads a key.
pub(crate) fn load(document: &Document, role: &'static str) -> Result<SigningKey, SecretsError> {
    let hidden = document.keys.get(role).ok_or(SecretsError::NoSuchKey(role))?;
    let mut seed = Zeroizing::new([0; 32]);
    hex::decode_to_slice(hidden.0.expose_secret(), seed.as_mut()).map_err(|_| SecretsError::Damaged {
        name: format!("the {role} key"),
        reason: "it has a wrong form",
    })?;
    Ok(SigningKey::from_bytes(&seed))
}
