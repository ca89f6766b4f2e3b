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
