//! Answers to gates that ask, from a terminal.

use serde::Deserialize;
use serde_json::{Value, json};
use writ_types::entry::Decision;
use writ_types::id::AskId;

use crate::core::Core;
use crate::session::GateAnswer;

/// An answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answered {
    ask: AskId,
    decision: Decision,
    #[serde(default)]
    reason: String,
}

/// Which gate is meant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Meant {
    ask: AskId,
}

/// What a gate that asks shows; nothing, if none asks under this id.
pub(super) fn show(core: &Core, meant: &Meant) -> Value {
    let sessions = core.sessions();
    let frame = sessions.values().find_map(|session| {
        let state = session.state();
        state.gates.get(&meant.ask).map(|waiting| waiting.frame.clone())
    });
    frame.and_then(|frame| serde_json::to_value(frame).ok()).unwrap_or(Value::Null)
}

/// Hands it to the turn that waits, and says whether one does: the ask may be one of another kind.
pub(super) fn answer(core: &Core, answered: Answered) -> Value {
    let Answered { ask, decision, reason } = answered;
    let by = "owner".to_owned();
    json!({ "answered": core.answer_gate(&ask, GateAnswer { decision, by, reason }) })
}
