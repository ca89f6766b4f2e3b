//! Reads of the autopilot's units.

use std::future::Future;

use writ_types::digest::Digest;
use writ_types::id::PilotId;
use writ_types::unit::Timestamp;

use crate::error::StoreError;
use crate::readers::BlockingReads;
use crate::store::Store;
use crate::units::{
    self, ChoiceRow, CircuitRow, GateRow, HistoryFilter, HookRunRow, IndexedFile, PilotBlocker, PilotSession,
    PilotSums, ResultRow, RetryRow, RunRow, SpanFilter, SpanRow, TransitionRow, UnitCost, UnitHistoryRow,
    UnitKey, UnitLine, UnitRow,
};

reads! {
    /// Reads of units.
    UnitReads {
        /// Returns the session of a project that was changed last.
        fn pilot_session(project: &str) -> Option<PilotSession> = |db| units::pilot_session(&db.conn, &project);

        /// Returns what holds a session up, oldest first.
        fn open_blockers(session: PilotId) -> Vec<PilotBlocker> = |db| units::open_blockers(&db.conn, session);

        /// Returns the sessions with a status, oldest first.
        fn pilot_sessions(status: &str) -> Vec<PilotSession> = |db| units::pilot_sessions(&db.conn, &status);

        /// Returns the units of a project that belong to no other and are not archived, oldest first: milestones, and tasks that were
        /// asked for directly.
        fn top_units(project: &str) -> Vec<UnitRow> = |db| units::top_units(&db.conn, &project);

        /// Returns the units of a project that are not archived, oldest first, with all that is known of them.
        fn whole_units(project: &str, limit: usize) -> Vec<UnitRow> = |db| units::whole_units(&db.conn, &project, limit);

        /// Returns a unit.
        fn unit(key: UnitKey) -> Option<UnitRow> = brief |db| units::unit(&db.conn, &key);

        /// Returns the units of a project that are not archived, oldest first.
        fn unit_lines(project: &str, limit: usize) -> Vec<UnitLine> = |db| units::unit_lines(&db.conn, &project, limit);

        /// Returns the ids of all units of a project, also of those that are archived: an id names one unit for ever.
        fn unit_ids(project: &str) -> Vec<String> = |db| units::unit_ids(&db.conn, &project);

        /// Returns the units of a project that can be dispatched now: the most urgent first, then the oldest, at most
        /// [`units::MAX_READY`].
        fn ready_units(project: &str, now: Timestamp) -> Vec<UnitLine> = |db| units::ready(&db.conn, &project, now);

        /// Returns the ids of the units that one waits for and that are not over.
        fn unit_waits_for(key: UnitKey) -> Vec<String> = |db| units::waits_for(&db.conn, &key);

        /// Returns the moves of a unit from phase to phase, in their order.
        fn unit_transitions(key: UnitKey) -> Vec<TransitionRow> = |db| units::transitions(&db.conn, &key);

        /// Returns the runs of a unit, in their order.
        fn unit_runs(key: UnitKey) -> Vec<RunRow> = |db| units::runs(&db.conn, &key);

        /// Returns the costs of the runs of a project that have ended, added up for each unit, and those that ended at a time or
        /// after it.
        fn unit_costs(project: &str, since: Timestamp) -> Vec<UnitCost> = |db| units::costs(&db.conn, &project, since);

        /// Returns the results of a unit's gates, in their order.
        fn unit_gates(key: UnitKey) -> Vec<GateRow> = |db| units::gates(&db.conn, &key);

        /// Returns the counters of a unit.
        fn unit_counters(key: UnitKey) -> Vec<(String, u64)> = |db| units::counters(&db.conn, &key);

        /// Returns the choices of models before the attempts at a unit, in their order.
        fn unit_choices(key: UnitKey) -> Vec<ChoiceRow> = |db| units::choices(&db.conn, &key);

        /// Returns the run of a session that has succeeded or failed last, with the choice of its model; of one unit, unless that is
        /// empty.
        fn newest_choice(project: &str, session: PilotId, unit: &str) -> Option<(RunRow, ChoiceRow)>
            = |db| units::newest_choice(&db.conn, (&project, session), &unit);

        /// Returns the newest ratings of a class of units, oldest first, at most [`units::MAX_RESULTS`].
        fn model_results(project: &str, fingerprint: &str) -> Vec<ResultRow>
            = |db| units::results(&db.conn, &project, &fingerprint);

        /// Returns the circuits of the models of a project, by their names.
        fn circuits(project: &str) -> Vec<CircuitRow> = |db| units::circuits(&db.conn, &project);

        /// Returns the newest runs of hooks of a unit, oldest first, at most [`units::MAX_HOOK_RUNS`].
        fn unit_hook_runs(key: UnitKey) -> Vec<HookRunRow> = |db| units::hook_runs(&db.conn, &key);

        /// Returns the sessions that are not over, oldest first, at most [`units::MAX_SHOWN_SESSIONS`].
        fn active_pilot_sessions() -> Vec<PilotSession> = |db| units::active_sessions(&db.conn);

        /// Returns a session by its id.
        fn pilot_session_of(id: PilotId) -> Option<PilotSession> = brief |db| units::session(&db.conn, id);

        /// Returns the units of a project that workers have, the oldest first.
        fn claimed_units(project: &str) -> Vec<UnitLine> = |db| units::claimed(&db.conn, &project);

        /// Returns the units of a project that wait for another try, the next one first, at most [`units::MAX_READY`].
        fn unit_retries(project: &str, now: Timestamp) -> Vec<RetryRow> = |db| units::retries(&db.conn, &project, now);

        /// Returns the sums of a project over its runs that have ended.
        fn pilot_sums(project: &str) -> PilotSums = |db| units::sums(&db.conn, &project);

        /// Returns the units of a project that are over and were worked on, the newest first.
        fn unit_history(project: &str, filter: HistoryFilter) -> Vec<UnitHistoryRow>
            = |db| units::history(&db.conn, &project, &filter);

        /// Returns the newest spans of a project that fit, in the order of their begins.
        fn trace_spans(project: &str, filter: SpanFilter, limit: usize) -> Vec<SpanRow>
            = |db| units::spans(&db.conn, &project, &filter, limit);

        /// Returns those of the ids that spans of a trace have. More ids than [`units::MAX_ASKED_SPANS`] are an error.
        fn written_spans(trace: &str, ids: &[String]) -> Vec<String> = |db| units::written_spans(&db.conn, &trace, &ids);

        /// Returns those of the ids that are runs of a project's units, each with its unit, and those that are sessions of the project.
        /// More ids than [`units::MAX_ASKED_SPANS`] are an error.
        fn span_owners(project: &str, ids: &[String]) -> Vec<(String, Option<String>)>
            = |db| units::span_owners(&db.conn, &project, &ids);

        /// Returns the trace files of a project, as far as they are indexed.
        fn indexed_files(project: &str) -> Vec<IndexedFile> = |db| units::indexed_files(&db.conn, &project);

        /// Returns the units with runs that have ended and have no span, the oldest first.
        fn untraced_units(project: &str, limit: usize) -> Vec<String> = |db| units::untraced_units(&db.conn, &project, limit);

        /// Returns the text of a workflow that was pinned.
        fn workflow_pin(hash: Digest) -> Option<String> = brief |db| units::pin(&db.conn, &hash.to_string());
    }
}
