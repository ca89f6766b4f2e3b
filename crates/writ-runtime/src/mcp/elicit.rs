//! Questions that a server asks a person during a call (MCP, elicitation).
//!
//! The server's words are shown as its own, and the person's input goes to that server and nowhere else:
//! neither the model nor the ledger reads it.

use std::future::Future;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use writ_inspect::redact::Redactor;
use writ_mcp::elicitation::{Elicitation, ElicitationReply};
use writ_store::batch::Op;
use writ_types::entry::{ApprovalScope, Decision, Fact};
use writ_types::form::{FormField, FormValue};
use writ_types::frame::{Choice, ServerFrame};
use writ_types::id::{AskId, TurnId};

use crate::error::EngineError;
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::servers::{STARTER, Server};
use crate::session::{GateAnswer, WaitingGate, resolved};

/// The longest time a person has to answer.
const ANSWER_TIME: Duration = Duration::from_secs(10 * 60);
/// The most questions of one call: a server that asks more is after something else.
pub(crate) const MAX_QUESTIONS: usize = 8;
/// Name of the source of such a question, in its frame.
const POINT: &str = "server";

/// Asks a person a server's question, and returns the reply to send. The question is withdrawn when `over`
/// ends.
///
/// # Errors
///
/// If the store cannot be written.
pub(crate) async fn elicit(
    place: &CallPlace,
    server: &Server,
    question: &Elicitation,
    over: impl Future<Output = ()> + Send,
    cancel: &CancellationToken,
) -> Result<ElicitationReply, EngineError> {
    let asked = masked(question, &place.services.journal.redactor);
    let (Some(turn), Some(question)) = (place.turn, asked) else { return Ok(ElicitationReply::Cancel) };
    let ask = place.services.journal.ids.ask();
    let frame = frame(turn, &ask, server, &question);
    let (answer, receiver) = oneshot::channel();
    // Before it can be read.
    let waiting = WaitingGate { frame: frame.clone(), answer };
    place.session.state().gates.waiting.insert(ask.clone(), waiting);
    let _gone = QuestionGuard { place, ask: &ask };
    show(place, Pending::new(), frame).await?;
    let answered = tokio::select! {
        // An answer that was taken counts.
        biased;
        answer = receiver => answer.ok(),
        () = cancel.cancelled() => None,
        () = over => None,
        () = place.services.life.draining.cancelled() => None,
        () = tokio::time::sleep(ANSWER_TIME) => None,
    };
    let Some(GateAnswer { decision, by, reason, content }) = answered else {
        let text = "The server's question is moot.".to_owned();
        show(place, Pending::new(), resolved(ask.clone(), "expired", text)).await?;
        return Ok(ElicitationReply::Cancel);
    };
    let named = content.keys().cloned().collect::<Vec<_>>().join(", ");
    let told = if named.is_empty() { "nothing".to_owned() } else { named };
    let covers = format!("the server '{}' asked: {} It received: {told}.", server.name, question.message);
    let scope = ApprovalScope::Once;
    let fact = Fact::Answered { ask: ask.clone(), decision, scope, covers, by, reason };
    let (state, reply) = match decision {
        Decision::Approve => ("approved", ElicitationReply::Accept(content)),
        Decision::Deny => ("denied", ElicitationReply::Decline),
    };
    let entry = place.services.journal.entry(place.session.id, place.at(), fact);
    show(place, Pending::from([entry]), resolved(ask.clone(), state, String::new())).await?;
    Ok(reply)
}

async fn show(place: &CallPlace, mut ops: Pending, frame: ServerFrame) -> Result<(), EngineError> {
    ops.push(Op::Frame { session: place.session.id, frame: Box::new(frame) });
    place.services.journal.commit_for(&place.session.hub, ops.into_synced()).await.map(drop)
}

/// Removes a question on drop, so that it is removed even if the call was dropped.
struct QuestionGuard<'a> {
    place: &'a CallPlace,
    ask: &'a AskId,
}

impl Drop for QuestionGuard<'_> {
    fn drop(&mut self) {
        self.place.session.state().gates.waiting.remove(self.ask);
    }
}

/// Masks secrets in a question before it is shown and stored, since a server can repeat secrets that it was
/// given. Returns `None` if a choice contains a secret, because a choice is sent unchanged.
fn masked(question: &Elicitation, redactor: &Redactor) -> Option<Elicitation> {
    let mut masked = question.clone();
    let mask = |text: &mut String| *text = redactor.mask_text(text).into_owned();
    mask(&mut masked.message);
    for field in &mut masked.fields {
        mask(&mut field.title);
        mask(&mut field.description);
        if let FormValue::Choice { choices } = &field.takes
            && choices.iter().any(|choice| redactor.mask_text(choice) != choice.as_str())
        {
            return None;
        }
    }
    Some(masked)
}

fn frame(turn: TurnId, ask: &AskId, server: &Server, question: &Elicitation) -> ServerFrame {
    let choice = |decision, consequence: String| Choice { decision, scope: ApprovalScope::Once, consequence };
    let goes = if question.fields.is_empty() { "Yes" } else { "What you fill in" };
    ServerFrame::GateApproval {
        turn,
        ask_id: ask.clone(),
        gate: format!("{STARTER}{}", server.name),
        point: POINT.to_owned(),
        reason: "these are the server's words, not the agent's; give it no password".to_owned(),
        shown: shown(question),
        choices: vec![
            choice(Decision::Approve, format!("{goes} is sent to the server '{}' alone.", server.name)),
            choice(Decision::Deny, "The server is notified that you declined.".to_owned()),
        ],
        fields: question.fields.clone(),
    }
}

/// The question and its fields, as text.
fn shown(question: &Elicitation) -> String {
    let line = |field: &FormField| {
        let must = if field.required { "" } else { ", may be left out" };
        let about =
            if field.description.is_empty() { String::new() } else { format!(" {}", field.description) };
        format!("{}: {}:{about} ({}{must})", field.name, field.title, field.takes.describe_values())
    };
    std::iter::once(question.message.clone())
        .chain(question.fields.iter().map(line))
        .collect::<Vec<_>>()
        .join("\n")
}
