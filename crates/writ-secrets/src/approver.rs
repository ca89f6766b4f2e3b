//! The approver's document: the key that approvals are signed with, out of the engine's reach.
//!
//! Only clients (`writ approvals approve`, `writ keys approver`) call this module: a person's approval is
//! worth nothing if the process that it restrains holds the key. The document is an entry or file of its
//! own, and may have a passphrase of its own.

use std::path::Path;

use ed25519_dalek::{SigningKey, VerifyingKey};
use secrecy::SecretString;

use crate::config::SecretsConfig;
use crate::error::SecretsError;
use crate::keys;
use crate::vault::{APPROVER, Vault};

/// The role's name in records and on screens.
const ROLE: &str = "approver";

/// The approver's document in an opened keys folder.
#[derive(Debug)]
pub struct ApproverStore {
    vault: Vault,
}

/// Opens the approver's document of the keys folder `dir`. Only clients call this, never the engine.
///
/// # Errors
///
/// As `SecretStore::open`.
pub fn open_approver(
    dir: &Path,
    passphrase: Option<SecretString>,
    config: &SecretsConfig,
) -> Result<ApproverStore, SecretsError> {
    let vault = Vault::open(dir, APPROVER, passphrase, config)?;
    // Read once here, so that a wrong passphrase is an error of opening and not of the first signature.
    vault.read_document()?;
    Ok(ApproverStore { vault })
}

impl ApproverStore {
    /// Makes the approver key. An existing one is never overwritten.
    ///
    /// # Errors
    ///
    /// If there is one already, or the backend cannot be written.
    pub fn generate_key(&self) -> Result<VerifyingKey, SecretsError> {
        self.vault.change_document(|document| keys::generate_key(document, ROLE))
    }

    /// As `SecretStore::prepare_next`.
    ///
    /// # Errors
    ///
    /// If there is none to follow, or the backend cannot be written.
    pub fn prepare_next(&self) -> Result<VerifyingKey, SecretsError> {
        self.vault.change_document(|document| keys::prepare_next(document, ROLE))
    }

    /// As `SecretStore::promote_next`.
    ///
    /// # Errors
    ///
    /// If none was made ready, or the backend cannot be written.
    pub fn promote_next(&self) -> Result<(), SecretsError> {
        self.vault.change_document(|document| keys::promote_next(document, ROLE))
    }

    /// Reads the approver key.
    ///
    /// # Errors
    ///
    /// If there is none, or the backend cannot be read.
    pub fn signing_key(&self) -> Result<SigningKey, SecretsError> {
        keys::load_key(&self.vault.read_document()?, ROLE)
    }
}
