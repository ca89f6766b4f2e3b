//! The time of searches, of comparing a new memory with others, and of a consolidation beside turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use writ_memory::codes::{CodeIndex, SharedIndex, code_of};
use writ_memory::consolidation::{PlanLimits, Planner, SettledRows};
use writ_memory::contradiction::{contradiction_of, contradiction_pattern};
use writ_memory::embedder::Embedding;
use writ_memory::search::{BeyondWindow, MemorySearch, nearest_rows, search_memories};
use writ_store::batch::{Batch, NewMemory, Op};
use writ_store::memory::{Memory, MemoryChange, MemoryOp, MemoryScope, MemoryStatus, Secrets};
use writ_store::reads::MemoryReads as _;
use writ_store::store::Store;
use writ_types::unit::Timestamp;

use crate::{DAY, NOW, memory, new_vector, open, open_space};

/// Operations of one commit of a consolidation, as the engine has them.
const OPS_AT_ONCE: usize = 200;

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A vector near one of a thousand centres, as texts of one subject lie together.
fn synthetic(state: &mut u64, centre: u64) -> Embedding {
    let mut of_centre = centre.wrapping_mul(0x1234_5678_9abc_def1);
    let number =
        |state: &mut u64| (0..4).map(|_| (next(state) >> 40) as f32 / 16_777_216.0).sum::<f32>() - 2.0;
    let numbers = (0..384).map(|_| number(&mut of_centre) + 0.8 * number(state)).collect();
    Embedding::from_numbers(numbers).expect("a vector")
}

/// Words as people use them: the n-th is used 1/n as often as the first (Zipf).
struct Vocabulary(Vec<String>);

impl Vocabulary {
    fn new() -> Self {
        Self((0..20_000).map(|n| format!("w{n:x}q")).collect())
    }

    fn make_text(&self, state: &mut u64, count: usize) -> String {
        let mut word = || {
            let share = (next(state) >> 11) as f64 / (1_u64 << 53) as f64;
            self.0[((20_000_f64.powf(share)) as usize).min(19_999)].clone()
        };
        (0..count).map(|_| word()).collect::<Vec<_>>().join(" ")
    }
}

/// What was measured, for people or as the lines that `cargo xtask bench` reads.
struct Printer {
    lines: bool,
}

impl Printer {
    fn print(&self, what: &str, times: &[Duration], rows: u64, took: Duration, text: &str) {
        if self.lines {
            let nanos: Vec<u128> = times.iter().map(Duration::as_nanos).collect();
            println!(
                "{}",
                json!({ "what": what, "nanos": nanos, "rows": rows, "took_nanos": took.as_nanos() })
            );
        } else {
            println!("{text}");
        }
    }
}

fn millis(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() - 1) * percent / 100].as_secs_f64() * 1000.0
}

pub(crate) async fn measure_speed(count: u64, lines: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, mut state) = (open(folder.path()), 1);
    let (vocabulary, report) = (Vocabulary::new(), Printer { lines });
    let codes = store_synthetic(&store, count, &vocabulary, &mut state).await;
    let index = Arc::new(SharedIndex::new(1, codes));
    measure_searches((&store, &report), count, &index, (&vocabulary, &mut state)).await;
    measure_comparisons((&store, &report), (&vocabulary, &mut state)).await;
    measure_consolidation(store, &report, (&vocabulary, &mut state)).await;
}

/// Stores so many memories with their vectors; returns the codes of these.
async fn store_synthetic(store: &Store, count: u64, vocabulary: &Vocabulary, state: &mut u64) -> CodeIndex {
    open_space(store, 384).await;
    let (mut codes, began) = (CodeIndex::new(384), Instant::now());
    for part in 0..count.div_ceil(500) {
        let (mut ops, mut vectors) = (Vec::new(), Vec::new());
        for n in part * 500..((part + 1) * 500).min(count) {
            let text = vocabulary.make_text(state, 12);
            ops.push(memory(n, text, NOW - (n as i64 % 365) * DAY));
            let vector = synthetic(state, n % 1_000);
            codes.put(n as i64 + 1, &code_of(&vector));
            vectors.push(new_vector(n as i64 + 1, &vector));
        }
        ops.push(Op::Memory(MemoryOp::PutVectors { space: 1, vectors, done_to: 0, skipped: Vec::new() }));
        store.commit(Batch::relaxed(ops)).await.expect("commits");
    }
    eprintln!("{count} memories stored in {:.1} s", began.elapsed().as_secs_f64());
    codes
}

/// Prints the time of 100 searches, and the recall of the first 20 of them.
async fn measure_searches(
    (store, report): (&Store, &Printer),
    count: u64,
    index: &Arc<SharedIndex>,
    (vocabulary, state): (&Vocabulary, &mut u64),
) {
    let (mut times, mut hits, mut wanted) = (Vec::new(), 0, 0);
    for n in 0..100_u64 {
        let query = synthetic(state, n * 7 % 1_000);
        let text = vocabulary.make_text(state, 6);
        let search = MemorySearch {
            text: &text,
            meaning: Some((index, &query)),
            window: None,
            beyond: BeyondWindow::Found,
            session: None,
            secrets: Secrets::Told,
            limit: 10,
            now: Timestamp::from_millis(NOW),
        };
        let began = Instant::now();
        search_memories(store, &search).await.expect("searches");
        times.push(began.elapsed());
        // To compare all vectors exactly takes long, so only some queries are.
        if n < 20 {
            wanted += 10;
            hits += count_true_neighbours(store, count, index, &query).await;
        }
    }
    let took = times.iter().sum();
    let text =
        format!("hybrid search: p50 {:.1} ms, p95 {:.1} ms", millis(&mut times, 50), millis(&mut times, 95));
    report.print("search", &times, 100, took, &text);
    let share = f64::from(hits as u32) / f64::from(wanted);
    let text = format!("recall of the quantised passes against exact: {share:.3}");
    // In millionths, since the lines have whole numbers alone.
    report.print("recall", &[Duration::ZERO], (share * 1e6) as u64, Duration::ZERO, &text);
}

/// Returns how many of the ten nearest memories are among the first ten that the index finds.
async fn count_true_neighbours(
    store: &Store,
    count: u64,
    index: &Arc<SharedIndex>,
    query: &Embedding,
) -> usize {
    let scope = MemoryScope { session: None, secrets: Secrets::Told, span: None };
    let near = nearest_rows(store, index, query, (scope, None)).await.expect("searches");
    // All others are compared exactly.
    let mut exact = Vec::new();
    let mut row = 0;
    while row < count as i64 {
        let rows: Vec<i64> = (row + 1..=row + 10_000).collect();
        for vector in store.vectors_of_rows(1, &rows).await.expect("reads") {
            exact.push((query.cosine(&vector.numbers), vector.row));
        }
        row += 10_000;
    }
    exact.sort_by(|left, right| right.0.total_cmp(&left.0));
    let near: Vec<i64> = near.into_iter().take(10).map(|(row, _)| row).collect();
    exact[..10].iter().filter(|(_, row)| near.contains(row)).count()
}

/// Prints how long it takes to find what a new memory may contradict.
async fn measure_comparisons(
    (store, report): (&Store, &Printer),
    (vocabulary, state): (&Vocabulary, &mut u64),
) {
    let mut times = Vec::new();
    for n in 0..100 {
        // Common words, as of statements of one subject.
        let text =
            format!("the {} is called {}", vocabulary.make_text(state, 3), vocabulary.make_text(state, 1));
        let Op::Remember(new) = memory(n, text, NOW) else { continue };
        let NewMemory { id, item, at, traits } = *new;
        let new = Memory { id, item, at, traits, entry: None, row: 0 };
        let began = Instant::now();
        if let Some(pattern) = contradiction_pattern(&new) {
            let older = store.memories_fitting(&pattern, None, 20).await.expect("reads");
            older.iter().for_each(|older| drop(contradiction_of(older, &new)));
        }
        times.push(began.elapsed());
    }
    let took = times.iter().sum();
    let text = format!(
        "comparison of a new memory: p50 {:.2} ms, p95 {:.2} ms",
        millis(&mut times, 50),
        millis(&mut times, 95)
    );
    report.print("comparison", &times, 100, took, &text);
}

/// Plans a consolidation and carries it out as the engine does; turns remember and search meanwhile.
async fn measure_consolidation(store: Store, report: &Printer, (vocabulary, state): (&Vocabulary, &mut u64)) {
    let texts: Vec<String> = (0..10_000).map(|_| vocabulary.make_text(state, 6)).collect();
    let (store, is_done) = (Arc::new(store), Arc::new(AtomicBool::new(false)));
    let turns = tokio::spawn(take_turns(Arc::clone(&store), Arc::clone(&is_done), texts));
    let began = Instant::now();
    let limits = PlanLimits { stale_after: Duration::from_secs(60 * 86_400), promote_uses: 5 };
    let (mut planner, mut row) =
        (Planner::new(limits, SettledRows::default(), Timestamp::from_millis(NOW)), 0);
    loop {
        let memories = store.memories_after(row, 2_000).await.expect("reads");
        let Some(last) = memories.last() else { break };
        row = last.row;
        let part = tokio::task::spawn_blocking(move || {
            memories.iter().for_each(|memory| planner.add(memory));
            planner
        });
        planner = part.await.expect("plans");
    }
    let plan = planner.finish();
    let change = |memory| {
        let change = MemoryChange::Status(MemoryStatus::Archived);
        Op::Memory(MemoryOp::Change {
            memory,
            change,
            batch: "b".to_owned(),
            at: Timestamp::from_millis(NOW),
        })
    };
    let ops: Vec<Op> = plan.stale.iter().copied().map(change).collect();
    for part in ops.chunks(OPS_AT_ONCE) {
        store.commit(Batch::relaxed(part.to_vec())).await.expect("commits");
    }
    let took = began.elapsed();
    is_done.store(true, Ordering::Release);
    let mut times = turns.await.expect("ends");
    let text = format!("consolidation: {:.1} s, {} put aside", took.as_secs_f64(), plan.stale.len());
    report.print("consolidation", &[took], plan.seen as u64, took, &text);
    let (middle, last) = (millis(&mut times, 50), millis(&mut times, 99));
    let text = format!("a turn's search and memory meanwhile: p50 {middle:.1} ms, p99 {last:.1} ms");
    report.print("meanwhile", &times, times.len() as u64, times.iter().sum(), &text);
}

/// Remembers something and searches, until the consolidation has ended; returns the time of each.
async fn take_turns(store: Arc<Store>, is_done: Arc<AtomicBool>, texts: Vec<String>) -> Vec<Duration> {
    let mut times = Vec::new();
    for (n, text) in (0..).zip(texts) {
        let began = Instant::now();
        let new = memory(10_000_000 + n, text.clone(), NOW);
        store.commit(Batch::relaxed(vec![new])).await.expect("commits");
        store.search_memory(&text, None, Secrets::Told, 8).await.expect("searches");
        times.push(began.elapsed());
        if is_done.load(Ordering::Acquire) {
            break;
        }
        tokio::task::yield_now().await;
    }
    times
}
