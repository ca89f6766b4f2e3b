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

        /// Returns the holders of a case, in their order.
        fn fleet_holders(id: SessionId) -> Vec<FleetHolder> = |db| fleet::read_holders(&db.conn, id);

        /// Returns the messages of a case after this number.
        fn fleet_messages(id: SessionId, after: u64, limit: usize) -> Vec<CaseMessage> =
            |db| fleet::read_messages(&db.conn, id, after, limit);
    }
}
