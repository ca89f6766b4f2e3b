//! The two ledgers, as the demo reads them: of the engine and of the proxy.

use std::path::Path;

use writ_store::ledger::row::LedgerQuery;
use writ_store::store::Store;
use writ_types::action::Action;
use writ_types::entry::{CaseRecord, Fact};
use writ_types::id::{EntrySeq, SessionId};
use writ_types::unit::Timestamp;

use crate::context::Context;
use crate::failure::Failure;
use crate::ledger::open_to_read;

use super::place::FleetPlace;

/// The most entries that are read at once; the demo makes a few hundred.
const MOST_ENTRIES: usize = 500;

/// A fact with its place and its moment.
type DatedFact = (EntrySeq, Timestamp, Fact);

/// A ledger that is read while its process writes it.
pub(super) struct Ledger {
    store: Store,
}

/// A request at the proxy that was refused.
#[derive(Clone, Debug)]
pub(super) struct RefusedRequest {
    pub(super) seq: EntrySeq,
    pub(super) agent: String,
    pub(super) operation: String,
    /// The reason, for people.
    pub(super) text: String,
    /// The rule, key or bound that decided.
    pub(super) rule: String,
}

/// A change of a case's holder.
#[derive(Clone, Debug)]
pub(super) struct CaseMoveEntry {
    pub(super) seq: EntrySeq,
    pub(super) at: Timestamp,
    pub(super) record: CaseRecord,
}

impl Ledger {
    pub(super) fn of_engine(context: &Context) -> Result<Self, Failure> {
        Ok(Self { store: open_to_read(context, &context.load_config(None)?)? })
    }

    /// Opens that of the proxy; `key` is its public key.
    pub(super) fn of_proxy(place: &FleetPlace, key: [u8; 32]) -> Result<Self, Failure> {
        Ok(Self { store: Store::open_read_only(&place.proxy("proxy.db"), key)? })
    }

    /// The facts of one kind, oldest first.
    fn facts(&self, event: &str, session: Option<SessionId>) -> Result<Vec<DatedFact>, Failure> {
        let event = Some(event.to_owned());
        let query = LedgerQuery { event, session, limit: MOST_ENTRIES, ..LedgerQuery::default() };
        // Newest first, as it is searched.
        let rows = self.store.blocking().ledger_search(&query)?;
        let facts = rows.iter().rev().filter_map(|row| {
            let entry = row.entry()?;
            Some((row.seq, entry.at, entry.fact))
        });
        Ok(facts.collect())
    }

    pub(super) fn refused_requests(&self) -> Result<Vec<RefusedRequest>, Failure> {
        let refused = self.facts("denied", None)?.into_iter().filter_map(|(seq, _, fact)| {
            let Fact::Denied { requester: Some(requester), text, rule, .. } = fact else { return None };
            let (agent, operation) = (requester.agent, requester.operation);
            Some(RefusedRequest { seq, agent, operation, text, rule })
        });
        Ok(refused.collect())
    }

    /// The operations that an agent was granted, with the moment of each.
    pub(super) fn granted_operations(&self, agent: &str) -> Result<Vec<(Timestamp, String)>, Failure> {
        // An intent stands in the ledger before anything is done, so one that failed later is here, too.
        let granted = self.facts("intent", None)?.into_iter().filter_map(|(_, at, fact)| {
            let Fact::Intent { action: Action::Operate(operate), requester: Some(requester), .. } = fact
            else {
                return None;
            };
            (requester.agent == agent).then_some((at, operate.operation))
        });
        Ok(granted.collect())
    }

    /// The changes of a case, oldest first.
    pub(super) fn case_moves(&self, case: SessionId) -> Result<Vec<CaseMoveEntry>, Failure> {
        let moves = self.facts("case_moved", Some(case))?.into_iter().filter_map(|(seq, at, fact)| {
            let Fact::CaseMoved { record } = fact else { return None };
            Some(CaseMoveEntry { seq, at, record: *record })
        });
        Ok(moves.collect())
    }

    pub(super) const fn store(&self) -> &Store {
        &self.store
    }

    /// Writes all of it into a file, for a verifier.
    pub(super) fn export_to(&self, path: &Path) -> Result<u64, Failure> {
        let failed = |error: std::io::Error| Failure::internal_error("exporting a ledger", error);
        let mut file = std::fs::File::create(path).map_err(failed)?;
        self.store
            .blocking()
            .export_entries(&mut file)
            .map_err(|error| Failure::internal_error("exporting a ledger", error))
    }
}
