//! The journal: facts become entries of the ledger, and batches are committed with the frames that watchers see.

use std::sync::Arc;

use writ_inspect::redact::Redactor;
use writ_policy::budget::BudgetConfig;
use writ_store::batch::{Batch, Op, Receipt};
use writ_store::reads::ApprovalReads as _;
use writ_store::store::Store;
use writ_types::entry::{Entry, Fact};
use writ_types::error::{Report, ToReport};
use writ_types::frame::ServerFrame;
use writ_types::id::{SessionId, TurnId};
use writ_types::unit::Timestamp;

use crate::clock::{Clock, Floor, Ids};
use crate::error::EngineError;
use crate::hub::Hub;
use crate::outbox::Outbox;

/// Writes entries and batches, dated by the clock and without secrets.
#[derive(Debug)]
pub struct Journal {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    /// See [`Self::valid_now`].
    floor: Floor,
    pub(crate) ids: Ids,
    pub(crate) redactor: Redactor,
    /// Limits of the installation; the day of a budget is counted by them.
    pub(crate) budget: BudgetConfig,
    pub(crate) outbox: Outbox,
}

impl Journal {
    /// Creates a journal over a store.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        redactor: Redactor,
        budget: BudgetConfig,
    ) -> Result<Self, EngineError> {
        let floor = Floor::new(store.not_before().await?, clock.as_ref());
        Ok(Self { store, clock, floor, ids: Ids, redactor, budget, outbox: Outbox::default() })
    }

    /// Has messages to the owner that no client watches go to the channels of an outbox, too.
    #[must_use]
    pub(crate) fn with_outbox(self, outbox: Outbox) -> Self {
        Self { outbox, ..self }
    }

    /// An entry of now, as an operation, without secrets; `session` is `None` for what belongs to no session.
    pub(crate) fn noted(&self, session: Option<SessionId>, at: Option<(TurnId, u64)>, fact: Fact) -> Op {
        Op::Append(Box::new(Entry {
            at: self.clock.now(),
            session,
            turn: at.map(|(turn, _)| turn),
            turn_number: at.map_or(0, |(_, number)| number),
            fact: self.scrubbed(fact),
        }))
    }

    /// An entry of the owner's own doing, outside every session.
    pub(crate) fn own_entry(&self, fact: Fact) -> Op {
        self.noted(None, None, fact)
    }

    /// Commits a batch of one session and sends the frames that it stored to its watchers. Where none watches, what is for
    /// the owner goes into the outbox in the same commit.
    ///
    /// # Errors
    ///
    /// If a condition does not hold or the database cannot be written; then nothing was.
    pub(crate) async fn commit_for(&self, hub: &Hub, mut batch: Batch) -> Result<Receipt, EngineError> {
        let appends = match hub.watched() {
            true => Vec::new(),
            false => self.outbox.appends_for(&batch.ops, self.clock.now()),
        };
        let has_appended = !appends.is_empty();
        batch.ops.extend(appends);
        let receipt = self.commit_shown(batch, |seq, frame| hub.send(seq, frame)).await?;
        if has_appended {
            self.outbox.call_for_delivery();
        }
        Ok(receipt)
    }

    /// Commits a batch and hands the frames that it stored to `show`, each with its number.
    ///
    /// # Errors
    ///
    /// As [`Self::commit_for`].
    pub(crate) async fn commit_shown(
        &self,
        batch: Batch,
        show: impl Fn(u64, ServerFrame),
    ) -> Result<Receipt, EngineError> {
        let frames = frames(&batch.ops);
        let receipt = self.store.commit(batch).await?;
        let mut merged = receipt.asks.iter().map(|ask| ask.merged);
        let mut numbers = receipt.frames.iter();
        for mut frame in frames {
            // The store has merged this question with an open one that has its card already: no number belongs to its frame.
            if matches!(frame, ServerFrame::ApprovalRequest(_)) && merged.next() == Some(true) {
                continue;
            }
            if let Some(number) = numbers.next() {
                // The last entry that a reply rests on got its number in this commit.
                if let (ServerFrame::Message { entries, .. }, Some(last)) = (&mut frame, receipt.rests_on) {
                    entries.1 = last;
                }
                show(number.seq, frame);
            }
        }
        Ok(receipt)
    }

    /// Returns the report of an error with secrets removed.
    pub(crate) fn report(&self, error: &impl ToReport) -> Report {
        self.redactor.mask_report(error.report())
    }

    /// Returns a fact with secrets removed from its texts, so that it may be stored.
    pub(crate) fn scrubbed(&self, mut fact: Fact) -> Fact {
        for text in fact.texts_mut() {
            self.redactor.scrub_text(text);
        }
        fact
    }

    /// The time by which keys, asks and approvals are good; entries have the clock's.
    pub fn valid_now(&self) -> Timestamp {
        self.floor.valid(self.clock.as_ref())
    }

    /// A time on the UTC date by which the budget's day is counted.
    pub fn budget_day(&self, now: Timestamp) -> Timestamp {
        self.budget.start_of_day(now)
    }

    /// Appends one fact that need only survive the process.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be written.
    pub(crate) async fn append(
        &self,
        session: SessionId,
        turn: Option<(TurnId, u64)>,
        fact: Fact,
    ) -> Result<(), EngineError> {
        let entry = self.entry(session, turn, fact);
        self.store.commit(Batch::relaxed(vec![entry])).await?;
        Ok(())
    }

    /// An entry of now, as an operation.
    pub(crate) fn entry(&self, session: SessionId, turn: Option<(TurnId, u64)>, fact: Fact) -> Op {
        self.noted(Some(session), turn, fact)
    }
}

/// The frames that operations store.
pub(crate) fn frames(ops: &[Op]) -> Vec<ServerFrame> {
    ops.iter().filter_map(framed).collect()
}

/// The frame that an operation stores, if it stores one.
#[expect(clippy::wildcard_enum_match_arm, reason = "of the store's many operations, three store frames")]
fn framed(op: &Op) -> Option<ServerFrame> {
    match op {
        Op::Frame { frame, .. } | Op::Reply { frame, .. } => Some(frame.as_ref().clone()),
        Op::OpenAsk(ask) => Some(ServerFrame::ApprovalRequest(Box::new(ask.card.clone()))),
        _ => None,
    }
}
