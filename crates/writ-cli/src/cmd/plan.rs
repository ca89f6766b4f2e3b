//! `writ plan run`: the tool calls of a file, run through the door without a model; and results that were recorded.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use writ_inspect::show::escape_line;
use writ_runtime::methods::PlanRun as RunMethod;
use writ_types::api::plan::{PlanCall, PlanCallResult, PlanRun};
use writ_types::digest::{Digest, canonical_json};
use writ_types::error::Exit;

use crate::args::{ExecutionMode, PlanCommand, PlanRunArgs};
use crate::client::EngineClient;
use crate::cmd::project::project_path;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// The version of plans that is read.
const VERSION: &str = "1.0";
/// The largest plan and the largest recorded result, in bytes.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// The file of a recording that says which plan it is of.
const PLAN_FILE: &str = "plan.json";

/// A plan as its file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    version: String,
    steps: Vec<PlanCall>,
}

/// A recorded result: it counts for a step with the same tool and input.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedStep {
    id: String,
    tool: String,
    /// The digest of its input, which may have had a secret.
    input: Digest,
    outcome: String,
    output: String,
}

/// Runs `writ plan …`.
pub(crate) fn run_plan(context: &Context, command: &PlanCommand) -> Result<(), Failure> {
    let PlanCommand::Run(args) = command;
    let steps = read_plan(&args.file)?;
    let results = match &args.replay {
        Some(folder) => replay_steps(&steps, folder)?,
        None => perform_steps(context, args, steps)?,
    };
    context.out.print_json(&json!({ "steps": results }))?;
    match results.iter().find_map(|result| exit_of(&result.outcome)) {
        Some(exit) => Err(Failure::Code(exit.code())),
        None => Ok(()),
    }
}

/// Has the engine run the steps. With a recording, its folder is there before anything runs.
fn perform_steps(
    context: &Context,
    args: &PlanRunArgs,
    steps: Vec<PlanCall>,
) -> Result<Vec<PlanCallResult>, Failure> {
    context.load_ready_config()?;
    let project = args.project.as_deref().map(|path| project_path(context, path)).transpose()?;
    if let Some(folder) = &args.record {
        begin_recording(folder, &steps)?;
    }
    // The door decides and records in a dry run, too, so that its answers are those of a real one.
    let dry_run = args.execution_mode == ExecutionMode::DryRun;
    let wanted = PlanRun { project, dry_run, steps: steps.clone() };
    let ran = block_on(async { EngineClient::ensure(context).await?.ask::<RunMethod>(&wanted).await })?;
    if let Some(folder) = &args.record {
        for (step, result) in steps.iter().zip(&ran.steps) {
            record_step(folder, step, result)?;
        }
    }
    context.out.print_remark(format!("session {}: `writ diff --session {0}` shows its changes", ran.session));
    Ok(ran.steps)
}

/// Returns the exit code of a step that did not succeed.
fn exit_of(outcome: &str) -> Option<Exit> {
    match outcome {
        "done" | "simulated" => None,
        "denied" => Some(Exit::Denied),
        "waiting" => Some(Exit::Waiting),
        "cancelled" => Some(Exit::Interrupted),
        // A name that a later engine may use is a failure, so that no script goes on after it.
        _ => Some(Exit::Verification),
    }
}

fn read_plan(file: &Path) -> Result<Vec<PlanCall>, Failure> {
    let hint = "a plan is JSON: {\"version\": \"1.0\", \"steps\": [{\"id\": \"a\", \"tool\": \"shell_exec\", \"input\": {}}]}";
    let wrong = |why: String| {
        let text = format!("the plan {} {why}", shown(file));
        Failure::new(Exit::Usage, "plan.file", text, hint)
    };
    let text = read_file(file).map_err(|why| wrong(format!("cannot be read: {why}")))?;
    let plan: PlanFile =
        serde_json::from_str(&text).map_err(|error| wrong(format!("is not one: {error}")))?;
    if plan.version != VERSION {
        return Err(wrong(format!("has the version '{}'; '{VERSION}' is known", escape_line(&plan.version))));
    }
    Ok(plan.steps)
}

/// Reads a file within its bound; the reason, if that fails.
fn read_file(file: &Path) -> Result<String, String> {
    let opened = std::fs::File::open(file).map_err(|error| error.to_string())?;
    let mut text = String::new();
    // One byte more than the limit shows that the file is too large.
    let read = opened.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
    let bytes = read.map_err(|error| error.to_string())?;
    if u64::try_from(bytes).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return Err(format!("it has more than {MAX_FILE_BYTES} bytes"));
    }
    Ok(text)
}

fn shown(path: &Path) -> String {
    escape_line(&path.to_string_lossy())
}

fn record_failure(folder: &Path, why: impl std::fmt::Display) -> Failure {
    let text = format!("{} takes no recording: {why}", shown(folder));
    Failure::new(Exit::Usage, "plan.record", text, "name a new folder in one that can be written")
}

/// Makes the folder of a recording. An older one stays as it is: results of two runs would look like one.
fn begin_recording(folder: &Path, steps: &[PlanCall]) -> Result<(), Failure> {
    // The results have the output of tools, which others on this machine are not to read.
    let made = std::fs::DirBuilder::new().mode(0o700).create(folder);
    made.map_err(|error| record_failure(folder, error))?;
    let plan = json!({ "version": VERSION, "steps": steps.iter().map(|step| &step.id).collect::<Vec<_>>() });
    write_file(folder, &folder.join(PLAN_FILE), &plan)
}

fn record_step(folder: &Path, step: &PlanCall, result: &PlanCallResult) -> Result<(), Failure> {
    let recorded = RecordedStep {
        id: step.id.clone(),
        tool: step.tool.clone(),
        input: digest_of(step)?,
        outcome: result.outcome.clone(),
        output: result.output.clone(),
    };
    write_file(folder, &step_file(folder, &step.id), &recorded)
}

fn write_file(folder: &Path, file: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| record_failure(folder, error))?;
    // The folder is new, so a file that is there was put there by another program meanwhile.
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let written = opened.and_then(|mut file| file.write_all((text + "\n").as_bytes()));
    written.map_err(|error| record_failure(folder, error))
}

/// The file of a step's result. The engine has checked the names of steps that were recorded.
fn step_file(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!("step-{id}.json"))
}

fn digest_of(step: &PlanCall) -> Result<Digest, Failure> {
    let input =
        canonical_json(&step.input).map_err(|error| Failure::internal_error("reading an input", error))?;
    Ok(Digest::of_bytes(&input))
}

/// Returns the results that were recorded for the steps. Like the run, it ends with the first step that did not succeed.
fn replay_steps(steps: &[PlanCall], folder: &Path) -> Result<Vec<PlanCallResult>, Failure> {
    let mut results = Vec::new();
    for step in steps {
        let recorded = recorded_step(step, folder)?;
        let goes_on = exit_of(&recorded.outcome).is_none() || step.continue_on_error;
        let RecordedStep { id, tool, outcome, output, .. } = recorded;
        results.push(PlanCallResult { id, tool, outcome, output });
        if !goes_on {
            break;
        }
    }
    Ok(results)
}

fn recorded_step(step: &PlanCall, folder: &Path) -> Result<RecordedStep, Failure> {
    let wrong = |why: String| {
        let text = format!("{} has no result for step '{}': {why}", shown(folder), escape_line(&step.id));
        Failure::new(Exit::Usage, "plan.replay", text, "record the plan again with --record DIR")
    };
    // A name with a path in it would lead out of the folder.
    if step.id.is_empty() || !step.id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(wrong("names of steps have letters, digits and hyphens".to_owned()));
    }
    let text = read_file(&step_file(folder, &step.id)).map_err(wrong)?;
    let recorded: RecordedStep = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if recorded.id != step.id || recorded.tool != step.tool || recorded.input != digest_of(step)? {
        return Err(wrong("it was recorded with another tool or another input".to_owned()));
    }
    Ok(recorded)
}
