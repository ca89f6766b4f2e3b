//! Ed25519 keys inside a document.

use std::collections::btree_map::Entry;

use ed25519_dalek::{SigningKey, VerifyingKey};
use rand::TryRngCore as _;
use rand::rngs::OsRng;
use secrecy::ExposeSecret as _;
use zeroize::Zeroizing;

use crate::document::{HiddenText, SecretsDocument};
use crate::error::SecretsError;

/// Makes a key. An existing one is never overwritten.
pub(crate) fn generate_key(
    document: &mut SecretsDocument,
    role: &'static str,
) -> Result<VerifyingKey, SecretsError> {
    // A key that is replaced by mistake makes everything that it has signed worthless.
    if document.keys.contains_key(role) {
        return Err(SecretsError::KeyExists(role));
    }
    let mut seed = Zeroizing::new([0; 32]);
    OsRng.try_fill_bytes(seed.as_mut()).map_err(|_| SecretsError::NoRandomness)?;
    document.keys.insert(role.to_owned(), HiddenText(hex::encode(seed.as_ref()).into()));
    Ok(SigningKey::from_bytes(&seed).verifying_key())
}

/// The role of a key that is to follow another.
fn next_of(role: &str) -> String {
    format!("{role}.next")
}

/// Makes the key that is to follow another, or reads the one that was made before: the change can be begun again.
pub(crate) fn prepare_next(
    document: &mut SecretsDocument,
    role: &'static str,
) -> Result<VerifyingKey, SecretsError> {
    if !document.keys.contains_key(role) {
        return Err(SecretsError::NoSuchKey(role));
    }
    // An interrupted change finds the key that it made before: the public half may be recorded already.
    if let Entry::Vacant(next) = document.keys.entry(next_of(role)) {
        let mut seed = Zeroizing::new([0; 32]);
        OsRng.try_fill_bytes(seed.as_mut()).map_err(|_| SecretsError::NoRandomness)?;
        next.insert(HiddenText(hex::encode(seed.as_ref()).into()));
    }
    Ok(read_key(document, &next_of(role), role)?.verifying_key())
}

/// Replaces a key by its prepared successor. The old one is deleted.
pub(crate) fn promote_next(document: &mut SecretsDocument, role: &'static str) -> Result<(), SecretsError> {
    // The document is written as a whole, so there is never a moment without a key.
    let next = document.keys.remove(&next_of(role)).ok_or(SecretsError::NoSuchKey(role))?;
    document.keys.insert(role.to_owned(), next);
    Ok(())
}

/// Reads a key.
pub(crate) fn load_key(document: &SecretsDocument, role: &'static str) -> Result<SigningKey, SecretsError> {
    read_key(document, role, role)
}

fn read_key(document: &SecretsDocument, name: &str, role: &'static str) -> Result<SigningKey, SecretsError> {
    let hidden = document.keys.get(name).ok_or(SecretsError::NoSuchKey(role))?;
    let mut seed = Zeroizing::new([0; 32]);
    hex::decode_to_slice(hidden.0.expose_secret(), seed.as_mut()).map_err(|_| SecretsError::Damaged {
        name: format!("the {role} key"),
        reason: "it has a wrong form",
    })?;
    Ok(SigningKey::from_bytes(&seed))
}
