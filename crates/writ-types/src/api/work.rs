//! Work items: what was planned, how far it has come, and what the checks have shown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Exit;
use crate::id::{AskId, ItemId, SessionId};
use crate::unit::{MicroUsd, Timestamp, Tokens};
use crate::work::{DomainTag, ExecutorOutput};

/// The state of a work item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkState {
    /// Its plan waits for an approval.
    Proposed,
    /// Its steps are run; a goal's checks are repeated.
    Running,
    /// A person has stopped it for a while: no further step begins.
    Paused,
    /// Its attempts have failed in the same way, and the planner is asked for advice.
    Consulting,
    /// It cannot go on without a person.
    Stuck,
    /// Its tokens or its money are used up.
    OverBudget,
    /// Every check has passed.
    Done,
    /// A check has not passed, and no attempt is left.
    Failed,
    /// A person has ended it, or its plan was not answered in time.
    Cancelled,
    /// A person has refused its plan.
    Denied,
}

impl WorkState {
    /// Every state, in the order of a life.
    pub const ALL: [Self; 10] = [
        Self::Proposed,
        Self::Running,
        Self::Paused,
        Self::Consulting,
        Self::Stuck,
        Self::OverBudget,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
        Self::Denied,
    ];

    /// Returns its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Consulting => "consulting",
            Self::Stuck => "stuck",
            Self::OverBudget => "over_budget",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Denied => "denied",
        }
    }

    /// Returns true if nothing follows without a person's word.
    pub const fn is_at_rest(self) -> bool {
        match self {
            Self::Running | Self::Consulting => false,
            Self::Proposed
            | Self::Paused
            | Self::Stuck
            | Self::OverBudget
            | Self::Done
            | Self::Failed
            | Self::Cancelled
            | Self::Denied => true,
        }
    }

    /// Returns true if nothing follows at all, unless it is retried.
    pub const fn is_over(self) -> bool {
        match self {
            Self::Done | Self::Failed | Self::OverBudget | Self::Cancelled | Self::Denied => true,
            // A person can let work go on that is stuck.
            Self::Proposed | Self::Running | Self::Paused | Self::Consulting | Self::Stuck => false,
        }
    }

    /// Returns the exit code that this state means for a command.
    pub const fn exit(self) -> Exit {
        match self {
            Self::Proposed => Exit::Waiting,
            Self::Running | Self::Consulting | Self::Done => Exit::Done,
            Self::Paused | Self::Stuck => Exit::Blocked,
            Self::OverBudget => Exit::Budget,
            Self::Failed => Exit::Verification,
            Self::Cancelled => Exit::Interrupted,
            Self::Denied => Exit::Denied,
        }
    }
}

/// The state of a step of a work item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// It has not begun, or its next attempt has not.
    Waiting,
    /// An executor works on it.
    Running,
    /// Its executor has ended; its checks are due.
    Checking,
    /// Its checks have passed.
    Done,
    /// Its checks have not passed, and no attempt is left.
    Failed,
}

impl StepState {
    /// Every state, in the order of a life.
    pub const ALL: [Self; 5] = [Self::Waiting, Self::Running, Self::Checking, Self::Done, Self::Failed];

    /// Returns its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Checking => "checking",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// A work item by its id, or by its name if that is the name of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemName {
    /// The id, or the name.
    pub item: String,
}

/// A choice of work items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkQuery {
    /// Those with this domain; none: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<DomainTag>,
}

/// A domain of a work item, to be added or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainChange {
    /// The id of the item, or its name.
    pub item: String,
    /// The domain.
    pub domain: DomainTag,
}

/// A plan that its owner proposes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanProposal {
    /// The plan: Markdown with front matter.
    pub plan: String,
    /// The folder to work in; none: an empty one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}

/// The work items, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkList {
    /// At most 100.
    pub items: Vec<WorkSummary>,
}

// tidy: plain state
/// One work item in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkSummary {
    /// Its id.
    pub item: ItemId,
    /// Its name, as its plan says.
    pub name: String,
    /// `task`, `project` or `goal`.
    pub kind: String,
    /// Its purpose, in one line.
    pub title: String,
    /// Its state.
    pub state: WorkState,
    /// The reason of its state, in one line; empty if there is none to say.
    pub reason: String,
    /// The session that its steps run in.
    pub session: SessionId,
    /// The conversation that it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<SessionId>,
    /// The goal that has started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<ItemId>,
    /// The folder that it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The question about its plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<AskId>,
    /// Its domains, in the order of the alphabet.
    #[serde(default)]
    pub domains: Vec<DomainTag>,
    /// The number of steps that are done.
    pub steps_done: usize,
    /// The number of steps.
    pub steps: usize,
    /// The amounts that it has used, and may use.
    pub spending: WorkSpending,
    /// When it was last changed.
    pub changed_at: Timestamp,
}

/// What a work item has used, and may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkSpending {
    /// Tokens that its model calls have used.
    pub tokens: Tokens,
    /// The cost of its model calls in micro-USD, as far as prices are known.
    pub cost_micro_usd: MicroUsd,
    /// The most tokens; none: those of a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Tokens>,
    /// The most micro-USD; none: those of a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_micro_usd: Option<MicroUsd>,
}

/// A work item with its steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkDetails {
    /// The item.
    pub summary: WorkSummary,
    /// Its steps, in the order of the plan.
    pub steps: Vec<StepDetails>,
    /// The report about its end; empty before.
    pub report: String,
}

/// A step of a work item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepDetails {
    /// Its name within the plan.
    pub step: String,
    /// Its purpose, in one line.
    pub title: String,
    /// Its state.
    pub state: StepState,
    /// The numbers of the steps before which it does not begin, from zero.
    pub after: Vec<usize>,
    /// Its attempts, in their order.
    pub attempts: Vec<AttemptDetails>,
}

/// One attempt at a step: a run of an executor, and the checks after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptDetails {
    /// Its number, from one.
    pub attempt: u32,
    /// When it began.
    pub began_at: Timestamp,
    /// When its checks were judged; none before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged_at: Option<Timestamp>,
    /// The last words of its executor, which prove nothing.
    pub said: String,
    /// The output that they stand for; none before it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<ExecutorOutput>,
    /// `pass`, `fail` or `not_run`; empty before the checks have ended.
    pub verdict: String,
    /// The evidence: what each check has shown.
    pub checks: Vec<CheckEvidence>,
    /// What the harness noticed besides, such as check files that were edited.
    pub notices: Vec<String>,
}

/// What one check has shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckEvidence {
    /// The name of the check.
    pub name: String,
    /// Its command; empty if it is about files alone.
    pub run: Vec<String>,
    /// `pass`, `fail` or `not_run`.
    pub verdict: String,
    /// One line for each expectation: what was expected, and what was seen.
    pub findings: Vec<String>,
    /// The end of its output, at most 4,000 characters.
    pub output: String,
}
