//! The guard of what is said to the agent: a credential is stored, logged and sent nowhere, whatever way it came.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::super::engine::Link;
use super::super::turns::calls;
use super::super::{code, text};
use super::Web;

/// A key of the published format, made up.
const KEY: &str = "sk-ant-api03-Q1w2E3r4T5y6U7i8O9p0A1s2D3f4G5h6J7k8L9z0";

/// The files of the home in which a text stands.
fn holding(web: &Web, text: &str) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![web.bench.home.root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("reads") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() && !path.starts_with(web.bench.home.root().join("keys")) {
                let bytes = std::fs::read(&path).expect("reads");
                if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                    found.push(path);
                }
            }
        }
    }
    found
}

fn entries(web: &Web, event: &str) -> Vec<Value> {
    web.bench.events(event).into_iter().map(|row| row["payload"].clone()).collect()
}

/// Rows: WIN-227 WIN-228
#[test]
fn a_message_that_is_a_credential_goes_nowhere_on_any_way_in() {
    let web = Web::new();
    let mut socket = web.own_socket("/ws");
    let session = socket.join(None, 0);
    let path = format!("/api/v1/sessions/{session}/messages");
    let told = |code: &Value, hint: &Value| {
        assert_eq!(code, "message.credential");
        let hint = hint.as_str().expect("a hint");
        assert!(hint.contains("writ secrets set NAME") && hint.contains("/secrets/NAME"), "{hint}");
    };
    socket.say(&json!({ "type": "message", "text": KEY, "client_id": "page" }));
    let refused = socket.until("error");
    told(&refused["code"], &refused["hint"]);
    assert!(!refused.to_string().contains("Q1w2E3"), "{refused}");
    let refused = web.api("POST", &path, &json!({ "text": format!("  {KEY}\n"), "client_id": "api" }));
    assert_eq!(refused.status, 403);
    told(&refused.json()["error"]["code"], &refused.json()["error"]["hint"]);
    let messages = json!([{ "role": "user", "content": KEY }]);
    let refused = web.api("POST", "/v1/chat/completions", &json!({ "model": "writ", "messages": messages }));
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "message.credential");
    let mut link = Link::open(&web.bench.home).expect("connects");
    link.join(None, None).expect("joined");
    link.say(KEY, "control").expect("sent");
    assert_eq!(link.refusal().expect("refused").0, "message.credential");
    assert_eq!(entries(&web, "received"), Vec::<Value>::new());
    let gated = entries(&web, "gated");
    assert_eq!(gated.len(), 4, "each left an entry: {gated:?}");
    for entry in &gated {
        let expected = "the message was mostly anthropic-key: it was not stored";
        assert_eq!((&entry["verdict"], &entry["reason"]), (&json!("block"), &json!(expected)));
    }
    assert_eq!(web.bench.requests(), Vec::<String>::new(), "no model was asked");
    assert_eq!(holding(&web, KEY), Vec::<PathBuf>::new());
}

/// Rows: WIN-229
#[test]
fn a_credential_in_a_longer_message_is_masked_and_the_message_goes_on() {
    let web = Web::new();
    let mut socket = web.own_socket("/ws");
    let session = socket.join(None, 0);
    let around = "Please find out why the service does not take this any more, since last week: ";
    socket.say(&json!({ "type": "message", "text": format!("{around}{KEY}"), "client_id": "one" }));
    let status = socket.until("status");
    assert!(status["text"].as_str().expect("a text").contains("anthropic-key"), "{status}");
    socket.until("message");
    let masked = format!("{around}[masked:anthropic-key]");
    assert!(web.bench.requests().last().expect("one").contains(&masked));
    let plain = "  unchanged: \u{e4} \"src/a.rs\"\tand task-0123456789abcdef0123456789abcdef ";
    let sent = web.api("POST", &format!("/api/v1/sessions/{session}/messages"), &json!({ "text": plain }));
    assert_eq!(sent.status, 202);
    socket.until("message");
    let texts: Vec<Value> = entries(&web, "received").iter().map(|entry| entry["text"].clone()).collect();
    assert_eq!(texts, [json!(plain), json!(masked)], "the newest first; without a credential, to the byte");
    assert_eq!(holding(&web, KEY), Vec::<PathBuf>::new());
}

/// Rows: SIL-342
#[test]
fn needs_userns_a_secret_that_is_stored_while_the_engine_runs_counts_from_then_on() {
    let value = "a-late-secret-0815-4711";
    let list = vec![
        ("shell_exec", json!({ "argv": ["echo", "a-late-secret", "b-later-secret"] })),
        (
            "shell_exec",
            json!({ "argv": ["sh", "-c", "echo a-late-secret-08''15-4711; echo b-later-secret-08''15"] }),
        ),
    ];
    let web = Web::with(calls(list, "Done."), &[]);
    let bearer = web.bearer();
    assert_eq!(web.ask("POST", "/secrets/late", &[], value).status, 401, "not by anybody");
    let stored = web.ask("POST", "/secrets/late", &[("Authorization", &bearer)], value);
    assert_eq!((stored.status, stored.body.as_str()), (204, ""), "never echoed");
    let set = web.bench.home.run_with(&["secrets", "set", "later"], b"b-later-secret-0815");
    assert_eq!(code(&set), 0, "{}", text(&set));
    let mut socket = web.own_socket("/ws");
    socket.join(None, 0);
    socket.say(&json!({ "type": "message", "text": "go on", "client_id": "one" }));
    socket.until("message");
    let request = web.bench.requests().pop().expect("one");
    assert!(request.contains("[masked:secret:late]\\n[masked:secret:later]"), "{request}");
    assert!(!request.contains(value), "{request}");
    let overlay = web.bench.home.root().join("data/overlays");
    let elsewhere = |path: &PathBuf| !path.starts_with(&overlay);
    // Four digits alone stand in a database of digests and times by chance.
    let found: Vec<PathBuf> = holding(&web, "secret-0815").into_iter().filter(elsewhere).collect();
    assert_eq!(found, Vec::<PathBuf>::new(), "in no table, log or frame");
}
