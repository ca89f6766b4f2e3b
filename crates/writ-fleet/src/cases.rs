//! The case router: one holder for each case at every moment, and a record of who held it when.
//!
//! - [`machine`] decides, as a pure machine, what may happen to a case.
//! - [`router`] opens and closes cases and brings people in; `moves` commits each change, `running` speaks with processes.
//! - [`ports`] are the security proxy and the launcher, as the router needs them.
//! - [`access`] reads from the ledger who held a case when, [`status`] shows what is open now.

pub mod access;
pub mod config;
pub mod error;
pub mod launcher;
pub mod machine;
pub mod ports;
pub mod protocol;
pub mod router;
pub mod routes;
pub mod status;

mod live;
mod moves;
mod running;
mod state;
