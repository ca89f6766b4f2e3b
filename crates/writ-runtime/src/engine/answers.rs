//! Answers of people, and what begins with them.

use writ_policy::principal::{Evidence, Inbound, Principal};
use writ_store::approvals::{Ask, AskState};
use writ_store::config::MAX_READ_ROWS;
use writ_types::error::Report;
use writ_types::id::AskId;
use writ_types::taint::Taint;

use crate::asks::tell::FAILED as FAILED_STATE;
use crate::engine::guard::Along;
use crate::engine::{Answer, Answered, Engine};
use crate::error::EngineError;

/// What opens a turn after a yes, and after a no. These are the harness's words: nothing counts as said by a person on their
/// account.
const APPROVED: &str = "[a person has approved what you asked; go on with what is left of your work]";
const FAILED: &str = "[a person has approved what you asked, and it could not be done; see why, and go on with what is left of your work]";
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
                tracing::warn!(%error, "the agent does not go on after an answer");
            }
            Ok(answered)
        });
        let answered = answered.await;
        let answered = answered.unwrap_or_else(|error| Err(EngineError::Machine(error.to_string())));
        answered.map_err(|e| self.core.report(&e))
    }

    /// Lets the agent go on where everything that it had asked in a turn was answered after that turn: with a message of the
    /// person who answered last, which a turn that runs meanwhile takes in. A relayed session is continued by its relay.
    async fn go_on(&self, evidence: Evidence, ask: AskId, answered: &Answered) -> Result<(), EngineError> {
        let row = self.core.store.ask(&ask)?.ok_or_else(|| EngineError::NoAsk(ask.clone()))?;
        let Some(session) = row.prepared.session.filter(|_| row.prepared.call.is_some()) else {
            return Ok(());
        };
        let asking = self.core.session(session)?;
        let is_guests = matches!(asking.state().speaker, Some(Principal::Guest { .. }));
        if asking.terms.relayed || is_guests || asking.runs(row.prepared.turn) {
            return Ok(());
        }
        let text = match row.state {
            // Somebody else has to answer, too.
            AskState::Open => return Ok(()),
            AskState::Denied => DENIED,
            AskState::Approved | AskState::Used | AskState::Expired if answered.state == FAILED_STATE => {
                FAILED
            }
            AskState::Approved | AskState::Used | AskState::Expired => APPROVED,
        };
        let is_waiting = |other: &Ask| {
            let id = &other.card.ask_id;
            let is_unsettled = other.state == AskState::Open || self.core.is_performing(id);
            *id != ask
                && other.prepared.turn == row.prepared.turn
                && other.prepared.call.is_some()
                && is_unsettled
        };
        if self.core.store.waiting_asks(session, MAX_READ_ROWS)?.iter().any(is_waiting) {
            return Ok(());
        }
        let inbound = Inbound { session, client_id: format!("answered-{ask}"), text: text.to_owned() };
        let along = Along { text_taint: Taint::Auth, signature: None, sender: None };
        self.take_in(evidence, inbound, along).await.map(|_| ())
    }
}
