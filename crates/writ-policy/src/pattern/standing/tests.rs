use std::time::Duration;

use serde_json::json;
use writ_types::action::Exec;
use writ_types::id::{AskId, SessionId};

use super::*;
use crate::fixture::{NOW, call_tool, exec, fetch, later, prepared, project_write, session, tainted};

/// A card of medium risk that offers this.
fn card(standing: Option<StandingOffer>) -> Card {
    Card {
        ask_id: AskId::from_random(7),
        session: Some(session(1)),
        action: "call_tool".into(),
        intent: "do it".into(),
        risk: Risk::Medium,
        rationale: String::new(),
        choices: Vec::new(),
        shown: "shown".into(),
        prepared: Digest::of_bytes(b"prepared"),
        shown_hash: Digest::of_bytes(b"shown"),
        asked_at: NOW,
        expires_at: later(86_400_000),
        state: "open".into(),
        task: None,
        standing: standing.map(Box::new),
        values: Vec::new(),
        host: None,
        approvers: 1,
        approved_by: Vec::new(),
        undo_secs: 0,
    }
}

fn policy() -> Digest {
    Digest::of_bytes(b"the rules")
}

fn of_prepared(prepared: &Prepared) -> Vec<Recurring> {
    standing_patterns(prepared, policy(), &["ask-it".to_owned()].into(), &EgressScope::default())
}

fn call(arguments: Value, sinks: &[(&str, &str)]) -> Prepared {
    let call = CallTool { arguments, declared: true, sends: false, ..call_tool() };
    let sink = |(name, value): &(&str, &str)| Sink { argument: (*name).into(), value: (*value).into() };
    Prepared { sinks: sinks.iter().map(sink).collect(), ..prepared(Action::CallTool(call)) }
}

fn pay(to: &str, amount: Value, memo: &str) -> Prepared {
    let shown = amount.to_string();
    call(json!({"to": to, "amount": amount, "memo": memo}), &[("to", to), ("amount", &shown)])
}

fn first(prepared: &Prepared) -> Digest {
    pattern_digest(&of_prepared(prepared).first().expect("a pattern").pattern).expect("canonical")
}

/// Another session, other content: alike. Another tool, server, recipient, agent, rule or trust: not.
///
/// Rows: SIL-152
#[test]
fn it_names_kind_tool_and_everything_that_says_who_where_and_what() {
    let one = pay("ann", json!(5), "rent");
    let same = Prepared { session: Some(session(2)), ..pay("ann", json!(5), "something else") };
    assert_eq!(first(&one), first(&same));
    let elsewhere = CallTool { server: "bank".into(), declared: true, sends: false, ..call_tool() };
    let others = [
        pay("bob", json!(5), "rent"),
        pay("ann", json!(6), "rent"),
        Prepared { tool: "other".into(), ..one.clone() },
        Prepared { agent: "other".into(), ..one.clone() },
        Prepared { action: Action::CallTool(elsewhere), ..one.clone() },
        Prepared { bindings: [("pin".to_owned(), Digest::of_bytes(b"another"))].into(), ..one.clone() },
        Prepared { label: writ_types::taint::Label::new(Taint::Auth), ..one.clone() },
        call(json!({"to": ["ann"]}), &[("to", "ann"), ("to", "bob")]),
    ];
    for other in others {
        assert_ne!(first(&one), first(&other), "{other:?}");
    }
    let under = |policy, rule: &str| {
        standing_patterns(&one, policy, &[rule.to_owned()].into(), &EgressScope::default())
    };
    let other_rules = under(Digest::of_bytes(b"others"), "ask-it");
    let other_rule = under(policy(), "another");
    for other in [other_rules, other_rule] {
        assert_ne!(first(&one), pattern_digest(&other[0].pattern).expect("canonical"));
    }
}

#[test]
fn a_command_is_the_same_while_its_program_is() {
    let run = |bindings: &[u8]| Prepared {
        bindings: [("script".to_owned(), Digest::of_bytes(bindings))].into(),
        ..tainted(Action::Exec(Exec { timeout_ms: 1, ..exec() }), Taint::External)
    };
    let again = Prepared { session: None::<SessionId>, ..run(b"a") };
    assert_eq!(first(&run(b"a")), first(&again), "whatever was read before");
    assert_ne!(first(&run(b"a")), first(&run(b"b")));
    let unbound = Prepared { bindings: std::collections::BTreeMap::new(), ..run(b"a") };
    assert_eq!(of_prepared(&unbound), [], "nobody knows what it would run");
}

/// A flag that the tool declares neither as sink nor as content says how the rest is meant.
#[test]
fn flags_are_part_of_it() {
    let delete = |more: Value| {
        let mut arguments = json!({"path": "/a", "note": "any"});
        arguments.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        first(&call(arguments, &[("path", "/a")]))
    };
    let one = delete(json!({"dry": true}));
    assert_eq!(one, delete(json!({"dry": true, "note": "another"})));
    for other in [json!({"dry": false}), json!({}), json!({"dry": true, "force": true}), json!({"dry": null})]
    {
        assert_ne!(one, delete(other.clone()), "{other}");
    }
    assert_ne!(one, delete(json!({"dry": true, "how": [{"deep": true}]})));
}

#[test]
fn what_changes_a_project_or_passes_on_what_others_wrote_is_asked_about_each_time() {
    let sends = CallTool { sends: true, ..call_tool() };
    let mut saved = fetch("https://docs.rs/");
    saved.save_to = Some("page".into());
    let mut posted = fetch("https://docs.rs/");
    (posted.method, posted.body) = ("POST".into(), Some("x".into()));
    for prepared in [
        prepared(Action::WriteFile(project_write(&["a"]))),
        tainted(Action::CallTool(sends.clone()), Taint::External),
        prepared(Action::Fetch(saved)),
        prepared(Action::Fetch(posted)),
    ] {
        assert_eq!(of_prepared(&prepared), [], "{prepared:?}");
    }
    assert_eq!(of_prepared(&prepared(Action::CallTool(sends))).len(), 1);
    let page = |url: &str| prepared(Action::Fetch(fetch(url)));
    assert_ne!(first(&page("https://docs.rs/a")), first(&page("https://docs.rs/b")));
}

/// An amount that varies is covered by a total of its own argument alone.
#[test]
fn an_argument_may_vary_where_its_sum_is_bounded() {
    let (one, other) = (of_prepared(&pay("ann", json!(5), "a")), of_prepared(&pay("ann", json!(7.25), "b")));
    assert_ne!(one[0].pattern, other[0].pattern);
    assert_eq!(one[1].pattern, other[1].pattern);
    let amounts = [&one[1], &other[1]].map(|recurring| recurring.amount.expect("counts").to_string());
    assert_eq!(amounts, ["5", "7.25"]);
    assert_ne!(one[1].pattern, of_prepared(&pay("bob", json!(5), "a"))[1].pattern);
    // What is no positive number is counted by no total: it is one exact value.
    for amount in [json!(-5), json!(0), json!("5"), json!(1e300)] {
        assert_eq!(of_prepared(&pay("ann", amount.clone(), "a")).len(), 1, "{amount}");
    }
    // An argument cannot pass for a word of the pattern.
    let named = call(json!({"total of": 3}), &[("total of", "3")]);
    assert!(!of_prepared(&named)[0].pattern.parameters.contains_key(TOTAL));
}

#[test]
fn limits_are_within_what_is_offered_and_the_words_say_them() {
    let asked = pay("ann", json!(5), "a");
    let offer = standing_offer(&of_prepared(&asked)).expect("an offer");
    let asked_card = card(Some(offer.clone()));
    let with = |uses, days: u64, total: Option<(&str, &str)>| StandingLimits {
        uses,
        ttl: Duration::from_secs(days * 24 * 60 * 60),
        total: total.map(|(name, sum)| (name.to_owned(), sum.parse().expect("an amount"))),
    };
    let good = with(12, 30, Some(("amount", "60")));
    let signed = standing_terms(&asked_card, &good).expect("offered");
    assert_eq!(signed.pattern, pattern_digest(&offer.totals[0].pattern).expect("canonical"));
    let words = describe_consequence(&offer, &good);
    for part in ["'argument to' = ann", "12 times", "amount 60 in all", "30 days", "unattended", "any amount"]
    {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert!(describe_consequence(&offer, &StandingLimits::default()).contains("'argument amount' = 5"));
    let week = Duration::from_secs(604_800);
    assert_eq!(
        (StandingLimits::default().uses, StandingLimits::default().ttl),
        (10, week),
        "where nobody says another"
    );
    for bad in [
        with(0, 1, None),
        with(MAX_USES + 1, 1, None),
        with(1, 0, None),
        with(1, 91, None),
        with(1, 1, Some(("to", "5"))),
        with(1, 1, Some(("amount", "4.99"))),
    ] {
        assert!(standing_terms(&asked_card, &bad).is_err(), "{bad:?}");
    }
    assert!(standing_terms(&card(None), &StandingLimits::default()).is_err());
    assert!(
        standing_terms(&asked_card, &with(1, 1, Some(("amount", "5")))).is_ok(),
        "all of it is for what is asked about"
    );
    let too_long = standing_terms(&asked_card, &with(1, 91, None)).expect_err("too long").to_string();
    assert!(too_long.contains("in up to 90 days"), "{too_long}");
    let irreversible = Card { risk: Risk::Irreversible, ..asked_card.clone() };
    assert!(standing_terms(&irreversible, &good).is_err());
    let digests: Vec<Digest> =
        offered_digests(&offer).expect("canonical").into_iter().map(|(digest, _)| digest).collect();
    assert_eq!(
        digests,
        [&offer.pattern, &offer.totals[0].pattern].map(|pattern| pattern_digest(pattern).expect("canonical"))
    );
}

/// What a yes leads to is said in full.
#[test]
fn spans_and_patterns_are_said_in_words() {
    for (minutes, text) in [(5, "5 minutes"), (60, "1 hours"), (25 * 60, "25 hours"), (48 * 60, "2 days")] {
        assert_eq!(span_text(Duration::from_secs(minutes * 60)), text);
    }
    let said = |prepared: &Prepared| describe_pattern(&of_prepared(prepared)[0].pattern);
    assert!(
        said(&pay("ann", json!(5), "a")).ends_with("; any content"),
        "{}",
        said(&pay("ann", json!(5), "a"))
    );
    let command = said(&prepared(Action::Exec(exec())));
    assert!(command.ends_with("; regardless of the other files that it uses"), "{command}");
}

/// What is signed for each scope is what the card offers, for as long as that is good.
#[test]
fn each_scope_is_signed_as_it_is_offered() {
    use writ_types::entry::ApprovalScope::{Host, Once, Standing, Task, Values};
    let bare = card(None);
    let sign = |card: &Card, scope| TaskTerms::terms_to_sign(card, scope, &StandingLimits::default(), NOW);
    assert_eq!(sign(&bare, Once).expect("offered"), (None, bare.expires_at));
    assert!(matches!(sign(&bare, Values), Err(ScopeError::NoValues(_))));
    assert!(matches!(sign(&bare, Host), Err(ScopeError::NoHost(_))));
    assert!(matches!(sign(&bare, Task), Err(ScopeError::OnceOnly(_))));
    assert!(matches!(sign(&bare, Standing), Err(ScopeError::OnceOnly(_))));
    let full = Card {
        values: vec![("to".into(), "ann".into())],
        host: Some("docs.example:443".into()),
        ..card(standing_offer(&of_prepared(&pay("ann", json!(5), "a"))))
    };
    for scope in [Values, Host] {
        assert_eq!(sign(&full, scope).expect("offered"), (None, full.expires_at), "{scope:?}");
    }
    let (terms, ends) = sign(&full, Standing).expect("offered");
    assert!(terms.is_some_and(|terms| terms.standing.is_some()));
    assert_eq!(ends, NOW.plus_duration(StandingLimits::default().ttl));
}
