//! Answers of people, and what begins with them.

use writ_policy::principal::{Evidence, Inbound};
use writ_store::approvals::AskState;
use writ_types::error::Report;
use writ_types::id::AskId;
use writ_types::taint::Taint;

use crate::engine::guard::Along;
use crate::engine::{Answer, Answered, Engine};
use crate::error::EngineError;

/// What opens a turn after an answer. It names nothing: it counts as its person's words.
const ANSWERED: &str = "I have answered what you asked me. Go on with what is left of it.";

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
                && let Err(error) = engine.go_on(evidence, ask).await
            {
                tracing::warn!(%error, "the agent does not go on after an answer");
            }
            Ok(answered)
        });
        let answered = answered.await;
        let answered = answered.unwrap_or_else(|error| Err(EngineError::Machine(error.to_string())));
        answered.map_err(|e| self.core.report(&e))
    }

    /// Lets the agent go on where what it had asked was answered after its turn: with a message of whoever answered, which a
    /// turn that runs meanwhile takes in. What is relayed is for whoever relays it to go on with.
    async fn go_on(&self, evidence: Evidence, ask: AskId) -> Result<(), EngineError> {
        let row = self.core.store.ask(&ask)?.ok_or_else(|| EngineError::NoAsk(ask.clone()))?;
        let Some(session) = row.prepared.session.filter(|_| row.prepared.call.is_some()) else {
            return Ok(());
        };
        let asking = self.core.session(session)?;
        if row.state == AskState::Open || asking.terms.relayed || asking.runs(row.prepared.turn) {
            return Ok(());
        }
        let inbound = Inbound { session, client_id: format!("answered-{ask}"), text: ANSWERED.to_owned() };
        let along = Along { text_taint: Taint::Owner, signature: None, sender: None };
        self.take_in(evidence, inbound, along).await.map(|_| ())
    }
}
