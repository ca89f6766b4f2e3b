//! Conversations that their owner deletes: what is left of them, also where the engine ended in between; and copies of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use writ_memory::config::EmbedderKind;
use writ_models::config::{ModelsConfig, ProviderKind, ProviderTable};
use writ_models::{ModelRole, Models};
use writ_runtime::engine::Join;
use writ_runtime::profile::NamedAgent;
use writ_store::batch::{Batch, Op};
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::{SessionReads as _, UsageReads as _};
use writ_store::sessions::{DELETED_AT, ERASED_AT, ERASING_AT, SessionOp};
use writ_store::usage::{UsageKind, UsageTotals};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::error::Exit;
use writ_types::id::SessionId;
use writ_types::unit::Tokens;

use crate::harness::{NoSecrets, OWNER, TestEngine};

/// The interval of the job that erases.
const HOUR: Duration = Duration::from_secs(60 * 60);

fn answering(_: &ParsedRequest) -> Reply {
    Reply::text("A zebra.")
}

/// Says one thing in a new conversation; returns the session.
async fn begin(engine: &TestEngine, text: &str) -> SessionId {
    let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
    let (exit, said) = engine.send_in(&mut joined, "one", text).await;
    assert_eq!(exit, Exit::Done, "{said}");
    joined.session
}

async fn metadata(engine: &TestEngine, session: SessionId) -> Vec<String> {
    let row = engine.store.session(session).await.expect("reads").expect("stays");
    row.metadata.into_keys().collect()
}

/// Waits until a session is erased.
async fn until_erased(engine: &TestEngine, session: SessionId) {
    let erased = async {
        while !metadata(engine, session).await.contains(&ERASED_AT.to_owned()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), erased).await.expect("it is erased");
}

fn payloads_of(engine: &TestEngine, event: &str) -> String {
    let query = LedgerQuery { event: Some(event.to_owned()), limit: 100, ..LedgerQuery::default() };
    let rows = engine.store.blocking().ledger_search(&query).expect("reads");
    rows.iter().filter_map(|row| row.payload.as_ref()).map(Value::to_string).collect()
}

/// An engine that is killed after the first step of an erasure leaves payloads in the ledger: the job goes on with it, without
/// waiting for the thirty days, and one session that cannot be erased yet keeps no other.
#[test]
fn an_erasure_that_was_cut_short_is_gone_on_with() {
    let engine = TestEngine::new("", |_| answering);
    engine.runtime.block_on(async {
        let session = begin(&engine, "Tell me of the quagga").await;
        engine.call("sessions.delete", json!({ "session": session })).await.expect("deleted");
        let first = Op::Sessions(SessionOp::Erase { session, at: engine.clock.now() });
        engine.store.commit(Batch::synced(vec![first])).await.expect("the first step");
        assert!(payloads_of(&engine, "received").contains("quagga"), "the ledger still has it");
        let keys = metadata(&engine, session).await;
        assert!(keys.contains(&ERASING_AT.to_owned()) && !keys.contains(&ERASED_AT.to_owned()), "{keys:?}");
        for method in ["context.show", "sessions.history", "sessions.restore", "sessions.cassette"] {
            let refused = engine.call(method, json!({ "session": session })).await.expect_err(method);
            assert!(refused.outside.contains("was erased"), "{method}: {refused:?}");
        }
        engine.clock.go_on(HOUR);
        until_erased(&engine, session).await;
        assert!(!payloads_of(&engine, "received").contains("quagga"));
        assert!(!payloads_of(&engine, "replied").contains("zebra"));
    });
    engine.end();
}

/// The owner may erase at once what was begun, and no second time.
#[test]
fn an_owner_ends_an_erasure_that_has_begun() {
    let engine = TestEngine::new("", |_| answering);
    engine.runtime.block_on(async {
        let session = begin(&engine, "Tell me of the quagga").await;
        let early = engine.call("sessions.erase", json!({ "session": session })).await;
        assert!(early.expect_err("refused").outside.contains("not deleted"));
        engine.call("sessions.delete", json!({ "session": session })).await.expect("deleted");
        let first = Op::Sessions(SessionOp::Erase { session, at: engine.clock.now() });
        engine.store.commit(Batch::synced(vec![first])).await.expect("the first step");
        let done = engine.call("sessions.erase", json!({ "session": session })).await.expect("erased");
        assert!(done["entries"].as_u64() > Some(0) && done["left"] == 0, "{done}");
        assert_eq!(metadata(&engine, session).await, ["closed_at", DELETED_AT, ERASED_AT]);
        assert!(engine.call("sessions.erase", json!({ "session": session })).await.is_err());
    });
    engine.end();
}

/// A copy goes on from the summary that its model had, and has the pins of its owner.
#[test]
fn a_copy_begins_with_the_summary_and_the_pins() {
    let engine = TestEngine::new("", |_| answering);
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
        let session = joined.session;
        for n in 0..4 {
            engine.send_in(&mut joined, &format!("m{n}"), &format!("number {n}")).await;
        }
        let view = engine.call("context.show", json!({ "session": session })).await.expect("shown");
        let row_of = |text: &str| {
            let items = view["items"].as_array().expect("items");
            let item = items.iter().find(|item| item["begins"].as_str().expect("a text").contains(text));
            item.expect("it is there")["row"].clone()
        };
        for text in ["number 0", "number 3"] {
            let pin = json!({ "session": session, "row": row_of(text) });
            engine.call("context.pin", pin).await.expect("pinned");
        }
        engine.call("context.compact", json!({ "session": session })).await.expect("compacted");
        let copy = engine.call("sessions.fork", json!({ "session": session })).await.expect("copied");
        let view = engine.call("context.show", json!({ "session": copy["session"] })).await.expect("shown");
        assert_eq!(view["compactions"].as_array().map(Vec::len), Some(1), "{view}");
        assert_eq!(view["pins"].as_array().map(Vec::len), Some(2), "{view}");
        let items = view["items"].to_string();
        assert!(items.contains("pinned message") && items.contains("number 0"), "{items}");
    });
    engine.end();
}

/// What is pinned is never evicted: all of it together may take a quarter of the context, as long as it is.
#[test]
fn pinned_messages_are_measured_whole_and_together() {
    let engine = TestEngine::with(
        |parts| {
            let context = &mut parts.config.begun.agent_config.context;
            context.total_tokens = Tokens::new(20_000);
        },
        |_| answering,
    );
    engine.runtime.block_on(async {
        let mut joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
        let session = joined.session;
        // About three thousand tokens each: one is less than a quarter, two are more. As a list shows them they are short.
        for n in 0..2 {
            engine.send_in(&mut joined, &format!("m{n}"), &format!("{n} {}", "word ".repeat(2_400))).await;
        }
        let rows = engine.store.recent_after(session, 0, 10).await.expect("reads");
        let said: Vec<u64> = rows.iter().step_by(2).map(|row| row.n).collect();
        let pin = |row: u64| engine.call("context.pin", json!({ "session": session, "row": row }));
        pin(said[0]).await.expect("fits");
        let refused = pin(said[1]).await.expect_err("too much");
        assert!(refused.outside.contains("together they may take a quarter"), "{refused:?}");
    });
    engine.end();
}

/// The context of a session whose owner has chosen an agent is that of this agent: its model, its text.
#[test]
fn the_context_of_a_named_agents_session_is_its_own() {
    let engine = TestEngine::with(
        |parts| {
            parts.config.named = vec![NamedAgent {
                name: "scout".to_owned(),
                about: "Looks around.".to_owned(),
                instructions: "You look around and change nothing.".to_owned(),
                model: Some("test/other".to_owned()),
                tools: vec!["memory_search".to_owned()],
                folders: Vec::<PathBuf>::new(),
                rules: None,
            }];
        },
        |_| answering,
    );
    engine.runtime.block_on(async {
        let session = begin(&engine, "hello").await;
        let usual = engine.call("context.show", json!({ "session": session })).await.expect("shown");
        engine.call("sessions.agent", json!({ "session": session, "agent": "scout" })).await.expect("chosen");
        let own = engine.call("context.show", json!({ "session": session })).await.expect("shown");
        assert_eq!((&usual["model"], &own["model"]), (&json!("test/scripted"), &json!("test/other")));
        let tools = |view: &Value| -> Vec<String> {
            let items = view["items"].as_array().expect("items").iter();
            let names = items.filter_map(|item| item["source"].as_str()?.strip_prefix("tool "));
            names.map(str::to_owned).collect()
        };
        assert_eq!(tools(&own), ["memory_search"]);
        assert!(tools(&usual).len() > 1);
    });
    engine.end();
}

/// The first request of a conversation is small: what is sent before a word was said is paid for in every turn.
#[test]
fn the_first_request_has_at_most_16_kb() {
    let engine = TestEngine::new("", |_| answering);
    engine.runtime.block_on(async {
        begin(&engine, "hello").await;
    });
    let requests = engine.server.recorded_requests();
    let first = requests.first().expect("a request").body.to_string();
    assert!(first.len() <= 16_000, "{} bytes", first.len());
    engine.end();
}

/// Vectors are requested in a session of the engine's own: it is in no list, and what it spends is counted to its role.
#[test]
fn the_session_of_the_embedder_is_in_no_list_and_its_usage_has_a_role() {
    let engine = TestEngine::with(
        |parts| {
            let mut config = ModelsConfig::default();
            config.models.default = Some("away/chat".to_owned());
            config.models.roles = [(ModelRole::Embedding, "away/vectors".to_owned())].into();
            let table = ProviderTable {
                kind: Some(ProviderKind::OpenAi),
                base_url: Some("http://127.0.0.1:9/v1".to_owned()),
                ..ProviderTable::default()
            };
            config.providers.insert("away".to_owned(), table);
            let models = Models::new(&config, Arc::new(NoSecrets), Arc::clone(&parts.egress));
            parts.models = Some(models.expect("models"));
            parts.config.memory.config.embedder = EmbedderKind::Model;
        },
        |_| answering,
    );
    engine.runtime.block_on(async {
        let joined = engine.engine.join(OWNER, Join::default()).await.expect("joined");
        let added = json!({ "text": "The key is under the mat.", "kind": "fact" });
        engine.call("memory.add", added).await.expect("added");
        // The job looks every fifteen seconds.
        engine.clock.go_on(Duration::from_secs(15));
        let role_of = |totals: Vec<(String, UsageTotals)>| {
            totals
                .into_iter()
                .find(|(key, _)| key.ends_with(" embedding"))
                .map(|(_, totals)| totals.model_calls)
        };
        let counted = async {
            loop {
                let totals = engine.store.usage_totals(UsageKind::Role, "", "~").await.expect("reads");
                if let Some(calls) = role_of(totals) {
                    break calls;
                }
                tokio::task::yield_now().await;
            }
        };
        let counted = tokio::time::timeout(Duration::from_secs(20), counted).await;
        let jobs = engine.call("jobs.list", json!({})).await.expect("listed");
        let counted = counted.unwrap_or_else(|_| panic!("nothing is asked: {jobs}"));
        assert_eq!(counted, 1);
        let own = engine.store.internal_session().await.expect("reads").expect("the engine's own");
        let listed = engine.call("sessions.list", json!({})).await.expect("listed");
        let listed: Vec<&Value> = listed["sessions"].as_array().expect("a list").iter().collect();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(listed[0]["session"], json!(joined.session));
        assert_ne!(own.id, joined.session);
    });
    engine.end();
}
