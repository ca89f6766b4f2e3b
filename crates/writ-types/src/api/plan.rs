//! Recorded plans: calls of tools in their order, without a model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::SessionId;

/// A plan of tool calls that its owner has run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanRun {
    /// The project folder of the session in which it runs; none: a work folder of its own.
    #[serde(default)]
    pub project: Option<String>,
    /// Decides and records each step, and performs none.
    #[serde(default)]
    pub dry_run: bool,
    /// The steps, in their order.
    pub steps: Vec<PlanCall>,
}

/// A step of such a plan: one call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanCall {
    /// Its name in the plan.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// The arguments of the tool.
    #[serde(default)]
    pub input: Map<String, Value>,
    /// The next step runs also if this one does not succeed.
    #[serde(default)]
    pub continue_on_error: bool,
}

/// The results of a plan, as far as it was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanRunResults {
    /// The session in which it ran; its changes wait there.
    pub session: SessionId,
    /// The results of the steps that were run, in their order.
    pub steps: Vec<PlanCallResult>,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanCallResult {
    /// The step.
    pub id: String,
    /// Its tool.
    pub tool: String,
    /// `done`, `failed`, `denied`, `waiting`, `unknown`, `simulated` or `cancelled`.
    pub outcome: String,
    /// The text that the tool gave.
    pub output: String,
}
