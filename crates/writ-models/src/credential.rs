//! Resolving the keys that the configuration names.

use futures::future::BoxFuture;
use secrecy::SecretString;
use writ_types::credential::CredentialRef;

/// The reason why a key cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// There is no such key.
    #[error("it is not set")]
    Missing,
    /// The place of the key (a locked keyring, a Vault that is down) cannot be read now.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// Resolves keys. Implemented by the program `writ`, which knows the keyring, the environment and Vault.
pub trait CredentialSource: Send + Sync + 'static {
    /// The key behind a reference.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be read.
    fn resolve<'a>(&'a self, key: &'a CredentialRef) -> BoxFuture<'a, Result<SecretString, CredentialError>>;
}
