//! A case in memory: its row, its machine, and the agent that works on it.

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use writ_policy::keys::KeyToken;
use writ_store::fleet::{FleetCase, FleetHolder, HolderKeys};
use writ_types::entry::HolderRecord;
use writ_types::id::KeyId;
use writ_types::unit::Timestamp;

use super::error::CaseError;
use super::machine::CaseMachine;
use super::ports::AgentProcess;
use super::state::StoredState;

/// The most lines that wait for an agent that does not read.
pub(crate) const MAX_WAITING_LINES: usize = 64;
/// The most lines that are not understood, or refused, before an agent loses its case.
pub(crate) const MAX_BAD_LINES: u32 = 8;

/// The process of a case's holder.
#[derive(Debug)]
pub(crate) struct LiveAgent {
    /// The key with which it began; renewed ones follow it.
    pub(crate) first_key: KeyId,
    /// The number of its base key.
    pub(crate) base_key: KeyId,
    /// Its base key, which says where it may escalate to: another version of its agent may be deployed by then.
    pub(crate) base: KeyToken,
    /// Lines for its standard input.
    pub(crate) lines: mpsc::Sender<String>,
    /// Its end, also that of the tasks around it.
    pub(crate) process: Box<dyn AgentProcess>,
    pub(crate) over: CancellationToken,
    /// When its launcher ends it, whatever it does.
    pub(crate) ends_at: Timestamp,
    pub(crate) bad_lines: u32,
}

impl Drop for LiveAgent {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

/// A case that is open.
#[derive(Debug)]
pub(crate) struct LiveCase {
    pub(crate) row: FleetCase,
    pub(crate) machine: CaseMachine,
    /// The holder as the ledger names it.
    pub(crate) holder: Option<HolderRecord>,
    /// The end of its task key.
    pub(crate) key_ends: Option<Timestamp>,
    /// The holder before.
    pub(crate) earlier: Option<HolderRecord>,
    /// The reason of the last change.
    pub(crate) reason: String,
    pub(crate) agent: Option<LiveAgent>,
    /// Since when an answer is awaited.
    pub(crate) owes_since: Option<Timestamp>,
    /// Since when it waits for a version of an agent that may have been deployed.
    pub(crate) waits_since: Option<Timestamp>,
    /// Changes with each message; ends with the case.
    pub(crate) said: watch::Sender<u64>,
}

impl LiveCase {
    /// Creates a case that was just opened.
    pub(crate) fn open_new(row: FleetCase) -> Self {
        Self {
            row,
            machine: CaseMachine::default(),
            holder: None,
            key_ends: None,
            earlier: None,
            reason: String::new(),
            agent: None,
            owes_since: None,
            waits_since: None,
            said: watch::Sender::new(0),
        }
    }

    /// Restores a case from its rows, without a process.
    pub(crate) fn restore_case(row: FleetCase, last: Option<FleetHolder>) -> Result<Self, CaseError> {
        let damaged = || CaseError::Damaged(row.id.to_string());
        let stored: StoredState = serde_json::from_str(&row.state).map_err(|_| damaged())?;
        let machine = stored.restore_machine().ok_or_else(damaged)?;
        // An older holder with an end holds nothing.
        let held = last.filter(|holder| holder.until.is_none());
        // The two tables are written in one commit, so they agree or were changed by another hand.
        if held.as_ref().map(|held| held.keys.as_ref().map(|keys| keys.key))
            != machine.holder().map(|_| machine.key())
        {
            return Err(damaged());
        }
        Ok(Self {
            key_ends: held.as_ref().and_then(|held| held.keys.as_ref()).map(|keys| keys.ends_at),
            holder: held.map(record_of),
            machine,
            earlier: stored.earlier,
            reason: stored.reason,
            row,
            agent: None,
            owes_since: None,
            waits_since: None,
            said: watch::Sender::new(0),
        })
    }
}

fn record_of(holder: FleetHolder) -> HolderRecord {
    // A person holds a case without a key.
    let HolderKeys { key, base, task, .. } = match holder.keys {
        Some(keys) => keys,
        None => return person_record(&holder.holder),
    };
    HolderRecord { name: holder.holder, key: Some(key), base: Some(base), task: Some(task) }
}

/// Returns the record of a person.
pub(crate) fn person_record(name: &str) -> HolderRecord {
    HolderRecord { name: name.to_owned(), key: None, base: None, task: None }
}
