//! The phases in which an agent works: its first prompt, and what is taken from its words.
//!
//! An agent's word decides nothing about the work: files count once they are committed, plans, reviews and decisions once they are
//! read without a mistake, and the gates are run by the harness.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use writ_autopilot::attempt::{RunEnd, TurnMarker};
use writ_autopilot::failure::FailureCode;
use writ_autopilot::machine::{AttemptReport, MachineError, UnitEvent};
use writ_autopilot::phase::PilotPhase;
use writ_autopilot::reassess::{ReassessDecision, parse_answer};
use writ_autopilot::unit_id::UnitId;
use writ_autopilot::unit_plan::{read_unit_plan, set_plan_version};
use writ_autopilot::units::PilotUnit;
use writ_autopilot::workflow::PhaseFlow;
use writ_sandbox::git::CommitId;
use writ_types::error::ToReport as _;

use super::choice::{choose_model, note_self_rating};
use super::question::judge_question;
use super::trail::{FailureTrail, read_trail};
use super::turns::{AgentTask, ResultCheck, WorkEnd, ended_badly, run_agent};
use super::{PhaseResult, WorkClaim, fault, outcome_name};
use crate::chapters::read_chapters;
use crate::error::AutopilotError;
use crate::learned::describe_learnings;
use crate::project::{OpenProject, RESUMED};
use crate::prompts::{PromptFinding, ReassessPrompt, RetryNote, ReviewPrompt, UnitPrompt, describe_issue};
use crate::skills::read_skills;
use crate::standing::UnitRecord;
use crate::unit_files::{UnitFile, UnitFiles};
use crate::workspace::{CommitResult, UnitWorkspace};

mod reply;

use reply::{json_object, plan_text};

/// The place of an error's whole text where it cannot be laid into the workspace.
const LAST_ERROR_PLACE: &str = "`writ pilot show`";
/// The most characters of a reply that a commit's message has.
const MAX_SUMMARY_CHARS: usize = 2_000;

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
    let flow = project.flow_of(&work.unit).await?;
    let prompt =
        prompt_of(project, work, (&flow, &workspace.folder), PromptKind::Work(&workspace.base)).await?;
    // Notes and plans are taken from the reply: files that such an attempt writes are thrown away.
    let reads_only = matches!(phase, PilotPhase::Research | PilotPhase::Plan);
    let is_plan = move |said: &str| phase == PilotPhase::Plan && is_plan_of(said, id);
    let (folder, is_result) = (workspace.folder.clone(), Some(&is_plan as &ResultCheck));
    let ended = run_agent(
        project,
        work,
        AgentTask { folder, prompt, reads_only, is_result, together: NonZeroU32::MIN },
        stop,
    )
    .await?;
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
    /// That of a phase of work, on a branch that began at this commit.
    Work(&'a CommitId),
    /// That of one pass of a review.
    Review(ReviewPrompt<'a>, &'a [PromptFinding]),
    /// That of a decision, after all that has failed.
    Reassess(&'a FailureTrail),
}

/// Writes the prompt of an attempt in a workspace, and lays into that what the prompt names. After a crash the chapters of the unit come
/// first: of a conversation that was cut off nothing else is restored.
pub(super) async fn prompt_of(
    project: &OpenProject,
    work: &WorkClaim,
    (flow, folder): (&PhaseFlow, &Path),
    kind: PromptKind<'_>,
) -> Result<String, AutopilotError> {
    let (unit, files) = (&work.unit, &project.files);
    let read = |file| files.read_file(unit.id, file);
    let (error, plan, notes) = (read(UnitFile::LastError)?, read(UnitFile::Plan)?, read(UnitFile::Research)?);
    let gates: Vec<String> = project.config().gates.iter().map(|gate| gate.name.clone()).collect();
    let (session, now) = (project.session().to_string(), project.hands.now().to_string());
    // A gate or a review that sends work back is no failed attempt, and the next attempt needs its words.
    let failures = unit.stand.counters.failures.max(1);
    let model = choose_model(project, work).await?.model.ok().flatten();
    let has = |text: &str| !text.trim().is_empty();
    let place = UnitFiles::share_error(unit.id, &error, folder).unwrap_or_else(|error| {
        tracing::warn!(unit = %unit.id, %error, "the whole text of an error cannot be laid into the workspace");
        LAST_ERROR_PLACE.to_owned()
    });
    let retry = has(&error).then_some(RetryNote { failures, error: &error, path: &place });
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
    let guidance = match &kind {
        PromptKind::Work(base) => describe_guidance(project, base).await?,
        PromptKind::Review(..) | PromptKind::Reassess(_) => Vec::new(),
    };
    let text = match kind {
        PromptKind::Work(_) => project.prompts.render_work(&input),
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
    let text = text?;
    let told = if error.starts_with(RESUMED) {
        read_chapters(&project.files, unit.id)?.tell()
    } else {
        String::new()
    };
    let parts = std::iter::once(told).chain(guidance).filter(|part| !part.is_empty());
    Ok(parts.map(|part| format!("{part}\n")).chain([text]).collect())
}

/// Describes what stands before the prompts of work: what was learned in the project, and its skills.
async fn describe_guidance(project: &OpenProject, base: &CommitId) -> Result<Vec<String>, AutopilotError> {
    let learned = describe_learnings(&project.hands, &project.name).await?;
    // Skills are advice: an attempt that cannot list them is worth more than none.
    let skills = match read_skills(project.git.project(), base).await {
        Ok(skills) => skills.describe(),
        Err(fault) => {
            tracing::warn!(%base, error = fault.report().inside, "the skills of a project cannot be read");
            String::new()
        }
    };
    Ok(vec![learned, skills])
}

/// Returns how often a unit may still be planned anew.
const fn replans_left(flow: &PhaseFlow, unit: &UnitRecord) -> u32 {
    flow.max_reassess.saturating_sub(unit.stand.counters.replans)
}

pub(super) fn planned_unit(unit: &UnitRecord) -> PilotUnit {
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

/// A clean end, with what the harness has seen of it.
fn ended_well(ended: &WorkEnd, (has_progress, is_met): (bool, bool), missing: Option<String>) -> PhaseResult {
    if ended.is_stopped {
        // Nothing is judged of what a person has stopped in the middle: it goes on with their word.
        let report = AttemptReport { end: RunEnd::Interrupted, marker: None, has_progress, is_met: false };
        return PhaseResult {
            event: UnitEvent::End(report),
            outcome: outcome_name(RunEnd::Interrupted),
            code: None,
            reason: "the loop was paused after a turn".to_owned(),
            last_error: missing,
            used: ended.used,
        };
    }
    let marker = TurnMarker::find_in(&ended.said);
    PhaseResult {
        event: UnitEvent::End(AttemptReport { end: RunEnd::Success, marker, has_progress, is_met }),
        outcome: outcome_name(RunEnd::Success),
        code: None,
        reason: match marker {
            Some(TurnMarker::Blocked | TurnMarker::GivingUp) => cut_words(&ended.said),
            Some(TurnMarker::Complete) | None => missing.clone().unwrap_or_default(),
        },
        last_error: missing,
        used: ended.used,
    }
}

/// The same attempt as a failed one, since nothing can be done with its words.
fn unusable(ended: &WorkEnd, code: FailureCode, why: String) -> PhaseResult {
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
    if ended.is_stopped {
        return Ok(ended_well(&ended, (false, false), None));
    }
    if ended.said.trim().is_empty() {
        return Ok(unusable(&ended, FailureCode::NoResearch, "the reply was empty".to_owned()));
    }
    project.files.write_file(work.unit.id, UnitFile::Research, &ended.said)?;
    Ok(ended_well(&ended, (true, true), None))
}

/// Returns true if a reply has a plan of a unit that can be read.
pub(super) fn is_plan_of(said: &str, id: UnitId) -> bool {
    read_unit_plan(plan_text(said), id).is_ok()
}

fn take_plan(project: &OpenProject, work: &WorkClaim, ended: WorkEnd) -> Result<PhaseResult, AutopilotError> {
    let marker = TurnMarker::find_in(&ended.said);
    if ended.is_stopped || matches!(marker, Some(TurnMarker::Blocked | TurnMarker::GivingUp)) {
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
        Err(error) => Ok(unusable(&ended, FailureCode::UnitPlan, error.to_string())),
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
        (true, false) => {
            let why = format!("No reply of the attempt ended with {}: go on.", TurnMarker::Complete.text());
            Some(why)
        }
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
    let prompt = prompt_of(project, work, (&flow, &workspace.folder), PromptKind::Reassess(&trail)).await?;
    let task = AgentTask {
        folder: workspace.folder,
        prompt,
        reads_only: true,
        is_result: None,
        together: NonZeroU32::MIN,
    };
    let ended = run_agent(project, work, task, stop).await?;
    if ended.end != RunEnd::Success {
        return Ok(ended_badly(ended));
    }
    let json = json_object(&ended.said);
    let decision = match parse_answer(json) {
        Ok(decision) => decision,
        Err(error) => return Ok(unusable(&ended, FailureCode::Reassess, error.to_string())),
    };
    let write = |file, text: &str| project.files.write_file(work.unit.id, file, text);
    let mut end = RunEnd::Success;
    let reason = match &decision {
        // Before the plan is written: the one that is in force stays.
        ReassessDecision::Replan { .. } if replans_left(&flow, &work.unit) == 0 => {
            let why = MachineError::NoReplanLeft(work.unit.stand.counters.replans);
            return Ok(unusable(&ended, FailureCode::NoReplanLeft, why.to_string()));
        }
        ReassessDecision::Replan { plan, reason } => {
            if let Err(error) = read_unit_plan(plan, work.unit.id) {
                return Ok(unusable(&ended, FailureCode::UnitPlan, error.to_string()));
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
        code: None,
        reason,
        last_error: None,
        used: ended.used,
    })
}
