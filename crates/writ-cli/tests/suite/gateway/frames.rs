//! Frames beside the conversation: gates that ask, places with a name, histories that are another one.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};
use writ_runtime::config::MAX_RUNNING_TURNS;
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};

use super::super::turns::{Bench, calls};
use super::super::{code, text};
use super::{PATIENCE, Socket, Web};

/// A server whose gates ask about a word, in what people say and in what the agent says.
fn guarded(replies: Vec<&'static str>) -> Web {
    let mut replies = replies.into_iter();
    let bench = Bench::new("openai", move |_: &_| Reply::text(replies.next().unwrap_or("No more.")));
    let gate = |on: &str| {
        format!(
            "[[gates]]\nname = \"falcon-{on}\"\non = \"{on}\"\nprovider = \"predicate\"\ncontains = [\"falcon\"]\n\
             ignore_case = true\naction = \"ask\"\nreason = \"It names the falcon.\"\n"
        )
    };
    std::fs::write(bench.home.root().join("config.toml"), gate("input") + &gate("output")).expect("written");
    Web::over(bench, &[])
}

fn say(socket: &mut Socket, text: &str, id: &str) {
    socket.say(&json!({ "type": "message", "text": text, "client_id": id }));
}

fn respond(socket: &mut Socket, ask: &Value, decision: &str) {
    socket
        .say(&json!({ "type": "gate_response", "ask_id": ask, "decision": decision, "reason": "I looked" }));
}

fn last(socket: &mut Socket) -> Value {
    loop {
        let message = socket.until("message");
        if message["last"] == true {
            return message;
        }
    }
}

/// Rows: SIL-232
/// Rows: SIL-231 (an unknown id)
#[test]
fn a_gate_that_asks_holds_the_turn_until_its_person_has_answered() {
    let web =
        guarded(vec!["It is a bird.", "Nothing. The Falcon flies at dawn. So it is.", "The falcon again."]);
    let mut socket = web.own_socket("/ws");
    socket.join(None, 0);
    say(&mut socket, "what is a \u{202e}falcon", "1");
    let asked = socket.until("gate_approval");
    assert_eq!((&asked["gate"], &asked["point"]), (&json!("falcon-input"), &json!("input")), "{asked}");
    assert_eq!(asked["reason"], "It names the falcon.");
    assert_eq!(asked["shown"], "what is a \\u{202e}falcon", "complete, and nothing of it hides");
    assert_eq!(asked["choices"].as_array().map(Vec::len), Some(2));
    assert!(web.bench.requests().is_empty(), "no model has read it");
    // Another ask, nonsense, and what is missing change nothing.
    respond(&mut socket, &json!("ZZZZZZZZ"), "approve");
    assert_eq!(socket.until("error")["code"], "ask.unknown");
    respond(&mut socket, &asked["ask_id"], "perhaps");
    assert_eq!(socket.until("error")["code"], "frame.invalid");
    respond(&mut socket, &asked["ask_id"], "approve");
    let resolved = socket.until("approval_resolved");
    assert_eq!((&resolved["ask_id"], &resolved["state"]), (&asked["ask_id"], &json!("approved")));
    assert_eq!(last(&mut socket)["text"], "It is a bird.");
    respond(&mut socket, &asked["ask_id"], "approve");
    assert_eq!(socket.until("error")["code"], "ask.unknown", "once");

    // What the agent would say: nothing of it is shown before.
    say(&mut socket, "go on", "2");
    let mut streamed = String::new();
    let asked = loop {
        let frame = socket.hear().unwrap_or_else(|code| panic!("closed with {code}"));
        match frame["type"].as_str() {
            Some("delta") => streamed.push_str(frame["text"].as_str().unwrap_or_default()),
            Some("gate_approval") => break frame,
            _ => {}
        }
    };
    assert!(!streamed.contains("Falcon"), "{streamed}");
    assert_eq!(asked["point"], "output");
    respond(&mut socket, &asked["ask_id"], "approve");
    assert_eq!(last(&mut socket)["text"], "Nothing. The Falcon flies at dawn. So it is.");

    // Denied: it is not said, and the turn ends.
    say(&mut socket, "once more", "3");
    let asked = socket.until("gate_approval");
    respond(&mut socket, &asked["ask_id"], "deny");
    assert_eq!(socket.until("approval_resolved")["state"], "denied");
    let ended = last(&mut socket);
    assert!(!ended.to_string().contains("again") && ended["exit"] == "denied", "{ended}");
    let answered = web.bench.events("answered");
    assert_eq!(answered.len(), 3, "{answered:?}");
    assert!(answered.iter().all(|row| row.to_string().contains("I looked")), "{answered:?}");
    assert!(web.bench.events("gated").iter().any(|row| row.to_string().contains("require_approval")));
    assert_eq!(code(&web.bench.home.run(&["audit", "verify", "--every-signature"])), 0);
}

/// The same ask after a restart, answered from a terminal; and a turn that is stopped waits for nobody.
#[test]
fn a_gate_asks_again_after_a_restart_and_a_stopped_turn_asks_no_more() {
    let web = guarded(vec!["It is a bird."]);
    let mut socket = web.own_socket("/ws");
    let session = socket.join(None, 0);
    say(&mut socket, "what is a falcon", "1");
    let asked = socket.until("gate_approval");
    let ask = asked["ask_id"].as_str().expect("an id").to_owned();
    let waits = json!({
        "ask_id": ask, "session": session, "gate": "falcon-input", "point": "input",
        "reason": "It names the falcon.",
    });
    let listed = |web: &Web| web.bench.home.json(&["approvals", "list"])["gates"].clone();
    assert_eq!(listed(&web), json!([waits]));
    let told = text(&web.bench.home.run(&["approvals", "list"]));
    assert_eq!(told.trim(), format!("{ask}  gate 'falcon-input' asks: It names the falcon."));
    drop(socket);
    let Web { engine, bench, .. } = web;
    assert_eq!(engine.stop().code, Some(0));
    let web = Web::over(bench, &[]);
    let mut socket = web.own_socket("/ws");
    socket.join(Some(&session), asked["seq"].as_u64().expect("a number"));
    assert_eq!(socket.until("gate_approval")["ask_id"], json!(ask), "the same question");
    let answered = web.bench.home.run(&["approvals", "approve", &ask, "--yes"]);
    assert_eq!(code(&answered), 0, "{}", text(&answered));
    assert_eq!(last(&mut socket)["text"], "It is a bird.");
    assert_eq!(listed(&web), json!([]));
    say(&mut socket, "another falcon", "2");
    let asked = socket.until("gate_approval");
    socket.say(&json!({ "type": "cancel", "turn": asked["turn"] }));
    assert_eq!(socket.until("approval_resolved")["state"], "expired");
    assert_eq!(last(&mut socket)["exit"], "interrupted");
    let late = web.bench.home.run(&["approvals", "deny", asked["ask_id"].as_str().expect("an id")]);
    assert_ne!(code(&late), 0, "nobody waits any more: {}", text(&late));
}

/// Rows: SIL-233
#[test]
fn a_checkpoint_names_a_place_for_all_who_watch_and_for_the_ledger() {
    let web = Web::new();
    let (mut one, mut two) = (web.own_socket("/ws"), web.own_socket("/ws"));
    let session = one.join(None, 0);
    two.join(Some(&session), 0);
    say(&mut one, "hello", "1");
    last(&mut one);
    one.say(&json!({ "type": "checkpoint", "name": "before the move" }));
    let (first, second) = (one.until("checkpoint"), two.until("checkpoint"));
    assert_eq!((&first["name"], &first["turn"]), (&json!("before the move"), &json!(1)));
    assert_eq!(first, second, "one place, one number");
    assert!(first["seq"].as_u64().is_some_and(|seq| seq > 0));
    for name in [json!(""), json!("  "), json!("a\nb"), json!("x\u{202e}y"), json!("x".repeat(101)), json!(7)]
    {
        one.say(&json!({ "type": "checkpoint", "name": name }));
        let code = one.until("error")["code"].clone();
        assert!(code == "checkpoint.name" || code == "frame.invalid", "{name}: {code}");
    }
    let mut outside = web.own_socket("/ws");
    outside.say(&json!({ "type": "checkpoint", "name": "nowhere" }));
    assert_eq!(outside.until("error")["code"], "session.none");
    assert_eq!(web.bench.count("checkpoint"), 1);
    // It is kept: whoever comes later sees it.
    let mut later = web.own_socket("/ws");
    later.join(Some(&session), 0);
    assert_eq!(later.until("checkpoint"), first);
}

/// The other place that has a name by itself: what was brought into the project.
///
/// Rows: SIL-233 (the documented points)
#[test]
fn needs_userns_changes_that_were_brought_into_the_project_are_a_checkpoint() {
    let web = Web::with(calls(vec![("file_write", json!({ "path": "a", "content": "b" }))], "Done."), &[]);
    let done = web.bench.chat("write it", &["--write"]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    let sessions = web.api("GET", "/api/v1/sessions", &Value::Null).json();
    let session = sessions["sessions"][0]["session"].as_str().expect("a session");
    let shown = web.api("GET", &format!("/api/v1/sessions/{session}?after=0"), &Value::Null).json();
    let frames = shown["frames"].as_array().expect("frames");
    let names: Vec<&Value> =
        frames.iter().filter(|frame| frame["type"] == "checkpoint").map(|frame| &frame["name"]).collect();
    assert_eq!(names, [&json!("applied")]);
}

/// A client that has seen more than there is has seen another history: it is told so, and given this one whole. Twins: one
/// that has seen less, and one that wants the news alone.
#[test]
fn who_has_seen_another_history_is_told_to_forget_it() {
    let web = Web::new();
    let mut socket = web.own_socket("/ws");
    let session = socket.join(None, 0);
    say(&mut socket, "hello", "1");
    let end = last(&mut socket)["seq"].as_u64().expect("a number");
    let first = |after: u64| {
        let mut socket = web.own_socket("/ws");
        socket.say(&json!({ "type": "resume", "session": session, "after_seq": after }));
        let hello = socket.until("hello");
        assert_eq!(hello["seq"], json!(end));
        socket.say(&json!({ "type": "call", "id": 1, "method": "status", "params": {} }));
        let mut kinds = Vec::new();
        loop {
            let frame = socket.hear().unwrap_or_else(|code| panic!("closed with {code}"));
            let kind = frame["type"].as_str().expect("a type").to_owned();
            if kind == "message" || (kind == "answer" && !kinds.contains(&"reset".to_owned())) {
                kinds.push(kind);
                return kinds;
            }
            kinds.push(kind);
        }
    };
    let other = first(end + 5);
    assert_eq!(other.first().map(String::as_str), Some("reset"), "{other:?}");
    assert_eq!(other.last().map(String::as_str), Some("message"), "{other:?}");
    assert!(!first(end).contains(&"reset".to_owned()));
    for news in [1_u64 << 53, u64::MAX] {
        assert_eq!(first(news), ["answer"]);
    }
}

/// The frames that a client may send, by the committed schema, with something that each could do.
fn samples() -> Vec<Value> {
    let schema = include_str!("../../../../../docs/schemas/client-frame.json");
    let schema: Value = serde_json::from_str(schema).expect("a schema");
    let kinds = schema["oneOf"].as_array().expect("kinds").iter();
    kinds
        .map(|kind| match kind["properties"]["type"]["const"].as_str().expect("a name") {
            "auth" => json!({ "type": "auth", "token": "0".repeat(64) }),
            "resume" => json!({ "type": "resume", "session": null }),
            "message" => json!({ "type": "message", "text": "hello", "client_id": "m" }),
            "approval_response" => {
                json!({ "type": "approval_response", "ask_id": "AAAAAAAA", "decision": "approve" })
            }
            "gate_response" => {
                json!({ "type": "gate_response", "ask_id": "AAAAAAAA", "decision": "approve" })
            }
            "checkpoint" => json!({ "type": "checkpoint", "name": "here" }),
            "cancel" => json!({ "type": "cancel", "turn": "01ARZ3NDEKTSV4RRFFQ69G5FAV" }),
            "call" => json!({ "type": "call", "id": 1, "method": "status", "params": null }),
            other => panic!("'{other}' is new: what is it refused with?"),
        })
        .collect()
}

/// Whoever has not proven who they are is closed out with the first frame, of whatever kind, and nothing of it is done. Twin: the
/// owner's is taken in.
#[test]
fn every_frame_is_refused_from_who_has_not_proven_who_they_are() {
    let web = Web::new();
    let entries = web.bench.events("received").len();
    let frames = samples();
    for frame in &frames {
        let mut stranger = web.socket("/ws", &[]).expect("connects");
        stranger.say(frame);
        // What follows is not read any more either.
        stranger.say(&json!({ "type": "message", "text": "hello", "client_id": "n" }));
        assert_eq!(stranger.closed(), 4401, "{frame}");
    }
    assert_eq!(web.bench.events("received").len(), entries, "nothing was taken in");
    let mut own = web.own_socket("/ws");
    own.join(None, 0);
    say(&mut own, "hello", "m");
    last(&mut own);
    let twins = web.bench.events("received").len() - entries;
    assert_eq!(twins, 1);
    println!("THREAT 24 attempts={0} refused={0} entries=0 entry=- twins={twins}", frames.len());
}

/// A hundred clients with a session each, all of which have spoken before the first is answered: as many turns as an
/// engine runs at once wait for the model, and the others for them.
#[test]
fn a_hundred_sessions_at_once_over_websockets_are_each_answered_with_their_own_words() {
    const SESSIONS: usize = 100;
    let gate = ReplyGate::new();
    let held = gate.clone();
    let script = move |request: &ParsedRequest| {
        let reply = Reply::text(&format!("Heard {}.", request.last_user_text()));
        reply.with_fault(ReplyFault::SlowFirstByte(held.clone()))
    };
    let env = [("WRIT_SERVER__REQUESTS_PER_SEC", "100000"), ("WRIT_SERVER__BURST", "100000")];
    let web = Web::with(script, &env);
    let open =
        || web.api("POST", "/api/v1/sessions", &json!({})).json()["session"].as_str().map(str::to_owned);
    let sessions: Vec<String> = (0..SESSIONS).map(|_| open().expect("an id")).collect();
    let mut sockets: Vec<Socket> = (0..SESSIONS).map(|_| web.own_socket("/ws")).collect();
    for (session, socket) in sessions.iter().zip(&mut sockets) {
        assert_eq!(socket.join(Some(session), 0), *session);
    }
    assert_eq!(sessions.iter().collect::<BTreeSet<_>>().len(), SESSIONS);
    assert_eq!(web.ask("GET", "/health", &[], "").json()["connections"], SESSIONS);
    for (n, socket) in sockets.iter_mut().enumerate() {
        socket.say(&json!({ "type": "message", "text": format!("word<{n}>"), "client_id": format!("c{n}") }));
    }
    let began = Instant::now();
    while web.bench.server.connections_waiting() < MAX_RUNNING_TURNS {
        assert!(began.elapsed() < PATIENCE, "{} at once", web.bench.server.connections_waiting());
        std::thread::yield_now();
    }
    gate.open();
    for (n, socket) in sockets.iter_mut().enumerate() {
        let mut heard = Vec::new();
        let last = loop {
            let frame = socket.hear().expect("a frame");
            heard.push(frame.to_string());
            if frame["type"] == "message" {
                break frame;
            }
        };
        assert_eq!((&last["text"], &last["last"]), (&json!(format!("Heard word<{n}>.")), &json!(true)));
        let foreign = |m: &usize| heard.concat().contains(&format!("word<{m}>"));
        assert_eq!((0..SESSIONS).filter(foreign).collect::<Vec<_>>(), [n], "{heard:?}");
    }
    assert_eq!(web.bench.requests().len(), SESSIONS);
    // Each message and each reply is in the ledger under its own session.
    for event in ["received", "replied"] {
        let rows = web.bench.events(event);
        let of = |session: &String| rows.iter().filter(|row| row["session"] == **session).count();
        assert!(rows.len() == SESSIONS && sessions.iter().all(|session| of(session) == 1), "{event}");
    }
    assert_eq!(web.engine.stop().code, Some(0));
}
