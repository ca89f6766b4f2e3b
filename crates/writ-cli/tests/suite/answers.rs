//! Answers of people: what they lead to, where it is announced, and what else they say meanwhile.

use nix::sys::signal::Signal;
use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::entry::Decision;
use writ_types::error::Exit;
use writ_types::frame::{ClientFrame, NEWS_ONLY, ServerFrame};
use writ_types::id::SessionId;

use super::engine::{Engine, Link};
use super::turns::{Bench, calls};
use super::{code, text};

/// A rule of the owner: every program of the agent asks.
const ASK_EXEC: &str = r#"@id("ask-exec") @ask("Every program is asked for.")
forbid (principal, action == Action::"exec", resource) when { context.profile == "task" };"#;

fn run(script: &str) -> (&'static str, serde_json::Value) {
    ("shell_exec", json!({ "argv": ["sh", "-c", script] }))
}

/// A home as it is shipped, where every program asks.
fn asking(script: impl FnMut(&ParsedRequest) -> Reply + Send + 'static) -> Bench {
    let mut bench = Bench::new("openai", script);
    bench.home.goes_on();
    std::fs::write(bench.home.root().join("policies/ask.cedar"), ASK_EXEC).expect("written");
    bench
}

/// State and reason of the next frames about an ask, until one of them is its last.
fn told(link: &mut Link) -> Vec<(String, String)> {
    let mut told = Vec::new();
    loop {
        let (state, reason) = link
            .until(|numbered| match (numbered.seq, numbered.frame) {
                (1.., ServerFrame::ApprovalResolved { state, reason, .. }) => Some((state, reason)),
                _ => None,
            })
            .expect("told");
        let is_last = state != "approved";
        told.push((state, reason));
        if is_last {
            return told;
        }
    }
}

/// The text of the next turn that ends.
fn ended(link: &mut Link) -> String {
    link.until(|numbered| {
        let ServerFrame::Message { last: true, text, .. } = numbered.frame else { return None };
        Some(text)
    })
    .expect("a turn ends")
}

/// Approved changes that do not fit the project any more are announced as failed, with the reason, everywhere: to the watchers, to
/// the one who answered, and to the agent, which goes on by itself.
///
/// Rows: WIN-234 (that it failed)
#[test]
fn needs_userns_a_yes_that_cannot_be_applied_says_failed_and_why() {
    let script = |request: &ParsedRequest| match request.last_user_text() {
        text if text.starts_with('[') => Reply::text("I see that it failed."),
        _ => match request.results().count() {
            0 => Reply::call("file_patch", json!({"path": "a.txt", "old": "one", "new": "two"})),
            _ => Reply::text("Changed."),
        },
    };
    let mut bench = Bench::new("openai", script);
    bench.home.goes_on();
    std::fs::write(bench.project().join("a.txt"), "one\n").expect("written");
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    assert_eq!(link.ask("change it", "one").expect("answered").exit, Exit::Waiting);
    std::fs::write(bench.project().join("a.txt"), "three\n").expect("written");
    let mut watcher = Link::open(&bench.home).expect("connects");
    watcher.join(Some(session), None).expect("joined");
    let card = link.asks().expect("asks").swap_remove(0);
    let answered = link.decide(&card.ask_id, Decision::Approve, None);
    assert_eq!(answered, Some(Ok("failed".to_owned())), "never 'approved' for a failure");
    let told = told(&mut watcher);
    assert_eq!(told.first(), Some(&("approved".to_owned(), String::new())), "{told:?}");
    let (state, reason) = told.last().expect("two");
    assert_eq!(state, "failed");
    assert!(reason.starts_with("changed since") && reason.contains("a.txt"), "{reason}");
    assert_eq!(ended(&mut watcher), "I see that it failed.");
    assert_eq!(std::fs::read_to_string(bench.project().join("a.txt")).expect("reads"), "three\n");
    assert_eq!(engine.stop().code, Some(0));
}

/// A yes that is carried out is announced as approved, then as applied; a no names its reason. The agent goes on after each.
///
/// Rows: WIN-234
#[test]
fn needs_userns_the_outcome_of_an_answer_is_announced_and_heard() {
    let script = |request: &ParsedRequest| match request.last_user_text() {
        "run it" if request.results().count() == 0 => {
            Reply::call("shell_exec", run("echo out-$((40 + 2))").1)
        }
        "run another" if request.results().count() < 2 => Reply::call("shell_exec", run("exit 3").1),
        text if text.starts_with("[a person has approved") => Reply::text("It was done."),
        text if text.starts_with("[a person has denied") => Reply::text("Then not."),
        _ => Reply::text("It waits."),
    };
    let bench = asking(script);
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    let mut watcher = Link::open(&bench.home).expect("connects");
    watcher.join(Some(session), None).expect("joined");
    link.ask("run it", "one").expect("answered");
    let open = |link: &mut Link| {
        let cards = link.asks().expect("asks");
        cards.into_iter().find(|card| card.state == "open").expect("one is open").ask_id
    };
    let ask = open(&mut link);
    assert_eq!(link.decide(&ask, Decision::Approve, None), Some(Ok("applied".to_owned())));
    let states: Vec<String> = told(&mut watcher).into_iter().map(|(state, _)| state).collect();
    assert_eq!(states, ["approved", "applied"]);
    assert_eq!(ended(&mut watcher), "It was done.");
    assert!(bench.requests().last().is_some_and(|request| request.contains("out-42")), "it has the result");
    assert_eq!(ended(&mut link), "It was done.", "who answered hears it as well");
    link.ask("run another", "two").expect("answered");
    let ask = open(&mut link);
    assert_eq!(link.decide(&ask, Decision::Deny, None), Some(Ok("denied".to_owned())));
    assert_eq!(told(&mut watcher), [("denied".to_owned(), String::new())]);
    assert_eq!(ended(&mut watcher), "Then not.");
    assert_eq!(engine.stop().code, Some(0));
}

/// After a person has stopped the turn, an answer to what it had asked is carried out, and nothing goes on.
#[test]
fn needs_userns_a_stopped_turn_does_not_go_on() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let script = move |request: &ParsedRequest| match request.results().count() {
        0 => Reply::call("shell_exec", run("echo out").1),
        _ => Reply::text("late").with_fault(ReplyFault::SlowFirstByte(held.clone())),
    };
    let bench = asking(script);
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, Some(&bench.project())).expect("joined");
    link.say("run it", "one").expect("sent");
    bench.held_back();
    let turn = link.until(|numbered| {
        let ServerFrame::Tool { turn, state, .. } = numbered.frame else { return None };
        (state == "waiting").then_some(turn)
    });
    link.send(&ClientFrame::Cancel { turn: turn.expect("it runs") }).expect("sent");
    assert_eq!(link.answer().expect("it ends").exit, Exit::Interrupted);
    gate.open();
    let ask = link.asks().expect("asks").swap_remove(0).ask_id;
    assert_eq!(link.decide(&ask, Decision::Approve, None), Some(Ok("applied".to_owned())));
    assert_eq!(engine.stop().code, Some(0));
    assert_eq!(bench.count("received"), 1, "no message opens another turn");
}

/// A client that joins is given what waits for an answer first, also where it wants the news alone.
#[test]
fn needs_userns_who_joins_is_given_the_open_cards_first() {
    let bench = asking(calls(vec![run("echo one"), run("echo two")], "They wait."));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    assert_eq!(link.ask("run both", "one").expect("answered").exit, Exit::Waiting);
    let asks: Vec<_> = link.asks().expect("asks").into_iter().map(|card| card.ask_id).collect();
    assert_eq!(asks.len(), 2);
    assert_eq!(engine.stop().code, Some(0));
    let engine = Engine::start(&bench.home, &[]).expect("ready again");
    let shown = |session: SessionId, after_seq: u64| {
        let mut link = Link::open(&bench.home).expect("connects");
        let resume = ClientFrame::Resume {
            session: Some(session),
            after_seq,
            project: None,
            write: false,
            dry_run: false,
        };
        link.send(&resume).expect("sent");
        let hello = link.receive().expect("greets").frame;
        let ServerFrame::Hello { open, .. } = hello else { panic!("{hello:?}") };
        let cards: Vec<_> = (0..open.len())
            .map(|_| {
                let numbered = link.receive().expect("a card");
                let ServerFrame::ApprovalRequest(card) = numbered.frame else { panic!("{numbered:?}") };
                assert_eq!((numbered.seq, card.state.as_str()), (0, "open"));
                card.ask_id
            })
            .collect();
        assert_eq!(cards, open);
        open
    };
    for after_seq in [0, NEWS_ONLY] {
        let mut open = shown(session, after_seq);
        open.sort();
        let mut asked = asks.clone();
        asked.sort();
        assert_eq!(open, asked);
    }
    let mut link = Link::open(&bench.home).expect("connects");
    assert_eq!(link.decide(&asks[0], Decision::Deny, None), Some(Ok("denied".to_owned())));
    assert_eq!(shown(session, NEWS_ONLY), asks[1..], "what was answered is not asked again");
    assert_eq!(engine.stop().code, Some(0));
}

/// What a person writes while a card is open is a message: never an answer, also where it says yes, and it outlives the engine.
#[test]
fn needs_userns_a_message_beside_an_open_card_is_no_answer_and_is_not_lost() {
    let gate = ReplyGate::new();
    let held = gate.clone();
    let script = move |request: &ParsedRequest| match (request.last_user_text(), request.results().count()) {
        ("run it", 0) => Reply::call("shell_exec", run("echo out").1),
        ("run it", _) => Reply::text("It waits."),
        ("hold", _) => Reply::text("Held.").with_fault(ReplyFault::SlowFirstByte(held.clone())),
        (said, _) => Reply::text(&format!("Heard {said}.")),
    };
    let bench = asking(script);
    let bench = bench.in_processes();
    let mut engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    assert_eq!(link.ask("run it", "one").expect("answered").exit, Exit::Waiting);
    assert_eq!(link.ask("yes", "two").expect("answered").text, "Heard yes.");
    let open =
        |link: &mut Link| link.asks().expect("asks").into_iter().filter(|card| card.state == "open").count();
    assert_eq!(open(&mut link), 1, "a yes in a message answers no card");
    link.say("hold", "three").expect("sent");
    bench.held_back();
    link.say("and this", "four").expect("sent");
    link.until(|numbered| {
        let ServerFrame::Accepted { client_id, .. } = numbered.frame else { return None };
        (client_id == "four").then_some(())
    })
    .expect("stored");
    engine.signal(Signal::SIGKILL);
    engine.wait();
    gate.open();
    let engine = Engine::start(&bench.home, &[]).expect("ready again");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(Some(session), None).expect("joined");
    let heard = link.until(|numbered| {
        let ServerFrame::Message { last: true, answers, .. } = numbered.frame else { return None };
        answers.contains(&"four".to_owned()).then_some(())
    });
    assert!(heard.is_some());
    let requests = bench.requests();
    assert!(requests.last().is_some_and(|request| request.contains("and this")), "the model has heard it");
    assert_eq!(open(&mut link), 1, "the card waits still");
    assert_eq!(engine.stop().code, Some(0));
}

/// `writ approvals approve` ends as what was approved does, and says why.
#[test]
fn needs_userns_the_command_says_failed_and_why() {
    let list = vec![("file_patch", json!({"path": "a.txt", "old": "one", "new": "two"}))];
    let bench = Bench::new("openai", calls(list, "Changed."));
    std::fs::write(bench.project().join("a.txt"), "one\n").expect("written");
    assert_eq!(code(&bench.chat("change it", &[])), 5);
    std::fs::write(bench.project().join("a.txt"), "three\n").expect("written");
    let answered = bench.home.run(&["approvals", "approve", &bench.ask(), "--yes", "--json"]);
    let said: serde_json::Value = serde_json::from_slice(&answered.stdout).expect("JSON");
    assert_eq!((code(&answered), &said["state"]), (8, &json!("failed")), "{}", text(&answered));
    assert!(said["reason"].as_str().is_some_and(|reason| reason.starts_with("changed since")), "{said}");
}
