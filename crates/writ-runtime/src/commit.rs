//! Commits whose frames go to whoever watches, and the small facts that most of them carry.

use writ_store::batch::{Batch, Op, Receipt};
use writ_types::frame::ServerFrame;

use crate::core::Core;
use crate::error::EngineError;
use crate::session::Session;

impl Core {
    /// Commits a batch of one session and sends the frames that it stored to its watchers.
    ///
    /// # Errors
    ///
    /// If a condition does not hold or the database cannot be written; then nothing was.
    pub(crate) async fn commit_for(&self, session: &Session, batch: Batch) -> Result<Receipt, EngineError> {
        let frames = frames(&batch.ops);
        let receipt = self.store.commit(batch).await?;
        let mut merged = receipt.asks.iter().map(|ask| ask.merged);
        let mut numbers = receipt.frames.iter();
        for mut frame in frames {
            if matches!(frame, ServerFrame::ApprovalRequest(_)) && merged.next() == Some(true) {
                continue;
            }
            if let Some(number) = numbers.next() {
                if let (ServerFrame::Message { entries, .. }, Some(last)) = (&mut frame, receipt.rests_on) {
                    entries.1 = last;
                }
                session.hub.send(number.seq, frame);
            }
        }
        Ok(receipt)
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
