//! Calls about the cases of a fleet: the router does them, where one runs.

use std::sync::Arc;

use writ_policy::principal::Authenticated;
use writ_types::api::Acknowledgement;
use writ_types::api::fleet::{
    CaseEnding, CaseName, CaseReturn, FleetStatus, GuestAnswer, HolderList, MessagePage, MessageQuery,
};
use writ_types::error::Report;

use crate::error::EngineError;
use crate::fleet::FleetDesk;
use crate::services::Services;

/// The name of the one who asks.
fn name_person(who: &Authenticated<()>) -> String {
    who.principal().to_string()
}

fn find_desk(services: &Services) -> Result<Arc<dyn FleetDesk>, EngineError> {
    services.life.desks.fleet.get().cloned().ok_or(EngineError::NoFleet)
}

fn refused(report: Report) -> EngineError {
    EngineError::Fleet(Box::new(report))
}

fn acknowledge(done: Result<(), Report>) -> Result<Acknowledgement, EngineError> {
    done.map(|()| Acknowledgement {}).map_err(refused)
}

pub(super) async fn show_fleet(services: &Services) -> Result<FleetStatus, EngineError> {
    find_desk(services)?.show_fleet().await.map_err(refused)
}

pub(super) async fn list_said(
    services: &Services,
    who: &Authenticated<()>,
    query: MessageQuery,
) -> Result<MessagePage, EngineError> {
    find_desk(services)?.list_messages(name_person(who), query).await.map_err(refused)
}

pub(super) async fn list_holders(services: &Services, case: CaseName) -> Result<HolderList, EngineError> {
    find_desk(services)?.list_holders(case).await.map_err(refused)
}

pub(super) async fn take_case(
    services: &Services,
    who: &Authenticated<()>,
    case: CaseName,
) -> Result<Acknowledgement, EngineError> {
    acknowledge(find_desk(services)?.take_case(name_person(who), case).await)
}

pub(super) async fn answer_guest(
    services: &Services,
    who: &Authenticated<()>,
    answer: GuestAnswer,
) -> Result<Acknowledgement, EngineError> {
    acknowledge(find_desk(services)?.answer_guest(name_person(who), answer).await)
}

pub(super) async fn return_case(
    services: &Services,
    who: &Authenticated<()>,
    back: CaseReturn,
) -> Result<Acknowledgement, EngineError> {
    acknowledge(find_desk(services)?.return_case(name_person(who), back).await)
}

pub(super) async fn close_case(
    services: &Services,
    who: &Authenticated<()>,
    ending: CaseEnding,
) -> Result<Acknowledgement, EngineError> {
    acknowledge(find_desk(services)?.close_case(name_person(who), ending).await)
}
