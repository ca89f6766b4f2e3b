//! The open cases and their holders, as people watch them.

use serde::Serialize;
use writ_store::fleet::FleetHolder;
use writ_store::reads::FleetReads as _;
use writ_store::store::Store;
use writ_types::id::SessionId;
use writ_types::unit::Timestamp;

use super::error::CaseError;
use super::router::CaseRouter;
use super::state::StoredState;

/// The most cases of one view.
pub const MAX_SHOWN: usize = 500;

/// A line of the view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseStatus {
    /// The case.
    pub case: SessionId,
    /// Its token.
    pub case_token: String,
    /// The capability that it needs.
    pub capability: String,
    /// Its state, in one word.
    pub state: String,
    /// The agent or person that holds it.
    pub holder: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// The reason of its last change.
    pub reason: String,
    /// Requests to the proxy in the last minute; `None`: only the running router knows.
    pub requests_per_minute: Option<u64>,
    /// Refusals of this holder in this case.
    pub refused: Option<u64>,
    /// Tokens of models that this holder has used in this case.
    pub tokens: Option<u64>,
}

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
