//! The source of a home's secrets: the values to mask in every text, and the value of a secret that the configuration names.

use secrecy::SecretString;
use writ_inspect::redact::KnownSecret;
use writ_types::credential::CredentialRef;
use writ_types::error::Report;

/// Knows the secrets of this home.
pub trait SecretSource: std::fmt::Debug + Send + Sync {
    /// Every secret that is known now. It may block: a keyring may ask a person.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    fn known(&self) -> Result<Vec<KnownSecret>, Report>;

    /// The value of one that the configuration names; `None`: there is none. It may block, too.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn value(&self, secret: &CredentialRef) -> Result<Option<SecretString>, Report>;
}
