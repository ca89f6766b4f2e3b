//! What a person asks of a project's autopilot beside its work: to undo, to resolve, to read the plan again, to look for faults.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::report::ReportCommit;
use crate::id::AskId;

/// The commits of a unit, as they are to be seen before anything is undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotRevertPlan {
    /// The unit.
    pub unit: String,
    /// The branch.
    pub target: String,
    /// The commit that the branch is at.
    pub at: String,
    /// The commits to undo, the newest first.
    pub commits: Vec<ReportCommit>,
    /// Merges among them: they bring nothing of their own, and stay.
    pub merges: Vec<ReportCommit>,
}

/// A person's order to hand a unit out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotDispatchOrder {
    /// The project's folder.
    pub project: String,
    /// The unit's id; empty: the one that the loop would take next. A text of several words is a task of its own, which a person is
    /// asked about first.
    #[serde(default)]
    pub unit: String,
}

/// A unit that was handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotDispatched {
    /// The unit; none: nothing was handed out.
    pub unit: Option<String>,
    /// The card about it, where it is a task that was asked for in words: it begins once that is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<AskId>,
    /// What the order has passed over: units that are not over, and pauses of others.
    pub warnings: Vec<String>,
    /// The reason why nothing was handed out; empty if a unit was.
    pub note: String,
}

/// A person's order to undo a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotRevert {
    /// The project's folder.
    pub project: String,
    /// The unit's id.
    pub unit: String,
    /// The commit that the target was at when the person looked.
    pub at: String,
}

/// The result of undoing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RevertEnd {
    /// Its changes are undone.
    Reverted,
    /// All of it was undone before.
    NothingLeft,
    /// A later change excludes it; the branch is as it was.
    Conflict,
    /// The gates did not pass without it; the branch is as it was.
    Refused,
    /// The branch stays, since a checkout could not move with it.
    Held,
}

/// What became of an order to undo a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotReverted {
    /// The unit.
    pub unit: String,
    /// The branch.
    pub target: String,
    /// The result.
    pub end: RevertEnd,
    /// The commits that undo, the oldest first.
    pub commits: Vec<String>,
    /// The reason, in words; empty if there is none to say.
    pub reason: String,
}

/// The state of a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolveState {
    /// The files of both sides are in the workspace: the person edits those with markers, and asks again.
    Begun,
    /// The person's resolution is committed, and the merge is tried again.
    Resolved,
}

/// What became of an order to resolve a conflict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotResolved {
    /// The unit.
    pub unit: String,
    /// The state.
    pub state: ResolveState,
    /// The workspace.
    pub folder: String,
    /// The files that conflict.
    pub files: Vec<String>,
    /// The commit of the resolution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// An order to read the project's plan again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotReload {
    /// The project's folder.
    pub project: String,
    /// Set to carry the edits out; else they are only shown.
    #[serde(default)]
    pub apply: bool,
    /// The digest of the file that the person has looked at; another one is not carried out. Empty when they are only shown.
    #[serde(default)]
    pub digest: String,
}

/// The edits of a plan, and what became of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotReloaded {
    /// The file.
    pub file: String,
    /// The digest of the file.
    pub digest: String,
    /// True if there was none, and it was written from the units.
    pub written: bool,
    /// The edits.
    pub edits: Vec<PlanEdit>,
    /// Edits that cannot be carried out. As long as there are any, none is.
    pub conflicts: Vec<PlanEditConflict>,
    /// True if the edits were carried out.
    pub applied: bool,
    /// The cards of plans that wait for an approval, since their words are others now.
    pub asks: Vec<AskId>,
}

/// An edit of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanEdit {
    /// The unit.
    pub unit: String,
    /// `add`, `edit` or `remove`.
    pub kind: String,
    /// It, in one line.
    pub text: String,
    /// True if the plan has to be approved anew.
    pub needs_approval: bool,
}

/// An edit that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanEditConflict {
    /// The line of the file; none for an item that is missing there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The unit.
    pub unit: String,
    /// The reason.
    pub reason: String,
    /// The next thing to do.
    pub hint: String,
}

/// An order to look for faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotCheckup {
    /// The project's folder.
    pub project: String,
    /// Set to mend what can be mended without any loss.
    #[serde(default)]
    pub fix: bool,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotFindings {
    /// True if nothing is bad, and nothing doubtful.
    pub healthy: bool,
    /// Each thing that was looked at.
    pub checks: Vec<PilotFinding>,
}

/// The verdict about one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingVerdict {
    /// Nothing to say.
    Good,
    /// It works, with a limit that one should know.
    Warn,
    /// It does not work.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotFinding {
    /// Its name.
    pub name: String,
    /// The verdict.
    pub verdict: FindingVerdict,
    /// The finding.
    pub text: String,
    /// The remedy; empty if none is needed.
    pub hint: String,
    /// True if `fix` mends it without any loss.
    pub can_fix: bool,
    /// True if it was mended now.
    pub fixed: bool,
}

/// The gates that a project could have, each with the result of its trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotTrials {
    /// The gates.
    pub gates: Vec<PilotTrial>,
}

/// A gate that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotTrial {
    /// Its name.
    pub name: String,
    /// The reason why it does not pass today; none: it passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The time that it took, in milliseconds.
    pub took_ms: u64,
}
