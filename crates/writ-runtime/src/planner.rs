//! The planner: an agent that takes requests from the queue, only reads, and answers with a plan for a person.
//!
//! An executor hands it a task with the tool `plan`; the harness hands it items that are stuck. Both are messages of the
//! durable queue with a kind and a trace, so a crash loses none. Its last answer must be a plan document: a wrong one is
//! withheld and asked for once more with the error, and after that a plan of one step counts, which is the same for the
//! same request.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use writ_agent::event::TextVerdict;
use writ_inspect::redact::Clean;
use writ_plan::error::PlanError;
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

pub(crate) mod card;

/// The longest wait for guidance (SIL-223).
pub(crate) const GUIDANCE_WAIT: Duration = Duration::from_secs(90);
/// The most characters of a plan's title that are made from a request.
const MAX_MADE_TITLE: usize = 80;

/// The kind of a message in the planner's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PlannerMessage {
    /// An agent asks for a plan.
    PlanRequest,
    /// An item is stuck; the answer is guidance for its next attempt.
    ConsultPlanner,
    /// An item has failed and is not tried again; the answer is another plan for it.
    ReplanRequest,
}

impl PlannerMessage {
    const ALL: [Self; 3] = [Self::PlanRequest, Self::ConsultPlanner, Self::ReplanRequest];

    /// Returns its name in ids of messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PlanRequest => "plan_request",
            Self::ConsultPlanner => "consult_planner",
            Self::ReplanRequest => "replan_request",
        }
    }

    /// Writes the id of a message: its kind, and the trace that links it with what it comes from and leads to.
    fn write_id(self, trace: &str) -> String {
        format!("{}/{trace}", self.name())
    }

    /// Reads kind and trace of a message; none for ids that are not of the harness's making.
    pub(crate) fn read_id(id: &str) -> Option<(Self, &str)> {
        let (name, trace) = id.split_once('/')?;
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == name)?;
        Some((kind, trace))
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
    pub(crate) taint: Taint,
    /// The person that it is for.
    pub(crate) principal: Principal,
}

/// Answers a call that hands something to another agent; none if it is another call.
///
/// # Errors
///
/// If the store cannot be written.
pub(crate) async fn hand_off(
    place: &CallPlace,
    first: &mut Pending,
    (call, label): (&ToolCall, &Label),
    cancel: &CancellationToken,
) -> Result<Option<Acted>, EngineError> {
    let tools = place.services.servers.registry();
    let toolset = tools.toolset_of(&place.profile.roles, &place.profile.allow_list(&tools));
    let handoff = match toolset.read_handoff(call) {
        Ok(None) => return Ok(None),
        Ok(Some(handoff)) => handoff,
        Err(error) => {
            let refused = toolset.render_refusal(&error, label, &place.services.journal.redactor);
            first.push(place.malformed(&call.name, &refused));
            return Ok(Some(place.result(call, refused, "wrong arguments", std::mem::take(first))));
        }
    };
    place.services.life.metrics.tool(&call.name);
    match handoff {
        Handoff::Plan { request, reason } => {
            request_plan(place, first, (call, label), (request, reason)).await.map(Some)
        }
        Handoff::Escalate { question } => {
            crate::oracle::answer(place, first, (call, label), (question, cancel)).await.map(Some)
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
    let request =
        PlannerRequest { kind: PlannerMessage::PlanRequest, trace, text, taint: label.taint, principal };
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
    let now = services.journal.clock.now();
    let text = services.journal.redactor.clean_text(request.text).into_string();
    let record = InboundRecord {
        message: services.journal.ids.message(now),
        session: session.id,
        turn_number: services.journal.store.next_message_turn(session.id).await?,
        principal: request.principal.to_string(),
        taint: request.principal.taint().join(request.taint),
        text: Digest::of_bytes(text.as_bytes()),
        at: now,
    };
    let signature = principal::sign_record(&record, &services.keys.held.harness)?;
    let fact = Fact::Received { record: record.clone(), text: text.clone(), signature };
    let mut ops = std::mem::take(first);
    ops.push(services.journal.entry(session.id, None, fact));
    let client_id = request.kind.write_id(&request.trace);
    let message = record.message;
    ops.push(Op::EnqueueFor {
        consumer: PLANNER.to_owned(),
        message: Box::new(NewMessageRow { record, client_id, text }),
    });
    match services.journal.commit_for(&session.hub, ops.into_synced()).await {
        // A call that is worked on again after a crash asks for the same plan.
        Ok(_) | Err(EngineError::Store(StoreError::Conflict(Conflict::DuplicateMessage { .. }))) => {}
        Err(error) => return Err(error),
    }
    services.life.wake.notify_one();
    Ok(message)
}

/// Asks the planner about an item that is stuck, and waits for its guidance, at most [`GUIDANCE_WAIT`]. None: there was no
/// answer in time; the caller plans anew or asks a person.
///
/// # Errors
///
/// If the request cannot be stored.
#[expect(dead_code, reason = "called by the work items, which are built on another branch")]
pub(crate) async fn consult(
    services: &Services,
    session: &Session,
    request: PlannerRequest,
) -> Result<Option<String>, EngineError> {
    let (answer, waiting) = oneshot::channel();
    let id = request.kind.write_id(&request.trace);
    services.life.guidance().insert((session.id, id.clone()), answer);
    let asked = enqueue(services, session, request, &mut Pending::new()).await;
    let guidance = match asked {
        Ok(_) => tokio::time::timeout(GUIDANCE_WAIT, waiting).await.ok().and_then(Result::ok),
        Err(error) => {
            services.life.guidance().remove(&(session.id, id));
            return Err(error);
        }
    };
    services.life.guidance().remove(&(session.id, id));
    Ok(guidance)
}

/// Judges the answer of a planner's turn: a plan that cannot be read is asked for once more, with the error; then the
/// fallback takes its place.
pub(crate) fn judge_answer(client_id: &str, request: &str, text: &str, tries: u32) -> TextVerdict {
    let Some((kind, _)) = PlannerMessage::read_id(client_id).filter(|(kind, _)| kind.wants_plan()) else {
        return TextVerdict::Pass;
    };
    match read_plan(text) {
        Ok(_) => TextVerdict::Pass,
        Err(error) if tries == 0 => again(&error),
        Err(error) => {
            tracing::warn!(%error, kind = kind.name(), "the planner's second answer is no plan; a plan of one step is used");
            TextVerdict::Transform { text: write_plan(&fallback_plan(request)) }
        }
    }
}

fn again(error: &PlanError) -> TextVerdict {
    let note = format!(
        "That is no plan that can be read. {} Answer with the whole plan again, and nothing else.",
        error.model_message()
    );
    TextVerdict::Again { reason: error.to_string(), note: Some(note), attempts: 1 }
}

/// Makes the plan that counts where the planner makes none: the request as the one step, and a person who is asked when
/// it is stuck. The same request gives the same plan.
pub(crate) fn fallback_plan(request: &str) -> PlanDocument {
    let line: String = request.split_whitespace().collect::<Vec<_>>().join(" ");
    let title: String = line.chars().filter(|c| !c.is_control()).take(MAX_MADE_TITLE).collect();
    let digest = Digest::of_bytes(request.as_bytes()).to_string();
    let id: String = digest.chars().filter(char::is_ascii_alphanumeric).rev().take(12).collect();
    let quoted: Vec<String> = request.lines().map(|line| format!("> {}", line.trim_end())).collect();
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
        cycle: None,
        context: String::new(),
        // Quoted, so that no line of it is a heading or a fence of the document.
        instructions: format!("Do what was asked for:\n\n{}", quoted.join("\n")).trim_end().to_owned(),
    }
}

/// Returns the session and id under which guidance is waited for.
pub(crate) fn guidance_key(session: SessionId, client_id: &str) -> Option<(SessionId, String)> {
    let (kind, _) = PlannerMessage::read_id(client_id)?;
    (kind == PlannerMessage::ConsultPlanner).then(|| (session, client_id.to_owned()))
}

#[cfg(test)]
mod tests;
