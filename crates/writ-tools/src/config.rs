//! Settings of tools.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Time limits of programs, in milliseconds. They are set here alone for a tool; the sandbox's own limit also
/// applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolTimeouts {
    /// The time of a command when neither its call nor [`ToolTimeouts::tools`] names one. Default 120,000: most test
    /// suites end in two minutes.
    pub default_ms: u64,
    /// The longest time that a model may ask for. Default 600,000.
    pub max_ms: u64,
    /// The time of single tools, by name, instead of [`ToolTimeouts::default_ms`]. Default none.
    pub tools: BTreeMap<String, u64>,
}

impl Default for ToolTimeouts {
    fn default() -> Self {
        Self { default_ms: 120_000, max_ms: 600_000, tools: BTreeMap::new() }
    }
}

impl ToolTimeouts {
    /// Returns the time limit of a command of this tool, for calls that name none.
    pub(crate) fn timeout_ms(&self, tool: &str) -> u64 {
        self.tools.get(tool).copied().unwrap_or(self.default_ms)
    }
}
