//! Measures of a fleet, made from what its router says when they are asked for.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use writ_types::api::fleet::{AgentTotals, FleetStatus};

/// The most agents with series of their own: as many as a fleet may have.
const MAX_SERIES: usize = 256;
/// The states of a case; each has a series, also without a case.
const STATES: [&str; 6] = ["open", "held", "held by a person", "escalating", "queued", "damaged"];

/// What is summed up for each agent since the start of its router: a name, a description, and the sum.
const SUMS: [(&str, &str, SumOf); 5] = [
    ("requests", "Requests of agents to the security proxy", |sums| sums.requests),
    ("refusals", "Requests of agents that were refused", |sums| sums.refused),
    ("records_read", "Records that agents have read", |sums| sums.records_read),
    ("tokens", "Tokens of models that agents have used", |sums| sums.tokens),
    ("escalations", "Cases that agents have passed on", |sums| sums.escalations),
];

type SumOf = fn(&AgentTotals) -> u64;
type Count = Gauge<u64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgentLabels {
    agent: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnomalyLabels {
    agent: String,
    reaction: &'static str,
}

/// Makes the measures of a fleet. Labels are states and names of agents; no case and no customer is in them.
pub(super) fn fleet_registry(fleet: &FleetStatus) -> Registry {
    let mut registry = Registry::with_prefix("writ_fleet");
    let agents = Count::default();
    agents.set(u64::try_from(fleet.agents.len()).unwrap_or(u64::MAX));
    registry.register("agents", "Agents that can be given cases", agents);
    registry.register("open_cases", "Open cases by their state", count_states(fleet));
    let cases: Family<AgentLabels, Count> = Family::default();
    let anomalies: Family<AnomalyLabels, Counter> = Family::default();
    for agent in fleet.agents.iter().take(MAX_SERIES) {
        cases.get_or_create(&AgentLabels { agent: agent.name.clone() }).set(agent.cases);
        let totals = &agent.since_start;
        for (reaction, count) in [("alert", totals.alerts), ("revoke", totals.revocations)] {
            anomalies.get_or_create(&AnomalyLabels { agent: agent.name.clone(), reaction }).inc_by(count);
        }
    }
    registry.register("agent_cases", "Cases that an agent holds now", cases);
    registry.register("anomalies", "Rules about anomalies that were met", anomalies);
    for (name, help, sum) in SUMS {
        let counters: Family<AgentLabels, Counter> = Family::default();
        for agent in fleet.agents.iter().take(MAX_SERIES) {
            counters
                .get_or_create(&AgentLabels { agent: agent.name.clone() })
                .inc_by(sum(&agent.since_start));
        }
        registry.register(name, help, counters);
    }
    registry
}

fn count_states(fleet: &FleetStatus) -> Family<StateLabels, Count> {
    let states = Family::<StateLabels, Count>::default();
    for state in STATES {
        let count = fleet.open.iter().filter(|one| one.state == state).map(|one| one.count).sum();
        states.get_or_create(&StateLabels { state }).set(count);
    }
    states
}

#[cfg(test)]
mod tests {
    use writ_types::api::fleet::{AgentStatus, StateCount};

    use super::super::{Metrics, MetricsFormat};
    use super::*;

    fn agent(name: String, totals: AgentTotals) -> AgentStatus {
        AgentStatus {
            name,
            roles: Vec::new(),
            version: None,
            cases: 2,
            max_cases: 4,
            requests_per_minute: 12,
            refused: 3,
            tokens: 40,
            since_start: totals,
        }
    }

    /// Rows: SLO-059 (in part: as measures) SLO-060 (in part: as measures)
    #[test]
    fn a_fleet_is_measured_by_agent_and_state() {
        let totals =
            AgentTotals { requests: 7, refused: 5, tokens: 1_240, revocations: 1, ..AgentTotals::default() };
        let fleet = FleetStatus {
            agents: vec![agent("refund-agent".into(), totals)],
            open: vec![
                StateCount { state: "held".into(), count: 2 },
                StateCount { state: "queued".into(), count: 600 },
            ],
            ..FleetStatus::default()
        };
        let text = Metrics::new().text(MetricsFormat::OpenMetrics, Some(&fleet));
        for line in [
            "writ_fleet_agents 1",
            "writ_fleet_open_cases{state=\"held\"} 2",
            "writ_fleet_open_cases{state=\"queued\"} 600",
            "writ_fleet_open_cases{state=\"escalating\"} 0",
            "writ_fleet_agent_cases{agent=\"refund-agent\"} 2",
            "writ_fleet_requests_total{agent=\"refund-agent\"} 7",
            "writ_fleet_refusals_total{agent=\"refund-agent\"} 5",
            "writ_fleet_tokens_total{agent=\"refund-agent\"} 1240",
            "writ_fleet_anomalies_total{agent=\"refund-agent\",reaction=\"revoke\"} 1",
            "writ_fleet_anomalies_total{agent=\"refund-agent\",reaction=\"alert\"} 0",
            "writ_turns_total 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches("# EOF").count(), 1, "one end for both");
        assert!(text.ends_with("# EOF\n"), "{text}");
        let plain = Metrics::new().text(MetricsFormat::Prometheus, Some(&fleet));
        assert!(plain.contains("# TYPE writ_fleet_requests_total counter"), "{plain}");
        assert!(!Metrics::new().text(MetricsFormat::OpenMetrics, None).contains("writ_fleet"), "no fleet");
    }

    #[test]
    fn the_number_of_series_is_bounded_and_names_cannot_forge_one() {
        let many = (0..1_000).map(|n| agent(format!("agent-{n}"), AgentTotals::default()));
        let hostile = agent("a\"} 9\nwrit_turns_total 9".into(), AgentTotals::default());
        let fleet =
            FleetStatus { agents: std::iter::once(hostile).chain(many).collect(), ..FleetStatus::default() };
        let text = Metrics::new().text(MetricsFormat::OpenMetrics, Some(&fleet));
        assert_eq!(text.matches("writ_fleet_requests_total{").count(), MAX_SERIES);
        assert!(!text.lines().any(|line| line == "writ_turns_total 9"), "a label stays in its quotes");
    }
}
