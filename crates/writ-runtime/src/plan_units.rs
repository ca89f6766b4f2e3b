//! Changes of a plan of the autopilot that an agent asks for in its attempt: handed to the autopilot, which judges them and carries them out.

use std::sync::Arc;

use writ_inspect::redact::Redactor;
use writ_store::reads::WorkReads as _;
use writ_tools::error::ToolError;
use writ_tools::plan_unit::{NewTask, UnitChange, plan_unit_tool, read_unit_change};
use writ_tools::registry::AllowList;
use writ_tools::render::Rendered;
use writ_types::chat::{ToolCall, ToolOutcome, ToolSpecs};
use writ_types::error::{Report, ToReport as _};
use writ_types::taint::Label;

use crate::error::EngineError;
use crate::outcome::Acted;
use crate::pending::Pending;
use crate::pilot_desk::UnitChangeOrder;
use crate::place::CallPlace;
use crate::session::{Session, UnderPlan};

/// The summary of a call in the record.
const SUMMARY: &str = "change the plan";

/// Returns the plan that a session may change: that of an attempt which works, with all tools. What only reads decides nothing, and an owner who
/// lists the tools of agents has not listed this one.
fn plan_of(session: &Session, allow: &AllowList) -> Option<UnderPlan> {
    session.plan_above().filter(|under| !under.reads_only && *allow == AllowList::All)
}

/// Adds the tool that changes a plan to those of an attempt of the autopilot. Other sessions have no plan.
pub(crate) fn with_tool((session, allow): (&Session, &AllowList), specs: ToolSpecs) -> ToolSpecs {
    if plan_of(session, allow).is_none() {
        return specs;
    }
    specs.with_spec(plan_unit_tool())
}

/// Masks the words of an agent, which go on into files, notices and other prompts.
fn masked(change: UnitChange, redactor: &Redactor) -> UnitChange {
    let mask = |text: &str| redactor.mask_text(text).into_owned();
    let all = |tasks: Vec<NewTask>| {
        tasks.into_iter().map(|task| NewTask { title: mask(&task.title), text: mask(&task.text) }).collect()
    };
    match change {
        UnitChange::Add { slice, tasks } => UnitChange::Add { slice, tasks: all(tasks) },
        UnitChange::Split { task, tasks } => UnitChange::Split { task, tasks: all(tasks) },
        UnitChange::Reorder { .. } => change,
    }
}

/// Reads the change that a call makes, and of which plan; none if it is another call, or the session is no attempt.
///
/// # Errors
///
/// Everything that is wrong with its arguments.
pub(crate) fn read_call(
    place: &CallPlace,
    call: &ToolCall,
) -> Result<Option<(UnderPlan, UnitChange)>, ToolError> {
    let allow = place.profile.allow_list(&place.services.servers.registry());
    let Some(under) = plan_of(&place.session, &allow) else { return Ok(None) };
    Ok(read_unit_change(&call.name, &call.arguments)?.map(|change| (under, change)))
}

/// Changes a plan.
///
/// # Errors
///
/// If the session of the plan cannot be read.
pub(crate) async fn change_plan(
    place: &CallPlace,
    first: &mut Pending,
    (call, label): (&ToolCall, &Label),
    (under, change): (UnderPlan, UnitChange),
) -> Result<Acted, EngineError> {
    let services = &place.services;
    services.life.metrics.tool(&call.name);
    let above = services.sessions.get(under.session).await?;
    let project = above.project().map(str::to_owned);
    let item = match &place.session.terms.work {
        Some(terms) => services.journal.store.work_item(terms.item).await?,
        None => None,
    };
    let unit = item.map(|item| item.name).unwrap_or_default();
    let change = masked(change, &services.journal.redactor);
    // Its lock is not held while the autopilot works.
    let desk = services.life.autopilot().as_ref().map(Arc::clone);
    let changed = match (desk, project) {
        (Some(desk), Some(project)) => {
            desk.change_units(UnitChangeOrder { project, plan: under.item, unit, change }).await
        }
        _ => Err(EngineError::NoAutopilot.report()),
    };
    let (text, outcome) = match changed {
        Ok(text) => (text, ToolOutcome::Done),
        Err(Report { outside, hint, .. }) => {
            (format!("The plan is as it was: {outside}. {hint}"), ToolOutcome::Failed)
        }
    };
    let rendered =
        Rendered { text: services.journal.redactor.clean_text(text), label: label.clone(), outcome };
    Ok(place.result(call, rendered, SUMMARY, std::mem::take(first)))
}
