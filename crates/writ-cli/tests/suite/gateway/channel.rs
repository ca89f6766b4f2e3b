//! The server as a channel: what it makes of a message, how the answer comes back, and who gets it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Instant, SystemTime};

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault};
use writ_types::chat::Role;

use super::super::code;
use super::super::turns::{Bench, calls};
use super::{PATIENCE, Socket, Stream, Web};

/// Answers that a client leaves unread, and the size of each in bytes: together with their deltas about 8 MB, more than the
/// buffers of both ends of a socket hold.
const UNREAD: usize = 14;
const ANSWER_BYTES: usize = 280_000;

/// Modules of other crates that the sources of the server may use.
const USED: [&str; 7] = [
    "writ_inspect::webauthn",
    "writ_policy::approval",
    "writ_policy::principal",
    "writ_runtime::clock",
    "writ_runtime::engine",
    "writ_runtime::methods",
    "writ_runtime::metrics",
];

fn say(socket: &mut Socket, text: &str) {
    socket.say(&json!({ "type": "message", "text": text }));
}

/// The next answer, whole, and the text of the deltas before it.
fn answer(socket: &mut Socket) -> (Value, Vec<String>) {
    let mut pieces = Vec::new();
    loop {
        let frame = socket.hear().unwrap_or_else(|code| panic!("closed with {code}"));
        match frame["type"].as_str() {
            Some("delta") if frame["text"] != "" => {
                pieces.push(frame["text"].as_str().expect("a text").to_owned());
            }
            Some("message" | "response") if frame["last"] == true => return (frame, pieces),
            _ => {}
        }
    }
}

/// A new session, opened over HTTP.
fn new_session(web: &Web) -> String {
    let made = web.api("POST", "/sessions", &json!({}));
    assert!(matches!(made.status, 200 | 201), "{made:?}");
    made.json()["session_id"].as_str().expect("an id").to_owned()
}

/// The paths `crate::module` in Rust sources that begin with `writ_` and are of none of the crates of vocabulary.
fn paths_of_ours(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("reads") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            paths_of_ours(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).expect("reads");
            for (at, _) in source.match_indices("writ_") {
                let end = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
                let path = source[at..].split(end).next().unwrap_or_default();
                if let Some((of, module)) = path.split_once("::")
                    && of != "writ_types"
                {
                    let module = module.split("::").next().unwrap_or_default();
                    found.insert(format!("{of}::{module}"));
                }
            }
        }
    }
}

/// Gates, contexts and agents are the engine's: the server's crate uses none of their modules. What others say comes to the
/// same gates as what the owner says.
///
/// Rows: SIL-020
#[test]
fn the_server_hands_every_message_over_alike_and_the_engines_gates_judge_it() {
    let mut used = BTreeSet::new();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../writ-gateway/src");
    paths_of_ours(&sources, &mut used);
    assert_eq!(used, USED.map(str::to_owned).into());

    let bench = Bench::new("openai", calls(Vec::new(), "Yes."));
    let gate =
        "[[gates]]\nname = \"falcon\"\non = \"input\"\nprovider = \"predicate\"\ncontains = [\"falcon\"]\n";
    std::fs::write(bench.home.root().join("config.toml"), gate).expect("written");
    let web = Web::over(bench, &[]);
    let mut socket = web.own_socket("/ws");
    socket.join(None, 0);
    let messages =
        [(None, "hello"), (None, "good evening"), (Some("ann"), "hello"), (Some("ann"), "a falcon")];
    for (sender, text) in messages {
        socket.say(&json!({ "type": "message", "text": text, "sender": sender }));
        answer(&mut socket);
    }
    let received = web.bench.events("received");
    let mut said: Vec<(bool, &str)> = received
        .iter()
        .map(|row| {
            (
                row["payload"]["record"]["principal"] == "owner",
                row["payload"]["text"].as_str().expect("a text"),
            )
        })
        .collect();
    said.reverse();
    assert_eq!(said, messages.map(|(sender, text)| (sender.is_none(), text)));
    let gated = web.bench.events("gated");
    let mut judged: Vec<&str> = gated
        .iter()
        .filter(|row| row["payload"]["gate"] == "falcon")
        .map(|row| row["payload"]["verdict"].as_str().expect("a verdict"))
        .collect();
    judged.reverse();
    assert_eq!(judged, ["pass", "pass", "pass", "block"]);
    assert_eq!(web.bench.requests().len(), 3, "no model has read what was blocked");
}

/// The record of a message has its text, its time and its sender, and is signed. A client cannot name another sender.
#[test]
fn a_frame_is_one_message_of_a_sender_that_the_connection_proves() {
    let web = Web::new();
    let mut socket = web.own_socket("/ws");
    socket.join(None, 0);
    let seconds = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let text = "Grüße, 日本 🦀\n  e\u{301}";
    let began = seconds();
    say(&mut socket, text);
    answer(&mut socket);
    let ended = seconds();
    for (frame, code) in [
        (json!({ "type": "message", "client_id": "a" }), "frame.invalid"),
        (json!({ "type": "message", "text": "hello", "sender": "owner" }), "call.params"),
    ] {
        socket.say(&frame);
        assert_eq!(socket.until("error")["code"], code, "{frame}");
    }
    socket.say(&json!({ "type": "message", "text": "hello", "sender": "ann", "sender_id": "owner" }));
    answer(&mut socket);
    let mut rows = web.bench.events("received");
    rows.reverse();
    let [own, relayed] = rows.as_slice() else { panic!("two messages: {rows:?}") };
    assert_eq!(own["payload"]["text"], "Grüße, 日本 🦀\n  \u{e9}", "as it was said, in NFC");
    let record = &own["payload"]["record"];
    assert_eq!((&record["principal"], &record["taint"]), (&json!("owner"), &json!("owner")), "{own}");
    let at: writ_types::unit::Timestamp = serde_json::from_value(record["at"].clone()).expect("a time");
    let at = u64::try_from(at.as_millis()).expect("after 1970") / 1_000;
    assert!((began..=ended).contains(&at), "{began} {at} {ended}");
    assert!(own["payload"]["signature"].as_str().is_some_and(|signature| signature.len() == 128), "{own}");
    let record = &relayed["payload"]["record"];
    assert_ne!(record["principal"], "owner", "a client cannot name the owner");
    assert_ne!(record["taint"], "owner");
}

/// An answer is released by sentences (design 3.4), each as soon as it has come: the first are shown while the model has not gone
/// on.
///
/// Rows: SIL-230 SIL-296
#[test]
fn a_message_begins_one_turn_and_its_answer_is_shown_as_it_comes() {
    let sentences: Vec<String> = (0..10).map(|n| format!("Sentence{n}. ")).collect();
    let whole = sentences.concat();
    let mut stopped = false;
    let web = Web::with(
        move |_: &ParsedRequest| match std::mem::replace(&mut stopped, true) {
            false => Reply::text(&whole).with_fault(ReplyFault::SilenceAfter(7)),
            true => Reply::text(whole.trim_end()),
        },
        &[],
    );
    let mut socket = web.own_socket("/ws");
    socket.join(None, 0);
    say(&mut socket, "one");
    // The first says that the answer begins, without text.
    let first = loop {
        let delta = socket.until("delta");
        if delta["text"] != "" {
            break delta;
        }
    };
    assert!(first["text"].as_str().is_some_and(|text| text.starts_with("Sentence0.")), "{first}");
    socket.say(&json!({ "type": "cancel", "turn": first["turn"] }));
    answer(&mut socket);
    say(&mut socket, "two");
    let (last, pieces) = answer(&mut socket);
    assert_eq!(pieces.concat(), last["text"].as_str().expect("a text"));
    assert_eq!(pieces.len(), sentences.len(), "{pieces:?}");
    assert_eq!(pieces.concat(), sentences.concat().trim_end());
    for malformed in
        [r#"{"type":"message"}"#, r#"{"type":"message","text":7}"#, r#"{"type":"message","text":"#]
    {
        socket.text(malformed);
        assert_eq!(socket.until("error")["code"], "frame.invalid", "{malformed}");
    }
    let started = web.bench.events("phase").iter().filter(|row| row["payload"]["phase"] == "started").count();
    assert_eq!(
        (started, web.bench.requests().len()),
        (2, 2),
        "one turn for each message, and none for what is none"
    );
}

/// Rows: SIL-303
#[test]
fn what_is_measured_is_served_on_the_pages_port_and_nowhere_without_it() {
    let web = Web::with(calls(vec![("memory_search", json!({ "query": "heron" }))], "Nothing."), &[]);
    let mut socket = web.own_socket("/ws");
    socket.join(None, 0);
    say(&mut socket, "hello");
    answer(&mut socket);
    drop(socket);
    let measured = web.ask("GET", "/metrics", &[], "");
    assert_eq!(measured.status, 200, "{measured:?}");
    let mut names = BTreeSet::new();
    for line in measured.body.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a series and its value");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        names.insert(series.split('{').next().unwrap_or_default().to_owned());
    }
    for name in [
        "writ_turns_total",
        "writ_turn_duration_seconds_bucket",
        "writ_gate_evaluations_total",
        "writ_tool_executions_total",
        "writ_context_tokens_used",
        "writ_memory_operations_total",
        "writ_subscriptions_active",
        "writ_agent_calls_total",
    ] {
        let described = format!("# TYPE {} ", name.trim_end_matches("_bucket"));
        assert!(names.contains(name) && measured.body.contains(&described), "{name}: {}", measured.body);
    }
    let Web { engine, bench, port, .. } = web;
    assert_eq!(engine.stop().code, Some(0));
    let port_of_before = port.to_string();
    let off = [("WRIT_SERVER__ENABLED", "false"), ("WRIT_SERVER__PORT", port_of_before.as_str())];
    let engine = super::Engine::start(&bench.home, &off).expect("ready");
    assert!(Stream::connect(("127.0.0.1", port)).is_err(), "nothing listens there");
    assert_eq!(code(&bench.chat("hello", &[])), 0, "twin: the engine works");
    assert_eq!(engine.stop().code, Some(0));
}

/// Rows: SCL-092
#[test]
fn a_client_that_reads_nothing_keeps_no_other_from_its_answers() {
    let text = "All-is-well.\n".repeat(ANSWER_BYTES / 13);
    let served = text.clone();
    let web = Web::with(move |_: &ParsedRequest| Reply::text(&served), &[]);
    let session = new_session(&web);
    let path = format!("/ws/{session}");
    let (mut one, mut two, mut slow) = (web.own_socket(&path), web.own_socket(&path), web.own_socket(&path));
    let mut stranger = web.own_socket(&format!("/ws/{}", new_session(&web)));
    for socket in [&mut one, &mut two, &mut slow, &mut stranger] {
        socket.until("hello");
    }
    let mut ids = Vec::new();
    for n in 0..UNREAD {
        say(&mut one, &format!("message {n}"));
        let (first, second) = (answer(&mut one).0, answer(&mut two).0);
        assert_eq!(first, second, "in step");
        assert_eq!(first["content"].as_str().map(str::len), Some(text.len()));
        ids.push(first["message_id"].clone());
    }
    // It has missed nothing, once it reads.
    let late: Vec<Value> = (0..UNREAD).map(|_| answer(&mut slow).0["message_id"].clone()).collect();
    assert_eq!(late, ids);
    stranger.say(&json!({ "type": "call", "id": 1, "method": "status" }));
    assert_eq!(
        stranger.hear().expect("a frame")["type"],
        "answer",
        "nothing of the other session came before"
    );
}

/// Everything that its people have said in this session, in order.
fn said_so_far(request: &ParsedRequest) -> String {
    let texts = request.messages.iter().filter(|message| message.role == Role::User);
    let words = texts.flat_map(|message| message.text.split_whitespace());
    words.filter(|word| word.starts_with("word-")).collect::<Vec<_>>().join(" ")
}

/// Rows: SCL-168
#[test]
fn a_session_is_opened_over_http_spoken_to_over_a_websocket_and_saved() {
    let list = vec![("memory_store", json!({ "text": "the heron stands in the pond" }))];
    let web = Web::with(calls(list, "Noted."), &[]);
    let session = new_session(&web);
    let path = format!("/ws/{session}");
    // Before the upgrade there is nothing that a message could go to.
    let message = json!({ "type": "message", "text": "too early" }).to_string();
    let bearer = web.bearer();
    for method in ["GET", "POST"] {
        let refused = web.ask(method, &path, &[("Authorization", &bearer)], &message);
        assert!(matches!(refused.status, 405 | 426), "{refused:?}");
    }
    assert_eq!(web.bench.count("received"), 0);
    let (mut one, mut two) = (web.own_socket(&path), web.own_socket(&path));
    one.until("hello");
    two.until("hello");
    say(&mut one, "remember the heron");
    let ended = answer(&mut one).0;
    assert_eq!((&ended["content"], &ended["session_id"]), (&json!("Noted."), &json!(session)));
    assert_eq!(answer(&mut two).0, ended, "both get it");
    assert_eq!(web.bench.count("remembered"), 1, "the agent's loop has used its tool");
    let saved = web.api("GET", &format!("/api/v1/sessions/{session}?after=0"), &Value::Null).json();
    let frames = saved["frames"].as_array().expect("frames");
    assert!(frames.iter().any(|frame| frame["type"] == "message" && frame["text"] == "Noted."), "{saved}");
}

/// Rows: SCL-170
#[test]
fn a_client_that_left_is_forgotten_and_comes_back_to_its_session_after_a_restart() {
    let web = Web::with(|request: &ParsedRequest| Reply::text(&said_so_far(request)), &[]);
    let session = new_session(&web);
    let mut socket = web.own_socket(&format!("/ws/{session}"));
    say(&mut socket, "word-one");
    let first = answer(&mut socket).0;
    let connections = |web: &Web| web.ask("GET", "/health", &[], "").json()["connections"].clone();
    assert_eq!(connections(&web), 1);
    drop(socket);
    let until = Instant::now() + PATIENCE;
    while connections(&web) != 0 {
        assert!(Instant::now() < until, "the connection stays counted");
        std::thread::yield_now();
    }
    let Web { engine, bench, .. } = web;
    assert_eq!(engine.stop().code, Some(0));
    let web = Web::over(bench, &[]);
    let mut back = web.own_socket("/ws");
    assert_eq!(back.join(Some(&session), 0), session);
    let message = back.until("message");
    assert_eq!((&message["text"], &message["seq"]), (&json!("word-one"), &first["seq"]));
    say(&mut back, "word-two");
    assert_eq!(answer(&mut back).0["text"], "word-one word-two", "it goes on with its history");
}
