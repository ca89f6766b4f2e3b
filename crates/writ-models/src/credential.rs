//! Keys by reference: how they are written, and who resolves them.

use std::fmt;
use std::str::FromStr;

use futures::future::BoxFuture;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// Where a key lies. Never the key itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KeyRef {
    /// `secret:NAME`: in Writ's own secrets.
    Secret(String),
    /// `env:NAME`: in an environment variable.
    Env(String),
    /// `vault://PATH#FIELD`: in Vault.
    Vault {
        /// Mount and path.
        path: String,
        /// The field.
        field: String,
    },
}

/// Text that is no reference to a key. The text is not repeated: it may be a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is written as secret:NAME, env:NAME or vault://PATH#FIELD, never as the key itself")]
pub struct InvalidKeyRef;

impl FromStr for KeyRef {
    type Err = InvalidKeyRef;

    fn from_str(text: &str) -> Result<Self, InvalidKeyRef> {
        let name = |name: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
            let valid = !name.is_empty() && name.len() <= 128 && name.chars().all(plain);
            if valid { Ok(name.to_owned()) } else { Err(InvalidKeyRef) }
        };
        if let Some(rest) = text.strip_prefix("secret:") {
            return Ok(Self::Secret(name(rest)?));
        }
        if let Some(rest) = text.strip_prefix("env:") {
            return Ok(Self::Env(name(rest)?));
        }
        let rest = text.strip_prefix("vault://").ok_or(InvalidKeyRef)?;
        let (path, field) = rest.split_once('#').ok_or(InvalidKeyRef)?;
        Ok(Self::Vault { path: name(path)?, field: name(field)? })
    }
}

impl TryFrom<String> for KeyRef {
    type Error = InvalidKeyRef;

    fn try_from(text: String) -> Result<Self, InvalidKeyRef> {
        text.parse()
    }
}

impl From<KeyRef> for String {
    fn from(key: KeyRef) -> Self {
        key.to_string()
    }
}

impl fmt::Display for KeyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(name) => write!(f, "secret:{name}"),
            Self::Env(name) => write!(f, "env:{name}"),
            Self::Vault { path, field } => write!(f, "vault://{path}#{field}"),
        }
    }
}

/// Why a key could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// There is no such key.
    #[error("it is not set")]
    Missing,
    /// It may be there, but cannot be read now.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// Resolves keys. Implemented by whoever knows keyring, environment and Vault.
pub trait CredentialSource: Send + Sync + 'static {
    /// The key behind a reference.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be read.
    fn resolve<'a>(&'a self, key: &'a KeyRef) -> BoxFuture<'a, Result<SecretString, CredentialError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_parsed_and_keys_are_not() {
        for text in ["secret:local", "env:OPENAI_API_KEY", "vault://kv/models#key"] {
            assert_eq!(text.parse::<KeyRef>().map(|key| key.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "env:", "secret:a b", "vault://kv/models", "env:A\nB"] {
            assert_eq!(text.parse::<KeyRef>(), Err(InvalidKeyRef), "{text:?}");
        }
        let key = "sk-ant-api03-abc";
        let error = key.parse::<KeyRef>().expect_err("a key is no reference");
        assert!(!error.to_string().contains(key), "a key was repeated");
    }
}
