//! A person's orders about units: accepted, rejected, resumed, cleared, cancelled.

use std::sync::Arc;

use writ_autopilot::blocker::{Blocker, BlockerKind, BlockerResolver, PauseCause};
use writ_autopilot::machine::{UnitEvent, apply_event};
use writ_autopilot::unit_id::UnitId;
use writ_store::batch::Op;
use writ_store::units::UnitOp;
use writ_types::api::pilot::{PilotOrder, PilotUnitOrder};
use writ_types::entry::HookEvent;

use crate::drive::{self, commit_move};
use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::standing::UnitRecord;
use crate::unit_files::UnitFile;

/// Carries out a person's order about a unit.
///
/// # Errors
///
/// If a worker has the unit, the order does not fit its state, or the store cannot be written.
pub(crate) async fn carry_out(
    project: &Arc<OpenProject>,
    id: UnitId,
    (person, order): (&str, &PilotUnitOrder),
) -> Result<(), AutopilotError> {
    let unit = project.read_unit(id).await?;
    if let PilotOrder::Cancel = order.order {
        return cancel(project, &unit).await;
    }
    project.settings.refresh();
    // Two writers of one unit: the worker's result would be refused, and with it what it has cost.
    if unit.row.claim.is_some() {
        return Err(AutopilotError::Busy { unit: id.to_string() });
    }
    let event = event_of(&unit, order.order);
    let flow = project.flow_of(&unit).await?;
    let made = apply_event(&flow, &project.config().limits, &unit.stand, &event)?;
    let reason = match order.reason.trim() {
        "" => format!("{} by {person}", order.order.name()),
        reason => format!("{} by {person}: {reason}", order.order.name()),
    };
    if order.order == PilotOrder::Reject {
        project.files.write_file(
            id,
            UnitFile::LastError,
            &format!("A person has rejected the result: {}", order.reason),
        )?;
    }
    // A person has looked: the branches as they are now are right.
    project.seen.accept_branches();
    commit_move(project, &unit, &made, (None, &reason)).await?;
    if made.stand.is_terminal() {
        drive::end_unit(project, id).await?;
    }
    Ok(())
}

/// The event of an order: of the blocker that it is about.
fn event_of(unit: &UnitRecord, order: PilotOrder) -> UnitEvent {
    let has = |kind| unit.stand.blockers.iter().any(|blocker| blocker.kind == kind);
    let is_escalated = unit.stand.blockers.contains(&Blocker::of_pause(PauseCause::Escalated));
    match order {
        PilotOrder::Accept => UnitEvent::Resolve(BlockerKind::UatPending, BlockerResolver::UatApprove),
        PilotOrder::Reject => UnitEvent::Resolve(BlockerKind::UatPending, BlockerResolver::UatReject),
        PilotOrder::ForceClear if has(BlockerKind::MergeConflict) => {
            UnitEvent::Resolve(BlockerKind::MergeConflict, BlockerResolver::ForceClear)
        }
        PilotOrder::ForceClear => UnitEvent::Resolve(BlockerKind::GateBlocked, BlockerResolver::ForceClear),
        PilotOrder::Resume if has(BlockerKind::MergeConflict) => {
            UnitEvent::Resolve(BlockerKind::MergeConflict, BlockerResolver::MergeResolve)
        }
        // A person's word answers the questions of a reassessment, too.
        PilotOrder::Resume if is_escalated => {
            UnitEvent::Resolve(BlockerKind::Paused, BlockerResolver::ReassessResolve)
        }
        PilotOrder::Resume => UnitEvent::Resolve(BlockerKind::Paused, BlockerResolver::Resume),
        PilotOrder::Cancel => UnitEvent::Cancel,
    }
}

/// Ends a unit where it stands; an attempt that runs is ended first.
async fn cancel(project: &Arc<OpenProject>, unit: &UnitRecord) -> Result<(), AutopilotError> {
    // Refuses one that is over; the store ends the claim, too.
    apply_event(&project.flow_of(unit).await?, &project.config().limits, &unit.stand, &UnitEvent::Cancel)?;
    let stop = project.live().get(&unit.id).map(|live| live.stop.clone());
    let op = UnitOp::Cancel { key: unit.row.key.clone(), at: project.hands.now() };
    // First, so that its worker writes nothing more.
    project.hands.commit(vec![Op::Units(op)]).await?;
    drive::tell_hooks(project, HookEvent::UnitDone, &drive::UnitNews::of_unit(unit, "canceled", "cancelled"))
        .await;
    match stop {
        // Its worker does what follows, once nothing works in the folder any more.
        Some(stop) => {
            stop.cancel();
            Ok(())
        }
        None => drive::end_unit(project, unit.id).await,
    }
}
