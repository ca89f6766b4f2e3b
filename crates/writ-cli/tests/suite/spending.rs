//! `writ context` and `writ budget`, as their owner types them.

use serde_json::json;

use super::turns::{Bench, calls};
use super::{code, text};

/// What the model sees is listed with its cost, a message is pinned and unpinned, a conversation is summarised at its owner's
/// word, and what was spent is shown by what it was spent on; a paused session calls no model.
#[test]
fn an_owner_looks_at_the_context_and_the_money_and_decides_about_both() {
    let bench = Bench::new("openai", calls(Vec::new(), "Yes."));
    let none = bench.home.run(&["context", "show"]);
    assert_eq!(code(&none), 2, "{}", text(&none));
    assert!(text(&none).contains("there is no session yet"), "{}", text(&none));
    for message in ["The gate code is blue.", "hello", "and again"] {
        assert_eq!(code(&bench.chat(message, &[])), 0);
    }
    let view = bench.home.json(&["context", "show"]);
    let session = view["session"].as_str().expect("a session").to_owned();
    let items = view["items"].as_array().expect("items");
    let begins = |text: &str| {
        items.iter().find(|item| item["begins"].as_str().is_some_and(|begins| begins.contains(text))).cloned()
    };
    let row = begins("and again").expect("the last message")["row"].to_string();
    assert!(items.iter().any(|item| item["source"] == "tool file_read" && item["pinned"] == true), "{view}");
    let shown = bench.home.run(&["context", "show", "--session", &session]);
    assert!(text(&shown).contains("person: and again"), "{}", text(&shown));

    let pinned = bench.home.json(&["context", "pin", &row, "--session", &session]);
    assert_eq!(pinned["pins"].to_string(), format!("[{row}]"));
    let wrong = bench.home.run(&["context", "pin", "999999", "--session", &session]);
    assert_eq!(code(&wrong), 2, "{}", text(&wrong));
    assert!(text(&wrong).contains("has no row 999999"), "{}", text(&wrong));
    let unpinned = bench.home.run(&["context", "unpin", &row]);
    assert!(text(&unpinned).contains("nothing is pinned"), "{}", text(&unpinned));

    let report = bench.home.json(&["budget", "--by", "role"]);
    assert_eq!(report["rows"][0]["name"], json!("executor"), "{report}");
    assert_eq!(report["rows"][0]["model_calls"], json!(3));
    let by_model = bench.home.run(&["budget", "--by", "model", "--days", "1"]);
    assert!(text(&by_model).contains("budget.max_tokens_per_session"), "{}", text(&by_model));

    let paused = bench.home.json(&["budget", "pause"]);
    assert_eq!(paused["paused"], json!(true));
    let stopped = bench.chat("go on", &["--session", &session]);
    assert_eq!(code(&stopped), 6, "{}", text(&stopped));
    assert!(text(&stopped).contains("This session is paused"), "{}", text(&stopped));
    assert_eq!(bench.home.json(&["budget", "renew"])["paused"], json!(false));
    assert_eq!(code(&bench.chat("go on", &["--session", &session])), 0);

    let outcome = bench.home.json(&["context", "compact", "--session", &session]);
    assert!(outcome["compaction"]["messages"].as_u64().is_some_and(|messages| messages > 0), "{outcome}");
    let diff = bench.home.run(&["context", "diff", "--session", &session]);
    assert!(text(&diff).contains("summarised"), "{}", text(&diff));
}
