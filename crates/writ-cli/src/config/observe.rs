//! Settings of what the engine tells of its work.

use serde::{Deserialize, Serialize};
use writ_types::credential::CredentialRef;

/// Settings of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogConfig {
    /// The least urgent level that is written. Default `info` in the engine's file; `-v` and `-q` decide on
    /// standard error.
    pub(crate) level: String,
    /// The size at which the log file is set aside, in bytes. Default 10 MiB.
    pub(crate) max_bytes: u64,
    /// The number of log files that stay. Default 5.
    pub(crate) keep: u32,
    /// Set if standard error has the lines, too, of the level of `-v` and `-q`. Default true.
    pub(crate) stderr: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: "info".into(), max_bytes: 10 * 1024 * 1024, keep: 5, stderr: true }
    }
}

/// Traces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TelemetryConfig {
    /// The URL at which a collector takes OTLP over HTTP; `None`, the default: nothing is collected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) otlp_endpoint: Option<String>,
    /// The bearer token that it expects. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) otlp_token: Option<CredentialRef>,
}
