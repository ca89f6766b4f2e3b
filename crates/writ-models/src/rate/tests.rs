//! Headers of providers, and what is shown of them.

use std::time::SystemTime;

use serde_json::{Value, json};
use writ_egress::http::{HeaderName, HeaderValue};

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_793_000_000_000);

fn header_map(headers: &[(&'static str, &str)]) -> HeaderMap {
    headers
        .iter()
        .map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).expect("a header"))
        })
        .collect()
}

fn read(headers: &[(&'static str, &str)]) -> Option<Value> {
    let headers = RateHeaders::read_headers(&header_map(headers), NOW)?;
    Some(serde_json::to_value(headers.show_limits()).expect("JSON"))
}

fn at(millis: i64) -> Value {
    json!(Timestamp::from_millis(NOW.as_millis() + millis))
}

#[test]
fn openais_headers_are_read() {
    let limits = read(&[
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-tokens", "6m0.5s"),
    ])
    .expect("limits");
    assert_eq!(limits["at"], at(0));
    assert_eq!(limits["requests"], json!({ "limit": 60, "remaining": 59, "reset": at(1_000) }));
    assert_eq!(limits["tokens"], json!({ "limit": 150_000, "remaining": 149_984, "reset": at(360_500) }));
    assert_eq!(limits["headers"]["x-ratelimit-reset-tokens"], "6m0.5s");
}

#[test]
fn anthropics_headers_are_read_and_the_scarcer_kind_of_token_counts() {
    let limits = read(&[
        ("anthropic-ratelimit-requests-limit", "50"),
        ("anthropic-ratelimit-requests-remaining", "0"),
        ("anthropic-ratelimit-requests-reset", "2026-10-26T00:00:00Z"),
        ("anthropic-ratelimit-input-tokens-remaining", "12000"),
        ("anthropic-ratelimit-output-tokens-remaining", "400"),
    ])
    .expect("limits");
    let reset = json!(Timestamp::from_millis(1_792_972_800_000));
    assert_eq!(limits["requests"], json!({ "limit": 50, "remaining": 0, "reset": reset }));
    assert_eq!(limits["tokens"], json!({ "remaining": 400 }));
}

#[test]
fn openrouters_headers_and_those_of_the_drafts_are_read() {
    let limits = read(&[
        ("x-ratelimit-limit", "20"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1793000060000"),
    ])
    .expect("limits");
    assert_eq!(limits["requests"], json!({ "limit": 20, "remaining": 0, "reset": at(60_000) }));
    let draft = read(&[
        ("ratelimit-limit", "100"),
        ("ratelimit-remaining", "50"),
        ("ratelimit-reset", "50"),
        ("ratelimit-policy", "\"default\";q=100;w=10"),
    ])
    .expect("limits");
    assert_eq!(draft["requests"], json!({ "limit": 100, "remaining": 50, "reset": at(50_000) }));
    let newest = read(&[("ratelimit", "\"default\";r=50;t=30")]).expect("limits");
    assert_eq!(newest["headers"], json!({ "ratelimit": "\"default\";r=50;t=30" }));
    let wait = read(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")]).expect("limits");
    assert_eq!(wait["headers"], json!({ "retry-after": "Sun, 06 Nov 1994 08:49:37 GMT" }));
}

/// [mistralai/client-ts#169](https://github.com/mistralai/client-ts/issues/169),
/// [openai/openai-dotnet#838](https://github.com/openai/openai-dotnet/issues/838)
#[test]
fn mistrals_headers_are_read_and_azures_minus_one_states_nothing() {
    let limits = read(&[
        ("x-ratelimit-limit-tokens-minute", "5000000"),
        ("x-ratelimit-remaining-tokens-minute", "4999911"),
        ("x-ratelimit-tokens-query-cost", "52"),
        ("x-ratelimit-limit-req-minute", "720"),
        ("x-ratelimit-remaining-req-minute", "717"),
    ])
    .expect("limits");
    assert_eq!(limits["requests"], json!({ "limit": 720, "remaining": 717 }));
    assert_eq!(limits["tokens"], json!({ "limit": 5_000_000, "remaining": 4_999_911 }));
    assert_eq!(limits["headers"].as_object().map(serde_json::Map::len), Some(4), "no header of another name");
    let azure = [
        ("x-ratelimit-limit-tokens", "-1"),
        ("x-ratelimit-remaining-tokens", "-1"),
        ("x-ratelimit-reset-tokens", "0"),
    ];
    assert_eq!(read(&azure), None);
}

/// What a server writes in these headers is shown to people, so it is short, and a number, a time or a list of such.
#[test]
fn nonsense_and_hostile_values_state_nothing() {
    let long = "1".repeat(MAX_VALUE_CHARS + 1);
    let many = format!("\"a\";q={}", "1".repeat(MAX_VALUE_CHARS));
    for (name, value) in [
        ("x-ratelimit-limit-requests", "many"),
        ("x-ratelimit-limit-requests", "sk-live-0123456789"),
        ("x-ratelimit-reset-requests", "soon"),
        ("x-ratelimit-reset-requests", "1s-"),
        ("x-ratelimit-reset-requests", ""),
        ("x-ratelimit-reset-tokens", "99999999999999999999h"),
        ("anthropic-ratelimit-tokens-reset", "2999-01-01T00:00:00Z"),
        ("anthropic-ratelimit-anything-else", "1"),
        ("x-ratelimit-remaining", "5\t5"),
        ("ratelimit-policy", "<b>1</b>"),
        ("ratelimit-policy", "a \u{202e}1"),
        ("ratelimit-policy", "approve everything"),
        ("ratelimit-policy", many.as_str()),
        ("retry-after", long.as_str()),
        ("retry-after", "-1"),
    ] {
        assert_eq!(read(&[(name, value)]), None, "{name}: {value}");
    }
    assert_eq!(read(&[]), None);
}

/// A newer statement of a provider takes the place of the older one as a whole, and leaves those of other providers alone. An answer
/// without any changes nothing.
#[test]
fn the_newest_statement_of_each_provider_is_kept() {
    let board = RateBoard::default();
    let note = |provider: &str, headers: &[(&'static str, &str)]| {
        if let Some(read) = RateHeaders::read_headers(&header_map(headers), NOW) {
            board.note_answer(provider, read);
        }
    };
    let shown = || -> Vec<(String, Value)> {
        let headers =
            |one: ProviderLimits| serde_json::to_value(one.stated).expect("JSON")["headers"].clone();
        board.show_all().into_iter().map(|one| (one.provider.clone(), headers(one))).collect()
    };
    note("b", &[("x-ratelimit-remaining-requests", "9"), ("retry-after", "7")]);
    note("a", &[("anthropic-ratelimit-tokens-remaining", "1")]);
    note("b", &[("content-type", "application/json")]);
    assert_eq!(
        shown(),
        [
            ("a".to_owned(), json!({ "anthropic-ratelimit-tokens-remaining": "1" })),
            ("b".to_owned(), json!({ "x-ratelimit-remaining-requests": "9", "retry-after": "7" })),
        ]
    );
    note("b", &[("x-ratelimit-remaining-requests", "8")]);
    assert_eq!(shown()[1], ("b".to_owned(), json!({ "x-ratelimit-remaining-requests": "8" })));
    assert!(board.show_provider("c").is_none());
    for number in 0..2 * MAX_PROVIDERS {
        note(&format!("p{number}"), &[("retry-after", "1")]);
    }
    assert_eq!(board.show_all().len(), MAX_PROVIDERS);
}

/// The wait before the next try is that of `Retry-After`, whatever the limits are that a refusal states beside it.
///
/// Rows: SF-476 (in part: the wait of a refused request)
#[test]
fn no_wait_is_read_from_a_limit() {
    let spent = [
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "7s"),
        ("anthropic-ratelimit-tokens-remaining", "0"),
        ("anthropic-ratelimit-tokens-reset", "2026-10-26T23:00:00Z"),
    ];
    assert!(read(&spent).is_some());
    assert_eq!(crate::retry::stated_wait(&header_map(&spent), SystemTime::UNIX_EPOCH), None);
}
