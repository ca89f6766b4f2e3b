//! Messages on channels that others relay: only those that the owner has signed are the owner's.

use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use writ_runtime::methods::{CallAccess, Method};
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_tools::registry::Registry;

use super::{Bench, Socket, Web};
use crate::{code, text};

/// The principal and the taint of every message so far, newest first.
fn received(web: &Web) -> Vec<(String, String)> {
    let rows = web.bench.events("received").into_iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    rows.map(|row| row["payload"]["record"].clone())
        .map(|record| (text(&record["principal"]), text(&record["taint"])))
        .collect()
}

/// A message that its owner has signed, as it goes over HTTP.
fn sign_message(web: &Web, session: &str, message: &str) -> Value {
    let output = web.bench.home.run(&["keys", "sign", "--session", session, "--text", message]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let mut frame: Value = serde_json::from_slice(&output.stdout).expect("a frame");
    frame.as_object_mut().expect("an object").remove("type");
    frame
}

fn open(web: &Web, how: &Value) -> (String, String) {
    let opened = web.api("POST", "/api/v1/sessions", how);
    assert_eq!(opened.status, 201, "{opened:?}");
    let session = opened.json()["session"].as_str().expect("an id").to_owned();
    let path = format!("/api/v1/sessions/{session}/messages");
    (session, path)
}

/// Rows: SIL-167 (but for verified identities, which cannot be named yet) SIL-383 SIL-384 SIL-416
#[test]
fn a_relayed_message_is_the_owners_only_if_the_owner_has_signed_it() {
    let web = Web::with(|_: &ParsedRequest| Reply::text("Heard."), &[]);
    let (relayed, path) = open(&web, &json!({ "relayed": true }));
    let (_, own_path) = open(&web, &json!({}));
    let post = |path: &str, body: &Value| web.api("POST", path, body).status;
    let newest = || received(&web).first().cloned().expect("one");
    let is = |principal: &str, taint: &str| (principal.to_owned(), taint.to_owned());

    // The same text in three ways, and in a session of the owner's own.
    assert_eq!(post(&path, &json!({ "text": "pay the bill" })), 202);
    assert_eq!(newest(), is("guest:relayed", "external"));
    assert_eq!(post(&path, &json!({ "text": "pay the bill", "sender": "ann@chat" })), 202);
    assert_eq!(newest(), is("guest:relayed/ann@chat", "external"));
    let good = sign_message(&web, &relayed, "pay the bill");
    assert_eq!(post(&path, &good), 202);
    assert_eq!(newest(), is("owner", "owner"));
    assert_eq!(post(&own_path, &json!({ "text": "pay the bill" })), 202);
    assert_eq!(newest(), is("owner", "owner"));
    // A message that names a sender is another person's, in every session.
    assert_eq!(post(&own_path, &json!({ "text": "pay the bill", "sender": "ann@chat" })), 202);
    assert_eq!(newest(), is("guest:relayed/ann@chat", "external"));

    // A signature counts once, and only for the text that was signed.
    let before = received(&web).len();
    let refused = |path: &str, body: &Value| {
        let answer = web.api("POST", path, body);
        assert_eq!((answer.status, answer.code().as_str()), (403, "message.signature"), "{answer:?}");
    };
    let other = |name: &str, value: Value| {
        let mut frame = sign_message(&web, &relayed, "pay the bill");
        frame[name] = value;
        frame
    };
    refused(&path, &other("text", json!("pay the bill twice")));
    refused(&path, &other("client_id", json!("another")));
    refused(&own_path, &other("client_id", json!("moved")));
    refused(&path, &other("signature", json!({ "claims": {}, "signature": "" })));
    refused(&path, &other("signature", json!("x".repeat(10_000))));
    let mut stale = sign_message(&web, &relayed, "pay the bill");
    stale["signature"]["claims"]["issued_at"] = json!(1_700_000_000_000_i64);
    refused(&path, &stale);
    assert_eq!(received(&web).len(), before, "nothing of it was taken in");
    let gated = web.bench.events("gated");
    assert_eq!(
        gated.iter().filter(|row| row["payload"]["gate"] == "signature").count(),
        6,
        "each is an entry"
    );
    // Sending the same message again adds none.
    assert_eq!(post(&path, &good), 202);
    assert_eq!(received(&web).len(), before);
}

/// A nonce that was used is also known after a restart: under another id, the message would be a new one.
///
/// Rows: SIL-384
#[test]
fn a_signature_counts_once_also_after_a_restart() {
    let web = Web::with(|_: &ParsedRequest| Reply::text("Heard."), &[]);
    let (relayed, path) = open(&web, &json!({ "relayed": true }));
    let good = sign_message(&web, &relayed, "hello");
    assert_eq!(web.api("POST", &path, &good).status, 202);
    let Web { engine, bench, .. } = web;
    assert_eq!(engine.stop().code, Some(0));
    // The message is unknown to the queue now, its nonce is not.
    let conn = rusqlite::Connection::open(bench.home.database()).expect("opens");
    let stored: i64 = conn
        .query_row("SELECT count(*) FROM nonce WHERE namespace = 'message'", [], |row| row.get(0))
        .expect("counts");
    assert_eq!(stored, 1);
    conn.execute("UPDATE message SET client_id = 'other'", []).expect("renames");
    drop(conn);
    let web = Web::over(bench, &[]);
    let again = web.api("POST", &path, &good);
    assert_eq!((again.status, again.code().as_str()), (403, "message.signature"), "{again:?}");
    assert_eq!(
        web.api("POST", &path, &sign_message(&web, &relayed, "hello")).status,
        202,
        "twin: signed anew"
    );
}

/// With the same gates, the owner is offered every tool, and another person those of the level. (Which of them the owner may use after
/// external content was read is shown elsewhere: design 3.3.)
///
/// Rows: SIL-275
#[test]
fn the_owner_is_offered_every_tool_and_others_those_of_their_level() {
    let bench = Bench::new("openai", |_: &ParsedRequest| Reply::text("Heard."));
    let config = "[access]\npublic = [\"memory_search\"]\n";
    std::fs::write(bench.home.root().join("config.toml"), config).expect("written");
    let web = Web::over(bench, &[]);
    let mut answered = 0;
    let mut offered = |how: Value| -> Vec<String> {
        let (_, path) = open(&web, &how);
        assert_eq!(web.api("POST", &path, &json!({ "text": "hello" })).status, 202);
        answered += 1;
        while web.bench.server.recorded_requests().len() < answered {
            std::thread::yield_now();
        }
        let tools = web.bench.server.recorded_requests()[answered - 1].body["tools"].clone();
        let name = |tool: &Value| tool["function"]["name"].as_str().expect("a name").to_owned();
        tools.as_array().expect("tools").iter().map(name).collect()
    };
    let all: Vec<String> = Registry::core_tools().tools().map(|tool| tool.name().to_owned()).collect();
    assert_eq!(offered(json!({ "relayed": true })), ["memory_search"]);
    assert_eq!(offered(json!({})), all);
}

/// What the owner has written about a customer is in each request of the sessions that are opened for them, before and after a level is
/// reached and after a restart, and in no other; nobody has a session without a file.
///
/// Rows: SIL-274 (in part: the owner's folder fills the context)
#[test]
fn what_is_known_of_a_customer_is_in_the_requests_of_their_session_alone() {
    let bench = Bench::new("openai", |_: &ParsedRequest| Reply::text("Heard."));
    std::fs::write(bench.home.root().join("config.toml"), EXPIRING).expect("written");
    let file = bench.home.root().join("data/customers/ada.toml");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    std::fs::write(file, "name = \"Ada\"\nplan = \"gold\"\n").expect("written");
    let web = Web::over(bench, &[]);
    let heard = |web: &Web, session: &str, path: &str, text: &str| -> String {
        let mut socket = web.own_socket("/ws");
        socket.join(Some(session), 0);
        let before = web.bench.server.recorded_requests().len();
        assert_eq!(web.api("POST", path, &json!({ "text": text })).status, 202);
        while web.bench.server.recorded_requests().len() == before {
            std::thread::yield_now();
        }
        web.bench.server.recorded_requests()[before].body.to_string()
    };
    let (other, to_other) = open(&web, &json!({ "relayed": true }));
    assert!(!heard(&web, &other, &to_other, "hello").contains("gold"));
    let (session, path) = open(&web, &json!({ "relayed": true, "customer": "ada" }));
    for text in ["hello", "hello again"] {
        let request = heard(&web, &session, &path, text);
        assert!(request.contains("name: Ada\\nplan: gold"), "{request}");
    }
    for (body, code) in [
        (json!({ "relayed": true, "customer": "bea" }), "customer.unknown"),
        (json!({ "relayed": true, "customer": "../ada" }), "customer.name"),
    ] {
        let refused = web.api("POST", "/sessions", &body);
        assert_eq!(refused.code(), code, "{refused:?}");
    }
    assert_eq!(web.api("POST", "/sessions", &json!({ "customer": "ada" })).status, 400);
    let Web { engine, bench, .. } = web;
    assert_eq!(engine.stop().code, Some(0));
    let web = Web::over(bench, &[]);
    assert!(heard(&web, &session, &path, "and now").contains("plan: gold"));
}

/// A level for everyone whose message contains no forbidden text.
const EXPIRING: &str = r#"
[[gates]]
name = "word"
on = "input"
provider = "predicate"
contains = ["forbidden"]

[access]
public = ["memory_search"]

[access.levels.member]
rank = 1
requires = ["word"]
tools = ["file_read"]
expires_secs = 3600
"#;

/// Sends a message in a relayed session and waits for the answer. Returns its number, and the tools that the model was offered.
fn list_offered(web: &Web, socket: &mut Socket, path: &str) -> (u64, Vec<String>) {
    assert_eq!(web.api("POST", path, &json!({ "text": "hello" })).status, 202);
    let last = socket.until("message")["seq"].as_u64().expect("a number");
    let requests = web.bench.server.recorded_requests();
    let tools = requests.last().expect("a request").body["tools"].as_array().expect("tools").clone();
    let mut names: Vec<String> =
        tools.iter().map(|tool| tool["function"]["name"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    (last, names)
}

/// The tools of an expired level are not offered, not even to the first message after its end; if that message passes the gates,
/// the level is raised again. The level expires while no engine runs.
///
/// Rows: SIL-277
#[test]
fn a_level_whose_time_is_over_offers_none_of_its_tools() {
    let bench = Bench::new("openai", |_: &ParsedRequest| Reply::text("Heard."));
    std::fs::write(bench.home.root().join("config.toml"), EXPIRING).expect("written");
    let web = Web::over(bench, &[]);
    let (session, path) = open(&web, &json!({ "relayed": true }));
    let mut socket = web.own_socket("/ws");
    socket.join(Some(&session), 0);
    assert_eq!(
        list_offered(&web, &mut socket, &path).1,
        ["memory_search"],
        "the message raises the level for the next one"
    );
    let (last, offered) = list_offered(&web, &mut socket, &path);
    assert_eq!(offered, ["file_read", "memory_search"]);
    drop(socket);
    let Web { engine, bench, .. } = web;
    assert_eq!(engine.stop().code, Some(0));
    let conn = rusqlite::Connection::open(bench.home.database()).expect("opens");
    let over = "UPDATE session SET metadata = json_set(metadata, '$.access.until', 1)
                WHERE json_extract(metadata, '$.access.level') = 'member'";
    assert_eq!(conn.execute(over, []), Ok(1));
    drop(conn);
    let web = Web::over(bench, &[]);
    let mut socket = web.own_socket("/ws");
    socket.join(Some(&session), last);
    assert_eq!(list_offered(&web, &mut socket, &path).1, ["memory_search"]);
    assert_eq!(
        list_offered(&web, &mut socket, &path).1,
        ["file_read", "memory_search"],
        "twin: the level is raised again"
    );
    let gated = web.bench.events("gated");
    let moved = gated.iter().rev().filter(|row| row["payload"]["gate"] == "access level");
    let moved: Vec<&str> = moved.filter_map(|row| row["payload"]["reason"].as_str()).collect();
    assert_eq!(
        moved,
        [
            "from 'public' to 'member': passed: word",
            "from 'member' to 'public': its time is over",
            "from 'public' to 'member': passed: word",
        ]
    );
}

/// With the token or the page alone, keys cannot be made or revoked, orders stored, agents approved or deployed, approvers changed, servers started, entries
/// erased or memories forgotten: only the owner's terminal can.
///
/// Rows: SLO-015 (pages and programs)
#[test]
fn what_the_owners_terminal_alone_may_call_is_refused_to_pages_and_programs() {
    let web = Web::new();
    let page = web.socket("/ws", &[("Cookie", &web.cookie())]).expect("connects");
    for mut socket in [page, web.own_socket("/ws")] {
        let mut refused = |method: &str| {
            socket.say(&json!({ "type": "call", "id": 1, "method": method, "params": {} }));
            socket.until("error")["code"].clone()
        };
        let terminal = Method::ALL.iter().filter(|method| method.access() == CallAccess::Terminal);
        let names: Vec<&str> = terminal.map(|method| method.name()).collect();
        assert_eq!(names.len(), 43, "{names:?}");
        for name in names {
            assert_eq!(refused(name), "auth.terminal_only", "{name}");
        }
        assert_eq!(refused("ledger.burn"), "call.unknown", "what is not listed is not there");
    }
}

/// Tries to reach the makers of keys: the engine's socket, its server, and its program.
const TRIES: &str = r#"
import socket, subprocess
def tried(what):
    try:
        what()
        return "reached"
    except (OSError, subprocess.SubprocessError):
        return "refused"
def control():
    socket.socket(socket.AF_UNIX).connect(SOCKET)
def server():
    socket.create_connection(("127.0.0.1", PORT), 5)
def program():
    subprocess.run([WRIT, "keys", "list"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print("control", tried(control), "server", tried(server), "program", tried(program))
"#;

/// A program that the agent runs cannot have a key made.
///
/// Rows: SLO-015 (what the agent runs)
#[test]
fn needs_userns_needs_python_a_program_of_the_agent_reaches_no_maker_of_keys() {
    let script = Arc::new(OnceLock::<String>::new());
    let asked = Arc::clone(&script);
    let web = Web::with(
        move |request: &ParsedRequest| match request.results().last() {
            None => Reply::call("python_exec", json!({ "script": asked.get().expect("set") })),
            Some(result) => Reply::text(&result.text),
        },
        &[],
    );
    let control = web.bench.home.root().join("runtime/control.sock").display().to_string();
    let (port, program) = (web.port, env!("CARGO_BIN_EXE_writ"));
    script.set(format!("SOCKET = {control:?}\nPORT = {port}\nWRIT = {program:?}\n{TRIES}")).expect("once");
    // Session keys have entries of their own.
    let made = || {
        let keyed = web.bench.events("keyed").into_iter();
        keyed.filter(|row| row["session"].is_null()).map(|row| row["payload"].clone()).collect::<Vec<_>>()
    };
    let before = made();
    let mut socket = web.own_socket("/ws");
    socket.join(None, 0);
    socket.say(&json!({ "type": "message", "text": "make a key", "client_id": "one" }));
    let found = socket.until("message")["text"].clone();
    let found = found.as_str().expect("a text");
    assert!(found.contains("control refused server refused program refused"), "{found}");
    assert_eq!(made(), before);
}
