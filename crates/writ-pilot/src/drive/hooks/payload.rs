//! What a hook reads: one JSON object.

use serde_json::{Value, json};
use writ_autopilot::hook::HookKind;
use writ_autopilot::machine::UnitMove;
use writ_store::reads::UnitReads as _;
use writ_store::units::{RunRow, UnitRunEnd};
use writ_types::unit::Tokens;

use crate::account::millis_between;
use crate::drive::WorkClaim;
use crate::error::AutopilotError;
use crate::project::OpenProject;
use crate::standing::{UnitRecord, status_name};

/// The version of the object.
const VERSION: u32 = 1;
/// The longest message of an error, in characters.
const MAX_MESSAGE_CHARS: usize = 2_000;
/// The micro-USD of one USD.
const MICRO: u64 = 1_000_000;

/// Writes down what a hook around an attempt reads.
pub(super) fn about_unit(project: &OpenProject, unit: &UnitRecord, kind: HookKind) -> Value {
    json!({
        "version": VERSION,
        "hook": kind.name(),
        "session_id": project.session().to_string(),
        "unit": unit.to_json(),
        "phase": unit.stand.phase.name(),
    })
}

/// Writes down what a hook of a change of phase reads.
pub(super) fn about_move(project: &OpenProject, unit: &UnitRecord, made: &UnitMove) -> Value {
    let mut about = about_unit(project, unit, HookKind::PhaseChange);
    about["from"] = unit.stand.phase.name().into();
    about["to"] = made.stand.phase.name().into();
    about["phase"] = made.stand.phase.name().into();
    about["status"] = status_name(made.stand.status).into();
    about["cause"] = made.change.map(|change| change.cause.name()).into();
    about
}

/// Writes down the result of a run that has ended (SF 10.2), with the number of its attempt; `None`: the run has not ended.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn about_run(
    project: &OpenProject,
    work: &WorkClaim,
    message: &str,
) -> Result<Option<(u32, Value)>, AutopilotError> {
    let runs = project.hands.store().unit_runs(work.unit.row.key.clone()).await?;
    let Some(run) = runs.into_iter().rfind(|run| run.id == work.run) else { return Ok(None) };
    let Some(end) = run.end.clone() else { return Ok(None) };
    let calls = work.course.calls();
    let model = calls.iter().flat_map(|one| &one.models).next_back().map(|(model, _)| model.clone());
    let cached = calls.iter().fold(Tokens::ZERO, |sum, one| sum.saturating_add(one.cache_read));
    let mut about = about_unit(project, &work.unit, HookKind::PostUnit);
    add_result(&mut about, (&run, &end), (message, model.unwrap_or_default(), cached));
    about["learnings"] = json!(work.course.learnings());
    Ok(Some((run.attempt, about)))
}

fn add_result(
    about: &mut Value,
    (run, end): (&RunRow, &UnitRunEnd),
    (message, model, cached): (&str, String, Tokens),
) {
    let message: String = message.chars().take(MAX_MESSAGE_CHARS).collect();
    let error = json!({ "code": end.error_code, "message": message });
    about["run_id"] = run.id.to_string().into();
    about["attempt"] = run.attempt.into();
    about["verdict"] = verdict_of(&end.outcome).into();
    about["outcome"] = end.outcome.clone().into();
    about["duration_ms"] = millis_between(run.started_at, end.at).into();
    about["input_tokens"] = end.input.get().into();
    about["output_tokens"] = end.output.get().into();
    about["cache_hits"] = cached.get().into();
    about["cost_micro_usd"] = end.cost.get().into();
    about["cost_usd"] = dollars(end.cost.get()).into();
    about["model"] = model.into();
    about["worker_host"] = run.host.clone().into();
    about["error"] = if end.error_code.is_empty() { Value::Null } else { error };
}

/// Returns an amount in whole dollars and their parts, as text: a number would lose some of it.
fn dollars(micro: u64) -> String {
    format!("{}.{:06}", micro / MICRO, micro % MICRO)
}

/// Returns the verdict of a run: ends by time are failures.
fn verdict_of(outcome: &str) -> &'static str {
    match outcome {
        "success" => "success",
        "abandoned" => "abandoned",
        "canceled" => "canceled",
        "interrupted" => "interrupted",
        _ => "failure",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_verdicts_are_written_in_full() {
        assert_eq!(
            [0, 7, 1_234_567, 20_000_000].map(dollars),
            ["0.000000", "0.000007", "1.234567", "20.000000"]
        );
        let verdicts =
            ["success", "failure", "abandoned", "canceled", "interrupted", "unit_timeout", "stalled"]
                .map(verdict_of);
        assert_eq!(
            verdicts,
            ["success", "failure", "abandoned", "canceled", "interrupted", "failure", "failure"]
        );
    }
}
