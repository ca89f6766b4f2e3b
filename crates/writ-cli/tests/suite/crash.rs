//! The engine is killed at both sides of every commit of a turn, and started again.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::entry::Decision;
use writ_types::frame::ServerFrame;
use writ_types::id::SessionId;

use super::engine::{Engine, Link};
use super::turns::{Bench, calls};
use super::{Home, code, text};

/// How many homes are worked on at once.
const WORKERS: usize = 4;
/// More commits than a turn with two tools and an approval has.
const MOST_COMMITS: u64 = 80;

/// What a client knows that comes back after its engine was killed.
#[derive(Debug, Default)]
struct Client {
    session: Option<SessionId>,
    /// The approval was sent.
    approved: bool,
    answer: String,
    status: Value,
}

impl Client {
    /// Does whatever is left to do; `None`: the engine is gone.
    fn go_on(&mut self, home: &Home) -> Option<()> {
        let mut link = Link::open(home)?;
        if self.session.is_none() {
            // The engine may have died before it said which session it has opened.
            let listed = link.call("sessions.list", json!({}))?;
            let id = listed.pointer("/sessions/0/session").and_then(Value::as_str);
            self.session = id.map(|id| id.parse().expect("an id"));
        }
        self.session = Some(link.join(self.session, Some(&home.dir.path().join("project")))?);
        // Sent again and again: the engine knows the message by its id.
        self.answer = link.ask("please work", "one")?.text;
        for card in link.asks()? {
            if card.state == "open" {
                self.approved = true;
                let state = link.decide(&card.ask_id, Decision::Approve, None)?;
                assert_eq!(state.as_deref(), Ok("applied"));
            }
        }
        self.status = link.call("status", json!({}))?;
        Some(())
    }
}

pub(super) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("made");
    std::fs::set_permissions(to, from.metadata().expect("there").permissions()).expect("set");
    for entry in std::fs::read_dir(from).expect("reads") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

/// Entries of the ledger, oldest first.
fn entries(home: &Home) -> Vec<Value> {
    let output = home.run(&["audit", "export"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    lines.lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
}

/// What a run has shown.
#[derive(Debug, Default)]
struct Shown {
    killed: bool,
    /// The approval was written, and performed by the next engine.
    performed_at_start: bool,
    /// How the program ended, and what was applied, as the ledger has it.
    ends: [Option<String>; 2],
    point: String,
}

/// One home whose engine is killed at `point`.
fn killed_at(template: &Home, point: &str) -> Shown {
    let home = Home { dir: tempfile::tempdir().expect("temp dir"), env: template.env.clone(), within: None };
    copy(&template.root(), &home.root());
    std::fs::create_dir(home.dir.path().join("project")).expect("made");
    let (mut client, mut shown) = (Client::default(), Shown::default());
    let ended = match Engine::start(&home, &[("WRIT_KILL_POINT", point)]) {
        Err(ended) => ended,
        Ok(mut engine) => match client.go_on(&home) {
            None => engine.wait(),
            Some(()) => engine.stop(),
        },
    };
    shown.killed = ended.code != Some(0);
    if shown.killed {
        assert_eq!(ended.signal, Some(6), "{point}: {}", ended.said);
        let sent = client.approved;
        client.approved = false;
        let engine = Engine::start(&home, &[]).unwrap_or_else(|ended| panic!("{point}: {ended:?}"));
        assert_eq!(client.go_on(&home), Some(()), "{point}: the engine that recovers stays");
        assert_eq!(engine.stop().code, Some(0), "{point}");
        shown.performed_at_start = sent && !client.approved;
    }
    check(&home, &client, point, &mut shown);
    shown
}

fn check(home: &Home, client: &Client, point: &str, shown: &mut Shown) {
    let verified = home.run(&["audit", "verify"]);
    assert_eq!(code(&verified), 0, "{point}: {}", text(&verified));
    let entries = entries(home);
    let of =
        |event: &str| -> Vec<&Value> { entries.iter().filter(|entry| entry["event"] == event).collect() };
    let fact = |entry: &Value, path: &str| entry.pointer(&format!("/payload{path}")).cloned();
    // The message was stored once, answered once, and the answer is the model's.
    assert_eq!((of("received").len(), of("replied").len()), (1, 1), "{point}");
    assert_eq!(client.answer, "Done.", "{point}");
    assert_eq!(client.status["queue"], json!({ "ready": 0, "leased": 0, "dead": 0 }), "{point}");
    // Each tool was begun once. Whatever has no end is listed, or written down as unknown.
    let intents = |kind: &str, place: Option<&str>| -> Vec<Value> {
        of("intent")
            .into_iter()
            .filter(|entry| {
                fact(entry, "/action/kind") == Some(kind.into())
                    && place.is_none_or(|place| fact(entry, "/action/place") == Some(place.into()))
            })
            .map(|entry| fact(entry, "/attempt").expect("an attempt"))
            .collect()
    };
    let outcome = |attempt: &Value| {
        of("outcome").into_iter().find(|entry| fact(entry, "/attempt").as_ref() == Some(attempt)).map(
            |entry| {
                fact(entry, "/outcome")
                    .and_then(|outcome| outcome.as_str().map(str::to_owned))
                    .expect("an outcome")
            },
        )
    };
    let listed: Vec<Value> = client.status["open_intents"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|open| open["attempt"].clone())
        .collect();
    let (runs, writes) = (intents("exec", None), intents("write_file", Some("overlay")));
    assert_eq!((runs.len(), writes.len()), (1, 1), "{point}: each tool was begun once");
    let applies = intents("write_file", Some("project"));
    for attempt in runs.iter().chain(&writes).chain(&applies) {
        let ended = outcome(attempt);
        assert!(ended.is_some() != listed.contains(attempt), "{point}: {attempt} {ended:?} {listed:?}");
    }
    // What was applied, was applied once, and is what the program wrote: one line.
    let counter = std::fs::read_to_string(home.dir.path().join("project/counter.txt")).unwrap_or_default();
    assert!(counter.is_empty() || counter == "ran\n", "{point}: {counter:?}");
    assert!(applies.len() <= 1 && of("applied").len() <= 1, "{point}");
    let ran = outcome(&runs[0]).expect("an end");
    shown.ends = [Some(ran.clone()), applies.first().and_then(outcome)];
    point.clone_into(&mut shown.point);
    assert!(ran == "done" || ran == "unknown", "{point}: {ran}");
    match applies.first().map(outcome) {
        Some(Some(applied)) => {
            // An end that was lost is written down as unknown, whatever it was.
            assert!(applied == "done" || applied == "unknown", "{point}: {applied}");
            assert!(
                applied == "unknown" || ran == "unknown" || counter == "ran\n",
                "{point}: what is done is there"
            );
        }
        // The engine ended between the approval's use and its outcome: it is listed.
        Some(None) => {}
        None => panic!("{point}: an approved ask was not performed"),
    }
}

/// Rows: SIL-041 (in part: a turn, not yet a work item)
/// Rows: SIL-165 SCL-192
#[test]
fn needs_userns_a_kill_at_either_side_of_any_commit_loses_and_repeats_nothing() {
    let bench = Bench::new(
        "anthropic",
        calls(
            vec![
                ("shell_exec", json!({"argv": ["sh", "-c", "echo ran >> counter.txt"]})),
                ("file_write", json!({"path": "b.txt", "content": "new\n"})),
            ],
            "Done.",
        ),
    );
    let mut all = Vec::new();
    for side in ["store.before_commit", "store.after_commit"] {
        let (next, over) = (AtomicU64::new(1), AtomicBool::new(false));
        let work = || {
            let mut shown = Vec::new();
            while !over.load(Ordering::SeqCst) {
                let point = format!("{side}:{}", next.fetch_add(1, Ordering::SeqCst));
                let run = killed_at(&bench.home, &point);
                if !run.killed {
                    over.store(true, Ordering::SeqCst);
                }
                shown.push(run);
            }
            shown
        };
        let shown: Vec<Shown> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("a worker's checks hold")).collect()
        });
        let kills = shown.iter().filter(|run| run.killed).count();
        assert!(kills >= 16, "{side}: a turn has more commits than {kills}");
        assert!(next.load(Ordering::SeqCst) <= MOST_COMMITS, "{side}: {kills} commits");
        all.extend(shown);
    }
    let lost = |n: usize| all.iter().any(|run| run.ends[n].as_deref() == Some("unknown"));
    assert!(lost(0) && lost(1), "at some points the end of the program, and of applying, was lost: {all:#?}");
    assert!(all.iter().any(|run| run.performed_at_start), "at some point an approval waited for the start");
}

/// A stored turn names the rows of its history and does not repeat them. History lies in the one database (design 3.15), not in
/// a file for each session; the kills come at every commit, before the model is asked and after it.
///
/// Rows: SCL-040 SCL-166
#[test]
fn a_turn_that_is_taken_up_again_knows_its_history() {
    let bench = Bench::new("openai", calls(Vec::new(), "Heard."));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, None).expect("joined");
    link.ask("the word is heron", "one").expect("answered");
    drop(link);
    assert_eq!(engine.stop().code, Some(0));
    let mut asked_again = 0;
    for n in 1..=MOST_COMMITS {
        let home =
            Home { dir: tempfile::tempdir().expect("temp dir"), env: bench.home.env.clone(), within: None };
        copy(&bench.home.root(), &home.root());
        let point = format!("store.after_commit:{n}");
        let mut killed = true;
        if let Ok(mut engine) = Engine::start(&home, &[("WRIT_KILL_POINT", &point)]) {
            let ask = |mut link: Link| {
                link.join(Some(session), None)?;
                link.answer()?;
                link.ask("which word?", "two")
            };
            let answered = Link::open(&home).and_then(ask).is_some();
            let ended = if answered { engine.stop() } else { engine.wait() };
            killed = ended.code != Some(0);
            assert_eq!(ended.signal == Some(6), killed, "{point}: {}", ended.said);
        }
        if !killed {
            break;
        }
        let before = bench.server.recorded_requests().len();
        let engine = Engine::start(&home, &[]).expect("ready");
        let mut link = Link::open(&home).expect("connects");
        assert_eq!(link.join(Some(session), None), Some(session), "{point}");
        link.answer().expect("the first answer is kept");
        assert_eq!(link.ask("which word?", "two").expect("answered").text, "Heard.", "{point}");
        drop(link);
        assert_eq!(engine.stop().code, Some(0), "{point}");
        let resumed = entries(&home).iter().any(|entry| entry["payload"]["phase"] == "resumed");
        for request in bench.server.recorded_requests().iter().skip(before).filter(|_| resumed) {
            let said = request.body.to_string();
            assert!(said.contains("the word is heron") && said.contains("which word?"), "{point}: {said}");
            asked_again += 1;
        }
    }
    assert!(asked_again > 0, "no turn was taken up again before its model was asked");
}

/// History lies in the one database (design 3.15), not in a file for each session; what was used of a budget, too.
///
/// Rows: SF-171
/// Rows: SIL-035 SIL-297 SCL-040 SCL-166 (in part: killed between two turns)
#[test]
fn a_killed_engine_leaves_what_was_said_and_what_was_used() {
    let bench = Bench::new("openai", |_: &ParsedRequest| Reply::text("Heard.").with_usage(700, 11));
    let bench = bench.in_processes();
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, None).expect("joined");
    for (text, id) in [("the word is heron", "one"), ("and", "two"), ("so on", "three")] {
        assert_eq!(link.ask(text, id).expect("answered").text, "Heard.");
    }
    engine.signal(nix::sys::signal::Signal::SIGKILL);
    let mut engine = engine;
    assert_eq!(engine.wait().signal, Some(9));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let used = |link: &mut Link| {
        let report = link.call("budget.report", json!({ "by": "session" })).expect("answered");
        let [row] = report["rows"].as_array().expect("rows").as_slice() else { panic!("{report}") };
        assert_eq!(row["name"], session.to_string(), "{report}");
        ["model_calls", "input", "output"].map(|name| row[name].as_u64().expect("a number"))
    };
    assert_eq!(used(&mut link), [3, 2_100, 33], "as after the third turn");
    assert_eq!(link.join(Some(session), None), Some(session));
    for _ in 0..3 {
        link.answer().expect("what was answered is kept");
    }
    link.ask("which word?", "four").expect("answered");
    let last = bench.server.recorded_requests().pop().expect("a request").body.to_string();
    assert!(last.contains("the word is heron") && last.contains("Heard."), "{last}");
    assert_eq!(used(&mut link), [4, 2_800, 44]);
    assert_eq!(engine.stop().code, Some(0));
    assert_eq!(bench.home.root().metadata().expect("there").permissions().mode() & 0o777, 0o700);
}

/// Rows: SIL-207
#[test]
fn a_message_is_kept_from_the_moment_it_is_accepted_and_one_without_a_text_is_refused() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let bench = Bench::new("openai", move |request: &ParsedRequest| {
        let said = format!("Heard: {}", request.last_user_text());
        Reply::text(&said).with_fault(ReplyFault::SlowFirstByte(held.clone()))
    })
    .in_processes();
    let mut engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, None).expect("joined");
    link.bytes(b"{\"type\":\"message\",\"client_id\":\"a\"}\n").expect("sent");
    assert_eq!(link.refusal().expect("refused").0, "frame.invalid");
    link.say("the word is heron", "b").expect("sent");
    link.until(|numbered| matches!(numbered.frame, ServerFrame::Accepted { .. }).then_some(()))
        .expect("accepted");
    engine.signal(nix::sys::signal::Signal::SIGKILL);
    assert_eq!(engine.wait().signal, Some(9));
    gate.open();
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(Some(session), None).expect("joined");
    assert_eq!(link.answer().expect("answered").text, "Heard: the word is heron");
    assert_eq!(bench.count("received"), 1);
    assert_eq!(engine.stop().code, Some(0));
}
