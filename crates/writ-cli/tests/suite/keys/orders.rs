//! Standing orders: unattended turns with what their owner has signed for, and no more.

use writ_testkit::model_server::{ParsedRequest, Reply};

use super::*;
use crate::engine::{runs, unique_word};
use crate::interrupted::until_runs;
use crate::turns::{Bench, calls};

/// Signs an order with these capabilities; what it prints.
fn issue(bench: &Bench, more: Value) -> Output {
    let mut document = json!({
        "name": "nightly", "expires": soon(3_600), "max_turns": 2, "max_tokens": 100_000,
        "capabilities": { "model_call": {}, "say": {}, "recall": {} },
    });
    document.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let file = bench.home.dir.path().join("order.json");
    std::fs::write(&file, document.to_string()).expect("written");
    bench.home.run(&["keys", "order", "issue", file.to_str().expect("text"), "--yes", "--json"])
}

fn issued(bench: &Bench, more: Value) -> String {
    done(&issue(bench, more))["order"].as_str().expect("an id").to_owned()
}

fn chat(bench: &Bench, order: &str, text: &str) -> Output {
    bench.home.run(&["chat", "-m", text, "--order", order])
}

/// A turn under an order is the harness's, with the kinds that it names, as often as it says; with one more kind, that is
/// done as well.
///
/// Rows: SF-495
#[test]
fn needs_userns_a_turn_under_an_order_has_what_it_names_and_as_many_turns() {
    let script = calls(
        vec![
            ("shell_exec", json!({"argv": ["touch", "made.txt"]})),
            ("memory_store", json!({"text": "A fact."})),
            ("file_read", json!({"path": "."})),
        ],
        "Done.",
    );
    let bench = Bench::new("openai", script);
    let read = json!({ "capabilities": { "model_call": {}, "say": {}, "recall": {}, "read_file": {} } });
    let order = issued(&bench, read);
    let first = chat(&bench, &order, "look around");
    assert_eq!(code(&first), 0, "{}", text(&first));
    let denied = entries(&bench.home, "denied").concat();
    for kind in ["exec", "remember"] {
        assert!(denied.contains(&format!("does not grant '{kind}'")), "{kind}: {denied}");
    }
    let received = entries(&bench.home, "received").concat();
    assert!(received.contains(&format!("harness:{order}")), "{received}");
    // The newest action of a kind, as it has ended.
    let end = |kind: &str| {
        let intents = bench.events("intent");
        let intent = intents.iter().find(|row| row["payload"]["action"]["kind"] == kind)?;
        let outcomes = bench.events("outcome");
        let end = outcomes.iter().find(|row| row["payload"]["attempt"] == intent["payload"]["attempt"])?;
        end["payload"]["outcome"].as_str().map(str::to_owned)
    };
    assert_eq!((end("read_file").as_deref(), end("exec").as_deref()), (Some("done"), None));
    let refusals = || {
        let denied = entries(&bench.home, "denied").concat();
        ["exec", "remember"].map(|kind| denied.matches(&format!("does not grant '{kind}'")).count())
    };
    let [exec, remember] = refusals();
    let wider =
        json!({ "capabilities": { "model_call": {}, "say": {}, "recall": {}, "read_file": {}, "exec": {} } });
    let wider = chat(&bench, &issued(&bench, wider), "look around");
    assert_eq!(code(&wider), 0, "{}", text(&wider));
    assert_eq!(end("exec").as_deref(), Some("done"), "with the kind that was added");
    let [exec_now, remember_now] = refusals();
    assert!(exec_now == exec && remember_now > remember, "{exec_now} {remember_now}");
    // The owner's own conversations are others, and have everything.
    let own = bench.chat("look around", &["--new"]);
    assert_eq!(code(&own), 5, "{}", text(&own));
    assert_eq!(bench.count("remembered"), 1);
    let second = chat(&bench, &order, "again");
    assert_eq!(code(&second), 0, "{}", text(&second));
    assert!(refused(&chat(&bench, &order, "and again")).contains("all its 2 turns"));
    let listed = bench.home.json(&["keys", "order", "list"])["orders"].as_array().expect("a list").clone();
    let listed = listed.iter().find(|row| row["order"] == json!(order)).expect("it is listed");
    assert_eq!((&listed["turns"], &listed["state"]), (&json!(2), &json!("in force")));
    // Closing its conversation does not begin a new count.
    ended(&bench.home);
    assert!(refused(&chat(&bench, &order, "after a restart")).contains("all its 2 turns"));
    let none = chat(&bench, "01ARZ3NDEKTSV4RRFFQ69G5FAV", "hello");
    assert_eq!(code(&none), 2, "{}", text(&none));
}

/// Threat 5, as far as orders: revoked while it runs, it is stopped, and nothing begins under it any more.
#[test]
fn needs_userns_a_revoked_order_ends_what_runs_and_what_comes() {
    let word = unique_word();
    let bench = Bench::new("openai", move |request: &ParsedRequest| {
        let last = request.messages.last();
        let asked = last.is_some_and(|message| message.text.contains("sleep") && message.results.is_empty());
        if asked {
            Reply::call("shell_exec", json!({ "argv": ["sleep", word] }))
        } else {
            Reply::text("Here.")
        }
    });
    let exec =
        json!({ "max_turns": 9, "capabilities": { "model_call": {}, "say": {}, "recall": {}, "exec": {} } });
    let order = issued(&bench, exec.clone());
    let twin = issued(&bench, exec);
    ended(&bench.home);
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.call("orders.open", json!({ "order": order })).expect("opened")["session"].clone();
    let session = serde_json::from_value(session).expect("an id");
    link.join(Some(session), None).expect("joined");
    link.say("please sleep", "one").expect("sent");
    until_runs(word);
    let revoked = bench.home.json(&["keys", "order", "revoke", &order, "--reason", "enough"]);
    assert_eq!((&revoked["role"], revoked["stopped"].as_array().map(Vec::len)), (&json!("order"), Some(1)));
    let stopped = link.answer().expect("answered");
    assert_eq!(stopped.exit, writ_types::error::Exit::Interrupted, "{stopped:?}");
    assert!(!runs(word), "its program is gone");
    assert!(refused(&chat(&bench, &order, "hello")).contains("revoked"));
    assert_eq!(code(&chat(&bench, &twin, "hello")), 0, "twin: another order");
    assert_eq!(engine.stop().code, Some(0));
    assert!(refused(&chat(&bench, &order, "hello")).contains("revoked"), "after a restart, too");
    assert!(entries(&bench.home, "keyed").concat().contains("enough"));
    ended(&bench.home);
    // Whoever's key has signed it is not the approver any more.
    done(&bench.home.run(&["keys", "approver", "rotate", "--json"]));
    assert!(refused(&chat(&bench, &twin, "hello")).contains("no approver key that is enrolled"));
}

#[test]
fn orders_that_say_too_much_or_are_signed_by_others_are_refused() {
    let bench = Bench::new("openai", |_: &ParsedRequest| Reply::text("Here."));
    for bad in [
        json!({ "expires": "2024-12-31T00:00:00Z" }),
        json!({ "expires": soon(400 * 86_400) }),
        json!({ "max_turns": 0 }),
        json!({ "capabilities": {} }),
        json!({ "capabilities": { "everything": {} } }),
        json!({ "capabilities": { "operate": {} } }),
        json!({ "capabilities": { "read_file": { "path": ["/etc"] } } }),
        json!({ "also": 1 }),
    ] {
        let said = issue(&bench, bad.clone());
        assert!([2, 4].contains(&code(&said)), "{bad}: {}", text(&said));
    }
    assert_eq!(bench.home.json(&["keys", "order", "list"])["orders"], json!([]));
    let order = issued(&bench, json!({}));
    assert_eq!(code(&chat(&bench, &order, "hello")), 0, "the twin");
    // Changed after it was signed: in the database, where the engine keeps it.
    ended(&bench.home);
    let conn = rusqlite::Connection::open(bench.home.database()).expect("opens");
    let more = "UPDATE standing_order SET token = replace(token, '\"max_turns\":2', '\"max_turns\":9')";
    assert_eq!(conn.execute(more, []), Ok(1));
    drop(conn);
    assert!(refused(&chat(&bench, &order, "hello")).contains("signed"));
}

/// What an order may spend is counted over all of its turns, and not renewed by the next.
#[test]
fn an_order_ends_with_its_tokens() {
    let bench = Bench::new("openai", |_: &ParsedRequest| Reply::text("Here."));
    let order = issued(&bench, json!({ "max_turns": 50, "max_tokens": 1 }));
    let spent: Vec<i32> = (0..3).map(|n| code(&chat(&bench, &order, &format!("hello {n}")))).collect();
    assert_eq!(spent, [0, 6, 6], "the call that passes the limit is the last");
    assert_eq!(code(&bench.chat("hello", &["--new"])), 0, "twin: the owner's own session");
}
