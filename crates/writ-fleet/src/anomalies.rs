//! Anomalies: declared rules over a stream of events, without a clock or a disk.
//!
//! A rule is one line: a measure, a bound, a window, and what is done.
//!
//! ```text
//! refused > 5 in 1 min then revoke
//! requests > 600 in 1 min then alert
//! records_read > 50 per case then revoke
//! tokens > 200000 in 1 hour then alert
//! ways_out > 20 in 1 min then revoke
//! same customer from two cases then alert
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use writ_types::api::fleet::AgentTotals;
use writ_types::unit::Timestamp;

pub(crate) use rule::add_guess_rule;
pub(crate) use rule::parse_time;
pub use rule::{AnomalyRule, AnomalyRuleFault, CountSpan, Measure, Reaction};

mod rule;

/// The most rules.
pub const MAX_RULES: usize = 64;
/// The most cases and agents that are watched at once; the one that was quiet longest is forgotten first.
pub const MAX_WATCHED: usize = 10_000;
/// The most agents with sums since the start; one more is watched without them.
pub const MAX_TOTALS: usize = 1_024;
/// The most amounts that are remembered of one measure of one case; with more, the oldest are added up.
pub const MAX_AMOUNTS: usize = 1_024;

/// A thing that an agent did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetEvent {
    /// When.
    pub at: Timestamp,
    /// The agent.
    pub agent: String,
    /// The token of its case.
    pub case: String,
    /// The token of the customer; empty if it is unknown.
    pub customer: String,
    /// The measure.
    pub measure: Measure,
    /// By how much: one, or a number of records or tokens.
    pub amount: u64,
}

/// A rule that was met, with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// When.
    pub at: Timestamp,
    /// The rule, as it is declared.
    pub rule: String,
    /// What is done.
    pub reaction: Reaction,
    /// The agent.
    pub agent: String,
    /// The case.
    pub case: String,
    /// The numbers that met it.
    pub evidence: String,
}

/// Amounts of one measure, oldest first.
#[derive(Debug, Default)]
struct Amounts {
    recent: VecDeque<(Timestamp, u64)>,
    /// Everything since the case began.
    total: u64,
}

impl Amounts {
    fn add_amount(&mut self, at: Timestamp, amount: u64) {
        // Saturates: too large to count is too much.
        self.total = self.total.saturating_add(amount);
        self.recent.push_back((at, amount));
        if self.recent.len() > MAX_AMOUNTS
            && let Some((_, oldest)) = self.recent.pop_front()
            && let Some((_, next)) = self.recent.front_mut()
        {
            // Added to a later one, so that a flood is rather seen than missed.
            *next = next.saturating_add(oldest);
        }
    }

    /// Forgets what is older than every window.
    fn forget_work(&mut self, before: Timestamp) {
        while self.recent.front().is_some_and(|(at, _)| *at <= before) {
            self.recent.pop_front();
        }
    }

    fn sum_since(&self, after: Timestamp) -> u64 {
        self.recent.iter().filter(|(at, _)| *at > after).fold(0, |sum, (_, more)| sum.saturating_add(*more))
    }
}

/// The tally of one agent's work on one case.
#[derive(Debug, Default)]
struct AgentTally {
    customer: String,
    last: Option<Timestamp>,
    amounts: BTreeMap<Measure, Amounts>,
    /// Rules that it meets now: each is reported once until it is met no longer.
    met: BTreeSet<usize>,
}

/// A line of the live view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchLine {
    /// The agent.
    pub agent: String,
    /// Its case.
    pub case: String,
    /// Requests to the proxy in the last minute.
    pub requests_per_minute: u64,
    /// Refusals since the case began.
    pub refused: u64,
    /// Tokens of models since the case began.
    pub tokens: u64,
}

/// Watches a fleet by its rules.
#[derive(Debug, Default)]
pub struct AnomalyWatch {
    rules: Vec<AnomalyRule>,
    /// By case and agent, so that the next holder of a case begins anew.
    watched: BTreeMap<(String, String), AgentTally>,
    /// The sums of each agent since the start, over all of its cases.
    totals: BTreeMap<String, AgentTotals>,
}

impl AnomalyWatch {
    /// Creates a watch; rules beyond [`MAX_RULES`] are an error of configuration and never reach it.
    pub fn new(rules: Vec<AnomalyRule>) -> Self {
        Self { rules, watched: BTreeMap::new(), totals: BTreeMap::new() }
    }

    /// Takes an event in and returns the rules that it meets.
    pub fn observe_event(&mut self, event: &FleetEvent) -> Vec<Anomaly> {
        self.make_room(event);
        self.add_totals(event);
        // The shortest is the minute of the view, also without rules.
        let longest = self.rules.iter().filter_map(AnomalyRule::window).max().unwrap_or(MINUTE).max(MINUTE);
        let watched = self.watched.entry((event.case.clone(), event.agent.clone())).or_default();
        watched.last = Some(event.at);
        // The model router knows no customer; the proxy and this router do.
        if !event.customer.is_empty() {
            watched.customer.clone_from(&event.customer);
        }
        let amounts = watched.amounts.entry(event.measure).or_default();
        amounts.add_amount(event.at, event.amount);
        amounts.forget_work(earlier(event.at, longest));
        let mut found = Vec::new();
        for index in 0..self.rules.len() {
            found.extend(self.judge_rule(index, event));
        }
        found
    }

    /// Forgets a case that was closed or has left its agent.
    pub fn forget_work(&mut self, case: &str, agent: &str) {
        self.watched.remove(&(case.to_owned(), agent.to_owned()));
    }

    /// Returns what each agent does now.
    pub fn list_work(&self, now: Timestamp) -> Vec<WatchLine> {
        let total = |watched: &AgentTally, measure| watched.amounts.get(&measure).map_or(0, |one| one.total);
        let line = |((case, agent), watched): (&(String, String), &AgentTally)| WatchLine {
            agent: agent.clone(),
            case: case.clone(),
            requests_per_minute: watched
                .amounts
                .get(&Measure::Requests)
                .map_or(0, |one| one.sum_since(earlier(now, MINUTE))),
            refused: total(watched, Measure::Refused),
            tokens: total(watched, Measure::Tokens),
        };
        self.watched.iter().map(line).collect()
    }

    /// Returns the sums of an agent since the start.
    pub fn agent_totals(&self, agent: &str) -> AgentTotals {
        self.totals.get(agent).copied().unwrap_or_default()
    }

    /// Counts an anomaly after what its rule says was done.
    pub fn count_anomaly(&mut self, anomaly: &Anomaly) {
        let Some(totals) = self.find_totals(&anomaly.agent) else { return };
        let count = match anomaly.reaction {
            Reaction::Alert => &mut totals.alerts,
            Reaction::Revoke => &mut totals.revocations,
        };
        *count = count.saturating_add(1);
    }

    /// Counts an event in the sums of its agent alone.
    pub fn add_totals(&mut self, event: &FleetEvent) {
        let Some(totals) = self.find_totals(&event.agent) else { return };
        let sum = match event.measure {
            Measure::Requests => &mut totals.requests,
            Measure::Refused => &mut totals.refused,
            Measure::Tokens => &mut totals.tokens,
            Measure::RecordsRead => &mut totals.records_read,
            Measure::Escalations => &mut totals.escalations,
            // The ledger says more of them.
            Measure::Missed | Measure::Masked | Measure::WaysOut => return,
        };
        *sum = sum.saturating_add(event.amount);
    }

    fn find_totals(&mut self, agent: &str) -> Option<&mut AgentTotals> {
        // A sum never begins anew, so none is dropped for another agent.
        if !self.totals.contains_key(agent) && self.totals.len() >= MAX_TOTALS {
            return None;
        }
        Some(self.totals.entry(agent.to_owned()).or_default())
    }

    fn judge_rule(&mut self, index: usize, event: &FleetEvent) -> Option<Anomaly> {
        let rule = self.rules.get(index)?;
        let evidence = match rule {
            AnomalyRule::Amount { measure, most, span, .. } => {
                let key = (event.case.clone(), event.agent.clone());
                let amounts = self.watched.get(&key)?.amounts.get(measure)?;
                let sum = match span {
                    CountSpan::Window(window) => amounts.sum_since(earlier(event.at, *window)),
                    CountSpan::Case => amounts.total,
                };
                (sum > *most).then(|| format!("{sum} {}", measure.as_str()))
            }
            AnomalyRule::SameCustomer { .. } => self.other_case(event),
        };
        let (text, reaction) = (rule.to_string(), rule.reaction());
        let watched = self.watched.get_mut(&(event.case.clone(), event.agent.clone()))?;
        let Some(evidence) = evidence else {
            watched.met.remove(&index);
            return None;
        };
        // An anomaly is one event, not one for each request that follows.
        watched.met.insert(index).then(|| Anomaly {
            at: event.at,
            rule: text,
            reaction,
            agent: event.agent.clone(),
            case: event.case.clone(),
            evidence,
        })
    }

    /// Forgets that a rule is met, so that the next event meets it anew.
    pub fn forget_anomaly(&mut self, anomaly: &Anomaly) {
        let index = self.rules.iter().position(|rule| rule.to_string() == anomaly.rule);
        let watched = self.watched.get_mut(&(anomaly.case.clone(), anomaly.agent.clone()));
        if let (Some(index), Some(watched)) = (index, watched) {
            watched.met.remove(&index);
        }
    }

    // Customers are compared as events have named them; this one may name none. A proxy's token of a customer is another one
    // in each case.
    fn other_case(&self, event: &FleetEvent) -> Option<String> {
        let own = self.watched.get(&(event.case.clone(), event.agent.clone()))?;
        let customer = own.customer.as_str();
        if customer.is_empty() {
            return None;
        }
        let mut others = self.watched.iter();
        let other = others.find(|((case, _), watched)| *case != event.case && watched.customer == customer);
        other.map(|((case, _), _)| format!("customer {customer} also in case {case}"))
    }

    fn make_room(&mut self, event: &FleetEvent) {
        let known = self.watched.contains_key(&(event.case.clone(), event.agent.clone()));
        if known || self.watched.len() < MAX_WATCHED {
            return;
        }
        // An active agent is never the one that was quiet longest.
        let quiet = self.watched.iter().min_by_key(|(_, watched)| watched.last);
        if let Some(key) = quiet.map(|(key, _)| key.clone()) {
            self.watched.remove(&key);
        }
    }
}

const MINUTE: Duration = Duration::from_secs(60);

fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(at.as_millis().saturating_sub(by))
}

#[cfg(test)]
mod tests;
