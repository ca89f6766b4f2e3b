//! The list of memories, and putting one aside.

use std::sync::atomic::Ordering;

use writ_store::batch::Batch;
use writ_store::memory::{MemoryChange, MemoryStatus};
use writ_store::reads::MemoryReads as _;
use writ_types::api::memory::{MemoryChanges, MemoryFilter, MemoryHits, MemoryName};

use super::MAX_LISTED;
use super::memory::{changed, existing, found_memory, wrong};
use crate::error::EngineError;
use crate::remembering::remembered;
use crate::services::Services;

/// Lists the memories that are found, newest first.
pub(super) async fn list_memories(
    services: &Services,
    filter: MemoryFilter,
) -> Result<MemoryHits, EngineError> {
    let limit = filter.limit.unwrap_or(MAX_LISTED).min(MAX_LISTED);
    let found = services.journal.store.memories_with_status(MemoryStatus::Active, limit).await?;
    let hits = found.into_iter().map(|memory| found_memory(memory, 0.0, Vec::new()));
    Ok(MemoryHits { hits: hits.collect(), note: None })
}

/// Puts a memory aside. It can be undone, unlike forgetting, which a stolen cookie must not be enough for.
pub(super) async fn set_memory_aside(
    services: &Services,
    MemoryName { id }: MemoryName,
) -> Result<MemoryChanges, EngineError> {
    let (now, memory) = (services.journal.clock.now(), existing(services, "memory.set_aside", id).await?);
    if memory.traits.status == MemoryStatus::Archived {
        return Err(wrong("memory.set_aside", "it is put aside already"));
    }
    let batch = format!("aside-{}", now.as_millis());
    let aside = changed(id, MemoryChange::Status(MemoryStatus::Archived), &batch, now);
    let ops = vec![services.journal.own_entry(remembered(id, &memory.item, false)), aside];
    services.journal.store.commit(Batch::synced(ops)).await?;
    services.memories.added.fetch_add(1, Ordering::Release);
    Ok(MemoryChanges { batch, changes: 1 })
}
