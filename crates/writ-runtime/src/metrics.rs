//! Counters and measures of the engine, in the OpenMetrics text format.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use writ_types::api::fleet::FleetStatus;
use writ_types::entry::{GatePoint, GateVerdict};

mod fleet;

/// Bounds of the buckets of a turn's duration, in seconds: from an instant model to the longest turn.
const DURATION_SECS: [f64; 12] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GateLabels {
    r#type: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Tool {
    tool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MemoryOperation {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RoleLabels {
    role: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: &'static str,
}

/// The text format of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
}

/// The counters of one engine, since it began.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    turns: Counter,
    turn_duration: Histogram,
    gates: Family<GateLabels, Counter>,
    tools: Family<Tool, Counter>,
    tool_failures: Family<Tool, Counter>,
    context_tokens: Gauge<u64, AtomicU64>,
    memory: Family<MemoryOperation, Counter>,
    subscriptions: Gauge<u64, AtomicU64>,
    agent_calls: Family<RoleLabels, Counter>,
    routes: Family<RouteLabels, Counter>,
    asks: Counter,
    denials: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("writ"),
            turns: Counter::default(),
            turn_duration: Histogram::new(DURATION_SECS),
            gates: Family::default(),
            tools: Family::default(),
            tool_failures: Family::default(),
            context_tokens: Gauge::default(),
            memory: Family::default(),
            subscriptions: Gauge::default(),
            agent_calls: Family::default(),
            routes: Family::default(),
            asks: Counter::default(),
            denials: Counter::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("turns", "Turns that have ended", metrics.turns.clone());
        let text = "From the lease of a message to the end of its turn";
        registry.register("turn_duration_seconds", text, metrics.turn_duration.clone());
        registry.register("gate_evaluations", "Judgements of gates", metrics.gates.clone());
        registry.register("tool_executions", "Tool calls that were performed", metrics.tools.clone());
        let text = "Tool calls that failed, were refused, or of which the end is unknown";
        registry.register("tool_failures", text, metrics.tool_failures.clone());
        let text = "Tokens of the last request to a model, estimated";
        registry.register("context_tokens_used", text, metrics.context_tokens.clone());
        registry.register("memory_operations", "Searches and stores of the memory", metrics.memory.clone());
        registry.register("subscriptions_active", "Open subscriptions", metrics.subscriptions.clone());
        registry.register("agent_calls", "Model calls, tries included", metrics.agent_calls.clone());
        let text = "Messages by the way that the proxy has chosen for them";
        registry.register("routes", text, metrics.routes.clone());
        registry.register("asks", "Questions to a person", metrics.asks.clone());
        registry.register("denials", "Refusals of the door", metrics.denials.clone());
        metrics
    }

    pub(crate) fn turn_ended(&self, took: Duration) {
        self.turns.inc();
        self.turn_duration.observe(took.as_secs_f64());
    }

    pub(crate) fn gate(&self, point: GatePoint, verdict: GateVerdict) {
        let result = verdict_name(verdict);
        self.gates.get_or_create(&GateLabels { r#type: point_name(point), result }).inc();
    }

    /// Sets the number of subscriptions of the sessions in memory.
    pub(crate) fn subscriptions(&self, count: usize) {
        self.subscriptions.set(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// A tool was performed. Names are those of the registry, so their number is bounded.
    pub(crate) fn tool(&self, tool: &str) {
        self.tools.get_or_create(&Tool { tool: tool.to_owned() }).inc();
    }

    /// A tool call came to no good end.
    pub(crate) fn tool_failed(&self, tool: &str) {
        self.tool_failures.get_or_create(&Tool { tool: tool.to_owned() }).inc();
    }

    pub(crate) fn memory(&self, operation: &'static str) {
        self.memory.get_or_create(&MemoryOperation { operation }).inc();
    }

    pub(crate) fn model_call(&self, role: &'static str, input_tokens: u64) {
        self.agent_calls.get_or_create(&RoleLabels { role }).inc();
        self.context_tokens.set(input_tokens);
    }

    /// The proxy has chosen a way, of which there are four.
    pub(crate) fn routed(&self, route: &'static str) {
        self.routes.get_or_create(&RouteLabels { route }).inc();
    }

    pub(crate) fn asked(&self) {
        self.asks.inc();
    }

    pub(crate) fn denied(&self) {
        self.denials.inc();
    }

    /// Writes the measures of the engine, and of its fleet where it has one.
    pub(crate) fn text(&self, format: MetricsFormat, fleet: Option<&FleetStatus>) -> String {
        let mut text = String::new();
        let fleet = fleet.map(fleet::fleet_registry);
        let mut written = [Some(&self.registry), fleet.as_ref()].into_iter().flatten();
        let written = written.try_for_each(|registry| encode_registry(&mut text, registry));
        // Writing to a string fails in no other way than by a broken label set of ours.
        if written.and_then(|()| encode_eof(&mut text)).is_err() {
            "# EOF\n".clone_into(&mut text);
        }
        match format {
            MetricsFormat::OpenMetrics => text,
            MetricsFormat::Prometheus => prometheus(&text),
        }
    }
}

/// The older format: what describes a counter names the series that ends in `_total`, and nothing marks the end.
fn prometheus(text: &str) -> String {
    let counters: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut plain = String::with_capacity(text.len());
    for line in text.lines().filter(|line| *line != "# EOF") {
        let described = ["# HELP ", "# TYPE "].into_iter().find_map(|mark| {
            let (name, rest) = line.strip_prefix(mark)?.split_once(' ')?;
            counters.contains(name).then(|| format!("{mark}{name}_total {rest}"))
        });
        plain.push_str(described.as_deref().unwrap_or(line));
        plain.push('\n');
    }
    plain
}

pub(crate) const fn point_name(point: GatePoint) -> &'static str {
    match point {
        GatePoint::Input => "input",
        GatePoint::Output => "output",
        GatePoint::Execution => "execution",
        GatePoint::Access => "access",
    }
}

/// The name of a verdict in traces and metrics.
pub(crate) const fn verdict_name(verdict: GateVerdict) -> &'static str {
    match verdict {
        GateVerdict::Pass => "pass",
        GateVerdict::Advise => "advise",
        GateVerdict::Transform => "transform",
        GateVerdict::RequireApproval => "require_approval",
        GateVerdict::Block => "block",
        GateVerdict::Halt => "halt",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SIL-240 SIL-241 SIL-242 SIL-243 SIL-245 SIL-247
    #[test]
    fn each_series_rises_by_itself() {
        let metrics = Metrics::new();
        metrics.turn_ended(Duration::from_millis(700));
        metrics.gate(GatePoint::Input, GateVerdict::Block);
        metrics.gate(GatePoint::Input, GateVerdict::Pass);
        metrics.tool("shell_exec");
        metrics.memory("search");
        metrics.model_call("executor", 1_234);
        metrics.model_call("executor", 77);
        let text = metrics.text(MetricsFormat::OpenMetrics, None);
        for line in [
            "writ_turns_total 1",
            "writ_turn_duration_seconds_count 1",
            "writ_turn_duration_seconds_sum 0.7",
            "writ_turn_duration_seconds_bucket{le=\"0.5\"} 0",
            "writ_turn_duration_seconds_bucket{le=\"1.0\"} 1",
            "writ_gate_evaluations_total{type=\"input\",result=\"block\"} 1",
            "writ_gate_evaluations_total{type=\"input\",result=\"pass\"} 1",
            "writ_tool_executions_total{tool=\"shell_exec\"} 1",
            "writ_context_tokens_used 77",
            "writ_memory_operations_total{operation=\"search\"} 1",
            "writ_subscriptions_active 0",
            "writ_agent_calls_total{role=\"executor\"} 2",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("tool=\"search\""), "nothing but what was counted");
    }

    #[test]
    fn the_older_format_describes_the_series_that_there_are() {
        let metrics = Metrics::new();
        metrics.turn_ended(Duration::from_millis(700));
        let text = metrics.text(MetricsFormat::Prometheus, None);
        for line in [
            "# HELP writ_turns_total Turns that have ended.",
            "# TYPE writ_turns_total counter",
            "writ_turns_total 1",
            "# TYPE writ_turn_duration_seconds histogram",
            "# TYPE writ_context_tokens_used gauge",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("# EOF") && !text.contains("_total_total"), "{text}");
    }
}
