//! The review of tools that other programs offer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The review of the tools of servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolReview {
    /// When it was made, as RFC 3339.
    pub at: String,
    /// The tools, by name.
    pub tools: Vec<ToolHealth>,
    /// Tools without a run for more than 30 days.
    pub unused: Vec<String>,
    /// Tools with fewer than 70 % of their runs successful.
    pub failing: Vec<String>,
    /// Tools with runs of more than ten seconds on average.
    pub slow: Vec<String>,
    /// Pairs of tools with similar descriptions.
    pub alike: Vec<ToolPair>,
    /// The review in words, each group in one line.
    pub summary: Vec<String>,
}

/// The counters of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolHealth {
    /// The name that models call.
    pub tool: String,
    /// The number of runs.
    pub runs: u64,
    /// Those of them that have failed.
    pub failures: u64,
    /// The average time of a run, in milliseconds; 0 without a run.
    pub average_ms: u64,
    /// The end of the last run, as RFC 3339.
    pub last_run: Option<String>,
}

/// Two tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolPair {
    /// One of them.
    pub one: String,
    /// The other.
    pub other: String,
}
