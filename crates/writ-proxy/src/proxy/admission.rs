//! A request that was let in before its body is read, and its place among those of its agent.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::json;
use writ_policy::keys::Authority;
use writ_types::entry::Requester;

use super::{ProxyAnswer, ProxyState};
use crate::refusal::status;

/// The place of a request among those of its agent.
#[derive(Debug)]
pub(super) struct BusyPlace {
    pub(super) state: Arc<ProxyState>,
    pub(super) agent: String,
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
