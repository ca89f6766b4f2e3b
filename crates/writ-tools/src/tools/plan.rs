//! `plan_propose`: steps that a person approves together.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use writ_inspect::prepared::Prepared;
use writ_policy::plan::{MAX_STEPS, MINUTES};
use writ_types::action::{Action, ActionKind, Free, Place, Plan, PlanStep};
use writ_types::chat::ToolCall;
use writ_types::unit::MicroUsd;

use super::describe_intent;
use crate::arguments::{invalid_arguments, parse_arguments};
use crate::def::{ActionDraft, AgentRole, OutputKind, PathState, ToolContext, ToolDef, needs_nothing};
use crate::error::ToolError;
use crate::schema::schema_of;

/// Millionths of a dollar in a cent.
const CENT: u64 = 10_000;

pub(crate) static PLAN_PROPOSE: ToolDef = ToolDef {
    name: "plan_propose",
    description: "Proposes a plan. Once a person approves it, its steps are done without asking; make each call then \
                  as the step says.",
    usage: r#"{"title": "publish", "steps": [{"tool": "shell_exec", "arguments": {"command": "make"}}]}"#,
    sinks: &[],
    idempotent: false,
    output: OutputKind::Confirmation,
    actions: &[ActionKind::Plan],
    roles: &[AgentRole::Executor],
    schema: schema_of::<PlanArgs>,
    needs: needs_nothing,
    prepare: prepare_head,
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlanArgs {
    /// Purpose of the plan.
    title: String,
    /// Each: tool, arguments as in the call, times (1), free ("content" of a message or "page" of a host stays open).
    #[schemars(with = "Vec<Map<String, Value>>")]
    steps: Vec<StepArgs>,
    /// How long it is valid, 30 if not given.
    minutes: Option<u64>,
    /// The most that models may cost meanwhile.
    max_cost_cents: Option<u64>,
    /// Target branch.
    branch: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepArgs {
    tool: String,
    /// Of files that are written, the path counts.
    arguments: Map<String, Value>,
    times: Option<u32>,
    free: Option<FreeArg>,
}

/// The part of a step that stays open.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FreeArg {
    Content,
    Page,
}

/// The plan without its steps: who knows the tools adds those.
fn prepare_head(
    arguments: &Value,
    _: Option<&PathState>,
    _: &ToolContext<'_>,
) -> Result<ActionDraft, ToolError> {
    let args: PlanArgs = parse_arguments(&PLAN_PROPOSE, arguments)?;
    if !(1..=MAX_STEPS).contains(&args.steps.len()) {
        return Err(invalid_arguments(&PLAN_PROPOSE, &format!("a plan has 1 to {MAX_STEPS} steps")));
    }
    let plan = Plan {
        title: args.title,
        steps: Vec::new(),
        minutes: args.minutes.unwrap_or(MINUTES),
        max_cost: args.max_cost_cents.map(|cents| MicroUsd::new(cents.saturating_mul(CENT))),
        branch: args.branch,
        work: None,
    };
    let purpose = describe_intent("have a plan approved:", &plan.title);
    Ok(ActionDraft::new_draft(Action::Plan(plan), purpose))
}

/// The steps of a plan, each prepared as its call would be by `prepare`.
///
/// # Errors
///
/// If one cannot be prepared.
pub(crate) fn prepare_steps(
    call: &ToolCall,
    arguments: &Value,
    prepare: impl Fn(&ToolCall) -> Result<Prepared, ToolError>,
) -> Result<Vec<PlanStep>, ToolError> {
    let args: PlanArgs = parse_arguments(&PLAN_PROPOSE, arguments)?;
    let step = |(n, step): (u64, StepArgs)| {
        let wrong = |problem: &str| invalid_arguments(&PLAN_PROPOSE, &format!("step {n}: {problem}"));
        // Nested plans would make the steps hard to read for the person who approves.
        if step.tool == PLAN_PROPOSE.name {
            return Err(wrong("a plan cannot be a step of one"));
        }
        let (id, name) = (call.id.clone(), step.tool);
        let call = ToolCall { id, name, arguments: Value::Object(step.arguments) };
        let prepared = prepare(&call).map_err(|error| wrong(&error.model_message()))?;
        let free = match (&prepared.action, step.free) {
            // What is in a file is not known before it is written.
            (Action::WriteFile(write), None | Some(FreeArg::Content)) if write.place == Place::Overlay => {
                Free::Content
            }
            // By default a step is done exactly as proposed.
            (_, None) => Free::Nothing,
            (_, Some(FreeArg::Content)) => Free::Content,
            (_, Some(FreeArg::Page)) => Free::Page,
        };
        Ok(PlanStep {
            tool: prepared.tool,
            action: prepared.action,
            sinks: prepared.sinks.into_iter().map(|sink| (sink.argument, sink.value)).collect(),
            bindings: prepared.bindings,
            times: step.times.unwrap_or(1),
            free,
            external: Default::default(),
        })
    };
    (1_u64..).zip(args.steps).map(step).collect()
}
