//! A person's orders about units: accepted, rejected, resumed, cleared, cancelled.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use writ_autopilot::blocker::{Blocker, BlockerKind, BlockerResolver, PauseCause};
use writ_autopilot::machine::{UnitEvent, apply_event};
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::unit_id::UnitId;
use writ_store::batch::Op;
use writ_store::error::StoreError;
use writ_store::reads::UnitReads as _;
use writ_store::units::{MAX_UNITS, UnitOp};
use writ_types::api::pilot::{PilotOrder, PilotUnitOrder};
use writ_types::entry::HookEvent;

use crate::drive::{self, commit_move};
use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::standing::UnitRecord;
use crate::unit_files::UnitFile;

/// Further tries of a cancellation after its parts have changed meanwhile.
const MAX_TRIES: u32 = 8;

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
        return cancel(project, &unit, &words_of(person, order)).await;
    }
    project.settings.refresh();
    if order.order == PilotOrder::Ship {
        return drive::ship_again(project, &unit).await;
    }
    // Two writers of one unit: the worker's result would be refused, and with it what it has cost.
    if unit.row.claim.is_some() {
        return Err(AutopilotError::Busy { unit: id.to_string() });
    }
    if order.order == PilotOrder::Reject
        && !drive::waits_for_documents(&unit)
        && order.reason.trim().is_empty()
    {
        return Err(AutopilotError::NoReason { unit: id.to_string() });
    }
    give_order(project, &unit, (person, order)).await?;
    project.trace.emit(id);
    Ok(())
}

/// Gives an order about a unit that no worker has to the machine, and writes its answer down.
async fn give_order(
    project: &Arc<OpenProject>,
    unit: &UnitRecord,
    (person, order): (&str, &PilotUnitOrder),
) -> Result<(), AutopilotError> {
    let id = unit.id;
    let event = event_of(unit, order.order);
    let flow = project.flow_of(unit).await?;
    let made = apply_event(&flow, &project.config().limits, &unit.stand, &event)?;
    let reason = words_of(person, order);
    // Read by the next attempt, like any other last error.
    let is_answer = order.order == PilotOrder::Resume && !order.reason.trim().is_empty();
    let is_about_documents = matches!(order.order, PilotOrder::Accept | PilotOrder::Reject)
        && drive::answer_documents(project, unit, order.order == PilotOrder::Accept)?;
    if order.order == PilotOrder::Reject && !is_about_documents {
        let text = format!("A person has rejected the result: {}", order.reason);
        project.files.write_error(id, &text)?;
    } else if is_answer {
        let before = project.files.read_file(id, UnitFile::LastError)?;
        let text = format!("A person has answered: {}\n\n{before}", order.reason.trim());
        project.files.write_error(id, text.trim_end())?;
    }
    // A person has looked: the branches as they are now are right.
    project.seen.accept_branches();
    if !made.stand.is_terminal() {
        return commit_move(project, unit, &made, (None, &reason)).await;
    }
    project.ends().announce(&[id]);
    if let Err(error) = commit_move(project, unit, &made, (None, &reason)).await {
        drive::withdraw_ends(project, &[id]).await;
        return Err(error);
    }
    // Once more: another order may have withdrawn it before it was written.
    project.ends().announce(&[id]);
    drive::finish_ends(project, &[id]).await
}

/// An order with its reason, in words.
fn words_of(person: &str, order: &PilotUnitOrder) -> String {
    match order.reason.trim() {
        "" => format!("{} by {person}", order.order.name()),
        reason => format!("{} by {person}: {reason}", order.order.name()),
    }
}

/// The event of an order: of the blocker that it is about.
fn event_of(unit: &UnitRecord, order: PilotOrder) -> UnitEvent {
    let has = |kind| unit.stand.blockers.iter().any(|blocker| blocker.kind == kind);
    let is_escalated = unit.stand.blockers.contains(&Blocker::of_pause(PauseCause::Escalated));
    match order {
        // Both let the merge go on, with the documents as the person has said.
        PilotOrder::Accept | PilotOrder::Reject if drive::waits_for_documents(unit) => {
            UnitEvent::Resolve(BlockerKind::Paused, BlockerResolver::Resume)
        }
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
        // A request at a forge is no move of the machine, and is opened before this.
        PilotOrder::Resume | PilotOrder::Ship => {
            UnitEvent::Resolve(BlockerKind::Paused, BlockerResolver::Resume)
        }
        PilotOrder::Cancel => UnitEvent::Cancel,
    }
}

/// Ends a unit with all of its open parts where they stand; attempts that run in them are ended, and the folder goes after them.
async fn cancel(project: &Arc<OpenProject>, unit: &UnitRecord, reason: &str) -> Result<(), AutopilotError> {
    // Refuses one that is over; the store ends the claims, too. What waits for its parts alone stands in its last phase, and is open.
    if unit.row.is_over || unit.stand.phase != PilotPhase::Complete {
        apply_event(
            &project.flow_of(unit).await?,
            &project.config().limits,
            &unit.stand,
            &UnitEvent::Cancel,
        )?;
    }
    // First, so that their workers write nothing more.
    let cancelled = write_cancels(project, unit, reason).await?;
    let stops: Vec<CancellationToken> = {
        let live = project.live();
        cancelled.iter().filter_map(|id| live.get(id)).map(|live| live.stop.clone()).collect()
    };
    stops.iter().for_each(CancellationToken::cancel);
    // Before the hooks, which may take their time. Where something works still, its worker does what follows, once nothing is in the
    // folder any more.
    let finished = drive::finish_ends(project, &cancelled).await;
    for id in &cancelled {
        project.trace.emit(*id);
        let part = project.read_unit(*id).await?;
        drive::tell_hooks(
            project,
            HookEvent::UnitDone,
            &drive::UnitNews::of_unit(&part, "canceled", "cancelled"),
        )
        .await;
    }
    finished
}

/// Writes the ends of a unit and of all of its open parts down at once, with those of what holds them up. Returns them.
async fn write_cancels(
    project: &Arc<OpenProject>,
    unit: &UnitRecord,
    reason: &str,
) -> Result<Vec<UnitId>, AutopilotError> {
    // No part may be added between the look and the write.
    let _plans = project.hold_plans().await;
    let (store, at) = (project.hands.store(), project.hands.now());
    let mut tries = 0;
    loop {
        let lines = store.unit_lines(&project.name, MAX_UNITS).await?;
        let open: Vec<UnitId> = lines
            .iter()
            .filter(|line| !line.is_over)
            .filter_map(|line| line.id.parse::<UnitId>().ok())
            .filter(|id| id.is_within(unit.id))
            .collect();
        let of_unit = |id: &UnitId| {
            let key = project.key_of(*id);
            [UnitOp::Cancel { key: key.clone(), at }, UnitOp::NoteCancel { key, reason: reason.to_owned() }]
        };
        let mut ops: Vec<UnitOp> = open.iter().flat_map(of_unit).collect();
        let held: BTreeSet<(String, String)> = store
            .open_blockers(project.session())
            .await?
            .into_iter()
            .filter(|blocker| blocker.unit.parse().is_ok_and(|id| open.contains(&id)))
            .map(|blocker| (blocker.event, blocker.unit))
            .collect();
        // Nothing waits for an answer about what is over: it would hold up the others.
        ops.extend(held.into_iter().map(|(event, unit)| UnitOp::Resolve {
            session: project.session(),
            event,
            unit,
            by: PilotOrder::Cancel.name().to_owned(),
            at,
        }));
        // Before the commit: from then on another slice could have the folder.
        project.ends().announce(&open);
        match project.hands.commit(ops.into_iter().map(Op::Units).collect()).await {
            Ok(_) => {
                // Once more: another order may have withdrawn them before they were written.
                project.ends().announce(&open);
                return Ok(open);
            }
            // A part of it has ended meanwhile.
            Err(StoreError::Conflict(_)) if tries < MAX_TRIES => {
                drive::withdraw_ends(project, &open).await;
                tries += 1;
            }
            Err(error) => {
                drive::withdraw_ends(project, &open).await;
                return Err(error.into());
            }
        }
    }
}
