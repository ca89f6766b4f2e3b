//! The memory of an engine with a scripted embedding server: its vectors, its consolidation, and the owner's word.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use writ_memory::config::EmbedderKind;
use writ_models::Models;
use writ_models::config::{ModelRole, ModelsConfig, ProviderKind, ProviderTable};
use writ_runtime::engine::Join;
use writ_store::batch::{Batch, NewMemory, Op};
use writ_store::memory::{MemorySource, MemoryTraits};
use writ_testbed::embedding_server::{EmbeddingServer, TextAnswer};
use writ_testkit::model_server::{ModelServer, ParsedRequest, Reply};
use writ_types::action::{MemoryKind, MemoryTrust, Remember};
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::frame::ServerFrame;
use writ_types::id::MemoryId;
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

use crate::harness::{BEGIN, NoSecrets, OWNER, TestEngine};
use crate::jobs::{job, until_run};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest wait for what comes by itself: a test fails then.
const PATIENCE: Duration = Duration::from_secs(60);

/// An engine with an embedding server, and a chat model that follows its script.
struct EmbeddingEngine {
    handed: TestEngine,
    embedder: EmbeddingServer,
    chat: ModelServer,
    // The servers run on it; dropped last.
    _runtime: Runtime,
}

fn table(base_url: String) -> ProviderTable {
    ProviderTable { kind: Some(ProviderKind::OpenAi), base_url: Some(base_url), ..ProviderTable::default() }
}

impl EmbeddingEngine {
    fn start(
        script: impl FnMut(&str) -> TextAnswer + Send + 'static,
        chat: impl FnMut(&ParsedRequest) -> Reply + Send + 'static,
    ) -> Self {
        Self::start_with(EmbedderKind::Model, script, chat)
    }

    /// The same with another embedder than the server, which is there all the same.
    fn start_with(
        embedder_kind: EmbedderKind,
        script: impl FnMut(&str) -> TextAnswer + Send + 'static,
        chat: impl FnMut(&ParsedRequest) -> Reply + Send + 'static,
    ) -> Self {
        Self::start_as(embedder_kind, |server| table(server.base_url()), script, chat)
    }

    fn start_as(
        embedder_kind: EmbedderKind,
        table_of: impl FnOnce(&EmbeddingServer) -> ProviderTable,
        script: impl FnMut(&str) -> TextAnswer + Send + 'static,
        chat: impl FnMut(&ParsedRequest) -> Reply + Send + 'static,
    ) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let embedder = runtime.block_on(EmbeddingServer::start(script)).expect("serves");
        let chat = runtime.block_on(ModelServer::start(chat)).expect("serves");
        let mut config = ModelsConfig::default();
        config.models.default = Some("chat/scripted".to_owned());
        config.models.roles.insert(ModelRole::Embedding, "embed/words".to_owned());
        config.providers.insert("chat".to_owned(), table(chat.base_url()));
        config.providers.insert("embed".to_owned(), table_of(&embedder));
        let handed = TestEngine::with(
            |parts| {
                let models = Models::new(&config, Arc::new(NoSecrets), Arc::clone(&parts.egress));
                parts.models = Some(models.expect("models"));
                parts.config.memory.config.embedder = embedder_kind;
            },
            |_| |_: &ParsedRequest| Reply::text("It is not asked."),
        );
        Self { handed, embedder, chat, _runtime: runtime }
    }

    /// An engine whose embedding server is asked in Ollama's own form.
    fn start_plain(script: impl FnMut(&str) -> TextAnswer + Send + 'static) -> Self {
        Self::start_as(
            EmbedderKind::Model,
            |server| ProviderTable {
                kind: Some(ProviderKind::Ollama),
                base_url: Some(server.plain_url()),
                ..ProviderTable::default()
            },
            script,
            silent,
        )
    }

    /// Lets the job that makes vectors run once; returns how it ended.
    async fn embed(&self) -> String {
        self.handed.clock.go_on(MINUTE);
        until_run(&self.handed, "memory.embed", self.handed.clock.now()).await.last_result
    }

    /// The model's dimension, the number of vectors, and their use, of each space.
    async fn spaces(&self) -> Vec<(u64, u64, bool)> {
        let stats = self.handed.call("memory.stats", json!({})).await.expect("counts");
        let row = |row: &Value| {
            (
                row["dimension"].as_u64().expect("a number"),
                row["count"].as_u64().expect("a number"),
                row["serving"] == true,
            )
        };
        stats["vectors"].as_array().expect("a list").iter().map(row).collect()
    }
}

async fn add(handed: &TestEngine, text: &str) -> String {
    let added = handed.call("memory.add", json!({ "text": text })).await.expect("stored");
    added["id"].as_str().expect("an id").to_owned()
}

async fn search(handed: &TestEngine, query: &str) -> Value {
    handed.call("memory.search", json!({ "query": query })).await.expect("searches")
}

async fn found(handed: &TestEngine, query: &str) -> Vec<String> {
    let hits = search(handed, query).await;
    let text = |hit: &Value| hit["text"].as_str().expect("a text").to_owned();
    hits["hits"].as_array().expect("hits").iter().map(text).collect()
}

/// Sends a message of this trust in a session of its own, and waits for the end of its turn. Returns the trust in the reply.
async fn send_trusted(engine: &TestEngine, text: String, taint: Taint) -> Taint {
    let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
    engine.engine.receive(OWNER, joined.session, "one".to_owned(), text, taint).await.expect("stored");
    loop {
        if let ServerFrame::Message { exit, last: true, .. } =
            &joined.live.recv().await.expect("a frame").frame
        {
            assert_eq!(*exit, Exit::Done);
            break;
        }
    }
    match engine.facts("replied").last() {
        Some(Fact::Replied { label, .. }) => label.taint,
        other => panic!("no reply: {other:?}"),
    }
}

/// A memory takes over the trust of the content that its turn rests on, and a reply that a memory was recalled for is trusted no
/// more than that memory.
///
/// Rows: SIL-095
#[test]
fn a_memory_inherits_the_trust_of_its_source_and_hands_it_on() {
    let engine = TestEngine::new("", |_| {
        |request: &ParsedRequest| match request.last_user_text().strip_prefix("Note: ") {
            Some(text) if request.results().count() == 0 => {
                Reply::call("memory_store", json!({ "text": text }))
            }
            _ => Reply::text("Yes."),
        }
    });
    engine.runtime.block_on(async {
        for (animal, taint) in [("heron", Taint::Owner), ("otter", Taint::Auth), ("badger", Taint::External)]
        {
            let note = format!("Note: The {animal} sleeps below the bridge");
            assert_eq!(send_trusted(&engine, note, taint).await, taint, "{animal}");
            let hits = search(&engine, animal).await;
            assert_eq!(hits["hits"].as_array().map(Vec::len), Some(1), "{hits}");
            assert_eq!(hits["hits"][0]["taint"], json!(taint), "{hits}");
        }
        for (animal, taint) in [("heron", Taint::Owner), ("otter", Taint::Auth), ("badger", Taint::External)]
        {
            let question = format!("{animal}?");
            assert_eq!(send_trusted(&engine, question, Taint::Owner).await, taint, "{animal}");
        }
    });
    engine.end();
}

/// The database files in a folder and below it.
fn databases(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("lists").flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(databases(&entry.path()));
        } else if std::fs::read(entry.path()).is_ok_and(|bytes| bytes.starts_with(b"SQLite format 3\0")) {
            found.push(entry.path());
        }
    }
    found
}

/// The owner's search, the agent's search and the recall of a message are one search over one database, with vectors and without.
///
/// Rows: WIN-194
#[test]
fn one_database_is_searched_by_one_function_with_vectors_or_without() {
    for kind in [EmbedderKind::None, EmbedderKind::Model] {
        let engine = EmbeddingEngine::start_with(
            kind,
            |_| TextAnswer::Vector(64),
            |request: &ParsedRequest| match request.results().count() {
                0 => Reply::call("memory_search", json!({ "query": "kitten" })),
                _ => Reply::text("Found."),
            },
        );
        let handed = &engine.handed;
        handed.runtime.block_on(async {
            for text in ["kitten and cat", "The kitten sleeps", "A feline", "The fence is green"] {
                add(handed, text).await;
            }
            if kind == EmbedderKind::Model {
                assert_eq!(engine.embed().await, "ok");
            }
            let ranked = found(handed, "kitten").await;
            assert_eq!(ranked.len(), if kind == EmbedderKind::Model { 3 } else { 2 }, "{ranked:?}");
            let (session, exit, _) = handed.send(None, "one", "kitten").await;
            assert_eq!(exit, Exit::Done);
            let sent = engine.chat.recorded_requests();
            let messages = sent.last().expect("a request").body["messages"].as_array().expect("messages");
            let result = messages.iter().rfind(|message| message["role"] == "tool").expect("a result");
            let result = result["content"].as_str().expect("a text");
            let places: Vec<Option<usize>> = ranked.iter().map(|text| result.find(text)).collect();
            assert!(
                places.iter().all(Option::is_some) && places.is_sorted(),
                "the agent's search finds the same in the same order: {result}"
            );
            assert!(!result.contains("The fence is green"), "{result}");
            let context = handed.call("context.show", json!({ "session": session })).await.expect("shown");
            let recalled: Vec<&str> = context["recalled"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|one| one["begins"].as_str().expect("a text"))
                .collect();
            assert_eq!(recalled, ranked, "the recall of a message finds the same in the same order");
        });
        assert_eq!(databases(handed.folder()), [handed.folder().join("writ.db")]);
        let vectors = handed.runtime.block_on(engine.spaces());
        assert_eq!(vectors.is_empty(), kind == EmbedderKind::None, "{vectors:?}");
        engine.handed.end();
    }
}

fn silent(_: &ParsedRequest) -> Reply {
    Reply::text("Done.")
}

/// Texts that a server refuses, that it has no number for, and that are too long for its model, in one request with others: each
/// other one has its vector at once, and nothing is asked again.
///
/// Rows: WIN-203 (in part: a new memory gets its vector soon after; one that cannot be embedded is stored all the same)
#[test]
fn a_text_that_cannot_be_embedded_costs_no_other_its_vector_and_is_asked_for_once() {
    let script = |text: &str| match text {
        text if text.contains("poison") => TextAnswer::Status(400, "the input is invalid".to_owned()),
        text if text.contains("nan") => TextAnswer::NotANumber(32),
        text if text.len() > 2_000 => TextAnswer::Status(500, "input is too large to process".to_owned()),
        _ => TextAnswer::Vector(32),
    };
    let engine = EmbeddingEngine::start(script, silent);
    engine.handed.runtime.block_on(async {
        for n in 0..8 {
            add(&engine.handed, &format!("The drawer {n} holds a different thing each")).await;
        }
        add(&engine.handed, "poison is in the red bottle").await;
        add(&engine.handed, "her nan knits socks").await;
        add(&engine.handed, &format!("A long report {}", "word ".repeat(800))).await;
        assert_eq!(engine.embed().await, "ok");
        assert_eq!(engine.spaces().await, [(32, 9, true)], "all but two");
        let asked = engine.embedder.requests().len();
        assert_eq!(engine.embed().await, "ok");
        assert_eq!(engine.embedder.requests().len(), asked, "nothing is paid twice");
        assert_eq!(found(&engine.handed, "poison bottle").await[0], "poison is in the red bottle");
    });
    engine.handed.end();
}

/// Some servers take ten texts at once; the number is learnt.
#[test]
fn a_server_that_takes_few_texts_is_sent_few() {
    let engine = EmbeddingEngine::start(|_| TextAnswer::Vector(32), silent);
    engine.handed.runtime.block_on(async {
        engine.embedder.limit_texts(10);
        for part in 0..2 {
            // In one commit that calls for no run: stored one by one, some of them might have their vectors before the others come.
            let new = |n| {
                let text = format!("In box {part} there is the thing of number {n}");
                working(u128::from(100 * part + n), &text, Taint::Owner).1
            };
            engine.handed.store.commit(Batch::synced((0..24).map(new).collect())).await.expect("stored");
            let before = engine.embedder.requests().len();
            assert_eq!(engine.embed().await, "ok");
            assert_eq!(engine.spaces().await, [(32, 24 * (part + 1), true)]);
            let requests = engine.embedder.requests().split_off(before);
            let refused = requests.iter().filter(|texts| texts.len() > 10).count();
            assert_eq!(refused == 0, part == 1, "{refused} requests were refused in part {part}");
        }
    });
    engine.handed.end();
}

/// A model that changes its dimension: the old vectors serve until the new ones are there. One that changes to and fro costs one
/// request of texts a run, and comes to rest in the dimension that stays.
///
/// Rows: SIL-393 (in part: a changed memory has a new vector)
#[test]
fn a_model_that_changes_its_dimension_is_followed_and_not_paid_in_circles() {
    let dimension = Arc::new(AtomicUsize::new(16));
    let current = Arc::clone(&dimension);
    let engine = EmbeddingEngine::start(move |_| TextAnswer::Vector(current.load(Ordering::SeqCst)), silent);
    engine.handed.runtime.block_on(async {
        let cat = add(&engine.handed, "Tom has a cat").await;
        add(&engine.handed, "The fence is green").await;
        assert_eq!(engine.embed().await, "ok");
        assert_eq!(engine.spaces().await, [(16, 2, true)]);
        assert_eq!(found(&engine.handed, "kitten").await, ["Tom has a cat"], "no word is the same");
        engine
            .handed
            .call("memory.edit", json!({ "id": cat, "text": "Tom has a car" }))
            .await
            .expect("edited");
        assert_eq!(engine.embed().await, "ok");
        assert_eq!(found(&engine.handed, "automobile").await, ["Tom has a car"]);
        assert_eq!(found(&engine.handed, "kitten").await, Vec::<String>::new(), "the old vector is gone");
        dimension.store(24, Ordering::SeqCst);
        add(&engine.handed, "The door is blue").await;
        for _ in 0..3 {
            engine.embed().await;
        }
        assert_eq!(engine.spaces().await, [(24, 3, true)]);
        // To and fro, with something new each time.
        for n in 0..10 {
            dimension.store(if n % 2 == 0 { 16 } else { 24 }, Ordering::SeqCst);
            add(&engine.handed, &format!("The shelf {n} is full")).await;
            let before = engine.embedder.requests().len();
            engine.embed().await;
            let asked = engine.embedder.requests().len() - before;
            assert!(asked <= 3, "{asked} requests in run {n}");
        }
        dimension.store(16, Ordering::SeqCst);
        for _ in 0..4 {
            engine.embed().await;
        }
        assert_eq!(engine.spaces().await, [(16, 13, true)]);
        let before = engine.embedder.requests().len();
        engine.embed().await;
        assert_eq!(engine.embedder.requests().len(), before);
    });
    engine.handed.end();
}

/// The embedder is away: words find alone, and say so. A text without a vector is no embedder that is away.
#[test]
fn an_embedder_that_is_away_is_left_alone_and_a_single_bad_text_is_not_that() {
    let engine = EmbeddingEngine::start(|_| TextAnswer::Status(503, "busy".to_owned()), silent);
    engine.handed.runtime.block_on(async {
        add(&engine.handed, "Tom has a cat").await;
        assert!(engine.embed().await.starts_with("memory.embedder"), "{}", engine.embed().await);
        assert_eq!(found(&engine.handed, "cat").await, ["Tom has a cat"]);
        engine.embedder.set_script(|text| {
            if text.contains("nan") { TextAnswer::NotANumber(16) } else { TextAnswer::Vector(16) }
        });
        assert_eq!(engine.embed().await, "ok");
        let bad = search(&engine.handed, "nan").await;
        assert!(bad["note"].as_str().is_some_and(|note| note.contains("by words alone")), "{bad}");
        let next = search(&engine.handed, "kitten").await;
        assert_eq!((&next["hits"][0]["text"], &next["note"]), (&json!("Tom has a cat"), &Value::Null));
        engine.embedder.set_script(|_| TextAnswer::Status(503, "busy".to_owned()));
        assert_eq!(search(&engine.handed, "kitten").await["hits"], json!([]));
        engine.embedder.set_script(|_| TextAnswer::Vector(16));
        let before = engine.embedder.requests().len();
        assert_eq!(search(&engine.handed, "kitten").await["hits"], json!([]), "it is left alone for a while");
        assert_eq!(engine.embedder.requests().len(), before);
        engine.handed.clock.go_on(MINUTE);
        assert_eq!(found(&engine.handed, "kitten").await, ["Tom has a cat"]);
    });
    engine.handed.end();
}

/// Ollama is asked in its own form, and the dimension of a model is that of its answer; one that no vector can have stores nothing.
///
/// Rows: WIN-206
#[test]
fn an_ollama_server_is_asked_at_its_own_address_and_a_wrong_dimension_stores_nothing() {
    let engine = EmbeddingEngine::start_plain(|_| TextAnswer::Vector(4));
    let handed = &engine.handed;
    handed.runtime.block_on(async {
        handed
            .store
            .commit(Batch::synced(vec![working(1, "Tom has a cat", Taint::Owner).1]))
            .await
            .expect("stored");
        let wrong = engine.embed().await;
        assert!(wrong.starts_with("memory.embedder"), "{wrong}");
        assert_eq!(engine.spaces().await, []);
        assert_eq!(found(handed, "cat").await, ["Tom has a cat"], "by its words");
        engine.embedder.set_script(|_| TextAnswer::Vector(32));
        assert_eq!(engine.embed().await, "ok");
        let body = json!({ "model": "words", "input": ["Tom has a cat"], "truncate": true });
        assert_eq!(engine.embedder.last_body(), body);
        assert_eq!(engine.spaces().await, [(32, 1, true)]);
        assert_eq!(found(handed, "kitten").await, ["Tom has a cat"], "by its meaning");
    });
    engine.handed.end();
}

/// The ranking of a search: by words alone without an embedder, fused with that by meaning where there is one, cut at the limit; what
/// is syntax for the index is no error in either.
///
/// Rows: WIN-202
#[test]
fn a_search_ranks_by_words_or_by_words_and_meaning_and_takes_any_text() {
    let texts = ["The kitten sleeps in the garden house", "A feline", "kitten and cat", "The fence is green"];
    for (kind, best, all) in
        [(EmbedderKind::None, "kitten and cat", 2), (EmbedderKind::Model, "kitten and cat", 3)]
    {
        let engine = EmbeddingEngine::start_with(kind, |_| TextAnswer::Vector(64), silent);
        let handed = &engine.handed;
        handed.runtime.block_on(async {
            let ops = (1..).zip(texts).map(|(n, text)| working(n, text, Taint::Owner).1).collect();
            handed.store.commit(Batch::synced(ops)).await.expect("stored");
            if kind == EmbedderKind::Model {
                assert_eq!(engine.embed().await, "ok");
            }
            let ranked = found(handed, "kitten").await;
            assert_eq!((ranked[0].as_str(), ranked.len()), (best, all), "{ranked:?}");
            assert!(!ranked.contains(&"The fence is green".to_owned()), "{ranked:?}");
            let limited = handed
                .call("memory.search", json!({ "query": "kitten", "limit": 1 }))
                .await
                .expect("searches");
            assert_eq!(limited["hits"].as_array().map(Vec::len), Some(1));
            assert_eq!(limited["hits"][0]["text"], json!(ranked[0]));
            for syntax in ["\"kitten", "kitten*", "kitten -sleeps", "kitten AND (", "NEAR(kitten", "^kitten:"]
            {
                let ranked = found(handed, syntax).await;
                assert!(ranked.iter().any(|text| text.contains("kitten")), "{syntax}: {ranked:?}");
            }
        });
        engine.handed.end();
    }
}

/// A provider that asks for a wait gets none of the requests that would make it longer, neither of the job nor of a search, and
/// is asked again once it is over.
#[test]
fn a_provider_of_vectors_that_asks_for_a_wait_is_not_asked_before() {
    const RUN: Duration = Duration::from_secs(16);
    let engine = EmbeddingEngine::start(|_| TextAnswer::Vector(16), silent);
    let handed = &engine.handed;
    handed.runtime.block_on(async {
        // Not by a call, which would begin a run at once.
        let commit = |n, text| handed.store.commit(Batch::synced(vec![working(n, text, Taint::Owner).1]));
        commit(1, "Tom has a cat").await.expect("stored");
        assert_eq!(engine.embed().await, "ok");
        commit(2, "The door is green").await.expect("stored");
        engine.embedder.set_script(|_| TextAnswer::Wait(40));
        let run = async || {
            handed.clock.go_on(RUN);
            until_run(handed, "memory.embed", handed.clock.now()).await.last_result
        };
        let asked = || engine.embedder.requests().len();
        let before = asked();
        assert!(run().await.starts_with("memory.embedder"));
        assert_eq!(asked(), before + 1, "not even a plain word is tried after it");
        assert!(run().await.starts_with("memory.embedder"));
        // Waited for: a run that is late would be taken for the one after it.
        assert!(run().await.starts_with("memory.embedder"));
        engine.embedder.set_script(|_| TextAnswer::Vector(16));
        let searched = search(handed, "kitten").await;
        let note = searched["note"].as_str().expect("a note");
        assert!(note.contains("embed has asked for a wait of 8 more seconds"), "{note}");
        assert_eq!(asked(), before + 1, "for 32 of 40 seconds");
        assert_eq!(run().await, "ok");
        assert_eq!(engine.spaces().await, [(16, 2, true)]);
    });
    engine.handed.end();
}

/// A call of which the answer comes too late for its search is counted all the same.
#[test]
fn a_search_waits_a_little_and_the_call_is_counted_in_the_end() {
    let engine = EmbeddingEngine::start(|_| TextAnswer::Vector(16), silent);
    engine.handed.runtime.block_on(async {
        add(&engine.handed, "Tom has a cat").await;
        assert_eq!(engine.embed().await, "ok");
        let calls = || engine.handed.facts("model_called").len();
        let before = calls();
        engine.embedder.hold();
        assert_eq!(found(&engine.handed, "the cat").await, ["Tom has a cat"]);
        assert_eq!(calls(), before);
        engine.embedder.go_on();
        let counted = async {
            while calls() == before {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, counted).await.expect("the call is in the ledger");
    });
    engine.handed.end();
}

/// A message brings the memory that means the same in other words, and it is counted as used.
#[test]
fn a_message_recalls_by_meaning() {
    let engine = EmbeddingEngine::start(|_| TextAnswer::Vector(64), silent);
    engine.handed.runtime.block_on(async {
        let cat = add(&engine.handed, "Tom has a cat").await;
        assert_eq!(engine.embed().await, "ok");
        let (session, exit, _) = engine.handed.send(None, "one", "kitten").await;
        assert_eq!(exit, Exit::Done);
        let sent = format!("{:?}", engine.chat.recorded_requests());
        assert!(sent.contains("Tom has a cat"), "{sent}");
        let shown = engine.handed.call("memory.show", json!({ "id": cat })).await.expect("shown");
        assert_eq!(shown["uses"], 1);
        let context = engine.handed.call("context.show", json!({ "session": session })).await.expect("shown");
        let recalled = &context["recalled"][0];
        assert_eq!((&recalled["id"], &recalled["begins"]), (&json!(cat), &json!("Tom has a cat")));
        assert!(recalled["why"].as_str().is_some_and(|why| why.starts_with("meaning (")), "{recalled}");
    });
    engine.handed.end();
}

fn working(n: u128, text: &str, taint: Taint) -> (MemoryId, Op) {
    let id = MemoryId::from_parts(BEGIN, n);
    let item = Remember {
        text: text.to_owned(),
        memory_kind: MemoryKind::Fact,
        trust: MemoryTrust::Working,
        taint,
        secret: false,
        session: None,
    };
    let traits = MemoryTraits { uses: 9, source: MemorySource::Agent, ..MemoryTraits::default() };
    (id, Op::Remember(Box::new(NewMemory { id, item, at: BEGIN, traits })))
}

/// Without an embedder no text has a vector, no server is asked for one, and everything else is as it is with one.
///
/// Rows: WIN-205
#[test]
fn without_an_embedder_memories_are_found_by_their_words_and_no_server_is_asked() {
    let engine = EmbeddingEngine::start_with(EmbedderKind::None, |_| TextAnswer::Vector(32), silent);
    let handed = &engine.handed;
    handed.runtime.block_on(async {
        let cat = add(handed, "Tom has a cat").await;
        let door = add(handed, "The door is green").await;
        handed.clock.go_on(MINUTE);
        assert_eq!(found(handed, "cat").await, ["Tom has a cat"]);
        assert_eq!(found(handed, "kitten").await, Vec::<String>::new(), "no word is the same");
        handed.call("memory.edit", json!({ "id": cat, "text": "Tom has a dog" })).await.expect("edited");
        assert_eq!(found(handed, "cat").await, Vec::<String>::new());
        assert_eq!(found(handed, "dog").await, ["Tom has a dog"]);
        handed.call("memory.undo", json!({})).await.expect("undone");
        assert_eq!(found(handed, "cat").await, ["Tom has a cat"]);
        handed.clock.go_on(MINUTE);
        let (_, exit, _) = handed.send(None, "one", "Where is the cat?").await;
        assert_eq!(exit, Exit::Done);
        let sent = format!("{:?}", engine.chat.recorded_requests());
        assert!(sent.contains("Tom has a cat"), "{sent}");
        handed.call("memory.forget", json!({ "id": door })).await.expect("forgotten");
        assert_eq!(found(handed, "door").await, Vec::<String>::new());
        let stats = handed.call("memory.stats", json!({})).await.expect("counts");
        assert_eq!(stats["vectors"], json!([]), "{stats}");
    });
    assert_eq!(engine.embedder.requests(), Vec::<Vec<String>>::new());
    engine.handed.end();
}

/// What nobody has used for two months is put aside, what is newer stays, and what was changed has the vector of its new text.
///
/// Rows: SIL-393
#[test]
fn consolidation_prunes_what_is_stale_and_a_changed_memory_is_embedded_anew() {
    let engine = EmbeddingEngine::start(|_| TextAnswer::Vector(32), silent);
    let handed = &engine.handed;
    handed.runtime.block_on(async {
        let aged = |n, text: &str, at: Timestamp| {
            let (id, op) = working(n, text, Taint::Owner);
            let Op::Remember(mut new) = op else { panic!("another operation") };
            (new.at, new.traits.uses) = (at, 0);
            (id, Op::Remember(new))
        };
        let now = handed.clock.now();
        let (old, old_op) = aged(1, "the shed was painted", now.minus_duration(61 * DAY));
        let (recent, recent_op) = aged(2, "Tom has a cat", now.minus_duration(59 * DAY));
        handed.store.commit(Batch::synced(vec![old_op, recent_op])).await.expect("stored");
        assert_eq!(engine.embed().await, "ok");
        assert_eq!(found(handed, "kitten").await, ["Tom has a cat"], "no word is the same");
        handed.clock.go_on(30 * MINUTE);
        until_run(handed, "memory.consolidate", handed.clock.now()).await;
        let status = async |id: MemoryId| {
            let shown = handed.call("memory.show", json!({ "id": id })).await.expect("shown");
            shown["status"].as_str().expect("a status").to_owned()
        };
        assert_eq!((&*status(old).await, &*status(recent).await), ("archived", "active"));
        assert_eq!(found(handed, "shed painted").await, Vec::<String>::new());

        let edit = json!({ "id": recent, "text": "Tom has a car" });
        handed.call("memory.edit", edit).await.expect("edited");
        assert_eq!(engine.embed().await, "ok");
        assert!(engine.embedder.requests().concat().contains(&"Tom has a car".to_owned()));
        assert_eq!(found(handed, "automobile").await, ["Tom has a car"], "no word is the same");
        assert_eq!(found(handed, "kitten").await, Vec::<String>::new(), "the old vector is gone");
    });
    engine.handed.end();
}

/// An inferred preference is a card; without a yes it is in the request of no role, and then in that of the proxy, of the planner
/// and of the agent.
///
/// Rows: SIL-395
#[test]
fn a_confirmed_preference_is_a_default_of_proxy_and_planner() {
    const PREFERENCE: &str = "The owner prefers tea";
    let knows = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&knows);
    let handed = TestEngine::with_roles(&[(ModelRole::Proxy, "cheap"), (ModelRole::Planner, "deep")], |_| {
        move |request: &ParsedRequest| {
            let said = request.last_user_text().to_owned();
            if said.contains("I had tea again")
                || !request.model.contains("cheap") && request.results().next().is_some()
            {
                return match (request.model.as_str(), request.results().next()) {
                    ("cheap", _) => route("act"),
                    (_, None) => {
                        Reply::call("memory_store", json!({ "text": PREFERENCE, "kind": "preference" }))
                    }
                    (_, Some(_)) => Reply::text("Done."),
                };
            }
            let has = request.raw.to_string().contains(PREFERENCE);
            noted.lock().expect("whole").push((request.model.clone(), has));
            match request.model.as_str() {
                "cheap" => route("planner"),
                _ => Reply::text("I cannot plan that."),
            }
        }
    });
    handed.runtime.block_on(async {
        assert_eq!(handed.say(None, "I had tea again").await.0, Exit::Done);
        let pending = handed.call("memory.pending", json!({})).await.expect("listed");
        assert_eq!(pending["questions"][0]["kind"], "preference");
        let asked = async |role: &str, wanted: bool| {
            let asked = async {
                while !knows.lock().expect("whole").contains(&(role.to_owned(), wanted)) {
                    tokio::task::yield_now().await;
                }
            };
            let what = format!("{role} is asked with the preference: {wanted}");
            tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("never: {what}"));
        };
        handed.send(None, "two", "Plan the party.").await;
        asked("cheap", false).await;
        asked("deep", false).await;
        assert!(knows.lock().expect("whole").iter().all(|(_, has)| !has), "nobody has confirmed it");
        let id = pending["pending"][0]["id"].clone();
        handed.call("memory.confirm", json!({ "id": id, "confirm": true })).await.expect("confirmed");
        handed.send(None, "three", "Plan the journey.").await;
        asked("cheap", true).await;
        asked("deep", true).await;
    });
    handed.end();
}

/// A decision of the proxy.
fn route(way: &str) -> Reply {
    Reply::text(
        &json!({ "route": way, "reason": "so", "response": null, "context_profile": null }).to_string(),
    )
}

/// Rows: SIL-390 SIL-392
#[test]
fn consolidation_merges_asks_and_does_not_do_again_what_was_undone() {
    let handed = TestEngine::new("", |_| silent);
    handed.runtime.block_on(async {
        let (used, used_op) = working(1, "the owner's bicycle is red", Taint::Owner);
        let (read, read_op) = working(2, "a page says that the shop is closed", Taint::External);
        handed.store.commit(Batch::synced(vec![used_op, read_op])).await.expect("stored");
        add(&handed, "Anna lives in Rome").await;
        add(&handed, "Anna lives in  Rome.").await;
        // The first run was at the start, if there was one then: the next is half an hour later.
        handed.clock.go_on(29 * MINUTE);
        let late = handed.clock.now();
        until_run(&handed, "asks.expire", late).await;
        assert_ne!(job(&handed, "memory.consolidate").await.last_run, Some(late.to_string()));
        handed.clock.go_on(MINUTE);
        until_run(&handed, "memory.consolidate", handed.clock.now()).await;
        assert_eq!(found(&handed, "Anna").await.len(), 1);
        let pending = handed.call("memory.pending", json!({})).await.expect("listed");
        let asked: Vec<&Value> = pending["questions"].as_array().expect("a list").iter().collect();
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert_eq!((&asked[0]["kind"], &asked[0]["id"]), (&json!("promote"), &json!(used)));
        let trust = || async {
            let shown = handed.call("memory.show", json!({ "id": used })).await.expect("shown");
            shown["trust"].clone()
        };
        assert_eq!(trust().await, "working");
        let before = handed.facts("remembered").len();
        let answer = json!({ "id": used, "confirm": true });
        let confirmed = handed.call("memory.confirm", answer).await.expect("confirmed");
        assert_eq!((&confirmed["outcome"], trust().await), (&json!("confirmed"), json!("verified")));
        assert_eq!(handed.facts("remembered").len(), before + 1, "it is in the ledger");
        let refused = handed.call("memory.confirm", json!({ "id": read, "confirm": true })).await;
        assert!(refused.is_err(), "what others have written stays unverified");
        let shown = handed.call("memory.show", json!({ "id": read })).await.expect("shown");
        assert_eq!((&shown["trust"], &shown["taint"]), (&json!("working"), &json!("external")));
        // The merge is not the last change any more, so it is named.
        let stats = handed.call("memory.stats", json!({})).await.expect("counts");
        let batches: Vec<&str> = stats["changes"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|row| row["batch"].as_str())
            .collect();
        let merge = batches.iter().find(|batch| batch.starts_with("consolidation-")).expect("there");
        handed.call("memory.undo", json!({ "batch": merge })).await.expect("undone");
        assert_eq!(found(&handed, "Anna").await.len(), 2);
        assert_eq!(trust().await, "verified", "other changes stay");
        handed.clock.go_on(30 * MINUTE);
        until_run(&handed, "memory.consolidate", handed.clock.now()).await;
        assert_eq!(found(&handed, "Anna").await.len(), 2, "the owner's word stands");
        assert!(handed.call("memory.undo", json!({ "batch": merge })).await.is_err());
    });
    handed.end();
}

/// A no about one of two that contradict puts it aside; where nothing waits, the answer says so.
#[test]
fn a_no_puts_aside_what_contradicts() {
    let handed = TestEngine::new("", |_| silent);
    handed.runtime.block_on(async {
        let old = add(&handed, "The staging host is called heron").await;
        let new = add(&handed, "The staging host is called egret").await;
        let no = |id: &str| json!({ "id": id, "confirm": false });
        let answered = handed.call("memory.confirm", no(&new)).await.expect("answered");
        assert_eq!((&answered["outcome"], &answered["changes"]), (&json!("put_aside"), &json!(1)));
        assert_eq!(found(&handed, "staging host").await, ["The staging host is called heron"]);
        let refused = handed.call("memory.confirm", no(&old)).await.expect_err("nothing waits");
        assert!(refused.outside.contains("nothing about this memory waits"), "{refused:?}");
        assert_eq!(found(&handed, "staging host").await, ["The staging host is called heron"]);
        handed.call("memory.undo", json!({})).await.expect("undone");
        assert_eq!(found(&handed, "staging host").await.len(), 2);
    });
    handed.end();
}

/// Rows: SIL-395 (in part: an inferred preference is not used before the owner has confirmed it)
#[test]
fn a_preference_that_an_agent_infers_waits_for_the_owner() {
    let script = |request: &ParsedRequest| match request.results().next() {
        None => Reply::call("memory_store", json!({ "text": "The owner prefers tea", "kind": "preference" })),
        Some(_) => Reply::text("Done."),
    };
    let handed = TestEngine::new("", |_| script);
    handed.runtime.block_on(async {
        assert_eq!(handed.say(None, "I had tea again").await.0, Exit::Done);
        assert_eq!(found(&handed, "tea").await, Vec::<String>::new());
        let pending = handed.call("memory.pending", json!({})).await.expect("listed");
        assert_eq!(pending["questions"][0]["kind"], "preference");
        let id = pending["pending"][0]["id"].clone();
        handed.call("memory.confirm", json!({ "id": id, "confirm": true })).await.expect("confirmed");
        assert_eq!(found(&handed, "tea").await, ["The owner prefers tea"]);
        let pending = handed.call("memory.pending", json!({})).await.expect("listed");
        assert_eq!(pending, json!({ "pending": [], "questions": [] }));
    });
    handed.end();
}

/// A single correction is none, and a preference that was denied is not asked about again.
///
/// Rows: SIL-394
/// Rows: SIL-395 (in part: the card with its evidence; before its approval it is in no request, and then in each)
#[test]
fn a_correction_that_is_repeated_is_asked_about_once() {
    let handed = TestEngine::new("", |_| {
        |request: &ParsedRequest| {
            let knows = request.raw.to_string().contains("«use tabs not spaces»");
            Reply::text(if knows { "It is known." } else { "It is not known." })
        }
    });
    handed.runtime.block_on(async {
        let pending = || async { handed.call("memory.pending", json!({})).await.expect("listed") };
        let look = || async {
            handed.clock.go_on(30 * MINUTE);
            until_run(&handed, "memory.consolidate", handed.clock.now()).await;
        };
        handed.say(None, "No, use tabs, not spaces.").await;
        handed.say(None, "Answer briefly").await;
        look().await;
        assert_eq!(pending().await["questions"], json!([]), "once is no habit");
        handed.say(None, "I said: use tabs not spaces! And then go on.").await;
        handed.say(None, "Answer briefly").await;
        look().await;
        let waiting = pending().await;
        let [question] = waiting["questions"].as_array().expect("a list").as_slice() else {
            panic!("one card: {waiting}")
        };
        assert_eq!(question["kind"], "preference");
        let reason = question["reason"].as_str().expect("a reason");
        assert!(reason.starts_with("you said it 2 times, 2 of them to correct: "), "{reason}");
        assert_eq!(handed.say(None, "Hello").await.1, "It is not known.");
        let id = &question["id"];
        let shown = handed.call("memory.show", json!({ "id": id })).await.expect("shown");
        let traits = (&shown["source"], &shown["status"], &shown["kind"], &shown["trust"]);
        assert_eq!(traits, (&json!("observer"), &json!("pending"), &json!("preference"), &json!("working")));
        handed.call("memory.confirm", json!({ "id": id, "confirm": true })).await.expect("confirmed");
        assert_eq!(handed.say(None, "Hello").await.1, "It is known.");
        // The third choice; and a no is the end of it.
        handed.say(None, "Please answer briefly.").await;
        look().await;
        let waiting = pending().await;
        let text = waiting["questions"][0]["text"].as_str().expect("a text");
        assert_eq!(text, "The owner's words about how things are done: «answer briefly»");
        let no = json!({ "id": waiting["questions"][0]["id"], "confirm": false });
        handed.call("memory.confirm", no).await.expect("denied");
        handed.say(None, "Answer briefly!").await;
        look().await;
        assert_eq!(pending().await, json!({ "pending": [], "questions": [] }));
    });
    handed.end();
}
