//! The whole search: words, meaning and time, fused, with the reasons for each hit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use writ_store::error::StoreError;
use writ_store::memory::{Memory, Secrets};
use writ_store::reads::MemoryReads;
use writ_types::id::SessionId;
use writ_types::unit::Timestamp;

use crate::codes::SharedIndex;
use crate::embedder::Embedding;
use crate::fusion::{FusedRow, Rankings, Reason, fuse_rankings, standing_factor};
use crate::window::TimeWindow;

/// The candidates of each ranking.
const CANDIDATES: usize = 100;

/// The fused rows that are read whole before age and importance decide their order.
const READ_ROWS: usize = 100;

/// The most rows of a window of time: more is no narrowing.
const MAX_WINDOW_ROWS: usize = 10_000;

/// The most codes that are scanned on the caller's thread: it takes a tenth of a millisecond.
const SHORT_SCAN: usize = 10_000;

/// The cosine below which a memory has another meaning: unrelated English sentences lie about 0.05 apart from each other
/// with the models that are in use.
pub const MIN_COSINE: f32 = 0.2;

/// The treatment of memories beyond the time that a query names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeyondWindow {
    /// They are found too, behind equal ones of the time.
    Found,
    /// They are left out.
    LeftOut,
}

/// A search.
#[derive(Clone, Copy, Debug)]
pub struct MemorySearch<'a> {
    /// The text without the words that name a time.
    pub text: &'a str,
    /// The meaning of the text, and the index of its model.
    pub meaning: Option<(&'a Arc<SharedIndex>, &'a Embedding)>,
    /// The time that it names.
    pub window: Option<&'a TimeWindow>,
    /// The treatment of memories of other times.
    pub beyond: BeyondWindow,
    /// The session of which memories are found beside the common ones.
    pub session: Option<SessionId>,
    /// The treatment of secret memories.
    pub secrets: Secrets,
    /// The most hits.
    pub limit: usize,
    /// Now.
    pub now: Timestamp,
}

/// A memory that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedMemory {
    /// The memory.
    pub memory: Memory,
    /// The fused score: larger is better.
    pub score: f64,
    /// The reasons why it was found.
    pub reasons: Vec<Reason>,
}

/// Searches.
///
/// # Errors
///
/// If the memories cannot be read.
pub async fn search_memories(
    reads: &impl MemoryReads,
    search: &MemorySearch<'_>,
) -> Result<Vec<RankedMemory>, StoreError> {
    let in_window = match search.window {
        Some(window) => Some(reads.memory_rows_within(window.start, window.end, MAX_WINDOW_ROWS).await?),
        None => None,
    };
    let among: Option<BTreeSet<i64>> = in_window
        .as_ref()
        .filter(|_| search.beyond == BeyondWindow::LeftOut)
        .map(|rows| rows.iter().copied().collect());
    // Where a window narrows the search, candidates beyond it must not take the places of those within.
    let wanted = if among.is_some() { CANDIDATES * 20 } else { CANDIDATES };
    let words = reads.word_candidates(search.text, wanted).await?.into_iter().map(|(row, _)| row);
    let words = words.filter(|row| among.as_ref().is_none_or(|among| among.contains(row)));
    let words: Vec<i64> = words.take(CANDIDATES).collect();
    let meaning = match search.meaning {
        Some((index, query)) => {
            let among = among.as_ref().map(|rows| rows.iter().copied().collect());
            nearest_rows(reads, index, query, among).await?
        }
        None => Vec::new(),
    };
    let time = search.window.zip(in_window).map(|(window, rows)| {
        // Beside words and meaning time orders what they have found; without them it finds alone.
        let found: BTreeSet<i64> = words.iter().copied().chain(meaning.iter().map(|(row, _)| *row)).collect();
        let rows = rows.into_iter().filter(|row| found.is_empty() || found.contains(row)).take(READ_ROWS);
        (window.words.clone(), rows.collect())
    });
    let fused = fuse_rankings(&Rankings { words, meaning, time });
    read_hits(reads, fused, search).await
}

/// Returns the rows nearest to a meaning, exactly, of those that the index leaves.
///
/// # Errors
///
/// If the vectors cannot be read.
pub async fn nearest_rows(
    reads: &impl MemoryReads,
    index: &Arc<SharedIndex>,
    query: &Embedding,
    among: Option<Vec<i64>>,
) -> Result<Vec<(i64, f32)>, StoreError> {
    let near = if among.is_some() || index.read().len() <= SHORT_SCAN {
        index.read().scan(query, among.as_deref())
    } else {
        let (index, query) = (Arc::clone(index), query.clone());
        let scan = tokio::task::spawn_blocking(move || index.read().scan(&query, None));
        // A scan that is stopped with the runtime finds nothing.
        scan.await.unwrap_or_default()
    };
    if near.is_empty() {
        return Ok(Vec::new());
    }
    let vectors = reads.vectors_of_rows(index.space(), &near).await?;
    let mut exact: Vec<(i64, f32)> =
        vectors.into_iter().map(|vector| (vector.row, query.cosine(&vector.numbers))).collect();
    // A vector that was damaged on the disk is no neighbour.
    exact.retain(|(_, cosine)| cosine.is_finite() && *cosine >= MIN_COSINE);
    exact.sort_unstable_by(|left, right| right.1.total_cmp(&left.1).then(right.0.cmp(&left.0)));
    exact.truncate(CANDIDATES);
    Ok(exact)
}

async fn read_hits(
    reads: &impl MemoryReads,
    fused: Vec<FusedRow>,
    search: &MemorySearch<'_>,
) -> Result<Vec<RankedMemory>, StoreError> {
    let mut hits = Vec::new();
    for part in fused.chunks(READ_ROWS) {
        let rows: Vec<i64> = part.iter().map(|row| row.row).collect();
        let memories = reads.memories_at_rows(&rows).await?;
        let mut memories: BTreeMap<i64, Memory> =
            memories.into_iter().map(|memory| (memory.row, memory)).collect();
        for fused in part {
            let Some(memory) = memories.remove(&fused.row) else { continue };
            if memory.is_readable(search.session, search.secrets) {
                let score = fused.score * standing_factor(&memory, search.now);
                hits.push(RankedMemory { memory, score, reasons: fused.reasons.clone() });
            }
        }
        // Each part is read as a whole: within it age and importance may reverse the order.
        if hits.len() >= search.limit {
            break;
        }
    }
    hits.sort_by(|left, right| {
        right.score.total_cmp(&left.score).then(right.memory.row.cmp(&left.memory.row))
    });
    hits.truncate(search.limit);
    Ok(hits)
}
