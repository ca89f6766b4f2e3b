//! `writ doctor`: checks everything that can be wrong, without touching or asking anything outside.

use serde::Serialize;
use serde_json::json;
use writ_types::error::Exit;

use crate::context::Context;
use crate::failure::Failure;

mod checks;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// Nothing to say.
    Good,
    /// It works, with a limit that one should know.
    Warn,
    /// It does not work.
    Bad,
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    /// What was checked.
    pub(super) name: &'static str,
    /// How it is.
    pub(super) verdict: Verdict,
    /// What was found.
    pub(super) text: String,
    /// What to do about it; may be empty.
    pub(super) hint: String,
}

impl Check {
    pub(super) fn good(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Good, text: text.into(), hint: String::new() }
    }

    pub(super) fn warn(name: &'static str, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Warn, text: text.into(), hint: hint.into() }
    }

    pub(super) fn bad(name: &'static str, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Bad, text: text.into(), hint: hint.into() }
    }

    /// A failure, as a check that went wrong.
    pub(super) fn failed(name: &'static str, failure: Failure) -> Self {
        match failure {
            Failure::Report(report) => Self::bad(name, report.outside, report.hint),
            Failure::Interrupted | Failure::ReaderGone | Failure::Code(_) => {
                Self::bad(name, "it could not be checked", "")
            }
        }
    }
}

/// Runs `writ doctor`: ends with 0 if everything works, else with 1.
pub(crate) fn run(context: &Context) -> Result<(), Failure> {
    let checks = checks::all(context);
    let healthy = checks.iter().all(|check| check.verdict != Verdict::Bad);
    context.out.either(&json!({ "healthy": healthy, "checks": checks }), |_| {
        checks.iter().flat_map(lines).collect()
    })?;
    if healthy { Ok(()) } else { Err(Failure::Code(Exit::Bug.code())) }
}

fn lines(check: &Check) -> Vec<String> {
    let mark = match check.verdict {
        Verdict::Good => "ok  ",
        Verdict::Warn => "warn",
        Verdict::Bad => "BAD ",
    };
    let mut lines = vec![format!("{mark}  {:<10} {}", check.name, check.text)];
    if !check.hint.is_empty() {
        lines.push(format!("      {:<10} hint: {}", "", check.hint));
    }
    lines
}
