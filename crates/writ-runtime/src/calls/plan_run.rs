//! Plans of tool calls that the owner has run: each step passes the door like a call of a model, and no model is asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use writ_tools::handoff::Handoff;
use writ_types::api::plan::{PlanCall, PlanCallResult, PlanRun, PlanRunResults};
use writ_types::chat::{ToolCall, ToolOutcome};
use writ_types::taint::{Label, Taint};

use super::MAX_LISTED_BYTES;
use crate::engine::Surface;
use crate::error::EngineError;
use crate::outcome::outcome_name;
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::services::Services;
use crate::{opening, place};

/// The most steps of one plan.
const MAX_PLAN_STEPS: usize = 100;
/// The longest name of a step, in bytes.
const MAX_STEP_NAME: usize = 64;
/// The most bytes that one character of an output takes in an answer.
const BYTES_PER_CHAR: usize = 12;

/// Runs the steps of a plan one after the other, in a session of their own, until one does not succeed.
///
/// # Errors
///
/// If a step is not well formed, before any is run; or the store or the sandbox cannot be used.
pub(super) async fn run_plan(
    services: &Arc<Services>,
    wanted: PlanRun,
) -> Result<PlanRunResults, EngineError> {
    let profile = services.profiles.executor();
    let offered: BTreeSet<String> = {
        let tools = services.servers.registry();
        let toolset = tools.toolset_of(&profile.roles, &profile.allow_list(&tools));
        toolset.names().map(str::to_owned).collect()
    };
    // A plan hands nothing to another agent, which would need a model.
    check_steps(&wanted.steps, |name| offered.contains(name) && !Handoff::is_handoff(name))?;
    let PlanRun { project, dry_run, steps } = wanted;
    let session = opening::open_session(services, project.as_deref(), false, dry_run, Surface::Local).await?;
    let over = session.state().over.child_token();
    let opened = place::outside_turn(services, session).await?;
    // A stopping engine waits for it as for a turn.
    let _running = services.life.turns.token();
    let result_chars = MAX_LISTED_BYTES / BYTES_PER_CHAR / steps.len().max(1);
    let mut results = Vec::new();
    // The owner has written the plan, but a step may run or send what an earlier one has read.
    let mut label = Label::new(Taint::Owner);
    for step in steps {
        let (id, tool) = (step.id.clone(), step.tool.clone());
        let call = ToolCall { id: step.id, name: step.tool, arguments: Value::Object(step.input) };
        let place = CallPlace { result_chars, ..opened.clone() };
        let performed = async {
            let acted = Box::pin(place.act(Pending::new(), call, label.clone(), over.child_token())).await?;
            opened.commit(acted.ops).await?;
            Ok::<_, EngineError>(acted.result)
        };
        let result = match performed.await {
            Ok(result) => result,
            Err(error) if results.is_empty() => return Err(error),
            // The results of the steps before are not to be thrown away, and this one may have been performed.
            Err(error) => {
                let outcome = outcome_name(ToolOutcome::Unknown).to_owned();
                results.push(PlanCallResult { id, tool, outcome, output: error.to_string() });
                break;
            }
        };
        label.join(&result.label);
        let outcome = result.outcome;
        let name = outcome_name(outcome).to_owned();
        results.push(PlanCallResult { id, tool, outcome: name, output: result.text });
        let goes_on = matches!(outcome, ToolOutcome::Done | ToolOutcome::Simulated) || step.continue_on_error;
        if !goes_on || over.is_cancelled() {
            break;
        }
    }
    Ok(PlanRunResults { session: opened.session.id, steps: results })
}

fn check_steps(steps: &[PlanCall], has_tool: impl Fn(&str) -> bool) -> Result<(), EngineError> {
    let wrong = |why: String| Err(EngineError::Params { method: "plan.run".to_owned(), why });
    if steps.is_empty() || steps.len() > MAX_PLAN_STEPS {
        return wrong(format!("a plan has 1 to {MAX_PLAN_STEPS} steps, and this one has {}", steps.len()));
    }
    let mut names = BTreeSet::new();
    for step in steps {
        let (id, tool) = (&step.id, &step.tool);
        if id.is_empty()
            || id.len() > MAX_STEP_NAME
            || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        {
            let shown: String = id.chars().take(MAX_STEP_NAME).collect();
            return wrong(format!(
                "the step '{shown}' needs a name of 1 to {MAX_STEP_NAME} letters, digits and hyphens"
            ));
        }
        if !names.insert(id.as_str()) {
            return wrong(format!("two steps have the name '{id}'"));
        }
        if !has_tool(tool) {
            let shown: String = tool.chars().take(MAX_STEP_NAME).collect();
            return wrong(format!("step '{id}': there is no tool '{shown}' that a plan can call"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_with_a_wrong_step_is_refused_as_a_whole() {
        let step = |id: &str, tool: &str| PlanCall {
            id: id.to_owned(),
            tool: tool.to_owned(),
            input: Default::default(),
            continue_on_error: false,
        };
        let check =
            |steps: &[PlanCall]| check_steps(steps, |tool| tool == "search").map_err(|e| e.to_string());
        assert_eq!(check(&[step("a", "search"), step("b-2", "search")]), Ok(()));
        for (steps, why) in [
            (vec![], "1 to 100 steps"),
            (vec![step("a", "search"); MAX_PLAN_STEPS + 1], "1 to 100 steps"),
            (vec![step("a", "search"), step("a", "search")], "two steps"),
            (vec![step("", "search")], "needs a name"),
            (vec![step("../a", "search")], "needs a name"),
            (vec![step("a", "search"), step("b", "nothing")], "step 'b': there is no tool 'nothing'"),
        ] {
            let refused = check(&steps).expect_err("is refused");
            assert!(refused.contains(why), "{refused}");
        }
    }
}
