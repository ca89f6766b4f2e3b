//! Where the values of a keys folder are, and the record that says so.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use rand::TryRngCore as _;
use rand::rngs::OsRng;
use serde::{Deserialize, Serialize};

use crate::error::SecretsError;
use crate::files;

/// The file that records the backend, in the keys folder.
pub const RECORD_FILE: &str = "backend.toml";

/// The version of the record's form.
const RECORD_VERSION: u8 = 1;

/// Where values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// The keyring of the operating system, over the Secret Service.
    Keyring,
    /// Files encrypted with a passphrase (age format, scrypt).
    Age,
    /// Files in plain text that only their owner may read. Never chosen by itself.
    Plain,
}

impl Backend {
    /// Every backend, the safest first.
    pub const ALL: [Self; 3] = [Self::Keyring, Self::Age, Self::Plain];

    /// The name used in records, configuration and on screens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keyring => "keyring",
            Self::Age => "age",
            Self::Plain => "plain",
        }
    }

    /// What `doctor` says about this backend; `None` when there is nothing to warn about.
    pub const fn warning(self) -> Option<&'static str> {
        match self {
            Self::Keyring | Self::Age => None,
            Self::Plain => Some(
                "secrets and private keys lie in plain files: every program of this user and every backup can read them",
            ),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the backends are 'keyring', 'age' and 'plain'")]
pub struct InvalidBackend;

impl FromStr for Backend {
    type Err = InvalidBackend;

    fn from_str(text: &str) -> Result<Self, InvalidBackend> {
        Self::ALL.into_iter().find(|backend| backend.as_str() == text).ok_or(InvalidBackend)
    }
}

/// What `backend.toml` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    v: u8,
    /// Where the values are.
    pub(crate) backend: Backend,
    /// Tells the keyring entries of several homes apart; 32 hexadecimal digits.
    pub(crate) id: String,
}

impl Record {
    pub(crate) fn new(backend: Backend) -> Result<Self, SecretsError> {
        let mut id = [0; 16];
        OsRng.try_fill_bytes(&mut id).map_err(|_| SecretsError::NoRandomness)?;
        Ok(Self { v: RECORD_VERSION, backend, id: hex::encode(id) })
    }

    pub(crate) fn read(dir: &Path) -> Result<Option<Self>, SecretsError> {
        let Some(bytes) = files::read(dir, RECORD_FILE)? else { return Ok(None) };
        let damaged = |reason| SecretsError::Damaged { name: RECORD_FILE.to_owned(), reason };
        let text = str::from_utf8(&bytes).map_err(|_| damaged("it is not text"))?;
        let record: Self = toml::from_str(text).map_err(|_| damaged("it is not a record of a backend"))?;
        if record.v != RECORD_VERSION {
            return Err(damaged("it was written by another version"));
        }
        if record.id.len() != 32 || hex::decode(&record.id).is_err() {
            return Err(damaged("its id is not 32 hexadecimal digits"));
        }
        Ok(Some(record))
    }

    pub(crate) fn write(&self, dir: &Path) -> Result<(), SecretsError> {
        let text = format!("v = {}\nbackend = \"{}\"\nid = \"{}\"\n", self.v, self.backend, self.id);
        files::replace(dir, RECORD_FILE, text.as_bytes())
    }
}

/// Which backend the keys folder `dir` uses; `None` when it holds no store.
///
/// # Errors
///
/// If the record cannot be read, is damaged, or may be changed by others.
pub fn recorded(dir: &Path) -> Result<Option<Backend>, SecretsError> {
    if !files::is_private_folder(dir)? {
        return Ok(None);
    }
    Ok(Record::read(dir)?.map(|record| record.backend))
}
