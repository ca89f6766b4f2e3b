//! What surfaces ask of sessions beside the conversation: files that were sent, gates that wait, places with a name.

use std::collections::BTreeMap;

use writ_policy::principal::Evidence;
use writ_policy::show::is_plain;
use writ_store::batch::{Batch, Op};
use writ_types::entry::{Decision, Fact};
use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::form::{FormError, filled_in};
use writ_types::frame::ServerFrame;
use writ_types::id::{AskId, EntrySeq, SessionId};

use super::Engine;
use crate::core::Core;
use crate::error::EngineError;
use crate::perform::send::SentFile;
use crate::session::GateAnswer;

/// What somebody says to a gate, or to a server of tools, that asks.
#[derive(Clone, Debug)]
pub struct GateSaid {
    /// The answer.
    pub decision: Decision,
    /// Why, in their words.
    pub reason: String,
    /// What they have filled in, by the names of the fields.
    pub answers: BTreeMap<String, String>,
}

/// The longest name of a checkpoint, in characters: it stands in one line.
pub(crate) const MAX_CHECKPOINT_CHARS: usize = 100;
/// The longest reason that is kept of an answer to a gate, in characters.
pub(crate) const MAX_REASON_CHARS: usize = 1_000;

impl Engine {
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
        self.core.sent_file(session, file).await
    }

    /// Answers a gate that asks; the turn that waits goes on.
    ///
    /// # Errors
    ///
    /// Not somebody who may approve, or no such gate asks now.
    pub fn answer_gate(&self, evidence: Evidence, ask: AskId, said: GateSaid) -> Result<(), Report> {
        let who = self.may_approve(evidence).map_err(|e| e.report())?;
        match self.core.answer_gate(&ask, who.principal().to_string(), said) {
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
            return Err(Report::new(Exit::Usage, "checkpoint.name", text).hint("choose another name"));
        }
        let marked = async {
            let session = self.core.open_one(session)?;
            let turn = self.core.store.next_turn_number(session.id)?.saturating_sub(1);
            let frame =
                ServerFrame::Checkpoint { name: name.clone(), turn, at: self.core.clock.now(), undo: None };
            let ops = vec![
                self.core.entry(session.id, None, Fact::Checkpoint { name }),
                Op::Frame { session: session.id, frame: Box::new(frame) },
            ];
            self.core.commit_for(&session, Batch::synced(ops)).await.map(|_| ())
        };
        marked.await.map_err(|e: EngineError| e.report())
    }
}

impl Core {
    /// Hands an answer to the turn whose gate asks; says whether one does. One that does not fit leaves the question open.
    ///
    /// # Errors
    ///
    /// If what was filled in does not fit.
    pub(crate) fn answer_gate(&self, ask: &AskId, by: String, said: GateSaid) -> Result<bool, FormError> {
        let GateSaid { decision, reason, answers } = said;
        let sessions = self.sessions();
        let Some(mut state) =
            sessions.values().map(|session| session.state()).find(|state| state.gates.contains_key(ask))
        else {
            return Ok(false);
        };
        let content = match (decision, state.gates.get(ask).map(|waiting| &waiting.frame)) {
            (Decision::Approve, Some(ServerFrame::GateApproval { fields, .. })) => {
                filled_in(fields, &answers)?
            }
            (Decision::Approve | Decision::Deny, _) => Default::default(),
        };
        let reason = reason.chars().take(MAX_REASON_CHARS).collect();
        let waiting = state.gates.remove(ask);
        // Who does not wait any more is not asked any more.
        let answer = GateAnswer { decision, by, reason, content };
        Ok(waiting.is_some_and(|waiting| waiting.answer.send(answer).is_ok()))
    }
}
