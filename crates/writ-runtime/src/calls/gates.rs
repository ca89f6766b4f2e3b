//! Gates, from a terminal: answers to those that ask, and cases that are only judged.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use writ_policy::prepared::Prepared;
use writ_store::batch::Batch;
use writ_types::action::Action;
use writ_types::entry::{Decision, GatePoint};
use writ_types::frame::ServerFrame;
use writ_types::id::{AskId, SessionId};
use writ_types::taint::{Label, Taint};

use crate::core::Core;
use crate::engine::GateSaid;
use crate::engine::Surface;
use crate::error::EngineError;

/// An answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answered {
    ask: AskId,
    decision: Decision,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    answers: BTreeMap<String, String>,
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

/// Who asks about a text now, at most one for each turn that runs: what each shows is had with [`show`].
pub(super) fn waiting(core: &Core) -> Vec<Value> {
    let mut waiting = Vec::new();
    for session in core.sessions().values() {
        for one in session.state().gates.values() {
            if let ServerFrame::GateApproval { ask_id, gate, point, reason, .. } = &one.frame {
                let session = session.id;
                waiting.push(json!({
                    "ask_id": ask_id, "session": session, "gate": gate, "point": point, "reason": reason,
                }));
            }
        }
    }
    waiting
}

/// Hands it to the turn that waits, and says whether one does: the ask may be one of another kind.
///
/// # Errors
///
/// If what was filled in does not fit.
pub(super) fn answer(core: &Core, answered: Answered) -> Result<Value, EngineError> {
    let Answered { ask, decision, reason, answers } = answered;
    let said = GateSaid { decision, reason, answers };
    Ok(json!({ "answered": core.answer_gate(&ask, "owner".to_owned(), said)? }))
}

/// A case: a text at input or output, or an action at execution or access.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// The session of the cases before it; none: a fresh one is opened, which the caller closes.
    #[serde(default)]
    session: Option<SessionId>,
    on: GatePoint,
    #[serde(default)]
    text: String,
    #[serde(default)]
    action: Option<Action>,
    #[serde(default)]
    tool: String,
    /// What the model's call would say.
    #[serde(default)]
    arguments: Option<Value>,
}

/// Lets the gates judge a case, scripts and models too. Nothing is performed, and nothing follows a block.
pub(super) async fn judge(core: &Arc<Core>, case: Case) -> Result<Value, EngineError> {
    let session = match case.session {
        Some(id) => core.session(id)?,
        None => core.open_session(None, false, true, Surface::Local).await?,
    };
    let place = core.outside_turn(session).await?;
    // A stopping engine waits for it as for a turn.
    let _running = core.turns.token();
    let cancel = core.stop_now.child_token();
    let judged = match case.action {
        None => {
            let ruled = place.judge_text(case.on, &case.text, &cancel).await?;
            core.commit_for(&place.session, Batch::relaxed(ruled.ops)).await?;
            ruled.judged
        }
        Some(action) => {
            let kind = action.kind().as_str();
            let prepared = Prepared {
                action,
                agent: core.config.agent.clone(),
                session: Some(place.session.id),
                turn: None,
                turn_number: 0,
                call: None,
                tool: if case.tool.is_empty() { kind.to_owned() } else { case.tool },
                sinks: Vec::new(),
                label: Label::new(Taint::Owner),
                bindings: Default::default(),
                idempotent: true,
                intent: "a case of the owner".to_owned(),
            };
            place.judge_action(case.on, &prepared, case.arguments.as_ref(), &cancel).await?
        }
    };
    Ok(json!({
        "session": place.session.id,
        "verdict": judged.worst(),
        "text": judged.text,
        "arguments": judged.arguments,
        "after": judged.after.as_ref().map(|after| after.action()),
        "gates": judged.verdicts.iter().map(|(gate, verdict, reason)| {
            json!({ "gate": gate, "verdict": verdict, "reason": reason })
        }).collect::<Vec<_>>(),
    }))
}
