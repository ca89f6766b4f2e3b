//! What a model call has brought over all of its attempts.

use writ_agent::event::Event;
use writ_types::chat::{ModelReply, Usage};
use writ_types::error::{Exit, Report};
use writ_types::unit::MicroUsd;

use super::{HarnessAnswer, ModelCallResult, failure};
use crate::pending::Pending;

/// The operations, cost and usage of a call so far, over all its attempts.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// The operations that are still to be written.
    pub(super) ops: Pending,
    pub(super) cost: MicroUsd,
    /// The usage of the last attempt.
    pub(super) usage: Usage,
    /// In how many pieces the text of the last attempt came.
    pub(super) pieces: usize,
    /// Set if the call is made for a program that works in the turn.
    pub(super) is_program: bool,
}

impl Account {
    pub(super) fn ended(self, event: Event) -> ModelCallResult {
        ModelCallResult { event, ops: self.ops, cost: self.cost }
    }

    pub(super) fn answered(self, reply: Result<ModelReply, String>) -> HarnessAnswer {
        HarnessAnswer { reply, ops: self.ops, cost: self.cost }
    }

    pub(super) fn unanswered(self, why: String) -> HarnessAnswer {
        self.answered(Err(why))
    }

    pub(super) fn failed(self, report: &Report) -> ModelCallResult {
        self.ended(failure(report))
    }

    /// Ends a call that makes no further attempt: with the last failure, or else as cancelled.
    pub(super) fn stopped(self, last: Option<&Report>) -> ModelCallResult {
        match last {
            Some(report) => self.failed(report),
            None => self.cancelled(),
        }
    }

    pub(super) fn cancelled(self) -> ModelCallResult {
        let report = Report::new(Exit::Interrupted, "model.cancelled", "the call was cancelled")
            .with_hint("send the message again when its answer is wanted");
        self.failed(&report)
    }
}
