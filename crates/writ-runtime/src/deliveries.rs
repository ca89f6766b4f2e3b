//! Deliveries: the jobs that bring the messages of the outbox to its channels.

use writ_store::approvals::AskState;
use writ_store::batch::{Batch, Op};
use writ_store::outbox::{OutboxMessage, OutboxOp};
use writ_store::reads::{AskReads as _, OutboxReads as _};
use writ_types::error::Report;
use writ_types::recipient::Recipient;

use crate::error::EngineError;
use crate::jobs::Progress;
use crate::journal::Journal;
use crate::outbox::{Channel, Delivery, DeliveryError, OwnerMessage};

/// The most messages that are read at once.
const PAGE: usize = 50;
/// The most pages of one run: a channel that comes back after long does not keep the job for ever.
const MAX_PAGES: usize = 20;

/// Delivers what stands after a channel's cursor, in order. The cursor is advanced after each message, so that a crash
/// between the two delivers that one again and no other.
///
/// # Errors
///
/// If the channel cannot be reached now, or the store cannot be read or written.
pub(crate) async fn deliver_messages(
    journal: &Journal,
    channel: &dyn Channel,
) -> Result<Progress, EngineError> {
    for _ in 0..MAX_PAGES {
        let page = journal.store.outbox_after_cursor(channel.name(), PAGE).await?;
        if page.missed > 0 {
            // Reported before the cursor moves: after a crash in between the gap is reported twice, and not never.
            settle(channel, channel.report_missed(page.missed).await)?;
            let cursor = journal.store.outbox_cursor(channel.name()).await?;
            advance(journal, channel, cursor.saturating_add(page.missed)).await?;
        }
        let is_last = page.messages.len() < PAGE;
        for message in page.messages {
            let number = message.number;
            if let Some(delivery) = read_delivery(journal, message).await? {
                settle(channel, channel.deliver(&delivery).await)?;
            }
            advance(journal, channel, number).await?;
        }
        if is_last {
            return Ok(Progress::Complete);
        }
    }
    Ok(Progress::Partial)
}

/// Decides what follows from the end of a delivery: an error if it is to be tried again.
fn settle(channel: &dyn Channel, done: Result<(), DeliveryError>) -> Result<(), EngineError> {
    match done {
        Ok(()) => Ok(()),
        Err(DeliveryError::NotNow(report)) => Err(EngineError::Channel(Box::new(report))),
        Err(DeliveryError::Refused(Report { code, inside, .. })) => {
            tracing::error!(
                channel = channel.name(),
                code,
                inside,
                "a channel has refused a message; it is skipped"
            );
            Ok(())
        }
    }
}

async fn advance(journal: &Journal, channel: &dyn Channel, number: u64) -> Result<(), EngineError> {
    let (channel, at) = (channel.name().to_owned(), journal.clock.now());
    let op = Op::Outbox(OutboxOp::Advance { channel, number, at });
    // A cursor that a power failure sets back delivers again, which every channel must bear.
    journal.store.commit(Batch::relaxed(vec![op])).await?;
    Ok(())
}

/// Reads a message for delivery; `None` if there is nothing to deliver: it is for another recipient, of a kind that this
/// version does not know, or a question that no longer waits.
async fn read_delivery(journal: &Journal, message: OutboxMessage) -> Result<Option<Delivery>, EngineError> {
    let OutboxMessage { number, message, .. } = message;
    if message.recipient.parse() != Ok(Recipient::Owner) {
        return Ok(None);
    }
    let Ok(read) = serde_json::from_value::<OwnerMessage>(message.body) else {
        tracing::warn!(number, kind = message.kind, "this version of Writ does not know a kind of message");
        return Ok(None);
    };
    // A request that was equal to one that waited has opened no question of its own.
    if let OwnerMessage::ApprovalRequest { ask, .. } = &read
        && journal.store.ask(ask).await?.is_none_or(|ask| ask.state != AskState::Open)
    {
        return Ok(None);
    }
    Ok(Some(Delivery { number, session: message.session, at: message.at, message: read }))
}

#[cfg(test)]
mod tests;
