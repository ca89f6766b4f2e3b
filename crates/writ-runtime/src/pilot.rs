//! The hands of the autopilot: what its shell asks of the engine.
//!
//! The plan of the autopilot is a work item that a person approves with one card. Each attempt at one of its units is an item of
//! its own below it: turns in a session on a work tree, under a key derived from that of the plan. So each end of the plan
//! (its approval is revoked, its time or its budget is used up, a person cancels it) ends all of its attempts, and no attempt can
//! do more than the plan's card says.
//!
//! Items go on by themselves; an attempt with several turns waits for the shell's word after each of them. A restart ends the attempts
//! that were open.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use writ_models::provider::Route;
use writ_models::{ModelRole, Models};
use writ_plan::machine::WorkEvent;
use writ_store::batch::{Batch, Op};
use writ_store::error::StoreError;
use writ_store::store::Store;
use writ_types::api::model::ProviderLimits;
use writ_types::api::work::WorkState;
use writ_types::digest::Digest;
use writ_types::entry::HookEvent;
use writ_types::error::{Exit, Report};
use writ_types::id::{AskId, EntrySeq, ItemId, SessionId};
use writ_types::unit::{MicroUsd, Timestamp, Tokens};
use writ_types::work::PlanDocument;

use crate::clock::Ids;
use crate::error::EngineError;
use crate::services::Services;

mod activity;
mod attempt;
mod gate;
mod memory;
mod outgoing;
mod plan;
mod question;
mod sample;

use gate::GateSessions;

pub use crate::context_budget::ContextBudget;
pub use crate::session::{AttemptTerms, ToolEndTimes};
pub use crate::work::pilot::needs_approval;
pub use attempt::{MAX_INSTRUCTION_BYTES, MAX_OPEN_ATTEMPTS};
pub use gate::{GateEnd, GateProgram, MAX_GATE_VARIABLES, TriedProgram};
pub use memory::PilotNote;
pub use outgoing::{NewShip, NoticeError};
pub use question::{MAX_QUESTION_BYTES, PlannerQuestion, PlannerReply};
pub use sample::{ModelTask, TaskAnswer};
pub use writ_agent::config::Share;

/// What the autopilot acts with. Clones share the engine.
#[derive(Clone, Debug)]
pub struct PilotHands {
    services: Arc<Services>,
    gates: Arc<GateSessions>,
}

/// A plan of the autopilot to be approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPilotPlan {
    /// The plan: its units as steps with their checks, its limits. Its kind is `pilot`.
    pub document: PlanDocument,
    /// The project. The attempts work in work trees of it.
    pub project: PathBuf,
    /// The conversation that shows the card; none: the plan's own session.
    pub origin: Option<SessionId>,
    /// The branch that verified work is merged into.
    pub branch: String,
}

/// A plan of the autopilot as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStanding {
    /// Its state.
    pub state: WorkState,
    /// The reason of its state, for people.
    pub reason: String,
    /// The question about it, once it was asked.
    pub ask: Option<AskId>,
    /// Its session.
    pub session: SessionId,
    /// The branch that it was proposed for.
    pub branch: Option<String>,
    /// The tokens that its attempts have used together, since it was approved last.
    pub tokens: Tokens,
    /// The money that they have cost.
    pub cost: MicroUsd,
    /// The money that is left; `None`: not limited.
    pub cost_left: Option<MicroUsd>,
}

/// An attempt at a unit of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAttempt {
    /// The plan.
    pub plan: ItemId,
    /// The work tree, which its changes are put into once it has ended well.
    pub folder: PathBuf,
    /// The name of the unit.
    pub unit: String,
    /// Its purpose, in one line.
    pub title: String,
    /// The whole text for its executor.
    pub instructions: String,
    /// The most tokens; none: those of a session.
    pub max_tokens: Option<Tokens>,
    /// The most money; none: what is left of the plan's, or that of a session.
    pub max_cost: Option<MicroUsd>,
    /// Set if nothing of what it changes may come out: a review or a reassessment.
    pub reads_only: bool,
    /// The model that is asked first, as `provider/name`; none: that of the executor.
    pub model: Option<String>,
    /// The settings of its turns.
    pub terms: AttemptTerms,
}

/// An attempt as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptLook {
    /// It waits, runs, or is paused with its plan.
    Running {
        /// The tokens that it has used.
        tokens: Tokens,
        /// The money that it has cost.
        cost: MicroUsd,
        /// Signs of life.
        signs: AttemptSigns,
        /// The budget of its context, once a turn of it has begun.
        context: Option<ContextBudget>,
    },
    /// A turn of it has ended, and the shell says what follows: [`PilotHands::continue_attempt`] or [`PilotHands::finish_attempt`].
    Resting(AttemptRest),
    /// It is over.
    Ended(AttemptOutcome),
}

/// An attempt between two turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRest {
    /// The last words of its executor, at most 64 KiB.
    pub said: String,
    /// Set if the turn was cut where it had asked its model as often as one turn may.
    pub is_cut: bool,
    /// The tokens that the attempt has used.
    pub tokens: Tokens,
    /// The money that it has cost.
    pub cost: MicroUsd,
    /// The budget of its context; none if the engine was started anew since its last turn began.
    pub context: Option<ContextBudget>,
}

/// The signs of life of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptSigns {
    /// The part that is to act next.
    pub waits_for: AttemptWait,
    /// The time at which anything was written about it, or a piece of an answer came, last.
    pub last_at: Timestamp,
    /// The time of its model's last whole answer; before the first one, the time at which it began.
    pub answered_at: Timestamp,
}

/// The part that a running attempt waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptWait {
    /// A place among the executors that work.
    Room,
    /// A person's answer to what its last turn has asked.
    Answer,
    /// A person, who has paused the plan, or a limit that is none of the attempt's.
    Person,
    /// A tool.
    Tool,
    /// The owner's coding agent, which works between two calls to its model.
    Program,
    /// Its model.
    Model,
}

/// The calls of an attempt, as the ledger has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptCalls {
    /// Tool calls.
    pub calls: u32,
    /// Tool calls that succeeded.
    pub successes: u32,
    /// The digest of all of them with their results.
    pub digest: Digest,
    /// Models that were asked, in their order, each with `true` if it has answered.
    pub models: Vec<(String, bool)>,
    /// The errors of those calls that would fail again a little later, by their places in `models`.
    pub lasting: BTreeMap<usize, String>,
    /// Tokens that providers had cached.
    pub cache_read: Tokens,
    /// The last entry that was read; the next reading begins after it.
    pub last: Option<EntrySeq>,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptOutcome {
    /// Its state: done, failed, over budget or cancelled.
    pub state: WorkState,
    /// The exit of its turn; none if no turn of it has ended.
    pub exit: Option<Exit>,
    /// Set if it has ended because its context was full.
    pub is_full: bool,
    /// The last words of its executor, at most 64 KiB.
    pub said: String,
    /// The reason of its state, for people.
    pub reason: String,
    /// Tokens read.
    pub input: Tokens,
    /// Tokens written.
    pub output: Tokens,
    /// The money that it has cost.
    pub cost: MicroUsd,
}

// === impl PilotHands ===

impl PilotHands {
    pub(crate) fn new(services: Arc<Services>) -> Self {
        Self { services, gates: Arc::default() }
    }

    fn reported<T>(&self, done: Result<T, EngineError>) -> Result<T, Report> {
        done.map_err(|error| self.services.journal.report(&error))
    }

    /// Asks a person about a plan, with one card that shows all of it.
    ///
    /// # Errors
    ///
    /// If it is no plan of the autopilot, cannot be shown completely, or is refused; if the project cannot be used, or the store
    /// cannot be written.
    pub async fn propose_plan(&self, new: NewPilotPlan) -> Result<(ItemId, AskId), Report> {
        self.reported(plan::propose(&self.services, new).await)
    }

    /// Returns how a plan stands; `None`: there is none.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn plan_state(&self, plan: ItemId) -> Result<Option<PlanStanding>, Report> {
        self.reported(plan::read(&self.services, plan).await)
    }

    /// Changes the state of a plan; its attempts follow. Returns the new state.
    ///
    /// # Errors
    ///
    /// If it is no plan of the autopilot, the event does not fit its state, or the store cannot be written.
    pub async fn move_plan(&self, plan: ItemId, event: WorkEvent, why: &str) -> Result<WorkState, Report> {
        self.reported(plan::change(&self.services, plan, event, why).await)
    }

    /// Begins an attempt. The attempt and `with` are one commit: both are there afterwards, or nothing. Its turn begins as soon as
    /// there is room for an executor, and after a crash at the next start.
    ///
    /// # Errors
    ///
    /// If the plan is not approved and running, its budget is used up, or as many attempts are open as may be; if the folder cannot
    /// be used, or a condition of `with` does not hold.
    pub async fn start_attempt(&self, new: NewAttempt, with: Vec<Op>) -> Result<ItemId, Report> {
        self.reported(attempt::start(&self.services, new, with).await)
    }

    /// Looks at an attempt.
    ///
    /// # Errors
    ///
    /// If there is none, or the store cannot be read.
    pub async fn look_at_attempt(&self, item: ItemId) -> Result<AttemptLook, Report> {
        self.reported(attempt::look(&self.services, item).await)
    }

    /// Begins the next turn of an attempt that rests, with this number and text, as soon as there is room for an executor. If
    /// its last turn has asked a person it goes on without the answer: its questions are withdrawn. `after`: the end of the turn before, for the
    /// record.
    ///
    /// # Errors
    ///
    /// If there is none, the text is too large, or the store cannot be written.
    pub async fn continue_attempt(
        &self,
        item: ItemId,
        next: (u32, String),
        after: &str,
    ) -> Result<(), Report> {
        self.reported(attempt::go_on(&self.services, item, next, after).await)
    }

    /// Ends an attempt that rests: what it has changed is put into its work tree. The reason is for the record.
    ///
    /// # Errors
    ///
    /// If there is none, or the store cannot be read or written.
    pub async fn finish_attempt(&self, item: ItemId, why: &str) -> Result<(), Report> {
        self.reported(attempt::finish(&self.services, item, why).await)
    }

    /// Reads the calls of an attempt after an entry of the ledger; `None`: all of them.
    ///
    /// # Errors
    ///
    /// If there is none, or the store cannot be read.
    pub async fn read_calls(&self, item: ItemId, after: Option<EntrySeq>) -> Result<AttemptCalls, Report> {
        self.reported(activity::read_calls(&self.services, item, after).await)
    }

    /// Returns the digest of what an attempt has changed and that is in no work tree yet; `None`: nothing.
    ///
    /// # Errors
    ///
    /// If there is none, or its sandbox cannot be read.
    pub async fn pending_digest(&self, item: ItemId) -> Result<Option<Digest>, Report> {
        self.reported(attempt::pending_digest(&self.services, item).await)
    }

    /// Returns true if a model, named `provider/name`, is configured for any role or tier.
    pub fn offers_model(&self, name: &str) -> bool {
        self.services.outside.models.get().is_some_and(|models| models.routes().find_offered(name).is_ok())
    }

    /// Shows the limits of its rate that each provider has stated last. They are for people: nothing is handed out, held back or chosen by them.
    pub fn show_rate_limits(&self) -> Vec<ProviderLimits> {
        self.services.outside.models.get().map(Models::show_rate_limits).unwrap_or_default()
    }

    /// Returns the models of the executor, as `provider/name`, in the order in which the engine asks them.
    pub fn executor_models(&self) -> Vec<String> {
        let Some(models) = self.services.outside.models.get() else { return Vec::new() };
        models.routes().chain(ModelRole::Executor).all().map(Route::model_name).collect()
    }

    /// Ends an attempt: it is cancelled, its turn stops, and nothing of it comes into its work tree. One that is over stays as it is.
    /// This waits a short time for the turn, so that what the attempt has used is known afterwards.
    ///
    /// # Errors
    ///
    /// If there is none, or the store cannot be written.
    pub async fn end_attempt(&self, item: ItemId, why: &str) -> Result<(), Report> {
        self.reported(attempt::end(&self.services, item, why).await)
    }

    /// Runs the program of a gate in the verification sandbox, on a snapshot of a work tree. Nothing that it changes stays. The
    /// inner error says why it did not run.
    ///
    /// # Errors
    ///
    /// If the plan is not in force, or the sandbox or the store cannot be used.
    pub async fn run_gate(
        &self,
        gate: GateProgram,
        stop: &CancellationToken,
    ) -> Result<Result<GateEnd, String>, Report> {
        self.reported(gate::run(&self.services, &self.gates, gate, stop).await)
    }

    /// Runs a program in the verification sandbox on a person's word, without a plan: a gate that is tried, or that judges what a
    /// person undoes. Nothing that it changes stays. The inner error says why it did not run.
    ///
    /// # Errors
    ///
    /// If the sandbox or the store cannot be used.
    pub async fn try_program(&self, program: TriedProgram) -> Result<Result<GateEnd, String>, Report> {
        self.reported(gate::try_program(&self.services, program).await)
    }

    /// Returns the files that an attempt which runs has changed, and that are in no work tree yet.
    ///
    /// # Errors
    ///
    /// If there is none, or its sandbox cannot be read.
    pub async fn pending_files(&self, item: ItemId) -> Result<Vec<String>, Report> {
        self.reported(attempt::pending_files(&self.services, item).await)
    }

    /// Notifies the hooks of an event of a unit, in the session of its plan.
    ///
    /// # Errors
    ///
    /// If there is no such plan, or the ledger cannot be written.
    pub async fn tell_hooks(
        &self,
        plan: ItemId,
        event: HookEvent,
        about: Map<String, Value>,
    ) -> Result<(), Report> {
        if !self.services.gates.set.hooks().any(|hook| hook.config.on == event) {
            return Ok(());
        }
        let told = async {
            let above = plan::find(&self.services, plan).await?;
            self.services.gates.tell_of(&above.session, event, Some(about)).await
        };
        self.reported(told.await)
    }

    /// Asks the planner, which only reads in the project. Returns its answer; no plan is proposed of it.
    ///
    /// # Errors
    ///
    /// If it does not answer, the project cannot be used, or the store cannot be written.
    pub async fn ask_planner(
        &self,
        question: PlannerQuestion,
        stop: &CancellationToken,
    ) -> Result<PlannerReply, Report> {
        self.reported(question::ask(&self.services, question, stop).await)
    }

    /// Commits operations, which are on disk when this returns.
    ///
    /// # Errors
    ///
    /// If a condition does not hold or the database cannot be written; then nothing was.
    pub async fn commit(&self, ops: Vec<Op>) -> Result<(), StoreError> {
        self.services.journal.store.commit(Batch::synced(ops)).await.map(drop)
    }

    /// Returns the store, for reading; it is written with [`Self::commit`] alone.
    pub fn store(&self) -> &Store {
        &self.services.journal.store
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        self.services.journal.clock.now()
    }

    /// Returns after a time by the engine's clock, however that is set.
    pub async fn wait(&self, time: Duration) {
        let clock = &self.services.journal.clock;
        let began = clock.elapsed();
        loop {
            let (now, passed) = (clock.now(), clock.elapsed().saturating_sub(began));
            let Some(left) = time.checked_sub(passed).filter(|left| !left.is_zero()) else { return };
            clock.wait(now, left).await;
        }
    }

    /// Returns the time at which today has begun, in the owner's time zone.
    pub fn day_start(&self) -> Timestamp {
        let (zone, now) = (&self.services.config.time_zone, self.now());
        // Out of the calendar's range there is one long day.
        zone.date_at(now).and_then(|date| zone.start_of_day(date)).unwrap_or(Timestamp::from_millis(0))
    }

    /// Returns the date of a time in the owner's time zone, as `2026-01-31`.
    pub fn date_at(&self, at: Timestamp) -> String {
        let date = self.services.config.time_zone.date_at(at);
        // Out of the calendar's range there is one long day.
        date.map_or_else(|| "1970-01-01".to_owned(), |date| date.to_string())
    }

    /// Returns the first moment of a day in the owner's time zone, written as `2026-01-31`; `None`: it is no day.
    pub fn parse_day(&self, day: &str) -> Option<Timestamp> {
        self.services.config.time_zone.parse_day(day)
    }

    /// Returns the source of ids.
    pub fn ids(&self) -> &Ids {
        &self.services.journal.ids
    }

    /// Runs a task of the shell; the engine is not idle, and waits for its end, until it has ended.
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.services.life.turns.spawn(task);
    }

    /// Returns the token that fires when the engine takes no more work.
    pub fn draining(&self) -> CancellationToken {
        self.services.life.draining.clone()
    }

    /// Resolves at the next change of a plan or an attempt, counted from this call: one that calls it, then looks, and then
    /// waits misses none.
    pub fn wake(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut changes = self.services.life.work.watch_pilot();
        async move {
            // The engine has ended: nothing changes.
            let _ended = changes.changed().await;
        }
    }
}
