use std::collections::BTreeSet;

use serde_json::json;
use writ_types::action::{CallTool, Exec};
use writ_types::entry::Risk;
use writ_types::frame::StandingOffer;
use writ_types::unit::Timestamp;

use super::*;
use crate::egress::EgressScope;
use crate::fixture::{call_tool, exec, fetch, prepared, tainted};
use crate::prepared::Sink;

fn card(prepared: &Prepared) -> Card {
    let asking: BTreeSet<String> = ["ask-it".to_owned()].into();
    let recurring = standing::of(prepared, Digest::of(b"rules"), &asking, &EgressScope::default());
    let offer: Option<StandingOffer> = standing::offer(&recurring);
    Card {
        ask_id: writ_types::id::AskId::from_random(7),
        session: None,
        action: prepared.action.kind().as_str().to_owned(),
        intent: String::new(),
        risk: Risk::Medium,
        rationale: String::new(),
        choices: Vec::new(),
        shown: String::new(),
        prepared: Digest::of(b"p"),
        shown_hash: Digest::of(b"s"),
        asked_at: Timestamp::from_millis(0),
        expires_at: Timestamp::from_millis(1),
        state: "used".to_owned(),
        task: None,
        standing: offer.map(Box::new),
        values: Vec::new(),
        host: None,
        approvers: 1,
        approved_by: Vec::new(),
        undo_secs: 0,
    }
}

fn suggested(questions: &[(Prepared, Said)]) -> Vec<Suggestion> {
    let cards: Vec<Card> = questions.iter().map(|(prepared, _)| card(prepared)).collect();
    let asked = questions.iter().zip(&cards);
    let asked: Vec<Asked<'_>> =
        asked.map(|((prepared, said), card)| Asked { card, prepared, said: *said }).collect();
    suggest(&asked)
}

fn page(path: &str) -> Prepared {
    prepared(Action::Fetch(fetch(&format!("https://docs.rs/{path}"))))
}

fn pay(to: &str, amount: u64) -> Prepared {
    let call = CallTool { arguments: json!({"to": to, "amount": amount}), sends: false, ..call_tool() };
    let sink = |name: &str, value: String| Sink { argument: name.into(), value };
    let sinks = vec![sink("to", to.into()), sink("amount", amount.to_string())];
    Prepared { sinks, ..prepared(Action::CallTool(call)) }
}

/// A host that was approved three times is suggested; a single no, and it is not.
#[test]
fn a_host_is_suggested_where_every_answer_was_a_yes() {
    let yes = |path: &str| (page(path), Said::Yes);
    let three = [yes("a"), yes("b"), yes("c"), (page("d"), Said::Nothing)];
    let expected =
        Suggestion { advice: Advice::Allow { host: "docs.rs".to_owned() }, asked: 4, would_ask: 0 };
    assert_eq!(suggested(&three), [expected]);
    assert_eq!(suggested(&three[..2]), []);
    let mut once_denied = three.to_vec();
    once_denied.push((page("e"), Said::No));
    assert_eq!(suggested(&once_denied), []);
    // On a listed host it would be asked about all the same.
    let external = three.map(|(prepared, said)| {
        (Prepared { label: writ_types::taint::Label::new(Taint::External), ..prepared }, said)
    });
    assert_eq!(suggested(&external), []);
}

#[test]
fn the_same_command_or_payment_is_suggested_to_stand_and_a_varying_amount_with_its_total() {
    let run = || {
        (
            tainted(
                Action::Exec(Exec { hosts: vec!["a.example".into(), "b.example".into()], ..exec() }),
                Taint::External,
            ),
            Said::Yes,
        )
    };
    let said = suggested(&[run(), run(), run()]);
    let [Suggestion { advice: Advice::Stand { total: None, .. }, asked: 3, would_ask: 1 }] = said.as_slice()
    else {
        panic!("{said:?}");
    };
    let yes = |to: &str, amount| (pay(to, amount), Said::Yes);
    let said = suggested(&[yes("ann", 5), yes("ann", 6), yes("ann", 7), yes("bob", 8)]);
    let [
        Suggestion { advice: Advice::Stand { covers, total: Some((argument, sum)) }, asked: 3, would_ask: 1 },
    ] = said.as_slice()
    else {
        panic!("{said:?}");
    };
    assert!(
        covers.contains("'argument to' = ann") && argument == "amount" && sum.to_string() == "18",
        "{said:?}"
    );
    assert_eq!(suggested(&[yes("ann", 5), yes("ann", 6), yes("ann", 7), (pay("ann", 900), Said::No)]), []);
}

/// What is sent to a host, or is large, is asked about wherever it goes: to list the host changes nothing.
#[test]
fn a_host_is_suggested_for_plain_readings_alone() {
    type Change = fn(&mut writ_types::action::Fetch);
    let changes: [(Change, bool); 4] = [
        (|_| {}, true),
        (|fetch| fetch.method = "POST".into(), false),
        (|fetch| fetch.body = Some("x".into()), false),
        (|fetch| fetch.large = true, false),
    ];
    for (n, (change, expected)) in changes.into_iter().enumerate() {
        let asked = ["a", "b", "c"].map(|path| {
            let mut fetch = fetch(&format!("https://docs.rs/{path}"));
            change(&mut fetch);
            (prepared(Action::Fetch(fetch)), Said::Yes)
        });
        let said = suggested(&asked);
        let lists = said.iter().any(|one| matches!(one.advice, Advice::Allow { .. }));
        assert_eq!(lists, expected, "{n}: {said:?}");
    }
}

/// A no to what would have reached a host, by whatever way, speaks against listing it.
#[test]
fn a_no_to_whatever_reaches_a_host_speaks_against_it() {
    use writ_types::action::Connect;
    let three = || [page("a"), page("b"), page("c")].map(|prepared| (prepared, Said::Yes)).to_vec();
    let both = Action::Exec(Exec { hosts: vec!["docs.rs:443".into(), "b.example".into()], ..exec() });
    let connect = Action::Connect(Connect { host: "docs.rs".into(), port: 443 });
    let posted =
        Action::Fetch(writ_types::action::Fetch { method: "POST".into(), ..fetch("https://docs.rs/") });
    let with_body =
        Action::Fetch(writ_types::action::Fetch { body: Some("x".into()), ..fetch("https://docs.rs/") });
    let large = Action::Fetch(writ_types::action::Fetch { large: true, ..fetch("https://docs.rs/") });
    for action in [both, connect, posted, with_body, large] {
        let mut asked = three();
        asked.push((prepared(action.clone()), Said::Yes));
        assert_eq!(suggested(&asked).len(), 1, "a yes to it says nothing of the host: {action:?}");
        asked.last_mut().expect("the last").1 = Said::No;
        assert_eq!(suggested(&asked), [], "{action:?}");
    }
    let mut asked = three();
    let elsewhere = Action::Exec(Exec { hosts: vec!["a.example".into(), "b.example".into()], ..exec() });
    asked.push((prepared(elsewhere), Said::No));
    assert_eq!(suggested(&asked).len(), 1, "another host's no");
}

/// What leaves an amount open is suggested only where no fixed one of the tool is.
#[test]
fn a_total_is_suggested_only_where_the_amounts_differ() {
    let yes = |to: &str, amount| (pay(to, amount), Said::Yes);
    let same = suggested(&[yes("ann", 5), yes("ann", 5), yes("ann", 5)]);
    let [Suggestion { advice: Advice::Stand { total: None, .. }, .. }] = same.as_slice() else {
        panic!("{same:?}")
    };
    let mut other = [yes("bob", 1), yes("bob", 2), yes("bob", 3)].to_vec();
    for (prepared, _) in &mut other {
        prepared.tool = "another_tool".into();
    }
    let both = suggested(&[vec![yes("ann", 5), yes("ann", 5), yes("ann", 5)], other].concat());
    let totals = both.iter().filter(|one| matches!(one.advice, Advice::Stand { total: Some(_), .. })).count();
    assert_eq!((both.len(), totals), (2, 1), "{both:?}");
}
