//! Settings for secrets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Settings of this crate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecretsConfig {
    /// The time limit of the keyring service for the first call, in milliseconds. Default 3,000: a running
    /// service answers in a few; one that is absent must not hold up a command.
    pub connect_timeout_ms: u64,
    /// The time limit of one operation, in milliseconds: a person may have to unlock the keyring, another
    /// process may hold the lock of the keys folder. Default 30,000.
    pub operation_timeout_ms: u64,
}

impl Default for SecretsConfig {
    fn default() -> Self {
        Self { connect_timeout_ms: 3_000, operation_timeout_ms: 30_000 }
    }
}

impl SecretsConfig {
    pub(crate) const fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }

    pub(crate) const fn operation_timeout(&self) -> Duration {
        Duration::from_millis(self.operation_timeout_ms)
    }
}
