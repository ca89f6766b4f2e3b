//! The steps of a plan: as the store has them, and as exact actions that the approval covers.

use writ_plan::run::{attempts_of, dependency_numbers, has_executor, run_steps};
use writ_store::work::WorkStepRow;
use writ_tools::def::{PathState, SearchTarget, ToolContext};
use writ_types::action::{Action, Free, Place, PlanStep};
use writ_types::api::work::StepState;
use writ_types::similar::nearest_name;
use writ_types::taint::Label;
use writ_types::work::{PlanDocument, WorkStep};

use super::call_of;
use crate::error::{EngineError, WorkError};
use crate::services::Services;

/// Returns the steps of a plan as rows of the store.
pub(crate) fn step_rows(document: &PlanDocument) -> Vec<WorkStepRow> {
    let steps = run_steps(document);
    let after = dependency_numbers(&steps);
    let row = |(step, after): (WorkStep, Vec<usize>)| WorkStepRow {
        after,
        has_executor: has_executor(&step),
        max_attempts: attempts_of(document, &step),
        name: step.id,
        title: step.title,
        advice: String::new(),
        state: StepState::Waiting,
    };
    steps.into_iter().zip(after).map(row).collect()
}

/// Checks the names in a plan that nothing else reads before they are needed: a tool that is misspelt would leave a step without
/// it, and a gate that is would never judge.
///
/// # Errors
///
/// The first name that nothing here has.
pub(crate) fn check_names(services: &Services, document: &PlanDocument) -> Result<(), WorkError> {
    let unknown = |what, at: String, name: &str, known: &[&str]| {
        let nearest = nearest_name(name, known).map(str::to_owned);
        WorkError::Name { what, at, name: name.to_owned(), nearest }
    };
    // There are no skills yet: one that is named would be left out of the work.
    let skills =
        document.steps.iter().flat_map(|step| step.skills.iter().map(|name| (step.id.as_str(), name)));
    if let Some((at, name)) = document.skills.iter().map(|name| ("", name)).chain(skills).next() {
        return Err(unknown("skill", at.to_owned(), name, &[]));
    }
    let gates = &services.gates.set;
    if let Some(name) = document.gates.iter().find(|name| !gates.has_gate(name)) {
        return Err(unknown("gate", String::new(), name, &[]));
    }
    if document.steps.iter().all(|step| step.tools.is_empty()) {
        return Ok(());
    }
    let tools = services.servers.registry();
    let lane = crate::profile::AgentProfile::step_lane(&services.config, 0);
    let toolset = tools.toolset_of(&lane.roles, &lane.allow_list(&tools));
    let known: Vec<&str> = toolset.names().collect();
    for step in &document.steps {
        if let Some(name) = step.tools.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(unknown("tool", step.id.clone(), name, &known));
        }
    }
    Ok(())
}

/// Returns the exact actions of the calls that a plan has approved, as the door will see them.
///
/// # Errors
///
/// If a call cannot be prepared.
pub(crate) fn planned_steps(
    services: &Services,
    document: &PlanDocument,
    label: &Label,
) -> Result<Vec<PlanStep>, EngineError> {
    let tools = services.servers.registry();
    let lane = crate::profile::AgentProfile::step_lane(&services.config, 0);
    let toolset = tools.toolset_of(&lane.roles, &lane.allow_list(&tools));
    let settings = services.outside.settings.now();
    let context = ToolContext {
        agent: &services.config.agent,
        session: None,
        turn: None,
        turn_number: 0,
        label,
        config: &settings.timeouts,
        search: services.outside.search.as_ref().map(|search| SearchTarget {
            provider: search.provider(),
            host: search.host(),
            max_results: search.max_results(),
        }),
    };
    let calls = document.steps.iter().flat_map(|step| step.calls.iter().map(move |call| (step, call)));
    let planned = calls.map(|(step, call)| {
        let wrong = |why: String| WorkError::Call { step: step.id.clone(), tool: call.tool.clone(), why };
        let tool_call = call_of(&call.tool, &call.arguments);
        let prepared = toolset
            .prepare_call(&tool_call, Some(&PathState::Missing), &context)
            .map_err(|error| wrong(error.model_message()))?;
        if matches!(prepared.action, Action::Plan(_)) {
            return Err(wrong("a plan cannot be a step of one".to_owned()).into());
        }
        let is_overlay =
            matches!(&prepared.action, Action::WriteFile(write) if write.place == Place::Overlay);
        Ok(PlanStep {
            tool: prepared.tool,
            action: prepared.action,
            sinks: prepared.sinks.into_iter().map(|sink| (sink.argument, sink.value)).collect(),
            bindings: prepared.bindings,
            times: call.times,
            free: call.free.unwrap_or(if is_overlay { Free::Content } else { Free::Nothing }),
            external: Default::default(),
            slots: Default::default(),
        })
    });
    planned.collect()
}
