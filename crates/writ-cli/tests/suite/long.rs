//! Conversations that are longer than a model can read: the real binary against a model with a small window.

use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault};
use writ_types::frame::ServerFrame;

use super::engine::{Engine, Link};
use super::turns::Bench;
use super::{code, text};

/// A model that takes as many tokens, at four characters each, and refuses what is longer as its format does.
fn small(window: u64) -> impl FnMut(&ParsedRequest) -> Reply + Send {
    move |request| {
        let chars = u64::try_from(request.raw.to_string().chars().count()).expect("small");
        let sent = chars / 4 + request.max_output_tokens.unwrap_or(0);
        if sent > window {
            return Reply::default().with_fault(ReplyFault::ContextOver { window, sent });
        }
        Reply::text(&format!(
            "I have read: {}",
            request.last_user_text().chars().take(12).collect::<String>()
        ))
    }
}

/// The numbers of requests since the last time.
fn since(bench: &Bench, seen: &mut usize) -> usize {
    let all = bench.server.recorded_requests().len();
    let new = all - *seen;
    *seen = all;
    new
}

/// A session whose history has grown beyond the window goes on, and what was learned of the window counts for later
/// messages, each of which is answered with one request.
#[test]
fn a_session_that_has_grown_beyond_the_window_still_answers() {
    for kind in ["anthropic", "openai", "openai_responses", "gemini", "ollama", "openrouter"] {
        let mut bench = Bench::new(kind, small(60_000));
        // The harness notes what leaves the context itself: requests for summaries are counted elsewhere.
        bench.home.env.push(("WRIT_CONTEXT__SUMMARIES".to_owned(), "never".to_owned()));
        let mut seen = 0;
        let long = |n: u32| format!("message {n} {}", "word ".repeat(16_000));
        for n in 0..6 {
            let done = bench.chat(&long(n), &[]);
            let said = text(&done);
            assert_eq!(code(&done), 0, "{kind} {n}: {said}");
            assert!(said.contains(&format!("I have read: message {n}")), "{kind}: {said}");
            let tries = since(&bench, &mut seen);
            assert!(tries <= 3, "{kind} {n}: {tries} requests");
        }
        let done = bench.chat("a short one", &[]);
        assert_eq!(
            (code(&done), text(&done).contains("I have read: a short one")),
            (0, true),
            "{}",
            text(&done)
        );
        assert_eq!(since(&bench, &mut seen), 1, "{kind}: the window is known by now");
        let last = bench.requests().pop().expect("a request");
        assert!(last.contains("earlier messages of this conversation were left out"), "{kind}");
        let permits = bench.count("intent");
        assert_eq!(permits, seen, "{kind}: each request had passed the door");
    }
}

/// One message that does not fit ends its turn with what is too large and how to go on, and the next is answered.
#[test]
fn a_window_that_is_too_small_for_the_tools_is_explained_and_the_session_is_not_stuck() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    let window = Arc::new(AtomicU64::new(2_500));
    let served = Arc::clone(&window);
    let bench =
        Bench::new("openai", move |request: &ParsedRequest| small(served.load(Ordering::SeqCst))(request));
    for message in ["hello", "hello again"] {
        let done = bench.chat(message, &[]);
        let said = text(&done);
        assert_eq!(code(&done), 7, "{said}");
        for told in [
            "The provider says: `This model's maximum context length is 2500 tokens.",
            "The largest parts are",
            "tools (about",
            "--ctx-size",
        ] {
            assert!(said.contains(told), "{told}: {said}");
        }
        assert!(!said.contains("Your next message in this session"), "that would not be true: {said}");
    }
    // The server was started again with more room.
    window.store(60_000, Ordering::SeqCst);
    let done = bench.chat("and now", &[]);
    assert_eq!((code(&done), text(&done).contains("I have read: and now")), (0, true), "{}", text(&done));
    let last = bench.requests().pop().expect("a request");
    assert!(!last.contains("The provider says"), "a provider's words do not reach the model");
    assert!(last.contains("is longer than the model can read"), "{last}");
}

/// Ollama cuts a request that does not fit and says so nowhere but in its count.
///
/// Source: <https://github.com/ollama/ollama/issues/4967>
#[test]
fn a_server_that_cuts_requests_without_a_word_is_noticed_and_told_of_once() {
    let script = |request: &ParsedRequest| {
        let chars = u64::try_from(request.raw.to_string().chars().count()).expect("small");
        Reply::text("ok").with_usage((chars / 4).min(8_192), 2)
    };
    let bench = Bench::new("ollama", move |request: &ParsedRequest| script(request));
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    link.join(None, None).expect("joined");
    let mut notes = |text: &str, id: &str| {
        link.say(text, id).expect("sent");
        let mut said = 0;
        link.until(|numbered| {
            if let ServerFrame::Status { text } = &numbered.frame {
                said += usize::from(text.contains("seems to have read only 8192 tokens of about"));
            }
            matches!(numbered.frame, ServerFrame::Message { last: true, .. }).then_some(())
        })
        .expect("answered");
        said
    };
    assert_eq!(notes("hello", "a"), 0, "it fits");
    assert_eq!(notes(&"word ".repeat(30_000), "b"), 1);
    assert_eq!(notes(&"more ".repeat(30_000), "c"), 0, "it was said");
    // What it takes is known by now: nothing is sent that it would cut.
    let last = bench.requests().pop().expect("a request");
    assert!(last.len() / 4 < 9_000, "{}", last.len());
    assert_eq!(engine.stop().code, Some(0));
}

/// A server whose context is full in the middle of an answer: what was shown is not said a second time.
#[test]
fn an_answer_that_breaks_off_at_a_full_context_is_not_said_again() {
    let mut asked = 0;
    let bench = Bench::new("openai", move |request: &ParsedRequest| {
        asked += 1;
        let full =
            r#"{"error":{"message":"Context size has been exceeded.","type":"invalid_request_error"}}"#;
        match asked {
            1 => Reply::text("some words of a long answer")
                .with_fault(ReplyFault::RawAfter(3, format!("data: {full}\n\n"))),
            _more => Reply::text(&format!("I have read: {}", request.last_user_text())),
        }
    });
    let done = bench.chat("hello", &[]);
    let said = text(&done);
    assert_eq!((code(&done), bench.server.recorded_requests().len()), (7, 1), "{said}");
    assert!(said.contains("The provider says: `Context size has been exceeded.`"), "{said}");
    let done = bench.chat("again", &[]);
    assert_eq!((code(&done), text(&done).contains("I have read: again")), (0, true), "{}", text(&done));
}
