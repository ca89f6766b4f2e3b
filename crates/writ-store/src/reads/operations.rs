//! Reads of the security proxy's state.

use std::future::Future;

use writ_policy::keys::limits::LimitUse;
use writ_types::unit::Timestamp;

use crate::error::StoreError;
use crate::operations::{self, CaseRow, OnceRow, SealedValue};
use crate::readers::BlockingReads;
use crate::store::Store;

reads! {
    /// Reads of the security proxy's state.
    OperationReads {
        /// Returns the amounts that the counters of these uses hold on the UTC day of `at`, in their order.
        fn used_amounts(uses: &[LimitUse], at: Timestamp) -> Vec<i64> =
            |db| operations::used_amounts(&db.conn, &uses, at);

        /// Returns a request that was begun under a name, unless it was forgotten.
        fn once(scope: &str, name: &str) -> Option<OnceRow> =
            |db| operations::read_once(&db.conn, &scope, &name);

        /// Returns an open case.
        fn proxy_case(token: &str) -> Option<CaseRow> = |db| operations::read_case(&db.conn, &token);

        /// Returns the values behind the tokens of a case, by token.
        fn case_values(case: &str) -> Vec<SealedValue> = |db| operations::case_values(&db.conn, &case);
    }
}
