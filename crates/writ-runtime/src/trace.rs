//! Spans for traces and lines for the log, with the turn and session that they belong to. They contain only
//! names, codes and counts, never text from a person, a model or a tool.

use std::time::Duration;

use tracing::field::Empty;
use tracing::{Instrument as _, Span, info, info_span};
use writ_inspect::gate::Judgement;
use writ_models::config::ProviderKind;
use writ_models::{ModelRole, PlannedCall};
use writ_tools::registry::Registry;
use writ_types::chat::{ModelReply, StopReason, ToolOutcome, Usage};
use writ_types::entry::GatePoint;
use writ_types::error::Report;
use writ_types::id::{AskId, SessionId, TurnId};

use crate::metrics::{self, Metrics, point_name};
use crate::outcome::outcome_name;

/// The name for tools that the registry does not know: names made up by a model are the model's text.
const UNKNOWN_TOOL: &str = "unknown";
/// The longest model name that is recorded, in bytes.
const MAX_MODEL_NAME: usize = 100;

/// The span of a whole turn.
pub(crate) fn turn(agent: &str, session: SessionId, turn: TurnId, number: u64) -> Span {
    info_span!(
        parent: None,
        "stream.process_turn",
        turn_id = %turn,
        scope_id = %session,
        writ.turn.id = %turn,
        writ.turn.number = number,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = agent,
        gen_ai.conversation.id = %session,
        writ.outcome = Empty,
        error.type = Empty,
    )
}

/// The span of an approved ask that is performed, as part of the turn that requested it.
pub(crate) fn approved(ask: &AskId, session: SessionId, turn: Option<TurnId>) -> Span {
    info_span!(
        parent: None,
        "approval.perform",
        turn_id = turn.map(tracing::field::display),
        scope_id = %session,
        writ.ask.id = %ask,
        gen_ai.conversation.id = %session,
    )
}

/// Records the end of a turn: `completed`, `failed` or `canceled`.
pub(crate) fn turn_ended(state: &str, number: u64, took: Duration) {
    Span::current().record("writ.outcome", state);
    let outcome = match state {
        "finished" => "completed",
        "cancelled" => "canceled",
        other => other,
    };
    info!(number, duration_ms = millis(took), "turn {outcome}");
}

/// The span of one answer of the agent: all tries, over all models.
pub(crate) fn agent(role: ModelRole) -> Span {
    let role = role.as_str();
    info_span!("agent.run", otel.name = format!("agent.{role}.run"), writ.role = role)
}

/// The span of one try at a model.
pub(crate) fn model(planned: &PlannedCall) -> Span {
    let model = planned.model_call().model.as_str();
    info_span!(
        "chat",
        otel.name = format!("chat {model}"),
        otel.kind = "client",
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = provider_name(planned.provider().kind),
        gen_ai.request.model = model,
        gen_ai.response.model = Empty,
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        error.type = Empty,
    )
}

/// Records the result and the usage of one try.
pub(crate) fn model_ended(
    span: &Span,
    requested: &str,
    took: Duration,
    answer: Result<&ModelReply, (&Usage, &Report)>,
) {
    let (usage, duration_ms) = (answer.map_or_else(|(usage, _)| *usage, |reply| reply.usage), millis(took));
    span.record("gen_ai.usage.input_tokens", usage.input.get());
    span.record("gen_ai.usage.output_tokens", usage.output.get());
    let (input, output) = (usage.input.get(), usage.output.get());
    let _inside = span.enter();
    match answer {
        Ok(reply) => {
            if is_model_name(&reply.model) {
                span.record("gen_ai.response.model", reply.model.as_str());
            }
            span.record("gen_ai.response.finish_reasons", stop_name(&reply.stop));
            info!(model = requested, input, output, duration_ms, "model call completed");
        }
        Err((_, report)) => {
            span.record("error.type", report.code.as_str());
            info!(model = requested, input, output, duration_ms, code = report.code, "model call failed");
        }
    }
}

/// Another try follows, by the same model or by the next.
pub(crate) fn model_retrying(requested: &str, wait: Duration) {
    info!(model = requested, wait_ms = millis(wait), "model call retrying");
}

/// The span of one tool call, with everything that it takes: preparing, deciding, performing.
pub(crate) fn tool(tools: &Registry, name: &str) -> Span {
    let name = tools.name_of(name).unwrap_or(UNKNOWN_TOOL);
    info_span!(
        "execute_tool",
        otel.name = format!("execute_tool {name}"),
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = name,
        gen_ai.tool.type = "function",
        writ.outcome = Empty,
        error.type = Empty,
    )
}

/// Records the outcome and the duration of a tool call; `step` is its number among those of the turn, from 1.
pub(crate) fn tool_ended(
    (tools, metrics): (&Registry, &Metrics),
    (name, step): (&str, u64),
    took: Duration,
    outcome: ToolOutcome,
) {
    let name = tools.name_of(name).unwrap_or(UNKNOWN_TOOL);
    let (span, outcome_text, duration_ms) = (Span::current(), outcome_name(outcome), millis(took));
    span.record("writ.outcome", outcome_text);
    let told = match outcome {
        ToolOutcome::Done | ToolOutcome::Simulated => "completed",
        ToolOutcome::Cancelled => "canceled",
        ToolOutcome::Waiting => "waiting",
        ToolOutcome::Failed | ToolOutcome::Denied | ToolOutcome::Unknown => {
            span.record("error.type", outcome_text);
            metrics.tool_failed(name);
            "failed"
        }
    };
    info!(tool = name, step, outcome = outcome_text, duration_ms, "tool call {told}");
}

/// The span of what a sandbox does for one permit.
pub(crate) fn sandbox(work: SandboxWork) -> Span {
    match work {
        SandboxWork::Exec => info_span!("sandbox.exec"),
        SandboxWork::Read => info_span!("sandbox.read"),
        SandboxWork::Write => info_span!("sandbox.write"),
        SandboxWork::Apply => info_span!("sandbox.apply"),
    }
}

/// The kinds of sandbox work, each with a span of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SandboxWork {
    Exec,
    Read,
    Write,
    Apply,
}

/// A search of the memory.
pub(crate) async fn memory_search<T, E>(
    search: impl Future<Output = Result<Vec<T>, E>>,
) -> Result<Vec<T>, E> {
    let span = info_span!("memory.search", writ.memory.hits = Empty);
    let found = search.instrument(span.clone()).await?;
    span.record("writ.memory.hits", u64::try_from(found.len()).unwrap_or(u64::MAX));
    Ok(found)
}

/// A store into the memory.
pub(crate) fn memory_store() -> Span {
    info_span!("memory.store")
}

/// The span of reading what a session is subscribed to, as part of the turn that begins with it.
pub(crate) fn subscription(session: SessionId, turn: Option<TurnId>) -> Span {
    info_span!(
        parent: None,
        "subscription.materialize",
        turn_id = turn.map(tracing::field::display),
        scope_id = %session,
    )
}

/// A judgement of the gates at one point.
pub(crate) fn gate(point: GatePoint) -> Span {
    info_span!("gate.evaluate", writ.gate.point = point_name(point), writ.gate.result = Empty)
}

/// Records the worst verdict of a judgement.
pub(crate) fn gate_ended(span: &Span, judged: &Judgement) {
    span.record("writ.gate.result", metrics::verdict_name(judged.worst_verdict()));
}

/// A provider under the name that the conventions give it, where they do.
const fn provider_name(kind: ProviderKind) -> &'static str {
    match kind {
        ProviderKind::Anthropic => "anthropic",
        ProviderKind::OpenAi | ProviderKind::OpenAiResponses => "openai",
        ProviderKind::OpenRouter => "openrouter",
        ProviderKind::Gemini => "gcp.gemini",
        ProviderKind::Ollama => "ollama",
    }
}

/// Reports whether a provider's text for the answering model is a plain name, and not some other text.
fn is_model_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:/@".contains(&byte);
    (1..=MAX_MODEL_NAME).contains(&text.len()) && text.bytes().all(allowed)
}

/// The conventions' word for the reason of a stop.
const fn stop_name(stop: &StopReason) -> &'static str {
    match stop {
        StopReason::EndTurn => "stop",
        StopReason::ToolUse => "tool_calls",
        StopReason::MaxTokens => "length",
        StopReason::ContentFilter => "content_filter",
        StopReason::Other(_) => "other",
    }
}

fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_s_name_is_told_and_no_other_text() {
        for name in ["gpt-5.2", "anthropic/claude-sonnet-4-6", "qwen3:8b", "a@20260101"] {
            assert!(is_model_name(name), "{name}");
        }
        for text in ["", "what the owner has said", "a\nb", "\u{e4}", &"x".repeat(MAX_MODEL_NAME + 1)] {
            assert!(!is_model_name(text), "{text}");
        }
    }
}
