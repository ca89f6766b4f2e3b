//! The autopilot of a project, as people watch and steer it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::model::ProviderLimits;
use crate::api::work::WorkState;
use crate::id::{AskId, ItemId, PilotId};
use crate::unit::{MicroUsd, Timestamp, Tokens};

pub use failure::FailureClass;
pub use history::{PilotHistory, PilotHistoryLine, PilotHistoryQuery};
pub use orders::{
    FindingVerdict, PilotCheckup, PilotDispatchOrder, PilotDispatched, PilotFinding, PilotFindings,
    PilotReload, PilotReloaded, PilotResolved, PilotRevert, PilotRevertPlan, PilotReverted, PilotTrial,
    PilotTrials, PlanEdit, PlanEditConflict, ResolveState, RevertEnd,
};
pub use report::{
    PilotChanges, PilotLog, PilotLogLine, PilotLogQuery, PilotReport, PilotScope, ReportCommit, ReportGate,
    ReportMove, ReportReview, ReportRun, ReportUnit,
};
pub use ship::{PilotShip, PilotShipState};
pub use state::{
    PilotCounts, PilotRefreshed, PilotRetryLine, PilotRunningLine, PilotSessionQuery, PilotSnapshot,
    PilotSnapshots, PilotState, PilotTokens, PilotTotals, PilotUnitQuery, PilotUnitSnapshot,
    PilotUnitSnapshots, PilotUnitState,
};
pub use trace::{
    ChapterOutcome, PilotChapter, PilotCleaned, PilotCleaning, PilotSpan, PilotTrace, PilotTraceQuery,
    SpanOperation,
};

mod failure;

mod history;

mod orders;

mod report;

mod ship;

mod state;

mod trace;

/// A project of the autopilot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotProject {
    /// Its folder: the top of a git repository.
    pub project: String,
}

/// A goal that is to be planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotGoal {
    /// The project's folder.
    pub project: String,
    /// The goal, in words.
    pub goal: String,
    /// The workflow of its units; none: the one of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The number of the issue that it is about: hooks read it with each of its units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_issue: Option<u64>,
}

/// A plan that a person is asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotPlanned {
    /// The work item of the plan.
    pub item: ItemId,
    /// The card about it.
    pub ask: AskId,
    /// The milestone.
    pub milestone: String,
    /// Its units.
    pub units: Vec<PilotUnitLine>,
}

/// A unit, as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotUnitLine {
    /// Its id: `milestone/m1`, `slice/m1/s2`, `task/m1/s2/t3`.
    pub id: String,
    /// Its purpose, in one line.
    pub title: String,
    /// Its phase.
    pub phase: String,
    /// Its status in the phase.
    pub status: String,
    /// The number of its newest dispatch; 0: it was not dispatched.
    pub attempt: u32,
    /// Set once nothing more is done for it.
    pub is_over: bool,
    /// Set while a worker has it.
    pub is_running: bool,
    /// The cost of all its runs, in micro-USD, and of those of its parts.
    pub cost: MicroUsd,
}

/// Something that holds a unit up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotBlockerLine {
    /// The unit; empty: it concerns all of them.
    pub unit: String,
    /// `GateBlocked`, `MergeConflict`, `Paused` or `UATPending`.
    pub event: String,
    /// The reason, in words.
    pub detail: String,
    /// The time since which it holds.
    pub since: Timestamp,
}

impl PilotBlockerLine {
    /// The event of a unit that waits for a person's acceptance.
    pub const ACCEPTANCE: &str = "UATPending";

    /// Returns what the unit waits for: the reason, or the commands that answer a result that has none.
    pub fn need(&self) -> &str {
        if self.event == Self::ACCEPTANCE && self.detail.is_empty() {
            return "`writ pilot accept` or `writ pilot reject` it";
        }
        &self.detail
    }
}

/// A plan of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotPlanLine {
    /// Its work item.
    pub item: ItemId,
    /// The milestone.
    pub milestone: String,
    /// Its state.
    pub state: WorkState,
    /// The reason of the state.
    pub reason: String,
}

/// The autopilot of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotStatus {
    /// The project's folder.
    pub project: String,
    /// Its session.
    pub session: PilotId,
    /// `idle`, `running`, `paused`, `interrupted`, `complete` or `failed`.
    pub state: String,
    /// Its plans, oldest first.
    pub plans: Vec<PilotPlanLine>,
    /// Its units: each before its parts.
    pub units: Vec<PilotUnitLine>,
    /// Everything that holds it up.
    pub blockers: Vec<PilotBlockerLine>,
    /// The cost of all runs, in micro-USD.
    pub cost: MicroUsd,
    /// The circuits of models that have failed in a row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub circuits: Vec<PilotCircuitLine>,
    /// The limits of their rate that the engine's providers have stated last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rate_limits: Vec<ProviderLimits>,
    /// The settings in force, each with its source.
    #[serde(default)]
    pub settings: Vec<PilotSettingLine>,
    /// What a person should know and nothing waits for: settings that need a restart or have a mistake, findings of the supervisor.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The unit that a free worker would get next; none is ready: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The beginning of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The model of the newest run that has succeeded or failed, as `provider/name`; empty: that of the engine, or no run yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
}

/// The circuit of a model that has failed in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotCircuitLine {
    /// The model, as `provider/name`.
    pub model: String,
    /// The tier that it was asked in last.
    pub tier: String,
    /// `closed`, `open` or `half-open`: asked, passed over, or tried once more.
    pub state: String,
    /// The failures in a row.
    pub failures: u32,
    /// The time at which it was opened.
    pub tripped_at: Option<Timestamp>,
    /// The time from which the model is asked again.
    pub resets_at: Option<Timestamp>,
    /// The last failure, in words.
    pub reason: String,
}

/// An order to measure the models of all tiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotBenchmarkOrder {
    /// The project's folder.
    pub project: String,
    /// The number of tasks that each model plans, at most 10; 0: three.
    #[serde(default)]
    pub samples: usize,
}

/// The models of all tiers, as they were measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotBenchmark {
    /// One line for each model of each tier.
    pub lines: Vec<PilotBenchmarkLine>,
}

/// A model that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotBenchmarkLine {
    /// Its tier; `engine`: no tier has models of its own.
    pub tier: String,
    /// The model, as `provider/name`.
    pub model: String,
    /// The number of tasks that it has answered.
    pub samples: usize,
    /// The number of plans among them that can be read.
    pub readable: usize,
    /// The time in the middle of all answers, in milliseconds.
    pub took_ms: u64,
    /// The money that it has cost.
    pub cost: MicroUsd,
    /// The reason why it could not be measured; empty: it was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// A session of a project that a person has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotSessionEnded {
    /// The session that is over.
    pub ended: PilotId,
    /// The session of the next work.
    pub session: PilotId,
}

/// Circuits that were removed by a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotCircuitsReset {
    /// The open circuits among them; failures of closed ones are forgotten with them.
    pub reset: Vec<PilotCircuitLine>,
}

/// A setting in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotSettingLine {
    /// Its key, with dots.
    pub key: String,
    /// Its value; `-`: none is set.
    pub value: String,
    /// The file and the line that set it, or `default`.
    pub source: String,
}

/// The name of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotUnitName {
    /// The project's folder.
    pub project: String,
    /// Its id.
    pub unit: String,
}

/// A run of a unit by a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotRunLine {
    /// The number of the dispatch.
    pub attempt: u32,
    /// The phase that it worked on.
    pub phase: String,
    /// When it began.
    pub started_at: Timestamp,
    /// Its outcome; none while it runs.
    pub outcome: Option<String>,
    /// The code of its error; empty without one.
    pub error: String,
    /// The class of its error, which fixes what follows; none without an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// Tokens that models have read and written.
    pub tokens: Tokens,
    /// Its cost, in micro-USD.
    pub cost: MicroUsd,
}

/// A move of a unit from phase to phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotMoveLine {
    /// The phase before.
    pub from: String,
    /// The phase after.
    pub to: String,
    /// The reason.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// The result of a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotGateLine {
    /// Its name.
    pub gate: String,
    /// Set if it let the unit pass.
    pub passed: bool,
    /// The number of the try.
    pub attempt: u32,
    /// Its output, cut.
    pub output: String,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// When.
    pub at: Timestamp,
}

/// A unit with everything that happened to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotUnitDetails {
    /// The unit.
    pub unit: PilotUnitLine,
    /// The whole task, in words.
    pub description: String,
    /// Its branch, where it has one.
    pub branch: Option<String>,
    /// Its plan, once there is one.
    pub plan: String,
    /// The last error that its next attempt reads; of a cancelled unit, the reason.
    pub last_error: String,
    /// The change of documents that waits for a person's answer; empty without one.
    #[serde(default)]
    pub documents: String,
    /// Its request at a forge, where one was to be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ship: Option<PilotShip>,
    /// Its runs, oldest first.
    pub runs: Vec<PilotRunLine>,
    /// Its moves, oldest first.
    pub moves: Vec<PilotMoveLine>,
    /// The results of its gates, oldest first.
    pub gates: Vec<PilotGateLine>,
    /// Everything that holds it up.
    pub blockers: Vec<PilotBlockerLine>,
}

/// A person's order about a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PilotOrder {
    /// Ends it, where it stands.
    Cancel,
    /// Lets it go on after a pause.
    Resume,
    /// Gives the gate or the conflict that holds it up to a reassessment.
    ForceClear,
    /// Accepts its result.
    Accept,
    /// Rejects its result: it is reassessed.
    Reject,
    /// Opens a request for its merged work at a forge, if that has not been done.
    Ship,
}

impl PilotOrder {
    /// Returns its name in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Resume => "resume",
            Self::ForceClear => "force-clear",
            Self::Accept => "accept",
            Self::Reject => "reject",
            Self::Ship => "ship",
        }
    }
}

/// A person's order about a unit, with the unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotUnitOrder {
    /// The project's folder.
    pub project: String,
    /// The unit's id.
    pub unit: String,
    /// The order.
    pub order: PilotOrder,
    /// The person's reason; an attempt after a rejection reads it.
    #[serde(default)]
    pub reason: String,
}

/// A person's rating of a run, against what its phase was to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PilotRating {
    /// More was done than needed: a weaker model would have done.
    Over,
    /// Right for it.
    Ok,
    /// Not good enough: its model is not asked for units like it any more.
    Under,
}

impl PilotRating {
    /// Returns its name in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Over => "over",
            Self::Ok => "ok",
            Self::Under => "under",
        }
    }
}

/// A rating, with the unit whose newest run it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotRate {
    /// The project's folder.
    pub project: String,
    /// The unit's id; empty: the newest run of all units.
    #[serde(default)]
    pub unit: String,
    /// The rating.
    pub rating: PilotRating,
}

/// A run that was rated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PilotRated {
    /// The unit.
    pub unit: String,
    /// The number of its dispatch.
    pub attempt: u32,
    /// Its phase.
    pub phase: String,
    /// Its model, as `provider/name`; empty: that of the engine.
    pub model: String,
    /// The class of units that the rating counts for.
    pub class: String,
    /// The rating.
    pub rating: PilotRating,
}
