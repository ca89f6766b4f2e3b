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

/// Hands it to the turn that waits, and says whether one does: the ask may be one of another kind.
pub(super) fn answer(core: &Core, answered: Answered) -> Value {
    let Answered { ask, decision, reason } = answered;
    let by = "owner".to_owned();
    json!({ "answered": core.answer_gate(&ask, GateAnswer { decision, by, reason }) })
}
