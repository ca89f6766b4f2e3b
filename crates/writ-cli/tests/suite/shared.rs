//! What is shared: one session by two terminals, one day's tokens by all sessions.

use std::sync::mpsc::sync_channel;
use std::time::Duration;

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::error::Exit;
use writ_types::frame::{ClientFrame, ServerFrame};

use super::engine::{Engine, Link};
use super::turns::Bench;
use super::{code, text};

/// Starts a turn from one client, lets `writ chat -m` speak in the same session meanwhile, and returns how that
/// command ended and whose messages each turn has answered.
fn two_speak(
    script: impl FnMut(&ParsedRequest, &ReplyGate) -> Reply + Send + 'static,
) -> (String, i32, Value) {
    let gate = ReplyGate::new();
    let (held, mut script) = (gate.clone(), script);
    let bench = Bench::new("openai", move |request: &ParsedRequest| script(request, &held));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, None).expect("joined").to_string();
    link.say("first", "one").expect("sent");
    bench.held_back();
    let second = std::thread::scope(|scope| {
        let second = scope.spawn(|| bench.home.run(&["chat", "--session", &session, "-m", "second"]));
        while link.call("status", json!({})).expect("answered")["queue"]["ready"] != 1 {}
        gate.open();
        second.join().expect("it ends")
    });
    let mut answered = Vec::new();
    while answered.iter().map(Vec::len).sum::<usize>() < 2 {
        let ends = |numbered: writ_types::frame::Numbered| {
            let ServerFrame::Message { last: true, answers, .. } = numbered.frame else { return None };
            Some(answers)
        };
        answered.push(link.until(ends).expect("answered"));
    }
    assert_eq!(engine.stop().code, Some(0));
    let known = |id: &String| if id == "one" { "one" } else { "other" };
    let answered: Vec<Vec<&str>> = answered.iter().map(|ids| ids.iter().map(known).collect()).collect();
    (text(&second), code(&second), json!(answered))
}

/// The end of another terminal's turn is not the end of one's own.
#[test]
fn a_message_from_a_script_ends_with_its_own_answer_not_with_that_of_another_terminal() {
    let (said, code, answered) = two_speak(|request, gate| {
        let heard = Reply::text(&format!("Heard {}.", request.last_user_text()));
        if request.last_user_text() == "first" {
            heard.with_fault(ReplyFault::SlowFirstByte(gate.clone()))
        } else {
            heard
        }
    });
    assert_eq!((code, answered), (0, json!([["one"], ["other"]])), "{said}");
    assert!(said.contains("Heard second."), "{said}");
}

/// A message that a running turn takes in is answered by that turn.
#[test]
fn a_message_that_a_running_turn_takes_in_is_answered_with_it() {
    let (said, code, answered) = two_speak(|request, gate| {
        if request.results().next().is_some() {
            return Reply::text("Both heard.");
        }
        Reply::call("memory_search", json!({"query": "tea"}))
            .with_fault(ReplyFault::SlowFirstByte(gate.clone()))
    });
    assert_eq!((code, answered), (0, json!([["one", "other"]])), "{said}");
    assert!(said.contains("Both heard."), "{said}");
}

/// Turns that are decided at the same moment do not pass the day's limit together.
#[test]
fn turns_at_the_same_moment_share_what_is_left_of_the_day() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let mut bench = Bench::new("openai", move |_: &ParsedRequest| {
        Reply::text("The only one.").with_fault(ReplyFault::SlowFirstByte(held.clone()))
    });
    bench.home.env.push(("WRIT_BUDGET__MAX_TOKENS_PER_DAY".to_owned(), "1".to_owned()));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let exits: Vec<Exit> = std::thread::scope(|scope| {
        let (told, exits) = sync_channel(8);
        for n in 0..8 {
            let (home, told) = (&bench.home, told.clone());
            scope.spawn(move || {
                let mut link = Link::open(home).expect("connects");
                link.join(None, None).expect("joined");
                let answer = link.ask("hello", &format!("m{n}")).expect("answered");
                told.send(answer.exit).expect("heard");
            });
        }
        let next = || exits.recv_timeout(Duration::from_secs(100)).expect("in time");
        let mut all: Vec<Exit> = (0..7).map(|_| next()).collect();
        gate.open();
        all.push(next());
        all
    });
    assert_eq!(exits, [[Exit::Budget; 7].as_slice(), &[Exit::Done]].concat());
    assert_eq!(bench.server.recorded_requests().len(), 1, "one call was made");
    assert_eq!(engine.stop().code, Some(0));
}

/// `control.sock` knows whose process speaks; a token is refused rather than taken as if it had been looked at.
#[test]
fn a_token_on_the_control_socket_is_refused_and_the_connection_goes_on() {
    let bench = Bench::new("openai", |_: &ParsedRequest| Reply::text("Yes."));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.send(&ClientFrame::Auth { token: "secret".to_owned() }).expect("sent");
    assert_eq!(link.refusal(), Some(("auth.not_here".to_owned(), Exit::Usage)));
    link.join(None, None).expect("joined");
    assert_eq!(link.ask("hello", "one").expect("answered").text, "Yes.");
    assert_eq!(engine.stop().code, Some(0));
}

/// The home's parent is no folder to work on; who named none can still talk there, and who named it is told.
#[test]
fn a_talk_in_a_folder_that_cannot_be_worked_on_goes_without_one() {
    let bench = Bench::new("openai", |_: &ParsedRequest| Reply::text("Hello."));
    let said = bench.home.run(&["chat", "-m", "hi"]);
    assert_eq!(code(&said), 0, "{}", text(&said));
    assert!(text(&said).contains("Hello.") && text(&said).contains("no project"), "{}", text(&said));
    let named = bench.home.run(&["chat", "-m", "hi", "--project", "."]);
    assert_eq!(code(&named), 2, "{}", text(&named));
}
