//! The engine's document: named secrets, root key and harness key.

use std::path::Path;

use ed25519_dalek::{SigningKey, VerifyingKey};
use secrecy::{ExposeSecret as _, SecretString};
use writ_types::credential::Reference;

use crate::backend::Backend;
use crate::config::SecretsConfig;
use crate::contents::ContentKey;
use crate::document::HiddenText;
use crate::error::SecretsError;
use crate::keys;
use crate::vault::{ENGINE, Vault};

/// The longest value of a secret, in bytes: enough for certificates and service account files.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;

/// The most secrets of one home.
pub const MAX_SECRETS: usize = 1_000;

/// The name of the key of the proxy's certificate authority.
const AUTHORITY: &str = "authority";

/// The name of the key of sealed contents.
const CONTENTS: &str = "contents";

/// Keys that the engine holds. The approver key is none of them: see `approver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineKey {
    /// The installation's root key: it signs base keys.
    Root,
    /// The harness's key: it signs inbound records, task keys and ledger heads.
    Harness,
}

impl EngineKey {
    /// The role's name in records and on screens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Harness => "harness",
        }
    }
}

/// The engine's document in an opened keys folder.
#[derive(Debug)]
pub struct SecretStore {
    vault: Vault,
}

impl SecretStore {
    /// Sets up the keys folder `dir` with a backend. Nothing is overwritten.
    ///
    /// `passphrase` is needed for [`Backend::Age`] and ignored otherwise.
    ///
    /// # Errors
    ///
    /// If there is a store already, the backend is not available, the passphrase is missing, or the folder
    /// is open to others.
    pub fn create(
        dir: &Path,
        backend: Backend,
        passphrase: Option<SecretString>,
        config: &SecretsConfig,
    ) -> Result<Self, SecretsError> {
        Ok(Self { vault: Vault::create(dir, backend, passphrase, config)? })
    }

    /// Opens the keys folder `dir` with the backend that it was set up with.
    ///
    /// # Errors
    ///
    /// If there is no store, the backend is not available or locked, the passphrase is missing or wrong, or
    /// a file is damaged or open to others.
    pub fn open(
        dir: &Path,
        passphrase: Option<SecretString>,
        config: &SecretsConfig,
    ) -> Result<Self, SecretsError> {
        let vault = Vault::open(dir, ENGINE, passphrase, config)?;
        // Read once here, so that a wrong passphrase is an error of opening.
        vault.read_document()?;
        Ok(Self { vault })
    }

    /// The backend in use.
    pub fn backend(&self) -> Backend {
        self.vault.backend()
    }

    /// The value of a secret; `None` when there is no such secret.
    ///
    /// # Errors
    ///
    /// If the backend cannot be read.
    pub fn get_secret(&self, name: &Reference) -> Result<Option<SecretString>, SecretsError> {
        Ok(self.vault.read_document()?.secrets.get(name).map(|hidden| hidden.0.clone()))
    }

    /// Stores a secret, replacing a former value.
    ///
    /// # Errors
    ///
    /// If the value is empty or too long, there are too many secrets, or the backend cannot be written.
    pub fn set_secret(&self, name: &Reference, value: SecretString) -> Result<(), SecretsError> {
        let length = value.expose_secret().len();
        if length == 0 {
            return Err(SecretsError::EmptyValue(name.clone()));
        }
        if length > MAX_VALUE_BYTES {
            return Err(SecretsError::TooLarge { what: "the value", limit: MAX_VALUE_BYTES });
        }
        self.vault.change_document(|document| {
            // Replacing a value does not count against the bound.
            if document.secrets.len() >= MAX_SECRETS && !document.secrets.contains_key(name) {
                return Err(SecretsError::TooLarge { what: "the number of secrets", limit: MAX_SECRETS });
            }
            document.secrets.insert(name.clone(), HiddenText(value));
            Ok(())
        })
    }

    /// Removes a secret.
    ///
    /// # Errors
    ///
    /// If there is no such secret or the backend cannot be written.
    pub fn remove_secret(&self, name: &Reference) -> Result<(), SecretsError> {
        self.vault.change_document(|document| match document.secrets.remove(name) {
            Some(_) => Ok(()),
            None => Err(SecretsError::NoSuchSecret(name.clone())),
        })
    }

    /// The names of all secrets, sorted.
    ///
    /// # Errors
    ///
    /// If the backend cannot be read.
    pub fn list_names(&self) -> Result<Vec<Reference>, SecretsError> {
        Ok(self.vault.read_document()?.secrets.keys().cloned().collect())
    }

    /// Lists all secrets, sorted by name, for redaction.
    ///
    /// # Errors
    ///
    /// If the backend cannot be read.
    pub fn all_secrets(&self) -> Result<Vec<(Reference, SecretString)>, SecretsError> {
        let secrets = self.vault.read_document()?.secrets.into_iter();
        Ok(secrets.map(|(name, hidden)| (name, hidden.0)).collect())
    }

    /// Makes a key from the operating system's random bytes. An existing one is never overwritten.
    ///
    /// # Errors
    ///
    /// If there is one already, or the backend cannot be written.
    pub fn generate_key(&self, key: EngineKey) -> Result<VerifyingKey, SecretsError> {
        self.vault.change_document(|document| keys::generate_key(document, key.as_str()))
    }

    /// Returns the key of the proxy's certificate authority in the form of its maker. The first call stores
    /// the key that `make` makes.
    ///
    /// # Errors
    ///
    /// If the backend cannot be read or written, or `make` fails.
    pub fn authority_key<E: From<SecretsError>>(
        &self,
        make: impl FnOnce() -> Result<SecretString, E>,
    ) -> Result<SecretString, E> {
        if let Some(HiddenText(key)) = self.vault.read_document()?.keys.get(AUTHORITY) {
            return Ok(key.clone());
        }
        // Made outside the lock: making a key takes time.
        let made = make()?;
        Ok(self.vault.change_document(|document| {
            // Another process may have stored one meanwhile; then that one counts.
            let kept = document.keys.entry(AUTHORITY.to_owned()).or_insert(HiddenText(made));
            Ok(kept.0.clone())
        })?)
    }

    /// Returns the key of sealed contents. The first call makes it.
    ///
    /// # Errors
    ///
    /// If the backend cannot be read or written, or the key is damaged.
    pub fn content_key(&self) -> Result<ContentKey, SecretsError> {
        if let Some(key) = self.find_content_key()? {
            return Ok(key);
        }
        self.vault
            .change_document(|document| {
                // Another process may have stored one meanwhile; then that one counts.
                if !document.keys.contains_key(CONTENTS) {
                    document.keys.insert(CONTENTS.to_owned(), HiddenText(ContentKey::generate_text()?));
                }
                document.keys.get(CONTENTS).map(|HiddenText(key)| ContentKey::from_text(key)).transpose()
            })?
            .ok_or(SecretsError::NoSuchKey(CONTENTS))
    }

    /// Returns the key of sealed contents; `None`: nothing was ever sealed here.
    ///
    /// # Errors
    ///
    /// If the backend cannot be read, or the key is damaged.
    pub fn find_content_key(&self) -> Result<Option<ContentKey>, SecretsError> {
        let document = self.vault.read_document()?;
        document.keys.get(CONTENTS).map(|HiddenText(key)| ContentKey::from_text(key)).transpose()
    }

    /// Makes the key that is to follow another, or tells of the one that was made ready before.
    ///
    /// # Errors
    ///
    /// If there is none to follow, or the backend cannot be written.
    pub fn prepare_next(&self, key: EngineKey) -> Result<VerifyingKey, SecretsError> {
        self.vault.change_document(|document| keys::prepare_next(document, key.as_str()))
    }

    /// Replaces a key by its prepared successor. The old one is deleted.
    ///
    /// # Errors
    ///
    /// If none was made ready, or the backend cannot be written.
    pub fn promote_next(&self, key: EngineKey) -> Result<(), SecretsError> {
        self.vault.change_document(|document| keys::promote_next(document, key.as_str()))
    }

    /// Reads a key.
    ///
    /// # Errors
    ///
    /// If there is none, or the backend cannot be read.
    pub fn signing_key(&self, key: EngineKey) -> Result<SigningKey, SecretsError> {
        keys::load_key(&self.vault.read_document()?, key.as_str())
    }
}

#[cfg(test)]
mod tests;
