//! The circuits of models: attempts pass over a model that has failed in a row, also after a restart, until a day is over or a
//! person resets it.

use std::collections::{BTreeMap, BTreeSet};

use writ_autopilot::circuit::{CallEnd, CircuitState, ModelCircuit};
use writ_runtime::pilot::AttemptCalls;
use writ_store::batch::Op;
use writ_store::reads::UnitReads as _;
use writ_store::units::{CircuitRow, UnitOp};
use writ_types::api::pilot::{PilotCircuitLine, PilotCircuitsReset};
use writ_types::unit::Timestamp;

use crate::error::AutopilotError;
use crate::project::OpenProject;

/// Notes how models have answered in an attempt, in the order of the calls.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn note_calls(
    project: &OpenProject,
    tier: &str,
    calls: &AttemptCalls,
) -> Result<(), AutopilotError> {
    if calls.models.is_empty() {
        return Ok(());
    }
    // Several attempts end side by side, and each goes on from what is stored.
    let _alone = project.hold_circuits().await;
    let now = project.hands.now();
    let rows = project.hands.store().circuits(&project.name).await?;
    let before: BTreeMap<String, ModelCircuit> =
        rows.iter().map(|row| (row.model.clone(), read_circuit(row))).collect();
    let mut after = before.clone();
    let mut reasons: BTreeMap<&str, &str> = BTreeMap::new();
    for (place, (model, is_answered)) in calls.models.iter().enumerate() {
        let error = calls.lasting.get(&place);
        let end = match (is_answered, error) {
            (true, _) => CallEnd::Answered,
            (false, Some(_)) => CallEnd::Lasting,
            (false, None) => CallEnd::Transient,
        };
        reasons.extend(error.map(|error| (model.as_str(), error.as_str())));
        let circuit = after.remove(model).unwrap_or_default();
        after.extend(circuit.after_call(end, now).map(|circuit| (model.clone(), circuit)));
    }
    let mut ops = Vec::new();
    for model in before.keys().filter(|model| !after.contains_key(*model)) {
        ops.push(UnitOp::ClearCircuits { project: project.name.clone(), model: Some(model.clone()) });
    }
    for (model, circuit) in after.iter().filter(|(model, circuit)| before.get(*model) != Some(*circuit)) {
        let Some(failed_at) = circuit.failed_at else { continue };
        if circuit.tripped_at == Some(now) {
            tracing::warn!(model, failures = circuit.fail_count, "the circuit of a model is open for a day");
        }
        ops.push(UnitOp::SetCircuit(Box::new(CircuitRow {
            project: project.name.clone(),
            model: model.clone(),
            tier: tier.to_owned(),
            tripped: circuit.tripped_at.zip(circuit.resets_at()),
            failed_at,
            fail_count: circuit.fail_count,
            reason: reasons.get(model.as_str()).copied().unwrap_or_default().to_owned(),
        })));
    }
    if !ops.is_empty() {
        project.hands.commit(ops.into_iter().map(Op::Units).collect()).await?;
    }
    Ok(())
}

/// Returns the models that are passed over now.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn open_circuits(project: &OpenProject) -> Result<BTreeSet<String>, AutopilotError> {
    let now = project.hands.now();
    let rows = project.hands.store().circuits(&project.name).await?;
    let open = rows.into_iter().filter(|row| read_circuit(row).state(now) == CircuitState::Open);
    Ok(open.map(|row| row.model).collect())
}

/// Shows the circuits of a project.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn show_circuits(project: &OpenProject) -> Result<Vec<PilotCircuitLine>, AutopilotError> {
    let now = project.hands.now();
    let rows = project.hands.store().circuits(&project.name).await?;
    Ok(rows.into_iter().map(|row| show_circuit(row, now)).collect())
}

/// Removes all circuits of a project, and returns those that were opened.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn reset_circuits(project: &OpenProject) -> Result<PilotCircuitsReset, AutopilotError> {
    let _alone = project.hold_circuits().await;
    let mut reset = show_circuits(project).await?;
    reset.retain(|line| line.tripped_at.is_some());
    let clear = UnitOp::ClearCircuits { project: project.name.clone(), model: None };
    project.hands.commit(vec![Op::Units(clear)]).await?;
    project.looping.wake.notify_one();
    Ok(PilotCircuitsReset { reset })
}

fn read_circuit(row: &CircuitRow) -> ModelCircuit {
    let tripped_at = row.tripped.map(|(at, _)| at);
    ModelCircuit { fail_count: row.fail_count, failed_at: Some(row.failed_at), tripped_at }
}

fn show_circuit(row: CircuitRow, now: Timestamp) -> PilotCircuitLine {
    let state = read_circuit(&row).state(now).name().to_owned();
    let (tripped_at, resets_at) = row.tripped.unzip();
    let CircuitRow { model, tier, fail_count, reason, .. } = row;
    PilotCircuitLine { model, tier, state, failures: fail_count, tripped_at, resets_at, reason }
}
