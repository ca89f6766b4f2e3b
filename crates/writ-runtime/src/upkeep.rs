//! The upkeep of the memory: vectors for new and changed memories, and consolidation.

use std::sync::Arc;
use std::time::Duration;

use writ_memory::codes::code_of;
use writ_memory::consolidation::{ConsolidationPlan, PlanLimits, Planner};
use writ_memory::embedder::{EmbedError, Embedding, MAX_BATCH, bounded_text, check_answer};
use writ_store::batch::{Batch, Op};
use writ_store::memory::{
    Memory, MemoryChange, MemoryOp, MemoryQuestion, MemoryStatus, NewVector, QuestionKind, VectorSpace,
};
use writ_store::reads::MemoryReads as _;
use writ_types::taint::{Clearance, Label, Taint};
use writ_types::unit::Timestamp;

use crate::error::EngineError;
use crate::jobs::Progress;
use crate::recall::{ConfiguredEmbedder, configured_embedder, embed_with};
use crate::services::Services;

/// The interval at which memories without a vector are looked for.
pub(crate) const EMBED_EVERY: Duration = Duration::from_secs(15);

/// The batches of one run; with a small local model a run takes a minute.
const BATCHES_OF_RUN: usize = 64;

/// Vectors of an old model that one commit deletes.
const DROPPED_AT_ONCE: usize = 1_000;

/// Memories that one read of a consolidation brings.
const READ_AT_ONCE: usize = 2_000;

/// Operations of one commit of a consolidation, so that turns wait for none of them long.
const OPS_AT_ONCE: usize = 200;

/// Gives vectors to memories that have none.
///
/// # Errors
///
/// If the store cannot be used, or the embedder does not answer.
pub(crate) async fn embed_new(services: &Arc<Services>) -> Result<Progress, EngineError> {
    let Some(embedder) = configured_embedder(services) else { return Ok(Progress::Complete) };
    for _ in 0..BATCHES_OF_RUN {
        if services.life.draining.is_cancelled() {
            return Ok(Progress::Partial);
        }
        let Some(space) = space_of(services, &embedder).await? else { return Ok(Progress::Complete) };
        let (memories, done_to) = services.journal.store.unembedded(space.id, MAX_BATCH).await?;
        if memories.is_empty() && done_to <= space.done_to {
            return finish_space(services, &space).await;
        }
        embed_batch(services, &embedder, &space, memories, done_to).await?;
    }
    Ok(Progress::Partial)
}

fn away(error: &EmbedError) -> EngineError {
    EngineError::Embedder(error.to_string())
}

/// Returns the space of an embedder. A new one is found by asking for one vector, which has its dimension.
async fn space_of(
    services: &Arc<Services>,
    embedder: &ConfiguredEmbedder,
) -> Result<Option<VectorSpace>, EngineError> {
    let store = &services.journal.store;
    let spaces = store.vector_spaces().await?;
    // The newest counts: the model may have changed its dimension.
    if let Some(space) = spaces.iter().rev().find(|space| space.model == embedder.name) {
        return Ok(Some(space.clone()));
    }
    if store.memories_after(0, 1).await?.is_empty() {
        return Ok(None);
    }
    let label = Label::new(Taint::Owner);
    let answer = embed_with(services, &embedder.name, vec!["memory".to_owned()], label).await?;
    let probe = answer.and_then(|vectors| check_answer(1, vectors)).map_err(|error| away(&error))?;
    let dimension = probe.first().map_or(0, Embedding::dimension);
    open_space(services, embedder, dimension, &spaces).await.map(Some)
}

async fn open_space(
    services: &Services,
    embedder: &ConfiguredEmbedder,
    dimension: usize,
    spaces: &[VectorSpace],
) -> Result<VectorSpace, EngineError> {
    let store = &services.journal.store;
    let dimension = u32::try_from(dimension).unwrap_or(u32::MAX);
    let open = MemoryOp::OpenSpace { model: embedder.name.clone(), dimension };
    store.commit(Batch::relaxed(vec![Op::Memory(open)])).await?;
    let found = store.vector_spaces().await?.into_iter();
    let mut found = found.filter(|space| space.model == embedder.name && space.dimension == dimension);
    let space = found.next().ok_or_else(|| EngineError::Machine("the vectors have no place".to_owned()))?;
    tracing::info!(model = %space.model, dimension, "memories are embedded");
    // Where no older vectors serve, those that there are serve at once.
    if !spaces.iter().any(|space| space.serving) {
        let serve = Op::Memory(MemoryOp::ServeSpace(space.id));
        store.commit(Batch::relaxed(vec![serve])).await?;
        services.memories.load_index(VectorSpace { serving: true, ..space.clone() }).await?;
    }
    Ok(space)
}

async fn embed_batch(
    services: &Arc<Services>,
    embedder: &ConfiguredEmbedder,
    space: &VectorSpace,
    memories: Vec<Memory>,
    done_to: i64,
) -> Result<(), EngineError> {
    // What the provider may not read is found by its words.
    let may_read = |memory: &Memory| !memory.item.secret || embedder.clearance >= Clearance::Secret;
    let (readable, skipped): (Vec<_>, Vec<_>) = memories.into_iter().partition(may_read);
    let mut vectors = Vec::new();
    if !readable.is_empty() {
        let texts: Vec<String> =
            readable.iter().map(|memory| bounded_text(&memory.item.text).to_owned()).collect();
        let mut label = Label::new(Taint::Owner);
        for memory in &readable {
            label.join(&Label { secret: memory.item.secret, ..Label::new(memory.item.taint) });
        }
        // A local model reads any label; the door judges what leaves this machine.
        let embedded = embed_each(services, &embedder.name, texts, label).await?;
        for (memory, embedding) in readable.iter().zip(embedded) {
            let Some(embedding) = embedding else { continue };
            if u32::try_from(embedding.dimension()) != Ok(space.dimension) {
                // The model has changed: all memories are embedded anew, and the old vectors serve meanwhile.
                let spaces = services.journal.store.vector_spaces().await?;
                open_space(services, embedder, embedding.dimension(), &spaces).await?;
                return Ok(());
            }
            let (code, numbers) = (code_of(&embedding), embedding.numbers().to_vec());
            vectors.push(NewVector { row: memory.row, edits: memory.traits.edits, code, numbers });
        }
    }
    let stored: Vec<(i64, Vec<u8>)> =
        vectors.iter().map(|vector| (vector.row, vector.code.clone())).collect();
    let embedded: std::collections::BTreeSet<i64> = stored.iter().map(|(row, _)| *row).collect();
    let left = skipped.iter().chain(&readable).map(|memory| memory.row).filter(|row| !embedded.contains(row));
    let skipped = left.collect();
    let put = MemoryOp::PutVectors { space: space.id, vectors, done_to, skipped };
    services.journal.store.commit(Batch::relaxed(vec![Op::Memory(put)])).await?;
    if let Some((serving, index)) = services.memories.serving().await?
        && serving.id == space.id
    {
        index.put_all(stored.iter().map(|(row, code)| (*row, code.as_slice())));
    }
    Ok(())
}

/// Returns a vector for each text; `None` where the model has none that can be used. One bad text of many costs no other its
/// vector.
async fn embed_each(
    services: &Arc<Services>,
    model: &str,
    texts: Vec<String>,
    label: Label,
) -> Result<Vec<Option<Embedding>>, EngineError> {
    let whole = embed_with(services, model, texts.clone(), label.clone()).await?;
    match whole.and_then(|vectors| check_answer(texts.len(), vectors)) {
        Ok(embeddings) => Ok(embeddings.into_iter().map(Some).collect()),
        Err(error @ EmbedError::Away(_)) if texts.len() == 1 => Err(away(&error)),
        Err(error) => {
            tracing::warn!(%error, "vectors are requested one by one");
            let mut embeddings = Vec::with_capacity(texts.len());
            for text in texts {
                let one = embed_with(services, model, vec![text], label.clone()).await?;
                match one.and_then(|vectors| check_answer(1, vectors)) {
                    Ok(mut found) => embeddings.push(found.pop()),
                    // Nothing answers at all: it is tried again later.
                    Err(error @ EmbedError::Away(_)) => return Err(away(&error)),
                    Err(_) => embeddings.push(None),
                }
            }
            Ok(embeddings)
        }
    }
}

/// Lets searches use a space in which every memory was looked at, and deletes the vectors of others.
async fn finish_space(services: &Services, space: &VectorSpace) -> Result<Progress, EngineError> {
    let store = &services.journal.store;
    if !space.serving {
        store.commit(Batch::relaxed(vec![Op::Memory(MemoryOp::ServeSpace(space.id))])).await?;
        services.memories.load_index(VectorSpace { serving: true, ..space.clone() }).await?;
        tracing::info!(model = %space.model, "all memories are embedded; searches use the new vectors");
    }
    let others = store.vector_spaces().await?.into_iter().filter(|other| other.id != space.id);
    let Some(other) = others.into_iter().next() else { return Ok(Progress::Complete) };
    for _ in 0..BATCHES_OF_RUN {
        let drop = MemoryOp::DropVectors { space: other.id, limit: DROPPED_AT_ONCE };
        store.commit(Batch::relaxed(vec![Op::Memory(drop)])).await?;
        if store.vector_spaces().await?.iter().all(|space| space.id != other.id) {
            return Ok(Progress::Complete);
        }
    }
    Ok(Progress::Partial)
}

/// Merges equal memories, puts stale ones aside, and asks the owner about those that are used often.
///
/// # Errors
///
/// If the store cannot be used.
pub(crate) async fn consolidate(services: &Arc<Services>) -> Result<Progress, EngineError> {
    let (store, now) = (&services.journal.store, services.journal.clock.now());
    let mut planner = Planner::new(PlanLimits::from(&services.memories.settings.config), now);
    let mut row = 0;
    loop {
        let memories = store.memories_after(row, READ_AT_ONCE).await?;
        let Some(last) = memories.last() else { break };
        row = last.row;
        memories.iter().for_each(|memory| planner.add(memory));
        // Other work has its turn between two parts.
        tokio::task::yield_now().await;
    }
    let plan = planner.finish();
    let ops = consolidation_ops(&plan, now);
    if !ops.is_empty() {
        let (merged, stale, asked) = (plan.merges.len(), plan.stale.len(), plan.promote.len());
        tracing::info!(merged, stale, asked, "memories were consolidated");
    }
    for part in ops.chunks(OPS_AT_ONCE) {
        store.commit(Batch::relaxed(part.to_vec())).await?;
    }
    Ok(Progress::Complete)
}

fn consolidation_ops(plan: &ConsolidationPlan, now: Timestamp) -> Vec<Op> {
    let batch = format!("consolidation-{}", now.as_millis());
    let change =
        |memory, change| Op::Memory(MemoryOp::Change { memory, change, batch: batch.clone(), at: now });
    let mut ops = Vec::new();
    for merge in &plan.merges {
        if let Some(taint) = merge.taint {
            ops.push(change(merge.into, MemoryChange::Taint(taint)));
        }
        let uses: u64 = merge.from.iter().map(|(_, uses)| *uses).sum();
        if uses > 0 {
            ops.push(change(merge.into, MemoryChange::AddUses(uses)));
        }
        let archive = MemoryChange::Status(MemoryStatus::Archived);
        ops.extend(merge.from.iter().map(|(memory, _)| change(*memory, archive.clone())));
    }
    let archive = MemoryChange::Status(MemoryStatus::Archived);
    ops.extend(plan.stale.iter().map(|memory| change(*memory, archive.clone())));
    ops.extend(plan.promote.iter().map(|(memory, uses)| {
        Op::Memory(MemoryOp::Ask(MemoryQuestion {
            kind: QuestionKind::Promote,
            memory: *memory,
            other: None,
            reason: format!("it was used {uses} times; is it so?"),
            at: now,
        }))
    }));
    ops
}
