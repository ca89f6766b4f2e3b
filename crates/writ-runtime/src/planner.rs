//! The planner: an agent that takes requests from the queue, only reads, and answers with a plan for a person.
//!
//! An executor hands it a task with the tool `plan`; the harness hands it items that are stuck. Both are messages of the
//! durable queue with a kind and a trace, so a crash loses none; so is the plan on its way back ([`results`]). Its last answer must be a plan document: a wrong one is
//! withheld and asked for once more with the error, and after that a plan of one step counts, which is the same for the
//! same request.

use tokio_util::sync::CancellationToken;
use writ_agent::event::TextVerdict;
use writ_inspect::redact::Clean;
use writ_plan::read::read_plan;
use writ_plan::write::write_plan;
use writ_policy::principal::{self, Principal};
use writ_store::batch::{NewMessageRow, Op};
use writ_store::reads::TurnReads as _;
use writ_tools::handoff::Handoff;
use writ_tools::render::Rendered;
use writ_types::chat::{ToolCall, ToolOutcome};
use writ_types::digest::Digest;
use writ_types::entry::{Fact, InboundRecord};
use writ_types::id::{MessageId, SessionId};
use writ_types::taint::{Label, Taint};
use writ_types::work::{OnStuck, PlanDocument, WorkBudget, WorkKind};

use crate::error::EngineError;
use crate::outcome::Acted;
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::profile::PLANNER;
use crate::services::Services;
use crate::session::Session;

pub(crate) mod answer;
mod card;
pub(crate) mod results;

/// The most characters of a plan's title that are made from a request.
const MAX_MADE_TITLE: usize = 80;

/// The kind of a message in the planner's queue. The id of such a message is its envelope: `KIND/TRACE`. The trace of a
/// request for a plan is the turn and the call that it comes from; that of the other two is `ITEM/ROUND/QUESTION`, so that
/// an answer reaches the question that was asked, or none. A message of another kind is refused ([`Self::read_id`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PlannerMessage {
    /// An agent asks for a plan.
    PlanRequest,
    /// An item is stuck; the answer is guidance for its next attempt.
    ConsultPlanner,
    /// An item has failed and is not tried again; the answer is another plan for it.
    ReplanRequest,
    /// The autopilot asks; the answer is text for it, and no plan is proposed of it.
    PilotQuestion,
}

impl PlannerMessage {
    const ALL: [Self; 4] =
        [Self::PlanRequest, Self::ConsultPlanner, Self::ReplanRequest, Self::PilotQuestion];

    /// Returns its name in ids of messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PlanRequest => "plan_request",
            Self::ConsultPlanner => "consult_planner",
            Self::ReplanRequest => "replan_request",
            Self::PilotQuestion => "pilot_question",
        }
    }

    /// Writes the id of a message: its kind, and the trace that links it with what it comes from and leads to.
    pub(crate) fn write_id(self, trace: &str) -> String {
        format!("{}/{trace}", self.name())
    }

    /// Reads kind and trace of a message; none for ids that are not of the harness's making.
    pub(crate) fn read_id(id: &str) -> Option<(Self, &str)> {
        let (name, trace) = id.split_once('/')?;
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == name)?;
        Some((kind, trace))
    }

    /// Returns true if the answer is about a work item.
    pub(crate) const fn is_about_item(self) -> bool {
        matches!(self, Self::ConsultPlanner | Self::ReplanRequest)
    }

    /// Returns true if the answer is a plan.
    const fn wants_plan(self) -> bool {
        matches!(self, Self::PlanRequest | Self::ReplanRequest)
    }
}

/// A request for the planner.
#[derive(Clone, Debug)]
pub(crate) struct PlannerRequest {
    pub(crate) kind: PlannerMessage,
    /// Links request and result: the turn and call, or the item, that it comes from.
    pub(crate) trace: String,
    pub(crate) text: String,
    /// The trust of what it rests on, and of the one that it is for.
    pub(crate) taint: Taint,
    /// The person or item that it is for.
    pub(crate) principal: String,
}

/// Hands something to another agent.
///
/// # Errors
///
/// If the store cannot be written.
pub(crate) async fn hand_off(
    place: &CallPlace,
    first: &mut Pending,
    (call, label): (&ToolCall, &Label),
    (handoff, cancel): (Handoff, &CancellationToken),
) -> Result<Acted, EngineError> {
    place.services.life.metrics.tool(&call.name);
    match handoff {
        Handoff::Plan { request, reason } => {
            request_plan(place, first, (call, label), (request, reason)).await
        }
        Handoff::Escalate { question } => {
            crate::oracle::answer(place, first, (call, label), (question, cancel)).await
        }
    }
}

async fn request_plan(
    place: &CallPlace,
    first: &mut Pending,
    (call, label): (&ToolCall, &Label),
    (text, reason): (String, String),
) -> Result<Acted, EngineError> {
    let purpose = format!("have it planned: {reason}");
    let done = |text: &'static str, outcome| Rendered {
        text: Clean::fixed_text(text),
        label: label.clone(),
        outcome,
    };
    let principal = place.session.state().speaker_of(place.turn).cloned().unwrap_or(Principal::Owner);
    let trace = format!("{}/{}", place.turn.map(|turn| turn.to_string()).unwrap_or_default(), call.id);
    // A plan is no cleaner than the request and what its writer had read.
    let taint = principal.taint().join(label.taint);
    let principal = principal.to_string();
    let request = PlannerRequest { kind: PlannerMessage::PlanRequest, trace, text, taint, principal };
    let message = enqueue(&place.services, &place.session, request, first).await?;
    let text = "Handed to the planner. Its plan comes to the user as one card. End your turn now: say that a plan is being made.";
    tracing::debug!(%message, "a plan was requested");
    Ok(place.result(call, done(text, ToolOutcome::Done), &purpose, Pending::new()))
}

/// Puts a request into the planner's queue, with the ledger's record of it. A request with the trace of an earlier one is
/// that one.
///
/// # Errors
///
/// If the store cannot be written, or the queue is full.
pub(crate) async fn enqueue(
    services: &Services,
    session: &Session,
    request: PlannerRequest,
    first: &mut Pending,
) -> Result<MessageId, EngineError> {
    use writ_store::error::{Conflict, StoreError};
    let (message, asked) = request_ops(services, session.id, request).await?;
    let mut ops = std::mem::take(first);
    ops.extend(asked);
    match services.journal.commit_for(&session.hub, ops.into_synced()).await {
        // A call that is worked on again after a crash asks for the same plan.
        Ok(_) | Err(EngineError::Store(StoreError::Conflict(Conflict::DuplicateMessage { .. }))) => {}
        Err(error) => return Err(error),
    }
    services.life.wake.notify_one();
    Ok(message)
}

/// The operations that put a request into the planner's queue.
///
/// # Errors
///
/// If the store cannot be read, or the record cannot be signed.
pub(crate) async fn request_ops(
    services: &Services,
    session: SessionId,
    request: PlannerRequest,
) -> Result<(MessageId, [Op; 2]), EngineError> {
    let now = services.journal.clock.now();
    // It goes to another model, and may go to another provider.
    let text = services.journal.redactor.clean_text(request.text).into_string();
    let record = InboundRecord {
        message: services.journal.ids.message(now),
        session,
        turn_number: services.journal.store.next_message_turn(session).await?,
        principal: request.principal,
        taint: request.taint,
        text: Digest::of_bytes(text.as_bytes()),
        at: now,
    };
    let signature = principal::sign_record(&record, &services.keys.held.harness)?;
    let fact = Fact::Received { record: record.clone(), text: text.clone(), signature };
    let (client_id, message) = (request.kind.write_id(&request.trace), record.message);
    let row = Box::new(NewMessageRow { record, client_id, text });
    let enqueued = Op::EnqueueFor { consumer: PLANNER.to_owned(), message: row };
    Ok((message, [services.journal.entry(session, None, fact), enqueued]))
}

/// Judges the answer of a planner's turn: a plan that cannot be read, or that `check` refuses, is asked for once more, with
/// the error; then the fallback takes its place. Another plan for an item has no fallback but a person.
pub(crate) fn judge_answer(
    client_id: &str,
    (request, text): (&str, &str),
    tries: u32,
    check: &dyn Fn(&PlanDocument) -> Result<(), String>,
) -> TextVerdict {
    let Some((kind, _)) = PlannerMessage::read_id(client_id).filter(|(kind, _)| kind.wants_plan()) else {
        return TextVerdict::Pass;
    };
    let read = read_plan(text).map_err(|error| error.model_message());
    let Err(why) = read.and_then(|plan| check(&plan)) else { return TextVerdict::Pass };
    // Once: each further try costs as much, and what is no plan twice is seldom one the third time.
    if tries == 0 {
        return again(why);
    }
    tracing::warn!(why, kind = kind.name(), "the planner's second answer is no plan either");
    match kind {
        PlannerMessage::PlanRequest => TextVerdict::Transform { text: write_plan(&fallback_plan(request)) },
        PlannerMessage::ReplanRequest | PlannerMessage::ConsultPlanner | PlannerMessage::PilotQuestion => {
            TextVerdict::Pass
        }
    }
}

fn again(why: String) -> TextVerdict {
    let note =
        format!("That is no plan that can be run. {why} Answer with the whole plan again, and nothing else.");
    TextVerdict::Again { reason: why, note: Some(note), attempts: 1 }
}

/// Makes the plan that counts where the planner makes none: the request as the one step, and a person who is asked when
/// it is stuck. The same request gives the same plan.
pub(crate) fn fallback_plan(request: &str) -> PlanDocument {
    let line: String = request.split_whitespace().collect::<Vec<_>>().join(" ");
    let title: String = line.chars().filter(|c| !c.is_control()).take(MAX_MADE_TITLE).collect();
    let digest = Digest::of_bytes(request.as_bytes()).to_string();
    let id: String = digest.chars().filter(char::is_ascii_alphanumeric).rev().take(12).collect();
    // A plan's text has no control characters but line breaks and tabs; those of old systems (`\r`) are line breaks too.
    let plain = request.replace("\r\n", "\n").replace('\r', "\n");
    let plain = plain.replace(|c: char| c.is_control() && !matches!(c, '\n' | '\t'), " ");
    let quoted: Vec<String> = plain.lines().map(|line| format!("> {}", line.trim_end())).collect();
    PlanDocument {
        id: format!("task-{}", id.to_lowercase()),
        kind: WorkKind::Task,
        title: if title.trim().is_empty() { "the request".to_owned() } else { title.trim().to_owned() },
        skills: Vec::new(),
        budget: WorkBudget::default(),
        steps: Vec::new(),
        checks: Vec::new(),
        gates: Vec::new(),
        on_stuck: OnStuck::AskPerson,
        interaction: None,
        cycle: None,
        context: String::new(),
        // Quoted, so that no line of it is a heading or a fence of the document.
        instructions: format!("Do what was asked for:\n\n{}", quoted.join("\n")).trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests;
