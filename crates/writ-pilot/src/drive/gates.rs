//! The phase verify: gates are run by the harness in the verification sandbox, and tests that were weakened are a failure of their own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use writ_autopilot::check::counts::ReportFormat;
use writ_autopilot::check::weakened::find_weakened_tests;
use writ_autopilot::check::{GateJudgement, ScriptExit, ScriptRun, ScriptVerdict, judge_script};
use writ_autopilot::machine::UnitEvent;
use writ_autopilot::unit_id::{UnitId, UnitType};
use writ_runtime::pilot::{GateEnd, GateProgram, TriedProgram};
use writ_sandbox::git::commits::{changed_paths, diff_text};
use writ_store::batch::Op;
use writ_store::units::{GateRow, UnitOp};
use writ_types::unit::{MicroUsd, Tokens};
use writ_types::work::CheckEnd;

use super::{PhaseResult, WorkClaim, plan_of};
use crate::config::{GateCommand, GateMoment, PilotConfig, PilotGate};
use crate::error::{AutopilotError, PilotGitError};
use crate::project::OpenProject;
use crate::workspace::UnitWorkspace;

/// The gate of the harness itself: tests that a change deletes, skips or weakens.
const TESTS_KEPT: &str = "tests-kept";
/// The gate of the harness itself: paths that no agent changes.
const PROTECTED: &str = "protected-paths";
/// Folders that no agent changes: the harness's own settings and prompts.
const PROTECTED_FOLDERS: [&str; 1] = [".writ/"];
/// The most findings that a message lists.
const MAX_LISTED: usize = 20;

/// A gate's name, its judgement, and the time that it took.
type JudgedGate = (String, GateJudgement, Duration);

/// Runs the gates of a unit's level on its workspace.
///
/// # Errors
///
/// If git, the sandbox or the store fail.
pub(super) async fn run_gates(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    stop: &CancellationToken,
) -> Result<PhaseResult, AutopilotError> {
    let id = work.unit.id;
    let own = project.work_of(id).await?;
    let workspace = project.git.ensure_workspace(&own, &project.target).await?;
    let moment = match id.unit_type() {
        UnitType::Task => GateMoment::Task,
        UnitType::Slice => GateMoment::Slice,
        UnitType::Milestone => GateMoment::Milestone,
    };
    let started = Instant::now();
    let of_diff = judge_diff(project, &workspace).await?;
    let took = started.elapsed();
    let mut judged: Vec<JudgedGate> =
        of_diff.into_iter().map(|(name, judged)| (name, judged, took)).collect();
    let max_retries = project.flow_of(&work.unit).await?.max_retries;
    for gate in gates_for(&project.config, moment) {
        let started = Instant::now();
        let judgement = run_gate(project, (id, gate), &workspace.folder, GateRight::Plan(stop)).await?;
        judged.push((gate.name.clone(), judgement, started.elapsed()));
        // What was ended from outside shows nothing, and the next gate would not either.
        if stop.is_cancelled() {
            break;
        }
    }
    let is_advice = |name: &str| project.config.gates.iter().any(|gate| gate.name == name && !gate.required);
    let mut gates = Vec::new();
    for (name, judgement, took) in &mut judged {
        record(project, work, (name, judgement), (*took, max_retries)).await?;
        // What is not required is on record, and holds nothing up.
        if is_advice(name) && judgement.verdict != ScriptVerdict::Pass {
            judgement.verdict = ScriptVerdict::Skip;
        }
        gates.push((name.clone(), judgement.verdict));
    }
    // The harness's own gates prove nothing about the work where they pass.
    gates.retain(|(name, verdict)| {
        *verdict != ScriptVerdict::Pass || ![TESTS_KEPT, PROTECTED].contains(&name.as_str())
    });
    let failed: Vec<&JudgedGate> = judged
        .iter()
        .filter(|(_, judgement, _)| !matches!(judgement.verdict, ScriptVerdict::Pass | ScriptVerdict::Skip))
        .collect();
    let code = failed.iter().find_map(|(_, judgement, _)| judgement.code.clone()).unwrap_or_default();
    let words: Vec<String> = failed.iter().map(|(name, judgement, _)| describe(name, judgement)).collect();
    Ok(PhaseResult {
        event: UnitEvent::Gates(gates),
        outcome: if failed.is_empty() { "success" } else { "failure" },
        code: if failed.is_empty() || !code.is_empty() { code } else { "gate_failed".to_owned() },
        reason: failed
            .iter()
            .map(|(name, one, _)| format!("{name}: {}", one.summary))
            .collect::<Vec<_>>()
            .join("; "),
        last_error: (!failed.is_empty()).then(|| words.join("\n\n")),
        used: (Tokens::ZERO, Tokens::ZERO, MicroUsd::ZERO),
    })
}

/// Returns the gates of a moment; where a task or a merge has none, those of slices: nothing is taken over unchecked.
pub(super) fn gates_for(config: &PilotConfig, moment: GateMoment) -> Vec<&PilotGate> {
    let own: Vec<&PilotGate> = config.gates_at(moment).collect();
    match moment {
        GateMoment::Task | GateMoment::Merge if own.is_empty() => {
            config.gates_at(GateMoment::Slice).collect()
        }
        GateMoment::Task | GateMoment::Slice | GateMoment::Milestone | GateMoment::Merge => own,
    }
}

/// The right under which a gate runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GateRight<'a> {
    /// That of its plan, until it is stopped.
    Plan(&'a CancellationToken),
    /// A person's word: its plan may be over.
    Person,
}

/// Runs one gate in a folder.
///
/// # Errors
///
/// If the sandbox or the store cannot be used at all.
pub(super) async fn run_gate(
    project: &OpenProject,
    (id, gate): (UnitId, &PilotGate),
    folder: &Path,
    right: GateRight<'_>,
) -> Result<GateJudgement, AutopilotError> {
    let env = BTreeMap::from([
        ("WRIT_UNIT_ID".to_owned(), id.to_string()),
        ("WRIT_UNIT_TYPE".to_owned(), id.unit_type().name().to_owned()),
        ("WRIT_GATE".to_owned(), gate.name.clone()),
    ]);
    let stdin = serde_json::json!({ "unit": id.to_string(), "gate": gate.name }).to_string();
    let argv = match &gate.command {
        GateCommand::Run(argv) => argv.clone(),
        // By its own first line, as its author meant it.
        GateCommand::Script(path) => vec![format!("./{path}")],
    };
    let (folder, name, stdin) = (folder.to_owned(), gate.name.clone(), Some(stdin));
    let secs = u32::try_from(gate.timeout.as_secs()).unwrap_or(u32::MAX);
    let ended = match right {
        GateRight::Plan(stop) => {
            let plan = plan_of(project, id).await?;
            let program = GateProgram { plan, folder, name, argv, env, stdin, secs };
            project.hands.run_gate(program, stop).await?
        }
        GateRight::Person => {
            let program = TriedProgram { folder, name, argv, env, stdin, secs };
            project.hands.try_program(program).await?
        }
    };
    let ended = match ended {
        Ok(ended) => ended,
        Err(why) => return Ok(not_run(why)),
    };
    Ok(judge_end(&ended, (gate.report, gate.runs_tests)))
}

fn not_run(why: String) -> GateJudgement {
    let run = ScriptRun { end: ScriptExit::NotStarted, output: &[], reports: &[], runs_tests: false };
    GateJudgement { summary: why, ..judge_script(&run) }
}

/// Judges the end of a gate's program.
pub(crate) fn judge_end(
    ended: &GateEnd,
    (report, runs_tests): (Option<ReportFormat>, bool),
) -> GateJudgement {
    let end = match &ended.end {
        CheckEnd::Exited { code } => ScriptExit::Exited(*code),
        CheckEnd::Killed { signal } => ScriptExit::Signalled(*signal),
        CheckEnd::TimedOut => ScriptExit::TimedOut,
        CheckEnd::NotRun { reason } => return not_run(reason.clone()),
        CheckEnd::FilesOnly => ScriptExit::NotStarted,
    };
    // As one text: a script's first line is its head, also where other text follows on the other stream.
    let output = format!("{}{}", ended.stdout, ended.stderr);
    // Runners write their report to either; what has been cut cannot be counted.
    let report: Option<(ReportFormat, &str)> =
        report.filter(|_| !ended.is_cut).map(|format| (format, output.as_str()));
    let reports: Vec<(ReportFormat, &str)> = report.into_iter().collect();
    judge_script(&ScriptRun { end, output: output.as_bytes(), reports: &reports, runs_tests })
}

/// Judges what the unit's branch changes, without running anything of it.
async fn judge_diff(
    project: &OpenProject,
    workspace: &UnitWorkspace,
) -> Result<Vec<(String, GateJudgement)>, AutopilotError> {
    let git = project.git.project();
    let (base, tip) = (workspace.base.as_str(), workspace.tip.as_str());
    let changes = changed_paths(git, base, tip).await.map_err(PilotGitError::from)?;
    let is_protected = |path: &str| PROTECTED_FOLDERS.iter().any(|folder| path.starts_with(folder));
    let touched: Vec<String> = changes
        .iter()
        .map(|change| change.path.to_string_lossy().into_owned())
        .filter(|path| is_protected(path))
        .collect();
    let mut judged = Vec::new();
    if !touched.is_empty() {
        let listed = touched.iter().take(MAX_LISTED).cloned().collect::<Vec<_>>().join(", ");
        judged.push((PROTECTED.to_owned(), own_failure(format!("these must stay as they are: {listed}"))));
    }
    let diff = diff_text(git, base, tip).await.map_err(PilotGitError::from)?;
    match find_weakened_tests(&diff) {
        Ok(found) if found.is_empty() => {}
        Ok(found) => {
            let lines: Vec<String> = found
                .iter()
                .take(MAX_LISTED)
                .map(|one| format!("{}:{} {:?}: {}", one.path, one.line, one.kind, one.text))
                .collect();
            judged.push((
                TESTS_KEPT.to_owned(),
                own_failure(format!("tests were weakened:\n{}", lines.join("\n"))),
            ));
        }
        Err(error) => judged.push((TESTS_KEPT.to_owned(), own_failure(error.to_string()))),
    }
    Ok(judged)
}

fn own_failure(why: String) -> GateJudgement {
    let run =
        ScriptRun { end: ScriptExit::Exited(1), output: why.as_bytes(), reports: &[], runs_tests: false };
    let summary: String = why.lines().next().unwrap_or_default().to_owned();
    GateJudgement { summary, ..judge_script(&run) }
}

fn describe(name: &str, judgement: &GateJudgement) -> String {
    let mut text = format!("Gate '{name}' has not passed: {}", judgement.summary);
    for issue in &judgement.issues {
        text.push_str("\n- ");
        text.push_str(issue);
    }
    if !judgement.output.is_empty() {
        text.push_str("\nIts output:\n");
        text.push_str(&judgement.output);
    }
    text
}

async fn record(
    project: &OpenProject,
    work: &WorkClaim,
    (name, judgement): (&String, &GateJudgement),
    (took, max_retries): (Duration, u32),
) -> Result<(), AutopilotError> {
    let failures = work.unit.stand.counters.gate_failures.get(name).copied().unwrap_or(0);
    let row = GateRow {
        key: work.unit.row.key.clone(),
        gate: name.clone(),
        passed: matches!(judgement.verdict, ScriptVerdict::Pass | ScriptVerdict::Skip),
        attempt: failures.saturating_add(1),
        max_retries,
        output: format!("{}\n{}", judgement.summary, judgement.output),
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        at: project.hands.now(),
    };
    project.hands.commit(vec![Op::Units(UnitOp::RecordGate(Box::new(row)))]).await?;
    Ok(())
}
