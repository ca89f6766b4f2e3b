//! From the spans of `tracing` to records.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, registry};
use writ_inspect::redact::Redactor;

use crate::span::{ATTRIBUTES, AttributeValue, MAX_TEXT_CHARS, SpanId, SpanKind, TraceId, TraceSpan};

/// The most ended spans that wait for delivery; more are dropped, and counted.
pub const MAX_WAITING: usize = 4096;

/// The name of the span of a whole turn.
pub const TURN: &str = "stream.process_turn";

/// Collects the spans of turns.
#[derive(Debug)]
pub struct SpanCollector {
    redactor: Redactor,
    ended: mpsc::Sender<TraceSpan>,
    dropped: Arc<AtomicU64>,
}

/// The spans that a collector has received.
#[derive(Debug)]
pub struct Collected {
    /// Spans, in the order in which they ended.
    pub spans: mpsc::Receiver<TraceSpan>,
    /// The number of spans dropped for lack of room.
    pub dropped: Arc<AtomicU64>,
}

/// A collector, and where its spans come out: without secrets, if there are any in their texts.
pub fn new_collector(redactor: Redactor) -> (SpanCollector, Collected) {
    let (ended, spans) = mpsc::channel(MAX_WAITING);
    let dropped = Arc::new(AtomicU64::new(0));
    (SpanCollector { redactor, ended, dropped: Arc::clone(&dropped) }, Collected { spans, dropped })
}

impl SpanCollector {
    /// The layer to subscribe: of all spans, those of this program at `info` and above.
    pub fn layer<S>(self) -> impl Layer<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        // Only our own spans: those of libraries could carry URLs and texts.
        self.with_filter(Targets::new().with_target("writ", LevelFilter::INFO))
    }
}

/// A span that has not ended.
struct Open {
    trace: TraceId,
    id: SpanId,
    parent: Option<SpanId>,
    began: (u64, Instant),
    fields: SpanValues,
}

impl<S> Layer<S> for SpanCollector
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = SpanValues::default();
        attributes.record(&mut fields);
        // A span outside a turn has no place in a trace.
        let Some((trace, own, parent)) = place_of(&span, &fields) else { return };
        let began = begin_of(&span);
        span.extensions_mut().insert(Open { trace, id: own, parent, began, fields });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            values.record(&mut open.fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<Open>() else { return };
        let Open { trace, id, parent, began: (start_nanos, began), mut fields } = open;
        // Names of tools and models come from outside and may hold a secret.
        for text in fields.texts_mut() {
            self.redactor.scrub_text(text);
        }
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let ended = TraceSpan {
            trace,
            id,
            parent,
            name: fields.name.unwrap_or_else(|| span.name().to_owned()),
            kind: fields.kind,
            start_nanos,
            end_nanos: start_nanos.saturating_add(took),
            attributes: fields.attributes,
        };
        // A full queue or a delivery that has ended costs this span, nothing else.
        if self.ended.try_send(ended).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the place of a span: below the span that it was made in, else below the turn that it names; else
/// none.
fn place_of<'a, S>(
    span: &registry::SpanRef<'a, S>,
    fields: &SpanValues,
) -> Option<(TraceId, SpanId, Option<SpanId>)>
where
    S: LookupSpan<'a>,
{
    let above = span.scope().skip(1).find_map(|above| {
        let extensions = above.extensions();
        extensions.get::<Open>().map(|open| (open.trace, open.id))
    });
    if let Some((trace, parent)) = above {
        return Some((trace, SpanId::random_id(), Some(parent)));
    }
    let trace = TraceId::of_turn(fields.turn.as_deref()?)?;
    match span.name() {
        TURN => Some((trace, trace.root_span(), None)),
        _ => Some((trace, SpanId::random_id(), Some(trace.root_span()))),
    }
}

/// Returns the time at which a span begins. Below another one it is counted from that one's beginning: a wall clock that is set
/// meanwhile would have it begin before its parent, or end after it.
fn begin_of<'a, S>(span: &registry::SpanRef<'a, S>) -> (u64, Instant)
where
    S: LookupSpan<'a>,
{
    let above =
        span.scope().skip(1).find_map(|above| above.extensions().get::<Open>().map(|open| open.began));
    let now = Instant::now();
    let nanos = above.map_or_else(now_nanos, |(nanos, began)| {
        let after = now.saturating_duration_since(began).as_nanos();
        nanos.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
    });
    (nanos, now)
}

fn now_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The fields of a span that are on the list.
#[derive(Default)]
struct SpanValues {
    name: Option<String>,
    kind: SpanKind,
    turn: Option<String>,
    attributes: Vec<(&'static str, AttributeValue)>,
}

impl SpanValues {
    fn put_field(&mut self, field: &Field, value: AttributeValue) {
        // An attribute that is not on the list never leaves.
        let Some(name) = ATTRIBUTES.iter().find(|name| **name == field.name()) else { return };
        match self.attributes.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.attributes.push((name, value)),
        }
    }

    fn texts_mut(&mut self) -> Vec<&mut String> {
        let mut texts: Vec<&mut String> = self.name.iter_mut().collect();
        for (_, value) in &mut self.attributes {
            match value {
                AttributeValue::Text(text) => texts.push(text),
                AttributeValue::Texts(more) => texts.extend(more),
                AttributeValue::Int(_) => {}
            }
        }
        texts
    }

    fn put_text(&mut self, field: &Field, text: &str) {
        let text: String = text.chars().take(MAX_TEXT_CHARS).collect();
        match field.name() {
            "otel.name" => self.name = Some(text),
            "otel.kind" if text == "client" => self.kind = SpanKind::Client,
            "turn_id" => self.turn = Some(text),
            // The conventions want a list, of which one answer has one.
            "gen_ai.response.finish_reasons" => self.put_field(field, AttributeValue::Texts(vec![text])),
            _ => self.put_field(field, AttributeValue::Text(text)),
        }
    }
}

impl Visit for SpanValues {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put_field(field, AttributeValue::Int(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put_field(field, AttributeValue::Int(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_text(field, &format!("{value:?}"));
    }
}
