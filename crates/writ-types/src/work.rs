//! Plans as documents, and the work items that they describe.
//!
//! A planner writes a [`PlanDocument`] as Markdown with front matter; `writ-plan` reads, checks and writes it. Approving
//! one makes it a work item: its steps are run, and its [`Check`]s are judged outside the agent's sandbox.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::action::Free;
use crate::interaction::InteractionMode;
use crate::unit::{MicroUsd, Tokens};

mod check;
mod domain;
mod output;

pub use check::{
    Check, CheckEnd, CheckFinding, JsonExpectation, Judgement, Observation, Predicate, ProgramOutput, Verdict,
};
pub use domain::{DomainTag, InvalidDomain, MAX_DOMAIN_CHARS, MAX_DOMAINS};
pub use output::{ExecutorOutput, ExecutorOutputError};

/// The kind of a work item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// Steps that are run one after another, each by an executor that knows nothing of the others.
    Task,
    /// Steps that are tasks of their own, in the order of their dependencies, in parallel where nothing conflicts.
    Project,
    /// Checks that are run again and again; a failure reports or starts a task.
    Goal,
    /// The plan of the autopilot: its units are worked on as attempts, each in a work tree, and the autopilot says which is
    /// next. No Markdown of a planner becomes one.
    Pilot,
}

impl WorkKind {
    /// Every kind, in the order of documents.
    pub const ALL: [Self; 4] = [Self::Task, Self::Project, Self::Goal, Self::Pilot];

    /// Returns its name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Project => "project",
            Self::Goal => "goal",
            Self::Pilot => "pilot",
        }
    }
}

/// The reaction to an item with attempts that repeat the same failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStuck {
    /// Suspend it and ask the planner, then plan anew once, then ask the person.
    #[default]
    ConsultPlanner,
    /// Ask the person at once.
    AskPerson,
    /// End it with a report.
    Stop,
}

impl OnStuck {
    /// Every reaction, in the order of documents.
    pub const ALL: [Self; 3] = [Self::ConsultPlanner, Self::AskPerson, Self::Stop];

    /// Returns its name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConsultPlanner => "consult_planner",
            Self::AskPerson => "ask_person",
            Self::Stop => "stop",
        }
    }
}

/// The reaction to a failed check of a goal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Tell the person.
    #[default]
    Report,
    /// Start a task that mends it, under the goal's standing approval.
    SpawnTask,
}

impl OnFailure {
    /// Every reaction, in the order of documents.
    pub const ALL: [Self; 2] = [Self::Report, Self::SpawnTask];

    /// Returns its name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::SpawnTask => "spawn_task",
        }
    }
}

/// Limits of a work item or of one of its steps. A limit that is absent is that of what contains it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkBudget {
    /// Tokens of all model calls together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Tokens>,
    /// The cost of all model calls together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<MicroUsd>,
    /// Runs of the executor, each followed by the checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
}

/// A plan as a planner writes it and a person approves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanDocument {
    /// The name of the work item: lower-case letters, digits and hyphens.
    pub id: String,
    /// The kind of work.
    pub kind: WorkKind,
    /// Its purpose, in one line.
    pub title: String,
    /// Names of the skills that all steps may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// Limits of the whole.
    #[serde(default)]
    pub budget: WorkBudget,
    /// The steps, in the order of the document. None: the prose is the one step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<WorkStep>,
    /// The checks of the whole, run after the last step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Names of the owner's gates that judge between attempts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<String>,
    /// The reaction to repeated failure.
    #[serde(default)]
    pub on_stuck: OnStuck,
    /// How its turns deal with the person; `None`: as the owner has set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interaction: Option<InteractionMode>,
    /// The rhythm of a goal; set for goals alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle: Option<GoalCycle>,
    /// The background: Markdown below the heading «Context».
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub context: String,
    /// The instructions for the executor: Markdown below the heading «What to do».
    pub instructions: String,
}

/// The rhythm of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoalCycle {
    /// Minutes from one run of the checks to the next.
    pub every_minutes: u32,
    /// The reaction to a failed check.
    #[serde(default)]
    pub on_failure: OnFailure,
}

/// A step of a task, or a task of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkStep {
    /// Its name within the plan: lower-case letters, digits and hyphens.
    pub id: String,
    /// Its purpose, in one line.
    pub title: String,
    /// The instructions for its executor, which sees nothing else of the plan.
    pub instructions: String,
    /// Names of the steps that must be done before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Names of the steps that it takes artifacts from to start with. Each is a dependency too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts_from: Vec<String>,
    /// Names of the tools that it may use; empty: those of the executor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Names of the skills that it may use, besides those of the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// How its turns deal with the person, in place of the plan's way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interaction: Option<InteractionMode>,
    /// Paths and folders that it changes. Steps that share one are not run at the same time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// Limits of the step.
    #[serde(default)]
    pub budget: WorkBudget,
    /// The checks of the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Calls that would ask and that the approval of the plan covers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<PlannedCall>,
}

/// A tool call that a step will make, approved together with the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedCall {
    /// The name of the tool.
    pub tool: String,
    /// The arguments, as in the call.
    pub arguments: Map<String, Value>,
    /// The most times that it may be made.
    pub times: u32,
    /// The part that may differ when it is made; none: what the tool leaves open without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<Free>,
}
