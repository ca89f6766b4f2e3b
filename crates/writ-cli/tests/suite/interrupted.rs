//! What a person stops: waiting for others who use the work folder, and steps that leave something behind.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::error::Exit;
use writ_types::frame::{ClientFrame, Numbered, ServerFrame};
use writ_types::id::{SessionId, TurnId};

use super::engine::{Answer, Engine, Link, runs, unique_word};
use super::turns::{Bench, calls};
use super::{Home, code, text};

/// Waits until a program runs that has this word among its arguments.
pub(super) fn until_runs(word: &str) {
    while !runs(word) {
        std::thread::yield_now();
    }
}

/// Has a program of the owner use the session's work folder alone until `end` is called with the same word.
fn occupy(home: &Home, session: SessionId, word: &'static str) -> impl FnOnce() + Send {
    let mut owner = Link::open(home).expect("connects");
    let call = json!({"session": session, "argv": ["sleep", word]});
    move || {
        let ended = owner.call("sandbox.exec", call).expect("it ends");
        assert_eq!(ended["ended"], "signal", "{ended}");
    }
}

/// Ends the program.
pub(super) fn end(word: &str) {
    for entry in std::fs::read_dir("/proc").expect("reads").flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if line == format!("sleep\0{word}\0").into_bytes()
            && let Some(pid) = pid
        {
            let _gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// The turn of the first frame that is wanted.
fn turn_of(link: &mut Link, wanted: impl Fn(&ServerFrame) -> bool) -> TurnId {
    let turn = link.until(|Numbered { frame, .. }| {
        let (ServerFrame::Tool { turn, .. } | ServerFrame::Delta { turn, .. }) = &frame else { return None };
        wanted(&frame).then_some(*turn)
    });
    turn.expect("a turn")
}

fn cancel(link: &mut Link, turn: TurnId) -> Answer {
    link.send(&ClientFrame::Cancel { turn }).expect("sent");
    link.answer().expect("answered")
}

/// A program of the owner uses the folder alone: a turn that wants to write, and one that wants to show its diff,
/// wait for it, and a person can end that.
#[test]
fn needs_userns_waiting_for_the_work_folder_ends_when_a_person_stops_the_turn() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let bench = Bench::new("openai", move |request: &ParsedRequest| {
        let fresh = request.messages.last().is_some_and(|message| message.results.is_empty());
        if fresh {
            return Reply::call("file_write", json!({"path": "a.txt", "content": "new\n"}));
        }
        Reply::text("Written.").with_fault(ReplyFault::SlowFirstByte(held.clone()))
    })
    .in_processes();
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    let [first, second] = [unique_word(), unique_word()];
    std::thread::scope(|scope| {
        let program = scope.spawn(occupy(&bench.home, session, first));
        until_runs(first);
        link.say("write", "one").expect("sent");
        let writes =
            |frame: &ServerFrame| matches!(frame, ServerFrame::Tool { state, .. } if state == "started");
        let turn = turn_of(&mut link, writes);
        let stopped = cancel(&mut link, turn);
        assert_eq!((stopped.exit, runs(first)), (Exit::Interrupted, true), "{stopped:?}");
        end(first);
        program.join().expect("ended");
    });
    assert!(link.call("diff", json!({})).expect("answered")["changes"].as_array().is_some_and(Vec::is_empty));

    link.say("write", "two").expect("sent");
    bench.held_back();
    std::thread::scope(|scope| {
        let program = scope.spawn(occupy(&bench.home, session, second));
        until_runs(second);
        gate.open();
        let said = |frame: &ServerFrame| matches!(frame, ServerFrame::Delta { text, .. } if text.contains("Written"));
        let turn = turn_of(&mut link, said);
        let stopped = cancel(&mut link, turn);
        assert_eq!((stopped.exit, runs(second)), (Exit::Interrupted, true), "{stopped:?}");
        end(second);
        program.join().expect("ended");
    });
    assert_eq!(
        link.call("diff", json!({})).expect("answered")["changes"][0]["path"],
        "a.txt",
        "nothing is lost"
    );
    assert_eq!(engine.stop().code, Some(0));
}

/// What an interrupted step of a `--write` session has left is shown and asked about, in this run and the next, and
/// once it is settled changes are applied as they are made again.
#[test]
fn needs_userns_what_an_interrupted_step_has_left_is_applied_after_a_question_only() {
    let word = unique_word();
    let half = json!({"argv": ["sh", "-c", format!("echo half > half.txt; exec sleep {word}")]});
    let bench = Bench::new("openai", move |request: &ParsedRequest| {
        let fresh = request.messages.last().is_some_and(|message| message.results.is_empty());
        match request.last_user_text() {
            _ if !fresh => Reply::text("Done."),
            "half" => Reply::call("shell_exec", half.clone()),
            name => Reply::call("file_write", json!({"path": name, "content": "whole\n"})),
        }
    })
    .in_processes();
    let there = |name: &str| bench.project().join(name).exists();
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let project = Some(bench.project().display().to_string());
    link.send(&ClientFrame::Resume { session: None, after_seq: 0, project, write: true, dry_run: false })
        .expect("sent");
    let joined = link.until(|numbered| {
        let ServerFrame::Hello { session, .. } = numbered.frame else { return None };
        Some(session)
    });
    assert_eq!(link.ask("zero.txt", "zero").expect("answered").exit, Exit::Done);
    assert!(there("zero.txt"), "applied as it goes");

    link.say("half", "one").expect("sent");
    let runs_now =
        |frame: &ServerFrame| matches!(frame, ServerFrame::Tool { state, .. } if state == "started");
    let turn = turn_of(&mut link, runs_now);
    until_runs(word);
    link.send(&ClientFrame::Cancel { turn }).expect("sent");
    let mut told = String::new();
    let exit = link.until(|numbered| {
        if let ServerFrame::Status { text } = &numbered.frame {
            told.push_str(text);
        }
        let ServerFrame::Message { last: true, exit, .. } = numbered.frame else { return None };
        Some(exit)
    });
    assert_eq!(exit, Some(Exit::Interrupted));
    // Whoever has stopped a turn does not wait until the files are counted.
    assert!(told.contains("is not applied"), "{told}");
    assert_eq!(engine.stop().code, Some(0));

    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(joined, None).expect("joined");
    link.say("whole.txt", "two").expect("sent");
    let exit = link.until(|numbered| {
        let ServerFrame::Message { last: true, exit, answers, .. } = numbered.frame else { return None };
        (answers == ["two"]).then_some(exit)
    });
    assert_eq!(exit, Some(Exit::Waiting), "a turn that ends well asks");
    assert!(!there("half.txt") && !there("whole.txt"));
    let ask = bench.ask();
    let card = text(&bench.home.run(&["approvals", "show", &ask]));
    assert!(card.contains("half.txt") && card.contains("whole.txt"), "{card}");
    let approved = bench.home.run(&["approvals", "approve", &ask, "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert!(there("half.txt") && there("whole.txt"));
    assert_eq!(link.ask("third.txt", "three").expect("answered").exit, Exit::Done);
    assert!(there("third.txt"), "as it goes again");
    assert_eq!(engine.stop().code, Some(0));
}

/// A model that runs a program when it is asked to sleep.
pub(super) fn sleeps(word: &'static str) -> impl FnMut(&ParsedRequest) -> Reply + Send + 'static {
    move |request: &ParsedRequest| {
        let last = request.messages.last();
        let asked = last.is_some_and(|message| message.text.contains("sleep") && message.results.is_empty());
        if asked {
            Reply::call("shell_exec", json!({ "argv": ["sleep", word] }))
        } else {
            Reply::text("Here.")
        }
    }
}

/// A key that is taken back ends what runs under it at once; its session gets another one with its owner's next word. The
/// base key ends everything until the engine starts again.
///
/// Rows: SLO-018
#[test]
fn needs_userns_a_revoked_key_ends_what_runs_and_what_comes() {
    let word = unique_word();
    let bench = Bench::new("openai", sleeps(word)).in_processes();
    let keys = || bench.home.json(&["keys", "list"]);
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, Some(&bench.project())).expect("joined");
    link.say("please sleep", "one").expect("sent");
    until_runs(word);
    let task = keys()["tasks"][0].clone();
    assert_eq!(task["running"], true, "{task}");
    let key = task["key"].as_str().expect("an id").to_owned();
    let revoked = bench.home.json(&["keys", "revoke", &key, "--reason", "it misbehaves"]);
    assert_eq!((&revoked["role"], revoked["stopped"].as_array().map(Vec::len)), (&json!("task"), Some(1)));
    let stopped = link.answer().expect("answered");
    assert_eq!(stopped.exit, Exit::Interrupted, "{stopped:?}");
    assert!(!runs(word), "its program is gone");
    let entry = bench.events("keyed").into_iter().find(|row| row.to_string().contains("it misbehaves"));
    let entry = entry.expect("it is in the ledger").to_string();
    assert!(entry.contains("\"revoked\"") && entry.contains(&key), "{entry}");
    assert_eq!(keys()["tasks"], json!([]));
    for gone in [key.as_str(), "01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
        let again = bench.home.run(&["keys", "revoke", gone]);
        assert_eq!(code(&again), 2, "{}", text(&again));
    }

    link.say("hello", "two").expect("sent");
    assert_eq!(link.answer().expect("answered").exit, Exit::Done, "twin: another key");
    assert_ne!(keys()["tasks"][0]["key"], json!(key));

    let base = keys()["base"]["key"].as_str().expect("an id").to_owned();
    bench.home.json(&["keys", "revoke", &base]);
    assert_eq!(keys()["base"]["revoked"], true);
    link.say("hello again", "three").expect("sent");
    let refused = link.answer().expect("answered");
    assert_eq!(refused.exit, Exit::Denied, "{refused:?}");
    assert_eq!(engine.stop().code, Some(0));
    let done = bench.chat("and now?", &[]);
    assert_eq!(code(&done), 0, "a new engine has a new base key: {}", text(&done));
}

/// A session that is closed has no key any more: not the one that something runs under, nor the one that its last turn has
/// left. Other sessions keep theirs.
///
/// Rows: SLO-016 (in part: closing; that its time ends it is shown at the door)
#[test]
fn needs_userns_closing_a_session_ends_its_key_and_what_runs_under_it() {
    let word = unique_word();
    let bench = Bench::new("openai", sleeps(word)).in_processes();
    let tasks = || bench.home.json(&["keys", "list"])["tasks"].as_array().expect("a list").clone();
    let of = |session: SessionId| tasks().into_iter().find(|task| task["session"] == json!(session));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut other = Link::open(&bench.home).expect("connects");
    let kept = other.join(None, None).expect("joined");
    assert_eq!(other.ask("hello", "one").expect("answered").exit, Exit::Done);
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    link.say("please sleep", "two").expect("sent");
    until_runs(word);
    let task = of(session).expect("it is in force");
    assert_eq!(task["running"], true, "{task}");
    let key = task["key"].as_str().expect("an id").to_owned();
    let of_key = |change: &str| {
        let rows = bench.events("keyed").into_iter();
        rows.filter(|row| row["payload"]["key"] == json!(key) && row["payload"]["change"] == change)
            .collect::<Vec<_>>()
    };
    let minted = of_key("minted");
    let lives = task["expires_at"].as_i64().expect("a time") - minted[0]["at"].as_i64().expect("a time");
    assert!((29 * 60_000..=30 * 60_000).contains(&lives), "for half an hour: {lives} ms");

    other.call("sessions.close", json!({ "session": session })).expect("closed");
    let stopped = link.answer().expect("answered");
    assert_eq!(stopped.exit, Exit::Interrupted, "{stopped:?}");
    assert!(!runs(word), "its program is gone");
    assert_eq!(of(session), None);
    let gone = bench.home.run(&["keys", "revoke", &key]);
    assert_eq!(code(&gone), 2, "{}", text(&gone));
    let ended = of_key("revoked");
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert_eq!(
        (&ended[0]["session"], &ended[0]["payload"]["role"], &ended[0]["payload"]["grants"]),
        (&json!(session), &json!("task"), &json!("its session was closed"))
    );
    assert!(of(kept).is_some(), "the other session is open");

    other.call("sessions.close", json!({ "session": kept })).expect("closed");
    assert_eq!(tasks(), Vec::<Value>::new(), "nothing ran under this one");
    assert_eq!(engine.stop().code, Some(0));
}

/// What a closed session has asked is over: it is not listed any more, nobody can say yes to it, and nothing of it is done.
#[test]
fn needs_userns_what_a_closed_session_has_asked_is_over() {
    let reaching = json!({ "argv": ["true"], "hosts": ["unlisted.example"] });
    let bench = Bench::new("openai", calls(vec![("shell_exec", reaching)], "It waits.")).in_processes();
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    assert_eq!(link.ask("do it", "one").expect("answered").exit, Exit::Waiting);
    let ask = bench.ask();
    link.call("sessions.close", json!({ "session": session })).expect("closed");
    let listed = bench.home.json(&["approvals", "list"]);
    assert_eq!(listed["asks"], json!([]), "{listed}");
    let late = bench.home.run(&["approvals", "approve", &ask, "--yes"]);
    assert_ne!(code(&late), 0, "{}", text(&late));
    let ran = bench.events("intent").iter().filter(|row| row["payload"]["action"]["kind"] == "exec").count();
    assert_eq!(ran, 0);
    assert_eq!(engine.stop().code, Some(0));
}
