//! `writ models`: what works with a model is found out with real requests, through the door.

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault};

use super::turns::Bench;
use super::{code, text};

/// A model that does what it is asked.
fn able(request: &ParsedRequest) -> Reply {
    let asked = request.last_user_text();
    let has_result = request.results().count() > 0;
    if has_result {
        Reply::text("42").with_usage(120, 1)
    } else if !request.tools.is_empty() {
        Reply::call("add_numbers", json!({ "a": 17, "b": 25 })).with_usage(110, 20)
    } else if asked.contains("JSON") {
        Reply::text("{\"answer\": 42}").with_usage(100, 6)
    } else if asked.contains("numbers from 1 to 40") {
        Reply::text("1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20")
            .with_usage(100, 60)
    } else {
        Reply::text("ready").with_usage(100, 1)
    }
}

fn verdicts(tried: &Value) -> Vec<(&str, &str)> {
    let checks = tried["checks"].as_array().expect("checks");
    assert!(
        checks.iter().all(|check| check["text"].as_str().is_some_and(|text| !text.is_empty())),
        "{tried}"
    );
    checks.iter().filter_map(|check| Some((check["check"].as_str()?, check["verdict"].as_str()?))).collect()
}

#[test]
fn a_model_that_can_do_everything_is_said_to_and_each_request_is_on_record() {
    super::rows_win::not_the_last_minute();
    for kind in ["anthropic", "openai", "openai_responses", "openrouter", "gemini", "ollama"] {
        let bench = Bench::new(kind, able);
        let done = bench.home.run(&["models", "test", "--json"]);
        assert_eq!(code(&done), 0, "{kind}: {}", text(&done));
        let tried: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        let expected = ["plain", "streaming", "tools", "results", "structured"].map(|check| (check, "works"));
        assert_eq!(verdicts(&tried), expected, "{kind}: {tried}");
        assert_eq!(
            (tried["model"].as_str(), tried["input_tokens"].as_u64()),
            (Some("test/scripted"), Some(530))
        );
        assert_eq!(
            (bench.count("intent"), bench.count("model_called")),
            (5, 5),
            "{kind}: each passed the door"
        );
        assert_eq!(bench.home.json(&["status"])["today"]["tokens"], 618, "{kind}: they are counted");
        let said = text(&bench.home.run(&["models", "test", "test/other-model"]));
        assert!(said.contains("ok    tools      it calls a tool"), "{said}");
        let asked = bench.server.recorded_requests().pop().expect("a request").body.to_string();
        assert!(
            asked.contains("other-model") || kind == "gemini",
            "{kind}: the model that was named is asked"
        );
    }
}

#[test]
fn a_model_that_lacks_something_is_said_to_in_plain_words() {
    let bench = Bench::new("openai", |request: &ParsedRequest| {
        if request.last_user_text().contains("JSON") {
            return Reply::text("The answer is 42.");
        }
        if request.tools.is_empty() { able(request) } else { Reply::text("17 + 25 = 42") }
    });
    let done = bench.home.run(&["models", "test"]);
    let said = text(&done);
    assert_eq!(code(&done), 7, "without tools there is no agent: {said}");
    for told in [
        "ok    plain      it answers, after ",
        "BAD   tools      it answered with text instead of calling the tool",
        "warn  structured its answer was not the JSON that was asked for",
        "4 requests: ",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
}

/// A request that the provider does not take is told in the provider's words; the rest of the requests is still tried.
#[test]
fn a_request_that_is_refused_is_told_in_the_providers_words() {
    let bench = Bench::new("openai", |request: &ParsedRequest| {
        if request.tools.is_empty() {
            return able(request);
        }
        Reply::default().with_fault(ReplyFault::ContextOver { window: 512, sent: 900 })
    });
    let done = bench.home.run(&["models", "test", "--json"]);
    assert_eq!(code(&done), 7, "{}", text(&done));
    let tried: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let expected = [("plain", "works"), ("streaming", "works"), ("tools", "fails"), ("structured", "works")];
    assert_eq!(verdicts(&tried), expected, "{tried}");
    let told = tried["checks"][2]["text"].as_str().expect("a text");
    assert!(told.contains("The provider says: `This model's maximum context length is 512"), "{told}");
}

#[test]
fn a_model_that_is_not_there_ends_with_7_after_one_request_and_a_name_that_is_none_with_2() {
    let bench = Bench::new("openai", |_: &ParsedRequest| Reply::status(401));
    let done = bench.home.run(&["models", "test"]);
    assert_eq!(code(&done), 7, "{}", text(&done));
    assert!(
        text(&done).contains("BAD   plain      test/scripted: the key is not accepted"),
        "{}",
        text(&done)
    );
    assert_eq!(bench.server.recorded_requests().len(), 1, "the rest would fail in the same way");
    for (name, told) in [("nonsense", "provider/name"), ("tset/scripted", "Did you mean 'test'")] {
        let wrong = bench.home.run(&["models", "test", name]);
        assert_eq!((code(&wrong), text(&wrong).contains(told)), (2, true), "{}", text(&wrong));
    }
    // A limit on money holds for tests of models as for turns: the price of this one is not known.
    let mut bench = Bench::new("openai", able);
    bench.home.env.push(("WRIT_BUDGET__MAX_COST_PER_CALL".to_owned(), "1".to_owned()));
    let denied = bench.home.run(&["models", "test"]);
    assert_eq!((code(&denied), bench.server.recorded_requests().len()), (6, 0), "{}", text(&denied));
}

#[test]
fn doctor_tries_the_model_only_when_it_is_asked_to() {
    let bench = Bench::new("openai", able);
    let plain = text(&bench.home.run(&["doctor"]));
    assert!(plain.contains("nothing was sent to a model"), "{plain}");
    assert!(bench.server.recorded_requests().is_empty(), "doctor spends nothing by itself");
    let tried = bench.home.run(&["doctor", "--models", "--json"]);
    let report: Value = serde_json::from_slice(&tried.stdout).expect("JSON");
    let checks = report["checks"].as_array().expect("checks");
    let of_model: Vec<&Value> = checks.iter().filter(|check| check["name"] == "try").collect();
    assert_eq!(of_model.len(), 6, "five kinds, and what they have taken: {report}");
    assert!(of_model.iter().all(|check| check["verdict"] == "good"), "{report}");
    assert_eq!(bench.server.recorded_requests().len(), 5);
}

#[test]
fn models_are_listed_with_what_is_known_of_them() {
    let bench = Bench::new("openai", able);
    let listed = bench.home.json(&["models", "list"]);
    let model = &listed["models"][0];
    assert_eq!((model["role"].as_str(), model["model"].as_str()), (Some("default"), Some("test/scripted")));
    assert_eq!((model["key"].as_str(), model["known"].as_bool()), (Some("env:SCRIPTED_KEY"), Some(false)));
    let said = text(&bench.home.run(&["models", "list"]));
    assert!(said.contains("default    test/scripted at 127.0.0.1:"), "{said}");
    assert!(!said.contains("the-key-of-the-script") && bench.server.recorded_requests().is_empty());
}

/// The state of a model is listed after failures: their number, and the limits that its provider stated.
#[test]
fn models_are_listed_with_their_failures_limits_and_prices() {
    let mut bench = Bench::new("openai", |_: &ParsedRequest| {
        let headers = vec![
            ("x-ratelimit-limit-requests", "60".to_owned()),
            ("x-ratelimit-remaining-requests", "0".to_owned()),
        ];
        let body = r#"{"error":{"message":"no","type":"insufficient_quota"}}"#.to_owned();
        Reply::default().with_fault(ReplyFault::Response { status: 429, headers, body })
    });
    bench.home.env.push(("WRIT_MODELS__TIERS__REASONING".to_owned(), "test/deep".to_owned()));
    assert_eq!(code(&bench.chat("hi", &[])), 7);
    let listed = bench.home.json(&["models", "list"]);
    let state = &listed["models"][0]["state"];
    assert_eq!(state["failures"], 1, "{listed}");
    assert_eq!(state["limits"]["requests"]["remaining"], 0, "{listed}");
    let said = text(&bench.home.run(&["models", "list"]));
    for told in [
        "planner    test/deep at 127.0.0.1:",
        "tier reasoning",
        "clearance personal",
        "failed 1 times in a row",
        "0 requests left of 60",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    let prices = bench.home.json(&["models", "prices", "claude-sonnet-4-6"]);
    let listed = prices["prices"].as_array().expect("prices");
    assert_eq!(listed.len(), 1, "{prices}");
    assert_eq!(
        (&listed[0]["model"], &listed[0]["price"]["input"], &listed[0]["own"]),
        (&json!("anthropic/claude-sonnet-4-6"), &json!(3_000_000), &json!(false))
    );
    let said = text(&bench.home.run(&["models", "prices"]));
    assert!(said.contains("$3.00 in, $15.00 out"), "{said}");
}

/// Rows: SIL-401 (in part: from the command line)
#[test]
fn an_image_that_a_message_names_is_sent_and_what_is_none_is_refused() {
    let bench = Bench::new("anthropic", |request: &ParsedRequest| {
        let files: Vec<String> = request.files().into_iter().map(|file| file.media).collect();
        Reply::text(&format!("seen: {}", files.join(",")))
    });
    let file = |name: &str, bytes: &[u8]| {
        let path = bench.home.dir.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path.display().to_string()
    };
    let image = file("my photo.png", b"\x89PNG\r\n\x1a\n....IEND\xaeB`\x82");
    let done = bench.chat(&format!("look at @\"{image}\"."), &[]);
    assert!(code(&done) == 0 && text(&done).contains("seen: image/png"), "{}", text(&done));
    let asked = bench.server.recorded_requests().len();
    for (path, told) in [
        (file("false.png", b"no image"), "no PNG, JPEG, GIF or WebP image"),
        (file("cut.pdf", b"%PDF-1.4\n1 0 obj"), "cut or damaged"),
        ("missing.jpg".to_owned(), "missing.jpg"),
    ] {
        let refused = bench.chat(&format!("look at @{path}"), &[]);
        assert_eq!((code(&refused), text(&refused).contains(told)), (2, true), "{}", text(&refused));
    }
    assert_eq!(bench.server.recorded_requests().len(), asked, "nothing was sent");
}

/// Reasoning is shown folded, and as a frame of its own to programs.
#[test]
fn reasoning_is_shown_as_one_line() {
    let bench = Bench::new("openai", |_: &ParsedRequest| {
        let frame = r#"{"choices":[{"index":0,"delta":{"reasoning_content":"First the one, then the other, and so on until the very end of all."}}]}"#;
        Reply::text("done").with_fault(ReplyFault::RawAfter(0, format!("data: {frame}\n\n")))
    });
    let said = text(&bench.chat("hi", &[]));
    assert!(said.contains("reasoned in 15 words: First the one, then the other"), "{said}");
    assert!(!said.contains("end of all"), "folded: {said}");
    let frames = text(&bench.chat("hi", &["--json"]));
    assert!(frames.contains(r#""type":"reasoning""#) && frames.contains("end of all"), "{frames}");
}
