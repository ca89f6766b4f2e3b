//! What a session keeps, what it takes in, and what it never shares.

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::chat::Role;
use writ_types::digest::canonical_json;
use writ_types::entry::InboundRecord;
use writ_types::frame::ServerFrame;
use writ_types::taint::Taint;

use super::engine::{Engine, Link};
use super::turns::{Bench, calls};
use super::{code, text};

/// Said once after a restart.
const REHYDRATED: &str = "[SYSTEM] Session rehydrated after restart.";

fn numbers(bench: &Bench) -> Vec<u64> {
    let rows = bench.events("phase");
    let started = rows.iter().filter(|row| row["payload"]["phase"] == "started");
    let mut numbers: Vec<u64> = started.filter_map(|row| row["turn_number"].as_u64()).collect();
    numbers.sort_unstable();
    numbers
}

/// Rows: SIL-022 SIL-036 SIL-040 SIL-297
#[test]
fn turns_are_counted_on_after_a_restart_and_the_model_is_told_once() {
    let bench = Bench::new("openai", calls(Vec::new(), "Yes."));
    let mut session = None;
    for (run, client_ids) in [["a", "b", "c"], ["d", "e", "f"]].into_iter().enumerate() {
        let engine = Engine::start(&bench.home, &[]).expect("ready");
        let mut link = Link::open(&bench.home).expect("connects");
        session = link.join(session, None);
        for _ in 0..run * 3 {
            link.answer().expect("kept");
        }
        for client_id in client_ids {
            // Frames that are no messages open no turns.
            link.call("status", json!({})).expect("answered");
            assert_eq!(link.ask(&format!("message {client_id}"), client_id).expect("answered").text, "Yes.");
        }
        assert_eq!(engine.stop().code, Some(0));
    }
    assert_eq!(numbers(&bench), [1, 2, 3, 4, 5, 6]);
    let told: Vec<usize> =
        bench.requests().iter().map(|request| request.matches(REHYDRATED).count()).collect();
    assert_eq!(told.len(), 6, "one answer for each message");
    assert_eq!(told[..4], [0, 0, 0, 1], "in the first turn after the restart");
    assert!(told.iter().all(|times| *times <= 1));
    let last = bench.requests().pop().expect("a request");
    assert!(["a", "b", "c", "d", "e"].iter().all(|id| last.contains(&format!("message {id}"))), "{last}");
    let verified = bench.home.run(&["audit", "verify", "--every-signature"]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
}

/// Rows: SIL-024
#[test]
fn a_message_is_signed_with_its_taint_and_turn() {
    let bench = Bench::new("openai", calls(Vec::new(), "Yes."));
    for _ in 0..2 {
        assert_eq!(code(&bench.chat("hello", &[])), 0);
    }
    let rows = bench.events("received");
    let key = bench.home.json(&["keys", "inspect"]);
    let harness =
        key["keys"].as_array().expect("keys").iter().find(|key| key["role"] == "harness").expect("a key");
    let public: [u8; 32] = hex::decode(harness["public_key"].as_str().expect("hexadecimal"))
        .expect("hexadecimal")
        .try_into()
        .expect("32 bytes");
    let public = ed25519_dalek::VerifyingKey::from_bytes(&public).expect("a key");
    let mut numbers = Vec::new();
    for row in &rows {
        let fact = &row["payload"];
        let mut record: InboundRecord = serde_json::from_value(fact["record"].clone()).expect("a record");
        assert_eq!(record.taint, Taint::Owner);
        numbers.push(record.turn_number);
        let signature = hex::decode(fact["signature"].as_str().expect("a signature")).expect("hexadecimal");
        let signature = ed25519_dalek::Signature::from_slice(&signature).expect("64 bytes");
        let holds = |record: &InboundRecord| {
            public.verify_strict(&canonical_json(record).expect("canonical"), &signature).is_ok()
        };
        assert!(holds(&record), "{row}");
        record.turn_number += 1;
        assert!(!holds(&record), "another turn number breaks the signature");
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn needs_userns_a_message_that_comes_during_a_turn_is_taken_in() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let bench = Bench::new("anthropic", move |request: &ParsedRequest| {
        if request.results().next().is_none() {
            return Reply::call("file_read", json!({"path": "."}))
                .with_fault(ReplyFault::SlowFirstByte(held.clone()));
        }
        Reply::text("Both heard.")
    });
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, Some(&bench.project())).expect("joined");
    link.say("first request", "one").expect("sent");
    bench.held_back();
    link.say("second request", "two").expect("sent");
    let second = |numbered: writ_types::frame::Numbered| {
        let ServerFrame::Accepted { client_id, .. } = numbered.frame else { return None };
        (client_id == "two").then_some(())
    };
    link.until(second).expect("accepted");
    gate.open();
    assert_eq!(link.answer().expect("answered").text, "Both heard.");
    let last = bench.requests().pop().expect("a request");
    assert!(last.contains("first request") && last.contains("second request"), "{last}");
    let status = link.call("status", json!({})).expect("answered");
    assert_eq!(status["queue"], json!({"ready": 0, "leased": 0, "dead": 0}));
    assert_eq!((numbers(&bench), bench.count("received"), bench.count("replied")), (vec![1], 2, 1));
    assert_eq!(engine.stop().code, Some(0));
}

/// Rows: SIL-044
#[test]
fn messages_of_one_session_are_answered_one_after_another() {
    let bench = Bench::new("openai", calls(Vec::new(), "Next."));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, None).expect("joined");
    for n in 0..20 {
        link.say(&format!("message {n}"), &format!("m{n}")).expect("sent");
    }
    let mut answers = 0;
    loop {
        let status = link.call("status", json!({})).expect("answered");
        if status["queue"] == json!({"ready": 0, "leased": 0, "dead": 0}) && status["running"] == json!([]) {
            break;
        }
    }
    assert_eq!(engine.stop().code, Some(0));
    // Turns never overlap: each ends before the next one starts.
    let mut rows = bench.events("phase");
    rows.sort_by_key(|row| row["seq"].as_u64());
    let phases: Vec<&str> = rows.iter().filter_map(|row| row["payload"]["phase"].as_str()).collect();
    for pair in phases.chunks(2) {
        assert_eq!(pair, ["started", "finished"], "{phases:?}");
        answers += 1;
    }
    assert_eq!(bench.count("replied"), answers);
    // Every message is in the last request or has a turn of its own; none is lost.
    let all = bench.requests().concat();
    assert!((0..20).all(|n| all.contains(&format!("message {n}\""))), "{all}");
}

/// Rows: SIL-033 SIL-171
#[test]
fn needs_userns_eight_sessions_at_once_share_neither_words_nor_taint() {
    let bench = Bench::new("openai", |request: &ParsedRequest| {
        let word = request.last_user_text().to_owned();
        let asks_again = request.messages.last().is_some_and(|message| message.results.is_empty());
        if word.contains("read") && asks_again {
            return Reply::call("shell_exec", json!({"argv": ["cat", "a.txt"]}));
        }
        Reply::text(&format!("Heard {word}."))
    });
    std::fs::write(bench.project().join("a.txt"), "foreign words\n").expect("written");
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let work = |n: usize| {
        let mut link = Link::open(&bench.home).expect("connects");
        let session = link.join(None, Some(&bench.project())).expect("joined");
        for round in 0..3 {
            let reads = n.is_multiple_of(2) && round == 1;
            let word = if reads { format!("read<{n}>") } else { format!("word<{n}>") };
            let answer = link.ask(&word, &format!("{n}-{round}")).expect("answered");
            assert_eq!(answer.text, format!("Heard {word}."));
            // What was read taints its turn, and stays in this session's history.
            let tainted = n.is_multiple_of(2) && round >= 1;
            assert_eq!(answer.taint == Some(Taint::External), tainted, "{word} {round}: {answer:?}");
        }
        session
    };
    let sessions: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8).map(|n| scope.spawn(move || work(n))).collect();
        workers.into_iter().map(|worker| worker.join().expect("works")).collect()
    });
    assert_eq!(sessions.iter().collect::<std::collections::BTreeSet<_>>().len(), 8);
    for request in bench.requests() {
        let heard = (0..8).filter(|n| request.contains(&format!("<{n}>"))).count();
        assert_eq!(heard, 1, "a request has words of one session: {request}");
    }
    assert_eq!(engine.stop().code, Some(0));
}

/// A session's turns share a task key while it is good; a new engine has none, and makes one.
#[test]
fn a_session_keeps_its_task_key_from_turn_to_turn() {
    let bench = Bench::new("openai", calls(Vec::new(), "Yes."));
    let minted = || {
        let rows = bench.events("keyed");
        rows.iter().filter(|row| row["payload"]["role"] == "task").count()
    };
    let mut session = None;
    for (n, keys) in [(1, 1), (2, 2)] {
        let engine = Engine::start(&bench.home, &[]).expect("ready");
        let mut link = Link::open(&bench.home).expect("connects");
        session = link.join(session, None);
        // What was said before is told again first.
        for _ in 0..(n - 1) * 3 {
            link.answer().expect("an answer from before");
        }
        for word in ["a", "b", "c"] {
            link.ask(word, &format!("{n}{word}")).expect("answered");
        }
        drop(link);
        assert_eq!(engine.stop().code, Some(0));
        assert_eq!(minted(), keys);
    }
}

/// Each answer repeats everything that was said in its session so far.
///
/// Rows: SCL-096
#[test]
fn a_hundred_sessions_at_once_are_each_answered_with_their_own_words() {
    let bench = Bench::new("openai", |request: &ParsedRequest| {
        let said = request.messages.iter().filter(|message| message.role == Role::User);
        let words = said.flat_map(|message| message.text.split_whitespace());
        let words: Vec<&str> = words.filter(|word| word.starts_with("word<")).collect();
        Reply::text(&format!("Heard {}.", words.join(" ")))
    });
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let work = |n: usize| {
        let mut link = Link::open(&bench.home).expect("connects");
        let session = link.join(None, None).expect("joined");
        for (id, heard) in
            [("a", format!("Heard word<{n}a>.")), ("b", format!("Heard word<{n}a> word<{n}b>."))]
        {
            let answer = link.ask(&format!("word<{n}{id}>"), id).expect("answered");
            assert_eq!(answer.text, heard);
        }
        session
    };
    let sessions: std::collections::BTreeSet<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..100).map(|n| scope.spawn(move || work(n))).collect();
        workers.into_iter().map(|worker| worker.join().expect("works")).collect()
    });
    assert_eq!((sessions.len(), bench.requests().len()), (100, 200));
    assert_eq!(engine.stop().code, Some(0));
}

#[test]
fn the_owners_rules_and_profile_reach_every_request() {
    let bench = Bench::new("anthropic", calls(Vec::new(), "Yes."));
    std::fs::write(bench.home.root().join("RULES.md"), "Always answer in verse.\n").expect("written");
    let added = bench.home.run(&["memory", "add", "The owner likes green tea.", "--kind", "profile"]);
    assert_eq!(code(&added), 0, "{}", text(&added));
    for _ in 0..2 {
        assert_eq!(code(&bench.chat("something else", &["--new"])), 0);
    }
    for request in bench.server.recorded_requests() {
        let system = request.body["system"].to_string();
        assert!(system.contains("Always answer in verse."), "{system}");
        assert!(request.body.to_string().contains("The owner likes green tea."), "{}", request.body);
    }
}

/// Rows: SIL-293
/// Rows: SIL-089 (in part: found by keyword after a restart)
#[test]
fn what_was_remembered_is_found_by_a_later_session() {
    let bench = Bench::new("openai", |request: &ParsedRequest| {
        if let Some(result) = request.results().last() {
            return Reply::text(&format!("It says: {}", result.text));
        }
        match request.last_user_text() {
            "remember" => Reply::call("memory_store", json!({"text": "The deploy server is called heron."})),
            query => Reply::call("memory_search", json!({"query": query})),
        }
    });
    assert_eq!(code(&bench.chat("remember", &[])), 0);
    let found = bench.chat("which deploy server", &["--new"]);
    assert!(text(&found).contains("heron"), "{}", text(&found));
    let unrelated = bench.chat("breakfast porridge", &["--new"]);
    assert!(!text(&unrelated).contains("heron"), "{}", text(&unrelated));
    assert_eq!(bench.count("remembered"), 1);
    let listed = bench.home.json(&["memory", "search", "deploy"]);
    let id = listed.pointer("/hits/0/id").and_then(Value::as_str).expect("a hit").to_owned();
    assert_eq!(code(&bench.home.run(&["memory", "forget", &id])), 0);
    let gone = bench.chat("which deploy server", &["--new"]);
    assert!(!text(&gone).contains("heron"), "{}", text(&gone));
    assert_eq!(code(&bench.home.run(&["memory", "add", "私の犬の名前はレックスです"])), 0);
    let inside = bench.chat("犬の名前は何ですか", &["--new"]);
    assert!(text(&inside).contains("レックス"), "{}", text(&inside));
    let nothing = bench.chat("?!", &["--new"]);
    assert!(text(&nothing).contains("a search needs a letter or a digit"), "{}", text(&nothing));
    let listed = bench.home.run(&["memory", "search", "🎉"]);
    assert!(text(&listed).contains("pictures are not indexed"), "{}", text(&listed));
}

/// Rows: SIL-173
#[test]
fn needs_userns_everything_that_happens_leaves_an_entry() {
    let work = vec![
        ("memory_store", json!({"text": "A fact."})),
        ("shell_exec", json!({"argv": ["false"]})),
        ("file_write", json!({"path": "a.txt", "content": "x"})),
        ("file_read", json!({"path": "a.txt"})),
    ];
    let step = json!({ "tool": "shell_exec", "arguments": { "argv": ["true"] } });
    let plan = (
        "plan_propose",
        json!({ "title": "Nothing much", "steps": [step], "minutes": 20, "branch": "main" }),
    );
    let (mut script, mut planning) = (calls(work, "Done."), calls(vec![plan], "Planned."));
    let bench = Bench::new("anthropic", move |request: &ParsedRequest| match request.last_user_text() {
        // More than a reply may have: the call of the model fails, and the turn with it.
        "break" => Reply::large_arguments("file_write", 1024 * 1024),
        "plan it" => planning(request),
        _ => script(request),
    });
    std::fs::write(
        bench.home.root().join("policies/no.cedar"),
        r#"@id("no-reading") forbid (principal, action == Action::"read_file", resource);"#,
    )
    .expect("written");
    let done = bench.chat("do all of it", &[]);
    assert_eq!(code(&done), 4, "{}", text(&done));
    let approved = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    let planned = bench.chat("plan it", &["--new"]);
    assert_eq!(code(&planned), 5, "{}", text(&planned));
    let (plan, outcomes) = (bench.ask(), bench.count("outcome"));
    assert_eq!(code(&bench.home.run(&["approvals", "approve", &plan, "--yes"])), 0);
    assert!(
        bench.count("planned") == 1 && bench.count("outcome") > outcomes,
        "a plan, and what was done of it"
    );
    for event in [
        "keyed",
        "received",
        "gated",
        "phase",
        "intent",
        "outcome",
        "model_called",
        "remembered",
        "asked",
        "answered",
        "denied",
        "applied",
        "replied",
    ] {
        assert!(bench.count(event) > 0, "{event}");
    }
    let has = |event: &str, key: &str, value: &str| {
        bench.events(event).iter().any(|row| row["payload"][key] == value)
    };
    assert!(has("outcome", "outcome", "failed"), "the failing tool: {:?}", bench.events("outcome"));
    assert!(bench.events("denied").iter().any(|row| row.to_string().contains("no-reading")));
    assert!(!has("phase", "phase", "failed"), "{:?}", bench.events("phase"));
    let calls = bench.count("model_called");
    let failed = bench.chat("break", &["--new"]);
    assert_eq!(code(&failed), 7, "{}", text(&failed));
    assert!(has("phase", "phase", "failed"), "the failing turn: {:?}", bench.events("phase"));
    assert_eq!(bench.count("model_called"), calls + 1, "and the call that failed");
}
