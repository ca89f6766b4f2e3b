//! Cassettes of sessions: their stored turns, folded through the turn machine once more.
//!
//! The machine is pure, so the requests that it makes of the stored events are those that it made then.

use std::collections::VecDeque;

use writ_agent::effect::Effect;
use writ_agent::event::{Event, ModelFailure, StoredEvent};
use writ_agent::turn::Turn;
use writ_models::ModelRole;
use writ_secrets::contents::SEALED_REPLY;
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::{LedgerReads as _, QueueReads as _, SessionReads as _, TurnReads as _};
use writ_store::turns::TurnRow;
use writ_types::api::cassette::{CASSETTE_VERSION, CassettePage, CassetteQuery, CassetteTrack};
use writ_types::chat::{ModelReply, ModelRequest, Part, ToolCall, ToolResult, estimate_tokens};
use writ_types::digest::Digest;
use writ_types::entry::Fact;
use writ_types::id::{AskId, SessionId};
use writ_types::taint::Label;
use writ_types::unit::Tokens;

use super::archive::readable;
use super::{MAX_LISTED_BYTES, to_json};
use crate::error::EngineError;
use crate::history::read_turn_events;
use crate::planner::PlannerMessage;
use crate::services::Services;
use crate::session::{AGENT, TitleRecord};

/// The most turns of one page.
const MAX_PAGE_TURNS: usize = 200;
/// The most rows of histories that are read for one page; one turn's are read in any case.
pub(super) const MAX_PAGE_ROWS: usize = 20_000;

/// A step of a stored turn, with what the machine had asked for.
pub(super) enum StoredStep {
    /// A message was taken in.
    Message(String, Label),
    /// A model answered.
    Model(Box<ModelRequest>, Box<ModelReply>),
    /// A model did not answer.
    Failure(String),
    /// A tool call came to an end.
    Call(ToolCall, Label, ToolResult, Option<AskId>),
    /// An ask was answered.
    Answer(AskId, ToolResult),
    /// Nothing that came from outside.
    Inner,
}

/// A stored turn on its way through the machine again.
pub(super) struct Folding {
    /// The machine before the event that comes next.
    pub(super) machine: Turn,
    due: VecDeque<Effect>,
}

impl Folding {
    pub(super) fn new() -> Self {
        Self { machine: Turn::new(), due: VecDeque::new() }
    }

    /// Finds what an event answers; [`Folding::take`] follows.
    ///
    /// # Errors
    ///
    /// If the machine had not asked for it.
    pub(super) fn step_of(&mut self, event: &Event) -> Result<StoredStep, EngineError> {
        let unasked = || EngineError::Machine("a stored event answers nothing".to_owned());
        Ok(match event {
            Event::Opened(opened) => {
                let texts: Vec<&str> = opened.messages.iter().map(|message| message.text.as_str()).collect();
                let label = opened.messages.first().map(|message| message.label.clone());
                StoredStep::Message(texts.join("\n"), label.ok_or_else(unasked)?)
            }
            Event::Arrived { message } => StoredStep::Message(message.text.clone(), message.label.clone()),
            Event::ModelReplied { reply } => {
                let asked = self.due.iter().find_map(|effect| {
                    if let Effect::CallModel { request, .. } = effect { Some(request.clone()) } else { None }
                });
                StoredStep::Model(asked.ok_or_else(unasked)?, Box::new(reply.clone()))
            }
            Event::ModelFailed { failure } => StoredStep::Failure(failure_text(failure)),
            Event::Acted { result, ask, .. } => {
                let asked = self.due.iter().find_map(|effect| {
                    if let Effect::Act { call, label } = effect { Some((call, label)) } else { None }
                });
                let asked = asked.filter(|(call, _)| call.id == result.call_id);
                let (call, label) =
                    asked.map(|(call, label)| (call.clone(), label.clone())).ok_or_else(unasked)?;
                StoredStep::Call(call, label, result.clone(), ask.clone())
            }
            Event::Answered { ask, result } => StoredStep::Answer(ask.clone(), result.clone()),
            Event::InputJudged { .. }
            | Event::Recorded
            | Event::Recalled { .. }
            // The proxy is asked as the harness asks: its answers are in the ledger.
            | Event::Routed { .. }
            | Event::OutputJudged { .. }
            | Event::Delivered
            | Event::Cancel
            | Event::DeadlinePassed => StoredStep::Inner,
        })
    }

    /// Hands an event to the machine.
    ///
    /// # Errors
    ///
    /// If the machine refuses it.
    pub(super) fn take(&mut self, StoredEvent { event, at, .. }: StoredEvent) -> Result<(), EngineError> {
        let phase = self.machine.phase();
        let mut effects = Vec::new();
        let answered =
            if let Event::Acted { result, .. } = &event { Some(result.call_id.clone()) } else { None };
        let is_of_model = matches!(event, Event::ModelReplied { .. } | Event::ModelFailed { .. });
        self.machine
            .handle_event(event, at, &mut effects)
            .map_err(|illegal| EngineError::Machine(illegal.to_string()))?;
        if self.machine.phase() != phase {
            self.due.clear();
        }
        self.due.retain(|effect| match effect {
            Effect::Act { call, .. } => Some(&call.id) != answered.as_ref(),
            // A request that was too long is followed by another in the same phase.
            Effect::CallModel { .. } => !is_of_model,
            Effect::JudgeInput { .. }
            | Effect::Record { .. }
            | Effect::Recall { .. }
            | Effect::Route { .. }
            | Effect::CancelModel
            | Effect::CancelTool { .. }
            | Effect::JudgeOutput { .. }
            | Effect::Deliver { .. }
            | Effect::Finish(_) => true,
        });
        self.due.extend(effects);
        Ok(())
    }
}

fn failure_text(failure: &ModelFailure) -> String {
    match failure {
        ModelFailure::SessionExhausted => "the session's tokens are used up".to_owned(),
        ModelFailure::DailyExhausted => "the day's tokens are used up".to_owned(),
        ModelFailure::Failed { text, noted, .. } | ModelFailure::TooLong { text, noted, .. } => {
            noted.clone().unwrap_or_else(|| text.clone())
        }
    }
}

/// Reads turns of a session that have ended, and the number to go on after.
pub(super) async fn page_of_turns(
    services: &Services,
    CassetteQuery { session, after }: CassetteQuery,
) -> Result<(Vec<TurnRow>, bool), EngineError> {
    readable(services, session, "sessions.cassette").await?;
    let mut turns = services.journal.store.session_turns(session, after, MAX_PAGE_TURNS).await?;
    let more = turns.len() >= MAX_PAGE_TURNS;
    // A turn that runs is not whole, and those after it are not passed over.
    let ended = turns.iter().take_while(|turn| turn.ended_at.is_some()).count();
    let more = more && ended == turns.len();
    turns.truncate(ended);
    Ok((turns, more))
}

/// Reads a part of a session's cassette.
pub(super) async fn read_cassette(
    services: &Services,
    query: CassetteQuery,
) -> Result<CassettePage, EngineError> {
    let (turns, mut more) = page_of_turns(services, query).await?;
    let mut tracks = Vec::new();
    if query.after == 0 {
        tracks.push(head(services, query.session).await?);
        tracks.extend(harness_tracks(services, query.session, None).await?);
    }
    let (mut bytes, mut rows, mut last) = (0_usize, 0_usize, None);
    for turn in turns {
        if rows > MAX_PAGE_ROWS {
            more = true;
            break;
        }
        let events = read_turn_events(&services.journal.store, turn.session, turn.id).await?;
        rows = rows.saturating_add(rows_of(&events));
        let mut read = turn_tracks(services, &turn, events, &role_of(services, &turn).await?)?;
        read.extend(harness_tracks(services, query.session, Some(&turn)).await?);
        for track in &read {
            bytes = bytes.saturating_add(to_json(track)?.to_string().len());
        }
        // At least one turn, so that a reader who goes on advances.
        if bytes > MAX_LISTED_BYTES && last.is_some() {
            more = true;
            break;
        }
        tracks.extend(read);
        last = Some(turn.number);
    }
    Ok(CassettePage { tracks, next: last.filter(|_| more) })
}

async fn head(services: &Services, session: SessionId) -> Result<CassetteTrack, EngineError> {
    let row = services.journal.store.session(session).await?.ok_or(EngineError::NoSession(session))?;
    let agent = row.metadata.get(AGENT).and_then(serde_json::Value::as_str).map(str::to_owned);
    Ok(CassetteTrack::Head {
        version: CASSETTE_VERSION,
        session,
        title: TitleRecord::of_metadata(&row.metadata).map(|title| title.text),
        agent,
        has_project: row.project.is_some(),
        made_at: services.journal.clock.now(),
    })
}

/// Returns the number of rows of the history that the events of a turn hold.
pub(super) fn rows_of(events: &[StoredEvent]) -> usize {
    let history = |stored: &StoredEvent| {
        if let Event::Opened(opened) = &stored.event { opened.seed.history.len() } else { 0 }
    };
    events.iter().map(history).sum()
}

/// The lines of one turn. Texts were masked when they were stored, and are masked again with what is secret now.
fn turn_tracks(
    services: &Services,
    row: &TurnRow,
    events: Vec<StoredEvent>,
    role: &str,
) -> Result<Vec<CassetteTrack>, EngineError> {
    let (turn, mut tracks, mut folding) = (row.number, Vec::new(), Folding::new());
    for stored in events {
        let track = match folding.step_of(&stored.event)? {
            StoredStep::Message(text, label) => {
                Some(CassetteTrack::Message { turn, text, taint: label.taint })
            }
            StoredStep::Model(request, reply) => Some(CassetteTrack::Model {
                turn,
                role: role.to_owned(),
                request: Digest::of_json(&request).map_err(EngineError::NotCanonical)?,
                messages: request.messages.len(),
                tools: request.tools.len(),
                length: length_of(&request),
                reply,
            }),
            StoredStep::Failure(text) => Some(CassetteTrack::Failure { turn, text }),
            StoredStep::Call(call, _, result, ask) => Some(CassetteTrack::Tool {
                turn,
                call,
                outcome: result.outcome,
                text: result.text,
                taint: result.label.taint,
                ask,
            }),
            StoredStep::Answer(ask, result) => {
                Some(CassetteTrack::Answer { turn, ask, outcome: result.outcome, text: result.text })
            }
            StoredStep::Inner => None,
        };
        tracks.extend(track);
        folding.take(stored)?;
    }
    tracks.push(CassetteTrack::End { turn, state: row.state.clone() });
    tracks.iter().map(|track| masked(services, track)).collect()
}

/// The role of the agent that answered in a turn.
async fn role_of(services: &Services, turn: &TurnRow) -> Result<String, EngineError> {
    let ids = services.journal.store.client_ids(&[turn.message]).await?;
    let is_planner = ids.first().is_some_and(|id| PlannerMessage::read_id(id).is_some());
    let role = if is_planner { ModelRole::Planner } else { ModelRole::Executor };
    Ok(role.as_str().to_owned())
}

/// The answers of models to the harness in a turn, or in none, in their order. Those before this program wrote them are missing.
async fn harness_tracks(
    services: &Services,
    session: SessionId,
    turn: Option<&TurnRow>,
) -> Result<Vec<CassetteTrack>, EngineError> {
    let query = LedgerQuery {
        event: Some("model_called".to_owned()),
        session: Some(session),
        turn: turn.map(|turn| turn.id),
        limit: writ_store::config::MAX_READ_ROWS,
        ..LedgerQuery::default()
    };
    let mut rows = services.journal.store.ledger_search(&query).await?;
    rows.retain(|row| row.turn == turn.map(|turn| turn.id));
    let number = turn.map_or(0, |turn| turn.number);
    // They come newest first.
    let tracks = rows.iter().rev().filter_map(|row| {
        let Fact::ModelCalled { role, sealed_reply: Some(sealed), .. } = row.entry()?.fact else {
            return None;
        };
        let plain = services.outside.seal.open_content(SEALED_REPLY, &sealed);
        let reply = serde_json::from_slice(&plain.ok()?).ok()?;
        (!role.is_empty()).then_some(CassetteTrack::Harness { turn: number, role, reply })
    });
    tracks.map(|track| masked(services, &track)).collect()
}

fn length_of(request: &ModelRequest) -> Tokens {
    let messages = request.messages.iter().flat_map(|message| &message.parts).map(|part| match part {
        Part::Text { text } => estimate_tokens(text),
        Part::Call(call) => estimate_tokens(&call.arguments.to_string()),
        Part::Result(result) => estimate_tokens(&result.text),
        Part::Reasoning(_) => Tokens::default(),
        Part::File(attached) => Tokens::new(attached.file.estimated_tokens()),
    });
    messages.fold(estimate_tokens(&request.system), Tokens::saturating_add)
}

fn masked(services: &Services, track: &CassetteTrack) -> Result<CassetteTrack, EngineError> {
    let mut value = to_json(track)?;
    services.journal.redactor.mask_json(&mut value);
    serde_json::from_value(value).map_err(|error| EngineError::Machine(format!("a masked track: {error}")))
}
