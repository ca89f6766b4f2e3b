//! What can be set about tools.

use serde::{Deserialize, Serialize};

/// Settings of this crate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How long a command may run when the model names no time, in milliseconds. Default 120,000: most test
    /// suites end in two minutes.
    pub exec_timeout_ms: u64,
    /// The longest time that a model may ask for, in milliseconds. Default 600,000.
    pub exec_timeout_max_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { exec_timeout_ms: 120_000, exec_timeout_max_ms: 600_000 }
    }
}
