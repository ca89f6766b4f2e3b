//! The questions of a coding agent to the model of its turn.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_policy::budget::Spent;
use writ_types::chat::{ModelReply, ModelRequest};
use writ_types::error::{Exit, Report};
use writ_types::taint::Label;
use writ_types::unit::MicroUsd;

use crate::budget::read_spent_of_call;
use crate::coding_agent::TurnCall;
use crate::error::EngineError;
use crate::model;
use crate::place::CallPlace;

/// The calls of one turn of an agent.
pub(super) struct AgentCalls<'a> {
    pub(super) place: &'a CallPlace,
    pub(super) label: &'a Label,
    /// Their cost so far.
    pub(super) cost: MicroUsd,
}

impl AgentCalls<'_> {
    /// Answers one call after another until `stop`, and returns what they have cost. A call that is under way then is cancelled and
    /// recorded.
    pub(super) async fn answer_calls(
        mut self,
        mut calls: mpsc::Receiver<TurnCall>,
        stop: &CancellationToken,
    ) -> MicroUsd {
        loop {
            let call = tokio::select! {
                biased;
                () = stop.cancelled() => return self.cost,
                call = calls.recv() => call,
            };
            // One at a time: a limit of money would not stop several that are decided at once.
            match call {
                Some(call) => self.answer_call(call, stop).await,
                None => return self.cost,
            }
        }
    }

    async fn answer_call(&mut self, call: TurnCall, stop: &CancellationToken) {
        let TurnCall { request, mut answer } = call;
        let cancel = stop.child_token();
        let made = {
            let mut making = pin!(self.make_call(request, &cancel));
            tokio::select! {
                made = &mut making => made,
                () = answer.closed() => {
                    cancel.cancel();
                    making.await
                }
            }
        };
        match made {
            // The client may have left by now.
            Ok(answered) => drop(answer.send(answered)),
            // Without an answer its server says that nothing was recorded.
            Err(error) => tracing::error!(%error, "a model call of a coding agent cannot be recorded"),
        }
    }

    /// Makes one call: before the door, within the budgets of the turn, its session and its plan. It is recorded when this returns.
    async fn make_call(
        &mut self,
        request: ModelRequest,
        cancel: &CancellationToken,
    ) -> Result<Result<ModelReply, Report>, EngineError> {
        let mut place = self.place.clone();
        let turn_cost = place.spent.turn_cost.saturating_add(self.cost);
        let turn_tool_calls = place.spent.turn_tool_calls;
        let read = read_spent_of_call(&place.services, &place.session, turn_cost, &[]).await?;
        place.spent = Spent { turn_tool_calls, ..read };
        let asked = model::ask(&place, place.profile.model, (Arc::new(request), self.label), cancel);
        let asked = Box::pin(asked).await?;
        self.cost = self.cost.saturating_add(asked.cost);
        place.commit(asked.ops).await?;
        Ok(asked.reply.map_err(|why| {
            Report::new(Exit::Blocked, "model.no_answer", why)
                .with_hint("`writ audit` shows the call and the reason")
        }))
    }
}
