//! Spans of rows of the store and entries of the ledger.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use writ_store::units::{GateRow, RunRow, TransitionRow};
use writ_types::action::{Action, ActionKind};
use writ_types::api::pilot::{PilotSpan, SpanOperation};
use writ_types::chat::ToolOutcome;
use writ_types::entry::{Entry, Fact};
use writ_types::id::{AttemptId, EntrySeq};
use writ_types::unit::Timestamp;

use crate::account::{first_line, millis_between};
use crate::trace::describe;

/// The longest text in a span, in characters.
const MAX_TEXT_CHARS: usize = 400;

/// The names that all spans of one unit share.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanNames<'a> {
    pub(super) trace: &'a str,
    /// The session of the autopilot, for what is outside of runs.
    pub(super) session: &'a str,
    pub(super) unit: &'a str,
}

/// The place of a span in its run.
struct SpanPlace {
    run: String,
    span: String,
    parent: Option<String>,
}

impl SpanNames<'_> {
    fn span(
        &self,
        place: SpanPlace,
        operation: SpanOperation,
        (from, until): (Timestamp, Timestamp),
        attrs: Value,
    ) -> PilotSpan {
        let mut attrs = if let Value::Object(attrs) = attrs { attrs } else { Map::new() };
        attrs.insert("unit_id".to_owned(), self.unit.into());
        PilotSpan {
            trace_id: self.trace.to_owned(),
            span_id: place.span,
            parent_span_id: place.parent,
            run_id: place.run,
            operation,
            started_at: from,
            duration_ms: millis_between(from, until),
            attrs,
            error: None,
        }
    }

    /// Returns the place of something that happened at a time: in the newest run that had begun, or outside of runs.
    fn place(&self, runs: &[RunRow], at: Timestamp, span: String) -> SpanPlace {
        let run = runs.iter().rev().find(|run| run.started_at <= at).map(|run| run.id.to_string());
        SpanPlace { run: run.clone().unwrap_or_else(|| self.session.to_owned()), span, parent: run }
    }

    /// Makes the span of a run that has ended.
    pub(super) fn span_of_run(&self, run: &RunRow) -> Option<PilotSpan> {
        let end = run.end.as_ref()?;
        let id = run.id.to_string();
        let attrs = json!({
            "attempt": run.attempt, "phase": run.phase, "outcome": end.outcome, "run_kind": "unit",
            "input_tokens": end.input, "output_tokens": end.output, "cost_micro_usd": end.cost,
        });
        let place = SpanPlace { run: id.clone(), span: id, parent: None };
        let mut span = self.span(place, SpanOperation::Run, (run.started_at, end.at), attrs);
        if end.outcome != "success" {
            span.error = Some(if end.error_code.is_empty() { &end.outcome } else { &end.error_code }.clone());
        }
        Some(span)
    }

    /// Makes the spans of a unit's moves from phase to phase.
    pub(super) fn spans_of_moves(&self, runs: &[RunRow], moves: &[TransitionRow]) -> Vec<PilotSpan> {
        let span = |(n, one): (usize, &TransitionRow)| {
            let place = self.place(runs, one.at, format!("move-{}-{n}", self.unit));
            let attrs = json!({ "from": one.from, "to": one.to, "reason": cut(&one.reason) });
            self.span(place, SpanOperation::PhaseTransition, (one.at, one.at), attrs)
        };
        moves.iter().enumerate().map(span).collect()
    }

    /// Makes the spans of a unit's gates.
    pub(super) fn spans_of_gates(&self, runs: &[RunRow], gates: &[GateRow]) -> Vec<PilotSpan> {
        let span = |(n, gate): (usize, &GateRow)| {
            let place = self.place(runs, gate.at, format!("gate-{}-{n}", self.unit));
            let began =
                gate.at.as_millis().saturating_sub(i64::try_from(gate.duration_ms).unwrap_or(i64::MAX));
            let attrs = json!({ "gate": gate.gate, "attempt": gate.attempt, "passed": gate.passed });
            let mut span =
                self.span(place, SpanOperation::Gate, (Timestamp::from_millis(began), gate.at), attrs);
            span.error = (!gate.passed).then(|| first_line(&gate.output));
            span
        };
        gates.iter().enumerate().map(span).collect()
    }

    /// Makes the spans of what the agent of a run has done.
    pub(super) fn spans_of_entries(&self, run: &RunRow, entries: &[(EntrySeq, Entry)]) -> Vec<PilotSpan> {
        let id = run.id.to_string();
        let place = |span: String| SpanPlace { run: id.clone(), span, parent: Some(id.clone()) };
        let mut open: BTreeMap<AttemptId, (Timestamp, &Action)> = BTreeMap::new();
        let mut spans = Vec::new();
        for (seq, entry) in entries {
            if let Fact::Intent { attempt, action, .. } = &entry.fact {
                open.insert(*attempt, (entry.at, action));
            } else if let Fact::ModelCalled { attempt, .. } = &entry.fact {
                let from = open.remove(attempt).map_or(entry.at, |(from, _)| from);
                let mut span = self.span(
                    place(attempt.to_string()),
                    SpanOperation::ModelRequest,
                    (from, entry.at),
                    attrs_of_model(&entry.fact),
                );
                span.error = error_of_model(&entry.fact);
                spans.push(span);
            } else if let Fact::Outcome { attempt, outcome, summary, .. } = &entry.fact {
                // The answer of a model's call has all of it.
                let Some((from, action)) = open.remove(attempt) else { continue };
                let attrs = json!({ "tool": action.kind().as_str(), "call": cut(&describe(action)) });
                let mut span = self.span(
                    place(attempt.to_string()),
                    operation_of(action.kind()),
                    (from, entry.at),
                    attrs,
                );
                span.error = (*outcome != ToolOutcome::Done).then(|| cut(summary));
                spans.push(span);
            } else if let Fact::Denied { kind, text, rule, .. } = &entry.fact {
                let attrs = json!({ "tool": kind.as_str(), "rule": cut(rule) });
                let place = place(format!("denied-{seq}"));
                let mut span = self.span(place, operation_of(*kind), (entry.at, entry.at), attrs);
                span.error = Some(cut(text));
                spans.push(span);
            } else if let Fact::Hooked { on, hook, verdict, reason, .. } = &entry.fact {
                let attrs = json!({ "hook": hook, "on": on, "verdict": verdict, "reason": cut(reason) });
                let place = place(format!("hook-{seq}"));
                spans.push(self.span(place, SpanOperation::Hook, (entry.at, entry.at), attrs));
            }
        }
        let left = open.into_iter().map(|(attempt, (from, action))| {
            let attrs = json!({ "tool": action.kind().as_str(), "call": cut(&describe(action)) });
            let mut span =
                self.span(place(attempt.to_string()), operation_of(action.kind()), (from, from), attrs);
            span.error = Some("its outcome is unknown".to_owned());
            span
        });
        spans.extend(left);
        spans.sort_by_key(|span| span.started_at);
        spans
    }
}

fn operation_of(kind: ActionKind) -> SpanOperation {
    if kind == ActionKind::ModelCall { SpanOperation::ModelRequest } else { SpanOperation::ToolCall }
}

fn attrs_of_model(fact: &Fact) -> Value {
    let Fact::ModelCalled { requested, usage, cost, role, .. } = fact else { return Value::Null };
    json!({
        "model": requested, "role": role, "input_tokens": usage.input, "output_tokens": usage.output,
        "cost_micro_usd": cost,
    })
}

fn error_of_model(fact: &Fact) -> Option<String> {
    let Fact::ModelCalled { stop, error, .. } = fact else { return None };
    // One that was refused may have no text.
    let text = if error.is_empty() { "it did not answer" } else { error.as_str() };
    stop.is_none().then(|| cut(text))
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).collect()
}
