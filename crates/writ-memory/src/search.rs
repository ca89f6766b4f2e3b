//! The whole search: words, meaning and time, fused, with the reasons for each hit.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use writ_store::error::StoreError;
use writ_store::memory::{Memory, MemoryScope, Secrets};
use writ_store::reads::MemoryReads;
use writ_types::id::SessionId;
use writ_types::unit::Timestamp;

use crate::codes::{SECOND_PASS, SharedIndex};
use crate::embedder::Embedding;
use crate::fusion::{FusedRow, Rankings, Reason, fuse_rankings, standing_factor};
use crate::links::{causes_of, names_in};
use crate::window::TimeWindow;
use crate::words::TextWords;

/// The candidates of each ranking.
const CANDIDATES: usize = 100;

/// The fused rows that are read whole before age and importance decide their order.
const READ_ROWS: usize = 100;

/// The most rows of a window of time: more is no narrowing.
const MAX_WINDOW_ROWS: usize = 10_000;

/// The rows of one name that count, the newest.
const ROWS_OF_NAME: usize = 500;

/// The best rows by words and meaning of which causes and effects are looked up.
const FOLLOWED: usize = 4;

/// The causes, and the effects, of one of them that are found.
const CHAIN: usize = 3;

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
    let mut scope = MemoryScope { session: search.session, secrets: search.secrets, span: None };
    let in_window = match search.window {
        Some(window) => {
            let of_window = MemoryScope { span: Some((window.start, window.end)), ..scope };
            if search.beyond == BeyondWindow::LeftOut {
                scope = of_window;
            }
            Some(reads.memory_rows_within(of_window, MAX_WINDOW_ROWS).await?)
        }
        None => None,
    };
    let words = reads.word_candidates(search.text, scope, CANDIDATES).await?;
    let words: Vec<i64> = words.into_iter().map(|(row, _)| row).collect();
    let meaning = match search.meaning {
        Some((index, query)) => {
            // A window that holds more is searched like any other scope.
            let among = in_window.clone().filter(|rows| scope.span.is_some() && rows.len() < MAX_WINDOW_ROWS);
            nearest_rows(reads, index, query, (scope, among)).await?
        }
        None => Vec::new(),
    };
    let time = search.window.zip(in_window).map(|(window, rows)| {
        // Beside words and meaning time orders what they have found; without them it finds alone.
        let found: BTreeSet<i64> = words.iter().copied().chain(meaning.iter().map(|(row, _)| *row)).collect();
        let rows = rows.into_iter().filter(|row| found.is_empty() || found.contains(row)).take(READ_ROWS);
        (window.words.clone(), rows.collect())
    });
    let mut rankings = Rankings { words, meaning, time, ..Rankings::default() };
    let mut read = ReadMemories::default();
    read.add(reads, fuse_rankings(&rankings).into_iter().map(|row| row.row).take(READ_ROWS)).await?;
    if !rankings.meaning.is_empty() {
        read.add(reads, rankings.words.iter().copied()).await?;
        rankings.word_weights = weigh_words(&read, &rankings.words, search.text);
    }
    rankings.links = linked_rows(reads, &read, &rankings, (search.text, scope)).await?;
    read_hits(reads, &mut read, fuse_rankings(&rankings), search).await
}

/// Memories that a search has read, so that none is read twice.
#[derive(Debug, Default)]
struct ReadMemories(BTreeMap<i64, Option<Memory>>);

impl ReadMemories {
    /// Reads those of the rows that were not read.
    async fn add(
        &mut self,
        reads: &impl MemoryReads,
        rows: impl Iterator<Item = i64>,
    ) -> Result<(), StoreError> {
        let missing: Vec<i64> = rows.filter(|row| !self.0.contains_key(row)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let found = reads.memories_at_rows(&missing).await?;
        self.0.extend(missing.into_iter().map(|row| (row, None)));
        self.0.extend(found.into_iter().map(|memory| (memory.row, Some(memory))));
        Ok(())
    }

    fn get(&self, row: i64) -> Option<&Memory> {
        self.0.get(&row)?.as_ref()
    }
}

/// Returns the rows nearest to a meaning, exactly, of those of a scope that the index leaves; `among` alone, if it is given.
///
/// # Errors
///
/// If the vectors cannot be read.
pub async fn nearest_rows(
    reads: &impl MemoryReads,
    index: &Arc<SharedIndex>,
    query: &Embedding,
    (scope, among): (MemoryScope, Option<Vec<i64>>),
) -> Result<Vec<(i64, f32)>, StoreError> {
    let among = among.map(|mut rows| {
        rows.sort_unstable();
        rows
    });
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
    // Before the exact pass, so that memories of other sessions take no places.
    let near = reads.readable_rows(&near, scope, SECOND_PASS).await?;
    let vectors = reads.vectors_of_rows(index.space(), &near).await?;
    let mut exact: Vec<(i64, f32)> =
        vectors.into_iter().map(|vector| (vector.row, query.cosine(&vector.numbers))).collect();
    // A vector that was damaged on the disk is no neighbour.
    exact.retain(|(_, cosine)| cosine.is_finite() && *cosine >= MIN_COSINE);
    exact.sort_unstable_by(|left, right| right.1.total_cmp(&left.1).then(right.0.cmp(&left.0)));
    exact.truncate(CANDIDATES);
    Ok(exact)
}

/// Returns the weight of each hit by words beside those by meaning: the square of the share of the query's words that it has. Names
/// do not count, since links rank by them: of a question in other words the name alone is found, in many memories.
fn weigh_words(read: &ReadMemories, rows: &[i64], text: &str) -> Vec<f64> {
    let (query, names) = (TextWords::of(text), TextWords::of(&names_in(text).join(" ")));
    let wanted: BTreeSet<&str> = query.set().difference(&names.set()).copied().collect();
    // Texts without spaces have no words to compare.
    if wanted.is_empty() || text.chars().any(is_of_spaceless_script) {
        return Vec::new();
    }
    let weigh = |memory: &Memory| {
        let words = TextWords::of(&memory.item.text);
        (words.set().intersection(&wanted).count() as f64 / wanted.len() as f64).powi(2)
    };
    rows.iter().map(|row| read.get(*row).map_or(0.0, weigh)).collect()
}

/// Returns true for Thai, Lao, Burmese, Khmer, kana, Han and Hangul, as Unicode's blocks have them.
const fn is_of_spaceless_script(letter: char) -> bool {
    matches!(letter, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

/// Ranks rows by what links them with the query: the names in it, the rarest first, and causes and effects of what words and
/// meaning have found. Rows that are linked alike share a place.
async fn linked_rows(
    reads: &impl MemoryReads,
    read: &ReadMemories,
    found: &Rankings,
    (text, scope): (&str, MemoryScope),
) -> Result<Vec<(i64, usize, Reason)>, StoreError> {
    let mut named: BTreeMap<i64, (f64, Reason)> = BTreeMap::new();
    for name in names_in(text) {
        let rows = reads.memory_rows_about(&name, scope, ROWS_OF_NAME).await?;
        // A name that few memories have says more.
        let share = 1.0 / (rows.len() as f64 + 1.0);
        for row in rows {
            let sum = named.entry(row).or_insert((0.0, Reason::Entity(name.clone())));
            sum.0 += share;
        }
    }
    let mut named: Vec<(i64, f64, Reason)> =
        named.into_iter().map(|(row, (share, reason))| (row, share, reason)).collect();
    named.sort_by(|left, right| right.1.total_cmp(&left.1).then(right.0.cmp(&left.0)));
    let (mut links, mut place, mut last) = (Vec::new(), 0, None);
    for (n, (row, share, reason)) in named.into_iter().enumerate() {
        if last.is_none_or(|last: f64| last.total_cmp(&share) != Ordering::Equal) {
            place = n;
        }
        last = Some(share);
        links.push((row, place, reason));
    }
    let mut seen: BTreeSet<i64> = links.iter().map(|(row, ..)| *row).collect();
    for (n, (row, reason)) in chained_rows(reads, read, found, scope).await?.into_iter().enumerate() {
        if seen.insert(row) {
            links.push((row, n, reason));
        }
    }
    Ok(links)
}

/// Returns the causes and effects of the best rows by words and meaning.
async fn chained_rows(
    reads: &impl MemoryReads,
    read: &ReadMemories,
    found: &Rankings,
    scope: MemoryScope,
) -> Result<Vec<(i64, Reason)>, StoreError> {
    let best = fuse_rankings(&Rankings {
        words: found.words.iter().copied().take(FOLLOWED).collect(),
        meaning: found.meaning.iter().copied().take(FOLLOWED).collect(),
        ..Rankings::default()
    });
    let mut chained = Vec::new();
    for memory in best.into_iter().take(FOLLOWED).filter_map(|row| read.get(row.row)) {
        let causes = causes_of(reads, memory, CHAIN).await?;
        chained.extend(causes.into_iter().map(|cause| (cause.row, Reason::Cause(memory.id))));
        let effects = reads.effects_of(memory.id, CHAIN).await?;
        chained.extend(effects.into_iter().map(|effect| (effect.row, Reason::Effect(memory.id))));
    }
    if chained.is_empty() {
        return Ok(chained);
    }
    let rows: Vec<i64> = chained.iter().map(|(row, _)| *row).collect();
    let readable: BTreeSet<i64> = reads.readable_rows(&rows, scope, rows.len()).await?.into_iter().collect();
    chained.retain(|(row, _)| readable.contains(row));
    Ok(chained)
}

async fn read_hits(
    reads: &impl MemoryReads,
    read: &mut ReadMemories,
    fused: Vec<FusedRow>,
    search: &MemorySearch<'_>,
) -> Result<Vec<RankedMemory>, StoreError> {
    let mut hits = Vec::new();
    for part in fused.chunks(READ_ROWS) {
        read.add(reads, part.iter().map(|row| row.row)).await?;
        for fused in part {
            let Some(memory) = read.0.remove(&fused.row).flatten() else { continue };
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

#[cfg(test)]
mod tests;
