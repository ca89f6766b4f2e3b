//! Every fault at every point of a stream, over every wire format: the client's conduct, as a table that is part of the
//! documentation. Nothing is silent: each attempt ends in the whole answer or in an error that says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use writ_testkit::model_server::{ParsedRequest, Reply, ReplyFault, ReplyGate};
use writ_types::chat::ModelReply;
use writ_types::error::{Exit, ToReport as _};

use super::bench::{ALL, Bench, PROMPT, request, text, user};
use super::door::NOW;
use crate::call::Delta;
use crate::config::{ModelRole, ProviderKind};

/// The scripted text of the answer.
const ANSWER: &str = "one two three";

/// The table's place, from this crate.
pub(super) const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/resilience.md");

/// The frames of the longest answer, and one more.
const POINTS: std::ops::Range<usize> = 0..18;

/// The fault of a server that does not stream, though it is asked to. What it sends is a matter of its format.
const ONE_PIECE: &str = "the whole answer in one piece";

/// A kind of fault, and its variants: one for each point, where it has a point.
struct FaultKind {
    name: &'static str,
    variants: Vec<ReplyFault>,
}

fn response(status: u16, body: &str) -> ReplyFault {
    ReplyFault::Response { status, headers: Vec::new(), body: body.to_owned() }
}

fn at_every_point(name: &'static str, fault: fn(usize) -> ReplyFault) -> FaultKind {
    FaultKind { name, variants: POINTS.map(fault).collect() }
}

fn is_silence(fault: &ReplyFault) -> bool {
    matches!(fault, ReplyFault::SilenceAfter(_) | ReplyFault::SlowFirstByte(_))
}

fn single_fault(name: &'static str, fault: ReplyFault) -> FaultKind {
    FaultKind { name, variants: vec![fault] }
}

/// Returns the answer of a format that is not streamed; some gateways send it although a stream was requested.
fn one_piece(kind: ProviderKind) -> ReplyFault {
    let message = json!({ "role": "assistant", "content": ANSWER });
    let body = match kind {
        ProviderKind::Anthropic => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "some-model-high", "stop_reason": "end_turn",
            "content": [{ "type": "text", "text": ANSWER }], "usage": { "input_tokens": 9, "output_tokens": 3 },
        }),
        ProviderKind::OpenAi | ProviderKind::OpenRouter => json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "some-model-high",
            "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12 },
        }),
        ProviderKind::OpenAiResponses => json!({
            "id": "resp_1", "object": "response", "status": "completed", "model": "some-model-high",
            "output": [{
                "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{ "type": "output_text", "text": ANSWER, "annotations": [] }],
            }],
            "usage": { "input_tokens": 9, "output_tokens": 3, "total_tokens": 12 },
        }),
        ProviderKind::Gemini => json!({
            "candidates": [{
                "content": { "parts": [{ "text": ANSWER }], "role": "model" }, "finishReason": "STOP", "index": 0,
            }],
            "usageMetadata": { "promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12 },
        }),
        ProviderKind::Ollama => json!({
            "model": "some-model-high", "created_at": "2026-11-27T00:00:00Z", "message": message, "done": true,
            "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 3,
        }),
    };
    response(200, &body.to_string())
}

fn faults() -> Vec<FaultKind> {
    let status =
        |status, wait: Option<&str>| ReplyFault::Status { status, retry_after: wait.map(str::to_owned) };
    let said = |text: &str| format!(r#"{{"error":{{"message":"{text}","type":"invalid_request_error"}}}}"#);
    vec![
        single_fault("no fault", ReplyFault::RawAfter(0, String::new())),
        single_fault("too many requests (429)", status(429, None)),
        single_fault("too many requests, wait 7 s", status(429, Some("7"))),
        single_fault("balance used up (402)", response(402, &said("Insufficient balance"))),
        single_fault("server error (500)", status(500, None)),
        single_fault("overloaded (529)", status(529, None)),
        single_fault("key refused (401)", status(401, None)),
        single_fault("request refused (400)", status(400, None)),
        single_fault("no such model (404)", status(404, None)),
        single_fault(
            "answer form not supported",
            response(400, &said("This response_format type is unavailable now")),
        ),
        single_fault("tools not supported", response(400, &said("this model does not support tools"))),
        single_fault(
            "stopped by a filter",
            response(400, r#"{"error":{"message":"filtered","code":"content_filter"}}"#),
        ),
        single_fault("conversation too long", ReplyFault::ContextTooLong),
        single_fault("redirect", ReplyFault::Redirect("http://127.0.0.1:9/".to_owned())),
        single_fault("a web page instead of an answer", response(200, "<html>sign in</html>")),
        single_fault("an answer without a body", response(200, "")),
        FaultKind { name: ONE_PIECE, variants: vec![ReplyFault::RawAfter(0, String::new())] },
        single_fault("an error without end", ReplyFault::EndlessErrorBody),
        single_fault("silence before the first byte", ReplyFault::SlowFirstByte(ReplyGate::new())),
        at_every_point("connection cut", ReplyFault::CutAfter),
        at_every_point("end without stop reason", ReplyFault::EndAfter),
        at_every_point("frame that is no JSON", ReplyFault::GarbageAfter),
        at_every_point("frame that is no UTF-8", ReplyFault::InvalidUtf8After),
        at_every_point("error event", ReplyFault::ErrorEventAfter),
        at_every_point("silence", ReplyFault::SilenceAfter),
        at_every_point("call without id and name", ReplyFault::MalformedCallAfter),
        single_fault("text without end", ReplyFault::EndlessText),
        single_fault("frame without end", ReplyFault::EndlessFrame { chunk: 8192 }),
    ]
}

/// The end of one attempt, as the table has it.
fn describe_end(
    bench: &Bench,
    reply: Result<ModelReply, crate::error::ModelError>,
    has_call: bool,
    deltas: &[Delta],
) -> String {
    let shown = &*text(deltas);
    let error = match reply {
        Ok(reply) => {
            assert_eq!((reply.text.as_str(), shown), (ANSWER, ANSWER), "only a whole answer is one");
            let calls: Vec<_> =
                reply.calls.iter().map(|call| (call.name.as_str(), &call.arguments)).collect();
            let search = ("search", &json!({ "path": "a" }));
            // A fault may bring a call of its own, which is never a call without a name.
            assert!(!has_call || calls.contains(&search), "{calls:?}");
            assert!(calls.iter().all(|(name, _)| !name.is_empty()), "{calls:?}");
            return "whole answer".to_owned();
        }
        Err(error) => error,
    };
    let report = error.report();
    assert_eq!(report.exit, Exit::Model, "{error}");
    assert!(!report.outside.is_empty() && !report.hint.is_empty(), "{error} is silent");
    assert_eq!(error.begun, !deltas.is_empty(), "{error}: what was shown is known");
    assert!(ANSWER.starts_with(shown) || shown.len() > ANSWER.len(), "{shown}");
    let mut course = bench.models.start_course(ModelRole::Proxy);
    let route = bench.models.routes().route(ModelRole::Proxy).clone();
    bench.models.failed(&mut course, &route, &error, NOW);
    let then = match bench.models.next(&course, NOW) {
        Some(step) => {
            assert_eq!(step.wait, Duration::ZERO, "{error}: another model can be asked at once");
            match (step.route == route, bench.models.backoff().wait_before(&error, 1)) {
                (true, _) => "again without it".to_owned(),
                (false, Some(wait)) => {
                    format!("next model; if there is none, again after {} s", wait.as_secs())
                }
                (false, None) => "next model".to_owned(),
            }
        }
        None => "says so".to_owned(),
    };
    let when = if error.begun { " after text" } else { "" };
    format!("{}{when}: {then}", error.failure.code().trim_start_matches("model."))
}

/// Plays a fault with an answer of text and a call, and where it has no points, with one of text alone as well; returns every
/// end.
async fn ends_of(kind: ProviderKind, fault: &FaultKind) -> BTreeSet<String> {
    let mut ends = BTreeSet::new();
    for variant in &fault.variants {
        // An answer that calls a tool has text before the call, so its points are those of both.
        for has_call in if fault.variants.len() > 1 { &[true][..] } else { &[false, true] } {
            let has_call = *has_call;
            let variant = if fault.name == ONE_PIECE { one_piece(kind) } else { variant.clone() };
            // The call is no part of that answer.
            let has_call = has_call && fault.name != ONE_PIECE;
            let variant_of_bench = variant.clone();
            let script = move |_: &ParsedRequest| {
                let reply = Reply::text(ANSWER).with_fault(variant.clone());
                if has_call { reply.and_call("search", json!({ "path": "a" })) } else { reply }
            };
            let bench = Bench::with(kind, script, |config| {
                // Only silence is waited for; any other fault has its own end, however busy the machine is.
                config.models.request_timeout_ms =
                    if is_silence(&variant_of_bench) { 1_000 } else { 120_000 };
                let table = config.providers.get("scripted").expect("the table").clone();
                config.providers.insert("second".to_owned(), table);
                config.models.fallback = vec!["second/other".to_owned()];
            })
            .await;
            let route = bench.models.routes().route(ModelRole::Proxy).clone();
            let asked = Arc::new(request(vec![user(PROMPT)]));
            let planned = bench.models.plan_over(&route, asked, NOW).expect("a plan");
            let (reply, deltas) = bench.attempt(&planned, CancellationToken::new()).await;
            ends.insert(describe_end(&bench, reply, has_call, &deltas));
        }
    }
    ends
}

pub(super) fn format_name(kind: ProviderKind) -> &'static str {
    match kind {
        ProviderKind::Anthropic => "Anthropic",
        ProviderKind::OpenAi => "OpenAI Chat",
        ProviderKind::OpenAiResponses => "OpenAI Responses",
        ProviderKind::OpenRouter => "OpenRouter",
        ProviderKind::Gemini => "Gemini",
        ProviderKind::Ollama => "Ollama",
    }
}

/// Writes the ends of a fault over all formats of a table. Formats with the same ends share a row.
pub(super) fn write_rows(table: &mut String, fault: &str, ends: &BTreeMap<&'static str, BTreeSet<String>>) {
    let count = ends.len();
    let mut groups: Vec<(&BTreeSet<String>, Vec<&str>)> = Vec::new();
    for (format, ends) in ends {
        match groups.iter_mut().find(|(other, _)| *other == ends) {
            Some((_, formats)) => formats.push(format),
            None => groups.push((ends, vec![format])),
        }
    }
    for (ends, formats) in groups {
        let formats = if formats.len() == count { "all".to_owned() } else { formats.join(", ") };
        let ends: Vec<&str> = ends.iter().map(String::as_str).collect();
        writeln!(table, "| {fault} | {formats} | {} |", ends.join("<br>")).expect("a string");
    }
}

/// The page is compared with what the client does now; `INSTA_UPDATE=always` writes it.
///
/// Rows: SCL-020 (in part: a failure switches to the next) SCL-029 (in part: no fault leaks a task)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_at_every_point_ends_in_a_whole_answer_or_an_error_that_says_so() {
    let mut table = "| fault | formats | the client's conduct |\n| --- | --- | --- |\n".to_owned();
    for fault in faults() {
        let ends = futures::future::join_all(ALL.map(|kind| {
            let fault = &fault;
            async move { (format_name(kind), ends_of(kind, fault).await) }
        }));
        let ends: BTreeMap<_, _> = ends.await.into_iter().collect();
        write_rows(&mut table, fault.name, &ends);
    }
    let page = std::fs::read_to_string(PAGE).expect("docs/reference/resilience.md");
    assert!(page.contains(table.trim()), "the page has another table than this one:\n{table}");
}
