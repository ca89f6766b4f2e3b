//! Reads of keys, memories, undo records, usage and settings.

use std::future::Future;

use serde_json::Value;
use writ_types::id::{AttemptId, KeyId, MemoryId, SessionId};
use writ_types::unit::Timestamp;

use crate::approvals::{self, ApproverKey};
use crate::batch::{Op, pending_usage};
use crate::error::StoreError;
use crate::keys::{self, IssuedKey, OrderRow};
use crate::memory::{
    self, ChangeBatch, Memory, MemoryHit, MemoryScope, MemoryStats, MemoryStatus, OpenQuestion, QuestionKind,
    Secrets, StoredCode, StoredVector, VectorSpace, WordPattern,
};
use crate::readers::BlockingReads;
use crate::settings;
use crate::store::Store;
use crate::tools::{self, ToolRuns};
use crate::undo::{self, StoredUndo};
use crate::usage::{self, BudgetState, Reservations, UsageKind, UsageTotals};

reads! {
    /// Reads of keys and standing orders.
    KeyReads {
        /// Returns the approver keys, oldest first; revoked ones too.
        fn approver_keys() -> Vec<ApproverKey> = brief |db| approvals::approver_keys(&db.conn);

        /// Returns an issued key, unless it ended and was forgotten.
        fn issued_key(id: KeyId) -> Option<IssuedKey> = brief |db| keys::issued_key(&db.conn, id);

        /// Returns the issued keys that have not ended, newest first; revoked ones too.
        fn issued_keys(now: Timestamp, limit: usize) -> Vec<IssuedKey> =
            |db| keys::issued_keys(&db.conn, now, limit);

        /// Returns the revocation ids after this one of keys that have not ended, with the ends of the keys.
        fn revocations_after(now: Timestamp, after: &str, limit: usize) -> Vec<(String, Option<Timestamp>)> =
            |db| approvals::revocations_after(&db.conn, now, &after, limit);

        /// Returns a standing order, unless it ended and was forgotten.
        fn standing_order(id: KeyId) -> Option<OrderRow> = brief |db| keys::standing_order(&db.conn, id);

        /// Returns the standing orders, newest first; revoked and ended ones too.
        fn standing_orders(limit: usize) -> Vec<OrderRow> = |db| keys::standing_orders(&db.conn, limit);
    }
}

reads! {
    /// Reads of memories.
    MemoryReads {
        /// Searches the memories of all sessions and, if one is named, of that session; best first. A text without words
        /// finds nothing.
        fn search_memory(text: &str, session: Option<SessionId>, secrets: Secrets, limit: usize) -> Vec<MemoryHit> =
            |db| memory::search_memory(&db.conn, &text, session, secrets, limit);

        /// Returns a memory.
        fn memory(memory: MemoryId) -> Option<Memory> = brief |db| memory::read_memory(&db.conn, memory);

        /// Returns the memories that are in every context: facts about the owner, and preferences that the owner has confirmed;
        /// the newest of each kind, the facts first.
        fn pinned_memories(secrets: Secrets, limit: usize) -> Vec<Memory> =
            |db| memory::pinned_memories(&db.conn, secrets, limit);

        /// Returns rows of a scope that have words of a text, best first, with BM25. Common words are left out where rarer
        /// ones find enough.
        fn word_candidates(text: &str, scope: MemoryScope, limit: usize) -> Vec<(i64, f64)> =
            |db| memory::word_candidates(&db.conn, &text, scope, limit);

        /// Returns active memories of a session alone, or of none, that fit a pattern, newest first.
        fn memories_fitting(pattern: &WordPattern, session: Option<SessionId>, limit: usize) -> Vec<Memory> =
            |db| memory::memories_fitting(&db.conn, &pattern, session, limit);

        /// Returns the first of these rows that are in a scope, in their order.
        fn readable_rows(rows: &[i64], scope: MemoryScope, limit: usize) -> Vec<i64> =
            |db| memory::readable_rows(&db.conn, &rows, scope, limit);

        /// Returns the memories of these rows that are there, in the order of the rows.
        fn memories_at_rows(rows: &[i64]) -> Vec<Memory> = |db| memory::memories_at_rows(&db.conn, &rows);

        /// Returns the memories after a row, oldest first; archived and pending ones too.
        fn memories_after(row: i64, limit: usize) -> Vec<Memory> = |db| memory::memories_after(&db.conn, row, limit);

        /// Returns the memories of a status, newest first.
        fn memories_with_status(status: MemoryStatus, limit: usize) -> Vec<Memory> =
            |db| memory::memories_with_status(&db.conn, status, limit);

        /// Returns the rows of a scope, newest first.
        fn memory_rows_within(scope: MemoryScope, limit: usize) -> Vec<i64> =
            |db| memory::rows_within(&db.conn, scope, limit);

        /// Returns the rows of a scope that refer to a name, newest first.
        fn memory_rows_about(name: &str, scope: MemoryScope, limit: usize) -> Vec<i64> =
            |db| memory::rows_about(&db.conn, &name, scope, limit);

        /// Returns the memories that refer to a name, newest first.
        fn memories_about(entity: &str, limit: usize) -> Vec<Memory> =
            |db| memory::memories_about(&db.conn, &entity, limit);

        /// Returns the memories that name one as their cause, oldest first.
        fn effects_of(memory: MemoryId, limit: usize) -> Vec<Memory> =
            brief |db| memory::effects_of(&db.conn, memory, limit);

        /// Returns the models that there are vectors of.
        fn vector_spaces() -> Vec<VectorSpace> = brief |db| memory::spaces(&db.conn);

        /// Returns codes of vectors after a row.
        fn codes_after(space: i64, row: i64, limit: usize) -> Vec<StoredCode> =
            |db| memory::codes_after(&db.conn, space, row, limit);

        /// Returns the vectors of these rows that are there.
        fn vectors_of_rows(space: i64, rows: &[i64]) -> Vec<StoredVector> =
            |db| memory::vectors_of_rows(&db.conn, space, &rows);

        /// Returns active memories that have no vector of a model, in the order of rows, and the row up to which all were
        /// looked at.
        fn unembedded(space: i64, limit: usize) -> (Vec<Memory>, i64) = |db| memory::unembedded(&db.conn, space, limit);

        /// Returns the questions about memories that wait for the owner, oldest first.
        fn memory_questions(limit: usize) -> Vec<OpenQuestion> = |db| memory::open_questions(&db.conn, limit);

        /// Returns the open questions about one memory, oldest first.
        fn memory_questions_about(memory: MemoryId, limit: usize) -> Vec<OpenQuestion> =
            |db| memory::questions_about(&db.conn, memory, limit);

        /// Returns the rows that the owner was asked about with a kind of question, answered or not, ascending, and how many
        /// of these questions are open.
        fn memory_rows_asked(kind: QuestionKind) -> (Vec<i64>, usize) = |db| memory::rows_asked(&db.conn, kind);

        /// Returns the rows of which the owner has undone a change that a batch with such a beginning of its name had made,
        /// ascending.
        fn memory_rows_undone(beginning: &str) -> Vec<i64> = |db| memory::rows_undone(&db.conn, &beginning);

        /// Returns the changes that can be undone, the last first.
        fn memory_changes(limit: usize) -> Vec<ChangeBatch> = |db| memory::last_changes(&db.conn, limit);

        /// Returns how many memories, vectors and questions there are.
        fn memory_stats() -> MemoryStats = |db| memory::memory_stats(&db.conn);
    }
}

reads! {
    /// Reads of undo records.
    UndoReads {
        /// Returns the undo record of an attempt.
        fn undo(attempt: AttemptId) -> Option<StoredUndo> = brief |db| undo::read_undo(&db.conn, attempt);

        /// Returns the undo records of a session, newest first.
        fn undos(session: SessionId, limit: usize) -> Vec<StoredUndo> = |db| undo::read_undos(&db.conn, session, limit);

        /// Returns the undo records for which one tap is enough at `now`, newest first.
        fn undos_until(now: Timestamp, limit: usize) -> Vec<StoredUndo> = |db| undo::undos_until(&db.conn, now, limit);

        /// Returns how much was applied since a time and can be undone, and how much of that was undone.
        fn undo_counts(since: Timestamp) -> (u64, u64) = |db| undo::undo_counts(&db.conn, since);

        /// Returns the undo records of attempts before `before`, oldest first.
        fn old_undos(before: Timestamp, limit: usize) -> Vec<StoredUndo> = |db| undo::old_undos(&db.conn, before, limit);
    }
}

reads! {
    /// Reads of usage and counters.
    UsageReads {
        /// Returns the usage that the budgets of a session and of the UTC day of `at` are compared with, as it will be
        /// once `pending` is written as well.
        fn standing(session: SessionId, at: Timestamp, pending: &[Op] = pending_usage(pending)) -> BudgetState =
            brief |db| usage::read_standing(&db.conn, session, at, &pending);

        /// Returns totals of a kind with keys that are at least `from` and below `below`, the last key first; at most
        /// [`MAX_TOTALS`](crate::usage::MAX_TOTALS). Keys of roles and models begin with their UTC day.
        fn usage_totals(kind: UsageKind, from: &str, below: &str) -> Vec<(String, UsageTotals)> =
            |db| usage::read_all_totals(&db.conn, kind, (&from, &below));

        /// Returns the usage of a session since it was opened.
        fn session_usage(session: SessionId) -> UsageTotals = brief |db| usage::session_usage(&db.conn, session);

        /// Returns the usage of all sessions on the UTC day of `at`.
        fn day_usage(at: Timestamp) -> UsageTotals = brief |db| usage::day_usage(&db.conn, at);

        /// Returns the reservations of a session.
        fn session_reserved(session: SessionId) -> Reservations = brief |db| usage::session_reserved(&db.conn, session);

        /// Returns the reservations made on the UTC day of `at`.
        fn day_reserved(at: Timestamp) -> Reservations = brief |db| usage::day_reserved(&db.conn, at);

        /// Returns a counter; zero if nothing was added to it.
        fn counter(name: &str) -> u64 = brief |db| usage::read_counter(&db.conn, &name);

        /// Returns the counters with a name that begins with `prefix`, by name; at most
        /// [`MAX_COUNTERS`](crate::usage::MAX_COUNTERS).
        fn counters(prefix: &str) -> Vec<(String, u64)> = |db| usage::read_counters(&db.conn, &prefix);
    }
}

reads! {
    /// Reads of settings.
    SettingReads {
        /// Returns a setting.
        fn setting(key: &str) -> Option<Value> = brief |db| settings::read_setting(&db.conn, &key);

        /// Returns the epoch in force.
        fn epoch() -> u64 = brief |db| settings::epoch_of(&db.conn);
    }
}

reads! {
    /// Reads of the counters of tools.
    ToolReads {
        /// Returns the counters of tools, by name.
        fn tool_runs(limit: usize) -> Vec<ToolRuns> = |db| tools::read_tool_runs(&db.conn, limit);
    }
}
