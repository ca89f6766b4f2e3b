//! What stands in the context for the history before a turn's.

use std::collections::BTreeSet;
use std::sync::Arc;

use writ_agent::context::compact::quote_message;
use writ_agent::event::CarriedItem;
use writ_store::approvals::AskState;
use writ_store::compaction::Compaction;
use writ_store::reads::{AskReads as _, SessionReads as _};
use writ_types::chat::ChatMessage;
use writ_types::taint::{Label, Taint};

use crate::error::EngineError;
use crate::services::Services;
use crate::session::Session;

/// The most open questions that are named in the context.
const MAX_OPEN_ASKS: usize = 16;

/// Messages with their rows, oldest first.
#[derive(Debug, Default)]
pub(super) struct OldMessages {
    pub(super) messages: Vec<Arc<ChatMessage>>,
    pub(super) numbers: Vec<u64>,
}

/// Returns the messages that a compaction has left whole.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn kept_messages(
    services: &Services,
    session: &Session,
    compaction: Option<&Compaction>,
) -> Result<OldMessages, EngineError> {
    let Some(compaction) = compaction.filter(|compaction| !compaction.kept.is_empty()) else {
        return Ok(OldMessages::default());
    };
    let rows = services.journal.store.chronicle_rows(session.id, &compaction.kept).await?;
    let numbers = rows.iter().map(|row| row.n).collect();
    Ok(OldMessages { messages: rows.into_iter().map(|row| Arc::new(row.message)).collect(), numbers })
}

/// Returns what stands in the context for the history before a turn's: the summary, messages that stay whole, and the
/// questions that are open, since the messages that name them may have left.
///
/// # Errors
///
/// If the store cannot be read.
pub(crate) async fn carried_items(
    services: &Services,
    session: &Session,
    compaction: Option<&Compaction>,
) -> Result<Vec<CarriedItem>, EngineError> {
    let Some(compaction) = compaction else { return Ok(Vec::new()) };
    let mut carried = vec![CarriedItem {
        source: format!("summary of {} earlier messages, by {}", compaction.messages, compaction.written_by),
        text: compaction.summary.clone(),
        label: compaction.label.clone(),
        pinned: true,
    }];
    let pins = session.state().context.pins.clone();
    let mut rows: BTreeSet<u64> = pins.iter().copied().filter(|row| *row <= compaction.upto).collect();
    rows.extend(&compaction.kept);
    if !rows.is_empty() {
        let rows: Vec<u64> = rows.into_iter().collect();
        for row in services.journal.store.chronicle_rows(session.id, &rows).await? {
            let pinned = pins.contains(&row.n);
            carried.push(CarriedItem {
                source: format!("{} message {}", if pinned { "pinned" } else { "earlier" }, row.n),
                text: quote_message(&row.message),
                label: row.message.label,
                pinned,
            });
        }
    }
    carried.extend(open_questions(services, session).await?);
    Ok(carried)
}

async fn open_questions(services: &Services, session: &Session) -> Result<Option<CarriedItem>, EngineError> {
    let waiting = services.journal.store.waiting_asks(session.id, MAX_OPEN_ASKS).await?;
    let lines: Vec<String> = waiting
        .iter()
        .filter(|ask| ask.state == AskState::Open)
        .map(|ask| format!("- ask {}: {}", ask.card.ask_id, ask.card.intent))
        .collect();
    // The intents are the harness's words about calls of the model, which may rest on what it has read.
    let mut label = Label::new(Taint::Owner);
    waiting.iter().for_each(|ask| label.join(&ask.prepared.label));
    Ok((!lines.is_empty()).then(|| CarriedItem {
        source: "open questions".to_owned(),
        text: format!(
            "These wait for a person, and are done as soon as they are approved:\n{}",
            lines.join("\n")
        ),
        label,
        pinned: true,
    }))
}

/// Returns the places in a history of the rows that the owner has pinned.
pub(crate) fn pinned_places(session: &Session, numbers: &[u64]) -> Vec<usize> {
    let state = session.state();
    let is_pinned = |(_, row): &(usize, &u64)| state.context.pins.contains(row);
    numbers.iter().enumerate().filter(is_pinned).map(|(place, _)| place).collect()
}
