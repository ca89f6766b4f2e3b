//! The claim of a unit by a worker of this process.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use writ_autopilot::claim::CLAIM_TIME;
use writ_autopilot::unit_id::UnitType;
use writ_runtime::clock::Ids;
use writ_store::batch::Op;
use writ_store::error::StoreError;
use writ_store::reads::UnitReads as _;
use writ_store::units::{ClaimSweep, RunStart, UnitOp};
use writ_types::unit::{MicroUsd, Timestamp};

use super::{WorkClaim, WorkCourse, ends};
use crate::error::AutopilotError;
use crate::project::{LiveUnit, OpenProject};
use crate::standing::UnitRecord;

/// Claims a unit that is ready, or on a person's word before it is, with the money that it may spend. Returns the claim, and the token that ends its attempt.
///
/// # Errors
///
/// If another has it, or it was changed since it was read; if the store cannot be written.
pub(super) async fn claim_unit(
    project: &Arc<OpenProject>,
    unit: UnitRecord,
    (money, is_forced): (Option<MicroUsd>, bool),
) -> Result<(WorkClaim, CancellationToken), AutopilotError> {
    let (id, now) = (unit.id, project.hands.now());
    let run = Ids.unit_run(now);
    let workspace = project.git.workspaces_dir().join(project.workspace_owner(id).folder_name());
    let claim = RunStart {
        key: unit.row.key.clone(),
        fence: unit.row.fence,
        holder: holder_name(),
        until: now.plus_duration(CLAIM_TIME),
        run,
        host: "local".to_owned(),
        workspace: workspace.to_string_lossy().into_owned(),
        is_forced,
        now,
    };
    // The claim's own number, which every write of its worker carries.
    let fence = unit.row.fence.saturating_add(1);
    let count = UnitOp::SetCounter {
        key: unit.row.key.clone(),
        fence,
        counter: "dispatches".to_owned(),
        value: u64::from(unit.stand.counters.dispatches),
    };
    // Decided about since it was read, it has another phase under the same fence.
    let (key, phase) = (unit.row.key.clone(), unit.stand.phase.name().to_owned());
    let as_read = UnitOp::Require { key, fence: unit.row.fence, phase };
    // First: the claim changes the fence of a slice that is its own.
    let bound = match id.unit_type() {
        // Its gates run on the target.
        UnitType::Milestone => None,
        UnitType::Slice | UnitType::Task => project.bind_branch(id).await?,
    };
    let ops = bound.into_iter().chain([as_read, UnitOp::Claim(Box::new(claim)), count]);
    let stop = project.hands.draining().child_token();
    let passed = match is_forced {
        true => project.hands.store().unit_waits_for(unit.row.key.clone()).await?,
        false => Vec::new(),
    };
    let course = Arc::new(WorkCourse::new(money, passed));
    let live = LiveUnit { phase: unit.stand.phase, fence, stop: stop.clone(), course: Arc::clone(&course) };
    // Before the claim: a cancellation right after it finds the worker that is to stop.
    project.live().insert(id, live);
    if let Err(error) = project.hands.commit(ops.map(Op::Units).collect()).await {
        project.live().remove(&id);
        // One that was cancelled meanwhile has left its folder to this worker.
        ends::try_ends(project).await;
        return Err(error.into());
    }
    tracing::info!(unit = %id, phase = unit.stand.phase.name(), "a unit is handed out");
    Ok((WorkClaim { unit, fence, run, course }, stop))
}

/// Makes a claim hold longer.
///
/// # Errors
///
/// A conflict if it is another's, or ended.
pub(super) async fn renew_claim(project: &OpenProject, work: &WorkClaim) -> Result<(), StoreError> {
    let until = project.hands.now().plus_duration(CLAIM_TIME);
    let op = UnitOp::Renew { key: work.unit.row.key.clone(), fence: work.fence, until };
    project.hands.commit(vec![Op::Units(op)]).await
}

/// Ends the claims of the project that have run out. Those of this process's workers have not, also where the machine was suspended and
/// the clock says so: their attempts go on, and no other worker may begin one beside them.
///
/// # Errors
///
/// If the store cannot be written.
pub(super) async fn sweep_claims(project: &OpenProject, now: Timestamp) -> Result<(), AutopilotError> {
    let live = project.live().iter().map(|(id, live)| (id.to_string(), live.fence)).collect();
    let until = now.plus_duration(CLAIM_TIME);
    let sweep = ClaimSweep { project: project.name.clone(), live, until, now };
    project.hands.commit(vec![Op::Units(UnitOp::Sweep(Box::new(sweep)))]).await?;
    Ok(())
}

/// Returns the name of this process as a holder of claims.
fn holder_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_name = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let host: String = host.chars().filter(is_name).take(200).collect();
    let host = if host.is_empty() { "localhost".to_owned() } else { host };
    format!("{host}#{}", std::process::id())
}

/// Makes the claim hold longer. Returns false if it is another's.
pub(super) async fn renew_or_lose(project: &OpenProject, work: &WorkClaim) -> bool {
    match renew_claim(project, work).await {
        Ok(()) => true,
        Err(StoreError::Conflict(_)) => false,
        Err(error) => {
            tracing::warn!(unit = %work.unit.id, %error, "a claim cannot be renewed now");
            true
        }
    }
}
