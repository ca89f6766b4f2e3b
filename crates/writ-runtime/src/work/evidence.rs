//! Evidence: what the checks of an attempt have shown, as it is stored and read.

use serde::{Deserialize, Serialize};
use writ_store::work::{AttemptState, WorkAttempt};
use writ_types::api::work::CheckEvidence;
use writ_types::work::Verdict;

use super::ItemCourse;

/// The most characters of a check's output that are stored.
pub(crate) const MAX_OUTPUT_CHARS: usize = 4_000;

/// The evidence of one attempt, as JSON in the store.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct AttemptEvidence {
    /// What each check has shown.
    pub(crate) checks: Vec<CheckEvidence>,
    /// What the harness noticed besides.
    pub(crate) notices: Vec<String>,
}

/// Returns the evidence of an attempt; what cannot be read is none.
pub(crate) fn read_evidence(attempt: &WorkAttempt) -> (Vec<CheckEvidence>, Vec<String>) {
    let AttemptEvidence { checks, notices } = serde_json::from_str(&attempt.evidence).unwrap_or_default();
    (checks, notices)
}

/// The name of a verdict in the store and in answers.
pub(crate) const fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::NotRun => "not_run",
    }
}

/// The verdict with a name; any other name proves nothing.
pub(crate) fn verdict_named(name: &str) -> Verdict {
    match name {
        "pass" => Verdict::Pass,
        "fail" => Verdict::Fail,
        _ => Verdict::NotRun,
    }
}

/// Returns true if a check of the item has passed: without one, its end proves nothing.
pub(crate) fn is_proven(course: &ItemCourse) -> bool {
    let judged = course.attempts.iter().filter(|attempt| attempt.state == AttemptState::Judged);
    judged.map(read_evidence).any(|(checks, _)| checks.iter().any(|check| check.verdict == "pass"))
}
