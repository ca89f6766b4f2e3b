//! The keyring of the operating system, with a limit on every wait.
//!
//! The Secret Service answers over D-Bus and may wait for a person. Every call therefore runs in a thread of
//! its own (`is_within`); after one that did not return, the keyring counts as unavailable for this process,
//! so that at most one such thread is left behind.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyring_core::{CredentialStore, Entry, Error};
use zeroize::Zeroizing;

use crate::config::SecretsConfig;
use crate::error::SecretsError;
use crate::wait::run_within;

/// The service under which entries appear in the keyring.
const SERVICE: &str = "writ";

/// A connection to the keyring.
pub(crate) struct Keyring {
    store: Arc<CredentialStore>,
    limit: Duration,
    stuck: AtomicBool,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("limit", &self.limit)
            .field("stuck", &self.stuck)
            .finish_non_exhaustive()
    }
}

impl Keyring {
    /// Connects to the Secret Service of this session.
    pub(crate) fn connect_service(config: &SecretsConfig) -> Result<Self, SecretsError> {
        Self::connect_with(config, || {
            zbus_secret_service_keyring_store::Store::new().map(|store| store as Arc<CredentialStore>)
        })
    }

    /// Connects to the store that `connector` makes.
    pub(crate) fn connect_with(
        config: &SecretsConfig,
        connector: impl FnOnce() -> keyring_core::Result<Arc<CredentialStore>> + Send + 'static,
    ) -> Result<Self, SecretsError> {
        // A service that hangs would stop each command at its start.
        let Some(connected) = run_within(config.connect_timeout(), connector) else {
            return Err(SecretsError::KeyringUnavailable("the service does not answer"));
        };
        let store = connected.map_err(|error| classify_error(&error))?;
        Ok(Self { store, limit: config.operation_timeout(), stuck: AtomicBool::new(false) })
    }

    /// Reads an entry; `None` when there is none.
    pub(crate) fn read_entry(&self, user: &str) -> Result<Option<Zeroizing<Vec<u8>>>, SecretsError> {
        let read = self.call_service(user, |entry| entry.get_secret().map(Zeroizing::new));
        // Only «no entry» means that there is none; every other error must not look like an empty store.
        match read? {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(classify_error(&error)),
        }
    }

    /// Writes an entry.
    pub(crate) fn write_entry(&self, user: &str, bytes: Zeroizing<Vec<u8>>) -> Result<(), SecretsError> {
        self.call_service(user, move |entry| entry.set_secret(&bytes))?
            .map_err(|error| classify_error(&error))
    }

    fn call_service<T: Send + 'static>(
        &self,
        user: &str,
        operation: impl FnOnce(&Entry) -> keyring_core::Result<T> + Send + 'static,
    ) -> Result<keyring_core::Result<T>, SecretsError> {
        // A call that hangs has a thread of its own, and each further one would leave another behind.
        if self.stuck.load(Ordering::Acquire) {
            return Err(SecretsError::KeyringLocked);
        }
        let store = Arc::clone(&self.store);
        let user = user.to_owned();
        let done = run_within(self.limit, move || operation(&store.build(SERVICE, &user, None)?));
        done.ok_or_else(|| {
            self.stuck.store(true, Ordering::Release);
            SecretsError::KeyringLocked
        })
    }
}

/// Classifies an error of the keyring. Its own text is dropped: some variants carry the secret.
#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is non-exhaustive")]
fn classify_error(error: &Error) -> SecretsError {
    match error {
        Error::NoStorageAccess(_) => SecretsError::KeyringLocked,
        Error::PlatformFailure(_) => {
            SecretsError::KeyringUnavailable("no Secret Service runs in this session")
        }
        Error::Ambiguous(_) => SecretsError::KeyringUnavailable("it holds the same entry twice"),
        Error::TooLong(..) => SecretsError::KeyringUnavailable("the secrets are too long for it"),
        Error::BadEncoding(_) | Error::BadDataFormat(..) | Error::BadStoreFormat(_) => {
            SecretsError::Damaged { name: "the keyring's entry".into(), reason: "it cannot be decoded" }
        }
        _ => SecretsError::KeyringUnavailable("it refused the operation"),
    }
}
