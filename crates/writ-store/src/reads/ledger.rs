//! Reads of the ledger.

use std::future::Future;

use writ_types::action::Action;
use writ_types::api::ledger::EntryProof;
use writ_types::id::{AskId, EntrySeq, SessionId};
use writ_types::unit::Timestamp;

use crate::error::StoreError;
use crate::ledger::export::{self, ExportError};
use crate::ledger::proof;
use crate::ledger::rests_on::{self, RestsOn};
use crate::ledger::row::{self, LedgerQuery, LedgerRow};
use crate::ledger::verify::{self, VerifyOptions, VerifyReport};
use crate::ledger::{erase, lost};
use crate::readers::BlockingReads;
use crate::store::Store;
use crate::turns::{self, OpenIntent};

reads! {
    /// Reads of the ledger.
    LedgerReads {
        /// Returns the number of entries.
        fn ledger_size() -> u64 = brief |db| row::count_rows(&db.conn);

        /// Returns one entry.
        fn ledger_row(entry: EntrySeq) -> Option<LedgerRow> = brief |db| row::ledger_row(&db.conn, &db.key, entry);

        /// Returns the newest entries, oldest first.
        fn ledger_tail(rows: usize) -> Vec<LedgerRow> = |db| row::ledger_tail(&db.conn, &db.key, rows);

        /// Returns the entries that fit, newest first.
        fn ledger_search(query: &LedgerQuery) -> Vec<LedgerRow> =
            |db| row::ledger_search(&db.conn, &db.key, &query);

        /// Returns the proof that an entry is in the ledger, against the newest head. A missing entry is an error.
        fn ledger_proof(entry: EntrySeq) -> EntryProof = |db| proof::ledger_proof(&db.conn, &db.key, entry);

        /// Verifies the ledger on a snapshot; the store's own key is among those accepted. Problems *in* the ledger are in
        /// the report. Holds a thread of the pool for as long as it takes.
        fn verify_ledger(options: &VerifyOptions) -> VerifyReport =
            |db| verify::verify_ledger(&db.conn, db.key, &options);

        /// Returns the newest head: the number of entries that it covers, and its line of a file of held heads. `None`:
        /// there is no entry yet.
        fn newest_head() -> Option<(u64, String)> = brief |db| export::newest_head(&db.conn);

        /// Returns the oldest entries from before a time with a payload that may be erased, at most
        /// [`MAX_ERASED_AT_ONCE`](crate::ledger::erase::MAX_ERASED_AT_ONCE).
        fn old_payloads(before: Timestamp, now: Timestamp) -> Vec<EntrySeq> =
            |db| erase::old_payloads(&db.conn, before, now);

        /// Returns the sources of an entry, that entry first. An entry without a label or a payload is no step.
        fn entry_rests_on(entry: EntrySeq) -> RestsOn = |db| rests_on::entry_rests_on(&db.conn, &db.key, entry);

        /// Returns the sources of an ask, the ask itself first; `None`: there is no such ask.
        fn ask_rests_on(ask: &AskId) -> Option<RestsOn> = |db| rests_on::ask_rests_on(&db.conn, &db.key, &ask);

        /// Returns the intents without an outcome, oldest first.
        fn open_intents() -> Vec<OpenIntent> = |db| turns::open_intents(&db.conn, &db.key);

        /// Returns the intent with which a session last began this action, if its outcome is unknown or it still runs;
        /// `None` also for an action that does no harm when it is done twice.
        fn unknown_outcome(session: SessionId, action: &Action) -> Option<EntrySeq> =
            brief |db| lost::unknown_outcome(&db.conn, session, &action);

        /// Returns true if a session began this action after it had asked about it, and the outcome is unknown. The order
        /// of the ledger decides, since a clock may have been set back. True also where the ask is not found.
        fn begun_since(session: SessionId, action: &Action, ask: &AskId) -> bool =
            brief |db| lost::begun_since(&db.conn, session, &action, &ask);
    }
}

// Exports write to a stream of the caller, which no other thread can hold.
impl BlockingReads {
    /// Writes the stored heads (multiples of 256 and the newest), one JSON object a line; returns their number.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or the output cannot be written.
    pub fn export_heads(&self, out: &mut dyn std::io::Write) -> Result<u64, ExportError> {
        self.run(|db| export::export_heads(&db.conn, out))
    }

    /// Writes every entry, one JSON object a line, oldest first; returns their number. Does not verify them.
    ///
    /// # Errors
    ///
    /// If the database cannot be read or the output cannot be written.
    pub fn export_entries(&self, out: &mut dyn std::io::Write) -> Result<u64, ExportError> {
        self.run(|db| export::export_entries(&db.conn, out))
    }
}
