//! Drives one turn: feeds the pure machine events and performs the effects that come out.
//!
//! Every event is stored before its effects are performed, together with the facts that belong to it,
//! so a crash at any point is folded again from what is stored. Effects that leave no trace are the
//! exception: see [`Drive::held`].

mod finish;

mod judge;

pub(crate) mod origins;

mod planned;

mod recall;

pub(crate) mod route;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use writ_agent::effect::Effect;
use writ_agent::event::{Event, StoredEvent};
use writ_agent::turn::Turn;
use writ_policy::budget::Spent;
use writ_policy::keys::Authority;
use writ_store::batch::Op;
use writ_store::queue::Leased;
use writ_types::chat::{ModelRequest, ToolCall};
use writ_types::entry::{Fact, GatePoint};
use writ_types::id::TurnId;
use writ_types::taint::Label;
use writ_types::unit::{MicroUsd, Timestamp};

use crate::asks::tell::answered_note;
use crate::budget::read_spent_of_call;
use crate::error::EngineError;
use crate::pending::Pending;
use crate::place::CallPlace;
use crate::profile::AgentProfile;
use crate::services::Services;
use crate::session::{Interrupt, MAX_INTERRUPTS, Session};
use crate::{coding, trace};

/// The wait before a failed write to the store is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

pub(crate) struct Drive {
    pub(crate) services: Arc<Services>,
    pub(crate) session: Arc<Session>,
    pub(crate) profile: Arc<AgentProfile>,
    pub(crate) turn: TurnId,
    pub(crate) number: u64,
    pub(crate) machine: Turn,
    /// The number of the next event.
    pub(crate) events: u64,
    pub(crate) due: VecDeque<Effect>,
    pub(crate) interrupts: mpsc::Receiver<Interrupt>,
    pub(crate) lease: Leased,
    pub(crate) authority: Arc<Authority>,
    pub(crate) tally: TurnTally,
    pub(crate) ending: TurnEnding,
    /// Interruptions that the store could not take when they came; tried again.
    pub(crate) unheard: VecDeque<Interrupt>,
    /// Events that need not be stored before what follows from them: what leaves no trace (gates judge, memory is
    /// searched), which happens again after a crash, and what was done in the store alone, by operations that stand
    /// here too. They are written with the next thing that is, before anything else is done.
    pub(crate) held: Pending,
}

/// The amounts that a turn has used so far, and whether it has left a trace in the work folder.
#[derive(Debug, Default)]
pub(crate) struct TurnTally {
    /// Set if the work folder may have changed in this turn.
    pub(crate) touched: bool,
    pub(crate) tool_calls: u64,
    /// The number of texts that the gates have judged.
    pub(crate) judged: u64,
    pub(crate) cost: MicroUsd,
}

impl TurnTally {
    /// Adds what a tool call has cost, and whether it may have changed the work folder.
    const fn add_call(&mut self, touched: bool, cost: MicroUsd) {
        self.touched |= touched;
        self.cost = self.cost.saturating_add(cost);
    }

    /// Counts a tool call that begins, or began before a crash.
    pub(crate) const fn count_call(&mut self) {
        self.tool_calls = self.tool_calls.saturating_add(1);
    }
}

/// The facts about the end of a turn that are known so far.
#[derive(Debug, Default)]
pub(crate) struct TurnEnding {
    /// The answer that waits for the last commit.
    pub(crate) reply: Option<(String, Label)>,
    /// Plans of the planner that could not be read.
    pub(crate) plan_tries: u32,
    /// The final state; `None` while it runs.
    pub(crate) state: Option<&'static str>,
    /// The machine has taken an event that could not be stored: it may not take another.
    pub(crate) torn: bool,
    /// A person has stopped the turn, also where that came too late for the machine to matter.
    pub(crate) stop_wanted: bool,
}

/// End of work that can be interrupted.
enum Watched<T> {
    /// The work finished without an interruption.
    Done(T),
    /// The turn has moved on without it; it was stopped and has ended.
    Unwanted(T),
    /// The engine stops: the turn is left as it is and taken up again at the next start. The work was stopped and has ended.
    Stopping(T),
}

impl Drive {
    /// A turn of an agent that has taken no event yet.
    pub(crate) fn new(
        profile: Arc<AgentProfile>,
        (services, session, interrupts): (Arc<Services>, Arc<Session>, mpsc::Receiver<Interrupt>),
        lease: Leased,
        (turn, number): (TurnId, u64),
        (machine, due): (Turn, Vec<Effect>),
        authority: Arc<Authority>,
    ) -> Self {
        Self {
            profile,
            services,
            session,
            turn,
            number,
            machine,
            events: 0,
            due: due.into(),
            interrupts,
            lease,
            authority,
            tally: TurnTally::default(),
            ending: TurnEnding::default(),
            unheard: VecDeque::new(),
            held: Pending::new(),
        }
    }

    /// Runs the turn to its end.
    ///
    /// # Errors
    ///
    /// If store or sandbox fail it; the message then goes back to the queue.
    pub(crate) async fn run(&mut self) -> Result<(), EngineError> {
        let done = self.steps().await;
        let written = if self.ending.torn { Ok(()) } else { self.write_held().await };
        // The error that ended the turn takes precedence over an error from writing the held events.
        done.and(written)
    }

    async fn steps(&mut self) -> Result<(), EngineError> {
        loop {
            self.hear_again().await;
            while let Ok(interrupt) = self.interrupts.try_recv() {
                self.hear(interrupt).await;
            }
            if self.services.life.stop_now.is_cancelled() {
                return Ok(());
            }
            let Some(effect) = self.due.pop_front() else {
                return Err(EngineError::Machine("nothing is due".to_owned()));
            };
            match effect {
                Effect::Finish(finish) => return self.finish(*finish).await,
                Effect::CancelModel | Effect::CancelTool { .. } => {}
                Effect::Route { question } => {
                    if !route::choose_way(self, *question).await? {
                        return Ok(());
                    }
                }
                Effect::CallModel { request, label } => {
                    if !self.call_model(*request, label).await? {
                        return Ok(());
                    }
                }
                Effect::Act { call, label } => {
                    if !self.act(call, label).await? {
                        return Ok(());
                    }
                }
                Effect::JudgeInput { message } => {
                    if !self.judge(GatePoint::Input, message.text).await? {
                        return Ok(());
                    }
                }
                Effect::JudgeOutput { text, .. } => {
                    if !self.judge(GatePoint::Output, text).await? {
                        return Ok(());
                    }
                }
                effect @ (Effect::Record { .. } | Effect::Recall { .. } | Effect::Deliver { .. }) => {
                    if self.held.as_slice().iter().any(|op| matches!(op, Op::Remember(_))) {
                        // So that it is found.
                        self.write_held().await?;
                    }
                    let (event, ops) = self.answer(effect).await?;
                    self.hold(event, ops)?;
                }
            }
        }
    }

    /// Asks a model. Returns false when the engine stops.
    async fn call_model(&mut self, request: ModelRequest, label: Label) -> Result<bool, EngineError> {
        let (cancel, place) = (CancellationToken::new(), self.place().await?);
        let first = std::mem::take(&mut self.held);
        let had = !first.is_empty();
        let call = coding::answer_message(place, self.tally.cost, first, (request, label), cancel.clone())
            .instrument(trace::agent(self.profile.model));
        match self.watch(cancel, call).await {
            Watched::Done(called) => {
                let called = self.unless_lost(had, called)?;
                self.tally.cost += called.cost;
                self.hold(called.event, called.ops)?;
            }
            Watched::Unwanted(called) => {
                let called = self.unless_lost(had, called)?;
                self.note(called.ops).await?;
            }
            Watched::Stopping(called) => {
                // The end of a program that has worked for an hour is in it.
                let called = self.unless_lost(had, called)?;
                self.note(called.ops).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Works on a tool call. Returns true if the turn goes on.
    async fn act(&mut self, call: ToolCall, label: Label) -> Result<bool, EngineError> {
        let (cancel, mut place) = (CancellationToken::new(), self.place().await?);
        place.origins =
            origins::origins((&self.services, self.session.id), self.machine.context_parts(), &call, &label)
                .await?;
        self.tally.count_call();
        let first = std::mem::take(&mut self.held);
        let had = !first.is_empty();
        match self.watch(cancel.clone(), place.act(first, call, label, cancel)).await {
            Watched::Done(acted) => {
                let acted = self.unless_lost(had, acted)?;
                self.tally.add_call(acted.touched, acted.cost);
                let event = Event::Acted { result: acted.result, ask: acted.ask, ends: acted.ends };
                if acted.inside {
                    self.hold(event, acted.ops)?;
                } else {
                    self.feed(event, acted.ops).await?;
                }
                if acted.touched && self.session.terms.write {
                    return self.apply_as_it_goes().await;
                }
            }
            Watched::Unwanted(acted) => {
                let acted = self.unless_lost(had, acted)?;
                self.tally.add_call(acted.touched, acted.cost);
                self.note(acted.ops).await?;
            }
            Watched::Stopping(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Marks the turn as torn if a step that took held operations fails: they may be missing, and the machine
    /// is then ahead of the store.
    fn unless_lost<T>(&mut self, had: bool, done: Result<T, EngineError>) -> Result<T, EngineError> {
        self.ending.torn |= had && done.is_err();
        done
    }

    fn at(&self) -> Option<(TurnId, u64)> {
        Some((self.turn, self.number))
    }

    fn fact(&self, fact: Fact) -> Op {
        self.services.journal.entry(self.session.id, self.at(), fact)
    }

    /// Returns the context in which a call is made. The amounts spent are read anew each time, and the turn's
    /// key is renewed while the turn runs.
    async fn place(&mut self) -> Result<CallPlace, EngineError> {
        self.authority = self.services.keys.renewed(&self.session, self.at(), &self.authority).await?;
        self.session.state().set_acting(Some(self.turn), &self.authority);
        Ok(CallPlace {
            services: Arc::clone(&self.services),
            profile: Arc::clone(&self.profile),
            session: Arc::clone(&self.session),
            turn: Some(self.turn),
            number: self.number,
            authority: Arc::clone(&self.authority),
            origins: None,
            result_chars: self.machine.result_room(),
            spent: Spent {
                turn_tool_calls: self.tally.tool_calls,
                ..read_spent_of_call(&self.services, &self.session, self.tally.cost, self.held.as_slice())
                    .await?
            },
        })
    }

    /// Feeds an event: the machine takes it, it is stored with its facts, then its effects are due.
    pub(crate) async fn feed(&mut self, event: Event, ops: Pending) -> Result<(), EngineError> {
        self.hold(event, ops)?;
        self.write_held().await
    }

    /// Feeds an event; its effects may come before it is stored: see [`Self::held`].
    fn hold(&mut self, event: Event, ops: Pending) -> Result<(), EngineError> {
        let stored = StoredEvent::new(event, self.services.journal.clock.now());
        let op = stored_event(self.turn, self.events, &stored)?;
        let phase = self.machine.phase();
        let mut effects = Vec::new();
        self.machine
            .handle_event(stored.event, stored.at, &mut effects)
            .map_err(|illegal| EngineError::Machine(illegal.to_string()))?;
        self.held.extend(ops);
        self.held.push(op);
        self.events = self.events.saturating_add(1);
        if self.machine.phase() != phase {
            // An interruption has moved the turn on: what was due in the phase before is not wanted any more.
            self.due.clear();
        }
        self.due.extend(effects);
        Ok(())
    }

    /// Stores what was held back.
    pub(crate) async fn write_held(&mut self) -> Result<(), EngineError> {
        if self.held.is_empty() {
            return Ok(());
        }
        let batch = self.held.take().into_relaxed();
        let done = self.services.journal.commit_for(&self.session.hub, batch).await;
        self.ending.torn |= done.is_err();
        done.map(|_| ())
    }

    /// Writes down what an unwanted step has done.
    async fn note(&self, ops: Pending) -> Result<(), EngineError> {
        if !ops.is_empty() {
            self.services.journal.commit_for(&self.session.hub, ops.into_relaxed()).await?;
        }
        Ok(())
    }

    /// Lets an interruption in. What the store cannot take now is tried again: it ends no work that runs.
    async fn hear(&mut self, interrupt: Interrupt) {
        let Err(error) = self.interrupted(&interrupt).await else { return };
        tracing::warn!(turn = %self.turn, %error, "an interruption could not be stored yet");
        if self.unheard.len() < MAX_INTERRUPTS {
            self.unheard.push_back(interrupt);
        }
    }

    async fn hear_again(&mut self) {
        for interrupt in std::mem::take(&mut self.unheard) {
            self.hear(interrupt).await;
        }
    }

    async fn interrupted(&mut self, interrupt: &Interrupt) -> Result<(), EngineError> {
        self.ending.stop_wanted |= matches!(interrupt, Interrupt::Cancel);
        let (event, news) = match interrupt {
            Interrupt::Cancel => (Event::Cancel, None),
            Interrupt::Arrived(message) => (Event::Arrived { message: message.clone() }, None),
            Interrupt::Answered(ask, result) => {
                let news =
                    answered_note(&self.session, self.at(), ask, result, self.services.journal.clock.now());
                (Event::Answered { ask: ask.clone(), result: *result.clone() }, Some(news))
            }
        };
        if self.ending.torn {
            return self.note(news.into_iter().collect()).await;
        }
        match self.interject(event, Pending::new()).await {
            // It came too late to matter, or is not about this turn: the queue has a message, and the
            // chronicle is given what came of an ask.
            Err(EngineError::Machine(why)) => {
                tracing::debug!(turn = %self.turn, why, "an interruption was not taken");
                self.note(news.into_iter().collect()).await
            }
            done => done,
        }
    }

    /// Feeds an event that may come again: if it cannot be stored, the machine is as it was before.
    async fn interject(&mut self, event: Event, ops: Pending) -> Result<(), EngineError> {
        let (machine, due, held, events) =
            (self.machine.clone(), self.due.clone(), self.held.clone(), self.events);
        let done = self.feed(event, ops).await;
        if done.is_err() {
            (self.machine, self.due, self.held, self.events) = (machine, due, held, events);
            self.ending.torn = false;
        }
        done
    }

    /// Takes in what has come when nothing can come any more. An open turn has it when it is taken up again;
    /// what came of asks after the turn had its answer is for the next one.
    pub(crate) async fn leave_behind(&mut self) {
        self.interrupts.close();
        while let Ok(interrupt) = self.interrupts.try_recv() {
            self.unheard.push_back(interrupt);
        }
        for interrupt in std::mem::take(&mut self.unheard) {
            if let Err(error) = self.interrupted(&interrupt).await {
                let kind = interrupt.kind();
                tracing::error!(turn = %self.turn, %error, kind, "an interruption is lost");
            }
        }
    }

    /// Waits for work that can be interrupted.
    async fn watch<T>(&mut self, cancel: CancellationToken, work: impl Future<Output = T>) -> Watched<T> {
        let mut work = pin!(work);
        let phase = self.machine.phase();
        let stop = self.services.life.stop_now.clone();
        let mut again = tokio::time::interval(TRY_AGAIN);
        let mut late = false;
        loop {
            let deadline = remaining(self.machine.deadline(), self.services.journal.clock.now());
            let deadline = if late { deadline.max(TRY_AGAIN) } else { deadline };
            tokio::select! {
                biased;
                done = &mut work => return Watched::Done(done),
                Some(interrupt) = self.interrupts.recv() => self.hear(interrupt).await,
                () = stop.cancelled() => {
                    cancel.cancel();
                    return Watched::Stopping((&mut work).await);
                }
                () = tokio::time::sleep(deadline) => {
                    let fed = self.interject(Event::DeadlinePassed, Pending::new()).await;
                    late = fed.is_err();
                    if let Err(error) = fed {
                        tracing::warn!(turn = %self.turn, %error, "the end of the turn's time cannot be stored yet");
                    }
                }
                _ = again.tick(), if !self.unheard.is_empty() => self.hear_again().await,
            }
            if self.machine.phase() != phase {
                cancel.cancel();
                return Watched::Unwanted((&mut work).await);
            }
        }
    }

    /// Effects that need nothing but gates and store.
    async fn answer(&mut self, effect: Effect) -> Result<(Event, Pending), EngineError> {
        match effect {
            Effect::Record { turn_number, message } => {
                // A request of the harness to an agent behind the conversation is no part of it.
                let said = self.profile.is_shown.then(|| self.chronicle_user(turn_number, message));
                Ok((Event::Recorded, said.into_iter().collect()))
            }
            Effect::Recall { query } => Ok((
                Event::Recalled { hits: recall::recall(&self.services, &self.session, &query).await? },
                Pending::new(),
            )),
            Effect::Deliver { text, label, .. } => {
                self.ending.reply = Some((text, label));
                Ok((Event::Delivered, Pending::new()))
            }
            Effect::JudgeInput { .. }
            | Effect::JudgeOutput { .. }
            | Effect::Route { .. }
            | Effect::CallModel { .. }
            | Effect::Act { .. }
            | Effect::CancelModel
            | Effect::CancelTool { .. }
            | Effect::Finish(_) => Err(EngineError::Machine("this effect is not answered here".to_owned())),
        }
    }
}

/// Returns the time until a deadline; a day if there is none.
fn remaining(deadline: Option<Timestamp>, now: Timestamp) -> Duration {
    deadline.map_or(Duration::from_secs(24 * 60 * 60), |deadline| deadline.time_since(now))
}

/// A turn's event, as an operation.
pub(crate) fn stored_event(turn: TurnId, n: u64, event: &StoredEvent) -> Result<Op, EngineError> {
    let event = event.encode_json().map_err(|e| EngineError::StoredEvent { n, why: e.to_string() })?;
    Ok(Op::TurnEvent { turn, n, event })
}
