//! Looks back: the spans of the autopilot, the units that are over, and the cleaning up of trace files.

use serde_json::Value;
use writ_inspect::show::escape_line;
use writ_runtime::methods::{PilotClean, PilotForensics, PilotHistoryOf, PilotMeasure};
use writ_types::api::pilot::{
    ChapterOutcome, PilotBenchmarkLine, PilotBenchmarkOrder, PilotCleaned, PilotCleaning, PilotHistory,
    PilotHistoryLine, PilotHistoryQuery, PilotSpan, PilotTrace, PilotTraceQuery, SpanOperation,
};

use super::{cut, project_of};
use crate::args::{HistoryArgs, PilotLook};
use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;

/// Runs a command that looks back.
pub(super) async fn look_back(
    context: &Context,
    client: &mut EngineClient,
    look: &PilotLook,
) -> Result<(), Failure> {
    match look {
        PilotLook::Forensics { id, place, last } => {
            let project = project_of(context, place)?.project;
            print_spans(context, client, &PilotTraceQuery { project, id: id.clone(), last: *last }).await
        }
        PilotLook::History { place, filter } => {
            list_history(context, client, (project_of(context, place)?.project, filter)).await
        }
        PilotLook::Clean { place, dry_run } => {
            let project = project_of(context, place)?.project;
            clean(context, client, &PilotCleaning { project, dry_run: *dry_run }).await
        }
        PilotLook::Benchmark { place, samples } => {
            let project = project_of(context, place)?.project;
            measure(context, client, &PilotBenchmarkOrder { project, samples: *samples }).await
        }
    }
}

/// Measures the models of all tiers.
async fn measure(
    context: &Context,
    client: &mut EngineClient,
    order: &PilotBenchmarkOrder,
) -> Result<(), Failure> {
    let measured = client.ask::<PilotMeasure>(order).await?;
    context.out.print_either(&measured, |measured| measured.lines.iter().map(describe_measured).collect())
}

fn describe_measured(line: &PilotBenchmarkLine) -> String {
    let (tier, model) = (escape_line(&line.tier), escape_line(&line.model));
    if !line.error.is_empty() {
        return format!("{tier}  {model}  FAILED: {}", cut(&line.error));
    }
    format!(
        "{tier}  {model}  {} of {} plans can be read, {} ms, {}",
        line.readable, line.samples, line.took_ms, line.cost
    )
}

/// Prints spans in the order of their begins.
async fn print_spans(
    context: &Context,
    client: &mut EngineClient,
    query: &PilotTraceQuery,
) -> Result<(), Failure> {
    let trace = client.ask::<PilotForensics>(query).await?;
    context.out.print_either(&trace, describe_trace)
}

fn describe_trace(trace: &PilotTrace) -> Vec<String> {
    let mut lines: Vec<String> = trace.spans.iter().map(describe_span).collect();
    if lines.is_empty() {
        lines.push(format!("{} has no span yet", escape_line(&trace.id)));
    }
    lines.extend(trace.chapters.iter().map(|chapter| {
        let (name, intent) = (escape_line(&chapter.name), cut(&chapter.intent));
        let outcome = chapter.outcome.map_or("open", ChapterOutcome::name);
        format!("chapter {name} ({outcome}), {} spans: {intent}", chapter.span_ids.len())
    }));
    lines.extend(trace.unreadable.iter().map(|why| format!("not readable: {}", cut(why))));
    lines
}

fn describe_span(span: &PilotSpan) -> String {
    // What happens in a run stands below it.
    let indent = if span.parent_span_id.is_some() { "  " } else { "" };
    let operation = span.operation.name();
    let mut line = format!("{}  {indent}{operation}  {}", span.started_at, cut(&words_of(span)));
    // A change of phase takes no time.
    if span.duration_ms > 0 {
        line.push_str(&format!("  {} ms", span.duration_ms));
    }
    if let Some(error) = &span.error {
        line.push_str(&format!("  FAILED: {}", cut(error)));
    }
    line
}

/// Returns the words that say what a span was about.
fn words_of(span: &PilotSpan) -> String {
    let of = |name: &str| match span.attrs.get(name) {
        Some(Value::String(text)) => text.clone(),
        // Numbers stand as they are.
        Some(other) if !other.is_null() => other.to_string(),
        Some(_) | None => String::new(),
    };
    let names: &[&str] = match span.operation {
        SpanOperation::Run => &["unit_id", "phase", "attempt", "outcome"],
        SpanOperation::PhaseTransition => &["unit_id", "from", "to", "reason"],
        SpanOperation::ModelRequest => &["model"],
        SpanOperation::Gate => &["gate", "attempt"],
        SpanOperation::Hook => &["hook", "on", "verdict"],
        SpanOperation::ToolCall => &["call"],
    };
    let mut words: Vec<String> = names.iter().map(|name| of(name)).filter(|word| !word.is_empty()).collect();
    // A record of an older call has its tool alone.
    if words.is_empty() {
        words.push(of("tool"));
    }
    words.join(" ")
}

/// Moves old trace files to the archive, or lists them.
async fn clean(context: &Context, client: &mut EngineClient, order: &PilotCleaning) -> Result<(), Failure> {
    let cleaned = client.ask::<PilotClean>(order).await?;
    context.out.print_either(&cleaned, describe_cleaned)
}

fn describe_cleaned(cleaned: &PilotCleaned) -> Vec<String> {
    let (move_verb, repair_verb) = match cleaned.dry_run {
        true => ("would be moved to the archive", "its index would be repaired"),
        false => ("moved to the archive", "its index is repaired"),
    };
    let archived = cleaned.archived.iter().map(|file| format!("{}: {move_verb}", escape_line(file)));
    let repaired = cleaned.repaired.iter().map(|file| format!("{}: {repair_verb}", escape_line(file)));
    let mut lines: Vec<String> = archived.chain(repaired).collect();
    if lines.is_empty() {
        lines.push("nothing is old enough to be moved".to_owned());
    }
    lines
}

/// Lists the units that are over.
async fn list_history(
    context: &Context,
    client: &mut EngineClient,
    (project, filter): (String, &HistoryArgs),
) -> Result<(), Failure> {
    let HistoryArgs { since, phase, verdict, workflow, model, limit } = filter.clone();
    let query = PilotHistoryQuery { project, since, phase, verdict, workflow, model, limit };
    let history = client.ask::<PilotHistoryOf>(&query).await?;
    context.out.print_either(&history, describe_history)
}

fn describe_history(history: &PilotHistory) -> Vec<String> {
    if history.units.is_empty() {
        return vec!["none".to_owned()];
    }
    let line = |one: &PilotHistoryLine| {
        let models =
            if one.models.is_empty() { String::new() } else { format!(", {}", one.models.join(", ")) };
        format!(
            "{}  {}  {}  {}  ({}, {} runs, last {}{}, {})",
            one.ended_at,
            escape_line(&one.unit),
            one.verdict,
            escape_line(&one.title),
            escape_line(&one.workflow),
            one.runs,
            one.phase,
            escape_line(&models),
            one.cost
        )
    };
    history.units.iter().map(line).collect()
}
