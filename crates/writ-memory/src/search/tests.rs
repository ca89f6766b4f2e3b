//! Searches of a real store: what may not be read takes no place of what may.

use ed25519_dalek::SigningKey;
use writ_store::batch::{Batch, NewMemory, Op};
use writ_store::config::StoreConfig;
use writ_store::memory::{MemoryOp, MemoryStatus, MemoryTraits, NewVector};
use writ_store::store::Store;
use writ_types::action::{MemoryKind, MemoryTrust, Remember};
use writ_types::id::MemoryId;
use writ_types::taint::Taint;

use super::*;
use crate::codes::{CodeIndex, code_of};
use crate::links::walk_names;

const NOW: Timestamp = Timestamp::from_millis(1_795_694_400_000);

struct Home {
    store: Store,
    _folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = StoreConfig::new(folder.path().join("writ.db"));
        let store = Store::open(&config, Arc::new(SigningKey::from_bytes(&[7; 32]))).expect("opens");
        Self { store, _folder: folder }
    }

    async fn commit(&self, ops: Vec<Op>) {
        for part in ops.chunks(500) {
            self.store.commit(Batch::relaxed(part.to_vec())).await.expect("commits");
        }
    }

    async fn found(&self, search: &MemorySearch<'_>) -> Vec<(String, Vec<String>)> {
        let hits = search_memories(&self.store, search).await.expect("searches");
        let reasons = |hit: &RankedMemory| hit.reasons.iter().map(ToString::to_string).collect();
        hits.iter().map(|hit| (hit.memory.item.text.clone(), reasons(hit))).collect()
    }
}

fn new(n: u128, text: &str) -> NewMemory {
    let item = Remember {
        text: text.to_owned(),
        memory_kind: MemoryKind::Fact,
        trust: MemoryTrust::Working,
        taint: Taint::Owner,
        secret: false,
        session: None,
    };
    let traits = MemoryTraits { entities: names_in(text), ..MemoryTraits::default() };
    NewMemory { id: id(n), item, at: NOW, traits }
}

fn id(n: u128) -> MemoryId {
    MemoryId::from_parts(NOW, n)
}

fn remember(memory: NewMemory) -> Op {
    Op::Remember(Box::new(memory))
}

fn search(text: &str) -> MemorySearch<'_> {
    MemorySearch {
        text,
        meaning: None,
        window: None,
        beyond: BeyondWindow::Found,
        session: None,
        secrets: Secrets::Kept,
        limit: 3,
        now: NOW,
    }
}

/// Vectors of eight dimensions, of which the first says how near they are.
fn near(share: f32) -> Embedding {
    Embedding::from_numbers(vec![share, 1.0 - share, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]).expect("a vector")
}

/// More than two thousand memories fit better, but are archived, wait, are secret, or belong to another session.
#[tokio::test]
async fn what_may_not_be_read_takes_no_place() {
    let home = Home::new();
    let other = SessionId::from_parts(NOW, 9);
    let mut ops =
        vec![remember(new(1, "A heron stands somewhere in the reeds by the long river of the north"))];
    for n in 2..=2_401 {
        let mut memory = new(n, "heron heron");
        match n % 4 {
            0 => memory.traits.status = MemoryStatus::Archived,
            1 => memory.traits.status = MemoryStatus::Pending,
            2 => memory.item.secret = true,
            _ => memory.item.session = Some(other),
        }
        ops.push(remember(memory));
    }
    home.commit(ops).await;
    let texts =
        |found: Vec<(String, Vec<String>)>| found.into_iter().map(|(text, _)| text).collect::<Vec<_>>();
    let readable = ["A heron stands somewhere in the reeds by the long river of the north"];
    assert_eq!(texts(home.found(&search("heron")).await), readable);
    // By meaning alone; those of others are nearer.
    let mut index = CodeIndex::new(8);
    let opened = MemoryOp::OpenSpace { model: "m".to_owned(), dimension: 8 };
    let mut ops = vec![Op::Memory(opened)];
    for row in 1..=2_401 {
        let vector = near(if row == 1 { 0.6 } else { 0.9 });
        index.put(row, &code_of(&vector));
        let numbers = vector.numbers().to_vec();
        let vectors = vec![NewVector { row, edits: 0, code: code_of(&vector), numbers }];
        ops.push(Op::Memory(MemoryOp::PutVectors { space: 1, vectors, done_to: row, skipped: Vec::new() }));
    }
    home.commit(ops).await;
    let (index, query) = (Arc::new(SharedIndex::new(1, index)), near(1.0));
    let by_meaning = MemorySearch { meaning: Some((&index, &query)), ..search("") };
    assert_eq!(texts(home.found(&by_meaning).await), readable);
    let own = MemorySearch { session: Some(other), ..by_meaning };
    assert_eq!(texts(home.found(&own).await)[0], "heron heron", "the session itself reads its own");
}

/// Rows: SIL-387
#[tokio::test]
async fn names_are_walked_and_raise_what_is_about_them() {
    let home = Home::new();
    home.commit(vec![
        remember(new(1, "Anna lives with Boris")),
        remember(new(2, "Boris is a friend of Carla")),
        remember(new(3, "Carla knows Dora")),
        remember(new(4, "Edgar plays the cello")),
    ])
    .await;
    let anna = ["Anna".to_owned()];
    let walk = |depth, most| walk_names(&home.store, &anna, depth, most);
    let names = |reached: Vec<crate::links::ReachedName>| {
        reached.into_iter().map(|reached| (reached.name, reached.depth)).collect::<Vec<_>>()
    };
    let at = |name: &str, depth| (name.to_owned(), depth);
    let reached = names(walk(2, 100).await.expect("reads"));
    assert_eq!(reached, [at("anna", 0), at("boris", 1), at("carla", 2)]);
    assert_eq!(names(walk(9, 2).await.expect("reads")).len(), 2, "bounded");
    let found = home.found(&search("Who is Carla?")).await;
    let about: Vec<(&str, bool)> =
        found.iter().map(|(text, why)| (text.as_str(), why.contains(&"about carla".to_owned()))).collect();
    assert_eq!(about, [("Boris is a friend of Carla", true), ("Carla knows Dora", true)]);
}

/// Rows: SIL-388
#[tokio::test]
async fn causes_are_followed_in_their_order_and_a_circle_ends() {
    let home = Home::new();
    let caused = |n, text: &str, causes: &[u128]| {
        let mut memory = new(n, text);
        memory.traits.causes = causes.iter().map(|cause| id(*cause)).collect();
        remember(memory)
    };
    // The rain follows from the flood again: the store permits it.
    home.commit(vec![
        caused(1, "it rained for days", &[3]),
        caused(2, "the river rose", &[1]),
        caused(3, "the cellar was flooded", &[2]),
        caused(4, "a piano was sold", &[3]),
        caused(5, "nothing follows", &[99]),
    ])
    .await;
    let chain = |n: u128, most| {
        let store = &home.store;
        async move {
            let memory = store.memory(id(n)).await.expect("reads").expect("there");
            let causes = causes_of(store, &memory, most).await.expect("reads");
            causes.into_iter().map(|cause| cause.item.text).collect::<Vec<_>>()
        }
    };
    assert_eq!(chain(4, 10).await, ["the cellar was flooded", "the river rose", "it rained for days"]);
    assert_eq!(chain(3, 10).await, ["the river rose", "it rained for days"], "it ends where it began");
    assert_eq!(chain(4, 1).await, ["the cellar was flooded"]);
    assert_eq!(chain(5, 10).await, Vec::<String>::new(), "a cause that is gone");
    let found = home.found(&MemorySearch { limit: 10, ..search("piano") }).await;
    let cellar = found.iter().find(|(text, _)| text.contains("cellar")).expect("its cause is found too");
    assert_eq!(cellar.1, [format!("cause of {}", id(4))]);
}

/// Rows: SIL-386
#[tokio::test]
async fn a_window_finds_what_is_of_its_time_alone() {
    let home = Home::new();
    let day = |days: i64| Timestamp::from_millis(NOW.as_millis() - days * 86_400_000);
    let dated = |n, days, text: &str| remember(NewMemory { at: day(days), ..new(n, text) });
    // More of other times than one ranking has places.
    let mut ops: Vec<Op> = (10..400).map(|n| dated(n, 200, "heron heron")).collect();
    ops.push(dated(1, 8, "a heron was seen by the pond"));
    ops.push(dated(2, 1, "the pond froze"));
    home.commit(ops).await;
    let window = TimeWindow { words: "last week".to_owned(), start: day(10), end: day(5) };
    let within = MemorySearch { window: Some(&window), beyond: BeyondWindow::LeftOut, ..search("heron") };
    let seen = "a heron was seen by the pond".to_owned();
    assert_eq!(
        home.found(&within).await,
        [(seen.clone(), vec!["words (1.)".to_owned(), "of last week".to_owned()])]
    );
    let all = MemorySearch { text: "", ..within };
    assert_eq!(home.found(&all).await, [(seen, vec!["of last week".to_owned()])]);
}
