//! The phases in which an agent works: its prompt, its attempt, and what is taken from its words.
//!
//! An agent's word decides nothing about the work: files count once they are committed, plans, reviews and decisions once they are
//! read without a mistake, and the gates are run by the harness.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use writ_autopilot::attempt::{RunEnd, TurnMarker};
use writ_autopilot::blocker::PauseCause;
use writ_autopilot::machine::{AttemptReport, MachineError, UnitEvent};
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::reassess::{ReassessDecision, parse_answer};
use writ_autopilot::unit_plan::{read_unit_plan, set_plan_version};
use writ_autopilot::units::PilotUnit;
use writ_autopilot::workflow::PhaseFlow;
use writ_runtime::pilot::{AttemptLook, AttemptOutcome, NewAttempt};
use writ_types::api::work::WorkState;
use writ_types::error::{Exit, ToReport as _};
use writ_types::id::ItemId;
use writ_types::unit::{MicroUsd, Tokens};

use super::choice::{choose_model, note_choice, note_self_rating};
use super::question::judge_question;
use super::supervise::{AttemptClock, find_end, next_look};
use super::trail::{FailureTrail, read_trail};
use super::{PhaseResult, WorkClaim, fault, outcome_name, plan_of};
use crate::circuits::note_calls;
use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::prompts::{PromptFinding, ReassessPrompt, RetryNote, ReviewPrompt, UnitPrompt, describe_issue};
use crate::standing::UnitRecord;
use crate::unit_files::UnitFile;
use crate::workspace::{CommitResult, UnitWorkspace};

mod reply;

use reply::{json_object, plan_text};

/// The place of an error's whole text, as prompts name it.
const LAST_ERROR_PLACE: &str = "`writ pilot show`";
/// The most characters of a reply that a commit's message has.
const MAX_SUMMARY_CHARS: usize = 2_000;

/// An attempt that has ended.
pub(super) struct WorkEnd {
    pub(super) end: RunEnd,
    pub(super) said: String,
    reason: String,
    /// Set if a person has to do something before another try.
    pause: Option<PauseCause>,
    /// The code of the error, where the end alone does not say it.
    code: Option<&'static str>,
    pub(super) used: (Tokens, Tokens, MicroUsd),
}

/// Works on a unit in a phase of research, planning or code.
///
/// # Errors
///
/// If git, the engine or the store fail.
pub(super) async fn work_in_phase(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    stop: &CancellationToken,
) -> Result<PhaseResult, AutopilotError> {
    let (id, phase) = (work.unit.id, work.unit.stand.phase);
    let own = project.work_of(id).await?;
    let workspace = project.git.ensure_workspace(&own, &project.target).await?;
    let prompt = prompt_of(project, work, &project.flow_of(&work.unit).await?, PromptKind::Work).await?;
    // Notes and plans are taken from the reply: files that such an attempt writes are thrown away.
    let reads_only = matches!(phase, PilotPhase::Research | PilotPhase::Plan);
    let ended = run_agent(project, work, (workspace.folder.clone(), prompt, reads_only), stop).await?;
    if ended.end != RunEnd::Success {
        return Ok(ended_badly(ended));
    }
    let said = ended.said.clone();
    let result = match phase {
        PilotPhase::Research => take_research(project, work, ended),
        PilotPhase::Plan => take_plan(project, work, ended),
        PilotPhase::Execute
        | PilotPhase::Tdd
        | PilotPhase::Verify
        | PilotPhase::Review
        | PilotPhase::Merge
        | PilotPhase::Complete
        | PilotPhase::Reassess
        | PilotPhase::Uat => take_code(project, work, &workspace, ended).await,
    }?;
    Ok(judge_question(project.config().input_required, &said, result))
}

/// The kind of prompt that an attempt begins with.
pub(super) enum PromptKind<'a> {
    /// That of a phase of work.
    Work,
    /// That of one pass of a review.
    Review(ReviewPrompt<'a>, &'a [PromptFinding]),
    /// That of a decision, after all that has failed.
    Reassess(&'a FailureTrail),
}

/// Writes the prompt of an attempt.
pub(super) async fn prompt_of(
    project: &OpenProject,
    work: &WorkClaim,
    flow: &PhaseFlow,
    kind: PromptKind<'_>,
) -> Result<String, AutopilotError> {
    let (unit, files) = (&work.unit, &project.files);
    let read = |file| files.read_file(unit.id, file);
    let (error, plan, notes) = (read(UnitFile::LastError)?, read(UnitFile::Plan)?, read(UnitFile::Research)?);
    let gates: Vec<String> = project.config().gates.iter().map(|gate| gate.name.clone()).collect();
    let (session, now) = (project.session.to_string(), project.hands.now().to_string());
    // A gate or a review that sends work back is no failed attempt, and the next attempt needs its words.
    let failures = unit.stand.counters.failures.max(1);
    let model = choose_model(project, work).await?.model.ok().flatten();
    let has = |text: &str| !text.trim().is_empty();
    let retry = has(&error).then_some(RetryNote { failures, error: &error, path: LAST_ERROR_PLACE });
    let input = UnitPrompt {
        unit_id: unit.id,
        phase: unit.stand.phase,
        session_id: &session,
        issue: describe_issue(&planned_unit(unit)),
        retry,
        plan: has(&plan).then_some(plan.as_str()),
        plan_path: "plan.md",
        plan_version: unit.stand.counters.replans.saturating_add(1),
        notes: has(&notes).then_some(notes.as_str()),
        gates: &gates,
        findings: &[],
        now: &now,
        model: model.as_deref().unwrap_or("executor"),
    };
    let text = match kind {
        PromptKind::Work => project.prompts.render_work(&input),
        PromptKind::Review(review, findings) => {
            project.prompts.render_review(&UnitPrompt { findings, ..input }, &review)
        }
        PromptKind::Reassess(trail) => {
            let reassess = ReassessPrompt {
                failures: &trail.failures,
                commits: &trail.commits,
                replans_left: replans_left(flow, unit),
                decision_tool: None,
            };
            project.prompts.render_reassess(&input, &reassess)
        }
    };
    text.map_err(|error| error.report().into())
}

/// Returns how often a unit may still be planned anew.
const fn replans_left(flow: &PhaseFlow, unit: &UnitRecord) -> u32 {
    flow.max_reassess.saturating_sub(unit.stand.counters.replans)
}

fn planned_unit(unit: &UnitRecord) -> PilotUnit {
    PilotUnit {
        id: unit.id,
        title: unit.row.title.clone(),
        description: unit.row.description.clone(),
        priority: unit.row.priority,
        workflow: Some(unit.row.workflow.clone()),
        blocked_by: unit.facts.blocked_by.iter().copied().collect(),
        code_depends_on: unit.facts.code_depends_on.iter().copied().collect(),
        archived_at: None,
    }
}

/// Runs one attempt to its end.
pub(super) async fn run_agent(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    (folder, instructions, reads_only): (PathBuf, String, bool),
    stop: &CancellationToken,
) -> Result<WorkEnd, AutopilotError> {
    let unit = &work.unit;
    let config = project.config();
    let choice = choose_model(project, work).await?;
    let model = match &choice.model {
        Ok(model) => model.clone(),
        Err(none) => {
            let held = held(PauseCause::Supervisor, none.why.clone());
            return Ok(WorkEnd { code: Some(none.code), ..held });
        }
    };
    let max_cost = work.course.left();
    if max_cost == Some(MicroUsd::ZERO) {
        return Ok(held(PauseCause::Ceiling, "what it was allowed to spend is spent".to_owned()));
    }
    let new = NewAttempt {
        plan: plan_of(project, unit.id).await?,
        folder,
        unit: unit.id.to_string(),
        title: format!("{}: {}", unit.stand.phase.name(), unit.row.title),
        instructions,
        max_tokens: None,
        max_cost,
        reads_only,
        model: model.clone(),
        terms: config.attempt_terms(unit.stand.phase, choice.tier),
    };
    note_choice(project, &choice).await?;
    let item = project.hands.start_attempt(new, Vec::new()).await?;
    let mut ended = await_end(project, work, item, stop).await?;
    // The passes of a review share what the review may spend.
    work.course.spend(ended.used.2);
    if ended.end != RunEnd::Interrupted || !project.hands.draining().is_cancelled() {
        let calls = project.hands.read_calls(item).await?;
        if ended.end == RunEnd::Failure && asked_to_the_end(calls.models.len(), config.max_turns) {
            let most = config.max_turns;
            // No ceiling of money, also where there is one: another attempt may be shorter.
            (ended.pause, ended.code, ended.reason) =
                (None, None, format!("its model was asked {most} times: `max_turns_per_attempt`"));
        }
        if let Some(model) = model {
            project.seen.note_model(&model, &calls.models);
        }
        note_calls(project, choice.tier.name(), &calls).await?;
        work.course.add_calls(calls);
    }
    Ok(ended)
}

/// Returns true if an attempt has asked its model as often as it may.
fn asked_to_the_end(asked: usize, most: u32) -> bool {
    usize::try_from(most).is_ok_and(|most| asked >= most)
}

/// Waits for the end of an attempt, or brings it about.
async fn await_end(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    item: ItemId,
    stop: &CancellationToken,
) -> Result<WorkEnd, AutopilotError> {
    let is_draining = project.hands.draining();
    let mut clock = AttemptClock::start();
    loop {
        let woken = project.hands.wake();
        let signs = match project.hands.look_at_attempt(item).await? {
            AttemptLook::Ended(outcome) => return Ok(end_of(outcome, work.course.promised)),
            AttemptLook::Running { signs, .. } => signs,
        };
        let (config, spent) = (project.config(), clock.look(&signs));
        let limit = config.times.unit_timeout(work.unit.stand.phase);
        let found = find_end(&config, (&signs, spent, limit), project.hands.now());
        let rest = next_look(&config, (&signs, spent, limit), project.hands.now());
        let ended = match found {
            Some(found) => Some(found),
            None => tokio::select! {
                () = is_draining.cancelled() => return Ok(stopped(RunEnd::Interrupted)),
                () = stop.cancelled() => Some((RunEnd::Canceled, "it was ended from outside".to_owned())),
                () = work.course.is_void.cancelled() => {
                    Some((RunEnd::Interrupted, "a unit that it rests on was abandoned".to_owned()))
                }
                () = woken => None,
                () = tokio::time::sleep(rest) => None,
            },
        };
        if let Some((end, why)) = ended {
            project.hands.end_attempt(item, &why).await?;
            // The tokens used until now are paid, also without a result.
            let used = match project.hands.look_at_attempt(item).await? {
                AttemptLook::Ended(outcome) => (outcome.input, outcome.output, outcome.cost),
                AttemptLook::Running { tokens, cost, .. } => (tokens, Tokens::ZERO, cost),
            };
            return Ok(WorkEnd { reason: why, used, ..stopped(end) });
        }
    }
}

/// An attempt that does not begin, since a person has to put something in order.
fn held(cause: PauseCause, reason: String) -> WorkEnd {
    WorkEnd { reason, pause: Some(cause), ..stopped(RunEnd::Interrupted) }
}

fn stopped(end: RunEnd) -> WorkEnd {
    WorkEnd {
        end,
        said: String::new(),
        reason: String::new(),
        pause: None,
        code: None,
        used: (Tokens::ZERO, Tokens::ZERO, MicroUsd::ZERO),
    }
}

fn end_of(outcome: AttemptOutcome, promised: Option<MicroUsd>) -> WorkEnd {
    let end = match outcome.state {
        WorkState::Done => RunEnd::Success,
        WorkState::Cancelled => RunEnd::Canceled,
        WorkState::Proposed
        | WorkState::Running
        | WorkState::Paused
        | WorkState::Consulting
        | WorkState::Stuck
        | WorkState::OverBudget
        | WorkState::Failed
        | WorkState::Denied => RunEnd::Failure,
    };
    let used = (outcome.input, outcome.output, outcome.cost);
    // A ceiling is no failure: another try would meet it, too.
    let is_spent =
        outcome.state == WorkState::OverBudget || (outcome.exit == Some(Exit::Budget) && promised.is_some());
    // What is set up wrongly fails every attempt of every unit alike.
    let is_misconfigured = outcome.exit == Some(Exit::Config) && end == RunEnd::Failure;
    let pause = match is_spent {
        true => Some(PauseCause::Ceiling),
        false => is_misconfigured.then_some(PauseCause::Supervisor),
    };
    let reason = match promised.filter(|_| is_spent) {
        Some(most) => format!("{}; it might spend {most}, and has spent {}", outcome.reason, outcome.cost),
        // A person has to know what to put in order.
        None if is_misconfigured && !outcome.said.is_empty() => outcome.said.clone(),
        None => outcome.reason,
    };
    // Nothing more could leave its context, or a budget of the engine is used up: the next one begins anew.
    let code = (outcome.exit == Some(Exit::Budget) && pause.is_none()).then_some("budget_exhausted");
    WorkEnd { end, said: outcome.said, reason, pause, code, used }
}

pub(super) fn ended_badly(ended: WorkEnd) -> PhaseResult {
    let report = AttemptReport { end: ended.end, marker: None, has_progress: false, is_met: false };
    let why = if ended.reason.is_empty() {
        "the attempt has ended without a result".to_owned()
    } else {
        ended.reason
    };
    let by_end = match ended.end {
        _ if ended.pause == Some(PauseCause::Ceiling) => "budget_exhausted",
        _ if ended.pause.is_some() => "model_unavailable",
        RunEnd::UnitTimeout => "unit_timeout",
        RunEnd::TurnTimeout => "turn_timeout",
        RunEnd::Stalled => "stalled",
        RunEnd::Success | RunEnd::Failure | RunEnd::Abandoned | RunEnd::Canceled | RunEnd::Interrupted => {
            "agent"
        }
    };
    let code = ended.code.unwrap_or(by_end);
    PhaseResult {
        event: ended.pause.map_or(UnitEvent::End(report), UnitEvent::Pause),
        outcome: outcome_name(ended.end),
        code: code.to_owned(),
        reason: why.clone(),
        last_error: Some(why),
        used: ended.used,
    }
}

/// A clean end, with what the harness has seen of it.
fn ended_well(ended: &WorkEnd, (has_progress, is_met): (bool, bool), missing: Option<String>) -> PhaseResult {
    let marker = TurnMarker::find_in(&ended.said);
    PhaseResult {
        event: UnitEvent::End(AttemptReport { end: RunEnd::Success, marker, has_progress, is_met }),
        outcome: outcome_name(RunEnd::Success),
        code: String::new(),
        reason: match marker {
            Some(TurnMarker::Blocked | TurnMarker::GivingUp) => cut_words(&ended.said),
            Some(TurnMarker::Complete) | None => missing.clone().unwrap_or_default(),
        },
        last_error: missing,
        used: ended.used,
    }
}

/// The same attempt as a failed one, since nothing can be done with its words.
fn unusable(ended: &WorkEnd, code: &str, why: String) -> PhaseResult {
    PhaseResult { used: ended.used, ..fault(code, why) }
}

fn cut_words(text: &str) -> String {
    text.trim().chars().take(MAX_SUMMARY_CHARS).collect()
}

fn take_research(
    project: &OpenProject,
    work: &WorkClaim,
    ended: WorkEnd,
) -> Result<PhaseResult, AutopilotError> {
    if ended.said.trim().is_empty() {
        return Ok(unusable(&ended, "pilot.no_research", "the reply was empty".to_owned()));
    }
    project.files.write_file(work.unit.id, UnitFile::Research, &ended.said)?;
    Ok(ended_well(&ended, (true, true), None))
}

fn take_plan(project: &OpenProject, work: &WorkClaim, ended: WorkEnd) -> Result<PhaseResult, AutopilotError> {
    if matches!(TurnMarker::find_in(&ended.said), Some(TurnMarker::Blocked | TurnMarker::GivingUp)) {
        return Ok(ended_well(&ended, (false, false), None));
    }
    let text = plan_text(&ended.said);
    match read_unit_plan(text, work.unit.id) {
        Ok(_) => {
            let version = work.unit.stand.counters.replans.saturating_add(1);
            let text = set_plan_version(text, version);
            tracing::info!(unit = %work.unit.id, version, "a unit is planned");
            project.files.write_file(work.unit.id, UnitFile::Plan, &text)?;
            Ok(ended_well(&ended, (true, true), None))
        }
        Err(error) => Ok(unusable(&ended, "pilot.unit_plan", error.to_string())),
    }
}

async fn take_code(
    project: &OpenProject,
    work: &WorkClaim,
    workspace: &UnitWorkspace,
    ended: WorkEnd,
) -> Result<PhaseResult, AutopilotError> {
    if work.unit.stand.phase == PilotPhase::Execute {
        note_self_rating(project, work, (&ended.said, ended.used.2)).await?;
    }
    let own = project.work_of(work.unit.id).await?;
    let message = format!("{}\n\n{}", work.unit.row.title, cut_words(&ended.said));
    let committed = project.git.commit_workspace(&own, &message).await?;
    let has_progress = matches!(committed, CommitResult::Committed { .. });
    // A phase of code that has left nothing since the branch began has done nothing.
    let is_there = has_progress || workspace.tip != workspace.base;
    let is_complete = TurnMarker::find_in(&ended.said) == Some(TurnMarker::Complete);
    let missing = match (is_there, is_complete) {
        (true, true) => None,
        (false, _) => Some("No file was changed. Change the files that the task needs.".to_owned()),
        (true, false) => Some(format!("The reply did not end with {}: go on.", TurnMarker::Complete.text())),
    };
    Ok(ended_well(&ended, (has_progress, missing.is_none()), missing))
}

/// Has an agent decide about a unit that cannot go on as it was planned.
///
/// # Errors
///
/// If git, the engine or the store fail.
pub(super) async fn reassess(
    project: &Arc<OpenProject>,
    work: &WorkClaim,
    stop: &CancellationToken,
) -> Result<PhaseResult, AutopilotError> {
    let own = project.work_of(work.unit.id).await?;
    let workspace = project.git.ensure_workspace(&own, &project.target).await?;
    let flow = project.flow_of(&work.unit).await?;
    let most = usize::try_from(flow.max_retries.max(1)).unwrap_or(usize::MAX);
    let trail = read_trail(project, work, &workspace, most).await?;
    let prompt = prompt_of(project, work, &flow, PromptKind::Reassess(&trail)).await?;
    let ended = run_agent(project, work, (workspace.folder, prompt, true), stop).await?;
    if ended.end != RunEnd::Success {
        return Ok(ended_badly(ended));
    }
    let json = json_object(&ended.said);
    let decision = match parse_answer(json) {
        Ok(decision) => decision,
        Err(error) => return Ok(unusable(&ended, "pilot.reassess", error.to_string())),
    };
    let write = |file, text: &str| project.files.write_file(work.unit.id, file, text);
    let mut end = RunEnd::Success;
    let reason = match &decision {
        // Before the plan is written: the one that is in force stays.
        ReassessDecision::Replan { .. } if replans_left(&flow, &work.unit) == 0 => {
            let why = MachineError::NoReplanLeft(work.unit.stand.counters.replans);
            return Ok(unusable(&ended, "pilot.no_replan_left", why.to_string()));
        }
        ReassessDecision::Replan { plan, reason } => {
            if let Err(error) = read_unit_plan(plan, work.unit.id) {
                return Ok(unusable(&ended, "pilot.unit_plan", error.to_string()));
            }
            // That of the plan after this decision.
            let version = work.unit.stand.counters.replans.saturating_add(2);
            write(UnitFile::Plan, &set_plan_version(plan, version))?;
            reason.clone()
        }
        ReassessDecision::Abandon { reason } => {
            write(UnitFile::Decision, reason)?;
            end = RunEnd::Abandoned;
            reason.clone()
        }
        ReassessDecision::Escalate { questions } => {
            let list: String = questions.iter().map(|one| format!("- {one}\n")).collect();
            write(UnitFile::Questions, &list)?;
            questions.join("\n")
        }
    };
    Ok(PhaseResult {
        event: UnitEvent::Reassess(decision),
        outcome: outcome_name(end),
        code: String::new(),
        reason,
        last_error: None,
        used: ended.used,
    })
}
