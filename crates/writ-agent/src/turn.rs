//! One user message and the agent's answer to it, as a pure machine.
//!
//! ```text
//! New ─► JudgingInput ─► Recording ─► Recalling ─► CallingModel ─► JudgingOutput ─► Delivering ─► Finished
//!             ▲   │ blocked                 │         │   ▲  ▲ failed, capped           ▲
//!             │   └─────────────────────────┼─────────┼───┼──┴──────────────────────────┘
//!             └── a message came meanwhile ─┴── Acting ◄──┘
//! ```
//!
//! Where there is a proxy, Routing stands between Recalling and CallingModel, once in a turn: its answer goes to JudgingOutput,
//! and what it does not answer on to CallingModel.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use writ_types::chat::{ChatMessage, ModelReply, Part, Role, StopReason, Usage};
use writ_types::error::{Exit, Report, ToReport};
use writ_types::id::{AskId, MessageId, SessionId, TurnId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Timestamp;

use crate::config::AgentConfig;
use crate::context::{self, Assembled, ContextError};
use crate::effect::{Effect, TurnStatus};
use crate::event::{Event, MemoryItem, ModelFailure, OpenedTurn, StoredEvent, TextVerdict, TurnMessage};
use crate::notice::{self, BudgetNote};
use crate::repeat::Repeats;
use crate::text;

mod ending;
mod parts;
mod phase;
mod shorten;
mod tools;

use ending::TurnEnding;
pub use parts::ContextParts;
pub use phase::{Illegal, Phase, RecoverError, Why};
use shorten::Shortening;
use tools::CallWork;

/// The longest query that the memory is searched with, in characters: more adds noise, not hits.
pub const MAX_QUERY_CHARS: usize = 2_000;

/// The most memories that one turn recalls; more do not help and cost context.
pub const MAX_RECALLED: usize = 32;

/// One turn.
///
/// Feed events with [`handle`](Self::handle_event), perform the effects in order, and
/// stop when [`Effect::Finish`] has come out. Store each event before its
/// effects are performed; after a crash, [`recover`](Self::recover_turn).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    phase: Phase,
    session: Option<SessionId>,
    id: Option<TurnId>,
    number: u64,
    started: Timestamp,
    config: AgentConfig,
    context: ContextParts,
    /// Messages that are not yet taken in; the first is the one that is being judged or recorded.
    inbox: VecDeque<TurnMessage>,
    answers: Vec<MessageId>,
    absorbed: u32,
    label: Label,
    work: CallWork,
    call_ids: BTreeSet<String>,
    repeats: Repeats,
    open_asks: BTreeMap<AskId, String>,
    last_was_denied: bool,
    achieved: bool,
    remarks: Vec<String>,
    ending: TurnEnding,
    /// The model's answer while the output gates judge it.
    draft: String,
    /// The number of withheld answers after which the model was asked again.
    again: u32,
    shortening: Shortening,
    usage: Usage,
    model_calls: u32,
    tool_calls: u32,
}

// === impl Turn ===

impl Default for Turn {
    fn default() -> Self {
        Self::new()
    }
}

impl Turn {
    /// A turn to which nothing has happened yet.
    pub fn new() -> Self {
        Self {
            phase: Phase::New,
            session: None,
            id: None,
            number: 0,
            started: Timestamp::default(),
            config: AgentConfig::default(),
            context: ContextParts::empty(),
            inbox: VecDeque::new(),
            answers: Vec::new(),
            absorbed: 0,
            label: Label::new(Taint::Owner),
            work: CallWork::default(),
            call_ids: BTreeSet::new(),
            repeats: Repeats::default(),
            open_asks: BTreeMap::new(),
            last_was_denied: false,
            achieved: false,
            remarks: Vec::new(),
            ending: TurnEnding::default(),
            draft: String::new(),
            again: 0,
            shortening: Shortening::default(),
            usage: Usage::default(),
            model_calls: 0,
            tool_calls: 0,
        }
    }

    /// Takes one event in and appends what is to be done to `out`.
    ///
    /// # Errors
    ///
    /// If the event cannot happen now; the turn and `out` are then unchanged.
    pub fn handle_event(
        &mut self,
        event: Event,
        now: Timestamp,
        out: &mut Vec<Effect>,
    ) -> Result<(), Illegal> {
        let (phase, kind) = (self.phase, event.kind());
        self.apply_event(event, now, out).map_err(|why| Illegal { phase, event: kind, why })
    }

    /// The whole machine: what each event means in each phase.
    // tidy: table
    fn apply_event(&mut self, event: Event, now: Timestamp, out: &mut Vec<Effect>) -> Result<(), Why> {
        use Phase::{
            Acting, CallingModel, Delivering, Finished, JudgingInput, JudgingOutput, New, Recalling,
            Recording, Routing,
        };
        match (self.phase, event) {
            (New, Event::Opened(opened)) => self.open_turn(*opened, now, out)?,
            (JudgingInput, Event::InputJudged { verdict }) => self.take_input_verdict(verdict, out),
            (Recording, Event::Recorded) => self.take_in(out),
            (Recalling, Event::Recalled { hits }) => self.take_hits(hits, out),
            (Routing, Event::Routed { decision }) => self.take_route(decision, out),
            (CallingModel, Event::ModelReplied { reply }) => self.take_reply(reply, out),
            (CallingModel, Event::ModelFailed { failure }) => self.take_failure(failure, out),
            (Acting, Event::Acted { result, ask, ends }) => self.take_result(result, ask, ends, out)?,
            (JudgingOutput, Event::OutputJudged { verdict }) => self.take_output_verdict(verdict, out),
            (Delivering, Event::Delivered) => self.finish_turn(out),
            (
                JudgingInput | Recording | Recalling | Routing | CallingModel | Acting | JudgingOutput
                | Delivering,
                Event::Answered { ask, result },
            ) => self.take_answer(&ask, result)?,
            (
                JudgingInput | Recording | Recalling | Routing | CallingModel | Acting,
                Event::Arrived { message },
            ) => {
                self.add_message(message)?;
            }
            (
                JudgingInput | Recording | Recalling | Routing | CallingModel | Acting | JudgingOutput,
                Event::Cancel,
            ) => self.cancel_turn(out),
            (
                JudgingInput | Recording | Recalling | Routing | CallingModel | Acting | JudgingOutput,
                Event::DeadlinePassed,
            ) => self.expire_turn(now, out),
            // The answer is final by now: what comes later belongs to the next turn.
            (JudgingOutput | Delivering, Event::Arrived { .. })
            | (Delivering, Event::Cancel | Event::DeadlinePassed) => {}
            (
                JudgingInput | Recording | Recalling | Routing | CallingModel | Acting | JudgingOutput
                | Delivering | Finished,
                Event::Opened(_),
            )
            | (
                New | Recording | Recalling | Routing | CallingModel | Acting | JudgingOutput | Delivering
                | Finished,
                Event::InputJudged { .. },
            )
            | (
                New | JudgingInput | Recalling | Routing | CallingModel | Acting | JudgingOutput | Delivering
                | Finished,
                Event::Recorded,
            )
            | (
                New | JudgingInput | Recording | Routing | CallingModel | Acting | JudgingOutput | Delivering
                | Finished,
                Event::Recalled { .. },
            )
            | (
                New | JudgingInput | Recording | Recalling | CallingModel | Acting | JudgingOutput
                | Delivering | Finished,
                Event::Routed { .. },
            )
            | (
                New | JudgingInput | Recording | Recalling | Routing | Acting | JudgingOutput | Delivering
                | Finished,
                Event::ModelReplied { .. } | Event::ModelFailed { .. },
            )
            | (
                New | JudgingInput | Recording | Recalling | Routing | CallingModel | JudgingOutput
                | Delivering | Finished,
                Event::Acted { .. },
            )
            | (
                New | JudgingInput | Recording | Recalling | Routing | CallingModel | Acting | Delivering
                | Finished,
                Event::OutputJudged { .. },
            )
            | (
                New | JudgingInput | Recording | Recalling | Routing | CallingModel | Acting | JudgingOutput
                | Finished,
                Event::Delivered,
            )
            | (
                New | Finished,
                Event::Answered { .. } | Event::Arrived { .. } | Event::Cancel | Event::DeadlinePassed,
            ) => return Err(Why::Order),
        }
        Ok(())
    }

    /// When `DeadlinePassed` is due; `None` while there is nothing to stop.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::New | Phase::Delivering | Phase::Finished => None,
            Phase::JudgingInput
            | Phase::Recording
            | Phase::Recalling
            | Phase::Routing
            | Phase::CallingModel
            | Phase::Acting
            | Phase::JudgingOutput => Some(self.limit_time()),
        }
    }

    /// Folds the stored events of a turn through the machine.
    ///
    /// Returns the turn and the effects that are still to be answered: those of the last event that had any.
    /// Perform them again (`Record`, `Deliver` and `Finish` may have been performed already), except an `Act`
    /// whose `Intent` is open in the ledger: for it feed `Acted` with
    /// [`unknown_result`](Self::unknown_result).
    ///
    /// # Errors
    ///
    /// If there are no events, or one does not fit those before it.
    pub fn recover_turn(
        events: impl IntoIterator<Item = StoredEvent>,
    ) -> Result<(Self, Vec<Effect>), RecoverError> {
        let mut turn = Self::new();
        let mut due = Vec::new();
        let mut opened = false;
        for (n, stored) in events.into_iter().enumerate() {
            let mut effects = Vec::new();
            turn.handle_event(stored.event, stored.at, &mut effects)
                .map_err(|source| RecoverError::Illegal { n, source })?;
            // Only the effects of the last event are still due: earlier ones were answered by the events after
            // them.
            if !effects.is_empty() {
                due = effects;
            }
            opened = true;
        }
        if opened { Ok((turn, due)) } else { Err(RecoverError::Empty) }
    }

    /// Returns the phase of the turn.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// The session, once the turn is opened.
    pub const fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// The turn, once it is opened.
    pub const fn id(&self) -> Option<TurnId> {
        self.id
    }

    /// The number of the turn in its session; zero before it is opened.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The join of the labels of everything that the model has seen in this turn.
    pub const fn label(&self) -> &Label {
        &self.label
    }

    /// Assembles the context as the model would see it now, with the cost of each part (`writ context`).
    ///
    /// # Errors
    ///
    /// If the context does not fit; see [`context::assemble_context`].
    pub fn assemble_now(&self) -> Result<Assembled, ContextError> {
        self.context.assemble_request(self.shortening.results, &self.config)
    }

    /// Returns the most characters of one result that this turn's context shows uncut, with a note beside it.
    pub fn result_room(&self) -> usize {
        context::result_room(&self.config.context)
    }

    /// Returns the texts of the context, for judging the actions that follow from them.
    pub const fn context_parts(&self) -> &ContextParts {
        &self.context
    }

    // --- before the model ---

    fn open_turn(&mut self, opened: OpenedTurn, now: Timestamp, out: &mut Vec<Effect>) -> Result<(), Why> {
        let OpenedTurn { session, turn, number, messages, seed, config } = opened;
        // A stored event is checked like a new one: the store may have been changed.
        config.validate_config()?;
        if number == 0 {
            return Err(Why::NumberZero);
        }
        if messages.is_empty() {
            return Err(Why::NoMessage);
        }
        for message in &messages {
            check_text(message)?;
        }
        // Some providers begin to count their ids anew, and none accepts the same id twice.
        let call_ids = seed.history.iter().flat_map(|message| &message.parts).filter_map(|part| match part {
            Part::Call(call) => Some(call.id.clone()),
            Part::Text { .. } | Part::Result(_) | Part::Reasoning(_) | Part::File(_) => None,
        });
        *self = Self {
            call_ids: call_ids.collect(),
            session: Some(session),
            id: Some(turn),
            number,
            started: now,
            config,
            context: ContextParts::new(seed),
            answers: messages.iter().map(|message| message.id).collect(),
            inbox: messages.into(),
            ..Self::new()
        };
        self.proceed_turn(out);
        Ok(())
    }

    /// The next step between two answers of the model: messages first, then the model.
    fn proceed_turn(&mut self, out: &mut Vec<Effect>) {
        if let Some(message) = self.inbox.front() {
            self.phase = Phase::JudgingInput;
            out.push(Effect::JudgeInput { message: message.clone() });
        // All messages of the turn were blocked, so there is nothing for the model to answer.
        } else if self.context.conversation.is_empty() {
            let reason = std::mem::take(&mut self.remarks).join("\n\n");
            self.ending = TurnEnding {
                status: TurnStatus::Blocked,
                exit: Exit::Denied,
                incomplete: Some(reason),
                noted: None,
            };
            self.deliver_answer("", out);
        } else if let Some(question) = self.context.take_question() {
            self.label.join(&question.label);
            self.phase = Phase::Routing;
            out.push(Effect::Route { question: Box::new(question) });
        } else {
            self.call_model(out);
        }
    }

    fn take_input_verdict(&mut self, verdict: TextVerdict, out: &mut Vec<Effect>) {
        let Some(message) = self.inbox.front_mut() else { return self.proceed_turn(out) };
        let opening = self.answers.contains(&message.id);
        if !opening {
            self.answers.push(message.id);
        }
        match verdict {
            TextVerdict::Pass => {}
            TextVerdict::Transform { text } => message.text = text,
            // The opening message's reason is the answer itself; for later messages it becomes a remark beside
            // the answer.
            TextVerdict::Block { reason } | TextVerdict::Again { reason, .. } => {
                self.remarks.push(if opening { reason } else { notice::message_blocked(&reason) });
                self.inbox.pop_front();
                return self.proceed_turn(out);
            }
        }
        self.phase = Phase::Recording;
        out.push(Effect::Record { turn_number: self.number, message: message.clone() });
    }

    fn take_in(&mut self, out: &mut Vec<Effect>) {
        let Some(TurnMessage { text, label, .. }) = self.inbox.pop_front() else {
            return self.proceed_turn(out);
        };
        let query = text.chars().take(MAX_QUERY_CHARS).collect();
        self.context.conversation.push(ChatMessage {
            role: Role::User,
            parts: vec![Part::Text { text }],
            label,
        });
        self.phase = Phase::Recalling;
        out.push(Effect::Recall { query });
    }

    fn take_hits(&mut self, hits: Vec<MemoryItem>, out: &mut Vec<Effect>) {
        for hit in hits {
            // Memories that an earlier message of this turn recalled are already in the context.
            if self.context.hits.len() < MAX_RECALLED
                && !self.context.hits.iter().any(|known| known.id == hit.id)
            {
                self.context.hits.push(hit);
            }
        }
        self.proceed_turn(out);
    }

    // --- the model ---

    fn call_model(&mut self, out: &mut Vec<Effect>) {
        let most = self.config.limits.max_model_calls_per_turn;
        if self.model_calls >= most {
            return self.stop_at_limit(notice::model_cap(most), out);
        }
        self.context.append_news();
        if let Some(note) = BudgetNote::due_note(&self.context.seed.budget) {
            self.context.seed.budget.given = Some(note);
            // The note is for this turn only and does not become part of the history.
            self.context.push_passing(context::system_message(note.note_text()));
        }
        match self.assemble_now() {
            Ok(assembled) => {
                self.shortening.sent = assembled.total_tokens();
                let Assembled { request, label, .. } = assembled;
                self.label.join(&label);
                self.model_calls += 1;
                self.phase = Phase::CallingModel;
                out.push(Effect::CallModel { request: Box::new(request), label: self.label.clone() });
            }
            Err(error) => {
                let Report { exit, outside, hint, .. } = error.report();
                self.fail_turn(ModelFailure::Failed { exit, text: outside, hint, noted: None }, out);
            }
        }
    }

    fn take_reply(&mut self, reply: ModelReply, out: &mut Vec<Effect>) {
        // A reply proves that the request fitted: the next one may be shortened again.
        self.shortening.tries = 0;
        self.usage += reply.usage;
        self.context.seed.budget.used += reply.usage.total_tokens();
        let has_calls = !reply.calls.is_empty();
        match reply.stop {
            // Some servers report a normal end beside tool calls: the calls say what is meant.
            StopReason::ToolUse | StopReason::EndTurn if has_calls => self.take_calls(reply, out),
            StopReason::EndTurn => self.conclude_turn(reply.text, out),
            StopReason::ToolUse => self.break_off(reply.text, TurnStatus::Failed, notice::NO_TOOL_NAMED, out),
            // Calls beside it may be cut in the middle of their arguments: none is performed.
            StopReason::MaxTokens => self.break_off(reply.text, TurnStatus::Incomplete, notice::CUT, out),
            StopReason::ContentFilter => {
                self.break_off(String::new(), TurnStatus::Failed, notice::WITHHELD, out);
            }
            StopReason::Other(reason) => {
                let reason = notice::stopped_for(&text::plain_name(&reason));
                self.break_off(reply.text, TurnStatus::Failed, &reason, out);
            }
        }
    }

    // --- at any time ---

    fn add_message(&mut self, message: TurnMessage) -> Result<(), Why> {
        check_text(&message)?;
        // A message can arrive twice after a crash.
        let known = self.answers.contains(&message.id) || self.inbox.iter().any(|m| m.id == message.id);
        if !known && self.absorbed < self.config.limits.max_absorbed_messages {
            self.absorbed += 1;
            self.inbox.push_back(message);
        }
        Ok(())
    }
}

fn check_text(message: &TurnMessage) -> Result<(), Why> {
    if message.text.trim().is_empty() { Err(Why::EmptyMessage(message.id)) } else { Ok(()) }
}
