//! Approvals raced for, approvals used again, and engines that want the same home.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::sync::Barrier;

use serde_json::{Value, json};
use writ_policy::approval::ApprovalToken;
use writ_testkit::model_server::{ParsedRequest, Reply};
use writ_types::entry::Decision;
use writ_types::id::AskId;

use super::engine::{Engine, Link};
use super::rows_sil::keys::{approver, claims, public};
use super::turns::Bench;
use super::{Home, code, text};

/// Racers for each approval.
const RACERS: usize = 8;
/// Approvals that are raced for.
const ASKS: usize = 200;
/// As many tool calls as one turn may make.
const BATCH: usize = 20;
/// How often the same signed approval is sent at once.
const REPLAYS: usize = 100;

/// Every memory is asked for: the cheapest action to ask about.
const ASK_REMEMBER: &str = r#"@id("ask-remember") @ask("Every memory is asked for.")
forbid (principal, action == Action::"remember", resource);"#;

/// A model that wants to remember as much at once as it may, different with each message.
fn remembers(request: &ParsedRequest) -> Reply {
    let last = request.messages.last().expect("a message");
    if !last.results.is_empty() {
        return Reply::text("It waits.");
    }
    let batch = request.last_user_text().to_owned();
    (0..BATCH).fold(Reply::default(), |reply, n| {
        reply.and_call("memory_store", json!({ "text": format!("{batch} item {n}") }))
    })
}

fn bench() -> Bench {
    let bench = Bench::new("openai", remembers).in_processes();
    std::fs::write(bench.home.root().join("policies/ask.cedar"), ASK_REMEMBER).expect("written");
    bench
}

/// Opens asks, a batch with each message, and returns them.
fn open_asks(home: &Home, batches: usize) -> Vec<AskId> {
    let mut link = Link::open(home).expect("connects");
    link.join(None, None).expect("joined");
    for n in 0..batches {
        let answer = link.ask(&format!("batch {n}"), &format!("m{n}")).expect("answered");
        assert_eq!(answer.exit.code(), 5, "{}", answer.text);
    }
    let asks = link.asks().expect("asks");
    assert_eq!(asks.len(), batches * BATCH);
    asks.into_iter().map(|card| card.ask_id).collect()
}

fn memories(home: &Home) -> (usize, usize) {
    let conn = rusqlite::Connection::open(home.database()).expect("opens");
    let sql = "SELECT count(*), count(DISTINCT text) FROM memory";
    let (all, distinct): (i64, i64) =
        conn.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).expect("counts");
    (usize::try_from(all).expect("few"), usize::try_from(distinct).expect("few"))
}

/// A process of its own that answers asks, connected and waiting for them.
#[expect(clippy::disallowed_types, reason = "the test starts the clients of the engine that it tests")]
fn racer(home: &Home) -> Child {
    let mut child = std::process::Command::new("python3")
        .args(["-c", include_str!("racer.py")])
        .arg(home.root().join("runtime/control.sock"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let mut ready = [0; 6];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("it is ready");
    assert_eq!(&ready, b"ready\n");
    child
}

/// Rows: SIL-300 WIN-237
#[test]
fn needs_python_two_hundred_approvals_raced_by_eight_processes_are_performed_once_each() {
    let bench = bench();
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let asks = open_asks(&bench.home, ASKS / BATCH);
    assert_eq!(memories(&bench.home).0, 0, "nothing before the approvals");
    let mut racers: Vec<Child> = (0..RACERS).map(|_| racer(&bench.home)).collect();
    for (n, racer) in racers.iter_mut().enumerate() {
        // Each begins elsewhere, so that all of them win some however they are scheduled.
        let (before, from) = asks.split_at(n * asks.len() / RACERS);
        let line = from.iter().chain(before).map(AskId::as_str).collect::<Vec<_>>().join("\n");
        racer.stdin.take().expect("a pipe").write_all(line.as_bytes()).expect("told");
    }
    let racers: Vec<Vec<String>> = racers
        .into_iter()
        .enumerate()
        .map(|(n, racer)| {
            let output = racer.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{output:?}");
            let mut answers: Vec<String> =
                String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
            answers.rotate_right(n * asks.len() / RACERS);
            answers
        })
        .collect();
    for n in 0..asks.len() {
        let said = |word: &str| racers.iter().filter(|answers| answers[n] == word).count();
        assert_eq!((said("applied"), said("ask.closed")), (1, RACERS - 1), "ask {n}: {racers:?}");
    }
    let winners = racers.iter().filter(|answers| answers.iter().any(|answer| answer == "applied")).count();
    assert!(winners > 1, "it was a race");
    assert_eq!(memories(&bench.home), (ASKS, ASKS), "each was performed once");
    assert_eq!(bench.count("remembered"), ASKS);
    let times = |event: &str, path: &str| {
        let rows = bench.events(event);
        let of = |ask: &AskId| rows.iter().filter(|row| row.pointer(path) == Some(&json!(ask))).count();
        asks.iter().map(of).collect::<BTreeSet<usize>>()
    };
    let once = BTreeSet::from([1]);
    assert_eq!(times("answered", "/payload/ask"), once, "each has one yes");
    assert_eq!(times("intent", "/payload/approval"), once, "each yes was acted on once");
    let denied = bench.count("denied");
    assert_eq!(denied, ASKS * (RACERS - 1), "every refused answer is in the ledger");
    println!("THREAT 1 attempts={denied} refused={denied} entries={denied} entry=denied twins={ASKS}");
    let mut link = Link::open(&bench.home).expect("connects");
    assert!(link.asks().expect("asks").iter().all(|card| card.state == "used"));
    assert_eq!(engine.stop().code, Some(0));
    let verified = bench.home.run(&["audit", "verify"]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
}

/// Threat 1: the very same signed approval, from a hundred connections at once, and once more after all of them. Its ask
/// is closed then; that its nonce counts once is shown where approvals are redeemed.
///
/// Rows: SIL-165 (in part)
#[test]
fn one_signed_approval_sent_a_hundred_times_at_once_is_used_once() {
    let bench = bench();
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let ask = open_asks(&bench.home, 1).swap_remove(0);
    let mut link = Link::open(&bench.home).expect("connects");
    let status = link.call("status", json!({})).expect("a status");
    let card = link.asks().expect("asks").into_iter().find(|card| card.ask_id == ask).expect("a card");
    let key = approver(&bench.home);
    let token = ApprovalToken::sign_claims(claims(&status, &card, 1, public(&key)), &key).expect("signs");
    let token = serde_json::to_value(token).expect("JSON");
    let start = Barrier::new(REPLAYS);
    let replay = || {
        let mut link = Link::open(&bench.home).expect("connects");
        start.wait();
        link.decide(&ask, Decision::Approve, Some(token.clone())).expect("an answer")
    };
    let answers: Vec<Result<String, String>> = std::thread::scope(|scope| {
        let replays: Vec<_> = (0..REPLAYS).map(|_| scope.spawn(replay)).collect();
        replays.into_iter().map(|replay| replay.join().expect("answered")).collect()
    });
    let won = answers.iter().filter(|answer| answer.as_deref() == Ok("applied")).count();
    let lost =
        answers.iter().filter(|answer| answer.as_ref().is_err_and(|code| code == "ask.closed")).count();
    assert_eq!((won, lost), (1, REPLAYS - 1), "{answers:?}");
    let late = link.decide(&ask, Decision::Approve, Some(token));
    assert_eq!(late, Some(Err("ask.closed".to_owned())));
    assert_eq!(memories(&bench.home), (1, 1));
    assert_eq!((bench.count("answered"), bench.count("remembered")), (1, 1));
    assert_eq!(bench.count("denied"), REPLAYS, "every replay is in the ledger");
    let refused = lost + usize::from(late.is_some_and(|late| late.is_err()));
    println!("THREAT 1 attempts={REPLAYS} refused={refused} entries={REPLAYS} entry=denied twins=1");
    assert_eq!(engine.stop().code, Some(0));
}

/// Rows: SIL-165 SIL-300 WIN-235
#[test]
fn a_used_approval_and_one_for_something_else_are_refused_and_logged() {
    let bench = bench();
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let asks = open_asks(&bench.home, 1);
    let [first, second, third, ..] = asks.as_slice() else { panic!("too few asks") };
    let approved = bench.home.run(&["approvals", "approve", first.as_str(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    let token: Value = {
        let conn = rusqlite::Connection::open(bench.home.database()).expect("opens");
        let token: String =
            conn.query_row("SELECT token FROM approval", [], |row| row.get(0)).expect("a token");
        serde_json::from_str(&token).expect("JSON")
    };
    let mut link = Link::open(&bench.home).expect("connects");
    let replayed = link.decide(first, Decision::Approve, Some(token.clone()));
    assert_eq!(replayed, Some(Err("ask.closed".to_owned())));
    let moved = link.decide(second, Decision::Approve, Some(token.clone()));
    assert_eq!(moved, Some(Err("approval.invalid".to_owned())), "a token is good for one ask");
    let mut forged = token;
    forged["claims"]["ask"] = json!(second);
    let forged = link.decide(second, Decision::Approve, Some(forged));
    assert_eq!(forged, Some(Err("approval.invalid".to_owned())));
    assert_eq!(memories(&bench.home), (1, 1));
    let denied: Vec<String> = bench.events("denied").iter().map(Value::to_string).collect();
    for (ask, wanted) in [(first, 1), (second, 2)] {
        let found = denied.iter().filter(|entry| entry.contains(&format!("ask {ask}"))).count();
        assert_eq!(found, wanted, "{denied:?}");
    }
    // Denied is denied, and logged; what is unknown is refused.
    assert_eq!(link.decide(third, Decision::Deny, None), Some(Ok("denied".to_owned())));
    assert_eq!(link.decide(third, Decision::Approve, None), Some(Err("ask.closed".to_owned())));
    let many: BTreeSet<AskId> = (0..10_000).map(|_| AskId::from_random(rand::random())).collect();
    assert_eq!(many.len(), 10_000, "nobody meets an id by chance");
    let base62 =
        |id: &AskId| id.as_str().len() == 8 && id.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric());
    assert!(many.iter().chain(&asks).all(base62));
    let unknown: AskId = "AAAAAAAA".parse().expect("an id");
    assert_eq!(link.decide(&unknown, Decision::Approve, None), Some(Err("ask.unknown".to_owned())));
    assert_eq!(memories(&bench.home), (1, 1));
    let states: BTreeMap<String, String> =
        link.asks().expect("asks").into_iter().map(|card| (card.ask_id.to_string(), card.state)).collect();
    let state = |ask: &AskId| states.get(ask.as_str()).map(String::as_str);
    assert_eq!((state(first), state(second), state(third)), (Some("used"), Some("open"), Some("denied")));
    assert_eq!(engine.stop().code, Some(0));
}

/// Rows: SIL-300
#[test]
fn eight_processes_approve_one_ask_and_one_of_them_wins() {
    let bench = bench();
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let asks = open_asks(&bench.home, 1);
    let ask = asks.first().expect("an ask").as_str();
    let approve = || code(&bench.home.run(&["approvals", "approve", ask, "--yes"]));
    let mut codes: Vec<i32> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS).map(|_| scope.spawn(approve)).collect();
        racers.into_iter().map(|racer| racer.join().expect("races")).collect()
    });
    codes.sort_unstable();
    assert_eq!(codes, [0, 4, 4, 4, 4, 4, 4, 4]);
    assert_eq!(memories(&bench.home), (1, 1));
    assert_eq!(engine.stop().code, Some(0));
}

/// Rows: WIN-429 (a second one is refused)
#[test]
fn a_second_engine_on_the_same_home_ends_with_10_and_names_the_first() {
    let home = Home::ready().in_processes();
    let engine = Engine::start(&home, &[]).expect("ready");
    let second = Engine::start(&home, &[]).err().expect("it does not start");
    assert_eq!(second.code, Some(10), "{}", second.said);
    assert!(second.said.contains(&format!("process {}", engine.pid())), "{}", second.said);
    assert_eq!(home.json(&["status"])["engine"], "running", "the first goes on");
    assert_eq!(engine.stop().code, Some(0));
    let third = Engine::start(&home, &[]).expect("the home is free again");
    assert_eq!(third.stop().code, Some(0));
}
