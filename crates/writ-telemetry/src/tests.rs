use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use secrecy::SecretString;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt as _;
use writ_egress::deliver::Endpoint;
use writ_egress::{Egress, EgressConfig};
use writ_inspect::redact::Redactor;
use writ_testbed::trace_collector::{TraceCollector, render_span_tree};

use crate::collect::{Collected, MAX_WAITING, TURN, new_collector};
use crate::export::Exporter;
use crate::otlp::{self, TraceSource};
use crate::span::{AttributeValue, SpanId, SpanKind, TraceId, TraceSpan};

const TURN_ID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

/// Runs `work` under a collector and gives what it has collected.
fn collected(work: impl FnOnce()) -> Collected {
    let (collector, collected) = new_collector(Redactor::default());
    let subscriber = tracing_subscriber::registry().with(collector.layer());
    tracing::subscriber::with_default(subscriber, work);
    collected
}

fn spans(mut collected: Collected) -> Vec<TraceSpan> {
    std::iter::from_fn(|| collected.spans.try_recv().ok()).collect()
}

fn trace() -> TraceId {
    TraceId::of_turn(TURN_ID).expect("a turn")
}

#[test]
fn only_spans_of_turns_are_collected_and_only_with_attributes_of_the_list() {
    let found = spans(collected(|| {
        let stray = tracing::info_span!("stray", gen_ai.agent.name = "main").entered();
        drop(stray);
        let turn = tracing::info_span!(
            "stream.process_turn",
            turn_id = %TURN_ID,
            prompt = "the owner's words",
            writ.turn.number = 3,
            writ.outcome = tracing::field::Empty,
        );
        turn.in_scope(|| {
            let call = tracing::info_span!(
                "call",
                otel.name = "chat m",
                otel.kind = "client",
                gen_ai.usage.input_tokens = 7_u64
            );
            call.in_scope(|| tracing::info!(text = "an event is no span", "said"));
            drop(call);
            tracing::debug_span!("too fine").in_scope(|| ());
        });
        turn.record("writ.outcome", "finished");
        turn.record("prompt", "more words");
        drop(turn);
        // What is done for a turn that has ended belongs to it all the same.
        tracing::info_span!("approval.perform", turn_id = TURN_ID, error.type = "x.y").in_scope(|| ());
    }));
    let [call, turn, later] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(
        (turn.name.as_str(), turn.trace, turn.id, turn.parent),
        (TURN, trace(), trace().root_span(), None)
    );
    assert_eq!(
        turn.attributes,
        [
            ("writ.turn.number", AttributeValue::Int(3)),
            ("writ.outcome", AttributeValue::Text("finished".into()))
        ]
    );
    assert_eq!((call.name.as_str(), call.kind, call.parent), ("chat m", SpanKind::Client, Some(turn.id)));
    assert_eq!(call.attributes, [("gen_ai.usage.input_tokens", AttributeValue::Int(7))]);
    assert!(turn.start_nanos <= call.start_nanos && call.end_nanos <= turn.end_nanos);
    assert_eq!((later.trace, later.parent, later.has_failed()), (trace(), Some(turn.id), true));
}

#[test]
fn what_finds_no_room_is_counted_and_what_is_long_is_cut() {
    let found = collected(|| {
        for _ in 0..MAX_WAITING + 5 {
            tracing::info_span!("stream.process_turn", turn_id = TURN_ID, writ.role = "x".repeat(1_000))
                .in_scope(|| ());
        }
    });
    assert_eq!(found.dropped.load(Ordering::Relaxed), 5);
    let found = spans(found);
    assert_eq!(found.len(), MAX_WAITING);
    assert_eq!(
        found[0].attributes,
        [("writ.role", AttributeValue::Text("x".repeat(crate::span::MAX_TEXT_CHARS)))]
    );
}

fn resource() -> TraceSource {
    TraceSource { version: "1.2.3", run: "R".to_owned(), installation: "I".to_owned() }
}

fn span(name: &str, parent: Option<SpanId>) -> TraceSpan {
    TraceSpan {
        trace: trace(),
        id: if parent.is_some() { SpanId::random_id() } else { trace().root_span() },
        parent,
        name: name.to_owned(),
        kind: SpanKind::Internal,
        start_nanos: 1_700_000_000_000_000_000,
        end_nanos: 1_700_000_000_000_000_001,
        attributes: vec![("gen_ai.response.finish_reasons", AttributeValue::Texts(vec!["stop".to_owned()]))],
    }
}

#[test]
fn a_request_is_otlp_as_its_specification_writes_it() {
    let mut one = span("a", None);
    one.attributes =
        vec![("error.type", AttributeValue::Text("e".into())), ("writ.turn.number", AttributeValue::Int(-1))];
    let body = otlp::build_request(&resource(), &[one]).expect("JSON");
    let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
    let span = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    // Root: the first eight bytes of the digest of the turn's bytes.
    let root = hex::encode(trace().root_span().0);
    assert_eq!(
        *span,
        serde_json::json!({
            "traceId": "01563e3ab5d3d6764c61efb99302bd5b",
            "spanId": root,
            "name": "a",
            "kind": 1,
            "startTimeUnixNano": "1700000000000000000",
            "endTimeUnixNano": "1700000000000000001",
            "attributes": [
                { "key": "error.type", "value": { "stringValue": "e" } },
                { "key": "writ.turn.number", "value": { "intValue": "-1" } },
            ],
            "status": { "code": 2 },
        })
    );
}

/// Delivers spans to a collector until `done`, and says how many were dropped.
async fn deliver(endpoint: &str, list: Vec<TraceSpan>, bearer: Option<&str>, done: impl Fn() -> bool) -> u64 {
    let dir = tempfile::tempdir().expect("temp dir");
    let egress = Egress::new(&EgressConfig::default(), dir.path()).expect("a way out");
    let (_collector, collected) = new_collector(Redactor::default());
    let (give, spans) = tokio::sync::mpsc::channel(MAX_WAITING);
    let dropped = Arc::clone(&collected.dropped);
    let collected = Collected { spans, ..collected };
    let stop = CancellationToken::new();
    let exporter = Exporter {
        egress: Arc::new(egress),
        endpoint: Endpoint::path_below(endpoint, otlp::PATH).expect("an endpoint"),
        bearer: bearer.map(SecretString::from),
        resource: resource(),
    };
    let running = tokio::spawn(exporter.run_export(collected, stop.clone()));
    for span in list {
        give.send(span).await.expect("room");
    }
    while !done() {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    running.await.expect("ends");
    dropped.load(Ordering::Relaxed)
}

#[tokio::test]
async fn spans_are_delivered_again_where_the_collector_asks_for_it_and_form_one_tree() {
    let server = TraceCollector::start().await.expect("serves");
    server.refuse_next(503, Some(0));
    let root = trace().root_span();
    let list = vec![span("b", Some(root)), span("a", None)];
    let dropped = deliver(&server.endpoint(), list, Some("key"), || server.spans().len() == 2).await;
    assert_eq!((dropped, server.complaints()), (0, Vec::<String>::new()));
    let statuses: Vec<u16> = server.requests().iter().map(|request| request.status).collect();
    assert_eq!(statuses, [503, 200]);
    assert_eq!(server.requests()[1].authorization.as_deref(), Some("Bearer key"));
    assert_eq!(
        render_span_tree(&server.spans(), &hex::encode(trace().0)),
        Ok(vec!["a".to_owned(), "  b".to_owned()])
    );
    assert_eq!(server.spans()[0].resource["service.name"], "writ");
}

#[tokio::test]
async fn a_collector_that_refuses_or_is_not_there_costs_its_spans_and_nothing_else() {
    let server = TraceCollector::start().await.expect("serves");
    server.refuse_next(400, None);
    let dropped =
        deliver(&server.endpoint(), vec![span("a", None)], None, || server.requests().len() == 1).await;
    assert_eq!((dropped, server.spans().len(), server.requests().len()), (1, 0, 1), "not tried again");
    let gone = server.endpoint();
    drop(server);
    let before = std::time::Instant::now();
    let dropped = deliver(&gone, vec![span("a", None)], None, || true).await;
    assert!(dropped <= 1 && before.elapsed() < Duration::from_secs(30), "the end waits for nobody");
    // A credential that is no header is told as such, not sent.
    let server = TraceCollector::start().await.expect("serves");
    assert_eq!(deliver(&server.endpoint(), vec![span("a", None)], Some("a\nb"), || true).await, 1);
    assert_eq!(server.requests(), []);
}
