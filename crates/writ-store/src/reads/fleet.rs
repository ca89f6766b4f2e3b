//! Reads of the fleet's cases.

use std::future::Future;

use writ_types::id::SessionId;

use crate::error::StoreError;
use crate::fleet::{self, CaseMessage, FleetCase, FleetHolder};
use crate::readers::BlockingReads;
use crate::store::Store;

reads! {
    /// Reads of the fleet's cases.
    FleetReads {
        /// Returns a case, also one that has ended.
        fn fleet_case(id: SessionId) -> Option<FleetCase> = |db| fleet::read_case(&db.conn, id);

        /// Returns the open cases after this one, by id.
        fn open_fleet_cases(after: Option<SessionId>, limit: usize) -> Vec<FleetCase> =
            |db| fleet::open_cases(&db.conn, after, limit);

        /// Returns the open case with this token.
        fn open_case_of(case_token: &str) -> Option<FleetCase> =
            |db| fleet::open_case_of(&db.conn, &case_token);

        /// Returns the cases that have ended, but not at the security proxy, oldest first.
        fn ended_at_proxy(limit: usize) -> Vec<FleetCase> = |db| fleet::ended_at_proxy(&db.conn, limit);

        /// Returns the holders of a case, in their order.
        fn fleet_holders(id: SessionId) -> Vec<FleetHolder> = |db| fleet::read_holders(&db.conn, id);

        /// Returns the messages of a case after this number.
        fn fleet_messages(id: SessionId, after: u64, limit: usize) -> Vec<CaseMessage> =
            |db| fleet::read_messages(&db.conn, id, after, limit);

        /// Returns the newest messages of a case before this number, newest first.
        fn newest_fleet_messages(id: SessionId, before: Option<u64>, limit: usize) -> Vec<CaseMessage> =
            |db| fleet::newest_messages(&db.conn, id, before, limit);
    }
}
