//! Carries the edits of a plan out: one commit for all of them, with a new card for each milestone with changed words.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use writ_autopilot::ceiling::CeilingScope;
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::reconcile::PlanChange;
use writ_autopilot::unit_id::UnitId;
use writ_autopilot::units::PilotUnit;
use writ_plan::machine::WorkEvent;
use writ_runtime::pilot::NewPilotPlan;
use writ_store::batch::Op;
use writ_store::error::{Conflict, StoreError};
use writ_store::reads::UnitReads as _;
use writ_store::units::{NewUnit, UnitOp, UnitRow, UnitTexts};
use writ_types::id::{AskId, ItemId};
use writ_types::work::{WorkBudget, WorkKind};

use super::{PLAN_FILE, StoredPlan, changes_words, units_after};
use crate::error::AutopilotError;
use crate::goal::{Workflows, new_unit, read_workflows};
use crate::planning::{GoalPlan, read_acceptance};
use crate::project::OpenProject;
use crate::standing::{UnitFacts, first_phase, read_facts, write_facts};

/// The reason for which a plan with other words than those that were signed ends.
const RENEWED: &str = "it was changed, and is asked about anew";
/// The reason for which the plan of a removed milestone ends.
const REMOVED: &str = "its milestone was removed from the plan";

/// Carries edits out. Returns the cards of the plans that wait for an approval now.
///
/// # Errors
///
/// If a worker has a unit of a plan with words that change, its milestone is over, a workflow is not there, or the store cannot be
/// written. Then nothing is changed.
pub(super) async fn carry_out(
    project: &Arc<OpenProject>,
    plan: &StoredPlan,
    changes: &[PlanChange],
) -> Result<Vec<AskId>, AutopilotError> {
    let flows = read_workflows(project, None)?;
    let after = with_workflows(plan, units_after(plan, changes));
    let renewed = renewed_milestones(plan, changes)?;
    let mut proposed = BTreeMap::new();
    let mut done = propose_all(project, plan, (&after, &renewed), &mut proposed).await;
    if done.is_ok() {
        let plans = proposed.iter().map(|(id, (item, _))| (*id, *item)).collect();
        let new = NewPlans { flows: &flows, proposed: &proposed, plans };
        done = match make_ops(project, plan, (&after, changes), &new).await {
            Ok(ops) => {
                let required = require_free(plan, changes, &renewed).into_iter().map(Op::Units);
                commit_edits(project, required.chain(ops).collect()).await
            }
            Err(error) => Err(error),
        };
    }
    if let Err(error) = done {
        // Cards without units could be approved, and nothing would come of them.
        for (item, _) in proposed.values() {
            project.hands.move_plan(*item, WorkEvent::Cancel, "its units could not be stored").await?;
        }
        return Err(error);
    }
    for milestone in proposed.keys() {
        end_old_plan(project, plan, (*milestone, RENEWED)).await?;
    }
    // An approval of it would have nothing to work on.
    for change in changes {
        if let PlanChange::Archive(id @ UnitId::Milestone(_)) = change {
            end_old_plan(project, plan, (*id, REMOVED)).await?;
        }
    }
    Ok(proposed.into_values().map(|(_, ask)| ask).collect())
}

/// Carries out changes that ask for no new card: new units belong to the plan of their milestone that is in force.
///
/// # Errors
///
/// If a unit has begun or has moved meanwhile, a workflow is not there, or the store cannot be written. Then nothing is changed.
pub(super) async fn carry_out_in_plan(
    project: &Arc<OpenProject>,
    plan: &StoredPlan,
    changes: &[PlanChange],
    (milestone, item): (UnitId, ItemId),
) -> Result<(), AutopilotError> {
    let flows = read_workflows(project, None)?;
    let after = with_workflows(plan, units_after(plan, changes));
    let plans = BTreeMap::from([(milestone, item)]);
    let new = NewPlans { flows: &flows, proposed: &BTreeMap::new(), plans };
    let ops = make_ops(project, plan, (&after, changes), &new).await?;
    let required = require_free(plan, changes, &BTreeSet::new()).into_iter().map(Op::Units);
    commit_edits(project, required.chain(ops).collect()).await
}

async fn commit_edits(project: &OpenProject, ops: Vec<Op>) -> Result<(), AutopilotError> {
    match project.hands.commit(ops).await {
        Ok(_) => Ok(()),
        // A person has looked at edits of units as they were.
        Err(StoreError::Conflict(Conflict::Missing { .. })) => {
            Err(AutopilotError::UnitsMoved { file: PLAN_FILE.to_owned() })
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the conditions of edits: the units that are removed, those of milestones with other words, and those of other parts are as
/// they were read, and no worker has got one of them meanwhile.
fn require_free(plan: &StoredPlan, changes: &[PlanChange], renewed: &BTreeSet<UnitId>) -> Vec<UnitOp> {
    let regrouped = regrouped_units(changes);
    let is_removed =
        |id: &UnitId| changes.iter().any(|change| matches!(change, PlanChange::Archive(gone) if gone == id));
    let rests_on = |id: &UnitId| renewed.contains(&id.root()) || regrouped.contains(id) || is_removed(id);
    let units = plan.rows.iter().filter(|(id, (row, _))| !row.is_over && rests_on(id));
    units
        .map(|(_, (row, _))| UnitOp::Require {
            key: row.key.clone(),
            fence: row.fence,
            phase: row.phase.clone(),
        })
        .collect()
}

/// Returns the units with other parts than before.
fn regrouped_units(changes: &[PlanChange]) -> BTreeSet<UnitId> {
    let above = |change: &PlanChange| match change {
        PlanChange::Add(id, _) | PlanChange::Archive(id) => id.parent(),
        PlanChange::Edit(..) => None,
    };
    changes.iter().filter_map(above).collect()
}

/// Ends the plan that a milestone had before.
async fn end_old_plan(
    project: &OpenProject,
    plan: &StoredPlan,
    (milestone, why): (UnitId, &str),
) -> Result<(), AutopilotError> {
    match plan.rows.get(&milestone).and_then(|(_, facts)| facts.plan) {
        Some(old) => end_open_plan(project, old, why).await,
        None => Ok(()),
    }
}

async fn end_open_plan(project: &OpenProject, plan: ItemId, why: &str) -> Result<(), AutopilotError> {
    if project.hands.plan_state(plan).await?.is_some_and(|state| !state.state.is_over()) {
        project.hands.move_plan(plan, WorkEvent::Cancel, why).await?;
    }
    Ok(())
}

/// Ends the plans of milestones that were removed, and those that another one has replaced, where a crash has come between that and
/// the end of the plan.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(crate) async fn end_removed_plans(project: &OpenProject) -> Result<(), AutopilotError> {
    let mut there = BTreeSet::new();
    for row in project.hands.store().top_units(&project.name).await? {
        for plan in read_facts(&row)?.earlier_plans {
            end_open_plan(project, plan, RENEWED).await?;
        }
        there.extend(row.key.id.parse::<UnitId>().ok());
    }
    let is_gone = |id: &UnitId| matches!(id, UnitId::Milestone(_)) && !there.contains(id);
    let gone = project.taken_ids().await?.into_iter().filter(is_gone);
    for id in gone {
        let Some(row) = project.hands.store().unit(project.key_of(id)).await? else { continue };
        if let (Some(plan), Some(_)) = (read_facts(&row)?.plan, row.archived_at) {
            end_open_plan(project, plan, REMOVED).await?;
        }
    }
    Ok(())
}

/// Gives units that name no workflow that of what they are a part of.
fn with_workflows(plan: &StoredPlan, units: Vec<PilotUnit>) -> Vec<PilotUnit> {
    let named: BTreeMap<UnitId, Option<String>> =
        units.iter().map(|unit| (unit.id, unit.workflow.clone())).collect();
    let find = |id: UnitId| {
        let mut next = Some(id);
        while let Some(id) = next {
            if let Some(Some(name)) = named.get(&id) {
                return name.clone();
            }
            next = id.parent();
        }
        plan.workflow.clone()
    };
    units.into_iter().map(|unit| PilotUnit { workflow: Some(find(unit.id)), ..unit }).collect()
}

/// Returns the milestones with other words than those that were signed.
fn renewed_milestones(plan: &StoredPlan, changes: &[PlanChange]) -> Result<BTreeSet<UnitId>, AutopilotError> {
    let mut renewed = BTreeSet::new();
    for change in changes.iter().filter(|change| changes_words(plan, change)) {
        let (PlanChange::Add(id, _) | PlanChange::Edit(id, _) | PlanChange::Archive(id)) = change;
        renewed.insert(id.root());
    }
    for (id, (row, _)) in &plan.rows {
        if !renewed.contains(&id.root()) {
            continue;
        }
        // Its attempt works by the words that it was given.
        if row.claim.is_some() {
            return Err(AutopilotError::Busy { unit: id.to_string() });
        }
        if id.parent().is_none() && row.is_over {
            let why = format!("{id} is over: add a milestone of its own for what is to be done");
            return Err(AutopilotError::NoOutline { why });
        }
    }
    Ok(renewed)
}

/// Asks about each milestone with other words.
async fn propose_all(
    project: &Arc<OpenProject>,
    plan: &StoredPlan,
    (after, renewed): (&[PilotUnit], &BTreeSet<UnitId>),
    proposed: &mut BTreeMap<UnitId, (ItemId, AskId)>,
) -> Result<(), AutopilotError> {
    for milestone in renewed {
        let is_open = |unit: &&PilotUnit| {
            unit.id.is_within(*milestone) && !plan.rows.get(&unit.id).is_some_and(|(row, _)| row.is_over)
        };
        let units: Vec<PilotUnit> = after.iter().filter(is_open).cloned().collect();
        let acceptance = units
            .iter()
            .map(|unit| (unit.id, read_acceptance(&unit.description)))
            .filter(|(_, checks)| !checks.is_empty())
            .collect();
        let goal = format!("{milestone}, as it stands in {PLAN_FILE}");
        let max_cost = project.config().ceilings.get(&CeilingScope::Milestone).copied();
        let budget = WorkBudget { max_cost, ..WorkBudget::default() };
        let new = NewPilotPlan {
            document: GoalPlan { units, acceptance }.make_document(&goal, WorkKind::Pilot, budget),
            project: project.git.project().top_dir().to_owned(),
            origin: None,
            branch: project.target.to_string(),
        };
        proposed.insert(*milestone, project.hands.propose_plan(new).await?);
    }
    Ok(())
}

/// Returns the new units of an edited plan; the texts of their workflows are pinned before.
fn add_ops(
    project: &OpenProject,
    plan: &StoredPlan,
    after: &[PilotUnit],
    (flows, plans): (&Workflows, &BTreeMap<UnitId, ItemId>),
    ops: &mut Vec<UnitOp>,
) -> Result<Vec<NewUnit>, AutopilotError> {
    let at = project.hands.now();
    let all = GoalPlan { units: after.to_vec(), acceptance: BTreeMap::new() };
    let (mut added, mut pinned) = (Vec::new(), BTreeSet::new());
    for unit in after.iter().filter(|unit| !plan.rows.contains_key(&unit.id)) {
        let name = unit.workflow.clone().unwrap_or_else(|| flows.default.clone());
        let missing = || AutopilotError::NoOutline { why: format!("there is no workflow '{name}'") };
        let (flow, text) = flows.of_unit(unit).ok_or_else(missing)?;
        if pinned.insert(flow.digest) {
            ops.push(UnitOp::Pin { name: flow.name.clone(), content: text.clone(), at });
        }
        let item = plans.get(&unit.id.root()).copied();
        let no_plan = || AutopilotError::NoPlan { project: project.name.clone() };
        let issue = plan.rows.get(&unit.id.root()).and_then(|(_, facts)| facts.gh_issue);
        added.push(new_unit(&all, (item.ok_or_else(no_plan)?, issue), unit, flow)?);
    }
    Ok(added)
}

/// Returns the operations that choose workflow and first phase of a unit anew, where they differ after the edits. Once it was handed
/// out, both stay.
async fn choose_ops(
    project: &OpenProject,
    (unit, row): (&PilotUnit, &UnitRow),
    flows: &Workflows,
    (had_parts, has_parts): (bool, bool),
) -> Result<Vec<UnitOp>, AutopilotError> {
    let mut ops = Vec::new();
    if row.fence > 0 {
        return Ok(ops);
    }
    let pinned = project.flow_of(&project.read_unit(unit.id).await?).await?;
    // Also that of a unit which names none, and follows the one above it.
    let flow = if unit.workflow.as_ref() == Some(&row.workflow) {
        &pinned
    } else {
        let missing = || AutopilotError::NoOutline {
            why: format!("there is no workflow '{}'", unit.workflow.clone().unwrap_or_default()),
        };
        let (flow, text) = flows.of_unit(unit).ok_or_else(missing)?;
        let (name, content) = (flow.name.clone(), text.clone());
        ops.push(UnitOp::Pin { name, content, at: project.hands.now() });
        flow
    };
    // A slice without its last task is worked on itself, one that has got its first waits for it.
    let firsts = (first_phase(&pinned, unit.id, had_parts), first_phase(flow, unit.id, has_parts));
    let phase = phase_after(&row.phase, firsts).to_owned();
    if !ops.is_empty() || phase != row.phase {
        let (key, workflow, hash) = (row.key.clone(), flow.name.clone(), flow.digest);
        ops.push(UnitOp::Choose { key, workflow, hash, phase });
    }
    Ok(ops)
}

/// Returns the phase of a unit that no worker has had yet, when its first phase was one and becomes another. One that is being reassessed,
/// since what it rests on was abandoned, goes through that first.
fn phase_after(phase: &str, (was, becomes): (PilotPhase, PilotPhase)) -> &str {
    if phase == was.name() { becomes.name() } else { phase }
}

/// What edited units belong to.
struct NewPlans<'a> {
    flows: &'a Workflows,
    /// The plans that are asked about anew, by their milestones.
    proposed: &'a BTreeMap<UnitId, (ItemId, AskId)>,
    /// The plan of new units, by their milestones.
    plans: BTreeMap<UnitId, ItemId>,
}

/// Makes the operations of all edits, in the order in which the store takes them.
async fn make_ops(
    project: &OpenProject,
    plan: &StoredPlan,
    (after, changes): (&[PilotUnit], &[PlanChange]),
    NewPlans { flows, proposed, plans }: &NewPlans<'_>,
) -> Result<Vec<Op>, AutopilotError> {
    let at = project.hands.now();
    let mut ops = Vec::new();
    for change in changes {
        // First, so that nothing waits for a part that was removed.
        if let PlanChange::Archive(id) = change {
            ops.push(UnitOp::Cancel { key: project.key_of(*id), at });
            ops.push(UnitOp::Archive { key: project.key_of(*id), at });
        }
    }
    let added = add_ops(project, plan, after, (flows, plans), &mut ops)?;
    let regrouped = regrouped_units(changes);
    let mut revised = Vec::new();
    for unit in after {
        let Some((row, facts)) = plan.rows.get(&unit.id) else { continue };
        let is_edited =
            changes.iter().any(|change| matches!(change, PlanChange::Edit(id, _) if *id == unit.id));
        let is_renewed = proposed.get(&unit.id);
        let has_other_flow = row.fence == 0 && unit.workflow.as_ref() != Some(&row.workflow);
        let is_regrouped = regrouped.contains(&unit.id);
        if row.is_over || !(is_edited || is_regrouped || is_renewed.is_some() || has_other_flow) {
            continue;
        }
        let parts: Vec<UnitId> =
            after.iter().map(|part| part.id).filter(|part| part.parent() == Some(unit.id)).collect();
        if has_other_flow || is_regrouped {
            let had_parts = plan.rows.keys().any(|id| id.parent() == Some(unit.id));
            revised.extend(choose_ops(project, (unit, row), flows, (had_parts, !parts.is_empty())).await?);
        }
        let waits: BTreeSet<UnitId> = parts.into_iter().chain(unit.blocked_by.iter().copied()).collect();
        let mut facts = UnitFacts {
            blocked_by: unit.blocked_by.iter().copied().collect(),
            code_depends_on: unit.code_depends_on.iter().copied().collect(),
            ..facts.clone()
        };
        if let Some((item, _)) = is_renewed {
            facts.renew_plan(*item);
        }
        revised.push(UnitOp::Revise(Box::new(UnitTexts {
            metadata: write_facts(unit.id, &facts)?,
            key: row.key.clone(),
            fence: row.fence,
            title: unit.title.clone(),
            description: unit.description.clone(),
            priority: unit.priority,
            blocked_by: Some(waits.iter().map(ToString::to_string).collect()),
            at,
        })));
    }
    if !added.is_empty() {
        ops.push(UnitOp::Add { session: project.session(), units: added, at });
    }
    ops.extend(revised);
    Ok(ops.into_iter().map(Op::Units).collect())
}

#[cfg(test)]
mod tests;
