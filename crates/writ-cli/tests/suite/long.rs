//! Conversations that are longer than a model can read: the real binary against a model with a small window.

use writ_testkit::model_server::{Fault, ParsedRequest, Reply};

use super::turns::Bench;
use super::{code, text};

/// A model that takes as many tokens, at four characters each, and refuses what is longer as its format does.
fn small(window: u64) -> impl FnMut(&ParsedRequest) -> Reply + Send {
    move |request| {
        let chars = u64::try_from(request.raw.to_string().chars().count()).expect("small");
        let sent = chars / 4 + request.max_output_tokens.unwrap_or(0);
        if sent > window {
            return Reply::default().fault(Fault::ContextOver { window, sent });
        }
        Reply::text(&format!(
            "I have read: {}",
            request.last_user_text().chars().take(12).collect::<String>()
        ))
    }
}

/// The numbers of requests since the last time.
fn since(bench: &Bench, seen: &mut usize) -> usize {
    let all = bench.server.recorded().len();
    let new = all - *seen;
    *seen = all;
    new
}

/// A session whose history has grown beyond the window goes on, and what was learned of the window counts for later
/// messages, each of which is answered with one request.
#[test]
fn a_session_that_has_grown_beyond_the_window_still_answers() {
    for kind in ["anthropic", "openai", "openai_responses", "gemini", "ollama", "openrouter"] {
        let bench = Bench::new(kind, small(60_000));
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
            "The provider says: \"This model's maximum context length is 2500 tokens.",
            "The largest parts are",
            "tools (about",
            "--ctx-size",
        ] {
            assert!(said.contains(told), "{told}: {said}");
        }
    }
    // The server was started again with more room.
    window.store(60_000, Ordering::SeqCst);
    let done = bench.chat("and now", &[]);
    assert_eq!((code(&done), text(&done).contains("I have read: and now")), (0, true), "{}", text(&done));
    let last = bench.requests().pop().expect("a request");
    assert!(!last.contains("The provider says"), "a provider's words do not reach the model");
    assert!(last.contains("is longer than the model can read"), "{last}");
}
