//! A turn that is driven by hand: short names for events, and a record of what came of them.

use std::borrow::Borrow;

use serde_json::Value;
use writ_agent::config::AgentConfig;
use writ_agent::effect::{Effect, FinishedTurn};
use writ_agent::event::{
    BudgetSeed, ContextSeed, Event, MemoryItem, ModelFailure, OpenedTurn, StoredEvent, SystemSource,
    SystemText, TextVerdict, TurnMessage,
};
use writ_agent::turn::{Illegal, Phase, Turn};
use writ_types::action::MemoryKind;
use writ_types::chat::{
    ChatMessage, ModelReply, ModelRequest, Part, Role, StopReason, ToolCall, ToolOutcome, ToolResult,
    ToolSpec, Usage,
};
use writ_types::error::Exit;
use writ_types::id::{AskId, MemoryId, MessageId, SessionId, TurnId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::{Timestamp, Tokens};

/// The time at which every turn of the tests begins.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A turn, everything that was fed to it, and everything that came out.
#[derive(Clone, Debug)]
pub(crate) struct Driver {
    pub(crate) turn: Turn,
    pub(crate) stored: Vec<StoredEvent>,
    pub(crate) effects: Vec<Effect>,
    /// The effects of the last event that had any.
    pub(crate) due: Vec<Effect>,
    pub(crate) now: Timestamp,
    arrived: u128,
}

impl Driver {
    pub(crate) fn new() -> Self {
        let turn = Turn::new();
        Self { turn, stored: Vec::new(), effects: Vec::new(), due: Vec::new(), now: START, arrived: 100 }
    }

    /// A turn that has just been opened with one message of the owner.
    pub(crate) fn opened(text: &str) -> Self {
        let mut driver = Self::new();
        driver.feed(opened(vec![message(1, text, Taint::Owner)], seed(), AgentConfig::default()));
        driver
    }

    /// A turn in which the model has been called for the first time.
    pub(crate) fn calling(seed: ContextSeed, config: AgentConfig) -> Self {
        let mut driver = Self::new();
        driver.feed(opened(vec![message(1, "do it", Taint::Owner)], seed, config));
        driver.reach_model();
        driver
    }

    /// Answers the effects before a model call with «nothing to say».
    pub(crate) fn reach_model(&mut self) {
        loop {
            match self.turn.phase() {
                Phase::JudgingInput => self.feed(Event::InputJudged { verdict: TextVerdict::Pass }),
                Phase::Recording => self.feed(Event::Recorded),
                Phase::Recalling => self.feed(Event::Recalled { hits: Vec::new() }),
                Phase::New
                | Phase::Routing
                | Phase::CallingModel
                | Phase::Acting
                | Phase::JudgingOutput
                | Phase::Delivering
                | Phase::Finished => return,
            }
        }
    }

    /// Lets the answer pass and out.
    pub(crate) fn finish(&mut self) -> FinishedTurn {
        if self.turn.phase() == Phase::JudgingOutput {
            self.feed(Event::OutputJudged { verdict: TextVerdict::Pass });
        }
        if self.turn.phase() == Phase::Delivering {
            self.feed(Event::Delivered);
        }
        match self.effects.last() {
            Some(Effect::Finish(finish)) => (**finish).clone(),
            other => panic!("the turn did not finish: {other:?}"),
        }
    }

    pub(crate) fn feed(&mut self, event: Event) {
        self.try_feed(event).expect("a legal event");
    }

    pub(crate) fn try_feed(&mut self, event: Event) -> Result<(), Illegal> {
        let mut out = Vec::new();
        let before = self.turn.clone();
        let result = self.turn.handle_event(event.clone(), self.now, &mut out);
        match &result {
            Ok(()) => self.stored.push(StoredEvent::new(event, self.now)),
            Err(_) => {
                assert_eq!(self.turn, before, "an illegal event changes nothing");
                assert!(out.is_empty(), "an illegal event has no effects");
            }
        }
        if !out.is_empty() {
            self.due.clone_from(&out);
        }
        self.effects.extend(out);
        result
    }

    pub(crate) fn reply(&mut self, stop: StopReason, text: &str, calls: Vec<ToolCall>) {
        self.feed(Event::ModelReplied { reply: reply(stop, text, calls) });
    }

    /// The model asks for one tool.
    pub(crate) fn call(&mut self, name: &str, arguments: Value) {
        let id = format!("c{}", self.effects.len());
        self.reply(StopReason::ToolUse, "", vec![ToolCall { id, name: name.to_owned(), arguments }]);
    }

    /// The tool call at work ends.
    pub(crate) fn act(&mut self, outcome: ToolOutcome, taint: Taint, text: &str) {
        let result = self.result(outcome, taint, text);
        self.feed(Event::Acted { result, ask: None, ends: None });
    }

    /// The tool call at work waits for an ask.
    pub(crate) fn wait_for(&mut self, ask: &AskId, text: &str) {
        let result = self.result(ToolOutcome::Waiting, Taint::Owner, text);
        self.feed(Event::Acted { result, ask: Some(ask.clone()), ends: None });
    }

    /// A result of the tool call at work.
    pub(crate) fn result(&self, outcome: ToolOutcome, taint: Taint, text: &str) -> ToolResult {
        match self.acts().last() {
            Some(call) => result(&call.id, &call.name, outcome, taint, text),
            None => result("none", "none", outcome, taint, text),
        }
    }

    pub(crate) fn arrive(&mut self, text: &str) -> MessageId {
        self.arrived += 1;
        let message = message(self.arrived, text, Taint::Owner);
        let id = message.id;
        self.feed(Event::Arrived { message });
        id
    }

    /// The last request to the model.
    pub(crate) fn request(&self) -> &ModelRequest {
        let requests = self.requests();
        requests.last().copied().expect("the model was called")
    }

    pub(crate) fn requests(&self) -> Vec<&ModelRequest> {
        let mut requests = Vec::new();
        for effect in &self.effects {
            if let Effect::CallModel { request, .. } = effect {
                requests.push(request.as_ref());
            }
        }
        requests
    }

    pub(crate) fn acts(&self) -> Vec<&ToolCall> {
        let mut acts = Vec::new();
        for effect in &self.effects {
            if let Effect::Act { call, .. } = effect {
                acts.push(call);
            }
        }
        acts
    }

    /// Texts and incomplete marks of what was delivered.
    pub(crate) fn delivered(&self) -> Vec<(&str, Option<&str>)> {
        let mut delivered = Vec::new();
        for effect in &self.effects {
            if let Effect::Deliver { text, incomplete, .. } = effect {
                delivered.push((text.as_str(), incomplete.as_deref()));
            }
        }
        delivered
    }
}

pub(crate) fn id(random: u128) -> MessageId {
    MessageId::from_parts(START, random)
}

pub(crate) fn message(n: u128, text: &str, taint: Taint) -> TurnMessage {
    TurnMessage { id: id(n), text: text.to_owned(), label: Label::new(taint) }
}

pub(crate) fn opened(messages: Vec<TurnMessage>, seed: ContextSeed, config: AgentConfig) -> Event {
    let session = SessionId::from_parts(START, 1);
    let turn = TurnId::from_parts(START, 2);
    Event::Opened(Box::new(OpenedTurn { session, turn, number: 6, messages, seed, config }))
}

pub(crate) fn seed() -> ContextSeed {
    let system =
        |source, text: &str| SystemText { source, text: text.to_owned(), label: Label::new(Taint::Owner) };
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("The tool {name}."),
        schema: serde_json::json!({"type": "object"}),
    };
    ContextSeed {
        system: vec![
            system(SystemSource::Constitution, "You are an agent."),
            system(SystemSource::Rules, "Be careful."),
            system(SystemSource::Facts, "The work folder is /work."),
        ],
        tools: vec![tool("shell_exec"), tool("file_read")].into(),
        curated: None,
        owner_profile: Vec::new(),
        history: Vec::new(),
        history_rows: None,
        carried: Vec::new(),
        pinned_places: Vec::new(),
        hidden_places: Vec::new(),
        workspace: Vec::new(),
        setting: None,
        interaction: Default::default(),
        rehydrated: false,
        profile: "conversation".to_owned(),
        proxy: false,
        budget: BudgetSeed { used: Tokens::ZERO, limit: Tokens::new(500_000), given: None },
    }
}

pub(crate) fn memory(n: u128, text: &str, taint: Taint) -> MemoryItem {
    let id = MemoryId::from_parts(START, n);
    let (text, label) = (text.to_owned(), Label::new(taint));
    MemoryItem { id, kind: MemoryKind::Fact, text, label, why: String::new() }
}

pub(crate) fn reply(stop: StopReason, text: &str, calls: Vec<ToolCall>) -> ModelReply {
    let usage = Usage { input: Tokens::new(100), output: Tokens::new(10), ..Usage::default() };
    ModelReply {
        text: text.to_owned(),
        calls,
        stop,
        usage,
        model: "scripted".to_owned(),
        reasoning: Vec::new(),
    }
}

pub(crate) fn result(id: &str, name: &str, outcome: ToolOutcome, taint: Taint, text: &str) -> ToolResult {
    let (call_id, name, text) = (id.to_owned(), name.to_owned(), text.to_owned());
    ToolResult { call_id, name, outcome, text, label: Label::new(taint), fields: Vec::new(), kept: None }
}

pub(crate) fn failed(exit: Exit, text: &str, hint: &str) -> Event {
    let failure = ModelFailure::Failed { exit, text: text.to_owned(), hint: hint.to_owned(), noted: None };
    Event::ModelFailed { failure }
}

pub(crate) fn ask(text: &str) -> AskId {
    text.parse().expect("an ask id")
}

pub(crate) fn said(role: Role, text: &str) -> ChatMessage {
    let parts = vec![Part::Text { text: text.to_owned() }];
    ChatMessage { role, parts, label: Label::new(Taint::Owner) }
}

/// All text of a message, results included.
pub(crate) fn text_of(message: &ChatMessage) -> String {
    let text = |part: &Part| match part {
        Part::Text { text } => text.clone(),
        Part::Call(call) => format!("{} {}", call.name, call.arguments),
        Part::Result(result) => result.text.clone(),
        Part::Reasoning(_) | Part::File(_) => String::new(),
    };
    message.parts.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// All text of a request's conversation.
pub(crate) fn texts_of(request: &ModelRequest) -> String {
    request.messages.iter().map(|message| text_of(message)).collect::<Vec<_>>().join("\n")
}

/// Panics unless every call is followed by its results and every result follows its call.
pub(crate) fn assert_paired(messages: &[impl Borrow<ChatMessage>]) {
    let mut open: Vec<String> = Vec::new();
    for message in messages.iter().map(Borrow::borrow) {
        if message.role != Role::Tool {
            assert!(open.is_empty(), "calls {open:?} have no result");
        }
        for part in &message.parts {
            match part {
                Part::Text { .. } | Part::Reasoning(_) | Part::File(_) => {}
                Part::Call(call) => open.push(call.id.clone()),
                Part::Result(result) => {
                    let place =
                        open.iter().position(|id| *id == result.call_id).expect("a result has a call");
                    open.remove(place);
                }
            }
        }
    }
    assert!(open.is_empty(), "calls {open:?} have no result");
}
