//! The autopilot of a project as people see it.

use std::collections::BTreeMap;

use writ_autopilot::failure::FailureCode;
use writ_autopilot::unit_id::UnitId;
use writ_autopilot::units::sum_costs;
use writ_store::reads::{UnitReads as _, WorkReads as _};
use writ_store::units::{MAX_UNITS, PilotBlocker, RunRow, UnitLine};
use writ_types::api::pilot::{
    PilotBlockerLine, PilotGateLine, PilotMoveLine, PilotPlanLine, PilotRunLine, PilotStatus,
    PilotUnitDetails, PilotUnitLine,
};
use writ_types::unit::MicroUsd;

use crate::circuits::show_circuits;
use crate::drive::{describe_ship, find_next, proposed_documents};
use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::settings::SettingsView;
use crate::standing::{blocker_words, read_facts};
use crate::unit_files::UnitFile;

/// Shows a project.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn show_status(project: &OpenProject) -> Result<PilotStatus, AutopilotError> {
    let store = project.hands.store();
    let session = store.pilot_session(&project.name).await?;
    let lines = store.unit_lines(&project.name, MAX_UNITS).await?;
    let costs = costs_of(project).await?;
    let mut plans = Vec::new();
    for (milestone, item) in project.plans().await? {
        if let Some(work) = store.work_item(item).await? {
            plans.push(PilotPlanLine {
                item,
                milestone: milestone.to_string(),
                state: work.state,
                reason: work.reason,
            });
        }
    }
    // The newest last, whatever it is a plan of.
    plans.sort_by_key(|plan| plan.item);
    let blockers = store.open_blockers(project.session()).await?;
    let newest = store.newest_choice(&project.name, project.session(), "").await?;
    let settings = project.settings.view();
    let mut ordered: Vec<(UnitId, &UnitLine)> =
        lines.iter().filter_map(|line| line.id.parse().ok().map(|id| (id, line))).collect();
    // The store gives them by their age, and a plan that was added to has parts of different ages.
    ordered.sort_by_key(|(id, _)| place(*id));
    let roots = costs.iter().filter(|(id, _)| id.parent().is_none());
    Ok(PilotStatus {
        project: project.name.clone(),
        session: project.session(),
        since: session.as_ref().map(|session| session.created_at),
        state: session.map(|session| session.status).unwrap_or_default(),
        plans,
        cost: roots.fold(MicroUsd::ZERO, |sum, (_, cost)| sum.saturating_add(*cost)),
        units: ordered.into_iter().map(|(id, line)| show_line(line, costs.get(&id))).collect(),
        blockers: blockers.iter().map(show_blocker).collect(),
        warnings: warnings_of(&settings)
            .into_iter()
            .chain(project.ends().describe_failures())
            .chain(project.session_failure())
            .collect(),
        circuits: show_circuits(project).await?,
        rate_limits: project.hands.show_rate_limits(),
        next: find_next(project).await?.map(|id| id.to_string()),
        model: newest.map(|(_, choice)| choice.model).unwrap_or_default(),
        settings: settings.lines,
    })
}

fn warnings_of(settings: &SettingsView) -> Vec<String> {
    let drift = settings.drift.iter().map(|line| format!("config drift detected, restart to apply: {line}"));
    let fault = settings.fault.iter().map(|fault| format!("the settings are not in force: {fault}"));
    drift.chain(fault).collect()
}

/// The place of a unit in a list: before its parts.
const fn place(id: UnitId) -> (u32, u32, u32) {
    match id {
        UnitId::Milestone(milestone) => (milestone, 0, 0),
        UnitId::Slice(milestone, slice) => (milestone, slice, 0),
        UnitId::Task(milestone, slice, task) => (milestone, slice, task),
    }
}

/// Reads the costs of all units, each with those of its parts.
async fn costs_of(project: &OpenProject) -> Result<BTreeMap<UnitId, MicroUsd>, AutopilotError> {
    let costs = project.hands.store().unit_costs(&project.name, project.hands.now()).await?;
    let runs: Vec<(UnitId, MicroUsd)> =
        costs.into_iter().filter_map(|one| Some((one.unit.parse().ok()?, one.cost))).collect();
    Ok(sum_costs(&runs))
}

fn show_line(line: &UnitLine, cost: Option<&MicroUsd>) -> PilotUnitLine {
    PilotUnitLine {
        id: line.id.clone(),
        title: line.title.clone(),
        phase: line.phase.clone(),
        status: line.phase_status.clone(),
        // The number of a unit without a claim is that of its first dispatch.
        attempt: if line.fence == 0 { 0 } else { line.attempt },
        is_over: line.is_over,
        is_running: line.is_claimed,
        cost: cost.copied().unwrap_or(MicroUsd::ZERO),
    }
}

fn show_blocker(row: &PilotBlocker) -> PilotBlockerLine {
    PilotBlockerLine {
        unit: row.unit.clone(),
        event: row.event.clone(),
        detail: blocker_words(row),
        since: row.created_at,
    }
}

fn show_run(run: RunRow) -> PilotRunLine {
    let (tokens, cost) = run
        .end
        .as_ref()
        .map_or_else(Default::default, |end| (end.input.saturating_add(end.output), end.cost));
    let error = run.end.as_ref().map(|end| end.error_code.clone()).unwrap_or_default();
    PilotRunLine {
        attempt: run.attempt,
        phase: run.phase,
        started_at: run.started_at,
        outcome: run.end.as_ref().map(|end| end.outcome.clone()),
        class: FailureCode::of_row(&error).map(FailureCode::class),
        error,
        tokens,
        cost,
    }
}

/// Shows a unit.
///
/// # Errors
///
/// If there is none, or the store cannot be read.
pub(crate) async fn show_unit(project: &OpenProject, id: UnitId) -> Result<PilotUnitDetails, AutopilotError> {
    let (store, key) = (project.hands.store(), project.key_of(id));
    let lines = store.unit_lines(&project.name, MAX_UNITS).await?;
    let line = lines.iter().find(|line| line.id == key.id);
    let line = line.ok_or_else(|| AutopilotError::NoUnit { unit: id.to_string() })?;
    let row =
        store.unit(key.clone()).await?.ok_or_else(|| AutopilotError::NoUnit { unit: id.to_string() })?;
    let facts = read_facts(&row)?;
    let ship = describe_ship(project, facts.ship.as_ref()).await?;
    let costs = costs_of(project).await?;
    let gates = store.unit_gates(key.clone()).await?;
    let moves = store.unit_transitions(key.clone()).await?;
    let blockers = store.open_blockers(project.session()).await?;
    Ok(PilotUnitDetails {
        unit: show_line(line, costs.get(&id)),
        description: row.description,
        branch: project.work_of(id).await.ok().map(|work| work.branch.to_string()),
        plan: project.files.read_file(id, UnitFile::Plan)?,
        last_error: match facts.cancelled {
            Some(reason) => reason,
            None => project.files.read_file(id, UnitFile::LastError)?,
        },
        documents: proposed_documents(project, &project.read_unit(id).await?)?,
        ship,
        runs: store.unit_runs(key.clone()).await?.into_iter().map(show_run).collect(),
        moves: moves
            .into_iter()
            .map(|one| PilotMoveLine { from: one.from, to: one.to, reason: one.reason, at: one.at })
            .collect(),
        gates: gates
            .into_iter()
            .map(|one| PilotGateLine {
                gate: one.gate,
                passed: one.passed,
                attempt: one.attempt,
                output: one.output,
                took_ms: one.duration_ms,
                at: one.at,
            })
            .collect(),
        blockers: blockers.iter().filter(|row| row.unit == key.id).map(show_blocker).collect(),
    })
}
