//! Answers of people, and what begins with them.

use std::sync::Arc;

use writ_inspect::show::is_plain;
use writ_inspect::webauthn::Registration;
use writ_policy::principal::{Evidence, Inbound};
use writ_store::approvals::AskState;
use writ_store::batch::{Batch, Op};
use writ_store::queue::EXECUTOR;
use writ_store::reads::{AskReads as _, SessionReads as _, TurnReads as _};
use writ_types::digest::Digest;
use writ_types::entry::{ApprovalScope, Fact};
use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::frame::ServerFrame;
use writ_types::id::{AskId, EntrySeq, SessionId};
use writ_types::taint::Taint;

use crate::answers;
use crate::asks::open;
use crate::coding_agent::CodingAgent;
use crate::engine::guard::Along;
use crate::engine::{Arrival, Engine};
use crate::error::EngineError;
use crate::fleet::FleetDesk;
use crate::interface::{Answer, Answered, GateSaid};
use crate::perform::send::{self, SentFile};
use crate::pilot::PilotHands;
use crate::pilot_desk::PilotDesk;
use crate::recover::{self, ApprovedPart};
use crate::session::{SURFACE, Surface};

/// The state of a turn that a person has stopped.
const STOPPED: &str = "cancelled";

/// Opens the turn after an approval of an action that was then performed. These are the harness's words, so
/// nothing in them counts as a person's statement. The result itself is in the history, as data.
const APPLIED: &str = "[a person has approved what you asked, and it was done: the result is noted above; go on with what is \
left of your work]";
/// Opens the turn after an approval of an action that then failed or was not performed.
const FAILED: &str = "[a person has approved what you asked, but it was not done or it failed: the reason is noted above; do \
not say that it was done, and go on from there]";
/// Opens the turn after an approval of an action with an unknown outcome.
const UNKNOWN: &str = "[a person has approved what you asked, but it is not known whether it was done; look before you do it \
again]";
/// Opens the turn after a yes in a session that only simulates.
const SIMULATED: &str =
    "[a person has approved what you asked; this session only simulates, so it was not performed; go on]";
/// Opens the turn after a no.
const DENIED: &str =
    "[a person has denied what you asked; do not try it another way, and say what is left undone]";

/// The longest name of a checkpoint, in characters: it stands in one line.
pub(crate) const MAX_CHECKPOINT_CHARS: usize = 100;

impl Engine {
    /// Answers an ask, and on approval performs exactly the approved action. Returns the ask's state and the
    /// outcome.
    ///
    /// # Errors
    ///
    /// A caller that may not approve, a closed ask, or an approval that does not count.
    pub async fn answer(&self, evidence: Evidence, ask: AskId, answer: Answer) -> Result<Answered, Report> {
        let who = self.may_approve(evidence).map_err(|e| self.services.journal.report(&e))?;
        let engine = self.clone();
        // Runs as a task of its own, so that the approved action is done and recorded even if the caller
        // disconnects.
        let answered = self.services.life.turns.spawn(async move {
            let answered = answers::answer(&engine.services, &who, ask.clone(), answer).await?;
            if engine.services.outside.settings.now().continue_after_answer
                && let Err(error) = engine.go_on(evidence, ask, &answered).await
            {
                tracing::warn!(%error, "the agent does not continue after an answer");
            }
            Ok(answered)
        });
        let answered = answered.await;
        let answered = answered.unwrap_or_else(|error| Err(EngineError::Machine(error.to_string())));
        answered.map_err(|e| self.services.journal.report(&e))
    }

    /// Continues the agent after an answer to an ask of its turn: a message in the name of the person who
    /// answered starts a new turn. Nothing starts while the turn still runs, while it has other open asks, or
    /// after a person stopped it. A program that relays for others, or that calls over HTTP, continues on its
    /// own.
    async fn go_on(&self, evidence: Evidence, ask: AskId, answered: &Answered) -> Result<(), EngineError> {
        let services = &self.services;
        let row = services.journal.store.ask(&ask).await?.ok_or_else(|| EngineError::NoAsk(ask.clone()))?;
        let (Some(session), Some(turn)) = (row.prepared.session, row.prepared.turn) else { return Ok(()) };
        // Another person has to answer too.
        if row.state == AskState::Open {
            return Ok(());
        }
        let is_own_request = row.prepared.call.is_some();
        let leaves_work = match answered.state.as_str() {
            "failed" | "unknown" => true,
            "denied" => !answered.reason.is_empty(),
            _ => false,
        };
        // Changes that were applied, or refused without a word, leave the agent nothing to do.
        if !is_own_request && !leaves_work {
            return Ok(());
        }
        let asking = services.sessions.get(session).await?;
        if asking.terms.relayed
            // Its attempt continues without another message.
            || asking.terms.work.is_some()
            || asking.state().answers_guest()
            || asking.state().closed
            || asking.runs(Some(turn))
        {
            return Ok(());
        }
        let opened = services.journal.store.session(session).await?;
        let is_programs =
            opened.is_some_and(|row| row.metadata.get(SURFACE) == Some(&Surface::Api.as_str().into()));
        let is_stopped = services.journal.store.turn(turn).await?.is_some_and(|turn| turn.state == STOPPED);
        if is_programs
            || is_stopped
            || (is_own_request && open::others_wait(services, &asking, turn, &ask).await?)
        {
            return Ok(());
        }
        let text = match answered.state.as_str() {
            "denied" => DENIED,
            "failed" => FAILED,
            "unknown" => UNKNOWN,
            "simulated" => SIMULATED,
            _ => APPLIED,
        };
        // One turn for all requests of a turn, also where the last two are answered at the same moment.
        let client_id = if is_own_request { format!("answered-{turn}") } else { format!("answered-{ask}") };
        let inbound = Inbound { session, client_id, text: text.to_owned() };
        let along = Along { text_taint: Taint::Auth, signature: None, sender: None };
        self.take_in(evidence, inbound, along, (EXECUTOR, Arrival::OwnTurn)).await.map(|_| ())
    }

    /// Returns the challenge that a passkey signs to approve an ask up to `scope`, in a page with this
    /// origin. `shown` is the hash of the text that the page displays, if the page reports it.
    ///
    /// # Errors
    ///
    /// A caller that may not approve, a closed ask, another text, or no passkey that could answer there.
    pub async fn challenge(
        &self,
        evidence: Evidence,
        (ask, scope): (&AskId, ApprovalScope),
        shown: Option<Digest>,
        origin: &str,
    ) -> Result<serde_json::Value, Report> {
        let given = match self.may_approve(evidence) {
            Ok(_) => self.services.passkeys.challenge((ask, scope), shown, origin).await,
            Err(error) => Err(error),
        };
        given.map_err(|e| self.services.journal.report(&e))
    }

    /// Begins to enrol a passkey in a page with this origin, for a person who shows the code of a leave.
    ///
    /// # Errors
    ///
    /// A caller that is not the owner, an unknown leave, or an origin where passkeys cannot be used.
    pub async fn begin_passkey(
        &self,
        evidence: Evidence,
        code: &str,
        origin: &str,
    ) -> Result<serde_json::Value, Report> {
        let begun = match self.may_approve(evidence) {
            Ok(_) => self.services.passkeys.begin_passkey(code, origin).await,
            Err(error) => Err(error),
        };
        begun.map_err(|e| self.services.journal.report(&e))
    }

    /// Takes in the passkey that a page with this origin has made.
    ///
    /// # Errors
    ///
    /// Not the owner, or a passkey that does not count.
    pub async fn finish_passkey(
        &self,
        evidence: Evidence,
        made: &Registration,
        origin: &str,
    ) -> Result<serde_json::Value, Report> {
        self.may_approve(evidence).map_err(|e| self.services.journal.report(&e))?;
        self.services
            .passkeys
            .finish_passkey(made, origin)
            .await
            .map_err(|e| self.services.journal.report(&e))
    }

    /// A file that a session has sent, for its owner.
    ///
    /// # Errors
    ///
    /// Not the owner, or there is no such file, or it is not what was sent any more.
    pub async fn sent_file(
        &self,
        evidence: Evidence,
        session: SessionId,
        file: EntrySeq,
    ) -> Result<SentFile, Report> {
        self.identify(evidence).map_err(|e| e.report())?;
        send::sent_file(&self.services, session, file).await
    }

    /// Answers a gate that asks a person; the waiting turn continues.
    ///
    /// # Errors
    ///
    /// A caller that may not approve, or no such gate that asks now.
    pub fn answer_gate(&self, evidence: Evidence, ask: AskId, said: GateSaid) -> Result<(), Report> {
        let who = self.may_approve(evidence).map_err(|e| e.report())?;
        match answers::answer_gate(&self.services, &ask, who.principal().to_string(), said) {
            Ok(true) => Ok(()),
            Ok(false) => Err(EngineError::NoAsk(ask).report()),
            Err(error) => Err(EngineError::from(error).report()),
        }
    }

    /// Gives the place that a session has come to a name.
    ///
    /// # Errors
    ///
    /// Not the owner, no such session, a name that is none, or a store that cannot be written.
    pub async fn checkpoint(
        &self,
        evidence: Evidence,
        session: SessionId,
        name: String,
    ) -> Result<(), Report> {
        self.identify(evidence).map_err(|e| e.report())?;
        let plain = !name.trim().is_empty() && is_plain(&name) && !name.contains(['\n', '\t']);
        if !plain || name.chars().count() > MAX_CHECKPOINT_CHARS {
            let text =
                format!("a checkpoint has a name of 1 to {MAX_CHECKPOINT_CHARS} characters that can be seen");
            return Err(Report::new(Exit::Usage, "checkpoint.name", text).with_hint("choose another name"));
        }
        let marked = async {
            let session = self.services.sessions.open_one(session).await?;
            let turn = self.services.journal.store.next_turn_number(session.id).await?.saturating_sub(1);
            let frame = ServerFrame::Checkpoint {
                name: name.clone(),
                turn,
                at: self.services.journal.clock.now(),
                undo: None,
            };
            let ops = vec![
                self.services.journal.entry(session.id, None, Fact::Checkpoint { name }),
                Op::Frame { session: session.id, frame: Box::new(frame) },
            ];
            self.services.journal.commit_for(&session.hub, Batch::synced(ops)).await.map(|_| ())
        };
        marked.await.map_err(|e: EngineError| e.report())
    }
}

impl Engine {
    /// Returns what the autopilot acts with.
    pub fn pilot_hands(&self) -> PilotHands {
        PilotHands::new(Arc::clone(&self.services))
    }

    /// Hands in the case router, so that people reach it through the engine's methods. The first one stays.
    pub fn open_fleet(&self, desk: Arc<dyn FleetDesk>) {
        let _ = self.services.life.desks.fleet.set(desk);
    }

    /// Hands in the owner's coding agent, which takes the attempts of the autopilot that write code. The first one stays.
    pub fn open_coding_agent(&self, agent: CodingAgent) {
        let _ = self.services.life.desks.coding.set(Arc::new(agent));
    }

    /// Hands in the autopilot, so that people reach it through the engine's methods until it drains.
    pub fn open_autopilot(&self, desk: Arc<dyn PilotDesk>) {
        *self.services.life.autopilot() = Some(desk);
        // What it is needed for, and was approved before an earlier engine ended. A forge may take minutes, so no one waits for it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let services = Arc::clone(&self.services);
            drop(runtime.spawn(async move {
                if let Err(error) = recover::perform_approved(&services, ApprovedPart::Autopilot).await {
                    tracing::error!(%error, "approved requests are performed at the next start");
                }
            }));
        }
    }
}
