//! Plans: steps that a person approves together.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Action, Slot};
use crate::digest::Digest;
use crate::id::{ItemId, SessionId};
use crate::unit::MicroUsd;
use crate::work::PlanDocument;

/// A plan: the steps that an agent intends to take, and their limits. The harness makes it from the agent's proposal: each
/// step holds the action that the proposed tool call would become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its purpose, in one line.
    pub title: String,
    /// The steps, in the intended order.
    pub steps: Vec<PlanStep>,
    /// The time in which the steps may be done, in minutes from the approval.
    pub minutes: u64,
    /// The most that model calls of its session may cost in that time; without it, the session's own limits apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<MicroUsd>,
    /// The branch that the results are intended for, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The work item that this plan belongs to, if any. Executors run its steps, and the harness runs its checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Box<WorkOrder>>,
}

/// The work item that a plan is approved for: everything that determines which steps and checks are run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkOrder {
    /// The item.
    pub item: ItemId,
    /// The number of earlier proposals of the item: each retry is a new question to the owner.
    pub round: u32,
    /// The session that its steps run in.
    pub session: SessionId,
    /// The folder that its changes go to once every check has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The plan as it was written.
    pub document: PlanDocument,
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanStep {
    /// The tool that makes the action.
    pub tool: String,
    /// The action.
    pub action: Action,
    /// The arguments that name a recipient, a place or an amount (sinks), as names and values.
    pub sinks: Vec<(String, String)>,
    /// The digests of what the action executes or reads (executable, script, inputs), by name.
    pub bindings: BTreeMap<String, Digest>,
    /// The most times that the step may be done.
    pub times: u32,
    /// The part of the action that may differ from the approved text.
    pub free: Free,
    /// The names of the sinks whose values come from external content alone.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub external: BTreeSet<String>,
    /// The arguments whose values are found later, in results of tools, by dotted path. In the action and in the sinks a placeholder
    /// stands for each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub slots: BTreeMap<String, Slot>,
}

/// The part of a step's action that may differ from the approved text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Free {
    /// Nothing: the action is done exactly as shown.
    Nothing,
    /// Content that names no recipient and no place: the text of a file or a message.
    Content,
    /// The page that is read from the named host.
    Page,
}
