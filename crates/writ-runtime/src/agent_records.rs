//! What the ledger says of agents that are folders.

use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::LedgerReads as _;
use writ_store::store::Store;
use writ_types::digest::Digest;
use writ_types::entry::{AgentChange, AgentRecord, Fact};
use writ_types::id::{EntrySeq, KeyId};
use writ_types::unit::Timestamp;

use crate::error::EngineError;

/// The most entries about agents that are read: more are refused, so that no approval is overlooked.
pub const MAX_AGENT_ENTRIES: usize = 10_000;
/// The entries that are read at once.
const PAGE: usize = 500;

/// An entry about an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentEntry {
    /// Its place in the ledger.
    pub seq: EntrySeq,
    /// When it was written.
    pub at: Timestamp,
    /// What it says.
    pub record: AgentRecord,
}

/// The keys that count: those of another root key or an earlier epoch are dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentKeyring {
    /// The hash of the public root key.
    pub root: Digest,
    /// The epoch.
    pub epoch: u64,
}

/// The entries about agents, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentHistory(pub Vec<AgentEntry>);

impl AgentHistory {
    /// Reads what the ledger says of one agent, or of all. An entry that does not fit its signature is left out.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be read, or has too many entries about it.
    pub async fn read_ledger(store: &Store, agent: Option<&str>) -> Result<Self, EngineError> {
        let mut entries = Vec::new();
        let mut query = LedgerQuery {
            event: Some("agent_moved".to_owned()),
            text: agent.map(str::to_owned),
            limit: PAGE,
            ..LedgerQuery::default()
        };
        loop {
            let page = store.ledger_search(&query).await?;
            let Some(last) = page.last() else { break };
            // Page by page, newest first.
            query.before = Some(last.seq);
            for row in page {
                let Some(entry) = row.entry().filter(|_| row.intact) else { continue };
                if let Fact::AgentMoved { record } = entry.fact
                    && agent.is_none_or(|agent| agent == record.agent)
                {
                    entries.push(AgentEntry { seq: row.seq, at: entry.at, record: *record });
                }
            }
            if entries.len() > MAX_AGENT_ENTRIES {
                return Err(EngineError::Params {
                    method: "agents".to_owned(),
                    why: format!("the ledger has more than {MAX_AGENT_ENTRIES} entries about agents"),
                });
            }
        }
        entries.reverse();
        Ok(Self(entries))
    }

    /// Returns the approval of a version, under keys that count.
    pub fn approval_of(&self, version: &str, ring: AgentKeyring) -> Option<&AgentEntry> {
        self.approvals(ring).find(|entry| entry.record.version == version)
    }

    /// Returns true if a key was approved, with exactly this content.
    pub fn has_approved(&self, key: KeyId, hash: Digest, ring: AgentKeyring) -> bool {
        self.approvals(ring).any(|entry| entry.record.key == key && entry.record.hash == hash)
    }

    /// The approvals under keys that count, the newest first.
    pub fn approvals(&self, ring: AgentKeyring) -> impl Iterator<Item = &AgentEntry> {
        let counts = move |entry: &&AgentEntry| {
            let record = &entry.record;
            record.change == AgentChange::Blessed && record.root == ring.root && record.epoch == ring.epoch
        };
        self.0.iter().rev().filter(counts)
    }
}
