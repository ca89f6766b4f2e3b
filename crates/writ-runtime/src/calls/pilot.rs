//! Calls about the autopilot of a project.

use std::sync::Arc;

use serde_json::Value;
use writ_policy::principal::Authenticated;
use writ_types::api::pilot::{
    PilotChanges, PilotCheckup, PilotCircuitsReset, PilotFindings, PilotGoal, PilotLog, PilotLogQuery,
    PilotPlanned, PilotProject, PilotRate, PilotRated, PilotReload, PilotReloaded, PilotReport,
    PilotResolved, PilotRevert, PilotRevertPlan, PilotReverted, PilotScope, PilotStatus, PilotTrials,
    PilotUnitDetails, PilotUnitName, PilotUnitOrder,
};
use writ_types::error::Report;

use super::{Call, as_json};
use crate::error::EngineError;
use crate::methods::{PilotResetCircuits, PilotTry};
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

pub(super) async fn report(services: &Services, scope: PilotScope) -> Result<PilotReport, EngineError> {
    find_desk(services)?.report(scope).await.map_err(refused)
}

pub(super) async fn show_log(services: &Services, query: PilotLogQuery) -> Result<PilotLog, EngineError> {
    find_desk(services)?.show_log(query).await.map_err(refused)
}

pub(super) async fn show_changes(
    services: &Services,
    unit: PilotUnitName,
) -> Result<PilotChanges, EngineError> {
    find_desk(services)?.show_changes(unit).await.map_err(refused)
}

pub(super) async fn plan_revert(
    services: &Services,
    unit: PilotUnitName,
) -> Result<PilotRevertPlan, EngineError> {
    find_desk(services)?.plan_revert(unit).await.map_err(refused)
}

pub(super) async fn reload(services: &Services, order: PilotReload) -> Result<PilotReloaded, EngineError> {
    find_desk(services)?.reload(order).await.map_err(refused)
}

pub(super) async fn check_up(services: &Services, order: PilotCheckup) -> Result<PilotFindings, EngineError> {
    find_desk(services)?.check_up(order).await.map_err(refused)
}

async fn try_gates(services: &Services, project: PilotProject) -> Result<PilotTrials, EngineError> {
    find_desk(services)?.try_gates(project).await.map_err(refused)
}

pub(super) async fn revert(
    services: &Services,
    who: &Authenticated<()>,
    order: PilotRevert,
) -> Result<PilotReverted, EngineError> {
    find_desk(services)?.revert(who.principal().to_string(), order).await.map_err(refused)
}

pub(super) async fn resolve(
    services: &Services,
    who: &Authenticated<()>,
    unit: PilotUnitName,
) -> Result<PilotResolved, EngineError> {
    find_desk(services)?.resolve(who.principal().to_string(), unit).await.map_err(refused)
}

/// Answers an order about the models or the gates of a project.
pub(super) async fn answer_order(services: &Services, call: Call) -> Result<Value, EngineError> {
    if let Call::PilotTry(project) = call {
        return as_json::<PilotTry>(try_gates(services, project).await);
    }
    if let Call::PilotResetCircuits(project) = call {
        return as_json::<PilotResetCircuits>(reset_circuits(services, project).await);
    }
    Err(EngineError::NoMethod("pilot".to_owned()))
}

async fn reset_circuits(
    services: &Services,
    project: PilotProject,
) -> Result<PilotCircuitsReset, EngineError> {
    find_desk(services)?.reset_circuits(project).await.map_err(refused)
}

pub(super) async fn rate_run(services: &Services, order: PilotRate) -> Result<PilotRated, EngineError> {
    find_desk(services)?.rate_run(order).await.map_err(refused)
}
