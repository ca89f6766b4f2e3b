//! Gates, from a terminal: answers to those that ask, and cases that are only judged.

use std::sync::Arc;

use writ_policy::prepared::Prepared;
use writ_store::batch::Batch;
use writ_types::api::approval::{AskName, GateAsk};
use writ_types::api::gate::{CaseVerdict, GateCase, GateDecision, GateReceipt, OneVerdict};
use writ_types::frame::ServerFrame;
use writ_types::taint::{Label, Taint};

use super::value;
use crate::core::Core;
use crate::engine::GateSaid;
use crate::engine::Surface;
use crate::error::EngineError;

/// Returns the frame of a gate that asks; none if none asks under this id.
pub(super) fn show(core: &Core, name: &AskName) -> Option<ServerFrame> {
    let sessions = core.sessions();
    sessions.values().find_map(|session| {
        let state = session.state();
        state.gates.get(&name.ask).map(|waiting| waiting.frame.clone())
    })
}

/// Lists the gates that ask about a text now, at most one for each turn that runs; [`show`] returns the text of each.
pub(super) fn waiting(core: &Core) -> Vec<GateAsk> {
    let mut waiting = Vec::new();
    for session in core.sessions().values() {
        for one in session.state().gates.values() {
            if let ServerFrame::GateApproval { ask_id, gate, point, reason, .. } = &one.frame {
                waiting.push(GateAsk {
                    ask_id: ask_id.clone(),
                    session: session.id,
                    gate: gate.clone(),
                    point: point.clone(),
                    reason: reason.clone(),
                });
            }
        }
    }
    waiting
}

/// Hands an answer to the turn that waits for it. The receipt is negative if none does: the ask may be one of another kind.
///
/// # Errors
///
/// If what was filled in does not fit.
pub(super) fn answer(core: &Core, answer: GateDecision) -> Result<GateReceipt, EngineError> {
    let GateDecision { ask, decision, reason, answers } = answer;
    let said = GateSaid { decision, reason, answers };
    Ok(GateReceipt { answered: core.answer_gate(&ask, "owner".to_owned(), said)? })
}

/// Lets the gates judge a case, scripts and models too. Nothing is performed, and nothing follows a block.
pub(super) async fn judge(core: &Arc<Core>, case: GateCase) -> Result<CaseVerdict, EngineError> {
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
    let verdict = judged.worst();
    let gates = judged.verdicts.into_iter();
    Ok(CaseVerdict {
        session: place.session.id,
        verdict,
        text: judged.text,
        arguments: judged.arguments,
        after: judged.after.as_ref().map(|after| value(&after.action())).transpose()?,
        gates: gates.map(|(gate, verdict, reason)| OneVerdict { gate, verdict, reason }).collect(),
    })
}
