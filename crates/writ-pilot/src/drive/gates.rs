//! The phase verify: gates are run by the harness in the verification sandbox, and tests that were weakened are a failure of their own.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use writ_autopilot::check::counts::ReportFormat;
use writ_autopilot::check::{GateJudgement, ScriptExit, ScriptRun, ScriptVerdict, judge_script};
use writ_autopilot::failure::FailureCode;
use writ_autopilot::machine::UnitEvent;
use writ_autopilot::unit_id::UnitType;
use writ_runtime::pilot::{GateEnd, GateProgram, PilotHands, TriedProgram};
use writ_store::batch::Op;
use writ_store::units::{GateRow, UnitOp};
use writ_types::unit::{MicroUsd, Tokens};
use writ_types::work::CheckEnd;

use super::baseline::compare_with_base;
use super::diff::{PROTECTED, TESTS_KEPT, judge_diff, rules_of};
use super::gate_input::{GateInput, GateSubject, describe as describe_input};
use super::report_file::{split_report, with_report};
use super::{PhaseResult, WorkClaim, plan_of};
use crate::config::{GateCommand, GateMoment, PilotConfig, PilotGate};
use crate::error::AutopilotError;
use crate::project::OpenProject;

/// What a person reads of work that no gate has proven.
const NO_PROOF: &str = "no gate has proven anything: name one in the settings, and let the unit go on";

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
    let rules = rules_of(project, id).await?;
    let of_diff = judge_diff(project, &rules, (&workspace.base, &workspace.tip)).await?;
    let took = started.elapsed();
    // A change of the checks themselves makes their results worth nothing, so they are not run.
    let is_touched = of_diff.iter().any(|(name, _)| name == PROTECTED);
    let mut judged: Vec<JudgedGate> =
        of_diff.into_iter().map(|(name, judged)| (name, judged, took)).collect();
    let (config, flow) = (project.config(), project.flow_of(&work.unit).await?);
    for gate in gates_for(&config, moment).into_iter().filter(|_| !is_touched) {
        let started = Instant::now();
        let subject = GateSubject { id, gate, work: Some(work) };
        let mut run = run_gate(project, subject, &workspace.folder, GateRight::Plan(stop)).await?;
        if !rules.allows_tests() {
            compare_with_base(project, subject, &workspace.base, &mut run, stop).await?;
        }
        judged.push((gate.name.clone(), run.judged, started.elapsed()));
        // What was ended from outside shows nothing, and the next gate would not either.
        if stop.is_cancelled() {
            break;
        }
    }
    let is_advice = |name: &str| config.gates.iter().any(|gate| gate.name == name && !gate.required);
    let mut gates = Vec::new();
    for (name, judgement, took) in &mut judged {
        record(project, work, (name, judgement), (*took, flow.retries_of(name))).await?;
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
    let code = failed.iter().find_map(|(_, judgement, _)| judgement.code);
    let words: Vec<String> = failed.iter().map(|(name, judgement, _)| describe(name, judgement)).collect();
    let summaries: Vec<String> =
        failed.iter().map(|(name, one, _)| format!("{name}: {}", one.summary)).collect();
    // What nothing has proven waits for a person, who is to know why.
    let is_unproven = failed.is_empty() && !gates.iter().any(|(_, verdict)| *verdict == ScriptVerdict::Pass);
    Ok(PhaseResult {
        event: UnitEvent::Gates(gates),
        outcome: if failed.is_empty() { "success" } else { "failure" },
        code: if failed.is_empty() { None } else { code.or(Some(FailureCode::GateFailed)) },
        reason: if is_unproven { NO_PROOF.to_owned() } else { summaries.join("; ") },
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

/// A gate that was run.
#[derive(Debug)]
pub(super) struct GateRun {
    /// Its judgement.
    pub(super) judged: GateJudgement,
    /// Set if its program has ended by its own exit, with any code.
    pub(super) has_exited: bool,
    /// Set if its program has ended with 0, which is a claim and no proof.
    pub(super) has_exited_well: bool,
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
    subject: GateSubject<'_>,
    folder: &Path,
    right: GateRight<'_>,
) -> Result<GateRun, AutopilotError> {
    let GateInput { env, stdin } = describe_input(project, subject, folder).await?;
    let (id, gate) = (subject.id, subject.gate);
    let mark = mark_of(&project.hands);
    let argv = argv_of(gate, &mark);
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
        Err(why) => return Ok(GateRun { judged: not_run(why), has_exited: false, has_exited_well: false }),
    };
    let has_exited = matches!(ended.end, CheckEnd::Exited { .. });
    let has_exited_well = ended.end == CheckEnd::Exited { code: 0 };
    Ok(GateRun { judged: judge_gate(gate, &ended, &mark), has_exited, has_exited_well })
}

/// Returns the line that parts the output of a gate's program from its report: the program cannot know it.
pub(crate) fn mark_of(hands: &PilotHands) -> String {
    format!("writ-report-{}", hands.ids().item(hands.now()))
}

/// Returns the program of a gate with its arguments; `mark`: the line before its report, where that is a file.
pub(crate) fn argv_of(gate: &PilotGate, mark: &str) -> Vec<String> {
    let argv = match &gate.command {
        GateCommand::Run(argv) => argv.clone(),
        // By its own first line, as its author meant it.
        GateCommand::Script(path) => vec![format!("./{path}")],
    };
    match &gate.report_file {
        Some(file) => with_report(&argv, file, mark),
        None => argv,
    }
}

fn not_run(why: String) -> GateJudgement {
    let run = ScriptRun { end: ScriptExit::NotStarted, output: &[], reports: &[], runs_tests: false };
    GateJudgement { summary: why, ..judge_script(&run) }
}

/// Judges the end of a gate's program, which was run with the same `mark`.
pub(crate) fn judge_gate(gate: &PilotGate, ended: &GateEnd, mark: &str) -> GateJudgement {
    let (stdout, written) = split_report(&ended.stdout, mark);
    // As one text: a script's first line is its head, also where other text follows on the other stream.
    let output = format!("{stdout}{}", ended.stderr);
    let report = if gate.report_file.is_some() { written } else { output.as_str() };
    let judged = judge_texts(ended, (&output, report), (gate.report, gate.runs_tests));
    let (ran, least) = (judged.counts.executed(), gate.min_tests);
    // Of hidden tests the owner knows the number, and a program that forges its report does not.
    let is_other = ran < least || (gate.hidden.is_some() && least > 0 && ran != least);
    if ended.end == (CheckEnd::Exited { code: 0 }) && is_other {
        let summary = format!("{ran} tests ran; at least {least} have to");
        return GateJudgement { verdict: ScriptVerdict::Fail, summary, ..judged };
    }
    judged
}

/// Judges the end of a program that is tried as a gate.
pub(crate) fn judge_end(
    ended: &GateEnd,
    (report, runs_tests): (Option<ReportFormat>, bool),
) -> GateJudgement {
    let output = format!("{}{}", ended.stdout, ended.stderr);
    judge_texts(ended, (&output, &output), (report, runs_tests))
}

fn judge_texts(
    ended: &GateEnd,
    (output, report): (&str, &str),
    (format, runs_tests): (Option<ReportFormat>, bool),
) -> GateJudgement {
    let end = match &ended.end {
        CheckEnd::Exited { code } => ScriptExit::Exited(*code),
        CheckEnd::Killed { signal } => ScriptExit::Signalled(*signal),
        CheckEnd::TimedOut => ScriptExit::TimedOut,
        CheckEnd::NotRun { reason } => return not_run(reason.clone()),
        CheckEnd::FilesOnly => ScriptExit::NotStarted,
    };
    // Runners write their report to either; what has been cut cannot be counted.
    let reports: Vec<(ReportFormat, &str)> =
        format.filter(|_| !ended.is_cut).map(|format| (format, report)).into_iter().collect();
    judge_script(&ScriptRun { end, output: output.as_bytes(), reports: &reports, runs_tests })
}

pub(super) fn describe(name: &str, judgement: &GateJudgement) -> String {
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

/// Writes the result of a gate down.
///
/// # Errors
///
/// If the store cannot be written.
pub(super) async fn record(
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
