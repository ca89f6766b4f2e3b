//! `writ mcp serve`: the autopilot as tools for another agent, over standard input and output.
//!
//! The other agent has the authority of the person who starts it, and no more: a plan and a task in words wait for that person's approval.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{stdin, stdout};
use writ_mcp::server::{CallRefusal, OfferedTool, serve_tools};
use writ_runtime::methods::{PilotDispatch, PilotPlan, PilotShow};
use writ_types::api::pilot::{PilotDispatchOrder, PilotGoal, PilotProject};
use writ_types::error::Exit;

use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// The longest goal or task, in bytes.
const MAX_WORDS_BYTES: usize = 32 * 1024;

/// The arguments of `plan`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanArguments {
    goal: String,
}

/// The arguments of `dispatch`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DispatchArguments {
    #[serde(default)]
    task: String,
}

/// The arguments of `status`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusArguments {}

fn offered_tools() -> Vec<OfferedTool> {
    let words = |name: &str, text: &str| json!({ name: { "type": "string", "description": text } });
    let object = |properties: Value, required: &[&str]| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    vec![
        OfferedTool {
            name: "plan",
            description: "Plans a goal for this project as a milestone with slices and tasks. A person approves the plan before anything is done.",
            schema: object(words("goal", "The goal, in words"), &["goal"]),
        },
        OfferedTool {
            name: "dispatch",
            description: "Begins one unit of an approved plan: the next one, or the one that is named. A task in several words is planned by itself and waits for a person's approval.",
            schema: object(
                words("task", "A unit such as task/m1/s1/t1, or a task in words; empty: the next unit"),
                &[],
            ),
        },
        OfferedTool {
            name: "status",
            description: "Shows the plans, units, costs and blockers of this project.",
            schema: object(json!({}), &[]),
        },
    ]
}

/// Runs `writ mcp serve`.
pub(crate) fn serve(context: &Context, project: &Path) -> Result<(), Failure> {
    let project = std::fs::canonicalize(project).map_err(|error| {
        let text = format!("the project {} cannot be used: {error}", project.display());
        Failure::new(Exit::Usage, "mcp.project", text, "name the folder of a project with --project")
    })?;
    let project = project.to_string_lossy().into_owned();
    let tools = offered_tools();
    block_on(async {
        let served = serve_tools((stdin(), stdout()), &tools, |tool, arguments| {
            call(context, &project, tool, arguments)
        });
        served.await.map_err(|error| {
            Failure::new(Exit::Usage, "mcp.serve", error.to_string(), "see what the client has sent")
        })
    })
}

/// Carries a call out, over a connection of its own.
async fn call(context: &Context, project: &str, tool: &str, arguments: Value) -> Result<Value, CallRefusal> {
    let failed = |failure: Failure| CallRefusal::Failed(describe_failure(&failure));
    let project = project.to_owned();
    // One connection carries one call at a time, and calls run beside one another.
    let mut client = EngineClient::ensure(context).await.map_err(failed)?;
    match tool {
        "plan" => {
            let PlanArguments { goal } = read(arguments)?;
            check_words("goal", &goal)?;
            let goal = PilotGoal { project, goal, workflow: None, link_issue: None };
            to_value(client.ask::<PilotPlan>(&goal).await.map_err(failed)?)
        }
        "dispatch" => {
            let DispatchArguments { task } = read(arguments)?;
            check_words("task", &task)?;
            let order = PilotDispatchOrder { project, unit: task };
            to_value(client.ask::<PilotDispatch>(&order).await.map_err(failed)?)
        }
        // The server passes on the tools that it offers, and no others.
        _status => {
            let StatusArguments {} = read(arguments)?;
            to_value(client.ask::<PilotShow>(&PilotProject { project }).await.map_err(failed)?)
        }
    }
}

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, CallRefusal> {
    serde_json::from_value(arguments).map_err(|error| CallRefusal::Arguments(error.to_string()))
}

fn check_words(name: &str, text: &str) -> Result<(), CallRefusal> {
    if text.len() > MAX_WORDS_BYTES {
        return Err(CallRefusal::Arguments(format!("`{name}` has more than {MAX_WORDS_BYTES} bytes")));
    }
    Ok(())
}

fn to_value(answer: impl serde::Serialize) -> Result<Value, CallRefusal> {
    serde_json::to_value(answer).map_err(|error| CallRefusal::Failed(error.to_string()))
}

fn describe_failure(failure: &Failure) -> String {
    match failure {
        Failure::Report(report) if report.hint.is_empty() => report.outside.clone(),
        Failure::Report(report) => format!("{} ({})", report.outside, report.hint),
        Failure::Interrupted | Failure::ReaderGone | Failure::Code(_) => "it was interrupted".to_owned(),
    }
}
