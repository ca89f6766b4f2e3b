//! The reads of the store: one trait per noun, each method one question.
//!
//! [`Store`] answers them with a pool of threads over SQLite; another database implements the same traits.
//! The methods are async functions in traits, with futures that are `Send`, and not boxed: a read costs no
//! allocation for its future, and the engine knows its store when it is compiled. Code that is generic takes
//! `impl Reads`.
//!
//! A read sees every commit that was acknowledged before it. Dropping its future leaves out a read that has
//! not begun. A method that answers several questions at once does so on one snapshot and with one hand-over
//! to a thread.
//!
//! [`BlockingReads`] has the same methods for code that may block its thread.

use std::collections::BTreeSet;
use std::future::Future;

use crate::approvals;
use crate::error::StoreError;
use crate::store::Store;

pub use crate::readers::BlockingReads;
pub use consent::{ApprovalReads, AskReads, PlanReads};
pub use fleet::FleetReads;
pub use items::WorkReads;
pub use ledger::LedgerReads;
pub use operations::OperationReads;
pub use people::{KeyReads, MemoryReads, SettingReads, ToolReads, UndoReads, UsageReads};
pub use units::UnitReads;
pub use work::{JobReads, OutboxReads, QueueReads, ResultReads, SessionReads, TurnReads};

/// Declares a trait of reads, and how [`Store`] and [`BlockingReads`] answer each.
///
/// An argument is made owned for its way to the thread: cloned, or by the expression behind `=`. A read marked `brief`
/// finds a few rows by an index: it is done on the caller's thread where that need not wait for a connection.
macro_rules! reads {
    (@own $arg:ident) => { $arg.to_owned() };
    (@own $arg:ident $own:expr) => { $own };
    (@run $store:ident, , $read:expr) => { $store.run($read).await };
    (@run $store:ident, brief, $read:expr) => { $store.run_brief($read).await };
    ($(#[$about:meta])* $name:ident {
        $(
            $(#[$doc:meta])*
            fn $read:ident($($arg:ident: $kind:ty $(= $own:expr)?),* $(,)?) -> $found:ty = $($mode:ident)? |$db:ident| $answer:expr;
        )*
    }) => {
        $(#[$about])*
        pub trait $name: Send + Sync {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// If the database cannot be read.
                fn $read(&self, $($arg: $kind),*) -> impl Future<Output = Result<$found, StoreError>> + Send;
            )*
        }

        impl $name for Store {
            $(
                async fn $read(&self, $($arg: $kind),*) -> Result<$found, StoreError> {
                    $(let $arg = reads!(@own $arg $($own)?);)*
                    let store = self;
                    reads!(@run store, $($mode)?, move |$db: &$crate::readers::Reader| $answer)
                }
            )*
        }

        impl BlockingReads {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// If the database cannot be read.
                pub fn $read(&self, $($arg: $kind),*) -> Result<$found, StoreError> {
                    $(let $arg = reads!(@own $arg $($own)?);)*
                    self.run(move |$db: &$crate::readers::Reader| $answer)
                }
            )*
        }
    };
}

mod consent;
mod fleet;
mod items;
mod ledger;
mod operations;
mod people;
mod units;
mod work;

/// All reads of a store.
pub trait Reads:
    AskReads
    + ApprovalReads
    + PlanReads
    + KeyReads
    + RevocationReads
    + LedgerReads
    + SessionReads
    + TurnReads
    + QueueReads
    + JobReads
    + OutboxReads
    + ResultReads
    + UndoReads
    + UsageReads
    + MemoryReads
    + SettingReads
    + ToolReads
    + OperationReads
    + FleetReads
    + WorkReads
    + UnitReads
{
}

impl Reads for Store {}

/// Reads of revocations.
pub trait RevocationReads: Send + Sync {
    /// Returns true if this revocation id was revoked. Does not go to the database where nothing ever was.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    fn is_revoked(&self, id: &str) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Returns those of the revocation ids that were revoked.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    fn revoked_among(
        &self,
        ids: &[String],
    ) -> impl Future<Output = Result<BTreeSet<String>, StoreError>> + Send;
}

impl RevocationReads for Store {
    async fn is_revoked(&self, id: &str) -> Result<bool, StoreError> {
        // No read at all: this is asked before every action.
        if !self.is_anything_revoked() {
            return Ok(false);
        }
        let id = id.to_owned();
        self.run_brief(move |db| approvals::is_revoked(&db.conn, &id)).await
    }

    async fn revoked_among(&self, ids: &[String]) -> Result<BTreeSet<String>, StoreError> {
        if !self.is_anything_revoked() {
            return Ok(BTreeSet::new());
        }
        let ids = ids.to_owned();
        self.run_brief(move |db| approvals::revoked_among(&db.conn, &ids)).await
    }
}

impl BlockingReads {
    /// Returns true if this revocation id was revoked.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn is_revoked(&self, id: &str) -> Result<bool, StoreError> {
        self.run(|db| approvals::is_revoked(&db.conn, id))
    }
}
