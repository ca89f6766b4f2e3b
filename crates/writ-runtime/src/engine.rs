//! The engine: what surfaces call.

use std::sync::Arc;
use std::time::Duration;

use writ_agent::event::TurnMessage;
use writ_policy::inbound::MessageError;
use writ_policy::principal::{self, AuthError, Authenticated, Directory, Evidence, Inbound, Principal};
use writ_store::batch::{Batch, NewMessageRow, Op};
use writ_store::error::{Conflict, StoreError};
use writ_store::reads::{QueueReads as _, SessionReads as _, TurnReads as _};
use writ_types::chat::FileRef;
use writ_types::digest::Digest;
use writ_types::entry::{Fact, InboundRecord};
use writ_types::error::{Report, ToReport as _};
use writ_types::frame::Numbered;
use writ_types::id::{EntrySeq, SessionId, TurnId};
use writ_types::taint::{Label, Taint};

use crate::asks::{open, tell};
use crate::case_keys::CaseKeys;
use crate::config::STOP_DEADLINE;
use crate::error::{DirectoryError, EngineError, WorkError};
use crate::metrics::MetricsFormat;
use crate::model::experience;
pub use crate::perform::send::SentFile;
use crate::planner::results;
use crate::recover::{self, ApprovedPart};
use crate::routed::ModelRouter;
use crate::secrets;
use crate::services::{EngineParts, Life, Services};
use crate::session::{Interrupt, Session, TITLE, TitleAuthor, TitleRecord};
use crate::settle;
pub(crate) use crate::undo::Undone;
use crate::way_back;
use crate::{calls, chores, closing};
use crate::{dispatch, erase, opening, work};

pub use crate::interface::{Answer, Answered, Cancelled, GateSaid, Join, Joined, MAX_OPEN};
pub use crate::session::Surface;
pub use guard::Along;

mod answers;
pub(crate) mod guard;

/// The most frames that are read of a session's past at once.
pub const PAGE: usize = 256;

/// Treatment of a message that reaches a session in which a turn runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// The running turn may take it in.
    JoinsTurn,
    /// It waits for a turn of its own.
    OwnTurn,
}

/// A running engine. Clones share it.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) services: Arc<Services>,
}

/// A connected client. The engine is not idle while one exists.
#[derive(Debug)]
pub struct Guest(Arc<Services>);

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.life.guests.send_modify(|guests| *guests = guests.saturating_sub(1));
    }
}

impl Engine {
    /// Recovers what a previous run left, performs what was approved, and begins to work.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or written.
    pub async fn start(parts: EngineParts) -> Result<Self, EngineError> {
        let services = Arc::new(Services::new(parts).await?);
        secrets::learn_secrets(&services).await?;
        recover::requeue(&services).await?;
        recover::note_surroundings(&services).await?;
        experience::restore_experience(&services).await?;
        closing::at_start(&services).await?;
        work::pilot::end_left_attempts(&services).await;
        recover::end_over(&services).await?;
        recover::give_up(&services).await?;
        settle::settle_abandoned(&services).await?;
        tell::expire_asks(&services).await?;
        way_back::end_undos(&services, None).await?;
        let engine = Self { services };
        let table = chores::engine_chores(&engine.services);
        engine.services.life.jobs.schedule_chores(&table).await?;
        let dispatcher = tokio::spawn(dispatch::run(Arc::clone(&engine.services)));
        *engine.services.life.dispatcher() = Some(dispatcher);
        drop(tokio::spawn(work::run(Arc::clone(&engine.services))));
        drop(tokio::spawn(results::run(Arc::clone(&engine.services))));
        drop(tokio::spawn(chores::watch_settings(Arc::clone(&engine.services))));
        let Life { jobs, draining, stop_now, .. } = &engine.services.life;
        jobs.start(table, (draining.clone(), stop_now.clone()));
        // It may take long: turns and jobs go on meanwhile.
        recover::perform_approved(&engine.services, ApprovedPart::Own).await?;
        // The first run of the job may come late: this erases payloads that were already old at the
        // start, and the next step copies heads that a sudden end left uncopied.
        match erase::erase_old(&engine.services).await {
            Ok(0) => {}
            Ok(_) => {
                if let Err(error) = jobs.continue_soon(chores::ERASE).await {
                    tracing::error!(%error, "the rest of the old payloads is erased at the next run of the job");
                }
            }
            Err(error) => tracing::error!(%error, "old payloads of the ledger could not be erased"),
        }
        engine.services.heads.copy_last_heads().await;
        Ok(engine)
    }

    /// Returns the service with which a fleet's router mints and revokes the keys of its cases.
    pub fn case_keys(&self) -> CaseKeys {
        CaseKeys::new(Arc::clone(&self.services.journal), Arc::clone(&self.services.keys))
    }

    /// Returns the counts and measurements since the start, and those of the fleet where a case router runs.
    pub async fn metrics(&self, format: MetricsFormat) -> String {
        let fleet = match self.services.life.desks.fleet.get() {
            // If the fleet cannot be read, its metrics are left out: old values would look as if all were well.
            Some(desk) => desk.show_fleet().await.ok(),
            None => None,
        };
        self.services.life.metrics.text(format, fleet.as_ref())
    }

    /// Returns what answers programs outside with the configured models.
    pub fn model_router(&self) -> ModelRouter {
        ModelRouter::new(Arc::clone(&self.services))
    }

    /// Registers a connected client until the returned value is dropped.
    pub fn guest(&self) -> Guest {
        self.services.life.guests.send_modify(|guests| *guests = guests.saturating_add(1));
        Guest(Arc::clone(&self.services))
    }

    /// Returns once no client has been connected and no work was pending for `quiet`.
    pub async fn idle(&self, quiet: Duration) {
        let mut guests = self.services.life.guests.subscribe();
        loop {
            if guests.wait_for(|guests| *guests == 0).await.is_err() {
                return;
            }
            tokio::select! {
                _ = guests.changed() => {}
                () = tokio::time::sleep(quiet) => {
                    // A message that waits for its next try keeps the engine up: no other process would.
                    let nothing_waits = self.services.journal.store.queue_depth().await.is_ok_and(|depth| depth.ready == 0);
                    // A client may have come while the queue was read.
                    let none_came = *guests.borrow() == 0;
                    if nothing_waits && none_came && self.services.life.turns.is_empty() {
                        return;
                    }
                }
            }
        }
    }

    /// Stops: no new messages and turns; running turns get until `deadline` to end, then they stop at
    /// their next step and are taken up again at the next start. Returns true if all ended in time.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.services.life.draining.cancel();
        // It holds the services, and the store closes with the last of them.
        let desk = self.services.life.autopilot().take();
        drop(desk);
        let dispatcher = self.services.life.dispatcher().take();
        if let Some(dispatcher) = dispatcher
            && let Err(error) = dispatcher.await
        {
            tracing::error!(%error, "the dispatcher has failed");
        }
        self.services.life.turns.close();
        let in_time = tokio::time::timeout(deadline, self.services.life.turns.wait()).await.is_ok();
        // A job that is under way ends what it has begun, such as an ask whose end the agent is still to learn.
        let jobs = self.services.life.jobs.ended();
        if tokio::time::timeout(deadline.min(STOP_DEADLINE), jobs).await.is_err() {
            tracing::warn!("jobs that take long are stopped; the next start runs them again");
        }
        self.services.life.stop_now.cancel();
        if tokio::time::timeout(STOP_DEADLINE, self.services.life.turns.wait()).await.is_err() {
            tracing::error!("turns did not stop in time; the process ends without them");
        }
        if tokio::time::timeout(STOP_DEADLINE, self.services.life.jobs.ended()).await.is_err() {
            tracing::error!("jobs did not stop in time; the process ends without them");
        }
        if tokio::time::timeout(STOP_DEADLINE, self.services.servers.ended()).await.is_err() {
            tracing::error!("servers of tools did not end in time; they end with the process");
        }
        self.services.heads.copy_last_heads().await;
        in_time
    }

    fn identify(&self, evidence: Evidence) -> Result<Authenticated<()>, EngineError> {
        let directory = Directory { home_uid: self.services.config.home_uid };
        Ok(principal::identify(evidence, &directory, self.services.journal.clock.now())?)
    }

    fn may_approve(&self, evidence: Evidence) -> Result<Authenticated<()>, EngineError> {
        let who = self.identify(evidence)?;
        if who.principal().may_approve() {
            return Ok(who);
        }
        Err(AuthError::NotAllowed(who.principal().clone()).into())
    }

    /// Joins a session, or opens a new one.
    ///
    /// # Errors
    ///
    /// Not the owner, no such session, or a project folder that cannot be used.
    pub async fn join(&self, evidence: Evidence, join: Join) -> Result<Joined, Report> {
        self.identify(evidence).map_err(|e| self.services.journal.report(&e))?;
        let joined = async {
            let session = match join.session {
                Some(id) => self.services.sessions.open_one(id).await?,
                None => opening::find_or_open(&self.services, &join).await?,
            };
            if join.dry_run && !session.terms.dry_run {
                let why = "this session performs: to simulate, open a new one".to_owned();
                return Err(EngineError::Params { method: "resume".to_owned(), why });
            }
            // The live stream is opened first, then the stored frames are read, so that none is missed; a
            // frame in both has one number.
            let live = session.hub.watch();
            let row = self
                .services
                .journal
                .store
                .session(session.id)
                .await?
                .ok_or(EngineError::NoSession(session.id))?;
            let (turn, seq) = (row.turn_number, row.frame_seq);
            let after_seq = join.after_seq.min(seq);
            let open = open::open_cards(&self.services, &session).await?;
            Ok::<_, EngineError>(Joined { session: session.id, turn, seq, after_seq, open, live })
        };
        joined.await.map_err(|e| self.services.journal.report(&e))
    }

    /// Opens a new session, even if others are open already.
    ///
    /// # Errors
    ///
    /// If the caller is not the owner, or a project folder cannot be used.
    pub async fn open(&self, evidence: Evidence, join: Join) -> Result<SessionId, Report> {
        self.identify(evidence).map_err(|e| self.services.journal.report(&e))?;
        let Join { project, write, dry_run, surface, relayed, customer, .. } = join;
        let opened = match relayed {
            false => opening::open_session(&self.services, project.as_deref(), write, dry_run, surface).await,
            true => {
                let about = (project.as_deref(), customer.as_deref());
                opening::open_relayed(&self.services, about, dry_run, surface).await
            }
        };
        opened.map(|session| session.id).map_err(|e| self.services.journal.report(&e))
    }

    /// The frames of a session after a number, in order, at most [`PAGE`]: none is the end.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn frames_after(&self, session: SessionId, seq: u64) -> Result<Vec<Numbered>, Report> {
        self.services
            .journal
            .store
            .frames_after(session, seq, PAGE)
            .await
            .map_err(|e| self.services.journal.report(&e))
    }

    /// Takes a message in: authenticated, signed, stored and queued in one synced transaction.
    /// A known `client_id` returns the entry of the first.
    ///
    /// The text is trusted as its sender is, or has `text_taint` where that is less: a sender may quote others.
    ///
    /// # Errors
    ///
    /// Not the owner, an unfit message, a full queue, or a store that cannot be written.
    pub async fn receive(
        &self,
        evidence: Evidence,
        session: SessionId,
        client_id: String,
        text: String,
        text_taint: Taint,
    ) -> Result<EntrySeq, Report> {
        let along = Along { text_taint, signature: None, sender: None };
        self.receive_with(evidence, session, client_id, text, along).await
    }

    async fn take_in(
        &self,
        evidence: Evidence,
        inbound: Inbound,
        along: Along,
        (consumer, arrival): (&str, Arrival),
    ) -> Result<EntrySeq, EngineError> {
        let consumer = self.receiving_consumer(consumer)?;
        results::check_client_id(&inbound.client_id)?;
        let directory = Directory { home_uid: self.services.config.home_uid };
        let now = self.services.journal.clock.now();
        // The text of an image or a PDF file was not written by its sender.
        let has_files = !FileRef::files_in(&inbound.text).is_empty();
        let text_taint = if has_files { Taint::External } else { along.text_taint };
        let (inbound, nonce) = self.spoken(evidence, inbound, &directory, now, along).await?;
        let session = self.find_addressed(inbound.get_value().session).await?;
        let (inbound, seen) = self.services.keys.under_order((&session, consumer), inbound).await?;
        let record = record(&self.services, (&session, consumer), &inbound, text_taint).await?;
        let text = inbound.get_value().text.clone();
        let entry = received_entry(&self.services, &record, &text)?;
        let message = NewMessageRow {
            record: record.clone(),
            client_id: inbound.get_value().client_id.clone(),
            text: text.clone(),
        };
        let (place, lease) = dispatch::at_once(&self.services, &session, consumer).unzip();
        let named = if session.state().title.is_none() {
            TitleRecord::of_text(&text, TitleAuthor::Message)
        } else {
            None
        };
        let message = Op::EnqueueFor { consumer: consumer.to_owned(), message: Box::new(message) };
        let mut ops = vec![entry, message];
        ops.extend(lease.into_iter().chain(seen).chain(nonce));
        ops.extend(named.as_ref().map(|title| Op::SetSessionMetadata {
            session: session.id,
            key: TITLE.to_owned(),
            value: title.to_value(),
        }));
        ops.extend(guard::note_masked(&self.services, session.id, inbound.masked_names()));
        let receipt = match self.services.journal.store.commit(Batch::synced(ops)).await {
            Ok(receipt) => receipt,
            Err(StoreError::Conflict(Conflict::DuplicateMessage { entry })) => return Ok(entry),
            Err(StoreError::Conflict(Conflict::NonceSeen { .. })) => {
                return Err(self.unsigned(session.id, MessageError::Replayed).await);
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(title) = named {
            session.state().title.get_or_insert(title);
        }
        let leased = receipt.leased.into_iter().flatten().next();
        let begins = leased.as_ref().is_some_and(|lease| lease.message.record.message == record.message);
        // One that the drain has overtaken is freed by the next start.
        if let Some((lease, place)) =
            leased.zip(place).filter(|_| !self.services.life.draining.is_cancelled())
        {
            dispatch::start(&self.services, lease, place);
        }
        if !begins {
            if arrival == Arrival::JoinsTurn {
                let arrived = TurnMessage { id: record.message, text, label: Label::new(record.taint) };
                // A running turn may take it in; if not, it gets a turn of its own.
                let _ = session.hand_message(consumer, arrived);
            }
            self.services.life.wake.notify_one();
        }
        receipt.entries.first().copied().ok_or_else(|| EngineError::Unwritable("no entry".to_owned()))
    }

    /// Returns the session that a message is for.
    async fn find_addressed(&self, id: SessionId) -> Result<Arc<Session>, EngineError> {
        let session = self.services.sessions.open_one(id).await?;
        // A message there would be answered under the key of the plan, which was approved for its steps alone.
        match session.terms.work {
            Some(work) => Err(WorkError::Session(work.item).into()),
            None => Ok(session),
        }
    }

    /// Returns the consumer of an agent that people may write to now.
    fn receiving_consumer(&self, consumer: &str) -> Result<&str, EngineError> {
        let profile = self.services.profiles.find_consumer(consumer)?;
        // Only the harness sends to the planner and to the lanes of work items: agents and items ask for plans (SIL-214).
        if profile.is_planner() || profile.is_step {
            return Err(DirectoryError::NoAgent(consumer.to_owned()).into());
        }
        if self.services.life.draining.is_cancelled() {
            return Err(EngineError::Stopping);
        }
        Ok(profile.consumer.as_str())
    }

    /// Reads anew which secrets must stand in no text: one was stored.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub async fn secrets_changed(&self) -> Result<(), Report> {
        secrets::learn_secrets(&self.services).await.map_err(|e| self.services.journal.report(&e))
    }

    /// Stops a turn, if it runs.
    ///
    /// # Errors
    ///
    /// Not the owner, or no such turn.
    pub async fn cancel(&self, evidence: Evidence, turn: TurnId) -> Result<Cancelled, Report> {
        let stopped = async {
            self.identify(evidence)?;
            let sessions: Vec<Arc<Session>> = self.services.sessions.loaded().values().cloned().collect();
            for session in sessions {
                // A turn that cannot take this interruption, because too many already wait, is stopped by
                // those.
                if session.interrupt(Some(turn), Interrupt::Cancel) || session.runs(Some(turn)) {
                    return Ok(Cancelled::Stopped);
                }
            }
            // A client that sees the end too late is not wrong.
            let found = self.services.journal.store.turn(turn).await?.ok_or(EngineError::NoTurn(turn))?;
            Ok(if found.ended_at.is_some() { Cancelled::Ended } else { Cancelled::NotRunning })
        };
        stopped.await.map_err(|e: EngineError| self.services.journal.report(&e))
    }

    /// Answers a call of a method, which is not part of a conversation.
    ///
    /// # Errors
    ///
    /// If the caller is not the owner, there is no such method, its parameters are wrong, or the method
    /// fails.
    pub async fn call(
        &self,
        evidence: Evidence,
        session: Option<SessionId>,
        method: &str,
        params: serde_json::Value,
    ) -> Result<serde_json::Value, Report> {
        let who = self.identify(evidence).map_err(|e| self.services.journal.report(&e))?;
        match who.principal() {
            Principal::Owner => {}
            other @ (Principal::Member(_)
            | Principal::Approver(_)
            | Principal::Viewer(_)
            | Principal::Guest { .. }
            | Principal::Harness { .. }) => {
                let error: EngineError = AuthError::NotAllowed(other.clone()).into();
                return Err(error.report());
            }
        }
        let caller = match evidence {
            Evidence::PeerUid(_) => calls::Caller::Terminal,
            Evidence::Bearer(_) | Evidence::None => calls::Caller::Elsewhere,
        };
        let calling = calls::Calling { who: &who, caller, session };
        calls::call_method(&self.services, calling, method, params)
            .await
            .map_err(|e| self.services.journal.report(&e))
    }
}

/// Signs the record of a message, and makes the entry with its text.
fn received_entry(services: &Services, record: &InboundRecord, text: &str) -> Result<Op, EngineError> {
    let signature = principal::sign_record(record, &services.keys.held.harness)?;
    let fact = Fact::Received { record: record.clone(), text: text.to_owned(), signature };
    let mut entry = services.journal.entry(record.session, None, fact);
    // The message is in no turn yet, but it counts to the turn that it opens or joins.
    if let Op::Append(entry) = &mut entry {
        entry.turn_number = record.turn_number;
    }
    Ok(entry)
}

/// Returns the record of a message, to be signed: with taint, and the number of the turn that it opens or joins.
async fn record(
    services: &Services,
    (session, consumer): (&Session, &str),
    inbound: &Authenticated<Inbound>,
    text_taint: Taint,
) -> Result<InboundRecord, EngineError> {
    let running = session.state().turn_for(consumer).map(|running| running.number);
    let turn_number = match running {
        Some(number) => number,
        None => services.journal.store.next_message_turn(session.id).await?,
    };
    Ok(InboundRecord {
        message: services.journal.ids.message(inbound.at()),
        session: session.id,
        turn_number,
        principal: inbound.principal().to_string(),
        taint: inbound.principal().taint().join(text_taint),
        text: Digest::of_bytes(inbound.get_value().text.as_bytes()),
        at: inbound.at(),
    })
}
