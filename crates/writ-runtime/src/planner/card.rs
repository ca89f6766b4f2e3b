//! A planner's plan becomes a work item, with one card in the conversation that it comes from.

use std::sync::Arc;

use writ_types::digest::Digest;
use writ_types::entry::InboundRecord;
use writ_types::error::ToReport as _;
use writ_types::id::ItemId;
use writ_types::taint::Taint;
use writ_types::work::PlanDocument;

use crate::error::EngineError;
use crate::plan_results::Handed;
use crate::proposals::{self, NewWork};
use crate::services::Services;
use crate::session::Session;

/// Asks a person about a plan: one card; its approval runs the plan as a work item. The same request gives the same item,
/// however often a crash has this done again.
///
/// # Errors
///
/// If the store cannot be written.
pub(crate) async fn hand_over(
    services: &Arc<Services>,
    session: &Session,
    document: PlanDocument,
    (record, taint): (&InboundRecord, Taint),
) -> Result<Handed, EngineError> {
    let project = session.project().map(str::to_owned);
    let (origin, id) = (Some(session.id), Some(item_of(record)));
    let new = NewWork { document, project, origin, id, taint, branch: None };
    // The question waits on its own: a long one must not make this task's stack large.
    match Box::pin(proposals::propose(services, new)).await {
        Ok((item, ask)) => Ok(Handed::Asked(item, ask)),
        Err(error @ (EngineError::Work(_) | EngineError::Denied(_) | EngineError::Project(_))) => {
            Ok(Handed::Refused(services.journal.redactor.mask_report(error.report()).outside))
        }
        Err(error) => Err(error),
    }
}

/// The item that the plan for a request becomes.
fn item_of(request: &InboundRecord) -> ItemId {
    let digest = Digest::of_bytes(format!("plan of {}", request.message).as_bytes());
    let random = digest.as_bytes().first_chunk().copied().map_or(0, u128::from_be_bytes);
    ItemId::from_parts(request.at, random)
}
