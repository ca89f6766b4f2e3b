//! Attempts: a step becomes a message of the queue, and its turn is run like any other.

use std::fmt::Write as _;
use std::sync::Arc;

use writ_plan::order::MAX_PARALLEL;
use writ_plan::run::has_executor;
use writ_policy::principal;
use writ_store::batch::{Batch, NewMessageRow, Op};
use writ_store::queue::Leased;
use writ_store::reads::{QueueReads as _, TurnReads as _};
use writ_store::work::{AttemptState, WorkOp};
use writ_types::api::work::CheckEvidence;
use writ_types::digest::Digest;
use writ_types::entry::{Fact, InboundRecord};
use writ_types::error::Exit;
use writ_types::taint::Taint;
use writ_types::work::Check;

use super::{ItemCourse, evidence};
use crate::dispatch;
use crate::error::EngineError;
use crate::profile::lane_name;
use crate::proposals::{commit_news, news};
use crate::services::Services;
use crate::work_calls::worked;

/// The most characters of an earlier attempt's words that the next one reads.
const MAX_SAID_CHARS: usize = 1_000;
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
    let made = course.attempts_at(step).map(|attempt| attempt.n).max().unwrap_or(0);
    let (n, now, item) = (made.saturating_add(1), services.journal.clock.now(), &course.item);
    let of = format!("attempt {n} of {}", row.max_attempts);
    let mut steps = course.rows.clone();
    if let Some(row) = steps.get_mut(step) {
        row.state = writ_types::api::work::StepState::Running;
    }
    let told = news(services, item, &steps, (item.state, &row.name, &of));
    if !has_executor(plan) {
        let begun = WorkOp::Begin { item: item.id, step, n, message: None, at: now };
        commit_news(services, item, Batch::relaxed(vec![Op::Work(begun), told])).await?;
        return Ok(());
    }
    // Two steps of one lane would run one after the other.
    let consumer = lane_name(step % MAX_PARALLEL);
    let text = instructions(course, step);
    let record = InboundRecord {
        message: services.journal.ids.message(now),
        session: course.session.id,
        turn_number: services.journal.store.next_message_turn(course.session.id).await?,
        principal: format!("harness:{}", item.id),
        // The plan was read and approved as a whole; what checks have printed is none of it.
        taint: if made == 0 { Taint::Auth } else { Taint::External },
        text: Digest::of_bytes(text.as_bytes()),
        at: now,
    };
    let message = record.message;
    let signature = principal::sign_record(&record, &services.keys.held.harness)?;
    let fact = Fact::Received { record: record.clone(), text: text.clone(), signature };
    // Another plan has other steps under the same numbers.
    let client_id = format!("{}/{}/{step}/{n}", item.id, item.round);
    let row = NewMessageRow { record, client_id, text };
    let (place, lease) = dispatch::at_once(services, &course.session, &consumer).unzip();
    let mut ops = vec![
        Op::Work(WorkOp::Begin { item: item.id, step, n, message: Some(message), at: now }),
        told,
        worked(&services.journal, item, &plan.id, "running", &of),
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
    let running: Vec<_> = course
        .attempts
        .iter()
        .filter(|attempt| attempt.state == AttemptState::Running)
        .filter_map(|attempt| attempt.message)
        .collect();
    if running.is_empty() {
        return Ok(());
    }
    for dead in services.journal.store.dead_letters(writ_store::config::MAX_READ_ROWS).await? {
        let message = dead.record.message;
        if running.contains(&message) {
            let (exit, at) = (Exit::Blocked.code(), services.journal.clock.now());
            let ended = WorkOp::EndTurn { message, exit, said: dead.error, at };
            services.journal.store.commit(Batch::relaxed(vec![Op::Work(ended)])).await?;
        }
    }
    Ok(())
}

/// Writes the message for the executor of a step: its instructions, what is checked, and what earlier attempts have shown.
/// Nothing of other steps and of any conversation is in it.
pub(super) fn instructions(course: &ItemCourse, step: usize) -> String {
    let (Some(plan), Some(row)) = (course.steps.get(step), course.rows.get(step)) else {
        return String::new();
    };
    let mut text = format!("{}\n\n{}\n", plan.title, plan.instructions.trim());
    if !plan.checks.is_empty() {
        text.push_str("\nAfter you have ended, these checks are run outside your reach. What you say decides nothing:\n");
        for check in &plan.checks {
            let _ = writeln!(text, "- {}", describe_check(check));
        }
        text.push_str("Files that the checks rest on must stay as they are.\n");
    }
    for attempt in course.attempts_at(step).filter(|attempt| attempt.state == AttemptState::Judged) {
        let _ = writeln!(text, "\nAttempt {} has failed.", attempt.n);
        let (checks, notices) = evidence::read_evidence(attempt);
        if !attempt.said.is_empty() {
            let _ = writeln!(text, "It ended with: {}", cut(&attempt.said, MAX_SAID_CHARS));
        }
        for notice in notices {
            let _ = writeln!(text, "Noticed: {notice}");
        }
        for check in checks.iter().filter(|check| check.verdict != "pass") {
            describe_failure(check, &mut text);
        }
    }
    if !row.advice.is_empty() {
        let _ = writeln!(text, "\nAdvice of the planner:\n{}", row.advice);
    }
    text
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

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

fn cut_start(text: &str, most: usize) -> String {
    let count = text.chars().count();
    text.chars().skip(count.saturating_sub(most)).collect()
}
