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

        /// Returns the entries that match a query, newest first.
        fn ledger_search(query: &LedgerQuery) -> Vec<LedgerRow> =
            |db| row::ledger_search(&db.conn, &db.key, &query);

        /// Returns the proof that an entry is in the ledger, against the newest head. A missing entry is an error.
        fn ledger_proof(entry: EntrySeq) -> EntryProof = |db| proof::ledger_proof(&db.conn, &db.key, entry);

        /// Verifies a snapshot of the ledger; signatures by the store's own key are accepted as well. Problems *in* the
        /// ledger are in the report. Occupies a thread of the pool until it is done.
        fn verify_ledger(options: &VerifyOptions) -> VerifyReport =
            |db| verify::verify_ledger(&db.conn, db.key, &options);

        /// Returns the newest head: the number of entries that it covers, and its line of JSON as `export_heads` writes
        /// it. `None`: there is no entry yet.
        fn newest_head() -> Option<(u64, String)> = brief |db| export::newest_head(&db.conn);

        /// Returns the oldest entries from before a time that have a payload which may be erased, at most
        /// [`MAX_ERASED_AT_ONCE`](crate::ledger::erase::MAX_ERASED_AT_ONCE).
        fn old_payloads(before: Timestamp, now: Timestamp) -> Vec<EntrySeq> =
            |db| erase::old_payloads(&db.conn, before, now);

        /// Returns an entry, the entries that its label names as sources, theirs, and so on. Entries without a label or
        /// a payload are left out.
        fn entry_rests_on(entry: EntrySeq) -> RestsOn = |db| rests_on::entry_rests_on(&db.conn, &db.key, entry);

        /// Returns an ask, the entries that its label names as sources, theirs, and so on; `None`: there is no such ask.
        fn ask_rests_on(ask: &AskId) -> Option<RestsOn> = |db| rests_on::ask_rests_on(&db.conn, &db.key, &ask);

        /// Returns the intents without an outcome, oldest first.
        fn open_intents() -> Vec<OpenIntent> = |db| turns::open_intents(&db.conn, &db.key);

        /// Returns the newest intent of a session for this action that has an unknown outcome or still runs. `None` also
        /// for an action that can be repeated without harm.
        fn unknown_outcome(session: SessionId, action: &Action) -> Option<EntrySeq> =
            brief |db| lost::unknown_outcome(&db.conn, session, &action);

        /// Returns true if a session began this action after this ask, and the outcome is unknown. Compares places in the
        /// ledger, since a clock can be set back. An ask that is not found counts as older.
        fn begun_since(session: SessionId, action: &Action, ask: &AskId) -> bool =
            brief |db| lost::begun_since(&db.conn, session, &action, &ask);
    }
}

// Exports write to a stream of the caller, which cannot be sent to a thread of the pool.
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
