//! Methods for the owner's memories.

use writ_store::batch::{Batch, NewMemory, Op};
use writ_store::memory::Secrets;
use writ_store::reads::MemoryReads as _;
use writ_store::store::Store;
use writ_types::action::{MemoryTrust, Remember};
use writ_types::api::memory::{FoundMemory, MemoryHits, MemoryName, MemoryQuery, NewFact};
use writ_types::digest::Digest;
use writ_types::entry::Fact;
use writ_types::taint::Taint;

use super::MAX_LISTED;
use crate::error::EngineError;
use crate::services::Services;

pub(super) async fn search_memories(
    services: &Services,
    search: &MemoryQuery,
) -> Result<MemoryHits, EngineError> {
    let limit = search.limit.min(MAX_LISTED);
    let hits = services.journal.store.search_memory(&search.query, None, Secrets::Told, limit).await?;
    let hits = hits.into_iter().map(|hit| FoundMemory {
        id: hit.memory.id,
        text: hit.memory.item.text,
        kind: hit.memory.item.memory_kind,
        trust: hit.memory.item.trust,
        taint: hit.memory.item.taint,
        secret: hit.memory.item.secret,
        at: hit.memory.at.to_string(),
        score: hit.score,
    });
    let note = Store::explain_search(&search.query).map(|reason| reason.to_string());
    Ok(MemoryHits { hits: hits.collect(), note })
}

/// Stores a memory of the owner, which is verified from the start.
pub(super) async fn add_memory(services: &Services, add: NewFact) -> Result<MemoryName, EngineError> {
    if add.text.trim().is_empty() {
        let why = "the text is empty".to_owned();
        return Err(EngineError::Params { method: "memory.add".to_owned(), why });
    }
    let now = services.journal.clock.now();
    let id = services.journal.ids.memory(now);
    let item = Remember {
        text: services.journal.redactor.mask_text(&add.text).into_owned(),
        memory_kind: add.kind,
        trust: MemoryTrust::Verified,
        taint: Taint::Owner,
        secret: false,
        session: None,
    };
    let fact = Fact::Remembered {
        memory: id,
        forgotten: false,
        trust: item.trust,
        taint: item.taint,
        text: Digest::of_bytes(item.text.as_bytes()),
    };
    let ops = vec![services.journal.own_entry(fact), Op::Remember(Box::new(NewMemory { id, item, at: now }))];
    services.journal.store.commit(Batch::synced(ops)).await?;
    Ok(MemoryName { id })
}

pub(super) async fn forget_memory(
    services: &Services,
    forget: MemoryName,
) -> Result<MemoryName, EngineError> {
    let Some(memory) = services.journal.store.memory(forget.id).await? else {
        let why = format!("there is no memory {}", forget.id);
        return Err(EngineError::Params { method: "memory.forget".to_owned(), why });
    };
    let fact = Fact::Remembered {
        memory: forget.id,
        forgotten: true,
        trust: memory.item.trust,
        taint: memory.item.taint,
        text: Digest::of_bytes(memory.item.text.as_bytes()),
    };
    let ops = vec![services.journal.own_entry(fact), Op::Forget { memory: forget.id }];
    services.journal.store.commit(Batch::synced(ops)).await?;
    Ok(forget)
}
