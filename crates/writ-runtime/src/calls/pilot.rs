//! Calls about the autopilot of a project.

use std::sync::Arc;

use serde_json::Value;
use writ_policy::principal::Authenticated;
use writ_types::api::pilot::{
    PilotChanges, PilotCheckup, PilotCircuitsReset, PilotCleaned, PilotCleaning, PilotFindings, PilotGoal,
    PilotHistory, PilotHistoryQuery, PilotLog, PilotLogQuery, PilotPlanned, PilotProject, PilotRate,
    PilotRated, PilotRefreshed, PilotReload, PilotReloaded, PilotReport, PilotResolved, PilotRevert,
    PilotRevertPlan, PilotReverted, PilotScope, PilotSessionQuery, PilotState, PilotStatus, PilotTrace,
    PilotTraceQuery, PilotTrials, PilotUnitDetails, PilotUnitName, PilotUnitOrder, PilotUnitQuery,
    PilotUnitState,
};
use writ_types::error::Report;

use super::{Call, as_json};
use crate::error::EngineError;
use crate::methods::{
    PilotClean, PilotForensics, PilotHistoryOf, PilotRefresh, PilotResetCircuits, PilotStateOf, PilotTry,
    PilotUnitStateOf,
};
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

/// The calls that [`answer_order`] answers, as a pattern: one line in the table of all calls.
macro_rules! orders {
    () => {
        (Call::PilotTry(_)
            | Call::PilotResetCircuits(_)
            | Call::PilotStateOf(_)
            | Call::PilotUnitStateOf(_)
            | Call::PilotRefresh(_)
            | Call::PilotForensics(_)
            | Call::PilotHistoryOf(_)
            | Call::PilotClean(_))
    };
}
pub(super) use orders;

/// Answers an order about the models or the gates of a project.
pub(super) async fn answer_order(services: &Services, call: Call) -> Result<Value, EngineError> {
    macro_rules! answer {
        ($call:ident, $answer:ident) => {
            if let Call::$call(order) = call {
                return as_json::<$call>($answer(services, order).await);
            }
        };
    }
    answer!(PilotTry, try_gates);
    answer!(PilotResetCircuits, reset_circuits);
    answer!(PilotStateOf, show_state);
    answer!(PilotUnitStateOf, show_unit_state);
    answer!(PilotRefresh, refresh);
    answer!(PilotForensics, find_spans);
    answer!(PilotHistoryOf, list_history);
    answer!(PilotClean, clean_up);
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

pub(super) async fn show_state(
    services: &Services,
    query: PilotSessionQuery,
) -> Result<PilotState, EngineError> {
    find_desk(services)?.show_state(query).await.map_err(refused)
}

pub(super) async fn show_unit_state(
    services: &Services,
    query: PilotUnitQuery,
) -> Result<PilotUnitState, EngineError> {
    find_desk(services)?.show_unit_state(query).await.map_err(refused)
}

pub(super) async fn refresh(
    services: &Services,
    query: PilotSessionQuery,
) -> Result<PilotRefreshed, EngineError> {
    find_desk(services)?.refresh(query).await.map_err(refused)
}

pub(super) async fn find_spans(
    services: &Services,
    query: PilotTraceQuery,
) -> Result<PilotTrace, EngineError> {
    find_desk(services)?.find_spans(query).await.map_err(refused)
}

pub(super) async fn clean_up(services: &Services, order: PilotCleaning) -> Result<PilotCleaned, EngineError> {
    find_desk(services)?.clean_up(order).await.map_err(refused)
}

pub(super) async fn list_history(
    services: &Services,
    query: PilotHistoryQuery,
) -> Result<PilotHistory, EngineError> {
    find_desk(services)?.list_history(query).await.map_err(refused)
}
