//! The form of the proxy's decisions.

use std::sync::Arc;

use serde_json::{Value, json};
use writ_agent::config::{AgentConfig, Share};
use writ_agent::event::{ContextSeed, Event, MemoryItem, TextVerdict};
use writ_agent::route::{RouteDecision, TurnRoute};
use writ_types::chat::Role;
use writ_types::taint::Taint;
use writ_types::unit::Tokens;

use crate::fixture::{Driver, memory, message, opened, said, seed, texts_of};

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

/// The proxy picks the profile of a turn: the executor's request is divided as that profile divides it. A name that is none
/// leaves the turn with the profile that it has.
///
/// The profile `coding` has 20, 20 and 40 per cent, and divides the next request; a name that no profile has is that of the agent's own.
///
/// Rows: SIL-071
#[test]
fn the_profile_that_the_proxy_picks_divides_the_request_of_its_turn() {
    let mut config = AgentConfig::default();
    (config.context.total_tokens, config.context.system_max) = (Tokens::new(8_000), Tokens::new(2_000));
    let text = "word ".repeat(100);
    let hits: Vec<MemoryItem> =
        (0..100).map(|n| memory(n, &format!("known {n} {text}"), Taint::Owner)).collect();
    let request_of = |profile: &str, picked: Option<Option<&str>>| {
        let history = (0..100).map(|n| Arc::new(said(Role::User, &format!("said {n} {text}"))));
        let proxy = picked.is_some();
        let seed = ContextSeed { history: history.collect(), profile: profile.to_owned(), proxy, ..seed() };
        let mut driver = Driver::new();
        driver.feed(opened(vec![message(1, "do it", Taint::Owner)], seed, config.clone()));
        driver.feed(Event::InputJudged { verdict: TextVerdict::Pass });
        driver.feed(Event::Recorded);
        driver.feed(Event::Recalled { hits: hits.clone() });
        if let Some(name) = picked {
            let (route, reason) = (TurnRoute::Act, "work".to_owned());
            let context_profile = name.map(str::to_owned);
            driver.feed(Event::Routed {
                decision: RouteDecision { route, reason, context_profile, ..RouteDecision::without_proxy() },
            });
        }
        driver.request().clone()
    };
    let picked = |name| request_of("conversation", Some(name));
    let own = |profile| request_of(profile, None);
    assert_eq!(picked(Some("coding")), own("coding"));
    for unknown in [None, Some("no such profile"), Some("")] {
        assert_eq!(picked(unknown), own("conversation"), "{unknown:?}");
    }
    let counts = |name| {
        let texts = texts_of(&picked(Some(name)));
        (texts.matches("said ").count(), texts.matches("known ").count())
    };
    let shares = config.context.profile_named("coding");
    let shares = [shares.chronicle_pct, shares.memory_pct, shares.workspace_pct];
    assert_eq!(shares, [20, 20, 40].map(Share::of_percent));
    let (coding, conversation) = (counts("coding"), counts("conversation"));
    assert!(coding.0 < conversation.0 && coding.1 > conversation.1, "{coding:?} {conversation:?}");
}
