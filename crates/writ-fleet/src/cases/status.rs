//! The open cases and their holders, as people watch them.

use writ_store::fleet::FleetHolder;
use writ_store::reads::FleetReads as _;
use writ_store::store::Store;
use writ_types::api::fleet::{AgentStatus, CaseStatus, FleetStatus, SeenAnomaly};

use super::config::FleetAgent;
use super::error::CaseError;
use super::machine::HELD;
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
        let stored: Option<StoredState> = serde_json::from_str(&row.state).ok();
        let machine = stored.as_ref().and_then(StoredState::restore_machine);
        lines.push(CaseStatus {
            case: row.id,
            case_token: row.case_token,
            capability: row.capability,
            state: machine.map_or("damaged", |machine| machine.state().as_str()).to_owned(),
            since: holder.as_ref().map(|holder| holder.since),
            holder: holder.map(|holder| holder.holder),
            reason: stored.map(|stored| stored.reason).unwrap_or_default(),
            requests_per_minute: None,
            refused: None,
            tokens: None,
        });
    }
    Ok(lines)
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
    let agents = router.agents().all().iter().map(|agent| describe_agent(agent, &cases)).collect();
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
    Ok(FleetStatus { agents, anomalies, cases })
}

fn describe_agent(agent: &FleetAgent, cases: &[CaseStatus]) -> AgentStatus {
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
    }
}
