//! Calls about the autopilot of a project.

use std::sync::Arc;

use writ_policy::principal::Authenticated;
use writ_types::api::pilot::{
    PilotGoal, PilotPlanned, PilotProject, PilotStatus, PilotUnitDetails, PilotUnitName, PilotUnitOrder,
};
use writ_types::error::Report;

use crate::error::EngineError;
use crate::pilot_desk::PilotDesk;
use crate::services::Services;

fn find_desk(services: &Services) -> Result<Arc<dyn PilotDesk>, EngineError> {
    services.life.autopilot().clone().ok_or(EngineError::NoAutopilot)
}

fn refused(report: Report) -> EngineError {
    EngineError::Autopilot(Box::new(report))
}

pub(super) async fn plan_goal(services: &Services, goal: PilotGoal) -> Result<PilotPlanned, EngineError> {
    find_desk(services)?.plan_goal(goal).await.map_err(refused)
}

pub(super) async fn show_status(
    services: &Services,
    project: PilotProject,
) -> Result<PilotStatus, EngineError> {
    find_desk(services)?.show_status(project).await.map_err(refused)
}

pub(super) async fn show_unit(
    services: &Services,
    unit: PilotUnitName,
) -> Result<PilotUnitDetails, EngineError> {
    find_desk(services)?.show_unit(unit).await.map_err(refused)
}

pub(super) async fn run_project(
    services: &Services,
    project: PilotProject,
) -> Result<PilotStatus, EngineError> {
    find_desk(services)?.run_project(project).await.map_err(refused)
}

pub(super) async fn pause_project(
    services: &Services,
    project: PilotProject,
) -> Result<PilotStatus, EngineError> {
    find_desk(services)?.pause_project(project).await.map_err(refused)
}

pub(super) async fn obey_order(
    services: &Services,
    who: &Authenticated<()>,
    order: PilotUnitOrder,
) -> Result<PilotUnitDetails, EngineError> {
    find_desk(services)?.obey_order(who.principal().to_string(), order).await.map_err(refused)
}
