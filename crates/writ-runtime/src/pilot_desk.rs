//! The autopilot, as people reach it through the engine's methods.
//!
//! It lies above this crate: the program that starts the engine hands it in.

use std::fmt;

use writ_types::api::pilot::{
    PilotGoal, PilotPlanned, PilotProject, PilotStatus, PilotUnitDetails, PilotUnitName, PilotUnitOrder,
};

use crate::fleet::DeskAnswer;

/// The autopilot, as people ask it. What has begun runs to its end, also if no one waits for the answer any more.
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

    /// Carries out a person's order about a unit.
    fn obey_order(&self, person: String, order: PilotUnitOrder) -> DeskAnswer<'_, PilotUnitDetails>;
}
