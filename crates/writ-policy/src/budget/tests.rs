use writ_types::action::ModelCall;

use super::*;
use crate::fixture::{exec, model_call, prepared};

fn spend(set: impl FnOnce(&mut BudgetFacts)) -> BudgetFacts {
    let mut facts = BudgetFacts::default();
    set(&mut facts);
    facts
}

/// Rows: WIN-036 WIN-037
#[test]
fn the_defaults_are_those_of_the_requirements() {
    let limits: BudgetConfig = serde_json::from_str("{}").expect("every field has a default");
    assert_eq!(limits.max_tokens_per_session, Tokens::new(500_000));
    assert_eq!(limits.max_tokens_per_day, Tokens::new(5_000_000));
    assert_eq!(limits.max_tool_calls_per_turn, 20);
    assert!(serde_json::from_str::<BudgetConfig>(r#"{"max_tokens":1}"#).is_err());

    let call = prepared(Action::ModelCall(model_call()));
    let judged = |facts: BudgetFacts| judge_budget(&call, &facts).err();
    assert_eq!(judged(spend(|f| f.spent.session_tokens = Tokens::new(499_999))), None);
    let session = judged(spend(|f| f.spent.session_tokens = Tokens::new(500_000)));
    assert_eq!(session, Some(Exhausted::SessionTokens));
    assert_eq!(judged(spend(|f| f.spent.day_tokens = Tokens::new(4_999_999))), None);
    let day = judged(spend(|f| f.spent.day_tokens = Tokens::new(5_000_000)));
    assert_eq!(day, Some(Exhausted::DayTokens));

    let tool = prepared(Action::Exec(exec()));
    assert!(judge_budget(&tool, &spend(|f| f.spent.turn_tool_calls = 19)).is_ok());
    let twenty = spend(|f| f.spent.turn_tool_calls = 20);
    assert_eq!(judge_budget(&tool, &twenty), Err(Exhausted::ToolCalls));
    assert_eq!(judge_budget(&Prepared { call: None, ..tool }, &twenty), Ok(Reservation::default()));
}

#[test]
fn what_is_set_aside_is_the_most_that_it_can_take() {
    let call = prepared(Action::ModelCall(model_call()));
    let most = Reservation { tokens: Tokens::new(150), cost: MicroUsd::new(10), tool_calls: 0 };
    assert_eq!(judge_budget(&call, &BudgetFacts::default()), Ok(most));
    let tool = prepared(Action::Exec(exec()));
    let one = Reservation { tool_calls: 1, ..Reservation::default() };
    assert_eq!(judge_budget(&tool, &BudgetFacts::default()), Ok(one));
}

#[test]
fn money_limits_include_what_was_spent_and_refuse_unknown_prices() {
    type Set = fn(&mut BudgetFacts, u64, u64);
    let limits: [(Exhausted, Set); 3] = [
        (Exhausted::TurnCost, |f, limit, spent| {
            f.limits.max_cost_per_turn = Some(MicroUsd::new(limit));
            f.spent.turn_cost = MicroUsd::new(spent);
        }),
        (Exhausted::SessionCost, |f, limit, spent| {
            f.limits.max_cost_per_session = Some(MicroUsd::new(limit));
            f.spent.session_cost = MicroUsd::new(spent);
        }),
        (Exhausted::DayCost, |f, limit, spent| {
            f.limits.max_cost_per_day = Some(MicroUsd::new(limit));
            f.spent.day_cost = MicroUsd::new(spent);
        }),
    ];
    let known = prepared(Action::ModelCall(model_call()));
    let unknown = prepared(Action::ModelCall(ModelCall { ceiling: None, ..model_call() }));
    for (reached, set) in limits {
        assert!(judge_budget(&known, &spend(|f| set(f, 100, 90))).is_ok());
        assert_eq!(judge_budget(&known, &spend(|f| set(f, 100, 91))), Err(reached));
        assert_eq!(judge_budget(&unknown, &spend(|f| set(f, 100, 0))), Err(Exhausted::UnknownPrice));
    }
    let per_call = |limit| spend(|f| f.limits.max_cost_per_call = Some(MicroUsd::new(limit)));
    assert!(judge_budget(&known, &per_call(10)).is_ok());
    assert_eq!(judge_budget(&known, &per_call(9)), Err(Exhausted::CallCost));
    assert!(judge_budget(&unknown, &BudgetFacts::default()).is_ok());
}

#[test]
fn every_limit_names_its_setting() {
    let settings = [
        (Exhausted::SessionTokens, "budget.max_tokens_per_session"),
        (Exhausted::DayTokens, "budget.max_tokens_per_day"),
        (Exhausted::ToolCalls, "budget.max_tool_calls_per_turn"),
        (Exhausted::CallCost, "budget.max_cost_per_call"),
        (Exhausted::TurnCost, "budget.max_cost_per_turn"),
        (Exhausted::SessionCost, "budget.max_cost_per_session"),
        (Exhausted::DayCost, "budget.max_cost_per_day"),
        (Exhausted::MonthCost, "budget.max_cost_per_month"),
        (Exhausted::Paused, "the owner's pause"),
        (Exhausted::UnknownPrice, "the price table"),
    ];
    for (limit, setting) in settings {
        assert_eq!(limit.setting_name(), setting);
    }
}

#[test]
fn a_day_that_begins_at_five_takes_the_night_before_it() {
    let day = |hours: i64, day_starts_at_minute| {
        let limits = BudgetConfig { day_starts_at_minute, ..BudgetConfig::default() };
        let now = Timestamp::from_millis(hours * 3_600_000);
        let date = limits.start_of_day(now);
        let call = Action::ModelCall(model_call());
        let facts = BudgetFacts { limits, ..BudgetFacts::default() };
        assert_eq!(
            Ceilings::ceilings_of(&call, &facts).start_of_day(now),
            date,
            "both count by the same day"
        );
        date.to_string().chars().take(10).collect::<String>()
    };
    for (hours, minute, begins) in [(28, 0, 24), (28, 300, 5), (29, 300, 29), (53, 300, 53), (52, 300, 29)] {
        let limits = BudgetConfig { day_starts_at_minute: minute, ..BudgetConfig::default() };
        let begun = limits.day_begins(Timestamp::from_millis(hours * 3_600_000));
        assert_eq!(begun.as_millis(), begins * 3_600_000, "{hours} {minute}");
    }
    assert_eq!(day(24 + 4, 0), "1970-01-02");
    assert_eq!(day(24 + 4, 300), "1970-01-01");
    assert_eq!(day(24 + 5, 300), "1970-01-02");
}

#[test]
fn shared_limits_admit_tokens_while_any_are_left_and_money_as_far_as_it_reaches() {
    let facts = spend(|f| {
        f.limits.max_tokens_per_session = Tokens::new(100);
        f.limits.max_tokens_per_day = Tokens::new(1_000);
        f.limits.max_cost_per_session = Some(MicroUsd::new(50));
        f.limits.max_cost_per_day = Some(MicroUsd::new(70));
        f.limits.max_cost_per_month = Some(MicroUsd::new(90));
        f.spent.session_base = Tokens::new(20);
    });
    let ceilings = Ceilings::ceilings_of(&Action::ModelCall(model_call()), &facts);
    assert!(!ceilings.is_empty(), "a model call is counted");
    let taken = |tokens, cost| UsedAmounts { tokens: Tokens::new(tokens), cost: MicroUsd::new(cost) };
    let admit_in = |session, day, month, most| {
        ceilings.admit_call(
            &SharedAmounts { session, day, month, plan: UsedAmounts::default() },
            MicroUsd::new(most),
        )
    };
    let admit = |session, day, most| admit_in(session, day, taken(0, 0), most);
    assert_eq!(admit_in(taken(0, 0), taken(0, 0), taken(0, 80), 10), Ok(()));
    assert_eq!(admit_in(taken(0, 0), taken(0, 0), taken(0, 81), 10), Err(Exhausted::MonthCost));
    assert_eq!(admit(taken(119, 40), taken(999, 60), 10), Ok(()));
    assert_eq!(
        admit(taken(120, 0), taken(0, 0), 0),
        Err(Exhausted::SessionTokens),
        "counted from the renewal"
    );
    assert_eq!(admit(taken(0, 0), taken(1_000, 0), 0), Err(Exhausted::DayTokens));
    assert_eq!(admit(taken(0, 41), taken(0, 0), 10), Err(Exhausted::SessionCost));
    assert_eq!(admit(taken(0, 0), taken(0, 61), 10), Err(Exhausted::DayCost));
    assert!(Ceilings::ceilings_of(&Action::Exec(exec()), &facts).is_empty(), "commands take neither");
}
