//! The form of the proxy's decisions.

use serde_json::{Value, json};
use writ_agent::route::RouteDecision;

fn read(value: Value) -> Result<RouteDecision, String> {
    let decision: RouteDecision = serde_json::from_value(value).map_err(|error| error.to_string())?;
    decision.check(true).map(|()| decision)
}

/// Rows: SIL-047 (in part: with the ways `clarify` and `act` beside them)
#[test]
fn a_decision_has_a_way_and_a_reason_and_an_answer_where_the_proxy_answers() {
    let direct =
        json!({"route": "direct", "reason": "a greeting", "response": "Hi.", "context_profile": "coding"});
    assert!(read(direct.clone()).is_ok());
    assert!(read(json!({"route": "planner", "reason": "work"})).is_ok(), "what is null may be missing");
    for (wrong, why) in [
        (json!({"route": "executor", "reason": "x"}), "unknown variant `executor`"),
        (json!({"route": "direct", "response": "Hi."}), "missing field `reason`"),
        (json!({"route": "direct", "reason": " ", "response": "Hi."}), "1 to 300 characters"),
        (json!({"route": "direct", "reason": "x".repeat(301), "response": "Hi."}), "1 to 300 characters"),
        (json!({"route": "clarify", "reason": "x", "response": null}), "needs a response"),
        (json!({"route": "act", "reason": "x", "tool": "shell_exec"}), "unknown field `tool`"),
    ] {
        let error = read(wrong).expect_err(why);
        assert!(error.contains(why), "{error}");
    }
    let planner: RouteDecision =
        serde_json::from_value(json!({"route": "planner", "reason": "x"})).expect("reads");
    assert!(planner.check(false).is_err(), "where no plan can be made");
    let ways = |plans| RouteDecision::schema(plans)["properties"]["route"]["enum"].clone();
    assert_eq!(ways(false), json!(["direct", "clarify", "act"]));
    assert_eq!(ways(true), json!(["direct", "clarify", "act", "planner"]));
    assert!(RouteDecision::without_proxy().check(false).is_ok());
}
