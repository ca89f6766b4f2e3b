//! Model calls of a program that works within a turn of this engine. It has no key: each call is one of the turn's.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use writ_policy::budget::Spent;
use writ_types::chat::{ModelReply, ModelRequest};
use writ_types::error::{Exit, Report};
use writ_types::taint::Label;
use writ_types::unit::MicroUsd;

use super::RoutingError;
use crate::budget::read_spent_of_call;
use crate::error::EngineError;
use crate::model;
use crate::place::CallPlace;

/// The turn that a program works in.
#[derive(Debug)]
pub(crate) struct WithinTurn {
    pub(super) place: CallPlace,
    label: Label,
    /// The cost of its calls so far. Held while one is made: a limit would not stop several at once.
    spent: Mutex<MicroUsd>,
}

impl WithinTurn {
    pub(super) fn new(place: CallPlace, label: Label) -> Arc<Self> {
        let spent = Mutex::new(MicroUsd::ZERO);
        Arc::new(Self { place, label, spent })
    }

    /// Returns the cost of its calls.
    pub(crate) async fn cost(&self) -> MicroUsd {
        *self.spent.lock().await
    }

    /// Makes one call: before the door, within the budgets of the turn, its session and its plan. It is recorded when this returns.
    pub(super) async fn ask(
        &self,
        request: ModelRequest,
        cancel: &CancellationToken,
    ) -> Result<ModelReply, RoutingError> {
        let mut spent = self.spent.lock().await;
        let mut place = self.place.clone();
        let turn_cost = place.spent.turn_cost.saturating_add(*spent);
        let turn_tool_calls = place.spent.turn_tool_calls;
        let read = read_spent_of_call(&place.services, &place.session, turn_cost, &[]).await?;
        place.spent = Spent { turn_tool_calls, ..read };
        let answer = Box::pin(self.answer(&place, request, cancel)).await?;
        *spent = spent.saturating_add(answer.cost);
        place.commit(answer.ops).await?;
        answer.reply.map_err(|why| {
            let report = Report::new(Exit::Blocked, "model.no_answer", why);
            RoutingError::NoAnswer(Box::new(report))
        })
    }

    async fn answer(
        &self,
        place: &CallPlace,
        request: ModelRequest,
        cancel: &CancellationToken,
    ) -> Result<model::HarnessAnswer, EngineError> {
        model::ask(place, place.profile.model, (Arc::new(request), &self.label), cancel).await
    }
}
