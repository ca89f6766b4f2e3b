//! The units of a project that are over.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::unit::{MicroUsd, Timestamp};

/// A question about units that are over; everything that is set must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotHistoryQuery {
    /// The project's folder.
    pub project: String,
    /// Ended on this day or later, as `2026-01-31`; empty: at any time.
    #[serde(default)]
    pub since: String,
    /// With a run in this phase; empty: in any.
    #[serde(default)]
    pub phase: String,
    /// With this verdict; empty: with any.
    #[serde(default)]
    pub verdict: String,
    /// With this workflow; empty: with any.
    #[serde(default)]
    pub workflow: String,
    /// With a run for which this model was chosen, as `provider/name`; empty: any.
    #[serde(default)]
    pub model: String,
    /// At most so many, the newest; 0: twenty.
    #[serde(default)]
    pub limit: usize,
}

/// The units that were found, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotHistory {
    /// The units.
    pub units: Vec<PilotHistoryLine>,
}

/// A unit that is over, with the sums of its runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotHistoryLine {
    /// Its id.
    pub unit: String,
    /// Its purpose, in one line.
    pub title: String,
    /// Its workflow.
    pub workflow: String,
    /// The phase of its last run.
    pub phase: String,
    /// `succeeded`, `failed`, `canceled` or `interrupted`.
    pub verdict: String,
    /// The models that were chosen for its runs, as `provider/name`, each once.
    pub models: Vec<String>,
    /// The number of its runs.
    pub runs: u64,
    /// The end of its last run.
    pub ended_at: Timestamp,
    /// The cost of its runs, in micro-USD.
    pub cost: MicroUsd,
}
