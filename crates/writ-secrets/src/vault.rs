//! One document of a keys folder in whichever backend the folder has.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use secrecy::{ExposeSecret as _, SecretString};

use crate::backend::Backend;
use crate::config::SecretsConfig;
use crate::document::{self, SecretsDocument};
use crate::error::SecretsError;
use crate::files::{self, Lock};
use crate::keyring::Keyring;
use crate::record::{BackendRecord, RECORD_FILE};

/// The name of the engine's document.
pub(crate) const ENGINE: DocumentName =
    DocumentName { entry: "secrets", age: "secrets.age", plain: "secrets.json" };

/// The name of the approver's document.
pub(crate) const APPROVER: DocumentName =
    DocumentName { entry: "approver", age: "approver.age", plain: "approver.json" };

/// The name of a document in each backend.
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
    record: BackendRecord,
    medium: Medium,
    config: SecretsConfig,
}

/// A backend that is ready for use.
enum Medium {
    Keyring(Keyring),
    /// The document as last decrypted, with the sealed bytes that it came from: decrypting is slow by design.
    Age {
        passphrase: SecretString,
        last: Mutex<Option<(Vec<u8>, SecretsDocument)>>,
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
                // An empty passphrase would encrypt nothing, but look as if it did.
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
    /// Sets up a keys folder. Nothing is overwritten.
    pub(crate) fn create(
        dir: &Path,
        backend: Backend,
        passphrase: Option<SecretString>,
        config: &SecretsConfig,
    ) -> Result<Self, SecretsError> {
        Self::create_with(dir, backend, passphrase, config, || Keyring::connect_service(config))
    }

    /// The record is written before the first document: a crash in between leaves an empty store.
    pub(crate) fn create_with(
        dir: &Path,
        backend: Backend,
        passphrase: Option<SecretString>,
        config: &SecretsConfig,
        connect: impl FnOnce() -> Result<Keyring, SecretsError>,
    ) -> Result<Self, SecretsError> {
        files::ensure_folder(dir)?;
        // Two commands that set up the same home must not both succeed.
        let lock = Lock::take_lock(dir, config.operation_timeout())?;
        if let Some(record) = BackendRecord::read_record(dir)? {
            return Err(SecretsError::AlreadyCreated(record.backend));
        }
        // Without its record an old file could be of another home, and is not overwritten.
        let names = [ENGINE.age, ENGINE.plain, APPROVER.age, APPROVER.plain];
        if let Some(name) = names.into_iter().find(|name| files::file_exists(dir, name)) {
            return Err(SecretsError::Leftover(name));
        }
        let medium = Medium::new(backend, passphrase, connect)?;
        let record = BackendRecord::new(backend)?;
        let vault = Self { dir: dir.to_owned(), name: ENGINE, record, medium, config: config.clone() };
        // A keyring that cannot be read is found out before anything is recorded.
        vault.read_document()?;
        vault.record.write_record(dir)?;
        if let Err(error) = vault.write_document(&SecretsDocument::default()) {
            // Without a document the record would claim a store that is not there.
            files::remove_file(dir, RECORD_FILE)?;
            return Err(error);
        }
        drop(lock);
        Ok(vault)
    }

    /// Opens a document. Nothing is read yet.
    pub(crate) fn open(
        dir: &Path,
        name: DocumentName,
        passphrase: Option<SecretString>,
        config: &SecretsConfig,
    ) -> Result<Self, SecretsError> {
        Self::open_with(dir, name, passphrase, config, || Keyring::connect_service(config))
    }

    pub(crate) fn open_with(
        dir: &Path,
        name: DocumentName,
        passphrase: Option<SecretString>,
        config: &SecretsConfig,
        connect: impl FnOnce() -> Result<Keyring, SecretsError>,
    ) -> Result<Self, SecretsError> {
        if !files::is_private_folder(dir)? {
            return Err(SecretsError::NotCreated);
        }
        let record = BackendRecord::read_record(dir)?.ok_or(SecretsError::NotCreated)?;
        let medium = Medium::new(record.backend, passphrase, connect)?;
        Ok(Self { dir: dir.to_owned(), name, record, medium, config: config.clone() })
    }

    /// The backend in use.
    pub(crate) const fn backend(&self) -> Backend {
        self.record.backend
    }

    /// Reads the document; an empty one when there is none yet.
    pub(crate) fn read_document(&self) -> Result<SecretsDocument, SecretsError> {
        match &self.medium {
            Medium::Keyring(keyring) => match keyring.read_entry(&self.entry_name())? {
                Some(bytes) => SecretsDocument::parse_document("the keyring's entry", &bytes),
                None => Ok(SecretsDocument::default()),
            },
            Medium::Age { passphrase, last } => {
                let Some(sealed) = files::read_file(&self.dir, self.name.age)? else {
                    return Ok(SecretsDocument::default());
                };
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((bytes, document)) = &*last
                    // Decrypting takes half a second by design; equal bytes hold the same document.
                    && *bytes == *sealed
                {
                    return Ok(document.clone());
                }
                let plain = document::decrypt_document(self.name.age, passphrase, &sealed)?;
                let document = SecretsDocument::parse_document(self.name.age, &plain)?;
                *last = Some((sealed.to_vec(), document.clone()));
                Ok(document)
            }
            Medium::Plain => match files::read_file(&self.dir, self.name.plain)? {
                Some(bytes) => SecretsDocument::parse_document(self.name.plain, &bytes),
                None => Ok(SecretsDocument::default()),
            },
        }
    }

    /// Changes the document under the folder's lock, as a whole or not at all.
    pub(crate) fn change_document<T>(
        &self,
        change: impl FnOnce(&mut SecretsDocument) -> Result<T, SecretsError>,
    ) -> Result<T, SecretsError> {
        let lock = Lock::take_lock(&self.dir, self.config.operation_timeout())?;
        // Read under the lock: a change that another process has just made must not be undone.
        let mut document = self.read_document()?;
        let done = change(&mut document)?;
        self.write_document(&document)?;
        drop(lock);
        Ok(done)
    }

    /// Writes the document. The caller holds the lock.
    fn write_document(&self, document: &SecretsDocument) -> Result<(), SecretsError> {
        let plain = document.to_bytes()?;
        match &self.medium {
            Medium::Keyring(keyring) => keyring.write_entry(&self.entry_name(), plain),
            Medium::Age { passphrase, last } => {
                let sealed = document::encrypt_document(self.name.age, passphrase, &plain)?;
                files::replace_file(&self.dir, self.name.age, &sealed)?;
                // The cache is replaced with the file, so that the next reading does not decrypt again.
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                *last = Some((sealed, document.clone()));
                Ok(())
            }
            Medium::Plain => files::replace_file(&self.dir, self.name.plain, &plain),
        }
    }

    /// The keyring entry's user name.
    fn entry_name(&self) -> String {
        format!("{}/{}", self.record.id, self.name.entry)
    }
}
