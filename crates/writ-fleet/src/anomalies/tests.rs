use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn event(seconds: i64, measure: Measure, amount: u64) -> FleetEvent {
    FleetEvent {
        at: at(seconds),
        agent: "refund".into(),
        case: "case_tk_1".into(),
        customer: "cust_tk_1".into(),
        measure,
        amount,
    }
}

fn watch(rules: &[&str]) -> AnomalyWatch {
    AnomalyWatch::new(rules.iter().map(|rule| rule.parse().expect("a rule")).collect())
}

/// Rows: SLO-060 SLO-046 (in part: the rule that decides)
#[test]
fn a_burst_of_refusals_is_one_anomaly_and_normal_traffic_is_none() {
    let mut normal = watch(&["refused > 5 in 1 min then revoke"]);
    let quiet = (0..50).flat_map(|n| normal.observe_event(&event(n * 13, Measure::Refused, 1))).count();
    assert_eq!(quiet, 0, "five a minute is the bound, and it is inclusive");
    let mut burst = watch(&["refused > 5 in 1 min then revoke"]);
    let found: Vec<Anomaly> =
        (0..20).flat_map(|n| burst.observe_event(&event(n, Measure::Refused, 1))).collect();
    let [one] = found.as_slice() else { panic!("once, at the sixth: {found:?}") };
    assert_eq!((one.at, one.reaction, one.evidence.as_str()), (at(5), Reaction::Revoke, "6 refused"));
    assert_eq!(one.rule, "refused > 5 in 60 s then revoke");
    // After a quiet time the next burst is a new anomaly.
    let later: Vec<Anomaly> =
        (500..520).flat_map(|n| burst.observe_event(&event(n, Measure::Refused, 1))).collect();
    assert_eq!(later.len(), 1);
}

/// Rows: SLO-060
#[test]
fn amounts_of_a_case_add_up_and_the_next_holder_begins_anew() {
    let mut watch = watch(&["records_read > 50 per case then revoke", "tokens > 1000"]);
    assert!(watch.observe_event(&event(0, Measure::RecordsRead, 50)).is_empty());
    let found = watch.observe_event(&event(86_400 * 3, Measure::RecordsRead, 1));
    assert_eq!(found.first().map(|one| one.evidence.as_str()), Some("51 records_read"));
    let next = FleetEvent { agent: "manager".into(), ..event(86_400 * 3, Measure::RecordsRead, 50) };
    assert!(watch.observe_event(&next).is_empty());
    let again = event(86_400 * 3, Measure::RecordsRead, 1);
    assert!(watch.observe_event(&again).is_empty(), "one anomaly, reported once");
    watch.forget_anomaly(&found[0]);
    assert_eq!(watch.observe_event(&again).len(), 1, "what could not be acted on is reported again");
    let tokens = watch.observe_event(&event(86_400 * 3, Measure::Tokens, u64::MAX));
    assert_eq!(tokens.first().map(|one| one.reaction), Some(Reaction::Alert));
}

/// The events here name the customer alike in both cases, as tokens of the proxy do not.
#[test]
fn one_customer_in_two_cases_is_seen() {
    let mut watch = watch(&["same customer from two cases"]);
    assert!(watch.observe_event(&event(0, Measure::Requests, 1)).is_empty());
    let other = FleetEvent { case: "case_tk_2".into(), ..event(1, Measure::Requests, 1) };
    let found = watch.observe_event(&other);
    assert_eq!(
        found.first().map(|one| one.evidence.as_str()),
        Some("customer cust_tk_1 also in case case_tk_1")
    );
    watch.forget_work("case_tk_1", "refund");
    let third = FleetEvent { case: "case_tk_2".into(), ..event(2, Measure::Requests, 1) };
    assert!(watch.observe_event(&third).is_empty(), "the first is closed");
}

/// The model router knows no customer: its events say nothing about whose case it is.
#[test]
fn events_without_a_customer_do_not_report_the_same_customer_again() {
    let mut watch = watch(&["same customer from two cases"]);
    let other = |second, measure| FleetEvent { case: "case_tk_2".into(), ..event(second, measure, 1) };
    assert!(watch.observe_event(&event(0, Measure::Requests, 1)).is_empty());
    let mut found = Vec::new();
    for second in 1..20 {
        found.extend(watch.observe_event(&other(second, Measure::Requests)));
        let unnamed = FleetEvent { customer: String::new(), ..other(second, Measure::Tokens) };
        found.extend(watch.observe_event(&unnamed));
    }
    assert_eq!(found.len(), 1, "{found:?}");
    watch.forget_work("case_tk_1", "refund");
    let unnamed = FleetEvent { customer: String::new(), ..other(20, Measure::Tokens) };
    assert!(watch.observe_event(&unnamed).is_empty(), "the first is closed");
    watch.observe_event(&event(21, Measure::Requests, 1));
    assert_eq!(watch.observe_event(&other(22, Measure::Requests)).len(), 1, "twin: again is another one");
}

/// Rows: SLO-059 (in part: the numbers of the view)
#[test]
fn the_view_has_rates_sums_and_refusals_of_each_agent_until_its_task_ends() {
    let mut watch = watch(&[]);
    for second in 0..90 {
        watch.observe_event(&event(second, Measure::Requests, 1));
    }
    watch.observe_event(&event(89, Measure::Tokens, 700));
    watch.observe_event(&event(89, Measure::Tokens, 42));
    watch.observe_event(&event(89, Measure::Refused, 1));
    let other =
        FleetEvent { agent: "manager".into(), case: "case_tk_2".into(), ..event(89, Measure::Requests, 1) };
    watch.observe_event(&other);
    let line = |agent: &str, case: &str, numbers: [u64; 3]| WatchLine {
        agent: agent.into(),
        case: case.into(),
        requests_per_minute: numbers[0],
        refused: numbers[1],
        tokens: numbers[2],
    };
    let expected = vec![line("refund", "case_tk_1", [60, 1, 742]), line("manager", "case_tk_2", [1, 0, 0])];
    assert_eq!(watch.list_work(at(89)), expected);
    watch.forget_work("case_tk_1", "refund");
    assert_eq!(watch.list_work(at(89)).len(), 1);
}

#[test]
fn what_is_watched_stays_within_its_bounds() {
    let mut watch = watch(&["requests > 1000000 in 24 hours"]);
    for n in 0..MAX_WATCHED + 10 {
        let case = format!("case_tk_{n}");
        watch.observe_event(&FleetEvent {
            case,
            ..event(i64::try_from(n).expect("small"), Measure::Requests, 1)
        });
    }
    assert_eq!(watch.watched.len(), MAX_WATCHED);
    assert!(!watch.watched.contains_key(&("case_tk_0".to_owned(), "refund".to_owned())), "the quietest");
    for n in 0..3_000 {
        watch.observe_event(&event(20_000 + n, Measure::Requests, 1));
    }
    let one = watch.watched.values().map(|one| one.amounts.values().map(|a| a.recent.len()).sum::<usize>());
    assert_eq!(one.max(), Some(MAX_AMOUNTS));
}

#[test]
fn rules_say_what_is_wrong_with_them() {
    let fault = |text: &str| text.parse::<AnomalyRule>().expect_err(text).to_string();
    assert!(fault("refuse > 5 in 1 min").contains("'refuse' is not counted; these are: requests, refused"));
    assert!(fault("refused > many").contains("'many' is no whole number"));
    assert!(fault("refused > 5 in 1 fortnight").contains("no unit of time"));
    assert!(fault("refused > 5 in 0 min").contains("1 s to 24 hours"));
    assert!(fault("refused > 5 then explode").contains("neither revoke nor alert"));
    assert!(fault("refused < 5").contains("no comparison"));
    assert!(fault("").contains("no comparison"));
    assert!(fault(&"x".repeat(1_000)).len() < 400);
    for text in ["refused > 5 in 60 s then revoke", "tokens > 9 per case then alert"] {
        assert_eq!(
            text.parse::<AnomalyRule>().expect("a rule").to_string(),
            text,
            "is read as it is written"
        );
    }
}
