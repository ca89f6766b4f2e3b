//! The lines of the log file: one JSON object each, with the turn, the session and the run of the engine that it
//! belongs to.

use std::fmt;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;
use writ_inspect::redact::Redactor;
use writ_runtime::clock::{Clock as _, SystemClock};

use super::rotate::Rotating;

/// The longest text of a field, in bytes; what is longer is cut and marked.
const MAX_TEXT_BYTES: usize = 2048;
/// Marks a text that was cut.
const CUT: &str = "(truncated)";
/// The fields of spans that lines carry: the turn, and the scope of its session.
const CARRIED: [&str; 2] = ["turn_id", "scope_id"];

/// Writes each event as one line of JSON.
pub(super) struct LogLines {
    file: Mutex<Rotating>,
    run: String,
    redactor: Redactor,
}

impl LogLines {
    /// Lines of one run of the engine, without secrets.
    pub(super) fn new(file: Rotating, run: String, redactor: Redactor) -> Self {
        Self { file: Mutex::new(file), run, redactor }
    }

    fn span_fields(&self) -> SpanFields {
        SpanFields { names: Map::new(), redactor: self.redactor.clone() }
    }
}

/// The fields that a span gives the lines inside it.
struct SpanIds(Map<String, Value>);

impl<S> Layer<S> for LogLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = self.span_fields();
        attributes.record(&mut fields);
        fields.names.retain(|name, _| CARRIED.contains(&name.as_str()));
        if let Some(span) = context.span(id).filter(|_| !fields.names.is_empty()) {
            span.extensions_mut().insert(SpanIds(fields.names));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Map::new();
        let meta = event.metadata();
        line.insert("timestamp".to_owned(), SystemClock.now().to_string().into());
        line.insert("level".to_owned(), meta.level().as_str().into());
        line.insert("target".to_owned(), meta.target().into());
        line.insert("run_id".to_owned(), self.run.clone().into());
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(SpanIds(ids)) = span.extensions().get::<SpanIds>() {
                line.extend(ids.clone());
            }
        }
        let mut fields = self.span_fields();
        event.record(&mut fields);
        for (name, value) in fields.names {
            // A field of this name says more than a span above it.
            line.insert(name, value);
        }
        let Ok(mut text) = serde_json::to_vec(&Value::Object(line)) else { return };
        text.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A log that cannot be written is no reason to stop, and there is no other place to report it.
        let _written = file.write_all(&text);
    }
}

/// Fields by name, in the order in which they come.
struct SpanFields {
    names: Map<String, Value>,
    redactor: Redactor,
}

impl SpanFields {
    fn add_text(&mut self, field: &Field, text: &str) {
        // Before it is cut: no half of a secret is left.
        let text = &*self.redactor.mask_text(text);
        let text = if text.len() > MAX_TEXT_BYTES {
            let end = (0..=MAX_TEXT_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            format!("{}{CUT}", text.get(..end).unwrap_or_default())
        } else {
            text.to_owned()
        };
        self.names.insert(field.name().to_owned(), text.into());
    }
}

impl Visit for SpanFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add_text(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.names.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.names.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.names.insert(field.name().to_owned(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.names.insert(field.name().to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add_text(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// The lines that `work` logs.
    fn logged(work: impl FnOnce()) -> Vec<Value> {
        let dir = tempfile::tempdir().expect("temp dir");
        let file = Rotating::open_log(dir.path(), "a.jsonl", 1 << 20, 2).expect("opens");
        let lines = LogLines::new(file, "RUN".to_owned(), Redactor::default());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), work);
        let text = std::fs::read_to_string(dir.path().join("a.jsonl")).expect("reads");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Rows: SF-447 SF-449
    #[test]
    fn a_line_says_which_turn_session_and_run_it_belongs_to() {
        let long = "ä".repeat(MAX_TEXT_BYTES);
        let lines = logged(|| {
            tracing::info!("outside");
            let turn = tracing::info_span!("turn", turn_id = "T", scope_id = %"S", prompt = "words");
            turn.in_scope(|| {
                let inner = tracing::info_span!("inner", other = 1);
                inner.in_scope(|| tracing::warn!(code = "a.b", long, three = "a\nb\nc\n", "inside"));
            });
        });
        let [outside, inside] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!((&outside["message"], outside.get("turn_id")), (&"outside".into(), None));
        let ids =
            ["turn_id", "scope_id", "run_id", "level", "code", "message"].map(|name| inside[name].clone());
        assert_eq!(ids, ["T", "S", "RUN", "WARN", "a.b", "inside"].map(Value::from));
        assert_eq!((inside.get("prompt"), inside.get("other")), (None, None), "of a span, its ids alone");
        assert_eq!(inside["long"], format!("{}(truncated)", "ä".repeat(MAX_TEXT_BYTES / 2)).as_str());
        assert_eq!(inside["three"], "a\nb\nc\n");
        let (fits, over) = ("x".repeat(MAX_TEXT_BYTES), "x".repeat(10 * 1024));
        let lines = logged(|| tracing::info!(fits, over, "output"));
        assert_eq!(lines[0]["fits"], fits.as_str());
        assert_eq!(lines[0]["over"], format!("{fits}(truncated)").as_str());
    }
}
