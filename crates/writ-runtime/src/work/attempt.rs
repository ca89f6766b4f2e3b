//! Attempts: a step becomes a message of the queue, and its turn is run like any other.

use std::fmt::Write as _;
use std::sync::Arc;

use writ_inspect::show::escape_line;
use writ_plan::order::MAX_PARALLEL;
use writ_plan::run::has_executor;
use writ_policy::principal;
use writ_store::batch::{Batch, NewMessageRow, Op};
use writ_store::queue::Leased;
use writ_store::reads::{TurnReads as _, WorkReads as _};
use writ_store::work::{AttemptState, WorkAttempt, WorkOp};
use writ_types::api::work::{CheckEvidence, StepState};
use writ_types::digest::Digest;
use writ_types::entry::{Fact, InboundRecord};
use writ_types::error::Exit;
use writ_types::id::MessageId;
use writ_types::taint::Taint;
use writ_types::work::{Check, ExecutorOutput, WorkStep};

use super::{ItemCourse, evidence};
use crate::dispatch;
use crate::error::EngineError;
use crate::profile::lane_name;
use crate::proposals::{commit_news, news};
use crate::services::Services;
use crate::work_calls::{attempt_id, worked};

/// The most characters of an earlier attempt's words that the next one reads.
pub(super) const MAX_SAID_CHARS: usize = 1_000;
/// The most earlier attempts that the next one reads about.
const MAX_SHOWN_ATTEMPTS: usize = 2;
/// The most characters about all of them together.
const MAX_TRIED_CHARS: usize = 16_000;
/// The most characters about what all steps before have made; each has the same share.
const MAX_ARTIFACT_CHARS: usize = 8_000;
/// The most characters of a check's output that the next attempt reads.
const MAX_OUTPUT_CHARS: usize = 2_000;

/// Begins an attempt at a step: its number, its message and the lease of its turn are one commit.
///
/// # Errors
///
/// If the step is not as it was read, or the store cannot be written.
pub(super) async fn begin(
    services: &Arc<Services>,
    course: &ItemCourse,
    step: usize,
) -> Result<(), EngineError> {
    let (Some(plan), Some(row)) = (course.steps.get(step), course.rows.get(step)) else { return Ok(()) };
    // The highest and not the count: old attempts are deleted.
    let made = course.attempts_at(step).map(|attempt| attempt.n).max().unwrap_or(0);
    let (n, now, item) = (made.saturating_add(1), services.journal.clock.now(), &course.item);
    let of = format!("attempt {n} of {}", row.max_attempts);
    // Checks alone need no turn, and no place of an executor: they are due at once.
    if !has_executor(plan) {
        let mut steps = course.rows.clone();
        if let Some(row) = steps.get_mut(step) {
            row.state = StepState::Running;
        }
        let told = news(services, item, &steps, (item.state, &row.name, &of));
        let begun = WorkOp::Begin { item: item.id, step, n, message: None, at: now };
        commit_news(services, item, Batch::relaxed(vec![Op::Work(begun), told])).await?;
        return Ok(());
    }
    // The first attempt has only text of the approved plan. Later ones quote the output of checks, those of the autopilot the findings of
    // gates and reviews, and one that starts with artifacts the names that other executors gave: external content.
    let is_own = made == 0 && !course.is_attempt() && plan.artifacts_from.is_empty();
    let taint = if is_own { Taint::Auth } else { Taint::External };
    let (text, client_id) = (instructions(course, step), attempt_id(item, step, n));
    let id = item.id;
    send(services, course, (step, taint, of), (text, client_id), |message| WorkOp::Begin {
        item: id,
        step,
        n,
        message: Some(message),
        at: now,
    })
    .await
}

/// Hands a message to the executor of a step: what it does to the attempt, the message, and the lease of its turn are one
/// commit.
///
/// # Errors
///
/// If the attempt is not as it was read, if as many executors work as may, or the store cannot be written.
pub(super) async fn send(
    services: &Arc<Services>,
    course: &ItemCourse,
    (step, taint, of): (usize, Taint, String),
    (text, client_id): (String, String),
    work: impl FnOnce(MessageId) -> WorkOp,
) -> Result<(), EngineError> {
    let (item, now) = (&course.item, services.journal.clock.now());
    let mut steps = course.rows.clone();
    let mut name = String::new();
    if let Some(row) = steps.get_mut(step) {
        row.state = StepState::Running;
        name.clone_from(&row.name);
    }
    // Two steps of one lane would run one after the other.
    let consumer = lane_name(step % MAX_PARALLEL);
    let record = InboundRecord {
        message: services.journal.ids.message(now),
        session: course.session.id,
        turn_number: services.journal.store.next_message_turn(course.session.id).await?,
        principal: format!("harness:{}", item.id),
        taint,
        text: Digest::of_bytes(text.as_bytes()),
        at: now,
    };
    let message = record.message;
    let signature = principal::sign_record(&record, &services.keys.held.harness)?;
    let fact = Fact::Received { record: record.clone(), text: text.clone(), signature };
    let row = NewMessageRow { record, client_id, text };
    // Leased in the same commit: the dispatcher need not look for it, and no other turn takes the place.
    let (place, lease) = dispatch::at_once(services, &course.session, &consumer).unzip();
    let mut ops = vec![
        Op::Work(work(message)),
        news(services, item, &steps, (item.state, &name, &of)),
        worked(&services.journal, item, &name, "running", &of),
        services.journal.entry(course.session.id, None, fact),
        Op::EnqueueFor { consumer, message: Box::new(row) },
    ];
    ops.extend(lease);
    let receipt = commit_news(services, item, Batch::synced(ops)).await?;
    let leased: Option<Leased> = receipt.leased.into_iter().flatten().next();
    match leased.zip(place).filter(|_| !services.life.draining.is_cancelled()) {
        Some((lease, place)) => dispatch::start(services, lease, place),
        None => services.life.wake.notify_one(),
    }
    Ok(())
}

/// Ends the attempts with messages that were set aside without a turn, such as after too many tries.
///
/// # Errors
///
/// If the store cannot be read or written.
pub(super) async fn end_dead(services: &Services, course: &ItemCourse) -> Result<(), EngineError> {
    // The store is asked only where a message can have been set aside.
    if !course.attempts.iter().any(|attempt| attempt.state == AttemptState::Running) {
        return Ok(());
    }
    for (message, said) in services.journal.store.dead_attempts(course.item.id).await? {
        let (exit, at) = (Exit::Blocked.code(), services.journal.clock.now());
        let ended = WorkOp::EndTurn { message, exit, said, at };
        services.journal.store.commit(Batch::relaxed(vec![Op::Work(ended)])).await?;
    }
    Ok(())
}

/// Writes the message for the executor of a step: its instructions, the artifacts that it starts with, what is checked, and what earlier
/// attempts have shown. Nothing else of other steps and of any conversation is in it.
pub(super) fn instructions(course: &ItemCourse, step: usize) -> String {
    let (Some(plan), Some(row)) = (course.steps.get(step), course.rows.get(step)) else {
        return String::new();
    };
    let mut text = format!("{}\n\n{}\n", plan.title, plan.instructions.trim());
    text.push_str(&describe_artifacts(course, plan));
    if !plan.checks.is_empty() {
        text.push_str("\nAfter you have ended, these checks are run outside your reach. What you say decides nothing:\n");
        for check in &plan.checks {
            let _ = writeln!(text, "- {}", describe_check(check));
        }
        text.push_str("Files that the checks rest on must stay as they are.\n");
    }
    let judged: Vec<_> =
        course.attempts_at(step).filter(|attempt| attempt.state == AttemptState::Judged).collect();
    // The last ones show what is wrong now.
    let from = judged.len().saturating_sub(MAX_SHOWN_ATTEMPTS);
    if from > 0 {
        let _ = writeln!(text, "\n{from} earlier attempts have failed too.");
    }
    let mut tried = String::new();
    for attempt in judged.iter().skip(from) {
        describe_attempt(attempt, &mut tried);
    }
    // The end has the newest attempt.
    text.push_str(&cut_start(&tried, MAX_TRIED_CHARS));
    if !row.advice.is_empty() {
        let _ = writeln!(text, "\nAdvice of the planner:\n{}", row.advice);
    }
    // The replies of the autopilot's attempts have forms of their own.
    if !course.is_attempt() {
        let _ = writeln!(text, "\nEnd with one JSON object, and nothing behind it: {}", ExecutorOutput::FORM);
    }
    text
}

/// Lists what the steps that a step takes artifacts from have named at their ends (SIL-405), and nothing else that they said.
fn describe_artifacts(course: &ItemCourse, plan: &WorkStep) -> String {
    let mut text = String::new();
    for (from, source) in course.steps.iter().enumerate() {
        if !plan.artifacts_from.contains(&source.id) {
            continue;
        }
        if text.is_empty() {
            text.push_str("\nArtifacts of earlier steps, as their executors have named them:\n");
        }
        let judged = course.attempts_at(from).filter(|attempt| attempt.state == AttemptState::Judged);
        let named = judged.max_by_key(|attempt| attempt.n);
        let named =
            named.map(|attempt| ExecutorOutput::of_words(&attempt.said).artifacts).unwrap_or_default();
        let mut room = MAX_ARTIFACT_CHARS / plan.artifacts_from.len().max(1);
        if named.is_empty() {
            let _ = writeln!(text, "- {}: none were named", source.title);
        }
        for one in named {
            // Lines of its own could look like instructions.
            let one = cut(&escape_line(&one), MAX_SAID_CHARS);
            let Some(left) = room.checked_sub(one.chars().count()) else {
                let _ = writeln!(text, "- {}: and others, which are too many to name here", source.title);
                break;
            };
            room = left;
            let _ = writeln!(text, "- {}: {one}", source.title);
        }
    }
    text
}

fn describe_attempt(attempt: &WorkAttempt, text: &mut String) {
    let _ = writeln!(text, "\nAttempt {} has failed.", attempt.n);
    let (checks, notices) = evidence::read_evidence(attempt);
    if !attempt.said.is_empty() {
        let _ = writeln!(text, "It ended with: {}", cut(&attempt.said, MAX_SAID_CHARS));
    }
    for notice in notices {
        let _ = writeln!(text, "Noticed: {notice}");
    }
    for check in checks.iter().filter(|check| check.verdict != "pass") {
        describe_failure(check, text);
    }
}

fn describe_check(check: &Check) -> String {
    let expected: Vec<&str> = check.expect.iter().map(|expected| expected.name()).collect();
    match check.run.as_slice() {
        [] => format!("{}: files ({})", check.name, expected.join(", ")),
        run => format!("{}: {} ({})", check.name, run.join(" "), expected.join(", ")),
    }
}

fn describe_failure(check: &CheckEvidence, text: &mut String) {
    let _ = writeln!(text, "Check '{}': {}", check.name, check.verdict);
    for finding in &check.findings {
        let _ = writeln!(text, "  {finding}");
    }
    if !check.output.is_empty() {
        let _ = writeln!(text, "  its output ended with:\n{}", cut_start(&check.output, MAX_OUTPUT_CHARS));
    }
}

pub(super) fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

fn cut_start(text: &str, most: usize) -> String {
    let count = text.chars().count();
    text.chars().skip(count.saturating_sub(most)).collect()
}
