//! Reads of asks, approvals and plans.

use std::future::Future;

use serde_json::Value;
use writ_types::digest::Digest;
use writ_types::id::{AskId, KeyId, SessionId};
use writ_types::unit::Timestamp;

use crate::approvals::{self, AskState, PlanRow, StoredApproval, StoredAsk};
use crate::error::StoreError;
use crate::readers::BlockingReads;
use crate::store::Store;

reads! {
    /// Reads of asks.
    AskReads {
        /// Returns an ask.
        fn ask(ask: &AskId) -> Option<StoredAsk> = brief |db| approvals::read_ask(&db.conn, &ask);

        /// Returns the asks in a state (`None`: in any), oldest first.
        fn asks(state: Option<AskState>, limit: usize) -> Vec<StoredAsk> = |db| approvals::read_asks(&db.conn, state, limit);

        /// Returns the latest asks, newest first.
        fn latest_asks(limit: usize) -> Vec<StoredAsk> = |db| approvals::latest_asks(&db.conn, limit);

        /// Returns the asks that ended by `now` and were neither performed nor denied, oldest first.
        fn overdue_asks(now: Timestamp, limit: usize) -> Vec<StoredAsk> =
            |db| approvals::overdue_asks(&db.conn, now, limit);

        /// Returns the newest ask in a state for a prepared hash.
        fn ask_for(prepared: Digest, state: AskState) -> Option<StoredAsk> =
            brief |db| approvals::ask_for(&db.conn, prepared, state);

        /// Returns the asks of a session that are open, or approved and not performed, oldest first.
        fn waiting_asks(session: SessionId, limit: usize) -> Vec<StoredAsk> =
            |db| approvals::waiting_asks(&db.conn, session, limit);

        /// Returns an ask with its approval.
        fn ask_with_approval(ask: &AskId) -> Option<(StoredAsk, Option<StoredApproval>)> =
            |db| approvals::ask_with_approval(&db.conn, &ask);

        /// Returns the asks in a state (`None`: in any) with their approvals, oldest first.
        fn asks_with_approvals(state: Option<AskState>, limit: usize) -> Vec<(StoredAsk, Option<StoredApproval>)> =
            |db| approvals::asks_with_approvals(&db.conn, state, limit);

        /// Returns the asks that ended by `now` and were neither performed nor denied, with their approvals, oldest first.
        fn overdue_asks_with_approvals(now: Timestamp, limit: usize) -> Vec<(StoredAsk, Option<StoredApproval>)> =
            |db| approvals::overdue_asks_with_approvals(&db.conn, now, limit);

        /// Returns the asks of a session that are open, or approved and not performed, with their approvals, oldest first.
        fn waiting_asks_with_approvals(session: SessionId, limit: usize) -> Vec<(StoredAsk, Option<StoredApproval>)> =
            |db| approvals::waiting_asks_with_approvals(&db.conn, session, limit);

        /// Returns the sessions in which a message waits or is leased, or an ask is open, or approved and not performed.
        fn waiting_sessions() -> Vec<SessionId> = |db| approvals::waiting_sessions(&db.conn);

        /// Returns the tools of which a person has approved a call in a session, sorted; at most 256.
        fn approved_tools(session: SessionId) -> Vec<String> = |db| approvals::approved_tools(&db.conn, session);

        /// Returns the latest 256 answers in a session (`None`: in all) that vouch for the values of their
        /// actions and are still in force: the asks, and the signed approvals.
        fn endorsements(session: Option<SessionId>) -> Vec<(StoredAsk, Value)> =
            |db| approvals::read_endorsements(&db.conn, session);

        /// Returns the latest answers that make hosts trusted ones and are still in force, at most 4,096: the asks, and
        /// the signed approvals.
        fn trusted_host_answers() -> Vec<(StoredAsk, Value)> = |db| approvals::trusted_hosts(&db.conn);
    }
}

reads! {
    /// Reads of approvals and nonces. Reading an approval does not use it.
    ApprovalReads {
        /// Returns the approval of an ask.
        fn approval(ask: &AskId) -> Option<StoredApproval> = brief |db| approvals::read_approval(&db.conn, &ask);

        /// Returns the approvals for tasks and the standing ones that can be used at `now`, with their asks, newest
        /// first; with this pattern, or with any.
        fn task_approvals(pattern: Option<Digest>, now: Timestamp, limit: usize) -> Vec<(StoredAsk, StoredApproval)> =
            |db| approvals::task_approvals(&db.conn, pattern, now, limit);

        /// Returns the approvals that people have signed for an ask that several must approve, oldest first.
        fn approval_parts(ask: &AskId) -> Vec<Value> = |db| approvals::approval_parts(&db.conn, &ask);

        /// Returns the earliest time that it can be now: the latest time of the last 4,096 entries of the ledger, less a
        /// minute. A clock that was set back does not revive what ended before it.
        fn not_before() -> Timestamp = brief |db| approvals::not_before(&db.conn);

        /// Returns true if a nonce was recorded.
        fn is_used(namespace: &str, nonce: &str) -> bool = brief |db| approvals::is_used(&db.conn, &namespace, &nonce);
    }
}

reads! {
    /// Reads of approved plans.
    PlanReads {
        /// Returns the plans in force at `now`, the latest first, of one session or of all; also those of which no step
        /// is left.
        fn plans(session: Option<SessionId>, now: Timestamp, limit: usize) -> Vec<PlanRow> =
            |db| approvals::read_plans(&db.conn, session, now, limit);

        /// Returns the plans in force at `now` of which a step is left, and money where that is limited.
        fn plans_left(session: Option<SessionId>, now: Timestamp, limit: usize) -> Vec<PlanRow> =
            |db| approvals::plans_left(&db.conn, session, now, limit);

        /// Returns the plans in force at `now` of which a step is left, each with its ask and its approval.
        fn plans_left_with_approvals(session: Option<SessionId>, now: Timestamp, limit: usize)
            -> Vec<(PlanRow, StoredAsk, StoredApproval)> =
            |db| approvals::plans_left_with_approvals(&db.conn, session, now, limit);

        /// Returns the plan in force at `now` that was approved with this ask.
        fn plan_of(ask: &AskId, now: Timestamp) -> Option<PlanRow> = brief |db| approvals::plan_of(&db.conn, &ask, now);

        /// Returns the plan with this task key, also after its end, unless the key was revoked.
        fn plan_under(key: KeyId) -> Option<PlanRow> = brief |db| approvals::plan_under(&db.conn, key);
    }
}
