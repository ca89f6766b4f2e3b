//! The upkeep of the memory: vectors for new and changed memories, and consolidation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use writ_memory::codes::code_of;
use writ_memory::consolidation::{ConsolidationPlan, PlanLimits, Planner, SettledRows};
use writ_memory::embedder::{EmbedError, Embedding, SHORT_TEXT_BYTES, bounded_text, check_answer};
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

/// The beginning of the names of the changes that consolidations make.
const CONSOLIDATION: &str = "consolidation-";

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
        let (memories, done_to) =
            services.journal.store.unembedded(space.id, services.memories.batch_limit()).await?;
        if memories.is_empty() && done_to <= space.done_to {
            return finish_space(services, &space).await;
        }
        let batch = NextBatch { memories, done_to };
        if embed_batch(services, &embedder, &space, batch).await? == Fit::OtherDimension {
            // A model that changes to and fro costs one request a run.
            return Ok(Progress::Partial);
        }
    }
    Ok(Progress::Partial)
}

/// Memories without a vector.
struct NextBatch {
    memories: Vec<Memory>,
    /// The row up to which every memory was looked at, once these have their vectors.
    done_to: i64,
}

/// The result of comparing the vectors of an answer with their space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    SameDimension,
    OtherDimension,
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
    let mut own = spaces.iter().rev().filter(|space| space.model == embedder.name);
    // The last answer has shown the dimension that the model has now; before it the newest space is the likeliest.
    let found = match services.memories.dimension_of(&embedder.name) {
        Some(dimension) => {
            let found = own.find(|space| space.dimension == dimension).cloned();
            if found.is_none() && spaces.iter().any(|space| space.model == embedder.name) {
                return open_space(services, embedder, dimension, &spaces).await.map(Some);
            }
            found
        }
        None => own.next().cloned(),
    };
    if found.is_some() || store.memories_after(0, 1).await?.is_empty() {
        return Ok(found);
    }
    let probe = embed_plain_word(services, &embedder.name).await?.map_err(|error| away(&error))?;
    let dimension = note_dimension(services, embedder, &probe);
    open_space(services, embedder, dimension, &spaces).await.map(Some)
}

/// Asks for the vector of a plain word, which every embedder that works has.
async fn embed_plain_word(
    services: &Arc<Services>,
    model: &str,
) -> Result<Result<Embedding, EmbedError>, EngineError> {
    let answer = embed_with(services, model, vec!["memory".to_owned()], Label::new(Taint::Owner)).await?;
    let checked = answer.and_then(|vectors| check_answer(1, vectors));
    Ok(checked.and_then(|mut vectors| vectors.pop().ok_or(EmbedError::Count { sent: 1, found: 0 })))
}

fn note_dimension(services: &Services, embedder: &ConfiguredEmbedder, embedding: &Embedding) -> u32 {
    let dimension = u32::try_from(embedding.dimension()).unwrap_or(u32::MAX);
    services.memories.note_dimension(&embedder.name, dimension);
    dimension
}

async fn open_space(
    services: &Services,
    embedder: &ConfiguredEmbedder,
    dimension: u32,
    spaces: &[VectorSpace],
) -> Result<VectorSpace, EngineError> {
    let store = &services.journal.store;
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
    NextBatch { memories, mut done_to }: NextBatch,
) -> Result<Fit, EngineError> {
    // A memory that the provider may not read gets no vector, and is found only by its words.
    let may_read = |memory: &Memory| !memory.item.secret || embedder.clearance >= Clearance::Secret;
    let (readable, withheld): (Vec<_>, Vec<_>) = memories.into_iter().partition(may_read);
    let mut label = Label::new(Taint::Owner);
    for memory in &readable {
        label.join(&Label { secret: memory.item.secret, ..Label::new(memory.item.taint) });
    }
    let texts = readable.iter().map(|memory| bounded_text(&memory.item.text).to_owned()).collect();
    // A local model reads any label; the door judges what leaves this machine.
    let answer = embed_each(services, &embedder.name, texts, label).await?;
    if let Some(missing) = readable.get(answer.embeddings.len()) {
        // The embedder went away in the middle: what there is is stored, and the rest has its turn later.
        done_to = done_to.min(missing.row - 1);
    }
    let mut skipped: Vec<i64> = withheld.iter().map(|memory| memory.row).collect();
    let mut by_dimension: BTreeMap<u32, Vec<NewVector>> = BTreeMap::new();
    for (memory, embedding) in readable.iter().zip(answer.embeddings) {
        let Some(embedding) = embedding else {
            skipped.push(memory.row);
            continue;
        };
        let dimension = note_dimension(services, embedder, &embedding);
        let (code, numbers) = (code_of(&embedding), embedding.numbers().to_vec());
        let vector = NewVector { row: memory.row, edits: memory.traits.edits, code, numbers };
        by_dimension.entry(dimension).or_default().push(vector);
    }
    let fitting = by_dimension.remove(&space.dimension).unwrap_or_default();
    let fit = if by_dimension.is_empty() { Fit::SameDimension } else { Fit::OtherDimension };
    for (dimension, vectors) in by_dimension {
        // The model has changed: all memories are embedded anew, and the old vectors serve meanwhile.
        let spaces = services.journal.store.vector_spaces().await?;
        let other = open_space(services, embedder, dimension, &spaces).await?;
        put_vectors(services, &other, (vectors, 0), Vec::new()).await?;
    }
    let done_to = if fit == Fit::SameDimension { done_to } else { 0 };
    put_vectors(services, space, (fitting, done_to), skipped).await?;
    answer.away.map_or(Ok(fit), |error| Err(away(&error)))
}

async fn put_vectors(
    services: &Services,
    space: &VectorSpace,
    (vectors, done_to): (Vec<NewVector>, i64),
    skipped: Vec<i64>,
) -> Result<(), EngineError> {
    let codes: Vec<(i64, Vec<u8>)> = vectors.iter().map(|vector| (vector.row, vector.code.clone())).collect();
    let put = MemoryOp::PutVectors { space: space.id, vectors, done_to, skipped };
    services.journal.store.commit(Batch::relaxed(vec![Op::Memory(put)])).await?;
    if let Some((serving, index)) = services.memories.serving().await?
        && serving.id == space.id
    {
        index.put_all(codes.iter().map(|(row, code)| (*row, code.as_slice())));
    }
    Ok(())
}

/// The vectors of the first of some texts.
struct EmbeddedTexts {
    /// A vector for each text, in their order; `None` where the model has none that can be used.
    embeddings: Vec<Option<Embedding>>,
    /// The reason why the texts behind have none yet.
    away: Option<EmbedError>,
}

/// Asks for the vectors of texts. A request that fails is halved until the text is found that cannot be embedded: one bad text
/// costs no other its vector, and some requests instead of one for each. A plain word, which is embedded in between, tells such
/// a text from an embedder that answers nothing at all: some servers answer 500 for a text that is too long for their model.
async fn embed_each(
    services: &Arc<Services>,
    model: &str,
    mut texts: Vec<String>,
    label: Label,
) -> Result<EmbeddedTexts, EngineError> {
    let mut embedded = EmbeddedTexts { embeddings: Vec::with_capacity(texts.len()), away: None };
    let mut parts = Vec::from_iter((!texts.is_empty()).then_some(0..texts.len()));
    let (mut answers, mut tried_again) = (false, None);
    let (mut smallest, mut is_text_at_fault) = (usize::MAX, false);
    while let Some(part) = parts.pop() {
        let answer = embed_with(services, model, texts[part.clone()].to_vec(), label.clone()).await?;
        let error = match answer.and_then(|vectors| check_answer(part.len(), vectors)) {
            Ok(vectors) => {
                embedded.embeddings.extend(vectors.into_iter().map(Some));
                continue;
            }
            Err(error) => error,
        };
        let is_away = matches!(error, EmbedError::Away(_));
        if is_away || !answers {
            if embed_plain_word(services, model).await?.is_err() {
                embedded.away = Some(error);
                return Ok(embedded);
            }
            answers = true;
        }
        let text = texts.get_mut(part.start).filter(|text| part.len() == 1 && text.len() > SHORT_TEXT_BYTES);
        if part.len() > 1 {
            let middle = part.start + part.len() / 2;
            smallest = smallest.min(part.len() / 2);
            parts.extend([middle..part.end, part.start..middle]);
            continue;
        }
        is_text_at_fault = true;
        if is_away && tried_again != Some(part.start) {
            // The connection may have been cut by chance.
            tried_again = Some(part.start);
            parts.push(part);
        } else if let Some(text) = text {
            text.truncate(text.floor_char_boundary(SHORT_TEXT_BYTES));
            parts.push(part);
        } else {
            tracing::warn!(%error, "a memory has no vector, and is found by its words");
            embedded.embeddings.push(None);
        }
    }
    // Where each part was accepted in the end, there were too many texts in one.
    if !is_text_at_fault {
        services.memories.limit_batch(smallest);
    }
    Ok(embedded)
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
    let (asked, open_questions) = store.memory_rows_asked(QuestionKind::Promote).await?;
    let undone = store.memory_rows_undone(CONSOLIDATION).await?;
    let settled = SettledRows {
        undone: undone.into_iter().collect(),
        asked: asked.into_iter().collect(),
        open_questions,
        tools: services.servers.registry().foreign_descriptions().map(|(name, _)| name).collect(),
    };
    let mut planner = Planner::new(PlanLimits::from(&services.memories.settings.config), settled, now);
    let mut row = 0;
    loop {
        let memories = store.memories_after(row, READ_AT_ONCE).await?;
        let Some(last) = memories.last() else { break };
        row = last.row;
        // To fold thousands of texts would hold up the turns of this thread.
        let part = tokio::task::spawn_blocking(move || {
            memories.iter().for_each(|memory| planner.add(memory));
            planner
        });
        planner = part.await.map_err(|_| EngineError::Machine("a consolidation was stopped".to_owned()))?;
    }
    let plan = planner.finish();
    let batch = format!("{CONSOLIDATION}{}", services.journal.ids.memory(now));
    let ops = consolidation_ops(&plan, &batch, now);
    if !ops.is_empty() {
        let (merged, stale, asked) = (plan.merges.len(), plan.stale.len(), plan.promote.len());
        tracing::info!(merged, stale, asked, "memories were consolidated");
    }
    for part in ops.chunks(OPS_AT_ONCE) {
        store.commit(Batch::relaxed(part.to_vec())).await?;
    }
    services.memories.drop_codes(plan.archived_rows);
    Ok(Progress::Complete)
}

fn consolidation_ops(plan: &ConsolidationPlan, batch: &str, now: Timestamp) -> Vec<Op> {
    let change =
        |memory, change| Op::Memory(MemoryOp::Change { memory, change, batch: batch.to_owned(), at: now });
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
