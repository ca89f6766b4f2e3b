//! The case router of a fleet, as people reach it through the engine's methods.
//!
//! The router lies above this crate: the program that starts the engine hands it in.

use std::fmt;
use std::pin::Pin;

use writ_types::api::fleet::{
    CaseEnding, CaseName, CaseReturn, FleetStatus, GuestAnswer, HolderList, MessagePage, MessageQuery,
};
use writ_types::error::Report;

/// The answer of the router.
pub type DeskAnswer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Report>> + Send + 'a>>;

/// The router, as people ask it. What has begun runs to its end, also if its answer is not waited for any more.
pub trait FleetDesk: fmt::Debug + Send + Sync {
    /// Shows agents, open cases and anomalies.
    fn show_fleet(&self) -> DeskAnswer<'_, FleetStatus>;

    /// Lists messages of a case for a person, whose reading is recorded first.
    fn list_messages(&self, person: String, query: MessageQuery) -> DeskAnswer<'_, MessagePage>;

    /// Lists who had access to a case when.
    fn list_holders(&self, case: CaseName) -> DeskAnswer<'_, HolderList>;

    /// Takes a case over for a person; from an agent, if one holds it.
    fn take_case(&self, person: String, case: CaseName) -> DeskAnswer<'_, ()>;

    /// Answers the guest of a case that no agent holds.
    fn answer_guest(&self, person: String, answer: GuestAnswer) -> DeskAnswer<'_, ()>;

    /// Gives a case back to agents.
    fn return_case(&self, person: String, back: CaseReturn) -> DeskAnswer<'_, ()>;

    /// Closes a case.
    fn close_case(&self, person: String, ending: CaseEnding) -> DeskAnswer<'_, ()>;
}
