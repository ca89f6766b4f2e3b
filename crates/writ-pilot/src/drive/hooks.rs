//! The hooks of a project: scripts that its settings name, around the attempts at its units.
//!
//! A script runs in the verification sandbox, as a gate does: without network, and nothing that it changes stays. Its text is the
//! one that the target branch has, never a file that an agent could have written.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use writ_autopilot::failure::FailureCode;
use writ_autopilot::hook::{HookExit, HookJudgement, HookKind, judge_hook};
use writ_autopilot::machine::UnitMove;
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::unit_id::{UnitId, UnitType};
use writ_runtime::pilot::GateProgram;
use writ_sandbox::git::files::{find_file, read_files};
use writ_sandbox::git::refs::read_ref;
use writ_store::batch::Op;
use writ_store::reads::UnitReads as _;
use writ_store::units::{HookRunRow, UnitOp};
use writ_types::error::ToReport as _;
use writ_types::work::CheckEnd;

use super::{PhaseResult, WorkClaim, dispatch, fault, fault_result, plan_of, run_phase};
use crate::error::{AutopilotError, PilotGitError};
use crate::project::{DispatchHold, OpenProject};
use crate::standing::UnitRecord;

mod payload;

/// The largest script, in bytes: it is handed to the sandbox as one word of a command, which may have 128 KiB.
const MAX_SCRIPT_BYTES: usize = 64 * 1024;
/// The longest part of a hook's output that is stored, in characters.
const MAX_OUTPUT_CHARS: usize = 2_000;
/// Writes the script into the sandbox and runs it by its interpreter. The text is a word of the command, which the shell does not
/// read as a part of its own.
const PUT: &str = r#"printf '%s' "$1" > /tmp/hook && shift && exec "$@" /tmp/hook"#;

/// Hands a unit out once its hooks allow that. They run beside the loop, which goes on.
///
/// # Errors
///
/// If the unit cannot be read.
pub(super) async fn dispatch_after_hooks(
    project: &Arc<OpenProject>,
    id: UnitId,
) -> Result<(), AutopilotError> {
    if project.is_dispatch_held() {
        return Ok(());
    }
    let unit = project.read_unit(id).await?;
    let own = Arc::clone(project);
    // Before the task begins, so that the next tick does not choose it once more.
    let prepared = project.prepare(id, unit.stand.phase);
    project.hands.spawn(project.tasks.track_future(async move {
        let is_settled = ask_and_dispatch(&own, &unit).await.unwrap_or_else(|error| {
            tracing::error!(unit = %id, %error, "a unit cannot be handed out");
            false
        });
        drop(prepared);
        // One that was held back is asked about again after the usual pause, or its hooks would run without end.
        if is_settled || own.is_loop_ending() {
            own.looping.wake.notify_one();
        }
    }));
    Ok(())
}

/// The word of the hooks before a dispatch.
pub(super) enum DispatchWord {
    /// None of them objects.
    Go,
    /// One of them holds the unit back, for this reason. No try is counted.
    Held(String),
    /// One of them has failed, and with it the session.
    Ended(String),
}

/// Runs the hooks before a dispatch, if there are any.
pub(super) async fn judge_dispatch(project: &Arc<OpenProject>, unit: &UnitRecord) -> DispatchWord {
    let kind = HookKind::PreDispatch;
    if !project.config().hooks.has(kind) {
        return DispatchWord::Go;
    }
    let about = payload::about_unit(project, unit, kind);
    let folder = project.git.project().top_dir().to_owned();
    for verdict in run_hooks(project, (kind, unit, unit.row.attempt), &folder, &about).await {
        match verdict {
            HookJudgement::Passed => {}
            HookJudgement::Failed(why) => {
                let why = format!("the hook {} for {} has failed: {why}", kind.name(), unit.id);
                project.fail_session(why.clone());
                return DispatchWord::Ended(why);
            }
            HookJudgement::Blocked(why) | HookJudgement::TimedOut(why) | HookJudgement::NotRun(why) => {
                tracing::info!(unit = %unit.id, why, "a hook holds a unit back");
                return DispatchWord::Held(why);
            }
        }
    }
    DispatchWord::Go
}

/// Runs the hooks before a dispatch, and hands the unit out if none of them objects. Returns false if the unit stays as it is.
async fn ask_and_dispatch(project: &Arc<OpenProject>, unit: &UnitRecord) -> Result<bool, AutopilotError> {
    match judge_dispatch(project, unit).await {
        DispatchWord::Go => {}
        DispatchWord::Ended(_) => return Ok(true),
        // It is asked again at a later tick.
        DispatchWord::Held(_) => return Ok(false),
    }
    // The loop may have ended meanwhile.
    if project.is_loop_ending() || project.session_failure().is_some() {
        return Ok(false);
    }
    match dispatch(project, unit.id, false).await {
        Err(AutopilotError::Store(writ_store::error::StoreError::Conflict(conflict))) => {
            tracing::debug!(unit = %unit.id, ?conflict, "a unit was not handed out");
            Ok(false)
        }
        other => other,
    }
}

/// Runs an attempt between its hooks.
///
/// # Errors
///
/// If git, the engine or the store fail.
pub(super) async fn run_attempt(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    stop: &CancellationToken,
) -> Result<PhaseResult, AutopilotError> {
    // A merge has no workspace of its unit: it is made of commits, in a tree of its own. The gates of a milestone have none either.
    if work.unit.stand.phase == PilotPhase::Merge || work.unit.id.unit_type() == UnitType::Milestone {
        return run_phase(project, work, stop).await;
    }
    let own = project.work_of(work.unit.id).await?;
    let workspace = match project.git.ensure_workspace(&own, &project.target).await {
        Ok(workspace) => workspace,
        Err(error) => return Ok(fault_result(&error.into())),
    };
    let attempt = attempt_of(project, work).await?;
    let about = |kind| payload::about_unit(project, &work.unit, kind);
    let run =
        async |kind| run_hooks(project, (kind, &work.unit, attempt), &workspace.folder, &about(kind)).await;
    if workspace.created
        && let Some((_, why)) = first_failure(HookKind::AfterCreate, run(HookKind::AfterCreate).await)
    {
        // The next attempt makes it anew, and this hook has another try.
        project.git.drop_folder(&own).await?;
        return Ok(fault(FailureCode::WorkspaceCreationFailed, why));
    }
    let result = match first_failure(HookKind::BeforeRun, run(HookKind::BeforeRun).await) {
        Some((code, why)) => Ok(fault(code, why)),
        None => run_phase(project, work, stop).await,
    };
    // Its result changes nothing.
    if let Some((_, why)) = first_failure(HookKind::AfterRun, run(HookKind::AfterRun).await) {
        tracing::warn!(unit = %work.unit.id, why, "a hook after an attempt has failed");
    }
    result
}

/// Returns the code and the words of the first hook that has not passed.
fn first_failure(kind: HookKind, verdicts: Vec<HookJudgement>) -> Option<(FailureCode, String)> {
    let failed = verdicts.into_iter().find(|verdict| *verdict != HookJudgement::Passed)?;
    Some((failed.code(), format!("the hook {} has not passed: {}", kind.name(), failed.reason())))
}

/// Holds every dispatch while the hooks after a run are due; `None` if there are none.
pub(super) async fn hold_for_hooks(project: &OpenProject) -> Option<DispatchHold> {
    let is_due = project.config().hooks.has(HookKind::PostUnit);
    if is_due { Some(project.hold_dispatch().await) } else { None }
}

/// Runs the hooks after a run that has ended, and lets dispatches go on.
pub(super) async fn run_after_run(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    message: &str,
    hold: Option<DispatchHold>,
) {
    if hold.is_none() || project.hands.draining().is_cancelled() {
        return;
    }
    let kind = HookKind::PostUnit;
    match payload::about_run(project, work, message).await {
        Ok(Some((attempt, about))) => {
            let folder = project.git.project().top_dir().to_owned();
            let verdicts = run_hooks(project, (kind, &work.unit, attempt), &folder, &about).await;
            let failed = verdicts.iter().find(|verdict| matches!(verdict, HookJudgement::Failed(_)));
            if let Some(failed) = failed {
                let (id, why) = (work.unit.id, failed.reason());
                project.fail_session(format!("the hook {} for {id} has failed: {why}", kind.name()));
            }
        }
        Ok(None) => {}
        Err(error) => {
            tracing::error!(unit = %work.unit.id, %error, "the hooks after a run cannot be run");
        }
    }
    drop(hold);
    project.looping.wake.notify_one();
}

/// Runs the hooks of a move to another phase. The move is written: what they say changes nothing.
pub(super) async fn run_of_move(project: &OpenProject, unit: &UnitRecord, made: &UnitMove) {
    let kind = HookKind::PhaseChange;
    if made.change.is_none() || !project.config().hooks.has(kind) {
        return;
    }
    let about = payload::about_move(project, unit, made);
    let folder = project.git.project().top_dir().to_owned();
    let verdicts = run_hooks(project, (kind, unit, unit.row.attempt), &folder, &about).await;
    if let Some((_, why)) = first_failure(kind, verdicts) {
        tracing::warn!(unit = %unit.id, why, "a hook of a change of phase has failed; the phase stands");
    }
}

/// Runs the hooks before a workspace is removed, which happens also where they fail.
pub(super) async fn run_before_remove(project: &OpenProject, unit: &UnitRecord) {
    let kind = HookKind::BeforeRemove;
    let folder = project.git.workspaces_dir().join(project.workspace_owner(unit.id).folder_name());
    if !project.config().hooks.has(kind) || !folder.is_dir() {
        return;
    }
    let about = payload::about_unit(project, unit, kind);
    let verdicts = run_hooks(project, (kind, unit, unit.row.attempt), &folder, &about).await;
    if let Some((_, why)) = first_failure(kind, verdicts) {
        tracing::warn!(unit = %unit.id, why, "a hook before the removal of a workspace has failed");
    }
}

/// Returns the number of a worker's attempt.
async fn attempt_of(project: &OpenProject, work: &WorkClaim) -> Result<u32, AutopilotError> {
    let runs = project.hands.store().unit_runs(work.unit.row.key.clone()).await?;
    Ok(runs.iter().rfind(|run| run.id == work.run).map_or(0, |run| run.attempt))
}

/// Runs the scripts of a kind one after another in a folder, and stores their ends.
async fn run_hooks(
    project: &OpenProject,
    (kind, unit, attempt): (HookKind, &UnitRecord, u32),
    folder: &Path,
    about: &Value,
) -> Vec<HookJudgement> {
    let config = project.config();
    let mut verdicts = Vec::new();
    for script in config.hooks.scripts(kind) {
        // The sandbox of the project's folder is one for all.
        let _alone = if kind.is_of_workspace() { None } else { Some(project.hold_hooks().await) };
        let began_at = project.hands.now();
        let ran = Box::pin(run_script(project, (kind, unit, script), folder, about)).await;
        let (verdict, output) =
            ran.unwrap_or_else(|error| (HookJudgement::NotRun(error.report().outside), String::new()));
        // An engine that ends says nothing about a hook.
        if project.hands.draining().is_cancelled() {
            verdicts.push(verdict);
            break;
        }
        let row = HookRunRow {
            key: unit.row.key.clone(),
            attempt,
            hook: kind.name().to_owned(),
            script: script.clone(),
            outcome: verdict.name().to_owned(),
            reason: verdict.reason().to_owned(),
            output: output.chars().take(MAX_OUTPUT_CHARS).collect(),
            began_at,
            ended_at: project.hands.now(),
        };
        if let Err(error) = project.hands.commit(vec![Op::Units(UnitOp::AddHookRun(Box::new(row)))]).await {
            tracing::error!(unit = %unit.id, %error, "the run of a hook cannot be stored");
        }
        let is_last = verdict != HookJudgement::Passed && kind.stops_at_failure();
        verdicts.push(verdict);
        if is_last {
            break;
        }
    }
    verdicts
}

/// Runs a script of the target branch in the sandbox. Returns its verdict and its output.
async fn run_script(
    project: &OpenProject,
    (kind, unit, script): (HookKind, &UnitRecord, &str),
    folder: &Path,
    about: &Value,
) -> Result<(HookJudgement, String), AutopilotError> {
    let text = match read_script(project, script).await? {
        Ok(text) => text,
        Err(why) => return Ok((HookJudgement::NotRun(why), String::new())),
    };
    let limit = project.config().hooks.time_limit(kind);
    let program = GateProgram {
        plan: plan_of(project, unit.id).await?,
        folder: folder.to_owned(),
        name: format!("hook {}", kind.name()),
        argv: argv_of(&text),
        env: BTreeMap::from([
            ("WRIT_HOOK".to_owned(), kind.name().to_owned()),
            ("WRIT_UNIT_ID".to_owned(), unit.id.to_string()),
            ("WRIT_UNIT_TYPE".to_owned(), unit.id.unit_type().name().to_owned()),
        ]),
        stdin: Some(about.to_string()),
        secs: u32::try_from(limit.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX),
    };
    // The attempt may have been stopped: its hooks run also then, within their own times.
    let stop = project.hands.draining().child_token();
    let ended = match project.hands.run_gate(program, &stop).await? {
        Ok(ended) => ended,
        Err(why) => return Ok((HookJudgement::NotRun(why), String::new())),
    };
    let exit = match ended.end {
        CheckEnd::Exited { code } => HookExit::Exited(code),
        CheckEnd::Killed { signal } => HookExit::Killed(signal),
        CheckEnd::TimedOut => HookExit::TimedOut,
        CheckEnd::NotRun { reason } => HookExit::NotRun(reason),
        CheckEnd::FilesOnly => HookExit::NotRun("it is no program".to_owned()),
    };
    let verdict = judge_hook(kind, &exit, &ended.stdout, limit);
    Ok((verdict, format!("{}{}", ended.stdout, ended.stderr)))
}

/// Reads a script as the target branch has it. The inner error says why it cannot be run.
async fn read_script(project: &OpenProject, path: &str) -> Result<Result<String, String>, AutopilotError> {
    let git = project.git.project();
    let target = read_ref(git, &project.target.to_ref()).await.map_err(PilotGitError::from)?;
    let Some(target) = target else { return Ok(Err(format!("there is no branch '{}'", project.target))) };
    let found = find_file(git, &target, path).await.map_err(PilotGitError::from)?;
    let Some(file) = found.filter(|file| file.is_plain) else {
        return Ok(Err(format!("'{path}' is no file of the branch '{}': commit it", project.target)));
    };
    let read = read_files(git, &[&file]).await.map_err(PilotGitError::from)?;
    let text = read.into_iter().next().flatten().and_then(|bytes| String::from_utf8(bytes).ok());
    // A word of a command ends at a NUL.
    let is_fit = |text: &String| text.len() <= MAX_SCRIPT_BYTES && !text.contains('\0');
    Ok(text.filter(is_fit).ok_or_else(|| format!("'{path}' is no text of at most {MAX_SCRIPT_BYTES} bytes")))
}

/// Returns the command of a script: its text, by the interpreter of its first line or the shell.
fn argv_of(text: &str) -> Vec<String> {
    let first = text.lines().next().unwrap_or_default();
    let interpreter = first.strip_prefix("#!").map(str::trim).unwrap_or_default();
    let (program, argument) = interpreter.split_once(char::is_whitespace).unwrap_or((interpreter, ""));
    let program = if program.is_empty() { "/bin/sh" } else { program };
    let mut argv: Vec<String> = ["/bin/sh", "-c", PUT, "hook", text, program].map(str::to_owned).to_vec();
    argv.extend(Some(argument.trim()).filter(|argument| !argument.is_empty()).map(str::to_owned));
    argv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_run_by_the_interpreter_of_its_first_line() {
        let behind = |text: &str| argv_of(text)[4..].join("|").replace('\n', "/");
        assert_eq!(behind("echo 1\n"), "echo 1/|/bin/sh");
        assert_eq!(behind("#!/bin/sh -e\nls\n"), "#!/bin/sh -e/ls/|/bin/sh|-e");
        assert_eq!(behind("#! /usr/bin/env python3\n"), "#! /usr/bin/env python3/|/usr/bin/env|python3");
        assert_eq!(behind("#!\n"), "#!/|/bin/sh");
    }
}
