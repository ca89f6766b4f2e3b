//! The engine's document: named secrets, root key and harness key.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ed25519_dalek::{SigningKey, VerifyingKey};
use secrecy::{ExposeSecret as _, SecretString};

use crate::backend::{Backend, Record};
use crate::config::Config;
use crate::document::{self, Document, Hidden};
use crate::error::SecretsError;
use crate::files::{self, Lock};
use crate::keyring::Keyring;
use crate::keys;
use crate::reference::{CredentialRef, Reference};

/// The longest value of a secret, in bytes: enough for certificates and service account files.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;

/// The most secrets of one home.
pub const MAX_SECRETS: usize = 1_000;

/// Keys that the engine holds. The approver key is none of them: see [`crate::approver`].
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
        config: &Config,
    ) -> Result<Self, SecretsError> {
        Ok(Self { vault: Vault::create(dir, backend, passphrase, config)? })
    }

    /// Opens the keys folder `dir` with the backend that it was set up with.
    ///
    /// # Errors
    ///
    /// If there is no store, the backend is not available or locked, the passphrase is missing or wrong, or
    /// a file is damaged or open to others.
    pub fn open(dir: &Path, passphrase: Option<SecretString>, config: &Config) -> Result<Self, SecretsError> {
        let vault = Vault::open(dir, ENGINE, passphrase, config)?;
        vault.read()?;
        Ok(Self { vault })
    }

    /// The backend in use.
    pub const fn backend(&self) -> Backend {
        self.vault.record.backend
    }

    /// The value of a secret; `None` when there is no such secret.
    ///
    /// # Errors
    ///
    /// If the backend cannot be read.
    pub fn get(&self, name: &Reference) -> Result<Option<SecretString>, SecretsError> {
        Ok(self.vault.read()?.secrets.get(name).map(|hidden| hidden.0.clone()))
    }

    /// Stores a secret, replacing a former value.
    ///
    /// # Errors
    ///
    /// If the value is empty or too long, there are too many secrets, or the backend cannot be written.
    pub fn set(&self, name: &Reference, value: SecretString) -> Result<(), SecretsError> {
        let length = value.expose_secret().len();
        if length == 0 {
            return Err(SecretsError::EmptyValue(name.clone()));
        }
        if length > MAX_VALUE_BYTES {
            return Err(SecretsError::TooLarge { what: "the value", limit: MAX_VALUE_BYTES });
        }
        self.vault.change(|document| {
            if document.secrets.len() >= MAX_SECRETS && !document.secrets.contains_key(name) {
                return Err(SecretsError::TooLarge { what: "the number of secrets", limit: MAX_SECRETS });
            }
            document.secrets.insert(name.clone(), Hidden(value));
            Ok(())
        })
    }

    /// Removes a secret.
    ///
    /// # Errors
    ///
    /// If there is no such secret or the backend cannot be written.
    pub fn remove(&self, name: &Reference) -> Result<(), SecretsError> {
        self.vault.change(|document| match document.secrets.remove(name) {
            Some(_) => Ok(()),
            None => Err(SecretsError::NoSuchSecret(name.clone())),
        })
    }

    /// The names of all secrets, sorted.
    ///
    /// # Errors
    ///
    /// If the backend cannot be read.
    pub fn list(&self) -> Result<Vec<Reference>, SecretsError> {
        Ok(self.vault.read()?.secrets.keys().cloned().collect())
    }

    /// The value that a credential of the configuration stands for. `env` looks up environment variables:
    /// only the binary reads them.
    ///
    /// # Errors
    ///
    /// If there is no such secret or variable, or the reference names a vault server.
    pub fn resolve(
        &self,
        credential: &CredentialRef,
        env: impl FnOnce(&str) -> Option<SecretString>,
    ) -> Result<SecretString, SecretsError> {
        match credential {
            CredentialRef::Secret(name) => {
                self.get(name)?.ok_or_else(|| SecretsError::NoSuchSecret(name.clone()))
            }
            CredentialRef::Env(name) => env(name).ok_or_else(|| SecretsError::NoSuchVariable(name.clone())),
            CredentialRef::Vault { .. } => Err(SecretsError::VaultNotAvailable(credential.clone())),
        }
    }

    /// Makes a key from the operating system's random bytes. An existing one is never overwritten.
    ///
    /// # Errors
    ///
    /// If there is one already, or the backend cannot be written.
    pub fn generate_key(&self, key: EngineKey) -> Result<VerifyingKey, SecretsError> {
        self.vault.change(|document| keys::generate(document, key.as_str()))
    }

    /// Reads a key.
    ///
    /// # Errors
    ///
    /// If there is none, or the backend cannot be read.
    pub fn signing_key(&self, key: EngineKey) -> Result<SigningKey, SecretsError> {
        keys::load(&self.vault.read()?, key.as_str())
    }
}

/// The name of the engine's document.
const ENGINE: DocumentName = DocumentName { entry: "secrets", age: "secrets.age", plain: "secrets.json" };

/// The name of the approver's document.
pub(crate) const APPROVER: DocumentName =
    DocumentName { entry: "approver", age: "approver.age", plain: "approver.json" };

/// What a document is called in each backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DocumentName {
    entry: &'static str,
    age: &'static str,
    plain: &'static str,
}

/// One document in one backend.
#[derive(Debug)]
pub(crate) struct Vault {
    dir: PathBuf,
    name: DocumentName,
    record: Record,
    medium: Medium,
    config: Config,
}

/// A backend that is ready for use.
enum Medium {
    Keyring(Keyring),
    /// The document as last decrypted, with the sealed bytes that it came from: decrypting is slow by design.
    Age {
        passphrase: SecretString,
        last: Mutex<Option<(Vec<u8>, Document)>>,
    },
    Plain,
}

impl std::fmt::Debug for Medium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keyring(_) => "Keyring",
            Self::Age { .. } => "Age",
            Self::Plain => "Plain",
        })
    }
}

impl Medium {
    fn new(
        backend: Backend,
        passphrase: Option<SecretString>,
        connect: impl FnOnce() -> Result<Keyring, SecretsError>,
    ) -> Result<Self, SecretsError> {
        match backend {
            Backend::Keyring => Ok(Self::Keyring(connect()?)),
            Backend::Age => {
                let passphrase = passphrase.ok_or(SecretsError::PassphraseNeeded)?;
                if passphrase.expose_secret().is_empty() {
                    return Err(SecretsError::PassphraseEmpty);
                }
                Ok(Self::Age { passphrase, last: Mutex::new(None) })
            }
            Backend::Plain => Ok(Self::Plain),
        }
    }
}

impl Vault {
    fn create(
        dir: &Path,
        backend: Backend,
        passphrase: Option<SecretString>,
        config: &Config,
    ) -> Result<Self, SecretsError> {
        Self::create_with(dir, backend, passphrase, config, || Keyring::connect(config))
    }

    /// The record is written before the first document: a crash in between leaves an empty store.
    fn create_with(
        dir: &Path,
        backend: Backend,
        passphrase: Option<SecretString>,
        config: &Config,
        connect: impl FnOnce() -> Result<Keyring, SecretsError>,
    ) -> Result<Self, SecretsError> {
        files::ensure_folder(dir)?;
        let lock = Lock::take(dir, config.operation_timeout())?;
        if let Some(record) = Record::read(dir)? {
            return Err(SecretsError::AlreadyCreated(record.backend));
        }
        let names = [ENGINE.age, ENGINE.plain, APPROVER.age, APPROVER.plain];
        if let Some(name) = names.into_iter().find(|name| files::exists(dir, name)) {
            return Err(SecretsError::Leftover(name));
        }
        let medium = Medium::new(backend, passphrase, connect)?;
        let record = Record::new(backend)?;
        let vault = Self { dir: dir.to_owned(), name: ENGINE, record, medium, config: config.clone() };
        // A keyring that cannot be read is found out before anything is recorded.
        vault.read()?;
        vault.record.write(dir)?;
        vault.write(&Document::default())?;
        drop(lock);
        Ok(vault)
    }

    /// Opens a document. Nothing is read yet.
    pub(crate) fn open(
        dir: &Path,
        name: DocumentName,
        passphrase: Option<SecretString>,
        config: &Config,
    ) -> Result<Self, SecretsError> {
        Self::open_with(dir, name, passphrase, config, || Keyring::connect(config))
    }

    fn open_with(
        dir: &Path,
        name: DocumentName,
        passphrase: Option<SecretString>,
        config: &Config,
        connect: impl FnOnce() -> Result<Keyring, SecretsError>,
    ) -> Result<Self, SecretsError> {
        if !files::is_private_folder(dir)? {
            return Err(SecretsError::NotCreated);
        }
        let record = Record::read(dir)?.ok_or(SecretsError::NotCreated)?;
        let medium = Medium::new(record.backend, passphrase, connect)?;
        Ok(Self { dir: dir.to_owned(), name, record, medium, config: config.clone() })
    }

    /// Reads the document; an empty one when there is none yet.
    pub(crate) fn read(&self) -> Result<Document, SecretsError> {
        match &self.medium {
            Medium::Keyring(keyring) => match keyring.read(&self.entry())? {
                Some(bytes) => Document::parse("the keyring's entry", &bytes),
                None => Ok(Document::default()),
            },
            Medium::Age { passphrase, last } => {
                let Some(sealed) = files::read(&self.dir, self.name.age)? else {
                    return Ok(Document::default());
                };
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((bytes, document)) = &*last
                    && *bytes == *sealed
                {
                    return Ok(document.clone());
                }
                let plain = document::decrypt(self.name.age, passphrase, &sealed)?;
                let document = Document::parse(self.name.age, &plain)?;
                *last = Some((sealed.to_vec(), document.clone()));
                Ok(document)
            }
            Medium::Plain => match files::read(&self.dir, self.name.plain)? {
                Some(bytes) => Document::parse(self.name.plain, &bytes),
                None => Ok(Document::default()),
            },
        }
    }

    /// Changes the document under the folder's lock, as a whole or not at all.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Document) -> Result<T, SecretsError>,
    ) -> Result<T, SecretsError> {
        let lock = Lock::take(&self.dir, self.config.operation_timeout())?;
        let mut document = self.read()?;
        let done = change(&mut document)?;
        self.write(&document)?;
        drop(lock);
        Ok(done)
    }

    /// Writes the document. The caller holds the lock.
    fn write(&self, document: &Document) -> Result<(), SecretsError> {
        let plain = document.to_bytes()?;
        match &self.medium {
            Medium::Keyring(keyring) => keyring.write(&self.entry(), plain),
            Medium::Age { passphrase, last } => {
                let sealed = document::encrypt(self.name.age, passphrase, &plain)?;
                files::replace(&self.dir, self.name.age, &sealed)?;
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                *last = Some((sealed, document.clone()));
                Ok(())
            }
            Medium::Plain => files::replace(&self.dir, self.name.plain, &plain),
        }
    }

    /// The keyring entry's user name.
    fn entry(&self) -> String {
        format!("{}/{}", self.record.id, self.name.entry)
    }
}

#[cfg(test)]
mod tests;
