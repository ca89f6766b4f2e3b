//! The engine: what surfaces call.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use writ_policy::approval::Signed;
use writ_policy::inbound::MessageError;
use writ_policy::principal::{self, AuthError, Authenticated, Directory, Evidence, Inbound, Principal};
use writ_store::batch::{Batch, NewMessage, Op};
use writ_store::error::{Conflict, StoreError};
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Decision, Fact, InboundRecord};
use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::frame::{Numbered, ServerFrame};
use writ_types::id::{AskId, EntrySeq, SessionId, TurnId};
use writ_types::taint::{Label, Taint};

use crate::config::STOP_DEADLINE;
use crate::core::{Core, Parts};
use crate::dispatch;
use crate::error::EngineError;
use crate::metrics::MetricsFormat;
pub use crate::perform::send::SentFile;
use crate::session::{Interrupt, Session};
pub(crate) use crate::undo::Undone;
use crate::{calls, closing, recover};

mod answers;

mod guard;

mod passkeys;

pub use guard::Along;
pub use marks::GateSaid;

mod marks;

/// The most frames that are read of a session's past at once.
pub const PAGE: usize = 256;
/// The most open asks whose cards are sent to a client that joins; `approvals.list` has all of them.
pub const MAX_OPEN: usize = 100;

/// How a message reaches a session in which a turn runs.
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
    pub(crate) core: Arc<Core>,
}

/// How a client joins a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Join {
    /// The session; `None` opens a new one.
    pub session: Option<SessionId>,
    /// The last frame that the client has seen.
    pub after_seq: u64,
    /// The project's folder, for a new session.
    pub project: Option<String>,
    /// Changes go to the project as they are made, for a new session.
    pub write: bool,
    /// Actions are decided and logged, not performed, for a new session.
    pub dry_run: bool,
    /// Where the client is.
    pub surface: Surface,
    /// A name that a program gives to a conversation: without a session, its newest session is joined.
    pub conversation: Option<String>,
    /// Others speak through whoever opens it: the owner's word is only what the owner has signed. For a new session.
    pub relayed: bool,
}

/// Where a session is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Surface {
    /// On this machine, by a command: each opens a session of its own.
    #[default]
    Local,
    /// In the page: without a session or a project of its own, it goes on with the newest of the page.
    Page,
    /// By a program, over HTTP.
    Api,
}

impl Surface {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Page => "page",
            Self::Api => "api",
        }
    }
}

/// A session that was joined.
#[derive(Debug)]
pub struct Joined {
    /// The session.
    pub session: SessionId,
    /// The number of its last turn.
    pub turn: u64,
    /// Its last frame.
    pub seq: u64,
    /// The last frame that the client has seen.
    pub after_seq: u64,
    /// Its open asks with their cards, oldest first, at most [`MAX_OPEN`].
    pub open: Vec<(AskId, ServerFrame)>,
    /// What comes from now on. What came since `after_seq` is had from [`Engine::frames_after`]; some of it may
    /// come here, too, and frames of concurrent steps may come out of order.
    pub live: broadcast::Receiver<Arc<Numbered>>,
}

/// What came of an order to stop a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It is told to stop.
    Stopped,
    /// It had ended before.
    Ended,
    /// It waits to be taken up, or ends just now: there was nothing to stop.
    NotRunning,
}

impl Cancelled {
    /// What to tell whoever wanted to stop it, if it is not stopped.
    pub fn told(self, turn: TurnId) -> Option<String> {
        match self {
            Self::Stopped => None,
            Self::Ended => Some(format!("turn {turn} has ended already")),
            Self::NotRunning => {
                Some(format!("turn {turn} does not run and was not stopped: stop it once it does"))
            }
        }
    }
}

/// An answer to an ask.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Yes or no.
    pub decision: Decision,
    /// How far a yes reaches.
    pub scope: ApprovalScope,
    /// What somebody has signed, where the surface itself does not prove the person.
    pub signed: Option<Signed>,
    /// Hash of the text that the person was shown, where the surface says so.
    pub shown: Option<Digest>,
    /// Why, in the person's words.
    pub reason: String,
}

/// What came of an answer to an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// `applied`, `simulated`, `failed` or `unknown` after a yes, `denied` after a no, `open` while others must answer, too.
    pub state: String,
    /// Why it was not done, in a few words; empty where it was.
    pub reason: String,
    /// What came of it, in words.
    pub text: String,
    /// How it went: of an approved action how it ended, as the exit code of a command.
    pub exit: Exit,
}

/// Somebody who is connected. The engine is not idle while there is one.
#[derive(Debug)]
pub struct Guest(Arc<Core>);

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.guests.send_modify(|guests| *guests = guests.saturating_sub(1));
    }
}

impl Engine {
    /// Recovers what a previous run left, performs what was approved, and begins to work.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or written.
    pub async fn start(parts: Parts) -> Result<Self, EngineError> {
        let core = Arc::new(Core::new(parts)?);
        core.learn_secrets().await?;
        recover::requeue(&core).await?;
        recover::note_surroundings(&core).await?;
        closing::at_start(&core).await?;
        recover::give_up(&core).await?;
        core.settle_abandoned().await?;
        core.expire_asks().await?;
        core.end_undos(None).await?;
        let engine = Self { core };
        let dispatcher = tokio::spawn(dispatch::run(Arc::clone(&engine.core)));
        *engine.core.dispatcher() = Some(dispatcher);
        recover::perform_approved(&engine.core).await?;
        // What was old before the start is not kept for the first look, nor what was not copied at a sudden end.
        if let Err(error) = engine.core.erase_old().await {
            tracing::error!(%error, "old payloads of the ledger could not be erased");
        }
        engine.core.copy_last_heads().await;
        Ok(engine)
    }

    /// What was counted and measured since the start.
    pub fn metrics(&self, format: MetricsFormat) -> String {
        self.core.metrics.text(format)
    }

    /// Notes that somebody is connected.
    pub fn guest(&self) -> Guest {
        self.core.guests.send_modify(|guests| *guests = guests.saturating_add(1));
        Guest(Arc::clone(&self.core))
    }

    /// Returns when nobody has been connected and nothing was to be done for `quiet`.
    pub async fn idle(&self, quiet: Duration) {
        let mut guests = self.core.guests.subscribe();
        loop {
            if guests.wait_for(|guests| *guests == 0).await.is_err() {
                return;
            }
            tokio::select! {
                _ = guests.changed() => {}
                () = tokio::time::sleep(quiet) => {
                    // A message that waits for its next try keeps the engine up: nobody else would try it.
                    let nothing_waits = self.core.store.queue_depth().is_ok_and(|depth| depth.ready == 0);
                    if nothing_waits && self.core.turns.is_empty() {
                        return;
                    }
                }
            }
        }
    }

    /// Stops: no new messages and turns; running turns get until `deadline` to end, then they stop at
    /// their next step and are taken up again at the next start. Says whether all ended in time.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.core.draining.cancel();
        let dispatcher = self.core.dispatcher().take();
        if let Some(dispatcher) = dispatcher
            && let Err(error) = dispatcher.await
        {
            tracing::error!(%error, "the dispatcher has failed");
        }
        self.core.turns.close();
        let in_time = tokio::time::timeout(deadline, self.core.turns.wait()).await.is_ok();
        self.core.stop_now.cancel();
        if tokio::time::timeout(STOP_DEADLINE, self.core.turns.wait()).await.is_err() {
            tracing::error!("turns did not stop in time; the process ends without them");
        }
        if tokio::time::timeout(STOP_DEADLINE, self.core.servers.ended()).await.is_err() {
            tracing::error!("servers of tools did not end in time; they end with the process");
        }
        self.core.copy_last_heads().await;
        in_time
    }

    fn identify(&self, evidence: Evidence) -> Result<Authenticated<()>, EngineError> {
        let directory = Directory { home_uid: self.core.config.home_uid };
        Ok(principal::identify(evidence, &directory, self.core.clock.now())?)
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
        self.identify(evidence).map_err(|e| self.core.report(&e))?;
        let joined = async {
            let session = match join.session {
                Some(id) => self.core.open_one(id)?,
                None => self.core.opened(&join).await?,
            };
            if join.dry_run && !session.terms.dry_run {
                let why = "this session performs: to simulate, open a new one".to_owned();
                return Err(EngineError::Params { method: "resume".to_owned(), why });
            }
            // First the live end, then what is kept: nothing falls between, what is in both has one number.
            let live = session.hub.watch();
            let row = self.core.store.session(session.id)?.ok_or(EngineError::NoSession(session.id))?;
            let (turn, seq) = (row.turn_number, row.frame_seq);
            let after_seq = join.after_seq.min(seq);
            let open = self.core.open_cards(&session)?;
            Ok::<_, EngineError>(Joined { session: session.id, turn, seq, after_seq, open, live })
        };
        joined.await.map_err(|e| self.core.report(&e))
    }

    /// Opens a new session, whatever is open already.
    ///
    /// # Errors
    ///
    /// Not the owner, or a project folder that cannot be used.
    pub async fn open(&self, evidence: Evidence, join: Join) -> Result<SessionId, Report> {
        self.identify(evidence).map_err(|e| self.core.report(&e))?;
        let Join { project, write, dry_run, surface, relayed, .. } = join;
        let opened = match relayed {
            false => self.core.open_session(project.as_deref(), write, dry_run, surface).await,
            true => self.core.open_relayed(project.as_deref(), dry_run, surface).await,
        };
        opened.map(|session| session.id).map_err(|e| self.core.report(&e))
    }

    /// The frames of a session after a number, in order, at most [`PAGE`]: none is the end.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub fn frames_after(&self, session: SessionId, seq: u64) -> Result<Vec<Numbered>, Report> {
        self.core.store.frames_after(session, seq, PAGE).map_err(|e| self.core.report(&e))
    }

    /// Takes a message in: authenticated, signed, stored and queued in one synced transaction.
    /// A known `client_id` returns the entry of the first.
    ///
    /// The text is trusted as its sender is, or as `text_taint` says where that is less: a sender may quote others.
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
        arrival: Arrival,
    ) -> Result<EntrySeq, EngineError> {
        if self.core.draining.is_cancelled() {
            return Err(EngineError::Stopping);
        }
        let directory = Directory { home_uid: self.core.config.home_uid };
        let now = self.core.clock.now();
        let text_taint = along.text_taint;
        let (inbound, nonce) = self.spoken(evidence, inbound, &directory, now, along).await?;
        let session = self.core.open_one(inbound.get().session)?;
        let (inbound, seen) = self.core.under_order(&session, inbound)?;
        let record = self.core.record(&session, &inbound, text_taint)?;
        let signature = principal::sign_record(&record, &self.core.keys.harness)?;
        let text = inbound.get().text.clone();
        let fact = Fact::Received { record: record.clone(), text: text.clone(), signature };
        let turn_number = record.turn_number;
        let mut entry = self.core.entry(session.id, None, fact);
        if let Op::Append(entry) = &mut entry {
            entry.turn_number = turn_number;
        }
        let message = NewMessage {
            record: record.clone(),
            client_id: inbound.get().client_id.clone(),
            text: text.clone(),
        };
        let (place, lease) = dispatch::at_once(&self.core, &session).unzip();
        let mut ops = vec![entry, Op::EnqueueMessage(Box::new(message))];
        ops.extend(lease.into_iter().chain(seen).chain(nonce));
        ops.extend(self.core.note_masked(session.id, inbound.masked()));
        let receipt = match self.core.store.commit(Batch::synced(ops)).await {
            Ok(receipt) => receipt,
            Err(StoreError::Conflict(Conflict::DuplicateMessage { entry })) => return Ok(entry),
            Err(StoreError::Conflict(Conflict::NonceSeen { .. })) => {
                return Err(self.unsigned(session.id, MessageError::Replayed).await);
            }
            Err(error) => return Err(error.into()),
        };
        let leased = receipt.leased.into_iter().flatten().next();
        let begins = leased.as_ref().is_some_and(|lease| lease.message.record.message == record.message);
        // One that the drain has overtaken is freed by the next start.
        if let Some((lease, place)) = leased.zip(place).filter(|_| !self.core.draining.is_cancelled()) {
            dispatch::start(&self.core, lease, place);
        }
        if !begins {
            if arrival == Arrival::JoinsTurn {
                let arrived = writ_agent::event::TurnMessage {
                    id: record.message,
                    text,
                    label: Label::new(record.taint),
                };
                // A running turn may take it in; if not, it gets a turn of its own.
                let _ = session.interrupt(None, Interrupt::Arrived(arrived));
            }
            self.core.wake.notify_one();
        }
        receipt.entries.first().copied().ok_or_else(|| EngineError::Unwritable("no entry".to_owned()))
    }

    /// Reads anew which secrets must stand in no text: one was stored.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub async fn secrets_changed(&self) -> Result<(), Report> {
        self.core.learn_secrets().await.map_err(|e| self.core.report(&e))
    }

    /// Stops a turn, if it runs.
    ///
    /// # Errors
    ///
    /// Not the owner, or no such turn.
    pub fn cancel(&self, evidence: Evidence, turn: TurnId) -> Result<Cancelled, Report> {
        let stopped = self.identify(evidence).and_then(|_| {
            let sessions: Vec<Arc<Session>> = self.core.sessions().values().cloned().collect();
            for session in sessions {
                // One that has too many interruptions waiting to hear this one is told to stop by them.
                if session.interrupt(Some(turn), Interrupt::Cancel) || session.runs(Some(turn)) {
                    return Ok(Cancelled::Stopped);
                }
            }
            // A client that sees the end too late is not wrong.
            let found = self.core.store.turn(turn)?.ok_or(EngineError::NoTurn(turn))?;
            Ok(if found.ended_at.is_some() { Cancelled::Ended } else { Cancelled::NotRunning })
        });
        stopped.map_err(|e| self.core.report(&e))
    }

    /// Answers a question that is not a conversation.
    ///
    /// # Errors
    ///
    /// Not the owner, no such method, wrong parameters, or whatever the method cannot do.
    pub async fn call(
        &self,
        evidence: Evidence,
        session: Option<SessionId>,
        method: &str,
        params: serde_json::Value,
    ) -> Result<serde_json::Value, Report> {
        let who = self.identify(evidence).map_err(|e| self.core.report(&e))?;
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
        calls::call(&self.core, calling, method, params).await.map_err(|e| self.core.report(&e))
    }
}

impl Core {
    /// What is signed of a message: with taint, and the number of the turn that it opens or joins.
    fn record(
        &self,
        session: &Session,
        inbound: &Authenticated<Inbound>,
        text_taint: Taint,
    ) -> Result<InboundRecord, EngineError> {
        let running = session.state().running.as_ref().map(|running| running.number);
        let turn_number = match running {
            Some(number) => number,
            None => self.store.next_message_turn(session.id)?,
        };
        Ok(InboundRecord {
            message: self.ids.message(inbound.at()),
            session: session.id,
            turn_number,
            principal: inbound.principal().to_string(),
            taint: inbound.principal().taint().join(text_taint),
            text: Digest::of(inbound.get().text.as_bytes()),
            at: inbound.at(),
        })
    }
}
