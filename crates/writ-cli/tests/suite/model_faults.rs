//! Models that answer nonsense, too much, too late, or not at all.

use std::time::Instant;

use serde_json::json;
use writ_testkit::model_server::{ModelServer, ParsedRequest, Reply, ReplyFault, ReplyGate, list_of_replies};

use super::cases_needs_python::wait_for;
use super::engine::{Engine, Link, stop_engine_of};
use super::turns::{Bench, calls, wire};
use super::{code, text};

type Script = Box<dyn FnMut(&ParsedRequest) -> Reply + Send>;

/// A bench whose script is a list of replies; calls are tried twice, with hardly a wait between.
fn listed(kind: &str, replies: Vec<Reply>) -> Bench {
    let mut script = list_of_replies(replies);
    let mut bench = Bench::new(kind, move |request: &ParsedRequest| {
        writ_testkit::model_server::Script::reply(&mut script, request)
    });
    let env = [("MAX_TRIES", "2"), ("BACKOFF_BASE_MS", "1"), ("REQUEST_TIMEOUT_MS", "5000")];
    bench.home.env.extend(env.map(|(name, value)| (format!("WRIT_MODELS__{name}"), value.to_owned())));
    bench
}

/// How many of the calls below never become an action.
const WRONG: usize = 3;

/// Rows: SCL-011 SCL-015 SCL-044 SCL-045
/// Rows: SCL-202 (in part: the unknown one is named)
#[test]
fn wrong_calls_are_told_to_the_model_and_nothing_is_done() {
    for kind in ["anthropic", "openai"] {
        let bench = listed(
            kind,
            vec![
                Reply::call("launch_missiles", json!({ "at": "dawn" })),
                Reply::call("shell_exec", json!({ "argv": 5 })),
                Reply::call("shell_exec", json!({ "argv": ["true"], "sudo": true })),
                Reply::large_arguments("file_write", 300 * 1024),
                Reply::call("file_read", json!({ "path": "../../etc/passwd" })),
                Reply::call("shell_exec", json!({ "argv": ["a\u{0}b"] })),
                Reply::text("I give up."),
            ],
        );
        let done = bench.chat("do it", &[]);
        assert_eq!(code(&done), 4, "{kind}: a path outside is denied: {}", text(&done));
        let denied = bench.events("denied");
        let by = |rule: &str| denied.iter().filter(|row| row["payload"]["rule"] == rule).count();
        assert_eq!((denied.len() - by("arguments"), by("arguments")), (1, WRONG), "{kind}: {denied:?}");
        assert!(text(&done).contains("I give up."), "{kind}: {}", text(&done));
        let last = bench.requests().pop().expect("a request");
        for told in ["There is no tool 'launch_missiles'", "at most 262144 are accepted", "sudo", "argv"] {
            assert!(last.contains(told), "{kind}: {told}: {last}");
        }
        assert!(last.len() < 200_000, "{kind}: what is too large is not sent back");
        let intents = bench.events("intent");
        let kinds = intents.iter().filter_map(|entry| entry.pointer("/payload/action/kind")?.as_str());
        assert!(kinds.eq(std::iter::repeat_n("model_call", 7)), "{kind}: {intents:?}");
    }
}

/// Rows: SF-207
#[test]
fn a_hundred_calls_of_no_tool_are_a_hundred_results_and_the_session_goes_on() {
    let script = |request: &ParsedRequest| match request.messages.last().map(|last| last.results.is_empty()) {
        Some(true) => Reply::call("no_such_tool", json!({})),
        _ => Reply::text("There is none."),
    };
    let mut bench = Bench::new("openai", script);
    // Two hundred requests of a history that grows: more than a session's usual limit.
    bench.home = bench.home.with("WRIT_BUDGET__MAX_TOKENS_PER_SESSION", "5000000");
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, None).expect("joined");
    for n in 0..100 {
        let answer = link.ask("use it", &format!("{n}")).expect("the engine goes on");
        assert_eq!(answer.text, "There is none.", "{n}");
    }
    let last = bench.requests().pop().expect("a request");
    assert!(last.contains("There is no tool 'no_such_tool'"), "{last}");
    // A turn is over a moment after its last word.
    let mut status = || link.call("status", json!({})).expect("told");
    wait_for(|| status()["turns_finished"] == 100, || "the last turn is not over".to_owned());
    let status = status();
    assert_eq!((&status["turns_finished"], &status["running"]), (&json!(100), &json!([])));
    assert_eq!(engine.stop().code, Some(0));
}

/// One server speaks all three formats, to three providers of one home.
///
/// Rows: WIN-083
#[test]
fn needs_userns_three_formats_do_the_same_work_and_a_missing_key_stops_its_own_provider_alone() {
    let mut bench = Bench::new(
        "openai",
        calls(vec![("shell_exec", json!({ "argv": ["echo", "from inside"] }))], "Done."),
    );
    bench
        .home
        .env
        .retain(|(name, _)| !name.starts_with("WRIT_PROVIDERS__") && name != "WRIT_MODELS__DEFAULT");
    let providers = [("first", "anthropic"), ("second", "openai"), ("third", "ollama")];
    for (name, kind) in providers {
        let url = bench.server.base_url_for(wire(kind));
        let table = format!("WRIT_PROVIDERS__{}", name.to_uppercase());
        bench.home.env.push((format!("{table}__KIND"), kind.to_owned()));
        bench.home.env.push((format!("{table}__BASE_URL"), url));
        let key = if name == "first" { "env:FIRST_KEY" } else { "env:SCRIPTED_KEY" };
        bench.home.env.push((format!("{table}__API_KEY"), key.to_owned()));
    }
    bench.home.env.push(("FIRST_KEY".to_owned(), "the-key-of-the-first".to_owned()));
    bench.home.env.push(("WRIT_MODELS__MAX_TRIES".to_owned(), "1".to_owned()));
    let works = |bench: &mut Bench, name: &str| {
        stop_engine_of(&bench.home);
        bench.home.env.retain(|(name, _)| name != "WRIT_MODELS__DEFAULT");
        bench.home.env.push(("WRIT_MODELS__DEFAULT".to_owned(), format!("{name}/scripted")));
        let done = bench.chat("run it", &["--new"]);
        code(&done) == 0 && bench.requests().pop().is_some_and(|last| last.contains("from inside"))
    };
    for (name, kind) in providers {
        assert!(works(&mut bench, name), "{kind}");
    }
    bench.home.env.retain(|(name, _)| name != "FIRST_KEY");
    let asked = bench.requests().len();
    works(&mut bench, "first");
    assert_eq!(bench.requests().len(), asked, "without its key it is not asked");
    assert!(works(&mut bench, "second") && works(&mut bench, "third"), "the others are usable");
}

#[test]
fn a_megabyte_of_arguments_ends_the_turn_with_7_and_is_not_kept() {
    for kind in ["anthropic", "openai"] {
        let bench =
            listed(kind, vec![Reply::large_arguments("file_write", 1024 * 1024), Reply::text("Smaller.")]);
        let done = bench.chat("write it", &[]);
        assert_eq!(code(&done), 7, "{kind}: {}", text(&done));
        assert!(text(&done).contains("Nothing of this answer was used"), "{kind}: {}", text(&done));
        assert!(text(&done).len() < 4_096, "{kind}");
        assert_eq!(code(&bench.chat("again", &[])), 0, "{kind}");
        assert!(bench.requests().concat().len() < 100_000, "{kind}");
    }
}

#[test]
fn ten_thousand_calls_in_one_answer_end_the_turn_with_7_and_none_is_made() {
    for kind in ["anthropic", "openai"] {
        let mut bench = listed(kind, vec![Reply::many_calls(10_000, "shell_exec")]);
        // The script's server needs a while to write them.
        bench.home.env.push(("WRIT_MODELS__REQUEST_TIMEOUT_MS".to_owned(), "120000".to_owned()));
        let done = bench.chat("do it", &[]);
        assert_eq!(code(&done), 7, "{kind}: {}", text(&done));
        assert!(text(&done).contains("more than 128 tool calls"), "{kind}: {}", text(&done));
        assert_eq!((bench.server.recorded_requests().len(), bench.count("outcome")), (1, 0), "{kind}");
    }
}

/// Rows: WIN-038 WIN-423 SCL-047
#[test]
fn needs_userns_the_twenty_first_call_is_not_run() {
    super::rows_win::not_the_last_minute();
    let mut n = 0;
    let mut bench = Bench::new("openai", move |_: &ParsedRequest| {
        n += 1;
        let argv = ["sh".to_owned(), "-c".to_owned(), format!("echo {n} >> ran.txt")];
        Reply::call("shell_exec", json!({ "argv": argv })).with_usage(900, 100)
    });
    bench.home.env.push(("WRIT_BUDGET__MAX_TOKENS_PER_DAY".to_owned(), "30000".to_owned()));
    let told_once = |done: &std::process::Output, notice: &str| {
        assert_eq!((code(done), text(done).matches(notice).count()), (6, 1), "{}", text(done));
    };
    told_once(&bench.chat("go on for ever", &["--write"]), "its limit of 20 tool calls");
    let ran = std::fs::read_to_string(bench.project().join("ran.txt")).expect("written");
    assert_eq!(ran.lines().count(), 20);
    // Whoever says "go on" again and again comes to the end of the day's tokens.
    told_once(&bench.chat("go on", &["--write"]), "[budget].max_tokens_per_day");
    assert_eq!(bench.home.json(&["status"])["today"]["tokens"], json!(30_000), "and not beyond it");
}

#[test]
fn needs_userns_a_model_that_repeats_itself_is_stopped_with_6() {
    let same = |_: &ParsedRequest| Reply::call("file_read", json!({ "path": "a.txt" }));
    let mut n = 0;
    let alternating = move |_: &ParsedRequest| {
        n += 1;
        Reply::call("file_read", json!({ "path": if n % 2 == 0 { "a.txt" } else { "b.txt" } }))
    };
    let scripts: [(Script, usize); 2] = [(Box::new(same), 3), (Box::new(alternating), 4)];
    for (script, most) in scripts {
        let bench = Bench::new("anthropic", script);
        std::fs::write(bench.project().join("a.txt"), "a\n").expect("written");
        std::fs::write(bench.project().join("b.txt"), "b\n").expect("written");
        let done = bench.chat("look", &[]);
        assert_eq!(code(&done), 6, "{}", text(&done));
        assert!(text(&done).contains("kept repeating"), "{}", text(&done));
        let intents = bench.events("intent");
        let reads = intents.iter().filter(|entry| entry.to_string().contains("read_file")).count();
        assert_eq!(reads, most, "what closes the circle is not performed");
    }
}

/// Rows: SCL-017
#[test]
fn a_stream_that_is_cut_or_garbled_ends_the_turn_with_7_and_the_next_one_works() {
    let long = || Reply::text("one two three four five six seven eight nine ten");
    let faults = [
        ReplyFault::CutAfter(7),
        ReplyFault::EndAfter(7),
        ReplyFault::GarbageAfter(7),
        ReplyFault::InvalidUtf8After(7),
        ReplyFault::ErrorEventAfter(7),
        ReplyFault::SilenceAfter(7),
        ReplyFault::MalformedCallAfter(7),
    ];
    for kind in ["anthropic", "openai"] {
        let mut replies: Vec<Reply> = faults.iter().map(|fault| long().with_fault(fault.clone())).collect();
        replies.push(Reply::text("All is well."));
        let mut bench = listed(kind, replies);
        for (name, value) in [("MAX_TRIES", "1"), ("REQUEST_TIMEOUT_MS", "1000")] {
            bench.home.env.push((format!("WRIT_MODELS__{name}"), value.to_owned()));
        }
        for fault in &faults {
            let done = bench.chat("tell me", &[]);
            assert_eq!(code(&done), 7, "{kind} {fault:?}: {}", text(&done));
        }
        let done = bench.chat("tell me", &[]);
        assert_eq!((code(&done), text(&done).contains("All is well.")), (0, true), "{kind}: {}", text(&done));
        let errors = bench.events("model_called");
        let failed = errors.iter().filter(|entry| {
            entry
                .pointer("/payload/error")
                .and_then(|error| error.as_str())
                .is_some_and(|error| !error.is_empty())
        });
        assert_eq!(failed.count(), faults.len(), "{kind}: {errors:?}");
    }
}

#[test]
fn an_answer_without_end_is_ended() {
    for kind in ["anthropic", "openai"] {
        for fault in [ReplyFault::EndlessText, ReplyFault::EndlessErrorBody] {
            let bench = listed(
                kind,
                vec![Reply::text("x").with_fault(fault.clone()), Reply::text("x").with_fault(fault.clone())],
            );
            let done = bench.chat("tell me", &[]);
            assert_eq!(code(&done), 7, "{kind} {fault:?}: {}", text(&done));
            assert!(text(&done).len() < 4 * 1024 * 1024, "{kind} {fault:?}");
        }
    }
}

/// Rows: SCL-021 SCL-022
#[test]
fn what_passes_is_tried_again_and_what_does_not_is_not() {
    let bench = listed(
        "openai",
        vec![
            // Tried again after the time that the provider names.
            Reply::too_many_requests("1"),
            Reply::text("First."),
            // Tried again; twice is enough.
            Reply::status(500),
            Reply::text("Second."),
            Reply::status(503),
            Reply::status(503),
            // Never tried again.
            Reply::status(401),
            Reply::status(400),
            Reply::text("Third."),
        ],
    );
    let before = Instant::now();
    let first = bench.chat("a", &[]);
    assert_eq!((code(&first), text(&first).contains("First.")), (0, true), "{}", text(&first));
    assert!(before.elapsed().as_millis() >= 1_000, "Retry-After counts");
    let second = bench.chat("b", &[]);
    assert_eq!((code(&second), text(&second).contains("Second.")), (0, true), "{}", text(&second));
    for _ in 0..3 {
        let failed = bench.chat("c", &[]);
        assert_eq!(code(&failed), 7, "{}", text(&failed));
        assert!(!text(&failed).contains("127.0.0.1"), "no host: {}", text(&failed));
    }
    assert_eq!(bench.server.recorded_requests().len(), 8);
    let third = bench.chat("d", &[]);
    assert_eq!((code(&third), text(&third).contains("Third.")), (0, true), "{}", text(&third));
}

#[test]
fn a_first_byte_that_does_not_come_ends_the_turn_with_7() {
    let gate = ReplyGate::new();
    let slow = || Reply::text("late").with_fault(ReplyFault::SlowFirstByte(gate.clone()));
    let mut bench = listed("anthropic", vec![slow(), slow()]);
    bench.home.env.push(("WRIT_MODELS__REQUEST_TIMEOUT_MS".to_owned(), "200".to_owned()));
    let done = bench.chat("tell me", &[]);
    assert_eq!(code(&done), 7, "{}", text(&done));
    gate.open();
}

#[test]
fn a_model_that_says_nothing_or_too_much_for_its_limit_says_so() {
    use writ_testkit::model_server::Stop;
    let bench = listed(
        "openai",
        vec![
            Reply::default(),
            Reply::text("half of").with_stop(Stop::MaxTokens),
            Reply::text("").with_stop(Stop::ContentFilter),
            Reply::text("odd").with_stop(Stop::Raw("because".to_owned())),
        ],
    );
    for (expected, said) in [(7, "without an answer"), (7, "cut"), (7, "withheld"), (7, "because")] {
        let done = bench.chat("tell me", &[]);
        assert_eq!(code(&done), expected, "{said}: {}", text(&done));
        assert!(text(&done).contains(said), "{said}: {}", text(&done));
    }
}

/// Rows: SCL-020
/// Rows: WIN-081 (in part: the list of all; no log line)
#[test]
fn when_the_first_provider_is_down_the_second_answers_and_the_ledger_shows_both() {
    let mut bench = Bench::new("gemini", |_: &ParsedRequest| Reply::text("From the second."));
    let gone = bench.runtime.block_on(async {
        let server = ModelServer::start(list_of_replies([])).await.expect("serves");
        let url = server.base_url();
        server.stop().await;
        url
    });
    let env = [
        ("MODELS__DEFAULT", "down/first-model"),
        ("MODELS__FALLBACK", "[\"test/scripted\"]"),
        ("PROVIDERS__DOWN__KIND", "openai"),
        ("PROVIDERS__DOWN__BASE_URL", &gone),
    ];
    bench.home.env.extend(env.map(|(name, value)| (format!("WRIT_{name}"), value.to_owned())));
    let done = bench.chat("tell me", &[]);
    assert_eq!((code(&done), text(&done).contains("From the second.")), (0, true), "{}", text(&done));
    let mut called = bench.events("model_called");
    called.reverse();
    let field = |name: &str| -> Vec<&str> {
        called.iter().filter_map(|entry| entry.pointer(&format!("/payload/{name}"))?.as_str()).collect()
    };
    assert_eq!(field("requested"), ["down/first-model", "test/scripted"], "{called:?}");
    assert_eq!(field("actual"), ["", "scripted"]);
    assert!(!field("error")[0].is_empty() && field("error")[1].is_empty());
    let attempts: std::collections::BTreeSet<&str> = field("attempt").into_iter().collect();
    assert_eq!((attempts.len(), bench.count("intent")), (2, 2), "one permit for each attempt");
    assert_eq!(bench.server.recorded_requests().len(), 1);
}

/// Rows: SCL-020
/// Rows: WIN-082 (in part: in a terminal)
#[test]
fn when_every_provider_fails_one_error_names_each_cause_and_the_session_goes_on() {
    let replies = vec![Reply::status(400), Reply::status(401), Reply::text("Better.")];
    let mut bench = listed("openrouter", replies);
    bench.home.env.push(("WRIT_MODELS__FALLBACK".to_owned(), "[\"test/other\"]".to_owned()));
    let failed = bench.chat("a", &[]);
    assert_eq!(code(&failed), 7, "{}", text(&failed));
    for cause in ["test/scripted: the request is not accepted", "test/other: the key is not accepted"] {
        assert!(text(&failed).contains(cause), "{cause}: {}", text(&failed));
    }
    let answered = bench.chat("b", &[]);
    assert_eq!((code(&answered), text(&answered).contains("Better.")), (0, true), "{}", text(&answered));
}

#[test]
fn a_model_whose_key_is_in_its_usual_place_is_found_and_named() {
    let mut bench = Bench::new("gemini", |_: &ParsedRequest| Reply::text("unasked"));
    bench.home.env.retain(|(name, _)| !name.starts_with("WRIT_MODELS__"));
    // No model server of this machine is asked, because a key is found first; and no call gets out, because no
    // call of a model without a known price passes where a money limit is set.
    bench.home.env.push(("GEMINI_API_KEY".to_owned(), "a key".to_owned()));
    bench.home.env.push(("WRIT_BUDGET__MAX_COST_PER_CALL".to_owned(), "1".to_owned()));
    let done = bench.chat("tell me", &[]);
    let said = text(&done);
    assert!(said.contains("no model is configured; using gemini/"), "{said}");
    assert!(said.contains("env:GEMINI_API_KEY") && !said.contains("a key"), "{said}");
    assert_eq!((code(&done), bench.server.recorded_requests().len()), (6, 0), "{said}");
}

/// Rows: SCL-003 SCL-046
#[test]
fn needs_userns_two_tools_and_an_answer_are_three_requests() {
    let bench = Bench::new(
        "openai",
        calls(
            vec![
                ("file_read", json!({ "path": "a.txt" })),
                ("shell_exec", json!({ "argv": ["cat", "missing.txt"] })),
            ],
            "It says heron.",
        ),
    );
    std::fs::write(bench.project().join("a.txt"), "heron\n").expect("written");
    let done = bench.chat("what does it say?", &[]);
    assert_eq!((code(&done), text(&done).contains("It says heron.")), (0, true), "{}", text(&done));
    let requests = bench.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[1].contains("heron") && requests[2].contains("heron"));
    assert!(requests[2].contains("missing.txt"), "a failing tool is told, and the loop goes on");
}
