//! Methods for the owner's memories.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use writ_memory::bundle::{BundledMemory, header_line, read_bundle};
use writ_memory::consolidation::is_promotable;
use writ_memory::links::{causes_of, names_in, walk_names};
use writ_memory::search::BeyondWindow;
use writ_store::batch::{Batch, NewMemory, Op};
use writ_store::memory::{
    Memory, MemoryChange, MemoryOp, MemorySource, MemoryStatus, MemoryTraits, OpenQuestion, QuestionKind,
    QuestionState, Secrets,
};
use writ_store::reads::MemoryReads as _;
use writ_types::action::{MemoryTrust, Remember};
use writ_types::api::NoParams;
use writ_types::api::memory::{
    FoundMemory, LinkedMemory, MemoryAmendment, MemoryAnswer, MemoryChanges, MemoryCount, MemoryFigures,
    MemoryHits, MemoryImported, MemoryLines, MemoryName, MemoryNames, MemoryPage, MemoryPageQuery,
    MemoryQuery, MemoryQuestionRow, NewFact, PendingMemories, ShownMemory, VectorCount,
};
use writ_types::digest::Digest;
use writ_types::entry::Fact;
use writ_types::id::MemoryId;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use super::MAX_LISTED;
use crate::error::EngineError;
use crate::recall::{MemoryQuestionText, configured_embedder, find_memories};
use crate::remembering::remember_ops;
use crate::services::Services;

/// Memories of one part of an export: their texts fit into a frame many times.
const EXPORTED_AT_ONCE: usize = 50;

/// Memories that one call imports or deletes.
const IMPORTED_AT_ONCE: usize = 200;

/// Linked memories and names that are shown.
const SHOWN_LINKS: usize = 20;

/// The distance of names that are shown as related.
const RELATED_DEPTH: usize = 2;

pub(super) async fn search_memories(
    services: &Arc<Services>,
    search: &MemoryQuery,
) -> Result<MemoryHits, EngineError> {
    let question = MemoryQuestionText {
        text: &search.query,
        secret: false,
        session: None,
        secrets: Secrets::Told,
        beyond: BeyondWindow::LeftOut,
        limit: search.limit.min(MAX_LISTED),
    };
    let found = find_memories(services, question).await?;
    let hits = found.hits.into_iter().map(|hit| {
        let reasons = hit.reasons.iter().map(ToString::to_string).collect();
        found_memory(hit.memory, hit.score, reasons)
    });
    Ok(MemoryHits { hits: hits.collect(), note: found.note })
}

pub(super) fn found_memory(memory: Memory, score: f64, reasons: Vec<String>) -> FoundMemory {
    let Memory { id, item, at, .. } = memory;
    FoundMemory {
        id,
        text: item.text,
        kind: item.memory_kind,
        trust: item.trust,
        taint: item.taint,
        secret: item.secret,
        at: at.to_string(),
        score,
        reasons,
    }
}

pub(super) fn wrong(method: &str, why: &str) -> EngineError {
    EngineError::Params { method: method.to_owned(), why: why.to_owned() }
}

pub(super) async fn existing(services: &Services, method: &str, id: MemoryId) -> Result<Memory, EngineError> {
    let found = services.journal.store.memory(id).await?;
    found.ok_or_else(|| wrong(method, &format!("there is no memory {id}")))
}

/// Returns the fact that a memory is as it is, or is forgotten.
pub(super) fn remembered(id: MemoryId, item: &Remember, forgotten: bool) -> Fact {
    Fact::Remembered {
        memory: id,
        forgotten,
        trust: item.trust,
        taint: item.taint,
        text: Digest::of_bytes(item.text.as_bytes()),
    }
}

/// Shows a memory with what it is linked with.
pub(super) async fn show_memory(services: &Services, name: MemoryName) -> Result<ShownMemory, EngineError> {
    let (store, memory) = (&services.journal.store, existing(services, "memory.show", name.id).await?);
    let linked = |memory: Memory| LinkedMemory { id: memory.id, text: memory.item.text };
    let causes = causes_of(store, &memory).await?.into_iter().take(SHOWN_LINKS).map(linked).collect();
    let effects = store.effects_of(memory.id, SHOWN_LINKS).await?.into_iter().map(linked).collect();
    let mut related = Vec::new();
    for name in &memory.traits.entities {
        let reached = walk_names(store, name, RELATED_DEPTH).await?.into_iter().map(|reached| reached.name);
        related.extend(reached.filter(|name| !memory.traits.entities.contains(name)));
    }
    related.sort();
    related.dedup();
    related.truncate(SHOWN_LINKS);
    let Memory { id, item, at, entry, traits, .. } = memory;
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    Ok(ShownMemory {
        id,
        text: item.text,
        kind: item.memory_kind,
        trust: item.trust,
        taint: item.taint,
        secret: item.secret,
        session: item.session,
        at: at.to_string(),
        entry,
        status: traits.status,
        source: traits.source,
        importance: traits.importance,
        pinned: traits.pinned,
        happened: time(traits.happened),
        uses: traits.uses,
        used_at: time(traits.used_at),
        entities: traits.entities,
        causes,
        effects,
        related,
    })
}

/// Stores a memory of the owner, which is verified from the start.
pub(super) async fn add_memory(services: &Arc<Services>, add: NewFact) -> Result<MemoryName, EngineError> {
    if add.text.trim().is_empty() {
        return Err(wrong("memory.add", "the text is empty"));
    }
    if add.importance > 1000 {
        return Err(wrong("memory.add", "an importance is from 0 to 1000"));
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
    let traits = MemoryTraits {
        source: MemorySource::User,
        importance: add.importance,
        pinned: add.pinned,
        causes: add.causes,
        ..MemoryTraits::default()
    };
    let mut ops = vec![services.journal.own_entry(remembered(id, &item, false))];
    ops.extend(remember_ops(services, (id, item), traits, now).await?.0);
    services.journal.store.commit(Batch::synced(ops)).await?;
    services.memories.added.fetch_add(1, Ordering::Release);
    Ok(MemoryName { id })
}

pub(super) async fn forget_memory(
    services: &Services,
    forget: MemoryName,
) -> Result<MemoryName, EngineError> {
    let memory = existing(services, "memory.forget", forget.id).await?;
    let fact = remembered(forget.id, &memory.item, true);
    let ops = vec![services.journal.own_entry(fact), Op::Forget { memory: forget.id }];
    services.journal.store.commit(Batch::synced(ops)).await?;
    Ok(forget)
}

/// Forgets several memories; those that are not there are left out.
pub(super) async fn drop_memories(
    services: &Services,
    drop: MemoryNames,
) -> Result<MemoryNames, EngineError> {
    if drop.ids.len() > IMPORTED_AT_ONCE {
        return Err(wrong("memory.drop", &format!("at most {IMPORTED_AT_ONCE} memories at once")));
    }
    let (mut ops, mut ids) = (Vec::new(), Vec::new());
    for id in drop.ids {
        let Some(memory) = services.journal.store.memory(id).await? else { continue };
        ops.push(services.journal.own_entry(remembered(id, &memory.item, true)));
        ops.push(Op::Forget { memory: id });
        ids.push(id);
    }
    services.journal.store.commit(Batch::synced(ops)).await?;
    Ok(MemoryNames { ids })
}

/// Changes a memory. Its text is the owner's from then on, and what it rested on before is no longer of account.
pub(super) async fn edit_memory(
    services: &Services,
    edit: MemoryAmendment,
) -> Result<MemoryChanges, EngineError> {
    let (now, memory) = (services.journal.clock.now(), existing(services, "memory.edit", edit.id).await?);
    let mut changes = Vec::new();
    let mut item = memory.item;
    if let Some(text) = edit.text {
        if text.trim().is_empty() {
            return Err(wrong("memory.edit", "the text is empty"));
        }
        if item.taint == Taint::External {
            let why = "it is not your text; forget it, and add what you know in your own words";
            return Err(wrong("memory.edit", why));
        }
        item.text = services.journal.redactor.mask_text(&text).into_owned();
        changes.push(MemoryChange::Text { entities: names_in(&item.text), text: item.text.clone() });
    }
    if edit.importance.is_some_and(|importance| importance > 1000) {
        return Err(wrong("memory.edit", "an importance is from 0 to 1000"));
    }
    changes.extend(edit.importance.map(MemoryChange::Importance));
    changes.extend(edit.pinned.map(MemoryChange::Pinned));
    changes.extend(edit.causes.map(MemoryChange::Causes));
    if changes.is_empty() {
        return Err(wrong("memory.edit", "there is nothing to change"));
    }
    let batch = format!("edit-{}", now.as_millis());
    let count = u64::try_from(changes.len()).unwrap_or(u64::MAX);
    let mut ops = vec![services.journal.own_entry(remembered(edit.id, &item, false))];
    ops.extend(changes.into_iter().map(|change| changed(edit.id, change, &batch, now)));
    services.journal.store.commit(Batch::synced(ops)).await?;
    services.memories.added.fetch_add(1, Ordering::Release);
    Ok(MemoryChanges { batch, changes: count })
}

pub(super) fn changed(memory: MemoryId, change: MemoryChange, batch: &str, at: Timestamp) -> Op {
    Op::Memory(MemoryOp::Change { memory, change, batch: batch.to_owned(), at })
}

/// Lists what waits for the owner.
pub(super) async fn pending_memories(services: &Services) -> Result<PendingMemories, EngineError> {
    let store = &services.journal.store;
    let pending = store.memories_with_status(MemoryStatus::Pending, MAX_LISTED).await?;
    let pending = pending.into_iter().map(|memory| found_memory(memory, 0.0, Vec::new())).collect();
    let row = |question: OpenQuestion| MemoryQuestionRow {
        kind: question.kind,
        id: question.memory.id,
        text: question.memory.item.text,
        other: question.other.map(|other| LinkedMemory { id: other.id, text: other.item.text }),
        reason: question.reason,
    };
    let questions = store.memory_questions(MAX_LISTED).await?.into_iter().map(row).collect();
    Ok(PendingMemories { pending, questions })
}

/// Takes the owner's word about a memory: it is so, and what contradicts it is put aside; or it is put aside itself.
pub(super) async fn answer_memory(
    services: &Services,
    answer: MemoryAnswer,
) -> Result<MemoryChanges, EngineError> {
    let (store, now) = (&services.journal.store, services.journal.clock.now());
    let memory = existing(services, "memory.confirm", answer.id).await?;
    let batch = format!("confirm-{}", now.as_millis());
    let (mut ops, mut item) = (Vec::new(), memory.item.clone());
    let state = if answer.confirm { QuestionState::Confirmed } else { QuestionState::Dismissed };
    if answer.confirm {
        // The owner confirms the text that was shown, and an external text may say more than was read (SIL-096).
        if !is_promotable(&memory) && item.trust == MemoryTrust::Working {
            let why = "what is external or secret is never verified; add what you know in your own words: writ memory add";
            return Err(wrong("memory.confirm", why));
        }
        if memory.traits.status != MemoryStatus::Active {
            ops.push(changed(answer.id, MemoryChange::Status(MemoryStatus::Active), &batch, now));
        }
        if item.trust == MemoryTrust::Working {
            item.trust = MemoryTrust::Verified;
            ops.push(changed(answer.id, MemoryChange::Trust(MemoryTrust::Verified), &batch, now));
        }
        for question in store.memory_questions(MAX_LISTED).await? {
            let pair = [Some(question.memory.id), question.other.as_ref().map(|other| other.id)];
            if question.kind == QuestionKind::Contradiction && pair.contains(&Some(answer.id)) {
                let other = pair.into_iter().flatten().find(|id| *id != answer.id);
                let archive = MemoryChange::Status(MemoryStatus::Archived);
                ops.extend(other.map(|other| changed(other, archive, &batch, now)));
            }
        }
    } else if memory.traits.status == MemoryStatus::Pending {
        ops.push(changed(answer.id, MemoryChange::Status(MemoryStatus::Archived), &batch, now));
    }
    let changes = u64::try_from(ops.len()).unwrap_or(u64::MAX);
    ops.push(services.journal.own_entry(remembered(answer.id, &item, false)));
    ops.push(Op::Memory(MemoryOp::Answer { memory: answer.id, state }));
    store.commit(Batch::synced(ops)).await?;
    services.memories.added.fetch_add(1, Ordering::Release);
    Ok(MemoryChanges { batch, changes })
}

/// Undoes the last changes of memories that were not undone.
pub(super) async fn undo_memories(services: &Services, _: NoParams) -> Result<MemoryChanges, EngineError> {
    let store = &services.journal.store;
    let last = store.memory_changes(1).await?.into_iter().next();
    let last = last.ok_or_else(|| wrong("memory.undo", "there is no change of memories to undo"))?;
    store.commit(Batch::synced(vec![Op::Memory(MemoryOp::Undo { batch: last.batch.clone() })])).await?;
    services.memories.added.fetch_add(1, Ordering::Release);
    Ok(MemoryChanges { batch: last.batch, changes: last.changes })
}

/// Returns a part of all memories as lines of a bundle; the first part begins with the header.
pub(super) async fn export_memories(
    services: &Services,
    page: MemoryPageQuery,
) -> Result<MemoryPage, EngineError> {
    let memories = services.journal.store.memories_after(page.after, EXPORTED_AT_ONCE).await?;
    let mut lines = Vec::new();
    if page.after == 0 {
        lines.push(header_line());
    }
    for memory in &memories {
        let line = serde_json::to_string(&BundledMemory::of(memory));
        lines.push(line.map_err(|error| EngineError::Bundle(error.to_string()))?);
    }
    Ok(MemoryPage { lines, next: memories.last().map(|memory| memory.row) })
}

/// Stores memories of a bundle, all or none of the call. Their labels come with them, and none becomes more trusted.
pub(super) async fn import_memories(
    services: &Services,
    import: MemoryLines,
) -> Result<MemoryImported, EngineError> {
    if import.lines.len() > IMPORTED_AT_ONCE {
        return Err(wrong("memory.import", &format!("at most {IMPORTED_AT_ONCE} memories at once")));
    }
    let text = std::iter::once(header_line()).chain(import.lines).collect::<Vec<_>>().join("\n");
    let bundle = read_bundle(&text).map_err(|error| EngineError::Bundle(error.to_string()))?;
    let (store, now) = (&services.journal.store, services.journal.clock.now());
    let (mut ops, mut result) = (Vec::new(), MemoryImported::default());
    for bundled in bundle {
        let (id, mut item, at, traits) = bundled.into_parts(now);
        item.text = services.journal.redactor.mask_text(&item.text).into_owned();
        match store.memory(id).await? {
            Some(_) if !import.replace => {
                result.unchanged += 1;
                continue;
            }
            Some(_) => {
                result.replaced += 1;
                ops.push(Op::Forget { memory: id });
            }
            None => result.added += 1,
        }
        ops.push(services.journal.own_entry(remembered(id, &item, false)));
        ops.push(Op::Remember(Box::new(NewMemory { id, item, at, traits })));
    }
    store.commit(Batch::synced(ops)).await?;
    services.memories.added.fetch_add(1, Ordering::Release);
    Ok(result)
}

/// Counts memories, vectors and questions.
pub(super) async fn memory_figures(services: &Services) -> Result<MemoryFigures, EngineError> {
    let (store, now) = (&services.journal.store, services.journal.clock.now());
    let (stats, changes) = (store.memory_stats().await?, store.memory_changes(SHOWN_LINKS).await?);
    let embedder = configured_embedder(services).map(|embedder| embedder.name);
    let embedder_state = match (&embedder, services.memories.why_away(now)) {
        (None, _) => "none: memories are found by their words; [memory] in config.toml names one".to_owned(),
        (Some(_), Some(why)) => format!("away, memories are found by their words: {why}"),
        (Some(_), None) => "memories are found by their words and by their meaning".to_owned(),
    };
    Ok(MemoryFigures {
        counts: stats
            .counts
            .into_iter()
            .map(|(status, kind, count)| MemoryCount { status, kind, count })
            .collect(),
        questions: stats.questions,
        text_bytes: stats.text_bytes,
        embedder,
        embedder_state,
        vectors: stats
            .vectors
            .into_iter()
            .map(|(model, dimension, count, serving)| VectorCount { model, dimension, count, serving })
            .collect(),
        changes: changes
            .into_iter()
            .map(|change| MemoryChanges { batch: change.batch, changes: change.changes })
            .collect(),
    })
}
