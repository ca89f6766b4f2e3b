//! Many turns in one engine.

use std::time::Instant;

use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply};

use super::engine::{Engine, Link};
use super::turns::Bench;

/// Turns before memory is measured: caches and pools have filled by then.
const WARM_UP: usize = 40;
/// The most that an engine may grow by over a hundred turns, in bytes (design 5).
const MOST_GROWTH: i64 = 2 * 1024 * 1024;

/// What the engine has for itself alone. Pages of its program are left out: whether they count depends on who
/// else runs it at the moment.
fn own_bytes(engine: &Engine) -> i64 {
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", engine.pid())).expect("reads");
    let line = rollup.lines().find(|line| line.starts_with("Anonymous:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<i64>().ok()).expect("a number") * 1024
}

/// Rows: SIL-306
#[test]
fn needs_userns_fifty_mixed_turns_end_without_a_crash() {
    let bench = Bench::new("openai", |request: &ParsedRequest| {
        let fresh = request.messages.last().is_some_and(|message| message.results.is_empty());
        match request.last_user_text().split(' ').next() {
            Some("tool") if fresh => {
                Reply::call("shell_exec", json!({"argv": ["echo", request.last_user_text()]}))
            }
            Some("failing") if fresh => Reply::call("file_read", json!({"path": "missing.txt"})),
            Some("wrong") if fresh => Reply::call("no_such_tool", json!({})),
            Some("writing") if fresh => {
                Reply::call("file_write", json!({"path": "a.txt", "content": request.last_user_text()}))
            }
            Some("error") => Reply::status(400),
            Some("cut") => {
                Reply::text("a b c d").with_fault(writ_testkit::model_server::ReplyFault::CutAfter(3))
            }
            _ => Reply::text("Well."),
        }
    });
    let bench = bench.in_processes();
    let engine = Engine::start(&bench.home, &[("WRIT_MODELS__BACKOFF_BASE_MS", "1")]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, Some(&bench.project())).expect("joined");
    let kinds: [(&str, &[u8]); 8] = [
        ("plain", &[0, 5]),
        ("tool", &[0, 5]),
        ("failing", &[0, 5]),
        ("wrong", &[0, 5]),
        ("writing", &[5]),
        ("error", &[7]),
        ("cut", &[7]),
        ("please DROP TABLE x", &[4]),
    ];
    for n in 0..50 {
        let (kind, exits) = kinds[n % kinds.len()];
        let answer = link.ask(&format!("{kind} {n}"), &format!("m{n}")).expect("the engine is there");
        assert!(exits.contains(&answer.exit.code()), "{kind} {n}: {answer:?}");
    }
    assert_eq!(bench.count("replied"), 50);
    let ended = engine.stop();
    assert_eq!(ended.code, Some(0));
    assert!(!ended.said.contains("panicked"), "{}", ended.said);
    let log = std::fs::read_to_string(bench.home.root().join("logs/writ.jsonl")).unwrap_or_default();
    assert!(!log.contains("panicked"), "{log}");
}

/// Rows: SIL-308
#[test]
fn needs_userns_a_hundred_turns_do_not_make_the_engine_grow() {
    let bench = Bench::new("anthropic", |request: &ParsedRequest| {
        let fresh = request.messages.last().is_some_and(|message| message.results.is_empty());
        if fresh {
            Reply::call("shell_exec", json!({"argv": ["echo", "a line"]}))
        } else {
            Reply::text("Well.")
        }
    });
    // It is about memory, not about what the turns cost.
    let bench = bench.in_processes();
    let engine =
        Engine::start(&bench.home, &[("WRIT_BUDGET__MAX_TOKENS_PER_SESSION", "5000000")]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, None).expect("joined");
    let mut turn = |n: usize| {
        let answer = link.ask(&format!("turn {n}"), &format!("m{n}")).expect("answered");
        assert_eq!(answer.text, "Well.");
    };
    (0..WARM_UP).for_each(&mut turn);
    let before = own_bytes(&engine);
    let started = Instant::now();
    (WARM_UP..WARM_UP + 100).for_each(&mut turn);
    let after = own_bytes(&engine);
    eprintln!("{before} -> {after} bytes, {} ms", started.elapsed().as_millis());
    assert!(after - before <= MOST_GROWTH, "from {before} to {after} bytes");
    assert_eq!(engine.stop().code, Some(0));
}
