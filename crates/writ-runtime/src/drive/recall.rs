//! Searches the memory for what belongs to a message.

use writ_agent::event::MemoryItem;
use writ_store::memory::MemoryHit;
use writ_store::reads::MemoryReads as _;
use writ_types::action::ActionKind;
use writ_types::taint::{Label, Source};

use crate::error::EngineError;
use crate::services::Services;
use crate::session::Session;
use crate::{model, trace};

/// The most memories that a turn is given.
const RECALL_LIMIT: usize = 8;

/// Returns the memories that fit a text best; none in a session that may not recall.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn recall(
    services: &Services,
    session: &Session,
    query: &str,
) -> Result<Vec<MemoryItem>, EngineError> {
    if !session.grants().kinds.contains_key(&ActionKind::Recall) {
        return Ok(Vec::new());
    }
    let secrets = model::secrets(services);
    let search = services.journal.store.search_memory(query, Some(session.id), secrets, RECALL_LIMIT);
    let hits = trace::memory_search(search).await?;
    services.life.metrics.memory("search");
    Ok(hits.into_iter().map(item_of).collect())
}

fn item_of(hit: MemoryHit) -> MemoryItem {
    let source =
        Source { origin: "memory".to_owned(), detail: hit.memory.id.to_string(), entry: hit.memory.entry };
    let item = hit.memory.item;
    MemoryItem {
        id: hit.memory.id,
        kind: item.memory_kind,
        text: item.text,
        label: Label { secret: item.secret, ..Label::from_source(item.taint, source) },
    }
}
