//! Gates, from a terminal: answers to those that ask, and cases that are only judged.

use std::sync::Arc;

use writ_inspect::prepared::Prepared;
use writ_types::api::approval::{AskName, GateAsk};
use writ_types::api::gate::{CaseVerdict, GateCase, GateDecision, GateReceipt, OneVerdict};
use writ_types::frame::ServerFrame;
use writ_types::taint::{Label, Taint};

use super::to_json;
use crate::engine::{GateSaid, Surface};
use crate::error::EngineError;
use crate::services::Services;
use crate::{answers, judging, opening, place};

/// Returns the frame of a gate that asks; none if none asks under this id.
pub(super) fn show_gate(services: &Services, name: &AskName) -> Option<ServerFrame> {
    let sessions = services.sessions.loaded();
    sessions.values().find_map(|session| {
        let state = session.state();
        state.gates.waiting.get(&name.ask).map(|waiting| waiting.frame.clone())
    })
}

/// Lists the gates that ask about a text now, at most one for each turn that runs; [`show_gate`] returns the text of each.
pub(super) fn waiting_gates(services: &Services) -> Vec<GateAsk> {
    let mut waiting = Vec::new();
    for session in services.sessions.loaded().values() {
        for one in session.state().gates.waiting.values() {
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
pub(super) fn answer_gate(services: &Services, answer: GateDecision) -> Result<GateReceipt, EngineError> {
    let GateDecision { ask, decision, reason, answers } = answer;
    let said = GateSaid { decision, reason, answers };
    Ok(GateReceipt { answered: answers::answer_gate(services, &ask, "owner".to_owned(), said)? })
}

/// Lets the gates judge a case, scripts and models too. Nothing is performed, and nothing follows a block.
pub(super) async fn judge_case(services: &Arc<Services>, case: GateCase) -> Result<CaseVerdict, EngineError> {
    let session = match case.session {
        Some(id) => services.sessions.get(id).await?,
        None => opening::open_session(services, None, false, true, Surface::Local).await?,
    };
    let place = place::outside_turn(services, session).await?;
    // A stopping engine waits for it as for a turn.
    let _running = services.life.turns.token();
    let cancel = services.life.stop_now.child_token();
    let judged = match case.action {
        None => {
            let ruled = judging::judge_text(&place, case.on, &case.text, &cancel).await?;
            services.journal.commit_for(&place.session.hub, ruled.ops.into_relaxed()).await?;
            ruled.judged
        }
        Some(action) => {
            let kind = action.kind().as_str();
            let prepared = Prepared {
                action,
                agent: services.config.agent.clone(),
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
            judging::judge_action(&place, case.on, &prepared, case.arguments.as_ref(), &cancel).await?
        }
    };
    let verdict = judged.worst_verdict();
    let gates = judged.verdicts.into_iter();
    Ok(CaseVerdict {
        session: place.session.id,
        verdict,
        text: judged.text,
        arguments: judged.arguments,
        after: judged.after.as_ref().map(|after| to_json(&after.action())).transpose()?,
        gates: gates.map(|(gate, verdict, reason)| OneVerdict { gate, verdict, reason }).collect(),
    })
}
