//! What a gate is given: variables, and one line of JSON on its standard input.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use writ_autopilot::unit_id::UnitId;
use writ_store::reads::UnitReads as _;

use super::WorkClaim;
use crate::config::PilotGate;
use crate::error::AutopilotError;
use crate::project::OpenProject;

/// The version of the object on standard input.
const VERSION: u32 = 1;

/// A gate, the unit that it judges, and the worker that has it judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct GateSubject<'a> {
    pub(super) id: UnitId,
    pub(super) gate: &'a PilotGate,
    /// `None`: a person has it judged, so there is no run.
    pub(super) work: Option<&'a WorkClaim>,
}

/// What a gate's program is given.
#[derive(Debug)]
pub(super) struct GateInput {
    pub(super) env: BTreeMap<String, String>,
    /// One line with its end.
    pub(super) stdin: String,
}

/// Writes down what a gate reads about its unit (SF 13.2.1). It knows neither paths outside of its sandbox nor a secret.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn describe(
    project: &OpenProject,
    subject: GateSubject<'_>,
    folder: &Path,
) -> Result<GateInput, AutopilotError> {
    let GateSubject { id, gate, work } = subject;
    let mut env = BTreeMap::from([
        ("WRIT_UNIT_ID".to_owned(), id.to_string()),
        ("WRIT_UNIT_TYPE".to_owned(), id.unit_type().name().to_owned()),
        ("WRIT_GATE".to_owned(), gate.name.clone()),
        ("WRIT_WORKSPACE".to_owned(), folder.to_string_lossy().into_owned()),
    ]);
    let Some(work) = work else {
        let about = json!({ "version": VERSION, "gate": gate.name, "unit": { "id": id.to_string() } });
        return Ok(GateInput { env, stdin: line_of(&about) });
    };
    let (unit, run) = (&work.unit, work.run.to_string());
    let runs = project.hands.store().unit_runs(unit.row.key.clone()).await?;
    let attempt = runs.iter().rfind(|run| run.id == work.run).map_or(unit.row.attempt, |run| run.attempt);
    let retry = unit.stand.counters.gate_failures.get(&gate.name).copied().unwrap_or(0);
    let phase = unit.stand.phase.name();
    env.extend([
        ("WRIT_RUN_ID".to_owned(), run.clone()),
        ("WRIT_PHASE".to_owned(), phase.to_owned()),
        ("WRIT_ATTEMPT".to_owned(), attempt.to_string()),
        ("WRIT_GATE_RETRY".to_owned(), retry.to_string()),
    ]);
    let about = json!({
        "version": VERSION,
        "gate": gate.name,
        "gate_retry": retry,
        "session_id": project.session().to_string(),
        "unit": unit.to_json(),
        "run_id": run,
        "phase": phase,
        "attempt": attempt,
        // The gate is what decides about it.
        "verdict": Value::Null,
        "error": Value::Null,
    });
    Ok(GateInput { env, stdin: line_of(&about) })
}

/// Returns an object as one line: JSON writes the end of a line within a text as an escape.
fn line_of(about: &Value) -> String {
    format!("{about}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SF-241 (in part: the end of a line within a text is an escape)
    #[test]
    fn an_object_is_one_line_whatever_its_texts_are() {
        assert_eq!(line_of(&json!({ "title": "one\ntwo\r\n" })), "{\"title\":\"one\\ntwo\\r\\n\"}\n");
    }
}
