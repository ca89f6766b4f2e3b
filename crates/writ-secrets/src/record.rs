//! The record of the backend in a keys folder: `backend.toml`.

use std::path::Path;

use rand::TryRngCore as _;
use rand::rngs::OsRng;
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::error::SecretsError;
use crate::files;

/// The file that records the backend, in the keys folder.
pub const RECORD_FILE: &str = "backend.toml";

/// The version of the record's form.
const RECORD_VERSION: u8 = 1;

/// The content of `backend.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackendRecord {
    v: u8,
    /// The place of the values.
    pub(crate) backend: Backend,
    /// Tells the keyring entries of several homes apart; 32 hexadecimal digits.
    pub(crate) id: String,
}

impl BackendRecord {
    pub(crate) fn new(backend: Backend) -> Result<Self, SecretsError> {
        let mut id = [0; 16];
        // Random, so that a copied home does not share its entries by a guessable name.
        OsRng.try_fill_bytes(&mut id).map_err(|_| SecretsError::NoRandomness)?;
        Ok(Self { v: RECORD_VERSION, backend, id: hex::encode(id) })
    }

    pub(crate) fn read_record(dir: &Path) -> Result<Option<Self>, SecretsError> {
        let Some(bytes) = files::read_file(dir, RECORD_FILE)? else { return Ok(None) };
        let damaged = |reason| SecretsError::Damaged { name: RECORD_FILE.to_owned(), reason };
        let text = str::from_utf8(&bytes).map_err(|_| damaged("it is not text"))?;
        let record: Self = toml::from_str(text).map_err(|_| damaged("it is not a record of a backend"))?;
        if record.v != RECORD_VERSION {
            return Err(damaged("it was written by another version"));
        }
        // The id becomes part of the entry's name, so its form is checked.
        if record.id.len() != 32 || hex::decode(&record.id).is_err() {
            return Err(damaged("its id is not 32 hexadecimal digits"));
        }
        Ok(Some(record))
    }

    pub(crate) fn write_record(&self, dir: &Path) -> Result<(), SecretsError> {
        let text = format!("v = {}\nbackend = \"{}\"\nid = \"{}\"\n", self.v, self.backend, self.id);
        files::replace_file(dir, RECORD_FILE, text.as_bytes())
    }
}

/// Reads the backend of the keys folder `dir`; `None` when it holds no store.
///
/// # Errors
///
/// If the record cannot be read, is damaged, or may be changed by others.
pub fn recorded_backend(dir: &Path) -> Result<Option<Backend>, SecretsError> {
    if !files::is_private_folder(dir)? {
        return Ok(None);
    }
    Ok(BackendRecord::read_record(dir)?.map(|record| record.backend))
}
