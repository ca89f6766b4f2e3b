//! Searches the memory for what belongs to a message.

use std::sync::Arc;

use writ_agent::event::MemoryItem;
use writ_inspect::show::escape_line;
use writ_memory::search::{BeyondWindow, RankedMemory};
use writ_store::batch::{Batch, Op};
use writ_store::memory::MemoryOp;
use writ_types::action::ActionKind;
use writ_types::api::context::RecallReason;
use writ_types::taint::{Label, Source};

use crate::error::EngineError;
use crate::recall::{MemoryQuestionText, find_memories};
use crate::services::Services;
use crate::session::Session;
use crate::session::topics::SessionTopics;
use crate::{model, trace};

/// The longest text of one memory in a context, in characters: eight of them have some thousand tokens.
const MAX_CHARS: usize = 2_000;

/// The most memories of which a session holds the reasons for its owner.
const MAX_REASONS: usize = 50;

/// The most characters of the beginning of such a memory.
const MAX_BEGINNING: usize = 160;

/// The memories that are found for each that is wanted, where a session has topics.
const OF_OTHER_TOPICS: usize = 4;

/// Returns the memories that fit a text best, without those of other topics than the session's; none in a session that may not recall.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn recall(
    services: &Arc<Services>,
    session: &Session,
    query: &str,
) -> Result<Vec<MemoryItem>, EngineError> {
    if !session.grants().kinds.contains_key(&ActionKind::Recall) {
        return Ok(Vec::new());
    }
    let limit = usize::try_from(services.memories.settings.config.recall_limit).unwrap_or(usize::MAX);
    let topics = session.state().context.topics.clone();
    let question = MemoryQuestionText {
        text: query,
        secret: session.state().secrecy.secret,
        session: Some(session.id),
        secrets: model::secrets(services),
        // A message that names a day may be about something else besides.
        beyond: BeyondWindow::Found,
        // Some of them may be of other topics.
        limit: if topics == SessionTopics::default() { limit } else { limit.saturating_mul(OF_OTHER_TOPICS) },
    };
    let search = async { find_memories(services, question).await.map(|found| found.hits) };
    let mut hits = trace::memory_search(search).await?;
    hits.retain(|hit| topics.shows_memory(&hit.memory));
    hits.truncate(limit);
    if !hits.is_empty() {
        let (rows, at) = (hits.iter().map(|hit| hit.memory.row).collect(), services.journal.clock.now());
        let used = Op::Memory(MemoryOp::Used { rows, at });
        // A count for the ranking: a power failure may forget it.
        services.journal.store.commit(Batch::relaxed(vec![used])).await?;
    }
    let items: Vec<MemoryItem> = hits.into_iter().map(item_of).collect();
    session.state().context.recalled = items.iter().take(MAX_REASONS).map(reason_of).collect();
    Ok(items)
}

fn reason_of(item: &MemoryItem) -> RecallReason {
    let line = item.text.split_whitespace().collect::<Vec<_>>().join(" ");
    RecallReason {
        id: item.id,
        begins: escape_line(&line.chars().take(MAX_BEGINNING).collect::<String>()),
        why: escape_line(&item.why),
    }
}

fn item_of(hit: RankedMemory) -> MemoryItem {
    let source =
        Source { origin: "memory".to_owned(), detail: hit.memory.id.to_string(), entry: hit.memory.entry };
    let why = hit.reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let item = hit.memory.item;
    let text = match item.text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{} […]", &item.text[..end]),
        None => item.text,
    };
    MemoryItem {
        id: hit.memory.id,
        kind: item.memory_kind,
        text,
        label: Label { secret: item.secret, ..Label::from_source(item.taint, source) },
        why,
    }
}
