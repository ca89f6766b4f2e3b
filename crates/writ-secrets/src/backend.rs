//! The places where the values of a keys folder can be.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A place for values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// The keyring of the operating system, over the Secret Service.
    Keyring,
    /// Files encrypted with a passphrase (age format, scrypt).
    Age,
    /// Files in plain text that only their owner may read. Only used where it was chosen.
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

    /// Returns the warning that `doctor` gives about this backend.
    pub const fn warning_text(self) -> Option<&'static str> {
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
