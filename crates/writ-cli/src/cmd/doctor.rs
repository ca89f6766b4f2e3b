//! `writ doctor`: checks everything that can be wrong. Nothing outside is touched or asked, unless `--models` wants the model
//! to be tried.

use serde::Serialize;
use serde_json::json;
use writ_inspect::show::escape_line;
use writ_types::error::Exit;

use crate::args::DoctorArgs;
use crate::cmd::models;
use crate::context::Context;
use crate::failure::Failure;

mod checks;

mod network;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckVerdict {
    /// Nothing to say.
    Good,
    /// It works, with a limit that one should know.
    Warn,
    /// It does not work.
    Bad,
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct DoctorCheck {
    /// The subject of the check.
    pub(super) name: &'static str,
    /// The result.
    pub(super) verdict: CheckVerdict,
    /// The finding.
    pub(super) text: String,
    /// A hint for the reader; may be empty.
    pub(super) hint: String,
}

impl DoctorCheck {
    pub(super) fn passed_check(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, verdict: CheckVerdict::Good, text: text.into(), hint: String::new() }
    }

    pub(super) fn warning_check(
        name: &'static str,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { name, verdict: CheckVerdict::Warn, text: text.into(), hint: hint.into() }
    }

    pub(super) fn failed_check(name: &'static str, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { name, verdict: CheckVerdict::Bad, text: text.into(), hint: hint.into() }
    }

    /// A failure, as a check that went wrong.
    pub(super) fn check_of_failure(name: &'static str, failure: Failure) -> Self {
        match failure {
            Failure::Report(report) => Self::failed_check(name, report.outside, report.hint),
            Failure::Interrupted | Failure::ReaderGone | Failure::Code(_) => {
                Self::failed_check(name, "it could not be checked", "")
            }
        }
    }
}

/// Runs `writ doctor`: ends with 0 if everything works, else with 1.
pub(crate) fn run_doctor(context: &Context, args: &DoctorArgs) -> Result<(), Failure> {
    let mut checks = checks::run_checks(context);
    // Trial requests cost money, so they need a home in order.
    let is_usable = checks.iter().all(|check| check.verdict != CheckVerdict::Bad);
    if args.models && is_usable {
        context.out.print_remark(
            "sending up to five small requests to the model; a provider bills them like any other",
        );
        checks.extend(try_models(context));
    }
    let healthy = checks.iter().all(|check| check.verdict != CheckVerdict::Bad);
    context.out.print_either(&json!({ "healthy": healthy, "checks": checks }), |_| {
        checks.iter().flat_map(describe_check).collect()
    })?;
    if healthy { Ok(()) } else { Err(Failure::Code(Exit::Bug.code())) }
}

/// Tries the model that answers the owner, and returns the features that work.
fn try_models(context: &Context) -> Vec<DoctorCheck> {
    let trial = match models::try_model(context, None) {
        Ok(trial) => trial,
        Err(failure) => return vec![DoctorCheck::check_of_failure("try", failure)],
    };
    let mut checks: Vec<DoctorCheck> = trial
        .checks
        .iter()
        .map(|check| {
            let text = format!("{}: {}: {}", trial.model, check.check, check.text);
            let (text, hint) = (escape_line(&text), escape_line(&check.hint));
            // The engine's words, mapped to the marks of this report.
            match check.verdict.as_str() {
                "works" => DoctorCheck::passed_check("try", text),
                "limited" => DoctorCheck::warning_check("try", text, hint),
                _fails => DoctorCheck::failed_check("try", text, hint),
            }
        })
        .collect();
    checks.push(DoctorCheck::passed_check("try", models::describe_usage(&trial)));
    checks
}

fn describe_check(check: &DoctorCheck) -> Vec<String> {
    let mark = match check.verdict {
        CheckVerdict::Good => "ok  ",
        CheckVerdict::Warn => "warn",
        CheckVerdict::Bad => "BAD ",
    };
    let mut lines = vec![format!("{mark}  {:<10} {}", check.name, check.text)];
    if !check.hint.is_empty() {
        lines.push(format!("      {:<10} hint: {}", "", check.hint));
    }
    lines
}
