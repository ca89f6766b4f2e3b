//! What a server asks a person while a call of it waits.

use serde_json::{Value, json};
use writ_types::entry::Decision;
use writ_types::error::Exit;
use writ_types::frame::{ClientFrame, ServerFrame};
use writ_types::id::AskId;

use super::super::engine::{Engine, Link};
use super::super::{code, text};
use super::Desk;

/// What the server is told must not be on record.
pub(super) const TOLD: &str = "main-4711";

/// A conversation at which servers ask.
pub(super) struct Table {
    pub(super) desk: Desk,
    pub(super) link: Link,
    _engine: Engine,
}

impl Table {
    fn new() -> Self {
        Self::of(Desk::with("[tools.behave]\neffect = false\nsinks = []\n"))
    }

    pub(super) fn of(desk: Desk) -> Self {
        let engine = Engine::start(&desk.bench.home, &[]).expect("ready");
        let mut link = Link::open(&desk.bench.home).expect("connects");
        link.join(None, None).expect("joined");
        Self { desk, link, _engine: engine }
    }

    fn say(&mut self, how: &str, id: &str) {
        self.link.say(&format!(r#"crm__behave {{"how": "{how}"}}"#), id).expect("sent");
    }

    /// The next question: its id, and its frame.
    pub(super) fn asked(&mut self) -> (AskId, Value) {
        let asked = self.link.until(|frame| {
            let ServerFrame::GateApproval { ask_id, .. } = &frame.frame else { return None };
            Some((ask_id.clone(), serde_json::to_value(&frame.frame).expect("JSON")))
        });
        asked.expect("a question")
    }

    pub(super) fn settled(&mut self) -> String {
        let state = self.link.until(|frame| {
            let ServerFrame::ApprovalResolved { state, .. } = frame.frame else { return None };
            Some(state)
        });
        state.expect("an end")
    }

    pub(super) fn respond(&mut self, ask_id: &AskId, decision: Decision, answers: &[(&str, &str)]) {
        let answers = answers.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let (ask_id, reason) = (ask_id.clone(), String::new());
        self.link.send(&ClientFrame::GateResponse { ask_id, decision, reason, answers }).expect("sent");
    }

    /// What the server said in the end.
    pub(super) fn end(&mut self) -> String {
        let answer = self.link.answer().expect("an answer");
        assert_eq!(answer.exit, Exit::Done, "{}", answer.text);
        answer.text
    }
}

/// Issue: elicitation is an ask. What is filled in goes to the server; what does not fit leaves the question open; a no is a
/// no; and neither the ledger nor the model's instructions hold what was filled in.
#[test]
fn needs_userns_needs_python_a_server_asks_a_person_and_is_told_what_they_fill_in() {
    let mut table = Table::new();
    table.say("ask", "1");
    let (ask, frame) = table.asked();
    assert_eq!((&frame["gate"], &frame["point"]), (&json!("mcp:crm"), &json!("server")), "{frame}");
    let shown = frame["shown"].as_str().expect("a text");
    assert!(shown.starts_with("Which account? \\u{202e}\naccount: Account:"), "nothing of it hides: {shown}");
    assert!(shown.contains("kind: kind: (one of: new, old, may be left out)"), "{shown}");
    for unfit in [
        &[][..],
        &[("account", "x")],
        &[("account", TOLD), ("copies", "many")],
        &[("account", TOLD), ("other", "1")],
    ] {
        table.respond(&ask, Decision::Approve, unfit);
        assert_eq!(table.link.refusal().map(|(code, _)| code).as_deref(), Some("ask.form"), "{unfit:?}");
    }
    table.respond(&ask, Decision::Approve, &[("account", TOLD), ("copies", "3")]);
    assert_eq!(table.settled(), "approved");
    let said = table.end();
    assert!(
        said.contains(&format!(r#"{{"action": "accept", "content": {{"account": "{TOLD}", "copies": 3}}}}"#)),
        "{said}"
    );

    // From a terminal, and no.
    table.say("ask2", "2");
    let (ask, _) = table.asked();
    let home = &table.desk.bench.home;
    let unfit = home.run(&["approvals", "approve", ask.as_str(), "--set", "account=x", "--yes"]);
    assert_eq!(code(&unfit), 2, "{}", text(&unfit));
    let set = format!("account={TOLD}");
    let told = home.run(&["approvals", "approve", ask.as_str(), "--set", &set, "--set", "kind=old", "--yes"]);
    assert!(code(&told) == 0 && text(&told).contains("the server 'crm' asks you"), "{}", text(&told));
    let (ask, _) = table.asked();
    table.respond(&ask, Decision::Deny, &[]);
    let said = table.end();
    assert!(said.contains(r#""kind": "old""#) && said.contains(r#", {"action": "decline"}"#), "{said}");
    let answered = table.desk.bench.events("answered");
    assert_eq!(answered.len(), 3, "{answered:?}");
    assert!(answered.iter().all(|row| row.to_string().contains("the server 'crm' asked: Which account?")));
    assert!(answered.iter().all(|row| !row.to_string().contains(TOLD)), "{answered:?}");
    table.desk.verify();
}

/// A turn that is stopped asks no more, and a server that asks for ever is told that nobody answers.
#[test]
fn needs_userns_needs_python_questions_end_with_their_turn_and_are_few() {
    let mut table = Table::new();
    table.say("ask9", "1");
    for _ in 0..8 {
        let (ask, _) = table.asked();
        table.respond(&ask, Decision::Deny, &[]);
    }
    let said = table.end();
    assert_eq!((said.matches("decline").count(), said.matches("cancel").count()), (8, 1), "{said}");
    table.say("ask", "2");
    let (ask, frame) = table.asked();
    let turn = serde_json::from_value(frame["turn"].clone()).expect("a turn");
    table.link.send(&ClientFrame::Cancel { turn }).expect("sent");
    assert_eq!(table.settled(), "expired");
    table.respond(&ask, Decision::Approve, &[("account", TOLD)]);
    assert_eq!(table.link.refusal().map(|(code, _)| code).as_deref(), Some("ask.unknown"));
}

/// A server may repeat the secret that it was given: it is masked where it is shown, and on record.
#[test]
fn needs_userns_needs_python_a_question_shows_no_secret() {
    let desk = Desk::new();
    // Another test looks for the holders of its own secret meanwhile.
    let secret = format!("tok-{}-elicited", std::process::id());
    assert_eq!(code(&desk.bench.home.run_with(&["secrets", "set", "crm"], secret.as_bytes())), 0);
    let added = desk.add(&["--env", "TOKEN=secret:crm"]);
    assert_eq!(code(&added), 0, "{}", text(&added));
    desk.say("[tools.behave]\neffect = false\nsinks = []\n");
    let mut table = Table::of(desk);
    table.say("ask", "1");
    let (ask, frame) = table.asked();
    assert!(frame["shown"].as_str().is_some_and(|shown| shown.contains("Account of ")), "{frame}");
    assert!(!frame.to_string().contains(&secret), "{frame}");
    table.respond(&ask, Decision::Deny, &[]);
    table.end();
    let exported = text(&table.desk.bench.home.run(&["audit", "export"]));
    assert!(exported.contains("the server 'crm' asked: Which account?") && !exported.contains(&secret));
}
