//! The autopilot, as people reach it through the engine's methods.
//!
//! It lies above this crate: the program that starts the engine hands it in.

use std::fmt;

use secrecy::SecretString;
use writ_types::api::pilot::{
    PilotBenchmark, PilotBenchmarkOrder, PilotChanges, PilotCheckup, PilotCircuitsReset, PilotCleaned,
    PilotCleaning, PilotDispatchOrder, PilotDispatched, PilotFindings, PilotGoal, PilotHistory,
    PilotHistoryQuery, PilotLog, PilotLogQuery, PilotPlanned, PilotProject, PilotRate, PilotRated,
    PilotRefreshed, PilotReload, PilotReloaded, PilotReport, PilotResolved, PilotRevert, PilotRevertPlan,
    PilotReverted, PilotScope, PilotSessionEnded, PilotSessionQuery, PilotState, PilotStatus, PilotTrace,
    PilotTraceQuery, PilotTrials, PilotUnitDetails, PilotUnitName, PilotUnitOrder, PilotUnitQuery,
    PilotUnitState,
};
use writ_types::id::ItemId;

pub use writ_tools::plan_unit::{NewTask, UnitChange};

use crate::fleet::DeskAnswer;

/// A branch to be pushed from a project's repository.
#[derive(Clone, Debug)]
pub struct BranchPush {
    /// The project's folder.
    pub project: String,
    /// The address of the other repository.
    pub remote: String,
    /// The commit.
    pub commit: String,
    /// The branch there.
    pub branch: String,
    /// The value of the header `Authorization`, for an address of the web.
    pub authorization: Option<SecretString>,
}

/// A change of a plan that an agent asks for in its attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitChangeOrder {
    /// The project's folder.
    pub project: String,
    /// The plan that the attempt works under.
    pub plan: ItemId,
    /// The unit that the attempt works on.
    pub unit: String,
    /// The change.
    pub change: UnitChange,
}

/// The autopilot, as people ask it. What has begun runs to its end, also if its answer is not waited for any more.
pub trait PilotDesk: fmt::Debug + Send + Sync {
    /// Plans a goal, and asks a person about the plan.
    fn plan_goal(&self, goal: PilotGoal) -> DeskAnswer<'_, PilotPlanned>;

    /// Shows the autopilot of a project.
    fn show_status(&self, project: PilotProject) -> DeskAnswer<'_, PilotStatus>;

    /// Shows a unit.
    fn show_unit(&self, unit: PilotUnitName) -> DeskAnswer<'_, PilotUnitDetails>;

    /// Lets it work on what was approved.
    fn run_project(&self, project: PilotProject) -> DeskAnswer<'_, PilotStatus>;

    /// Stops it after the attempts that run.
    fn pause_project(&self, project: PilotProject) -> DeskAnswer<'_, PilotStatus>;

    /// Hands out one unit.
    fn dispatch(&self, order: PilotDispatchOrder) -> DeskAnswer<'_, PilotDispatched>;

    /// Carries out a person's order about a unit.
    fn obey_order(&self, person: String, order: PilotUnitOrder) -> DeskAnswer<'_, PilotUnitDetails>;

    /// Reports on a project, or on a unit with its parts.
    fn report(&self, scope: PilotScope) -> DeskAnswer<'_, PilotReport>;

    /// Lists everything that happened to a unit.
    fn show_log(&self, query: PilotLogQuery) -> DeskAnswer<'_, PilotLog>;

    /// Shows what a unit changes that is not in the target.
    fn show_changes(&self, unit: PilotUnitName) -> DeskAnswer<'_, PilotChanges>;

    /// Finds the commits of a unit in the target.
    fn plan_revert(&self, unit: PilotUnitName) -> DeskAnswer<'_, PilotRevertPlan>;

    /// Undoes a unit in the target.
    fn revert(&self, person: String, order: PilotRevert) -> DeskAnswer<'_, PilotReverted>;

    /// Begins the resolution of a conflict, or ends it.
    fn resolve(&self, person: String, unit: PilotUnitName) -> DeskAnswer<'_, PilotResolved>;

    /// Reads the plan that a person has edited.
    fn reload(&self, order: PilotReload) -> DeskAnswer<'_, PilotReloaded>;

    /// Changes the open part of a plan, as an agent asks that works on it. Returns what has changed, in words for it.
    fn change_units(&self, order: UnitChangeOrder) -> DeskAnswer<'_, String>;

    /// Looks for faults.
    fn check_up(&self, order: PilotCheckup) -> DeskAnswer<'_, PilotFindings>;

    /// Rates a run.
    fn rate_run(&self, order: PilotRate) -> DeskAnswer<'_, PilotRated>;

    /// Closes the circuits of models that have failed in a row.
    fn reset_circuits(&self, project: PilotProject) -> DeskAnswer<'_, PilotCircuitsReset>;

    /// Measures the models of all tiers.
    fn measure_models(&self, order: PilotBenchmarkOrder) -> DeskAnswer<'_, PilotBenchmark>;

    /// Ends the session of a project in which nothing is open.
    fn end_session(&self, project: PilotProject) -> DeskAnswer<'_, PilotSessionEnded>;

    /// Shows a session at this moment, or all that are not over.
    fn show_state(&self, query: PilotSessionQuery) -> DeskAnswer<'_, PilotState>;

    /// Shows a unit at this moment.
    fn show_unit_state(&self, query: PilotUnitQuery) -> DeskAnswer<'_, PilotUnitState>;

    /// Lets a loop, or all, look at its units now.
    fn refresh(&self, query: PilotSessionQuery) -> DeskAnswer<'_, PilotRefreshed>;

    /// Finds spans.
    fn find_spans(&self, query: PilotTraceQuery) -> DeskAnswer<'_, PilotTrace>;

    /// Lists the units that are over.
    fn list_history(&self, query: PilotHistoryQuery) -> DeskAnswer<'_, PilotHistory>;

    /// Moves old trace files to the archive.
    fn clean_up(&self, order: PilotCleaning) -> DeskAnswer<'_, PilotCleaned>;

    /// Pushes a branch, as an action says that the door has permitted. The engine's own performer calls it.
    fn push_branch(&self, push: BranchPush) -> DeskAnswer<'_, ()>;

    /// Tries the gates that a project could have.
    fn try_gates(&self, project: PilotProject) -> DeskAnswer<'_, PilotTrials>;
}
