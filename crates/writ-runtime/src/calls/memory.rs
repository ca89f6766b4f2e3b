//! Methods for the owner's memories.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use writ_memory::bundle::{BundledMemory, header_line, read_bundle};
use writ_memory::consolidation::is_promotable;
use writ_memory::links::{causes_of, names_in, walk_names};
use writ_memory::search::BeyondWindow;
use writ_store::batch::{Batch, NewMemory, Op};
use writ_store::memory::{
    MAX_MEMORY_BYTES, Memory, MemoryChange, MemoryOp, MemorySource, MemoryStatus, MemoryTraits, OpenQuestion,
    QuestionKind, QuestionState, Secrets,
};
use writ_store::reads::MemoryReads as _;
use writ_types::action::{MemoryTrust, Remember};
use writ_types::api::memory::{
    AnsweredMemory, FoundMemory, LinkedMemory, MemoryAmendment, MemoryAnswer, MemoryChanges, MemoryCount,
    MemoryFigures, MemoryHits, MemoryImported, MemoryLines, MemoryName, MemoryNames, MemoryOutcome,
    MemoryPage, MemoryPageQuery, MemoryQuery, MemoryQuestionRow, MemoryUndoing, NewFact, PendingMemories,
    ProfileView, ShownMemory, VectorCount,
};
use writ_types::frame::MAX_FRAME_BYTES;
use writ_types::id::MemoryId;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use super::MAX_LISTED;
use crate::error::EngineError;
use crate::recall::{MemoryQuestionText, configured_embedder, find_memories};
use crate::remembering::{remember_ops, remembered};
use crate::services::Services;

/// Memories of one part of an export: their texts fit into a frame many times.
const EXPORTED_AT_ONCE: usize = 50;

/// The bytes of their lines, a quarter of the largest frame: as texts of JSON they are up to twice as long.
const EXPORTED_BYTES: usize = MAX_FRAME_BYTES / 4;

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

fn check_text(method: &str, text: &str) -> Result<(), EngineError> {
    if text.trim().is_empty() {
        return Err(wrong(method, "the text is empty"));
    }
    if text.len() > MAX_MEMORY_BYTES {
        return Err(wrong(
            method,
            &format!("the text has more than {MAX_MEMORY_BYTES} bytes; store it in parts"),
        ));
    }
    Ok(())
}

pub(super) async fn existing(services: &Services, method: &str, id: MemoryId) -> Result<Memory, EngineError> {
    let found = services.journal.store.memory(id).await?;
    found.ok_or_else(|| wrong(method, &format!("there is no memory {id}")))
}

/// Shows a memory with what it is linked with.
pub(super) async fn show_memory(services: &Services, name: MemoryName) -> Result<ShownMemory, EngineError> {
    let (store, memory) = (&services.journal.store, existing(services, "memory.show", name.id).await?);
    let linked = |memory: Memory| LinkedMemory { id: memory.id, text: memory.item.text };
    let causes = causes_of(store, &memory, SHOWN_LINKS).await?.into_iter().map(linked).collect();
    let effects = store.effects_of(memory.id, SHOWN_LINKS).await?.into_iter().map(linked).collect();
    let names = &memory.traits.entities;
    let reached = walk_names(store, names, RELATED_DEPTH, names.len() + SHOWN_LINKS).await?;
    let mut related: Vec<String> =
        reached.into_iter().map(|reached| reached.name).filter(|name| !names.contains(name)).collect();
    related.sort();
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
    check_text("memory.add", &add.text)?;
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
    services.memories.drop_codes([memory.row]);
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
    let (mut ops, mut ids, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for id in drop.ids {
        let Some(memory) = services.journal.store.memory(id).await? else { continue };
        ops.push(services.journal.own_entry(remembered(id, &memory.item, true)));
        ops.push(Op::Forget { memory: id });
        ids.push(id);
        rows.push(memory.row);
    }
    services.journal.store.commit(Batch::synced(ops)).await?;
    services.memories.drop_codes(rows);
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
        check_text("memory.edit", &text)?;
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
    let batch = batch_name(services, "edit", now);
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

/// Shows the curated profile and the last digest.
pub(super) async fn show_profile(services: &Services) -> Result<ProfileView, EngineError> {
    Ok(services.memories.digest_state().await?.view)
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

/// Takes the owner's word about a memory: it is so, and what contradicts it is put aside; or it is put aside itself, if it waits or
/// contradicts another.
pub(super) async fn answer_memory(
    services: &Services,
    answer: MemoryAnswer,
) -> Result<AnsweredMemory, EngineError> {
    let (store, now) = (&services.journal.store, services.journal.clock.now());
    let memory = existing(services, "memory.confirm", answer.id).await?;
    let questions = store.memory_questions_about(answer.id, MAX_LISTED).await?;
    let (outcome, archived, changes) = if answer.confirm {
        let archived = contradicting(&memory, questions);
        (MemoryOutcome::Confirmed, archived, confirmed(&memory)?)
    } else {
        let outcome = denied(&memory, &questions)?;
        let archived = if outcome == MemoryOutcome::PutAside { vec![memory.clone()] } else { Vec::new() };
        (outcome, archived, Vec::new())
    };
    let batch = batch_name(services, "confirm", now);
    let mut item = memory.item.clone();
    if changes.contains(&MemoryChange::Trust(MemoryTrust::Verified)) {
        item.trust = MemoryTrust::Verified;
    }
    let mut ops: Vec<Op> =
        changes.into_iter().map(|change| changed(answer.id, change, &batch, now)).collect();
    let archive = MemoryChange::Status(MemoryStatus::Archived);
    ops.extend(archived.iter().map(|memory| changed(memory.id, archive.clone(), &batch, now)));
    let count = u64::try_from(ops.len()).unwrap_or(u64::MAX);
    let state = if answer.confirm { QuestionState::Confirmed } else { QuestionState::Dismissed };
    ops.push(services.journal.own_entry(remembered(answer.id, &item, false)));
    ops.push(Op::Memory(MemoryOp::Answer { memory: answer.id, state }));
    store.commit(Batch::synced(ops)).await?;
    services.memories.drop_codes(archived.iter().map(|memory| memory.row));
    services.memories.added.fetch_add(1, Ordering::Release);
    let others = archived.into_iter().map(|memory| memory.id).filter(|id| *id != answer.id).collect();
    Ok(AnsweredMemory { batch, changes: count, outcome, others })
}

/// Returns the changes of a memory that the owner confirms.
fn confirmed(memory: &Memory) -> Result<Vec<MemoryChange>, EngineError> {
    // The owner confirms the text that was shown, and an external text may say more than was read (SIL-096).
    if !is_promotable(memory) && memory.item.trust == MemoryTrust::Working {
        let why = "what is external or secret is never verified; add what you know in your own words: writ memory add";
        return Err(wrong("memory.confirm", why));
    }
    let is_active = memory.traits.status == MemoryStatus::Active;
    let status = (!is_active).then_some(MemoryChange::Status(MemoryStatus::Active));
    let is_verified = memory.item.trust != MemoryTrust::Working;
    let trust = (!is_verified).then_some(MemoryChange::Trust(MemoryTrust::Verified));
    Ok(status.into_iter().chain(trust).collect())
}

/// Returns the other memories of open contradictions.
fn contradicting(memory: &Memory, questions: Vec<OpenQuestion>) -> Vec<Memory> {
    let contradictions =
        questions.into_iter().filter(|question| question.kind == QuestionKind::Contradiction);
    let others = contradictions.flat_map(|question| std::iter::once(question.memory).chain(question.other));
    others.filter(|other| other.id != memory.id && other.traits.status != MemoryStatus::Archived).collect()
}

/// Returns the effect of the owner's no.
fn denied(memory: &Memory, questions: &[OpenQuestion]) -> Result<MemoryOutcome, EngineError> {
    let contradicts = questions.iter().any(|question| question.kind == QuestionKind::Contradiction);
    match memory.traits.status {
        MemoryStatus::Pending => Ok(MemoryOutcome::PutAside),
        MemoryStatus::Active if contradicts => Ok(MemoryOutcome::PutAside),
        MemoryStatus::Active | MemoryStatus::Archived if !questions.is_empty() => Ok(MemoryOutcome::Stays),
        MemoryStatus::Active | MemoryStatus::Archived => {
            let why = "nothing about this memory waits for your word; writ memory forget deletes it";
            Err(wrong("memory.confirm", why))
        }
    }
}

/// Returns a name for changes that no others have.
fn batch_name(services: &Services, kind: &str, now: Timestamp) -> String {
    format!("{kind}-{}", services.journal.ids.memory(now))
}

/// Undoes changes of memories that were not undone: those of a name, or the last.
pub(super) async fn undo_memories(
    services: &Services,
    undo: MemoryUndoing,
) -> Result<MemoryChanges, EngineError> {
    let store = &services.journal.store;
    let changes = store.memory_changes(MAX_LISTED).await?;
    let found = match &undo.batch {
        Some(batch) => changes.into_iter().find(|change| change.batch == *batch),
        None => changes.into_iter().next(),
    };
    let missing = || match &undo.batch {
        Some(batch) => format!("there are no changes {batch} to undo; writ memory stats lists them"),
        None => "there is no change of memories to undo".to_owned(),
    };
    let found = found.ok_or_else(|| wrong("memory.undo", &missing()))?;
    store.commit(Batch::synced(vec![Op::Memory(MemoryOp::Undo { batch: found.batch.clone() })])).await?;
    services.memories.added.fetch_add(1, Ordering::Release);
    Ok(MemoryChanges { batch: found.batch, changes: found.changes })
}

/// Returns a part of all memories as lines of a bundle; the first part begins with the header.
pub(super) async fn export_memories(
    services: &Services,
    page: MemoryPageQuery,
) -> Result<MemoryPage, EngineError> {
    let memories = services.journal.store.memories_after(page.after, EXPORTED_AT_ONCE).await?;
    let (mut lines, mut bytes, mut next) = (Vec::new(), 0, None);
    if page.after == 0 {
        lines.push(header_line());
    }
    for memory in &memories {
        let line = serde_json::to_string(&BundledMemory::of(memory));
        let line = line.map_err(|error| EngineError::Bundle(error.to_string()))?;
        bytes += line.len();
        // The next page begins with the one for which there is no room.
        if next.is_some() && bytes > EXPORTED_BYTES {
            break;
        }
        lines.push(line);
        next = Some(memory.row);
    }
    Ok(MemoryPage { lines, next })
}

/// Stores memories of a bundle, all or none of the call. Their labels come with them, and none that is there becomes more trusted:
/// a file may have been changed by others.
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
    let (mut ops, mut rows, mut result) = (Vec::new(), Vec::new(), MemoryImported::default());
    for bundled in bundle {
        let (id, mut item, at, traits) = bundled.into_parts(now);
        item.text = services.journal.redactor.mask_text(&item.text).into_owned();
        match store.memory(id).await? {
            Some(_) if !import.replace => {
                result.unchanged += 1;
                continue;
            }
            Some(there) => {
                result.replaced += 1;
                item.trust = item.trust.min(there.item.trust);
                item.taint = item.taint.max(there.item.taint);
                item.secret |= there.item.secret;
                ops.push(Op::Forget { memory: id });
                rows.push(there.row);
            }
            None => result.added += 1,
        }
        ops.push(services.journal.own_entry(remembered(id, &item, false)));
        ops.push(Op::Remember(Box::new(NewMemory { id, item, at, traits })));
    }
    store.commit(Batch::synced(ops)).await?;
    services.memories.drop_codes(rows);
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
