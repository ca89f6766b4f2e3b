//! Everything that goes wrong, over all wire formats.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use writ_testkit::model_server::{ModelServer, ParsedRequest, Reply, ReplyFault, ReplyGate, list_of_replies};
use writ_types::chat::Usage;
use writ_types::error::{Exit, ToReport as _};
use writ_types::unit::Tokens;

use super::bench::{ALL, Bench, KEY, PROMPT, frame, request, text, user, wire};
use crate::config::ProviderKind;
use crate::error::{EndlessLimit, Failure};
use crate::fold::{MAX_ARGUMENT_BYTES, MAX_CALLS};

fn faulty(fault: ReplyFault) -> Reply {
    Reply::text("partial text that is never final").with_fault(fault)
}

/// Rows: SCL-017
/// Rows: WIN-076 (in part: a truncated stream is an error)
#[tokio::test]
async fn a_stream_that_ends_without_a_stop_reason_is_cut() {
    for kind in ALL {
        for fault in [
            ReplyFault::CutAfter(5),
            ReplyFault::EndAfter(5),
            ReplyFault::CutAfter(0),
            ReplyFault::EndAfter(0),
        ] {
            let bench = Bench::new(kind, list_of_replies([faulty(fault.clone())])).await;
            let (reply, deltas) = bench.ask(request(vec![user("hi")])).await;
            let error = reply.expect_err("cut");
            assert!(matches!(error.failure, Failure::Cut | Failure::Dropped), "{kind:?} {fault:?}: {error}");
            assert_eq!(error.begun, !deltas.is_empty());
            assert_eq!(error.report().exit, Exit::Model);
            assert!(text(&deltas).len() < "partial text that is never final".len());
        }
    }
}

/// Rows: SCL-011
#[tokio::test]
async fn garbage_in_the_stream_is_an_error_and_never_an_empty_call() {
    for kind in ALL {
        for fault in [
            ReplyFault::GarbageAfter(4),
            ReplyFault::InvalidUtf8After(4),
            ReplyFault::MalformedCallAfter(4),
            ReplyFault::GarbageAfter(0),
        ] {
            let bench = Bench::new(kind, list_of_replies([faulty(fault.clone())])).await;
            let error = bench.fail().await;
            assert!(matches!(error.failure, Failure::Invalid { .. }), "{kind:?} {fault:?}: {error}");
            assert_eq!(bench.models.backoff().wait_before(&error, 1), None);
        }
    }
}

#[tokio::test]
async fn a_stop_for_tools_that_names_none_is_an_error_unless_there_is_text() {
    // Only these formats have a stop reason for tool calls.
    for kind in
        [ProviderKind::Anthropic, ProviderKind::OpenAi, ProviderKind::OpenRouter, ProviderKind::Gemini]
    {
        let stop = writ_testkit::model_server::Stop::ToolUse;
        let bench = Bench::new(kind, list_of_replies([Reply::text("").with_stop(stop.clone())])).await;
        assert!(matches!(bench.fail().await.failure, Failure::Invalid { .. }));
        if kind == ProviderKind::Gemini {
            // Gemini's only such reason means that its model wrote an unreadable call: an error, also beside text.
            continue;
        }
        let bench = Bench::new(kind, list_of_replies([Reply::text("so").with_stop(stop)])).await;
        let (reply, _) = bench.ask(request(vec![user("hi")])).await;
        let reply = reply.expect("its text stands");
        assert_eq!((reply.text.as_str(), reply.stop), ("so", writ_types::chat::StopReason::EndTurn));
    }
}

/// Rows: SCL-021 SCL-022
#[tokio::test]
async fn http_errors_are_told_apart_and_say_when_to_try_again() {
    type Check = Box<dyn Fn(&Failure) -> bool>;
    let limited = |seconds| move |failure: &Failure| matches!(failure, Failure::RateLimited { retry_after: Some(wait), .. } if *wait == Duration::from_secs(seconds));
    let cases: Vec<(Reply, Check, bool)> = vec![
        (Reply::too_many_requests("7"), Box::new(limited(7)), true),
        (Reply::too_many_requests("86400"), Box::new(limited(60)), true),
        (Reply::status(429), Box::new(|f| matches!(f, Failure::RateLimited { retry_after: None, .. })), true),
        (Reply::status(500), Box::new(|f| matches!(f, Failure::Unavailable { status: 500, .. })), true),
        (Reply::status(529), Box::new(|f| matches!(f, Failure::Unavailable { status: 529, .. })), true),
        (Reply::status(400), Box::new(|f| matches!(f, Failure::Rejected { status: 400, .. })), false),
        (Reply::status(401), Box::new(|f| matches!(f, Failure::Unauthorized { status: 401, .. })), false),
        (Reply::status(403), Box::new(|f| matches!(f, Failure::Unauthorized { status: 403, .. })), false),
        (Reply::status(404), Box::new(|f| matches!(f, Failure::Rejected { status: 404, .. })), false),
        (
            Reply::default().with_fault(ReplyFault::ContextTooLong),
            Box::new(|f| matches!(f, Failure::ContextLength { .. })),
            false,
        ),
        (
            Reply::default().with_fault(ReplyFault::Redirect("http://127.0.0.1:9/".into())),
            Box::new(|f| matches!(f, Failure::Rejected { status: 307, .. })),
            false,
        ),
        (
            faulty(ReplyFault::ErrorEventAfter(0)),
            Box::new(|f| matches!(f, Failure::Unavailable { .. })),
            true,
        ),
    ];
    for kind in ALL {
        for (reply, expected, transient) in &cases {
            let bench = Bench::new(kind, list_of_replies([reply.clone()])).await;
            let error = bench.fail().await;
            assert!(expected(&error.failure), "{kind:?} {:?}: {error:?}", reply.fault);
            assert_eq!(bench.models.backoff().wait_before(&error, 1).is_some(), *transient, "{error}");
            assert_eq!(error.report().exit, Exit::Model);
        }
    }
}

/// Rows: SCL-021
#[tokio::test]
async fn an_error_within_a_stream_is_final_once_text_was_shown() {
    for kind in ALL {
        let bench = Bench::new(kind, list_of_replies([faulty(ReplyFault::ErrorEventAfter(5))])).await;
        let error = bench.fail().await;
        assert!(error.begun && error.failure.is_transient());
        assert_eq!(bench.models.backoff().wait_before(&error, 1), None);
    }
}

/// A call is repeated under a permit of its own, and succeeds when the provider has recovered.
///
/// Rows: SCL-021
#[tokio::test]
async fn a_transient_failure_is_tried_again_under_a_new_permit() {
    for kind in ALL {
        let bench = Bench::new(
            kind,
            list_of_replies([Reply::status(500), Reply::too_many_requests("1"), Reply::text("there")]),
        )
        .await;
        let planned = bench.plan(request(vec![user("hi")]));
        let mut waits = Vec::new();
        let reply = loop {
            match bench.attempt(&planned, CancellationToken::new()).await.0 {
                Ok(reply) => break reply,
                Err(error) => {
                    let tries = u32::try_from(waits.len() + 1).expect("few");
                    waits.push(bench.models.backoff().wait_before(&error, tries).expect("transient"));
                }
            }
        };
        assert_eq!(reply.text, "there");
        assert_eq!(waits, [Duration::from_secs(1), Duration::from_secs(2)]);
        assert_eq!(bench.server.recorded_requests().len(), 3, "one request for each permit, no more");
    }
}

#[tokio::test]
async fn a_model_that_never_stops_is_stopped() {
    for kind in ALL {
        let bench = Bench::new(kind, list_of_replies([faulty(ReplyFault::EndlessText)])).await;
        let error = bench.fail().await;
        assert!(matches!(error.failure, Failure::Endless { limit: EndlessLimit::Size(_) }), "{error}");
        let report = error.report();
        assert_eq!((report.exit, report.code.as_str()), (Exit::Model, "model.endless"));
        assert!(!report.hint.is_empty());
    }
}

/// Bytes that never become a frame are bounded too: a frame without an end, and the body of an error.
#[tokio::test]
async fn a_frame_or_an_error_body_without_end_is_stopped() {
    for kind in ALL {
        for fault in [ReplyFault::EndlessErrorBody, ReplyFault::EndlessFrame { chunk: 8192 }] {
            let bench = Bench::new(kind, list_of_replies([faulty(fault.clone())])).await;
            let error = bench.fail().await;
            assert!(matches!(error.failure, Failure::Endless { .. }), "{kind:?} {fault:?}: {error}");
            assert_eq!(bench.models.backoff().wait_before(&error, 1), None);
        }
    }
}

#[tokio::test]
async fn a_megabyte_of_arguments_and_ten_thousand_calls_are_refused() {
    for kind in ALL {
        let mut large = request(vec![user("hi")]);
        large.max_output_tokens = Tokens::new(100_000);
        let bench = Bench::new(
            kind,
            list_of_replies([
                Reply::large_arguments("search", 900_000),
                Reply::large_arguments("search", MAX_ARGUMENT_BYTES),
            ]),
        )
        .await;
        let reply = bench.ask(large.clone()).await.0.expect("large, but within bounds");
        let content = reply.calls.first().and_then(|call| call.arguments["content"].as_str().map(str::len));
        assert_eq!(content, Some(900_000));
        let error = bench.ask(large.clone()).await.0.expect_err("too large");
        assert!(matches!(error.failure, Failure::ArgumentsTooLong { .. }), "{error}");

        let bench = Bench::new(
            kind,
            list_of_replies([Reply::many_calls(MAX_CALLS, "search"), Reply::many_calls(10_000, "search")]),
        )
        .await;
        assert_eq!(bench.ask(large.clone()).await.0.expect("many, but within bounds").calls.len(), MAX_CALLS);
        let error = bench.ask(large).await.0.expect_err("too many");
        assert!(matches!(error.failure, Failure::TooManyCalls { limit: MAX_CALLS }), "{error}");
        assert_eq!(error.report().exit, Exit::Model);
    }
}

/// Rows: SCL-013
#[tokio::test]
async fn silence_ends_after_the_request_timeout_and_not_before() {
    for kind in ALL {
        for fault in [
            ReplyFault::SlowFirstByte(ReplyGate::new()),
            ReplyFault::SilenceAfter(0),
            ReplyFault::SilenceAfter(5),
        ] {
            let bench = Bench::with(kind, list_of_replies([faulty(fault.clone())]), |config| {
                config.models.request_timeout_ms = 100;
            })
            .await;
            let error = bench.fail().await;
            assert!(matches!(error.failure, Failure::Timeout { .. }), "{kind:?} {fault:?}: {error}");
        }
        // An answer whose first byte comes late, but within the limit, is waited for.
        let gate = ReplyGate::new();
        let bench = Bench::new(
            kind,
            list_of_replies([Reply::text("at last").with_fault(ReplyFault::SlowFirstByte(gate.clone()))]),
        )
        .await;
        let (asked, ()) = tokio::join!(bench.ask(request(vec![user("hi")])), async {
            while bench.server.connections_waiting() == 0 {
                tokio::task::yield_now().await;
            }
            gate.open();
        });
        assert_eq!(asked.0.expect("an answer").text, "at last");
    }
    assert_eq!(crate::config::ModelsTable::default().request_timeout_ms, 120_000);
}

#[tokio::test]
async fn an_answer_that_trickles_for_too_long_is_stopped() {
    for kind in ALL {
        let bench = Bench::with(kind, list_of_replies([faulty(ReplyFault::SilenceAfter(5))]), |config| {
            config.models.answer_timeout_ms = 100;
        })
        .await;
        let error = bench.fail().await;
        assert!(matches!(error.failure, Failure::Endless { limit: EndlessLimit::Time(_) }), "{error}");
    }
}

/// Rows: SCL-029
#[tokio::test]
async fn a_cancelled_call_ends_at_once_and_is_counted_once() {
    for kind in ALL {
        let scripted = Reply::text("some words and then some more of them")
            .with_usage(40, 9)
            .with_fault(ReplyFault::SilenceAfter(5));
        let bench = Bench::new(kind, list_of_replies([scripted])).await;
        let planned = bench.plan(request(vec![user("hi")]));
        let cancel = CancellationToken::new();
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let permit = super::door::permit(planned.action()).await;
        let call = bench.models.call(permit, &planned, sender, cancel.clone(), super::door::NOW);
        let (reply, ()) = tokio::join!(call, async {
            receiver.recv().await.expect("a first piece");
            cancel.cancel();
            while receiver.recv().await.is_some() {}
        });
        let error = reply.expect_err("cancelled");
        assert!(matches!(error.failure, Failure::Cancelled) && error.begun);
        assert_eq!(error.report().exit, Exit::Interrupted);
        // Some formats report the size of the request at the start of the answer, the others at its end.
        let early = matches!(kind, ProviderKind::Anthropic | ProviderKind::Gemini);
        let counted = if early { Tokens::new(40) } else { Tokens::ZERO };
        assert_eq!(error.usage.input, counted);
        // The connection is closed, so the server can stop computing an answer that nobody reads.
        bench.server.stop().await;
    }
}

#[tokio::test]
async fn a_receiver_that_is_gone_does_not_lose_the_answer() {
    for kind in ALL {
        let bench = Bench::new(kind, list_of_replies([Reply::text("nobody listens to this")])).await;
        let planned = bench.plan(request(vec![user("hi")]));
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        drop(receiver);
        let permit = super::door::permit(planned.action()).await;
        let reply =
            bench.models.call(permit, &planned, sender, CancellationToken::new(), super::door::NOW).await;
        assert_eq!(reply.expect("an answer").text, "nobody listens to this");
    }
}

#[tokio::test]
async fn a_server_that_does_not_count_is_estimated() {
    let bench = Bench::new(ProviderKind::OpenAi, |_: &ParsedRequest| {
        Reply::text("12345678").with_fault(ReplyFault::EndAfter(3))
    })
    .await;
    // Role, text, finish reason; then the stream ends without usage and without [DONE].
    let reply = bench.ask(request(vec![user("hi")])).await.0.expect("it had a stop reason");
    assert_eq!(reply.usage.output, Tokens::new(2));
    assert!(reply.usage.input > Tokens::ZERO && reply.usage != Usage::default());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_typed_error() {
    for kind in ALL {
        let gone = ModelServer::start(list_of_replies([])).await.expect("a server");
        let url = gone.base_url_for(wire(kind));
        gone.stop().await;
        let bench = Bench::with(kind, list_of_replies([]), |config| {
            config.providers.get_mut("scripted").expect("the table").base_url = Some(url);
        })
        .await;
        let error = bench.fail().await;
        assert!(matches!(error.failure, Failure::Egress(_)), "{error}");
        assert!(bench.models.backoff().wait_before(&error, 1).is_some());
        assert_eq!(error.report().exit, Exit::Model);
    }
}

/// Rows: SCL-014 SCL-019
#[tokio::test]
async fn a_missing_key_is_named_by_its_variable_and_nothing_is_sent() {
    for (kind, variable) in [
        (ProviderKind::Anthropic, "ANTHROPIC_API_KEY"),
        (ProviderKind::OpenAi, "OPENAI_API_KEY"),
        (ProviderKind::OpenAiResponses, "OPENAI_API_KEY"),
        (ProviderKind::OpenRouter, "OPENROUTER_API_KEY"),
        (ProviderKind::Gemini, "GEMINI_API_KEY"),
        (ProviderKind::Ollama, "OLLAMA_API_KEY"),
    ] {
        let bench = Bench::with(kind, list_of_replies([]), |config| {
            let table = config.providers.get_mut("scripted").expect("the table");
            table.api_key = Some(format!("env:{variable}").parse().expect("a reference"));
        })
        .await;
        let error = bench.fail().await;
        assert!(matches!(error.failure, Failure::NoCredential { .. }));
        let report = error.report();
        assert!(report.outside.contains(variable) && report.hint.contains(variable), "{report:?}");
        assert!(bench.server.recorded_requests().is_empty());
    }
}

#[tokio::test]
async fn a_permit_for_another_call_is_refused() {
    let bench = Bench::new(ProviderKind::OpenAi, list_of_replies([])).await;
    let (judged, other) = (bench.plan(request(vec![user("a")])), bench.plan(request(vec![user("b")])));
    let permit = super::door::permit(judged.action()).await;
    let (sender, _receiver) = tokio::sync::mpsc::channel(1);
    let reply = bench.models.call(permit, &other, sender, CancellationToken::new(), super::door::NOW).await;
    assert!(matches!(reply.expect_err("refused").failure, Failure::OtherPermit));
    let permit = super::door::permit(judged.action()).await;
    let (sender, _receiver) = tokio::sync::mpsc::channel(1);
    let late = super::door::NOW.plus_duration(Duration::from_secs(3600));
    let reply = bench.models.call(permit, &judged, sender, CancellationToken::new(), late).await;
    assert_eq!(reply.expect_err("expired").report().exit, Exit::Denied);
    assert!(bench.server.recorded_requests().is_empty());
}

/// Rows: SCL-023
#[tokio::test]
async fn failures_are_logged_with_context_and_without_prompt_or_key() {
    for kind in ALL {
        for fault in [
            ReplyFault::Status { status: 401, retry_after: None },
            ReplyFault::ContextTooLong,
            ReplyFault::GarbageAfter(3),
            ReplyFault::ErrorEventAfter(3),
            ReplyFault::CutAfter(4),
        ] {
            let log = super::log::Captured::default();
            let guard = tracing::subscriber::set_default(log.subscriber());
            let bench = Bench::new(kind, |request: &ParsedRequest| {
                // The worst case: a provider whose error repeats the prompt and the key.
                Reply::text(&format!("{KEY} {}", request.last_user_text()))
            })
            .await;
            drop(bench);
            let bench = Bench::new(
                kind,
                list_of_replies([Reply::text(&format!("{PROMPT} {KEY}")).with_fault(fault)]),
            )
            .await;
            let error = bench.fail().await;
            drop(guard);
            let logged = log.text();
            for field in ["provider=\"scripted\"", "model=\"some-model-high\"", "attempt=\""] {
                assert!(logged.contains(field), "{field} is missing in {logged}");
            }
            let report = error.report();
            for text in [&logged, &report.outside, &report.inside, &report.hint] {
                assert!(!text.contains(KEY) && !text.contains(PROMPT), "a secret in {text}");
            }
        }
    }
}

/// Token counts and waits of a hostile or broken provider, which would overflow sums or exhaust budgets.
#[tokio::test]
async fn absurd_numbers_do_no_harm() {
    let usage = r#"{"input_tokens":2147483647,"cache_read_input_tokens":2147483647,"cache_creation_input_tokens":2147483647,"output_tokens":18446744073709551615}"#;
    let call = r#"{"index":4294967295,"id":"x","function":{"name":"search","arguments":"{}"}}"#;
    let absurd = r#""prompt_tokens":18446744073709551615,"completion_tokens":-5"#;
    let chat = vec![
        format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}}}}]}}"#),
        format!(r#"{{"choices":[],"usage":{{{absurd}}}}}"#),
    ];
    let item = r#"{"type":"function_call","call_id":"x","name":"search","arguments":"{}"}"#;
    for (kind, frames) in [
        (
            ProviderKind::Anthropic,
            vec![format!(r#"{{"type":"message_start","message":{{"usage":{usage}}}}}"#)],
        ),
        (ProviderKind::OpenAi, chat.clone()),
        (ProviderKind::OpenRouter, chat),
        (
            ProviderKind::OpenAiResponses,
            vec![format!(
                r#"{{"type":"response.output_item.added","output_index":18446744073709551615,"item":{item}}}"#
            )],
        ),
        (
            ProviderKind::Gemini,
            vec![
                r#"{"usageMetadata":{"promptTokenCount":18446744073709551615,"thoughtsTokenCount":18446744073709551615,"candidatesTokenCount":18446744073709551615}}"#
                    .to_owned(),
            ],
        ),
        (
            ProviderKind::Ollama,
            vec![r#"{"message":{"content":""},"prompt_eval_count":-1,"eval_count":18446744073709551615}"#.to_owned()],
        ),
    ] {
        let raw: String = frames.iter().map(|data| frame(kind, data)).collect();
        let bench = Bench::new(kind, list_of_replies([faulty(ReplyFault::RawAfter(1, raw))])).await;
        let reply = bench.ask(request(vec![user("hi")])).await.0.expect("an answer");
        let called = matches!(
            kind,
            ProviderKind::OpenAi | ProviderKind::OpenRouter | ProviderKind::OpenAiResponses
        );
        assert_eq!(reply.calls.len(), usize::from(called), "{kind:?}");
        // An impossible token count does not use up the budget.
        let told = [reply.usage.input, reply.usage.output, reply.usage.cache_read, reply.usage.cache_write];
        assert!(told.iter().all(|count| *count < Tokens::new(1_000)), "{kind:?}: {:?}", reply.usage);
        assert!(reply.usage.total_tokens() > Tokens::ZERO);
    }
}

/// Google writes the wait into the body of its errors, and reports a wrong key with a status of bad requests.
///
/// Rows: SCL-022
#[tokio::test]
async fn errors_in_googles_form_are_understood() {
    let bench = Bench::new(ProviderKind::Gemini, list_of_replies([Reply::too_many_requests("7")])).await;
    let error = bench.fail().await;
    assert_eq!(error.failure.retry_after(), Some(Duration::from_secs(7)));
    let options = writ_testkit::model_server::ServerOptions {
        key: Some("other".into()),
        models: Vec::new(),
        recorded: None,
    };
    let server = ModelServer::start_with(options, list_of_replies([])).await.expect("a server");
    let bench = Bench::with(ProviderKind::Gemini, list_of_replies([]), |config| {
        let table = config.providers.get_mut("scripted").expect("the table");
        table.base_url = Some(server.base_url_for(wire(ProviderKind::Gemini)));
    })
    .await;
    assert!(matches!(bench.fail().await.failure, Failure::Unauthorized { status: 400, .. }));
}

/// OpenRouter and OpenAI Responses name a failure in the middle of a stream by a code in the frame.
#[tokio::test]
async fn failures_that_a_stream_names_by_code_are_told_apart() {
    let router = |code: &str| {
        format!(
            r#"{{"error":{{"code":{code},"message":"x"}},"choices":[{{"delta":{{}},"finish_reason":"error"}}]}}"#
        )
    };
    let failed = |code: &str| {
        format!(
            r#"{{"type":"response.failed","response":{{"status":"failed","error":{{"code":"{code}","message":"x"}}}}}}"#
        )
    };
    type Check = fn(&Failure) -> bool;
    let cases: [(ProviderKind, String, Check); 5] = [
        (ProviderKind::OpenRouter, router("429"), |f| matches!(f, Failure::RateLimited { .. })),
        (ProviderKind::OpenRouter, router("502"), |f| matches!(f, Failure::Unavailable { status: 502, .. })),
        (ProviderKind::OpenAiResponses, failed("rate_limit_exceeded"), |f| {
            matches!(f, Failure::RateLimited { .. })
        }),
        (ProviderKind::OpenAiResponses, failed("server_error"), |f| {
            matches!(f, Failure::Unavailable { status: 500, .. })
        }),
        (ProviderKind::OpenAiResponses, failed("context_length_exceeded"), |f| {
            matches!(f, Failure::ContextLength { .. })
        }),
    ];
    for (kind, data, expected) in cases {
        let reply = Reply::text("x").with_fault(ReplyFault::RawAfter(0, frame(kind, &data)));
        let error = Bench::new(kind, list_of_replies([reply])).await.fail().await;
        assert!(expected(&error.failure), "{kind:?} {data}: {error:?}");
    }
}

/// The pieces of a frame are joined again with each new one, so a frame without an end costs time as well as memory: it
/// must fail within seconds.
#[tokio::test]
async fn a_frame_without_end_fails_within_seconds_however_small_its_pieces() {
    for chunk in [8192, 64] {
        let bench =
            Bench::new(ProviderKind::OpenAi, list_of_replies([faulty(ReplyFault::EndlessFrame { chunk })]))
                .await;
        let start = std::time::Instant::now();
        let error = bench.fail().await;
        let (took, limit) = (start.elapsed(), Duration::from_secs(30));
        println!("pieces of {chunk} bytes: {took:?}");
        assert!(matches!(error.failure, Failure::Endless { .. }) && took < limit, "{took:?}: {error}");
    }
}
