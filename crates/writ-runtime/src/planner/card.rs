//! A planner's plan becomes a work item, with one card in the conversation that it comes from.

use writ_types::digest::Digest;
use writ_types::entry::InboundRecord;
use writ_types::error::ToReport as _;
use writ_types::id::{AskId, ItemId};
use writ_types::taint::Label;
use writ_types::work::PlanDocument;

use crate::error::EngineError;
use crate::place::CallPlace;
use crate::proposals::{self, NewWork};

/// The result of handing a plan to a person.
#[derive(Debug)]
pub(crate) enum Handed {
    /// A card waits, with the item that its approval begins.
    Asked(ItemId, AskId),
    /// It cannot be asked about, with the reason.
    Refused(String),
}

/// Asks a person about a plan: one card; its approval runs the plan as a work item. The same request gives the same item,
/// however often a crash has this done again.
///
/// # Errors
///
/// If the store cannot be written.
pub(crate) async fn hand_over(
    place: &CallPlace,
    document: PlanDocument,
    (record, label): (&InboundRecord, &Label),
) -> Result<Handed, EngineError> {
    let new = NewWork {
        document,
        project: place.session.project().map(str::to_owned),
        origin: Some(place.session.id),
        id: Some(item_of(record)),
        taint: label.taint,
        branch: None,
    };
    // The question waits on its own: a long one must not make this task's stack large.
    match Box::pin(proposals::propose(&place.services, new)).await {
        Ok((item, ask)) => Ok(Handed::Asked(item, ask)),
        Err(error @ (EngineError::Work(_) | EngineError::Denied(_) | EngineError::Project(_))) => {
            Ok(Handed::Refused(place.services.journal.redactor.mask_report(error.report()).outside))
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
