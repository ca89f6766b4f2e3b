//! Models within an engine: the experience with them over a restart, and the files of messages.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use writ_models::Models;
use writ_models::config::{ModelsConfig, OwnPrice, ProviderKind, ProviderTable};
use writ_runtime::config::DRAIN_DEADLINE;
use writ_runtime::engine::{Engine, Join};
use writ_runtime::services::EngineParts;
use writ_testbed::clock::Hand;
use writ_testkit::model_server::{ModelServer, ParsedRequest, Reply};
use writ_types::action::Action;
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::taint::Taint;
use writ_types::unit::MicroUsd;

use super::harness::{BEGIN, Moved, NoSecrets, OWNER, TestEngine, parts, sandbox, store};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n....IEND\xaeB`\x82";

fn listed<'a>(list: &'a Value, model: &str) -> &'a Value {
    let models = list["models"].as_array().expect("models");
    models.iter().find(|row| row["model"] == model).expect("listed")
}

/// A model whose key is refused three times comes last, and still does after a restart; its fallback answers meanwhile.
///
/// Rows: SCL-020 (in part: the reply comes from the next)
#[test]
fn a_breaker_holds_over_a_restart() {
    let (dir, sandboxes) = (tempfile::tempdir().expect("temp dir"), [sandbox(), sandbox()]);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let script = |request: &ParsedRequest| {
            if request.model == "bad" { Reply::status(401) } else { Reply::text("good") }
        };
        let server = ModelServer::start(script).await.expect("serves");
        let mut config = ModelsConfig::default();
        config.models.default = Some("test/bad".to_owned());
        config.models.fallback = vec!["test/good".to_owned()];
        let table = ProviderTable {
            kind: Some(ProviderKind::OpenAi),
            base_url: Some(server.base_url()),
            ..ProviderTable::default()
        };
        config.providers.insert("test".to_owned(), table);
        let store = store(dir.path());
        let asked = |server: &ModelServer| -> Vec<String> {
            let models = server.recorded_requests().into_iter().map(|sent| sent.body["model"].to_string());
            models.collect()
        };
        for (run, sandbox) in sandboxes.into_iter().enumerate() {
            let clock = Arc::new(Moved(Arc::new(Hand::at(BEGIN))));
            let mut parts = parts(dir.path(), clock, &store, sandbox, "");
            let models = Models::new(&config, Arc::new(NoSecrets), Arc::clone(&parts.egress));
            parts.models = Some(models.expect("models"));
            let engine = Engine::start(parts).await.expect("starts");
            let list = engine.call(OWNER, None, "models.list", json!({})).await.expect("a list");
            let state = &listed(&list, "test/bad")["state"];
            assert_eq!(state["failures"], if run == 0 { 0 } else { 3 }, "{list}");
            assert_eq!(state["open_until"].is_null(), run == 0, "{list}");
            for turn in 0..3 {
                let mut joined = engine.join(OWNER, Join::default()).await.expect("joined");
                let id = format!("{run}-{turn}");
                engine
                    .receive(OWNER, joined.session, id, "hi".to_owned(), Taint::Owner)
                    .await
                    .expect("stored");
                loop {
                    let frame = joined.live.recv().await.expect("a frame").frame.clone();
                    if let writ_types::frame::ServerFrame::Message { text, last: true, .. } = frame {
                        assert_eq!(text, "good");
                        break;
                    }
                }
            }
            assert!(engine.drain(DRAIN_DEADLINE).await);
        }
        // Three times in vain; from then on it is not asked any more.
        let (bad, good) = ("\"bad\"", "\"good\"");
        assert_eq!(asked(&server), [bad, good, bad, good, bad, good, good, good, good]);
    });
}

/// Where money is limited, a model without a price is passed over for one that has one; without such a model the turn says what is missing.
#[test]
fn a_model_that_cannot_be_paid_is_passed_over() {
    for (price, said, exit) in
        [(Some(10), "good", Exit::Done), (None, "the price of this model", Exit::Budget)]
    {
        let shape = |models: &mut ModelsConfig| {
            models.models.default = Some("test/dear".to_owned());
            models.models.fallback = vec!["test/cheap".to_owned()];
            let own = price.map(|input| OwnPrice { input, output: 20, cache_read: None, cache_write: None });
            models.models.prices = own.map(|own| ("test/cheap".to_owned(), own)).into_iter().collect();
        };
        let limited = |parts: &mut EngineParts| {
            parts.config.budget.max_cost_per_day = Some(MicroUsd::new(1_000_000));
        };
        let engine = TestEngine::shaped(shape, limited, |_| |_: &ParsedRequest| Reply::text("good"));
        let (ended, text) = engine.runtime.block_on(engine.say(None, "hi"));
        assert!(ended == exit && text.contains(said), "{ended:?}: {text}");
        let asked: Vec<String> = engine
            .server
            .recorded_requests()
            .into_iter()
            .map(|sent| sent.body["model"].to_string())
            .collect();
        assert_eq!(asked, price.map(|_| "\"cheap\"".to_owned()).into_iter().collect::<Vec<_>>());
        engine.end();
    }
}

/// Rows: SIL-401
#[test]
fn an_image_reaches_the_model_with_every_request_of_its_session_and_of_no_other() {
    let bench = TestEngine::new("", |_| {
        |request: &ParsedRequest| {
            let files = request.files();
            assert!(files.iter().all(|file| file.content == PNG && file.media == "image/png"));
            Reply::text(&format!("{} files", files.len()))
        }
    });
    bench.runtime.block_on(async {
        let mut joined = bench.engine.join(OWNER, Join::default()).await.expect("joined");
        let file = |content: &[u8]| {
            json!({ "session": joined.session, "name": "a.png", "content": STANDARD.encode(content) })
        };
        let stored = bench.call("files.add", file(PNG)).await.expect("stored");
        let line = stored["line"].as_str().expect("a line").to_owned();
        for (wrong, why) in [(b"MZ\x90 no image".as_slice(), "no PNG"), (&PNG[..10], "cut"), (b"", "empty")] {
            let refused = bench.call("files.add", file(wrong)).await.expect_err("refused");
            assert_eq!((refused.exit, refused.code.as_str()), (Exit::Usage, "file.refused"));
            assert!(refused.outside.contains(why), "{}", refused.outside);
        }
        let (exit, text) = bench.send_in(&mut joined, "one", &format!("look\n{line}")).await;
        assert_eq!((exit, text.as_str()), (Exit::Done, "1 files"));
        let (_, text) = bench.send_in(&mut joined, "two", "and now?").await;
        assert_eq!(text, "1 files", "it is part of the conversation");
        let mut other = bench.engine.join(OWNER, Join::default()).await.expect("joined");
        let (_, text) = bench.send_in(&mut other, "three", &format!("look\n{line}")).await;
        assert_eq!(text, "0 files", "a line of another session names nothing");
    });
    // An image may hold anybody's words.
    let taints = bench.facts("received").into_iter().map(|fact| {
        let Fact::Received { record, .. } = fact else { panic!("received") };
        record.taint
    });
    assert_eq!(taints.collect::<Vec<_>>(), [Taint::External, Taint::Owner, Taint::External]);
    // The ledger has the digest of the file, and not its bytes.
    let facts = format!("{:?}", bench.facts("received"));
    assert!(facts.contains("attached file: a.png") && !facts.contains(&STANDARD.encode(PNG)));
    bench.end();
}

/// Two calls in one answer are made, and both results go back under the ids of their calls; a call with arguments that are no JSON, and one
/// of no tool, are errors that the model reads, and nothing is performed.
///
/// Rows: WIN-078 SCL-202
#[test]
fn calls_go_over_chat_completions_in_both_directions_and_wrong_ones_are_read_as_errors() {
    let engine = TestEngine::new("", |_| {
        |request: &ParsedRequest| match request.results().count() {
            0 => Reply::call("memory_store", json!({ "text": "The heron is grey." }))
                .and_call("memory_search", json!({ "query": "zebra" })),
            2 => Reply::default().and_raw_call("memory_store", "{\"text\": "),
            3 => Reply::call("launch_missiles", json!({ "at": "dawn" })),
            _ => Reply::text("Done."),
        }
    });
    let (exit, said) = engine.runtime.block_on(engine.say(None, "remember it"));
    assert_eq!((exit, said.as_str()), (Exit::Done, "Done."));
    let sent = engine.server.recorded_requests();
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|request| request.path.ends_with("/v1/chat/completions")));
    let tools = sent[0].body["tools"].as_array().expect("tools");
    let offered: Vec<&str> = tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
    assert!(offered.len() > 2 && tools.iter().all(|tool| tool["type"] == "function"), "{tools:?}");
    let messages = sent[3].body["messages"].as_array().expect("messages");
    let calls: Vec<&Value> = messages
        .iter()
        .filter_map(|one| one["tool_calls"].as_array())
        .flatten()
        .map(|call| &call["id"])
        .collect();
    let results: Vec<&Value> = messages.iter().filter(|one| one["role"] == "tool").collect();
    assert_eq!(
        calls,
        results.iter().map(|one| &one["tool_call_id"]).collect::<Vec<_>>(),
        "each has its result"
    );
    let text = |n: usize| results[n]["content"].to_string();
    assert!(
        text(0).contains("remembered as") && text(2).contains("must be a JSON object"),
        "{} {}",
        text(0),
        text(2)
    );
    let unknown = text(3);
    assert!(unknown.contains("There is no tool 'launch_missiles'"), "{unknown}");
    assert!(offered.iter().all(|name| unknown.contains(name)), "{unknown}");
    let performed = engine
        .facts("intent")
        .into_iter()
        .filter(|fact| !matches!(fact, Fact::Intent { action: Action::ModelCall(_), .. }));
    assert_eq!(performed.count(), 2, "the two good calls");
    engine.end();
}
