//! The open cases and their holders, as people watch them.

use std::collections::BTreeMap;

use writ_store::fleet::{FleetCase, FleetHolder};
use writ_store::reads::FleetReads as _;
use writ_store::store::Store;
use writ_types::api::fleet::{AgentStatus, AgentTotals, CaseStatus, FleetStatus, SeenAnomaly, StateCount};

use super::config::FleetAgent;
use super::error::CaseError;
use super::machine::{CaseState, HELD};
use super::router::CaseRouter;
use super::state::StoredState;

/// The most cases of one view.
pub const MAX_SHOWN: usize = 500;

/// Reads the open cases from the store, oldest first, at most [`MAX_SHOWN`].
///
/// # Errors
///
/// If the store cannot be read.
pub async fn read_status(store: &Store) -> Result<Vec<CaseStatus>, CaseError> {
    let mut lines = Vec::new();
    // At most MAX_SHOWN reads of one row each.
    for row in store.open_fleet_cases(None, MAX_SHOWN).await? {
        let holder: Option<FleetHolder> =
            store.fleet_holders(row.id).await?.pop().filter(|holder| holder.until.is_none());
        let stored = read_state(&row);
        let state = name_state(stored.as_ref()).to_owned();
        let mut reason = stored.map(|stored| stored.reason).unwrap_or_default();
        // Nothing is written for it: the agents that may take it have as many cases as they may.
        if holder.is_none() && state == CaseState::Open.as_str() {
            reason = "it waits for an agent".to_owned();
        }
        lines.push(CaseStatus {
            case: row.id,
            state,
            case_token: row.case_token,
            capability: row.capability,
            since: holder.as_ref().map(|holder| holder.since),
            holder: holder.map(|holder| holder.holder),
            reason,
            requests_per_minute: None,
            refused: None,
            tokens: None,
        });
    }
    Ok(lines)
}

fn read_state(row: &FleetCase) -> Option<StoredState> {
    serde_json::from_str(&row.state).ok()
}

/// Returns the state of a case in one word.
fn name_state(stored: Option<&StoredState>) -> &'static str {
    let machine = stored.and_then(StoredState::restore_machine);
    machine.map_or("damaged", |machine| machine.state().as_str())
}

/// Counts all open cases by their states: those that are shown, and the rest behind them.
async fn count_states(store: &Store, shown: &[CaseStatus]) -> Result<Vec<StateCount>, CaseError> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |state: &str| {
        let count = counts.entry(state.to_owned()).or_default();
        *count = count.saturating_add(1);
    };
    for case in shown {
        add(&case.state);
    }
    let mut last = shown.get(MAX_SHOWN.saturating_sub(1)).map(|case| case.case);
    // At most MAX_OPEN_CASES rows, and none where all are shown.
    while let Some(after) = last {
        let rows = store.open_fleet_cases(Some(after), MAX_SHOWN).await?;
        for row in &rows {
            add(name_state(read_state(row).as_ref()));
        }
        last = rows.last().map(|row| row.id);
    }
    Ok(counts.into_iter().map(|(state, count)| StateCount { state, count }).collect())
}

/// Returns the open cases, with what their holders do now.
///
/// # Errors
///
/// If the store cannot be read.
pub async fn live_status(router: &CaseRouter) -> Result<Vec<CaseStatus>, CaseError> {
    let mut lines = read_status(router.0.keys.store()).await?;
    let seen = router.watch().list_work(router.0.keys.now());
    for line in &mut lines {
        // Only the present holder's numbers: an earlier one's are in the ledger.
        let watched =
            seen.iter().find(|one| one.case == line.case_token && Some(&one.agent) == line.holder.as_ref());
        line.requests_per_minute = Some(watched.map_or(0, |one| one.requests_per_minute));
        line.refused = Some(watched.map_or(0, |one| one.refused));
        line.tokens = Some(watched.map_or(0, |one| one.tokens));
    }
    Ok(lines)
}

/// Returns the agents, the open cases and the last anomalies.
///
/// # Errors
///
/// If the store cannot be read.
pub async fn show_status(router: &CaseRouter) -> Result<FleetStatus, CaseError> {
    let cases = live_status(router).await?;
    let open = count_states(router.0.keys.store(), &cases).await?;
    let known = router.agents().all();
    let totals: Vec<AgentTotals> = {
        let watch = router.watch();
        known.iter().map(|agent| watch.agent_totals(&agent.name)).collect()
    };
    let agents =
        known.iter().zip(totals).map(|(agent, totals)| describe_agent(agent, totals, &cases)).collect();
    let anomalies = router
        .seen()
        .iter()
        .map(|seen| SeenAnomaly {
            at: seen.at,
            agent: seen.agent.clone(),
            case: seen.case.clone(),
            rule: seen.rule.clone(),
            reaction: seen.reaction.as_str().to_owned(),
            evidence: seen.evidence.clone(),
        })
        .collect();
    Ok(FleetStatus { agents, cases, open, anomalies })
}

fn describe_agent(agent: &FleetAgent, since_start: AgentTotals, cases: &[CaseStatus]) -> AgentStatus {
    let held =
        || cases.iter().filter(|case| case.state == HELD && case.holder.as_deref() == Some(&agent.name));
    let sum = |count: fn(&CaseStatus) -> Option<u64>| {
        held().filter_map(count).fold(0, |sum: u64, more| sum.saturating_add(more))
    };
    AgentStatus {
        name: agent.name.clone(),
        roles: agent.roles.clone(),
        version: agent.version.clone(),
        cases: u64::try_from(held().count()).unwrap_or(u64::MAX),
        max_cases: u64::try_from(agent.max_cases).unwrap_or(u64::MAX),
        requests_per_minute: sum(|case| case.requests_per_minute),
        refused: sum(|case| case.refused),
        tokens: sum(|case| case.tokens),
        since_start,
    }
}
