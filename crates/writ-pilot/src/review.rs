//! Reviews: a change is split into parts, each part's answer is read, and the last answer alone decides (SF 13.3).
//!
//! An answer is the text of a model that has read the change of another one. It is bounded, must hold exactly one object of the
//! form, and an answer that contradicts itself is none: nothing of it is ever taken for a pass.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use writ_autopilot::machine::ReviewVerdict;
use writ_types::error::{Exit, Report, ToReport};

use crate::prompts::PromptFinding;

mod diff;

pub use diff::{REVIEW_CHUNK_LINES, ReviewChunk, ReviewTooLarge, split_diff, write_excerpt};

/// The largest answer that is read, in bytes.
pub const MAX_REVIEW_BYTES: usize = 256 * 1024;
/// The most findings of one answer.
pub const MAX_REVIEW_FINDINGS: usize = 100;
/// The longest finding, in characters.
const MAX_FINDING_CHARS: usize = 1_000;
/// The most places of an answer at which an object is tried.
const MAX_STARTS: usize = 200;

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingSeverity {
    /// Wrong or insecure.
    High,
    /// Likely to become wrong.
    Medium,
    /// Style, or a detail.
    Low,
}

impl FindingSeverity {
    /// Returns its name in answers and prompts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// A finding of a review.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReviewFinding {
    /// The weight.
    pub severity: FindingSeverity,
    /// The file; empty for the change as a whole.
    #[serde(default)]
    pub path: String,
    /// The line in the new file; 0 for the whole file.
    #[serde(default, deserialize_with = "read_line")]
    pub line: u32,
    /// The finding.
    pub text: String,
}

/// Reads a line number; models write `null` for the whole file.
fn read_line<'de, D: Deserializer<'de>>(value: D) -> Result<u32, D::Error> {
    Option::<u32>::deserialize(value).map(Option::unwrap_or_default)
}

impl From<&ReviewFinding> for PromptFinding {
    fn from(finding: &ReviewFinding) -> Self {
        Self {
            path: finding.path.clone(),
            line: finding.line,
            severity: finding.severity.name().to_owned(),
            text: finding.text.clone(),
        }
    }
}

/// The answer of one pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewAnswer {
    /// The verdict. That of a part decides nothing.
    pub verdict: ReviewVerdict,
    /// The findings, the worst first.
    pub findings: Vec<ReviewFinding>,
}

/// An answer that is no review. The pass is asked once more; then its attempt fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// More than is read.
    #[error("the answer has more than {MAX_REVIEW_BYTES} bytes")]
    TooLarge,
    /// No object with a verdict.
    #[error("the answer has no JSON object with `verdict` and `findings`")]
    Missing,
    /// Two objects with a verdict, one of which may be quoted from the change.
    #[error("the answer has several JSON objects with a `verdict`")]
    Several,
    /// Another form.
    #[error("the object of the answer is no review: {0}")]
    Form(String),
    /// More findings than a worker could mend.
    #[error("the answer has more than {MAX_REVIEW_FINDINGS} findings")]
    TooMany,
    /// A finding without text.
    #[error("finding {0} has no text")]
    Empty(usize),
    /// A pass beside findings that speak against it, or changes that are not named.
    #[error("the verdict does not fit its findings: {0}")]
    Contradiction(&'static str),
}

impl ToReport for ReviewError {
    fn report(&self) -> Report {
        Report::new(Exit::Model, "pilot.review_answer", self.to_string())
            .with_hint("another model for the phase review may keep to the form: `[routing] review` in `.writ/pilot.toml`")
    }
}

impl ReviewError {
    /// Returns the question about the answer.
    pub fn next_question(&self) -> String {
        format!("{self}. Answer with exactly one JSON object of the form, and nothing else.")
    }
}

/// Reads the answer of a pass: one JSON object, alone, in a fenced block, or with prose around.
///
/// # Errors
///
/// If there is no such object or several, or it contradicts itself.
pub fn read_review(answer: &str) -> Result<ReviewAnswer, ReviewError> {
    if answer.len() > MAX_REVIEW_BYTES {
        return Err(ReviewError::TooLarge);
    }
    let mut found = find_objects(answer);
    let object = found.pop().ok_or(ReviewError::Missing)?;
    // The change may hold an answer of its own, which a model quotes.
    if !found.is_empty() {
        return Err(ReviewError::Several);
    }
    // Fields that the form does not have are the model's own, and harm nothing.
    let mut read = ReviewAnswer::deserialize(object)
        .map_err(|error| ReviewError::Form(cut_line(&error.to_string(), 200)))?;
    if read.findings.len() > MAX_REVIEW_FINDINGS {
        return Err(ReviewError::TooMany);
    }
    for (at, finding) in read.findings.iter_mut().enumerate() {
        finding.text = cut_line(finding.text.trim(), MAX_FINDING_CHARS);
        finding.path = cut_line(finding.path.trim(), MAX_FINDING_CHARS);
        if finding.text.is_empty() {
            return Err(ReviewError::Empty(at + 1));
        }
    }
    let is_heavy = read.findings.iter().any(|finding| finding.severity != FindingSeverity::Low);
    match read.verdict {
        ReviewVerdict::Pass if is_heavy => Err(ReviewError::Contradiction("a pass with a finding above low")),
        ReviewVerdict::RequestChanges | ReviewVerdict::Block if read.findings.is_empty() => {
            Err(ReviewError::Contradiction("changes without a finding"))
        }
        ReviewVerdict::Pass | ReviewVerdict::RequestChanges | ReviewVerdict::Block => {
            read.findings.sort();
            Ok(read)
        }
    }
}

/// Finds the objects that have a verdict, outermost ones alone.
fn find_objects(answer: &str) -> Vec<Value> {
    let (mut found, mut at, mut starts) = (Vec::new(), 0, 0);
    while let Some(start) = answer.get(at..).and_then(|rest| rest.find('{')).map(|offset| at + offset) {
        starts += 1;
        // Beyond it, the answer is prose with braces.
        if starts > MAX_STARTS {
            break;
        }
        let mut values =
            serde_json::Deserializer::from_str(answer.get(start..).unwrap_or_default()).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                at = start + values.byte_offset().max(1);
                if value.get("verdict").is_some() {
                    found.push(value);
                }
            }
            Some(Err(_)) | None => at = start + 1,
        }
    }
    found
}

fn cut_line(text: &str, most: usize) -> String {
    text.chars().take(most).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Joins the findings of the parts for the last pass: each once, the worst first, at most [`MAX_REVIEW_FINDINGS`].
pub fn join_findings<'a>(parts: impl IntoIterator<Item = &'a ReviewAnswer>) -> Vec<ReviewFinding> {
    let mut all: Vec<ReviewFinding> =
        parts.into_iter().flat_map(|part| part.findings.iter().cloned()).collect();
    // The worst first, so that of two with the same text the heavier one stays.
    all.sort();
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|finding| {
        // Case and spaces are the most frequent differences of two reviewers.
        let words: Vec<String> = finding.text.split_whitespace().map(str::to_lowercase).collect();
        seen.insert((finding.path.clone(), finding.line, words))
    });
    all.truncate(MAX_REVIEW_FINDINGS);
    all
}

#[cfg(test)]
mod tests;
