//! Verification: the harness runs the checks of a step in the verification sandbox and judges the attempt by their results.
//!
//! The sandbox gets a snapshot of the work that is thrown away afterwards, no network, and no variables but `PATH` and `HOME`.
//! The executor's own report has no influence on the verdict. If the executor edited or deleted a file that a check depends on,
//! the attempt fails even if the check passes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use writ_inspect::prepared::Prepared;
use writ_inspect::scope::{WORK, resolve_path};
use writ_plan::judge::judge_check;
use writ_plan::machine::AttemptEnd;
use writ_plan::protect::list_edited_checks;
use writ_policy::budget::Spent;
use writ_sandbox::changes::ChangeSet;
use writ_store::batch::{Batch, Op};
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::LedgerReads as _;
use writ_store::work::{AttemptState, WorkAttempt, WorkOp};
use writ_tools::outcome::{ExecEnd, PerformedOutcome};
use writ_tools::render::render_result;
use writ_types::action::{Action, Exec, ExecProfile};
use writ_types::api::work::CheckEvidence;
use writ_types::digest::Digest;
use writ_types::entry::{GatePoint, GateVerdict};
use writ_types::error::Exit;
use writ_types::taint::{Label, Taint};
use writ_types::work::{
    Check, CheckEnd, Judgement, Observation, Predicate, ProgramOutput, Verdict, WorkStep,
};

use super::evidence::{AttemptEvidence, MAX_OUTPUT_CHARS, stored_text, verdict_name};
use super::{ItemCourse, held, judged, turns};
use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::outcome::outcome_entry;
use crate::perform::{self, Performed};
use crate::place::{self, CallPlace};
use crate::project::{self, Proposed};
use crate::proposals::{commit_news, news};
use crate::services::Services;
use crate::work_calls::worked;
use crate::{judging, passage};

/// The name of a check's run in the ledger, where the name of a tool stands otherwise.
const VERIFY: &str = "verify";
/// The time limit of a check that names none, in seconds: enough for most test suites of one module.
const CHECK_SECS: u32 = 600;
/// The command that tests whether a file exists; every sandbox has this program.
const LOOK: [&str; 2] = ["test", "-e"];
/// The time limit of a test whether a file exists, in seconds.
const LOOK_SECS: u32 = 30;

/// Runs the checks of a step after its executor has ended, and stores the evidence with the verdict. Returns true if
/// something was written.
///
/// # Errors
///
/// If the sandbox or the store cannot be used at all; then the step is checked again later.
pub(super) async fn check_step(
    services: &Arc<Services>,
    course: &ItemCourse,
    step: usize,
) -> Result<bool, EngineError> {
    // Only the last attempt is judged: earlier ones are judged already, or belong to an earlier round.
    let last = course.attempts_at(step).last();
    let ended = last.filter(|attempt| attempt.state == AttemptState::Ended && !attempt.is_held);
    let (Some(plan), Some(attempt)) = (course.steps.get(step), ended) else { return Ok(false) };
    if held::hold(services, course, attempt).await? {
        return Ok(true);
    }
    if turns::waits_for_turn(services, course, attempt).await? {
        return Ok(false);
    }
    // Runs outside the executor's turn and tools, so that the executor can neither see nor change the check.
    let place = place::outside_turn(services, Arc::clone(&course.session)).await?;
    let changes = services.workspace(&course.session).await?.read_changes().await?;
    let mut judgements = Vec::new();
    for check in &plan.checks {
        let seen = observe(&place, check).await?;
        if services.life.stop_now.is_cancelled() {
            // The engine is stopping, so the check may have been cut off: the next start repeats it.
            return Ok(false);
        }
        judgements.push((check, judge_check(check, &seen), seen));
    }
    let mut notices = list_edited_checks(&planned_writes(course, step), &plan.checks, &changes.changes);
    notices.extend(gates_between(&place, course, attempt).await?);
    let verdict = verdict_of(plan, attempt, &judgements, &notices);
    // An attempt that a crash or the end of the budget cut off does not count as a repetition of the same failure.
    let is_cut_off =
        attempt.exit == Some(Exit::Budget.code()) || was_cut_off(services, course, attempt).await?;
    let cut_off = is_cut_off.then_some(attempt.n);
    let end = AttemptEnd { verdict, trace: trace_of(&changes, &judgements, &notices, (attempt, cut_off))? };
    let state = judged(course, step, end);
    let shown =
        judgements.iter().map(|(check, judgement, seen)| evidence_of(services, check, judgement, seen));
    let evidence = AttemptEvidence { checks: shown.collect(), notices };
    let reason = reason_of(&evidence, verdict);
    let item = &course.item;
    let mut steps = course.rows.clone();
    if let Some(row) = steps.get_mut(step) {
        row.state = state;
    }
    let text = format!("attempt {}: {reason}", attempt.n);
    let ops = vec![
        worked(&services.journal, item, &plan.id, verdict_name(verdict), &reason),
        Op::Work(WorkOp::Judge {
            item: item.id,
            step,
            n: attempt.n,
            verdict: verdict_name(verdict).to_owned(),
            trace: end.trace.to_string(),
            evidence: stored_text(evidence)?,
            state,
            at: services.journal.clock.now(),
        }),
        news(services, item, &steps, (item.state, &plan.id, &text)),
    ];
    commit_news(services, item, Batch::relaxed(ops)).await?;
    Ok(true)
}

/// Returns the paths that the steps begun so far may change; the work folder holds the changes of all of them.
fn planned_writes(course: &ItemCourse, step: usize) -> Vec<String> {
    let has_begun = |n: usize| n == step || course.attempts_at(n).next().is_some();
    let begun = course.steps.iter().enumerate().filter(|(n, _)| has_begun(*n));
    begun.flat_map(|(_, step)| step.writes.iter().cloned()).collect()
}

/// Joins the judgements of the checks. Any notice means failure. A step without checks passes if the executor's turn ended
/// well, which proves nothing about the work.
fn verdict_of(
    plan: &WorkStep,
    attempt: &WorkAttempt,
    judgements: &[(&Check, Judgement, Observation)],
    notices: &[String],
) -> Verdict {
    let joined = Verdict::join_all(judgements.iter().map(|(_, judgement, _)| judgement.verdict));
    let is_ended_well = attempt.exit == Some(Exit::Done.code());
    // An edited check proves nothing, however well it has passed.
    if !notices.is_empty() {
        return Verdict::Fail;
    }
    match (plan.checks.is_empty(), is_ended_well) {
        (true, true) => Verdict::Pass,
        (true, false) => Verdict::Fail,
        (false, _) => joined,
    }
}

/// Returns the digest of an attempt's changes and results, by which a repetition of the same failure is recognised. The output
/// of programs is left out, because it contains times and addresses that differ each time.
fn trace_of(
    changes: &ChangeSet,
    judgements: &[(&Check, Judgement, Observation)],
    notices: &[String],
    (attempt, cut_off): (&WorkAttempt, Option<u32>),
) -> Result<Digest, EngineError> {
    let files: Vec<(&str, Option<Digest>)> =
        changes.changes.iter().map(|change| (change.path.as_str(), change.after)).collect();
    let findings: Vec<(&str, &str)> = judgements
        .iter()
        .flat_map(|(_, judgement, _)| &judgement.findings)
        .map(|finding| (finding.predicate.as_str(), verdict_name(finding.verdict)))
        .collect();
    // If there are checks, the way the turn ended is left out: the same failure may end in different ways.
    let exit = if judgements.is_empty() { attempt.exit } else { None };
    Ok(Digest::of_canonical(&(files, findings, notices, exit, cut_off))?)
}

/// Returns true if the turn of an attempt was interrupted by the end of the engine and resumed later.
async fn was_cut_off(
    services: &Services,
    course: &ItemCourse,
    attempt: &WorkAttempt,
) -> Result<bool, EngineError> {
    let query = LedgerQuery {
        event: Some("phase".to_owned()),
        session: Some(course.session.id),
        text: Some("\"resumed\"".to_owned()),
        since: Some(attempt.began_at),
        limit: 1,
        ..LedgerQuery::default()
    };
    Ok(!services.journal.store.ledger_search(&query).await?.is_empty())
}

fn evidence_of(
    services: &Services,
    check: &Check,
    judgement: &Judgement,
    seen: &Observation,
) -> CheckEvidence {
    let findings = judgement.findings.iter().map(|finding| {
        format!("{} {}: {}", finding.predicate, verdict_name(finding.verdict), finding.reason)
    });
    let redactor = &services.journal.redactor;
    let output = format!("{}{}", seen.stdout.text, seen.stderr.text);
    let count = output.chars().count();
    let end: String = output.chars().skip(count.saturating_sub(MAX_OUTPUT_CHARS)).collect();
    CheckEvidence {
        name: check.name.clone(),
        run: check.run.clone(),
        verdict: verdict_name(judgement.verdict).to_owned(),
        findings: findings.map(|finding| redactor.mask_text(&finding).into_owned()).collect(),
        output: redactor.mask_text(&end).into_owned(),
    }
}

/// Returns one line about the checks of an attempt.
fn reason_of(evidence: &AttemptEvidence, verdict: Verdict) -> String {
    let failed = evidence.checks.iter().filter(|check| check.verdict != "pass");
    let names: Vec<String> = failed.map(|check| format!("{} ({})", check.name, check.verdict)).collect();
    match verdict {
        Verdict::Pass if evidence.checks.is_empty() => "ended; it has no checks".to_owned(),
        Verdict::Pass => format!("all {} checks have passed", evidence.checks.len()),
        Verdict::Fail | Verdict::NotRun => {
            let parts = evidence.notices.iter().cloned().chain(names);
            match parts.collect::<Vec<_>>().join("; ") {
                none if none.is_empty() => "the executor did not end well".to_owned(),
                parts => parts,
            }
        }
    }
}

/// Asks the gates that the plan names for the time between attempts to judge the executor's text. Returns their objections.
async fn gates_between(
    place: &CallPlace,
    course: &ItemCourse,
    attempt: &WorkAttempt,
) -> Result<Vec<String>, EngineError> {
    if course.document.gates.is_empty() {
        return Ok(Vec::new());
    }
    let cancel = place.services.life.stop_now.child_token();
    let record = judging::judge_text(place, GatePoint::Output, &attempt.said, &cancel).await?;
    place.commit(record.ops).await?;
    let named = |gate: &str| course.document.gates.iter().any(|named| named == gate);
    let blocks = record.judged.verdicts.iter().filter(|(gate, verdict, _)| {
        named(gate)
            && matches!(verdict, GateVerdict::Block | GateVerdict::Halt | GateVerdict::RequireApproval)
    });
    Ok(blocks.map(|(gate, _, why)| format!("gate '{gate}': {why}")).collect())
}

/// Runs a check and finds out which of the files that it names exist.
async fn observe(place: &CallPlace, check: &Check) -> Result<Observation, EngineError> {
    let (mut files, stop) = (BTreeMap::new(), place.services.life.stop_now.child_token());
    for expected in &check.expect {
        let Predicate::FileExists { path } = expected else { continue };
        if !is_inside(path) {
            // A file outside the work folder cannot be a result of the step.
            continue;
        }
        let argv = LOOK.iter().map(|word| (*word).to_owned()).chain([path.clone()]).collect();
        let look = ProgramRun { name: &check.name, argv, dir: None, stdin: None, secs: LOOK_SECS };
        if let Ok(seen) = run(place, look, &stop).await? {
            match seen.end {
                CheckEnd::Exited { code: 0 } => files.insert(path.clone(), true),
                CheckEnd::Exited { code: 1 } => files.insert(path.clone(), false),
                CheckEnd::Exited { .. }
                | CheckEnd::Killed { .. }
                | CheckEnd::TimedOut
                | CheckEnd::FilesOnly
                | CheckEnd::NotRun { .. } => None,
            };
        }
    }
    if check.run.is_empty() {
        let (stdout, stderr) = (ProgramOutput::default(), ProgramOutput::default());
        return Ok(Observation { end: CheckEnd::FilesOnly, stdout, stderr, files });
    }
    let limit = check.timeout_secs.unwrap_or(CHECK_SECS);
    let program = ProgramRun {
        name: &check.name,
        argv: check.run.clone(),
        dir: check.dir.as_deref(),
        stdin: None,
        secs: limit,
    };
    let ran = run(place, program, &stop).await?;
    let seen = ran.unwrap_or_else(Observation::not_run);
    Ok(Observation { files, ..seen })
}

/// Returns true if a path stays inside the work.
fn is_inside(path: &str) -> bool {
    let resolved = resolve_path(WORK, path);
    resolved.strip_prefix(WORK).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A program to be run in the verification sandbox.
#[derive(Clone, Debug)]
pub(crate) struct ProgramRun<'a> {
    /// Its name, for people.
    pub(crate) name: &'a str,
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    /// The folder that it runs in, inside the work.
    pub(crate) dir: Option<&'a str>,
    /// The text that it reads.
    pub(crate) stdin: Option<String>,
    /// The time limit, in seconds.
    pub(crate) secs: u32,
}

/// Runs a program in the verification sandbox until it ends or is stopped. It passes the door like every action. The inner
/// error says why it was not run.
///
/// # Errors
///
/// If the sandbox or the store cannot be used.
pub(crate) async fn run(
    place: &CallPlace,
    ProgramRun { name, argv, dir, stdin, secs }: ProgramRun<'_>,
    stop: &CancellationToken,
) -> Result<Result<Observation, String>, EngineError> {
    let services = &place.services;
    let cwd = resolve_path(WORK, dir.unwrap_or_default());
    if !is_inside(&cwd) {
        return Ok(Err("its folder is outside the work folder".to_owned()));
    }
    let prepared = Prepared {
        action: Action::Exec(Exec {
            argv,
            cwd,
            env: BTreeMap::new(),
            stdin,
            timeout_ms: u64::from(secs).saturating_mul(1_000),
            profile: ExecProfile::Verification,
            hosts: Vec::new(),
        }),
        agent: services.config.agent.clone(),
        session: Some(place.session.id),
        turn: None,
        turn_number: 0,
        call: None,
        tool: VERIFY.to_owned(),
        sinks: Vec::new(),
        label: Label::new(Taint::Owner),
        bindings: BTreeMap::new(),
        // A check changes nothing, so it can be repeated after a crash.
        idempotent: true,
        intent: format!("check '{name}'"),
    };
    let standing = RequestContext::of(&place.authority, Spent::default());
    let permit = match passage::pass(services, prepared, standing).await? {
        Passage::Permit(permit) => permit,
        Passage::Denied(denial) => return Ok(Err(denial.text)),
        Passage::Ask(ask) => return Ok(Err(format!("it would need an approval: {}", ask.reason))),
        Passage::Simulated(_) => {
            return Ok(Err("its session only simulates, so nothing is run".to_owned()));
        }
    };
    let attempt = permit.attempt();
    let Performed { prepared, mut outcome, mut ops, .. } = perform::perform(place, *permit, stop).await?;
    let rendered = render_result(&prepared, &mut outcome, &services.journal.redactor);
    ops.push(services.journal.entry(place.session.id, None, outcome_entry(attempt, &rendered)));
    place.commit(ops).await?;
    let PerformedOutcome::Exec { end, stdout, stderr, dropped_bytes } = outcome else {
        return Ok(Err(rendered.text.into_string()));
    };
    let end = match end {
        ExecEnd::Code(127) if stderr.starts_with("there is no such program") => {
            CheckEnd::NotRun { reason: "there is no such program in the sandbox".to_owned() }
        }
        ExecEnd::Code(code) => CheckEnd::Exited { code },
        ExecEnd::Signal(signal) => CheckEnd::Killed { signal },
        ExecEnd::TimedOut(_) => CheckEnd::TimedOut,
        ExecEnd::Limit(limit) => CheckEnd::NotRun { reason: format!("it reached a limit: {limit}") },
        ExecEnd::Cancelled => CheckEnd::NotRun { reason: "it was stopped".to_owned() },
    };
    let output = |text: String| ProgramOutput { text, is_cut: dropped_bytes > 0 };
    Ok(Ok(Observation { end, stdout: output(stdout), stderr: output(stderr), files: BTreeMap::new() }))
}

/// Applies the verified changes of an item to its project, under the key of its plan. The inner error says why they were not
/// applied.
///
/// # Errors
///
/// If sandbox or store cannot be used.
pub(super) async fn bring_out(
    services: &Arc<Services>,
    course: &ItemCourse,
) -> Result<Result<(), String>, EngineError> {
    let place = place::outside_turn(services, Arc::clone(&course.session)).await?;
    let stop = services.life.stop_now.child_token();
    Ok(match project::propose(&place, &stop).await? {
        Proposed::Settled(settled) if settled.exit == Exit::Done => Ok(()),
        Proposed::Settled(settled) => Err(settled.text().unwrap_or_default()),
        Proposed::Asked(ask) => Err(format!("its changes wait for an approval: {ask}")),
        Proposed::Simulated => Err("its session only simulates, so nothing is changed".to_owned()),
        Proposed::Refused { text, .. } => Err(text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_the_work_folder_are_not_looked_for() {
        for inside in ["a", "./a/b", "a/../b", "", "."] {
            assert!(is_inside(inside), "{inside}");
        }
        for outside in ["../a", "/etc/passwd", "a/../../b", "/workshop"] {
            assert!(!is_inside(outside), "{outside}");
        }
    }
}
