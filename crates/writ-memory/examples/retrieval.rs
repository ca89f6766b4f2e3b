//! Prints the figures of `docs/memory.md`: how often the right memory is found, and how fast.
//!
//! ```sh
//! cargo run --release -p writ-memory --example retrieval -- --model FOLDER      # recall over 1,200 questions
//! cargo run --release -p writ-memory --example retrieval -- --speed 100000      # time of a search, and of a consolidation
//! cargo run --release -p writ-memory --example retrieval -- --speed 100000 --lines      # the same, as lines of JSON
//! ```

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::expect_used,
    reason = "a program that measures: its numbers are small"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use serde_json::json;
use writ_memory::codes::{CodeIndex, SharedIndex, code_of};
use writ_memory::consolidation::{PlanLimits, Planner, SettledRows};
use writ_memory::contradiction::{contradiction_of, contradiction_pattern};
use writ_memory::embedder::Embedding;
use writ_memory::links::names_in;
use writ_memory::local::LocalModel;
use writ_memory::search::{BeyondWindow, MemorySearch, nearest_rows, search_memories};
use writ_memory::window::find_window;
use writ_store::batch::{Batch, NewMemory, Op};
use writ_store::config::StoreConfig;
use writ_store::memory::{
    Memory, MemoryChange, MemoryOp, MemoryScope, MemoryStatus, MemoryTraits, NewVector, Secrets,
};
use writ_store::reads::MemoryReads as _;
use writ_store::store::Store;
use writ_types::action::{MemoryKind, MemoryTrust, Remember};
use writ_types::id::MemoryId;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;
use writ_types::zone::TimeZone;

/// 2026-11-26, noon.
const NOW: i64 = 1_795_694_400_000;
const DAY: i64 = 86_400_000;

/// Operations of one commit of a consolidation, as the engine has them.
const OPS_AT_ONCE: usize = 200;

const PEOPLE: [&str; 24] = [
    "Anna", "Boris", "Carla", "David", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kira", "Luis",
    "Mona", "Nils", "Olga", "Pavel", "Rosa", "Sven", "Tara", "Umar", "Vera", "Wanda", "Yusuf", "Zoe",
];

/// A statement, a question that shares words with it, and one that shares none but the name.
const SUBJECTS: [(&str, &str, &str); 25] = [
    ("{p} is allergic to peanuts", "What is {p} allergic to?", "Which food makes {p} ill?"),
    (
        "{p} bought a house by the lake",
        "Where is the house that {p} bought?",
        "Has {p} acquired real estate?",
    ),
    ("{p} plays the violin in an orchestra", "Which instrument does {p} play?", "What music does {p} make?"),
    ("{p} broke a leg while skiing", "How did {p} break a leg?", "What sporting accident did {p} have?"),
    (
        "{p} adopted a grey kitten from the shelter",
        "Where did {p} adopt the kitten?",
        "What pet does {p} have?",
    ),
    (
        "{p} works as a nurse at the children's hospital",
        "Where does {p} work?",
        "What is the profession of {p}?",
    ),
    (
        "{p} is afraid of flying and takes the train",
        "Why does {p} take the train?",
        "How does {p} feel about aeroplanes?",
    ),
    (
        "{p} finished a doctorate in marine biology",
        "What is {p}'s doctorate in?",
        "What did {p} study about the sea?",
    ),
    ("{p} got married in a small chapel", "Where did {p} get married?", "Tell me about the wedding of {p}"),
    ("{p} drives an old red pickup truck", "What does {p} drive?", "What vehicle belongs to {p}?"),
    ("{p} stopped eating meat for the climate", "Why did {p} stop eating meat?", "Is {p} a vegetarian?"),
    (
        "{p} is learning Japanese with a tutor",
        "What is {p} learning with a tutor?",
        "Which foreign language does {p} practise?",
    ),
    (
        "{p} lost the wallet on the night bus",
        "Where did {p} lose the wallet?",
        "What was missing after {p} rode public transport?",
    ),
    (
        "{p} runs ten kilometres before breakfast",
        "How far does {p} run before breakfast?",
        "What exercise does {p} do in the morning?",
    ),
    (
        "{p} opened a bakery near the station",
        "What did {p} open near the station?",
        "Which shop does {p} own?",
    ),
    ("{p} had the wisdom teeth removed", "What did {p} have removed?", "Why was {p} at the dentist?"),
    (
        "{p} inherited a clock from grandfather",
        "From whom did {p} inherit the clock?",
        "Which antique came to {p} from the family?",
    ),
    ("{p} paints landscapes in watercolour", "What does {p} paint?", "What is the artistic hobby of {p}?"),
    (
        "{p} moved to Lisbon for a new job",
        "Why did {p} move to Lisbon?",
        "In which Portuguese city does {p} live?",
    ),
    ("{p} keeps bees on the roof", "Where does {p} keep bees?", "Who of us produces honey, {p}?"),
    (
        "{p} cannot sleep because of the noisy neighbours",
        "Why can {p} not sleep?",
        "What causes the insomnia of {p}?",
    ),
    (
        "{p} won the chess tournament of the town",
        "Which tournament did {p} win?",
        "In which board game is {p} a champion?",
    ),
    (
        "{p} is writing a novel about a lighthouse",
        "What is the novel of {p} about?",
        "What book does {p} work on?",
    ),
    (
        "{p} volunteers at the food bank on weekends",
        "When does {p} volunteer?",
        "What charity does {p} help?",
    ),
    ("{p} repaired the leaking kitchen tap", "What did {p} repair?", "What plumbing work has {p} done?"),
];

/// Statements that answer nothing: small talk with the same names.
const DISTRACTORS: [&str; 8] = [
    "{p} said hello and asked about the weather",
    "{p} sent a picture of the garden",
    "{p} will call back later today",
    "{p} liked the photo of the mountains",
    "{p} was late for the meeting again",
    "{p} asked for the password of the printer",
    "{p} recommended a film about space",
    "{p} forgot the umbrella in the office",
];

struct Case {
    row: i64,
    question: String,
    window: Option<&'static str>,
    /// Shares words with its memory beside the name.
    literal: bool,
    /// The vector of the question, if there is a model.
    meaning: Option<Embedding>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    if let Some(count) = value("--speed") {
        let lines = args.iter().any(|arg| arg == "--lines");
        runtime.block_on(measure_speed(count.parse().expect("a number"), lines));
    } else {
        let model = value("--model").map(|folder| LocalModel::open(Path::new(folder)).expect("a model"));
        runtime.block_on(measure_recall(model.as_ref()));
    }
}

fn open(folder: &Path) -> Store {
    let config = StoreConfig::new(folder.join("writ.db"));
    Store::open(&config, Arc::new(SigningKey::from_bytes(&[7; 32]))).expect("opens")
}

fn memory(n: u64, text: String, at: i64) -> Op {
    let item = Remember {
        text,
        memory_kind: MemoryKind::Fact,
        trust: MemoryTrust::Working,
        taint: Taint::Owner,
        secret: false,
        session: None,
    };
    let at = Timestamp::from_millis(at);
    let id = MemoryId::from_parts(at, u128::from(n));
    let traits = MemoryTraits { entities: names_in(&item.text), ..MemoryTraits::default() };
    Op::Remember(Box::new(NewMemory { id, item, at, traits }))
}

/// Dialogues of 24 people over a year: each subject twice a person, at two times, and small talk between.
fn dialogues() -> (Vec<(String, i64)>, Vec<Case>) {
    let (mut memories, mut cases) = (Vec::new(), Vec::new());
    for (n, person) in PEOPLE.iter().enumerate() {
        for (m, (statement, literal, paraphrase)) in SUBJECTS.iter().enumerate() {
            let number = n * SUBJECTS.len() + m;
            let said = |text: &str| text.replace("{p}", person);
            // Every fourth is there twice, at two times; the newer one is asked for.
            let days = 40 + i64::try_from(number * 7 % 320).expect("small");
            for (d, distractor) in
                DISTRACTORS.iter().enumerate().filter(|(d, _)| (d + number).is_multiple_of(4))
            {
                memories.push((said(distractor), NOW - (days + i64::try_from(d).expect("small")) * DAY));
            }
            let timed = number % 4 == 3;
            let (at, window) =
                if timed { (NOW - 9 * DAY, Some("last week")) } else { (NOW - days * DAY, None) };
            if timed {
                memories.push((said(statement), NOW - 200 * DAY));
            }
            memories.push((said(statement), at));
            let row = i64::try_from(memories.len()).expect("small");
            for (question, is_literal) in [(literal, true), (paraphrase, false)] {
                cases.push(Case {
                    row,
                    question: said(question),
                    window,
                    literal: is_literal,
                    meaning: None,
                });
            }
        }
    }
    (memories, cases)
}

/// An index of vectors, and the vectors of all memories in their order.
type Vectors = (Arc<SharedIndex>, Vec<Embedding>);

async fn measure_recall(model: Option<&LocalModel>) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let (memories, mut cases) = dialogues();
    store_memories(&store, &memories).await;
    println!("{} memories, {} questions", memories.len(), cases.len());
    let embedded = model.map(|model| embed_memories(model, &memories));
    if let Some((_, vectors)) = &embedded {
        store_vectors(&store, vectors).await;
    }
    let index = embedded.as_ref().map(|(index, _)| index);
    if let Some(model) = model {
        // A time is no part of what is embedded, so each question has one vector.
        for case in &mut cases {
            case.meaning = Embedding::from_numbers(model.embed_text(&case.question)).ok();
        }
    }
    println!("| ranking | time | questions | recall@5 | recall@10 |\n| --- | --- | --- | ---: | ---: |");
    for with_time in [false, true] {
        for ranking in ["words", "vectors", "fused"] {
            // Without a model only the words can be ranked.
            if ranking != "words" && index.is_none() {
                continue;
            }
            let mut places = Vec::new();
            for case in &cases {
                let question = match case.window.filter(|_| with_time) {
                    Some(window) => format!("{} {window}", case.question),
                    None => case.question.clone(),
                };
                let rows = ranked(&store, ranking, index, case.meaning.as_ref(), &question).await;
                places.push((case, rows.iter().position(|row| *row == case.row)));
            }
            let time = if with_time { "named" } else { "not named" };
            print_recall(&format!("{ranking} | {time} | all"), &places, |_| true);
            print_recall(&format!("{ranking} | {time} | in other words"), &places, |case| !case.literal);
            print_recall(&format!("{ranking} | {time} | about last week"), &places, |case| {
                case.window.is_some()
            });
        }
    }
}

/// Prints the share of questions of which the memory is among the first five, and the first ten.
fn print_recall(title: &str, places: &[(&Case, Option<usize>)], counts: impl Fn(&Case) -> bool) {
    let places: Vec<Option<usize>> =
        places.iter().filter(|(case, _)| counts(case)).map(|(_, place)| *place).collect();
    let share = |most: usize| {
        let hits = places.iter().filter(|place| place.is_some_and(|place| place < most)).count();
        hits as f64 * 100.0 / places.len() as f64
    };
    println!("| {title} ({}) | {:.1} % | {:.1} % |", places.len(), share(5), share(10));
}

async fn store_memories(store: &Store, memories: &[(String, i64)]) {
    for (part, texts) in memories.chunks(500).enumerate() {
        let ops = texts
            .iter()
            .enumerate()
            .map(|(n, (text, at))| memory((part * 500 + n) as u64, text.clone(), *at));
        store.commit(Batch::relaxed(ops.collect())).await.expect("commits");
    }
}

fn embed_memories(model: &LocalModel, memories: &[(String, i64)]) -> Vectors {
    let vectors: Vec<Embedding> = memories
        .iter()
        .map(|(text, _)| Embedding::from_numbers(model.embed_text(text)).expect("a vector"))
        .collect();
    let mut codes = CodeIndex::new(vectors[0].dimension());
    for (n, vector) in vectors.iter().enumerate() {
        codes.put(n as i64 + 1, &code_of(vector));
    }
    (Arc::new(SharedIndex::new(1, codes)), vectors)
}

async fn open_space(store: &Store, dimension: u32) {
    let opened = MemoryOp::OpenSpace { model: "m".to_owned(), dimension };
    store.commit(Batch::relaxed(vec![Op::Memory(opened)])).await.expect("opens");
}

async fn store_vectors(store: &Store, vectors: &[Embedding]) {
    open_space(store, vectors[0].dimension() as u32).await;
    for (part, vectors) in vectors.chunks(500).enumerate() {
        let vectors =
            vectors.iter().enumerate().map(|(n, vector)| new_vector((part * 500 + n) as i64 + 1, vector));
        let put =
            MemoryOp::PutVectors { space: 1, vectors: vectors.collect(), done_to: 0, skipped: Vec::new() };
        store.commit(Batch::relaxed(vec![Op::Memory(put)])).await.expect("commits");
    }
}

fn new_vector(row: i64, vector: &Embedding) -> NewVector {
    NewVector { row, edits: 0, code: code_of(vector), numbers: vector.numbers().to_vec() }
}

async fn ranked(
    store: &Store,
    ranking: &str,
    index: Option<&Arc<SharedIndex>>,
    meaning: Option<&Embedding>,
    question: &str,
) -> Vec<i64> {
    let now = Timestamp::from_millis(NOW);
    let found = find_window(question, &TimeZone::UTC, now);
    let (window, rest) = found.map_or((None, None), |(window, rest)| (Some(window), Some(rest)));
    let text = rest.as_deref().unwrap_or(question);
    let meaning = index.zip(meaning).filter(|_| ranking != "words");
    let search = MemorySearch {
        // Of a text without words only the meaning is left.
        text: if ranking == "vectors" { "" } else { text },
        meaning,
        window: window.as_ref(),
        beyond: BeyondWindow::LeftOut,
        session: None,
        secrets: Secrets::Told,
        limit: 10,
        now,
    };
    let hits = search_memories(store, &search).await.expect("searches");
    hits.into_iter().map(|hit| hit.memory.row).collect()
}

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
struct Report {
    lines: bool,
}

impl Report {
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

async fn measure_speed(count: u64, lines: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, mut state) = (open(folder.path()), 1);
    let (vocabulary, report) = (Vocabulary::new(), Report { lines });
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
    (store, report): (&Store, &Report),
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
    (store, report): (&Store, &Report),
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
async fn measure_consolidation(store: Store, report: &Report, (vocabulary, state): (&Vocabulary, &mut u64)) {
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
