//! Answers of people, and what begins with them.

use writ_policy::principal::{Evidence, Inbound, Principal};
use writ_store::approvals::AskState;
use writ_types::error::Report;
use writ_types::id::AskId;
use writ_types::taint::Taint;

use crate::engine::guard::Along;
use crate::engine::{Answer, Answered, Arrival, Engine, Surface};
use crate::error::EngineError;
use crate::session::SURFACE;

/// The state of a turn that a person has stopped.
const STOPPED: &str = "cancelled";

/// Opens the turn after a yes whose action was performed. These are the harness's words: nothing counts as said by a person on
/// their account. The result itself stands in the history, as data.
const APPLIED: &str = "[a person has approved what you asked, and it was done: the result is noted above; go on with what is \
left of your work]";
/// Opens the turn after a yes whose action failed or was not performed.
const FAILED: &str = "[a person has approved what you asked, but it was not done or it failed: the reason is noted above; do \
not say that it was done, and go on from there]";
/// Opens the turn after a yes whose outcome is not known.
const UNKNOWN: &str = "[a person has approved what you asked, but it is not known whether it was done; look before you do it \
again]";
/// Opens the turn after a yes in a session that only simulates.
const SIMULATED: &str =
    "[a person has approved what you asked; this session only simulates, so it was not performed; go on]";
/// Opens the turn after a no.
const DENIED: &str =
    "[a person has denied what you asked; do not try it another way, and say what is left undone]";

impl Engine {
    /// Answers an ask; on approval, performs exactly what was approved. Returns its state and what came of it.
    ///
    /// # Errors
    ///
    /// Not somebody who may approve, a closed ask, or an approval that does not count.
    pub async fn answer(&self, evidence: Evidence, ask: AskId, answer: Answer) -> Result<Answered, Report> {
        let who = self.may_approve(evidence).map_err(|e| self.core.report(&e))?;
        let engine = self.clone();
        // In a task of its own: whoever answered may vanish, and what was approved is done and written down all the same.
        let answered = self.core.turns.spawn(async move {
            let answered = engine.core.answer(&who, ask.clone(), answer).await?;
            if engine.core.config.continue_after_answer
                && let Err(error) = engine.go_on(evidence, ask, &answered).await
            {
                tracing::warn!(%error, "the agent does not continue after an answer");
            }
            Ok(answered)
        });
        let answered = answered.await;
        let answered = answered.unwrap_or_else(|error| Err(EngineError::Machine(error.to_string())));
        answered.map_err(|e| self.core.report(&e))
    }

    /// Lets the agent go on after an answer to what its turn had asked: with a message in the name of the person who answered,
    /// which gets a turn of its own. Nothing begins while the turn still runs, while it has other open requests, or after a
    /// person has stopped it. A program that relays for others, or that calls over HTTP, goes on by itself.
    async fn go_on(&self, evidence: Evidence, ask: AskId, answered: &Answered) -> Result<(), EngineError> {
        let core = &self.core;
        let row = core.store.ask(&ask)?.ok_or_else(|| EngineError::NoAsk(ask.clone()))?;
        let (Some(session), Some(turn)) = (row.prepared.session, row.prepared.turn) else { return Ok(()) };
        // Somebody else has to answer, too.
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
        let asking = core.session(session)?;
        let is_guests = matches!(asking.state().speaker, Some(Principal::Guest { .. }));
        if asking.terms.relayed || is_guests || asking.state().closed || asking.runs(Some(turn)) {
            return Ok(());
        }
        let opened = core.store.session(session)?;
        let is_programs =
            opened.is_some_and(|row| row.metadata.get(SURFACE) == Some(&Surface::Api.as_str().into()));
        let is_stopped = core.store.turn(turn)?.is_some_and(|turn| turn.state == STOPPED);
        if is_programs || is_stopped || (is_own_request && core.others_wait(&asking, turn, &ask)?) {
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
        self.take_in(evidence, inbound, along, Arrival::OwnTurn).await.map(|_| ())
    }
}
