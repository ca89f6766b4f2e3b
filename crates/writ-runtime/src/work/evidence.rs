//! Evidence: what the checks of an attempt have shown, as it is stored and read.

use serde::{Deserialize, Serialize};
use writ_store::work::{AttemptState, MAX_EVIDENCE_BYTES, WorkAttempt};
use writ_types::api::work::CheckEvidence;
use writ_types::work::Verdict;

use super::ItemCourse;
use crate::error::EngineError;

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

/// The characters of each output and each finding that stay where the evidence would be too large, one try after another.
const SHORTER: [usize; 5] = [MAX_OUTPUT_CHARS, 1_000, 250, 60, 0];
/// The most checks of which the evidence stays where even that is too large.
const FEWER_CHECKS: usize = 100;

/// Returns the evidence as it is stored: what is too large for the store loses the beginnings of its outputs, and then the
/// rest of what can be looked up again.
///
/// # Errors
///
/// If it is no JSON.
pub(crate) fn stored_text(mut evidence: AttemptEvidence) -> Result<String, EngineError> {
    let text = |evidence: &AttemptEvidence| {
        serde_json::to_string(evidence).map_err(|error| EngineError::Machine(error.to_string()))
    };
    for most in SHORTER {
        shorten(&mut evidence, most);
        let stored = text(&evidence)?;
        if stored.len() <= MAX_EVIDENCE_BYTES {
            return Ok(stored);
        }
    }
    let count = evidence.checks.len();
    // The verdict is stored apart, so nothing that decides is cut here.
    evidence.checks.truncate(FEWER_CHECKS);
    evidence.checks.iter_mut().for_each(|check| {
        check.run.clear();
        check.findings.clear();
        check.name = check.name.chars().take(MAX_OUTPUT_CHARS / FEWER_CHECKS).collect();
    });
    evidence.notices = vec![format!("the evidence of {count} checks is too large to be stored")];
    text(&evidence)
}

fn shorten(evidence: &mut AttemptEvidence, most: usize) {
    for check in &mut evidence.checks {
        let count = check.output.chars().count();
        // The end stays: programs print what has failed last.
        check.output = check.output.chars().skip(count.saturating_sub(most)).collect();
        for text in check.findings.iter_mut().chain(&mut check.run) {
            if let Some((at, _)) = text.char_indices().nth(most) {
                text.truncate(at);
            }
        }
    }
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

/// Returns true if checks of the item have passed: without one, its end proves nothing.
pub(crate) fn is_proven(course: &ItemCourse) -> bool {
    let is_checked = |step: usize| course.steps.get(step).is_some_and(|step| !step.checks.is_empty());
    let mut judged = course.attempts.iter().filter(|attempt| attempt.state == AttemptState::Judged);
    judged.any(|attempt| verdict_named(&attempt.verdict) == Verdict::Pass && is_checked(attempt.step))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Evidence of any size fits into the store, and is read again.
    #[test]
    fn evidence_that_is_too_large_loses_its_outputs_first() {
        let check = |output: &str| CheckEvidence {
            name: "tests".to_owned(),
            run: vec!["make".to_owned(), "check".to_owned()],
            verdict: "fail".to_owned(),
            findings: vec!["exit_code fail: expected 0; it was 2".to_owned()],
            output: output.to_owned(),
        };
        let stored = |count: usize, output: &str| {
            let evidence =
                AttemptEvidence { checks: vec![check(output); count], notices: vec!["noticed".to_owned()] };
            let text = stored_text(evidence).expect("JSON");
            assert!(text.len() <= MAX_EVIDENCE_BYTES, "{}", text.len());
            serde_json::from_str::<AttemptEvidence>(&text).expect("reads")
        };
        let whole = "x".repeat(MAX_OUTPUT_CHARS);
        assert_eq!(stored(3, &whole).checks, vec![check(&whole); 3]);
        // Each of these characters takes six bytes in JSON.
        let control = "\u{1}".repeat(MAX_OUTPUT_CHARS);
        let many = stored(300, &control);
        assert_eq!((many.checks.len(), many.checks[0].findings.len()), (300, 1));
        assert!(many.checks[0].output.len() < MAX_OUTPUT_CHARS);
        let too_many = stored(20_000, &whole);
        assert_eq!(too_many.checks.len(), FEWER_CHECKS);
        assert_eq!(too_many.notices, ["the evidence of 20000 checks is too large to be stored"]);
    }
}
