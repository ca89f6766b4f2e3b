//! The report about an item that has ended or cannot go on: what was done, what was tried, and what it has cost.

use std::fmt::Write as _;

use writ_store::work::{AttemptState, WorkAttempt};
use writ_types::api::work::{StepState, WorkState};

use super::ItemCourse;
use super::evidence::read_evidence;

/// The most characters of an executor's words that the report quotes.
const MAX_SAID_CHARS: usize = 300;

/// Writes the report about an item.
pub(super) fn write_report(course: &ItemCourse, state: WorkState, why: &str) -> String {
    let (item, done) = (&course.item, course.rows.iter().filter(|row| row.state == StepState::Done).count());
    let mut text = format!("{} '{}': {} ({why}).\n", item.kind, item.title, state.name());
    let _ = writeln!(text, "{done} of {} steps are done.", course.rows.len());
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
    let said: String = attempt.said.chars().take(MAX_SAID_CHARS).collect();
    let said = said.replace('\n', " ");
    let said = if said.is_empty() { String::new() } else { format!("; its executor said: {said}") };
    let _ = writeln!(text, "  attempt {}: {verdict}{said}", attempt.n);
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
