//! Plans: steps that a person approves together.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Action, Slot};
use crate::digest::Digest;
use crate::id::{ItemId, SessionId};
use crate::unit::MicroUsd;
use crate::work::PlanDocument;

/// A plan: what an agent means to do, step by step, and within which limits. Made by the harness from what the agent has
/// proposed: each step is the action that its call would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its purpose, in one line.
    pub title: String,
    /// The steps, in the order in which they are meant to be done.
    pub steps: Vec<PlanStep>,
    /// For how many minutes from the approval on they may be done.
    pub minutes: u64,
    /// The most that models may cost in its session meanwhile; none: the session's own limits apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<MicroUsd>,
    /// The branch that what is made is meant for, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The work item that this is the plan of. Its steps are run by executors, and its checks by the harness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Box<WorkOrder>>,
}

/// The work item that a plan is approved for: all that decides what is run and what is checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkOrder {
    /// The item.
    pub item: ItemId,
    /// The number of times that it was proposed before: a retry is another question.
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
    /// The arguments that say who, where and what is touched: names and values.
    pub sinks: Vec<(String, String)>,
    /// Digests of what is executed or read, by name.
    pub bindings: BTreeMap<String, Digest>,
    /// The most times that it may be done.
    pub times: u32,
    /// The part of it that may differ when it is done.
    pub free: Free,
    /// The names of its sinks that rest on external content alone.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub external: BTreeSet<String>,
    /// Its arguments that are not known yet, by dotted path. In the action and among the sinks a placeholder stands for each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub slots: BTreeMap<String, Slot>,
}

/// The part of a step that may differ when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Free {
    /// Nothing: it is done exactly as shown.
    Nothing,
    /// Content that names no recipient and no place: the text of a file or a message.
    Content,
    /// The page of a host that is read.
    Page,
}
