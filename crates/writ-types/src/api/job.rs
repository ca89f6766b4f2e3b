//! Jobs: work that the engine does again and again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All jobs, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobList {
    /// At most 1,000.
    pub jobs: Vec<JobSummary>,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobSummary {
    /// Its name.
    pub name: String,
    /// Its schedule, such as `every 30 s`.
    pub schedule: String,
    /// When it runs next, as RFC 3339; none if it does not run.
    pub next_run: Option<String>,
    /// When its last run ended, as RFC 3339; none before the first.
    pub last_run: Option<String>,
    /// The result of its last run: `ok`, or a code and a text; empty before the first.
    pub last_result: String,
}
