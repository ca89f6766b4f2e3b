//! Models within an engine: the experience with them over a restart, and the files of messages.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use writ_models::Models;
use writ_models::config::{ModelsConfig, ProviderKind, ProviderTable};
use writ_runtime::config::DRAIN_DEADLINE;
use writ_runtime::engine::{Engine, Join};
use writ_testbed::clock::Hand;
use writ_testkit::model_server::{ModelServer, ParsedRequest, Reply};
use writ_types::entry::Fact;
use writ_types::error::Exit;
use writ_types::taint::Taint;

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
