//! What a session that is closed has left ends at once, whoever closes it and whatever breaks off meanwhile.

use std::process::Output;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::error::Exit;
use writ_types::frame::{ClientFrame, Numbered, ServerFrame};
use writ_types::id::SessionId;

use super::engine::{Engine, Link, runs, unique_word};
use super::interrupted::{end, sleeps, until_runs};
use super::turns::{Bench, calls};
use super::{code, text};

/// A program that could reach a host that nobody has listed, so it is asked about.
fn reaching() -> Value {
    json!({ "argv": ["true"], "hosts": ["unlisted.example"] })
}

/// How often the agent's programs were begun.
fn begun(bench: &Bench) -> usize {
    let intents = bench.events("intent");
    intents.iter().filter(|row| row["payload"]["action"]["profile"] == "task").count()
}

/// The states of all asks.
fn states(link: &mut Link) -> Vec<String> {
    link.asks().expect("listed").into_iter().map(|card| card.state).collect()
}

/// Calls what is refused: its code.
fn refused(link: &mut Link, method: &str, params: Value) -> String {
    link.send(&ClientFrame::Call { id: 1_000, method: method.to_owned(), params }).expect("sent");
    let (code, exit) = link.refusal().expect("refused");
    assert_eq!(exit, Exit::Usage);
    code
}

fn waiting(link: &mut Link) -> Value {
    link.call("status", json!({})).expect("answered")["queue"]["ready"].clone()
}

/// Who waits behind a turn is told at once that nothing comes any more, and no model is asked about it.
#[test]
fn needs_userns_messages_behind_the_turn_of_a_closed_session_end_with_it() {
    let word = unique_word();
    let bench = Bench::new("openai", sleeps(word));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    link.say("please sleep", "one").expect("sent");
    until_runs(word);
    let asked = bench.requests().len();
    for id in ["two", "three"] {
        link.say("and this", id).expect("sent");
    }
    let mut other = Link::open(&bench.home).expect("connects");
    while waiting(&mut other) != json!(2) {
        std::thread::yield_now();
    }
    other.call("sessions.close", json!({ "session": session })).expect("closed");
    let mut open = vec!["one", "two", "three"];
    while !open.is_empty() {
        let answers = link.until(|Numbered { frame, .. }| {
            if let ServerFrame::Message { answers, exit, last: true, .. } = frame {
                assert_eq!(exit, Exit::Interrupted);
                return Some(answers);
            }
            let ServerFrame::Error { answers, code, .. } = frame else { return None };
            assert_eq!(code, "session.closed");
            Some(answers)
        });
        let answers = answers.expect("whoever waits is told");
        open.retain(|id| !answers.iter().any(|answered| answered == id));
    }
    assert_eq!(waiting(&mut other), json!(0));
    assert_eq!(bench.requests().len(), asked, "nobody works on them");
    assert_eq!(engine.stop().code, Some(0));
}

/// A gate looks at what a person has just approved when the session is closed: whatever it says then, nothing is done, and the
/// question is over.
#[test]
fn needs_userns_what_was_approved_and_waits_in_gates_is_not_done_after_closing() {
    let bench = Bench::new("openai", calls(vec![("shell_exec", reaching())], "It waits."));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    assert_eq!(link.ask("do it", "one").expect("answered").exit, Exit::Waiting);
    let ask = bench.ask();
    assert_eq!(engine.stop().code, Some(0));
    // Only now: it would hold the turn that asks as well.
    let word = unique_word();
    let gate = format!(
        "[[gates]]\nname = \"slow\"\non = \"execution\"\nprovider = \"script\"\ntimeout_ms = 60000\n\
         script = '''\nsleep {word}\nexit 0\n'''\n"
    );
    std::fs::write(bench.home.root().join("config.toml"), gate).expect("written");
    let engine = Engine::start(&bench.home, &[]).expect("ready again");
    let mut link = Link::open(&bench.home).expect("connects");
    let approved: Output = std::thread::scope(|scope| {
        let approving = scope.spawn(|| bench.home.run(&["approvals", "approve", &ask, "--yes"]));
        until_runs(word);
        link.call("sessions.close", json!({ "session": session })).expect("closed");
        end(word);
        approving.join().expect("ends")
    });
    assert_eq!(code(&approved), 2, "{}", text(&approved));
    assert!(text(&approved).contains("was closed"), "{}", text(&approved));
    assert_eq!((begun(&bench), states(&mut link)), (0, vec!["expired".to_owned()]));
    let answered = bench.events("answered");
    assert_eq!(answered.len(), 1, "the yes itself is on record: {answered:?}");
    assert_eq!(engine.stop().code, Some(0));
    let verified = bench.home.run(&["audit", "verify"]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
}

/// What is being done on a yes is stopped, and so is what its owner does in the session outside its turns.
#[test]
fn needs_userns_what_runs_in_a_session_outside_its_turns_stops_when_it_is_closed() {
    let word = unique_word();
    let slow = json!({ "argv": ["sleep", word], "hosts": ["unlisted.example"] });
    let bench = Bench::new("openai", calls(vec![("shell_exec", slow)], "It waits."));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    assert_eq!(link.ask("do it", "one").expect("answered").exit, Exit::Waiting);
    let ask = bench.ask();
    let close = json!({ "session": session });
    let approved = std::thread::scope(|scope| {
        let approving = scope.spawn(|| bench.home.run(&["approvals", "approve", &ask, "--yes"]));
        until_runs(word);
        link.call("sessions.close", close).expect("closed");
        approving.join().expect("ends")
    });
    assert_ne!(code(&approved), 0, "{}", text(&approved));
    assert!(!runs(word));

    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    let word = unique_word();
    let call = json!({ "session": session, "argv": ["sleep", word] });
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let mut owner = Link::open(&bench.home).expect("connects");
            owner.call("sandbox.exec", call.clone()).expect("it ends")
        });
        until_runs(word);
        link.call("sessions.close", json!({ "session": session })).expect("closed");
        assert_eq!(running.join().expect("ends")["ended"], "cancelled");
    });
    assert!(!runs(word));
    assert_eq!(refused(&mut link, "sandbox.exec", call), "session.closed");
    assert_eq!(engine.stop().code, Some(0));
}

/// What was made in a session is brought out and taken back by its owner after it was closed, asked about as before; the question
/// that its turn had opened is over.
#[test]
fn needs_userns_what_was_made_is_applied_and_undone_after_closing() {
    let made = json!({ "path": "a.txt", "content": "made" });
    let bench = Bench::new("openai", calls(vec![("file_write", made)], "Made."));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    assert_eq!(link.ask("make it", "one").expect("answered").exit, Exit::Waiting);
    let asked = bench.ask();
    link.call("sessions.close", json!({ "session": session })).expect("closed");
    assert_eq!(
        code(&bench.home.run(&["approvals", "approve", &asked, "--yes"])),
        4,
        "it ended with its session"
    );
    let answer = link.call("apply", json!({ "session": session })).expect("asked");
    let ask = answer["ask_id"].as_str().expect("a question");
    assert!(ask != asked && !bench.file("a.txt").exists());
    // An engine that nobody uses may end in between.
    assert_eq!(engine.stop().code, Some(0));
    let engine = Engine::start(&bench.home, &[]).expect("ready again");
    let approved = bench.home.run(&["approvals", "approve", ask, "--yes"]);
    assert_eq!((code(&approved), bench.content("a.txt").as_str()), (0, "made"), "{}", text(&approved));
    let project = bench.project().display().to_string();
    let undone = bench.home.run(&["apply", "--undo", "--project", &project]);
    assert_eq!((code(&undone), bench.file("a.txt").exists()), (0, false), "{}", text(&undone));
    assert_eq!(bench.count("applied"), 2, "both ways are on record");
    assert_eq!(engine.stop().code, Some(0));
    bench.verify();
}

/// Leave that was given beforehand does not bring out what a turn has left half made that was stopped by closing.
#[test]
fn needs_userns_what_closing_has_cut_off_is_not_applied_without_a_question() {
    let word = unique_word();
    let half = json!({ "argv": ["sh", "-c", format!("echo half > half.txt; exec sleep {word}")] });
    let bench = Bench::new("openai", calls(vec![("shell_exec", half)], "Done."));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    std::thread::scope(|scope| {
        let working = scope.spawn(|| bench.chat("do it", &["--write"]));
        until_runs(word);
        link.call("sessions.close", json!({ "session": bench.session() })).expect("closed");
        assert_ne!(code(&working.join().expect("ends")), 0);
    });
    let answer = link.call("apply", json!({ "session": bench.session() })).expect("asked");
    assert!(answer["ask_id"].is_string() && answer["applied"].is_null(), "{answer}");
    assert!(!bench.file("half.txt").exists());
    assert_eq!(engine.stop().code, Some(0));
}

/// The engine was killed right after it had written down that the session is closed: its turn, its messages and its question
/// end with the next start, and nothing of them is done.
#[test]
fn needs_userns_what_a_crash_has_left_of_a_closed_session_ends_at_the_next_start() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let bench = Bench::new("openai", move |request: &ParsedRequest| {
        let fresh = request.messages.last().is_some_and(|message| message.results.is_empty());
        match request.last_user_text() {
            "hold" => Reply::text("Late.").with_fault(ReplyFault::SlowFirstByte(held.clone())),
            _ if fresh => Reply::call("shell_exec", reaching()),
            _ => Reply::text("It waits."),
        }
    });
    let bench = bench.in_processes();
    let mut engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    assert_eq!(link.ask("do it", "one").expect("answered").exit, Exit::Waiting);
    link.say("hold", "two").expect("sent");
    bench.held_back();
    link.say("and this", "three").expect("sent");
    let mut other = Link::open(&bench.home).expect("connects");
    while waiting(&mut other) != json!(1) {
        std::thread::yield_now();
    }
    engine.signal(Signal::SIGKILL);
    engine.wait();
    let conn = rusqlite::Connection::open(bench.home.database()).expect("opens");
    let sql = "UPDATE session SET metadata = json_set(metadata, '$.closed_at', '2026-01-01T00:00:00Z') WHERE id = ?1";
    assert_eq!(conn.execute(sql, [session.to_string()]).expect("written"), 1);
    let (asked, ran) = (bench.requests().len(), begun(&bench));

    let engine = Engine::start(&bench.home, &[]).expect("ready again");
    let mut link = Link::open(&bench.home).expect("connects");
    assert_eq!((states(&mut link), waiting(&mut link)), (vec!["expired".to_owned()], json!(0)));
    let sql = "SELECT frame FROM frame WHERE session = ?1 ORDER BY seq";
    let mut statement = conn.prepare(sql).expect("reads");
    let frames = statement.query_map([session.to_string()], |row| row.get::<_, String>(0)).expect("reads");
    let mut told = Vec::new();
    for frame in frames {
        let frame: ServerFrame = serde_json::from_str(&frame.expect("a row")).expect("a frame");
        if let ServerFrame::Error { answers, code, .. } = frame {
            assert_eq!(code, "session.closed");
            told.extend(answers);
        }
    }
    told.sort_unstable();
    assert_eq!(told, ["three", "two"]);
    let open =
        conn.query_row("SELECT count(*) FROM turn WHERE ended_at IS NULL", [], |row| row.get::<_, u32>(0));
    assert_eq!(open.expect("reads"), 0, "the turn is not taken up again");
    assert_eq!(link.call("status", json!({})).expect("answered")["open_intents"], json!([]));
    assert_eq!((bench.requests().len(), begun(&bench)), (asked, ran));
    gate.open();
    assert_eq!(engine.stop().code, Some(0));
    let verified = bench.home.run(&["audit", "verify"]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
}

/// Closing again finishes what is left, and is refused where nothing is.
#[test]
fn needs_userns_closing_a_closed_session_again_finishes_what_is_left() {
    let bench = Bench::new("openai", calls(vec![("shell_exec", reaching())], "It waits."));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session: SessionId = link.join(None, Some(&bench.project())).expect("joined");
    assert_eq!(link.ask("do it", "one").expect("answered").exit, Exit::Waiting);
    let wanted = json!({ "session": session });
    let closed = link.call("sessions.close", wanted.clone()).expect("closed");
    assert_eq!(states(&mut link), ["expired"]);
    assert_eq!(refused(&mut link, "sessions.close", wanted.clone()), "session.closed");
    // As a client's end or a crash would have left it.
    let conn = rusqlite::Connection::open(bench.home.database()).expect("opens");
    assert_eq!(conn.execute("UPDATE ask SET state = 'open', resolved_at = NULL", []).expect("written"), 1);
    assert_eq!(states(&mut link), ["open"]);
    assert_eq!(link.call("sessions.close", wanted.clone()), Some(closed), "as it was closed first");
    assert_eq!(states(&mut link), ["expired"]);
    assert_eq!(refused(&mut link, "sessions.close", wanted), "session.closed");
    assert_eq!(engine.stop().code, Some(0));
}
