use serde_json::json;
use writ_types::action::{CallTool, Connect, Exec, Fetch};
use writ_types::entry::Risk;
use writ_types::frame::{StandingOffer, TaskOffer};
use writ_types::id::AskId;
use writ_types::taint::{Label, Taint};

use super::*;
use crate::fixture::{call_tool, exec, fetch, prepared, rules, tainted};
use crate::pattern;
use crate::rules::{RuleVerdict, SHIPPED};
use writ_inspect::prepared::Sink;

/// A card as the door asks under these rules, `n` milliseconds after the first.
fn card(prepared: &Prepared, n: usize, rules: &RuleSet) -> Card {
    let verdict = rules.judge_rules(prepared, RuleFacts { reach: Reach::Unknown, ..RuleFacts::default() });
    let asking = if let RuleVerdict::Ask { rules, .. } = verdict { rules } else { BTreeSet::new() };
    let recurring = standing::standing_patterns(prepared, rules.digest(), &asking, &EgressScope::default());
    let offer: Option<StandingOffer> = standing::standing_offer(&recurring);
    let pattern = pattern::pattern_of(prepared, rules.digest(), &asking, &EgressScope::default());
    let task = pattern.map(|pattern| Box::new(TaskOffer { pattern, uses: 1, secs: 1 }));
    Card {
        ask_id: AskId::from_random(7),
        session: None,
        action: prepared.action.kind().as_str().to_owned(),
        intent: String::new(),
        risk: Risk::Medium,
        rationale: String::new(),
        choices: Vec::new(),
        shown: String::new(),
        prepared: Digest::of_bytes(b"p"),
        shown_hash: Digest::of_bytes(b"s"),
        asked_at: at(n),
        expires_at: at(n + 1),
        state: "used".to_owned(),
        task,
        standing: offer.map(Box::new),
        values: Vec::new(),
        host: None,
        approvers: 1,
        approved_by: Vec::new(),
        undo_secs: 0,
    }
}

fn at(n: usize) -> Timestamp {
    Timestamp::from_millis(i64::try_from(n).expect("small"))
}

/// What is in force now.
struct Home {
    rules: RuleSet,
    egress: EgressScope,
}

impl Home {
    fn new() -> Self {
        Self { rules: rules(SHIPPED), egress: EgressScope::default() }
    }

    /// The shipped rules, and this one.
    fn with_rule(rule: &str) -> Self {
        Self { rules: rules(&format!("{SHIPPED}\n{rule}")), ..Self::new() }
    }

    /// What is suggested of questions, each with its card.
    fn of_cards(&self, questions: &[(Prepared, PersonAnswer)], cards: &[Card]) -> Vec<Suggestion> {
        let asked = questions.iter().zip(cards);
        let asked: Vec<EarlierQuestion<'_>> =
            asked.map(|((prepared, said), card)| EarlierQuestion { card, prepared, said: *said }).collect();
        suggest_settings(&asked, &CurrentSettings { rules: &self.rules, egress: &self.egress, strict: false })
    }

    /// What is suggested of questions that were asked under `then`, in this order.
    fn of_rules(&self, questions: &[(Prepared, PersonAnswer)], then: &RuleSet) -> Vec<Suggestion> {
        let numbered = (0..).zip(questions);
        let cards: Vec<Card> = numbered.map(|(n, (prepared, _))| card(prepared, n, then)).collect();
        self.of_cards(questions, &cards)
    }

    fn suggested(&self, questions: &[(Prepared, PersonAnswer)]) -> Vec<Suggestion> {
        self.of_rules(questions, &self.rules)
    }
}

/// Under the shipped rules and lists.
fn suggested(questions: &[(Prepared, PersonAnswer)]) -> Vec<Suggestion> {
    Home::new().suggested(questions)
}

/// A command that reaches one host.
fn get(host: &str) -> Prepared {
    prepared(Action::Exec(Exec { hosts: vec![host.into()], ..exec() }))
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
    let yes = |path: &str| (page(path), PersonAnswer::Yes);
    let three = [yes("a"), yes("b"), yes("c"), (page("d"), PersonAnswer::Nothing)];
    let expected =
        Suggestion { advice: Advice::Allow { host: "docs.rs".to_owned() }, asked: 4, would_ask: 0 };
    assert_eq!(suggested(&three), [expected]);
    assert_eq!(suggested(&three[..2]), []);
    let mut once_denied = three.to_vec();
    once_denied.push((page("e"), PersonAnswer::No));
    assert_eq!(suggested(&once_denied), []);
    // On a listed host it would be asked about all the same.
    let external =
        three.map(|(prepared, said)| (Prepared { label: Label::new(Taint::External), ..prepared }, said));
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
            PersonAnswer::Yes,
        )
    };
    let said = suggested(&[run(), run(), run()]);
    let [Suggestion { advice: Advice::Stand { total: None, .. }, asked: 3, would_ask: 1 }] = said.as_slice()
    else {
        panic!("{said:?}");
    };
    let yes = |to: &str, amount| (pay(to, amount), PersonAnswer::Yes);
    let said = suggested(&[yes("ann", 5), yes("ann", 6), yes("ann", 7), yes("bob", 8)]);
    let [
        Suggestion {
            advice: Advice::Stand { covers, uses: 3, total: Some((argument, sum)), unanswered: None },
            asked: 3,
            would_ask: 1,
        },
    ] = said.as_slice()
    else {
        panic!("{said:?}");
    };
    assert!(
        covers.contains("'argument to' = ann") && argument == "amount" && sum.to_string() == "18",
        "{said:?}"
    );
    assert_eq!(
        suggested(&[yes("ann", 5), yes("ann", 6), yes("ann", 7), (pay("ann", 900), PersonAnswer::No)]),
        []
    );
}

/// What is sent to a host, or is large, is asked about wherever it goes: to list the host changes nothing.
#[test]
fn a_host_is_suggested_for_plain_readings_alone() {
    type Change = fn(&mut writ_types::action::Fetch);
    let changes: [(Change, bool); 5] = [
        (|_| {}, true),
        (|fetch| fetch.save_to = Some("a.txt".into()), true),
        (|fetch| fetch.method = "POST".into(), false),
        (|fetch| fetch.body = Some("x".into()), false),
        (|fetch| fetch.large = true, false),
    ];
    for (n, (change, expected)) in changes.into_iter().enumerate() {
        let asked = ["a", "b", "c"].map(|path| {
            let mut fetch = fetch(&format!("https://docs.rs/{path}"));
            change(&mut fetch);
            (prepared(Action::Fetch(fetch)), PersonAnswer::Yes)
        });
        let said = suggested(&asked);
        let lists = said.iter().any(|one| matches!(one.advice, Advice::Allow { .. }));
        assert_eq!(lists, expected, "{n}: {said:?}");
    }
}

/// A no to what would have reached a host, by whatever way, speaks against listing it.
#[test]
fn a_no_to_whatever_reaches_a_host_speaks_against_it() {
    let three = || [page("a"), page("b"), page("c")].map(|prepared| (prepared, PersonAnswer::Yes)).to_vec();
    let both = Action::Exec(Exec { hosts: vec!["docs.rs:443".into(), "b.example".into()], ..exec() });
    let connect = Action::Connect(Connect { host: "docs.rs".into(), port: 443 });
    let posted = Action::Fetch(Fetch { method: "POST".into(), ..fetch("https://docs.rs/") });
    let with_body = Action::Fetch(Fetch { body: Some("x".into()), ..fetch("https://docs.rs/") });
    let large = Action::Fetch(Fetch { large: true, ..fetch("https://docs.rs/") });
    for action in [both, connect, posted, with_body, large] {
        let mut asked = three();
        asked.push((prepared(action.clone()), PersonAnswer::Yes));
        assert_eq!(suggested(&asked).len(), 1, "a yes to it says nothing of the host: {action:?}");
        asked.last_mut().expect("the last").1 = PersonAnswer::No;
        assert_eq!(suggested(&asked), [], "{action:?}");
    }
    let both = prepared(Action::Exec(Exec { hosts: vec!["docs.rs".into(), "b.example".into()], ..exec() }));
    let yes = [(); 3].map(|()| (both.clone(), PersonAnswer::Yes));
    assert_eq!(listed_of(&suggested(&yes)), Vec::<&str>::new(), "a yes to two says nothing of either");
    let connect = prepared(Action::Connect(Connect { host: "docs.rs".into(), port: 443 }));
    let yes = [(); 3].map(|()| (connect.clone(), PersonAnswer::Yes));
    assert_eq!(listed_of(&suggested(&yes)), Vec::<&str>::new(), "nor one to a connection of somebody's");
    let mut asked = three();
    let elsewhere = Action::Exec(Exec { hosts: vec!["a.example".into(), "b.example".into()], ..exec() });
    asked.push((prepared(elsewhere), PersonAnswer::No));
    assert_eq!(suggested(&asked).len(), 1, "another host's no");
}

/// What leaves an amount open is suggested only where no fixed one of the tool is.
#[test]
fn a_total_is_suggested_only_where_the_amounts_differ() {
    let yes = |to: &str, amount| (pay(to, amount), PersonAnswer::Yes);
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

/// The hosts that are suggested.
fn listed_of(found: &[Suggestion]) -> Vec<&str> {
    let advice = found.iter().map(|one| &one.advice);
    advice
        .filter_map(|one| if let Advice::Allow { host } = one { Some(host.as_str()) } else { None })
        .collect()
}

/// What is suggested to stand: how often was asked, and how often would be.
fn standing_of(found: &[Suggestion]) -> Vec<(usize, usize)> {
    let stands = |one: &&Suggestion| matches!(one.advice, Advice::Stand { .. });
    found.iter().filter(stands).map(|one| (one.asked, one.would_ask)).collect()
}

const ASK_RUN: &str =
    r#"@id("ask-run") @ask("It runs.") forbid (principal, action == Action::"exec", resource);"#;

/// Three times the same command that reaches a host, each approved.
fn three_runs() -> [(Prepared, PersonAnswer); 3] {
    [(); 3].map(|()| (get("docs.rs"), PersonAnswer::Yes))
}

/// A host that is asked about for another reason as well is asked about all the same when it is listed.
#[test]
fn a_host_is_suggested_only_where_listing_it_would_have_let_something_pass() {
    let runs = three_runs();
    assert_eq!(listed_of(&suggested(&runs)), ["docs.rs"]);
    assert_eq!(
        listed_of(&Home::with_rule(ASK_RUN).suggested(&runs)),
        [""; 0],
        "a rule asks about every command"
    );
    let list = |change: fn(&mut EgressScope, HostPattern)| {
        let mut home = Home::new();
        change(&mut home.egress, "docs.rs".parse().expect("a host"));
        listed_of(&home.suggested(&runs)).len()
    };
    assert_eq!(list(|egress, host| egress.always_ask.push(host)), 0, "the owner wants to be asked");
    assert_eq!(list(|egress, host| egress.allowed.push(host)), 0, "it is listed by now");
    assert_eq!(list(|egress, host| egress.trusted.push(host)), 0, "it is trusted by now");
    assert_eq!(list(|egress, host| egress.blocked.push(host)), 0, "it is blocked by now");
    assert_eq!(list(|egress, host| egress.bound.push(host)), 0, "a secret is used there");
    assert_eq!(list(|egress, host| egress.opaque.push(host)), 1, "twin");
}

/// What rests on external content is counted with the rest, and asked about still.
#[test]
fn what_would_be_asked_about_on_a_listed_host_is_counted() {
    let mut asked = ["a", "b", "c"].map(|path| (page(path), PersonAnswer::Yes)).to_vec();
    let external = Action::Fetch(fetch("https://DOCS.rs/d"));
    asked.push((tainted(external, Taint::External), PersonAnswer::Yes));
    let two_hosts = Exec { hosts: vec!["docs.rs:443".into(), "b.example".into()], ..exec() };
    asked.push((prepared(Action::Exec(two_hosts)), PersonAnswer::Nothing));
    asked.push((prepared(Action::Connect(Connect { host: "docs.rs".into(), port: 443 })), PersonAnswer::Yes));
    let expected =
        Suggestion { advice: Advice::Allow { host: "docs.rs".to_owned() }, asked: 6, would_ask: 2 };
    assert_eq!(suggested(&asked), [expected]);
}

/// Neither gates nor the rules of a project can be heard again: what they asked about is asked about.
#[test]
fn what_something_else_than_the_rules_in_force_asked_about_is_asked_about_again() {
    let (runs, home) = (three_runs(), Home::new());
    let found = home.suggested(&runs);
    assert_eq!((listed_of(&found), standing_of(&found)), (vec!["docs.rs"], vec![(3, 1)]), "twin");
    let paid = [5, 6, 7].map(|amount| (pay("ann", amount), PersonAnswer::Yes));
    for asked in [&runs, &paid] {
        let of_gate = |n: usize| Card { task: None, standing: None, ..card(&asked[n].0, n, &home.rules) };
        assert_eq!(home.of_cards(asked, &[of_gate(0), of_gate(1), of_gate(2)]), [], "a gate asked");
    }
    let then = Home::with_rule(ASK_RUN);
    let found = home.of_rules(&runs, &then.rules);
    assert_eq!((listed_of(&found), standing_of(&found)), (vec!["docs.rs"], vec![(3, 1)]), "the rule is gone");
    let of_project = |n: usize| {
        let rationale = "It is so. A rule of the project ('ask-run') asks: “It runs.”".to_owned();
        Card { rationale, ..card(&runs[n].0, n, &then.rules) }
    };
    let found = home.of_cards(&runs, &[of_project(0), of_project(1), of_project(2)]);
    assert_eq!((listed_of(&found), standing_of(&found)), (vec![], vec![(3, 1)]), "it is a project's");
    let another =
        r#"@id("ask-run") @ask("It pays.") forbid (principal, action == Action::"call_tool", resource);"#;
    let found = Home::with_rule(another).of_cards(&runs, &[of_project(0), of_project(1), of_project(2)]);
    assert_eq!(
        (listed_of(&found), standing_of(&found)),
        (vec!["docs.rs"], vec![(3, 1)]),
        "what has its name counts"
    );
}

/// The first yes is the one that stands: what was asked before it is asked, in the order of time.
#[test]
fn what_is_asked_before_the_first_yes_is_asked_and_what_outlasts_the_approval_too() {
    let home = Home::new();
    let saying = |said: [PersonAnswer; 5]| said.map(|said| (get("docs.rs"), said));
    let asked = saying([
        PersonAnswer::Nothing,
        PersonAnswer::Yes,
        PersonAnswer::Yes,
        PersonAnswer::Yes,
        PersonAnswer::Yes,
    ]);
    assert_eq!(standing_of(&home.suggested(&asked)), [(5, 2)]);
    let used_up = saying([
        PersonAnswer::Yes,
        PersonAnswer::Nothing,
        PersonAnswer::Yes,
        PersonAnswer::Yes,
        PersonAnswer::Yes,
    ]);
    assert_eq!(standing_of(&home.suggested(&used_up)), [(5, 2)], "the last is one more than it lasts for");
    let mut cards: Vec<Card> = (0..).zip(&asked).map(|(n, (one, _))| card(one, n, &home.rules)).collect();
    let (first, second) = (cards[0].asked_at, cards[1].asked_at);
    (cards[0].asked_at, cards[1].asked_at) = (second, first);
    assert_eq!(
        standing_of(&home.of_cards(&asked, &cards)),
        [(5, 2)],
        "the last one is used up by what nobody answered"
    );
    cards[0].asked_at = cards[4].asked_at.plus_duration(std::time::Duration::from_millis(1));
    assert_eq!(standing_of(&home.of_cards(&asked, &cards)), [(5, 2)], "it came when all were used");
    cards[0].asked_at = second;
    cards[4].asked_at = first.plus_duration(standing::MAX_TTL);
    assert_eq!(standing_of(&home.of_cards(&asked, &cards)), [(5, 2)], "it has ended by then");
    let offer = cards[0].standing.as_ref().expect("offered");
    let mut group = QuestionGroup::new(offer.pattern.clone(), None);
    for _ in 0..standing::MAX_USES + 2 {
        group.add_answer(
            &EarlierQuestion { card: &cards[0], prepared: &asked[0].0, said: PersonAnswer::Yes },
            None,
        );
    }
    assert_eq!(group.would_ask(group.count_uses(), group.sum_amounts()), 2, "it was used up");
    let millis = u64::try_from(standing::MAX_TTL.as_millis()).expect("small");
    for (after, expected) in [(millis - 1, 1), (millis, 2)] {
        let mut group = QuestionGroup::new(offer.pattern.clone(), None);
        let later = first.plus_duration(std::time::Duration::from_millis(after));
        for asked_at in [first, later] {
            let card = Card { asked_at, ..cards[0].clone() };
            group.add_answer(
                &EarlierQuestion { card: &card, prepared: &asked[0].0, said: PersonAnswer::Yes },
                None,
            );
        }
        assert_eq!(group.would_ask(9, 0), expected, "{after} ms later");
    }
}

/// What nobody answered is no measure of what is wanted; one that is larger than whatever was said yes to is shown.
#[test]
fn what_was_not_answered_raises_no_limit() {
    let yes = |amount| (pay("ann", amount), PersonAnswer::Yes);
    let nothing = |amount| (pay("ann", amount), PersonAnswer::Nothing);
    let of = |asked: &[(Prepared, PersonAnswer)]| match suggested(asked).as_slice() {
        [
            Suggestion {
                advice: Advice::Stand { uses, total: Some((_, sum)), unanswered, .. },
                asked,
                would_ask,
            },
        ] => (*uses, sum.to_string(), unanswered.map(|most| most.to_string()), *asked, *would_ask),
        other => panic!("{other:?}"),
    };
    let (three, large) = ([yes(10), yes(11), yes(12)], Some("1000000".to_owned()));
    assert_eq!(of(&three), (3, "33".to_owned(), None, 3, 1));
    let pumped = [&three[..], &[nothing(1_000_000), nothing(7)]].concat();
    assert_eq!(of(&pumped), (3, "33".to_owned(), large.clone(), 5, 3), "the three are all that it lasts for");
    let before = [&[nothing(1_000_000), nothing(7)], &three[..]].concat();
    assert_eq!(of(&before), (3, "33".to_owned(), large, 5, 3), "what came first was asked about");
    let between = [&three[..1], &[nothing(30)], &three[1..]].concat();
    assert_eq!(
        of(&between),
        (3, "33".to_owned(), Some("30".to_owned()), 4, 2),
        "it does not fit into the sum"
    );
    let smaller = [&three[..], &[nothing(12)]].concat();
    assert_eq!(of(&smaller).2, None, "as large as what was said yes to");
}

/// A no counts whatever its card offered: a gate asked then, too, or several people.
#[test]
fn a_no_whose_card_offered_nothing_speaks_against_what_would_cover_it() {
    let home = Home::new();
    let asked = |last: Prepared, said| {
        let mut asked = [5, 6, 7].map(|amount| (pay("ann", amount), PersonAnswer::Yes)).to_vec();
        asked.push((last, said));
        let mut cards: Vec<Card> = (0..).zip(&asked).map(|(n, (one, _))| card(one, n, &home.rules)).collect();
        (cards[3].task, cards[3].standing) = (None, None);
        home.of_cards(&asked, &cards).len()
    };
    assert_eq!(asked(pay("ann", 900), PersonAnswer::No), 0);
    assert_eq!(asked(pay("ann", 900), PersonAnswer::Nothing), 1, "twin");
    assert_eq!(asked(pay("bob", 900), PersonAnswer::No), 1, "somebody else");
    let run = || (get("docs.rs"), PersonAnswer::Yes);
    let runs = [run(), run(), run(), (get("docs.rs"), PersonAnswer::No)];
    let mut cards: Vec<Card> = (0..).zip(&runs).map(|(n, (one, _))| card(one, n, &home.rules)).collect();
    (cards[3].task, cards[3].standing) = (None, None);
    assert_eq!(home.of_cards(&runs, &cards), [], "programs, too");
}

/// What the rules say now counts: what is asked about no more, or could not stand, is not suggested.
#[test]
fn nothing_is_suggested_to_stand_that_the_rules_in_force_would_not_let_stand() {
    let run = || (prepared(Action::Exec(exec())), PersonAnswer::Yes);
    let runs = [run(), run(), run()];
    let asking = Home::with_rule(ASK_RUN);
    assert_eq!(standing_of(&asking.suggested(&runs)), [(3, 1)], "twin");
    for now in [
        r#"@id("no-run") forbid (principal, action == Action::"exec", resource);"#,
        r#"@id("ask-run") @ask("It runs.") @approvers("2") forbid (principal, action == Action::"exec", resource);"#,
        r#"@id("ask-run") @ask("It runs.") @risk("irreversible") forbid (principal, action == Action::"exec", resource);"#,
        r#"@id("ask-run") @ask("It pays.") forbid (principal, action == Action::"call_tool", resource);"#,
    ] {
        assert_eq!(Home::with_rule(now).of_rules(&runs, &asking.rules), [], "{now}");
    }
}

/// What a call's arguments were taken from is not kept: the card says whether labels asked.
#[test]
fn labels_ask_about_a_call_again_if_they_asked_then() {
    let call = CallTool {
        arguments: json!({"to": "ann", "amount": 5}),
        sends: false,
        declared: true,
        ..call_tool()
    };
    let sinks = vec![Sink { argument: "to".into(), value: "ann".into() }];
    let paid = Prepared { sinks, ..tainted(Action::CallTool(call), Taint::External) };
    let (paid, home) = ([(); 3].map(|()| (paid.clone(), PersonAnswer::Yes)), Home::new());
    assert_eq!(home.suggested(&paid), [], "no label asked, and no rule does");
    let by_label = |n: usize| {
        let mut card = card(&paid[n].0, n, &home.rules);
        let offer = card.standing.as_mut().expect("offered");
        offer.pattern.rules.insert(TAINT_RULE.to_owned());
        card
    };
    assert_eq!(standing_of(&home.of_cards(&paid, &[by_label(0), by_label(1), by_label(2)])), [(3, 1)]);
}
