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

mod speed;

use std::path::Path;
use std::sync::Arc;

use ed25519_dalek::SigningKey;
use writ_memory::codes::{CodeIndex, SharedIndex, code_of};
use writ_memory::embedder::Embedding;
use writ_memory::links::names_in;
use writ_memory::local::LocalModel;
use writ_memory::search::{BeyondWindow, MemorySearch, search_memories};
use writ_memory::window::find_window;
use writ_store::batch::{Batch, NewMemory, Op};
use writ_store::config::StoreConfig;
use writ_store::memory::{MemoryOp, MemoryTraits, NewVector, Secrets};
use writ_store::store::Store;
use writ_types::action::{MemoryKind, MemoryTrust, Remember};
use writ_types::id::MemoryId;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;
use writ_types::zone::TimeZone;

/// 2026-11-26, noon.
const NOW: i64 = 1_795_694_400_000;
const DAY: i64 = 86_400_000;

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
        runtime.block_on(speed::measure_speed(count.parse().expect("a number"), lines));
    } else {
        let model = value("--model").map(|folder| LocalModel::open(Path::new(folder)).expect("a model"));
        print!("{}", runtime.block_on(measure_recall(model.as_ref())));
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

/// Returns the table of the page: every ranking with and without a time; without a model, that by words alone.
async fn measure_recall(model: Option<&LocalModel>) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let (memories, mut cases) = dialogues();
    store_memories(&store, &memories).await;
    eprintln!("{} memories, {} questions", memories.len(), cases.len());
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
    let mut table =
        "| ranking | time | questions | recall@5 | recall@10 |\n| --- | --- | --- | ---: | ---: |\n"
            .to_owned();
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
            table += &recall_row(&format!("{ranking} | {time} | all"), &places, |_| true);
            table +=
                &recall_row(&format!("{ranking} | {time} | in other words"), &places, |case| !case.literal);
            table += &recall_row(&format!("{ranking} | {time} | about last week"), &places, |case| {
                case.window.is_some()
            });
        }
    }
    table
}

/// Returns the row with the share of questions of which the memory is among the first five, and the first ten.
fn recall_row(title: &str, places: &[(&Case, Option<usize>)], counts: impl Fn(&Case) -> bool) -> String {
    let places: Vec<Option<usize>> =
        places.iter().filter(|(case, _)| counts(case)).map(|(_, place)| *place).collect();
    let share = |most: usize| {
        let hits = places.iter().filter(|place| place.is_some_and(|place| place < most)).count();
        hits as f64 * 100.0 / places.len() as f64
    };
    format!("| {title} ({}) | {:.1} % | {:.1} % |\n", places.len(), share(5), share(10))
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

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../../docs/memory.md");

    /// Returns the first number of a row of the page, as a share.
    fn recall_of(ranking: &str, time: &str, questions: &str) -> f64 {
        let start = format!("| {ranking} | {time} | {questions} (");
        let row = PAGE.lines().find(|line| line.starts_with(&start)).expect("a row of the page");
        let share = row.split('|').nth(4).and_then(|cell| cell.trim().strip_suffix(" %"));
        share.expect("a share").parse().expect("a number")
    }

    /// The page has what the ranking by words finds now, with and without a time, and of each group the fused ranking finds at
    /// least as many as either of its parts. The figures of vectors need a model of a folder, and are measured by hand.
    #[test]
    fn the_page_has_the_figures_of_the_ranking_by_words() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let table = runtime.block_on(measure_recall(None));
        assert_eq!(table.lines().count(), 2 + 2 * 3, "{table}");
        for line in table.lines() {
            assert!(PAGE.lines().any(|other| other == line), "the page has another row than {line}");
        }
        for time in ["not named", "named"] {
            for questions in ["all", "in other words", "about last week"] {
                let [words, vectors, fused] =
                    ["words", "vectors", "fused"].map(|ranking| recall_of(ranking, time, questions));
                assert!(fused >= words.max(vectors), "{time}, {questions}: {words} {vectors} {fused}");
            }
        }
    }
}
