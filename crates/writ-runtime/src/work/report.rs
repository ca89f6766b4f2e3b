//! The report about an item that has ended or cannot go on: what was done, what was tried, and what it has cost.

use std::fmt::Write as _;

use writ_agent::notice;
use writ_store::batch::{NewChronicle, Op};
use writ_store::work::{AttemptState, WorkAttempt, WorkItem};
use writ_types::api::work::{StepState, WorkState};
use writ_types::chat::{ChatMessage, Part, Role};
use writ_types::taint::{Label, Taint};
use writ_types::work::{ExecutorOutput, WorkKind};

use super::ItemCourse;
use super::evidence::read_evidence;
use crate::services::Services;

/// The most characters of an executor's words that the report quotes.
const MAX_SAID_CHARS: usize = 300;

/// The note of a report in the conversation that an item comes from, so that its agent knows of the end.
pub(super) fn note_in_origin(
    services: &Services,
    item: &WorkItem,
    (state, report): (WorkState, &str),
) -> Option<Op> {
    let report = services.journal.redactor.mask_text(report);
    let text = notice::work_note(&item.title, state.name(), &report);
    // It may quote what programs have printed, so it does not speak for the harness.
    let message = ChatMessage {
        role: Role::User,
        parts: vec![Part::Text { text }],
        label: Label::new(Taint::External),
    };
    Some(Op::Chronicle(Box::new(NewChronicle {
        session: item.origin?,
        turn: None,
        turn_number: 0,
        at: services.journal.clock.now(),
        message,
    })))
}

/// Writes the report about an item.
pub(super) fn write_report(course: &ItemCourse, state: WorkState, why: &str) -> String {
    let (item, done) = (&course.item, course.rows.iter().filter(|row| row.state == StepState::Done).count());
    let mut text = format!("{} '{}': {} ({why}).\n", item.kind, item.title, state.name());
    if !course.rows.is_empty() {
        let _ = writeln!(text, "{done} of {} steps are done.", course.rows.len());
    }
    for (n, row) in course.rows.iter().enumerate() {
        let attempts: Vec<&WorkAttempt> = course.attempts_at(n).collect();
        let count = attempts.len();
        let _ = writeln!(
            text,
            "- {} ({}): {}, {count} attempt{}",
            row.name,
            row.title,
            row.state.name(),
            if count == 1 { "" } else { "s" }
        );
        for attempt in attempts {
            describe_attempt(attempt, &mut text);
        }
    }
    let _ = writeln!(
        text,
        "Used: {}{}, {}{}.",
        course.spent.session_tokens,
        item.max_tokens.map(|most| format!(" of {most}")).unwrap_or_default(),
        course.spent.session_cost,
        item.max_cost.map(|most| format!(" of {most}")).unwrap_or_default(),
    );
    match (&item.project, state) {
        // Its units say what of it is in the project.
        (Some(_), _) if course.document.kind == WorkKind::Pilot => {}
        (Some(project), WorkState::Done) => {
            let _ = writeln!(text, "The changes are in {project}.");
        }
        (Some(project), _) => {
            let _ = writeln!(
                text,
                "Nothing of it was put into {project}: `writ diff --session {}` shows what was left.",
                item.session
            );
        }
        (None, _) => {}
    }
    text
}

fn describe_attempt(attempt: &WorkAttempt, text: &mut String) {
    let verdict = match attempt.state {
        AttemptState::Judged => attempt.verdict.as_str(),
        AttemptState::Running | AttemptState::Ended => "not checked",
    };
    let output = ExecutorOutput::of_words(&attempt.said);
    // Lines of its own could look like lines of the report.
    let line = |said: &str| said.chars().take(MAX_SAID_CHARS).collect::<String>().replace('\n', " ");
    let said = line(&output.summary);
    let said = if said.is_empty() { String::new() } else { format!("; its executor said: {said}") };
    let _ = writeln!(text, "  attempt {}: {verdict}{said}", attempt.n);
    for (what, list) in [("names", &output.artifacts), ("suggests", &output.next_steps)] {
        for one in list {
            let _ = writeln!(text, "    it {what}: {}", line(one));
        }
    }
    let (checks, notices) = read_evidence(attempt);
    for notice in notices {
        let _ = writeln!(text, "    noticed: {notice}");
    }
    for check in checks {
        let _ = writeln!(text, "    {}: {}", check.name, check.verdict);
        for finding in check.findings.iter().filter(|_| check.verdict != "pass") {
            let _ = writeln!(text, "      {finding}");
        }
    }
}
