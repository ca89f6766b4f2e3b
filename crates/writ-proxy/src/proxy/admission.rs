//! A request that was let in before its body is read, and its place among those of its agent.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::json;
use writ_policy::keys::Authority;
use writ_types::entry::Requester;

use super::{ProxyAnswer, ProxyState};
use crate::refusal::status;

/// The most requests of one agent in one case at once.
pub const MAX_AT_ONCE: usize = 64;
/// The requests of all agents at once from which on each has but [`FEW_AT_ONCE`] in a case: a third of what one user's connections
/// can carry, so that those of many slow agents leave room for one that comes late.
pub const MANY_AT_ONCE: usize = 128;
/// The requests that an agent has at once in a case where there are many of all.
pub const FEW_AT_ONCE: usize = 4;

/// An agent and the token of its case.
pub(super) type BusyAgent = (String, String);

/// The place of a request among those of its agent in its case.
#[derive(Debug)]
pub(super) struct BusyPlace {
    state: Arc<ProxyState>,
    agent: BusyAgent,
}

impl BusyPlace {
    /// Takes a place, unless the agent has none left in its case.
    pub(super) fn take(state: &Arc<ProxyState>, authority: &Authority) -> Option<Self> {
        let case = authority.task().case.as_ref().map(|case| case.case.clone());
        let agent = (authority.agent().to_owned(), case.unwrap_or_default());
        let mut busy = state.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = busy.values().sum();
        let own = busy.get(&agent).copied().unwrap_or_default();
        let most = if all < MANY_AT_ONCE { MAX_AT_ONCE } else { FEW_AT_ONCE };
        if own >= most {
            return None;
        }
        busy.insert(agent.clone(), own.saturating_add(1));
        Some(Self { state: Arc::clone(state), agent })
    }
}

/// A request with keys that were checked, and its place among those of its agent.
#[derive(Debug)]
pub struct Admission {
    pub(super) authority: Arc<Authority>,
    pub(super) place: BusyPlace,
    /// Who asks, for the ledger.
    pub(super) requester: Requester,
    /// When its keys were checked.
    pub(super) since: Duration,
}

/// Answers a request of which the admission has broken off.
pub(super) fn answer_cut_off() -> ProxyAnswer {
    let error = "the request could not be judged; nothing was performed";
    ProxyAnswer { status: status::UNAVAILABLE, body: json!({ "error": error }) }
}

impl Drop for BusyPlace {
    fn drop(&mut self) {
        let mut busy = self.state.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = busy.get_mut(&self.agent) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                busy.remove(&self.agent);
            }
        }
    }
}
