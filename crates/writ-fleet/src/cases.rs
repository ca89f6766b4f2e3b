//! The case router: one holder for each case at every moment, and a record of who held it when.
//!
//! - [`machine`] decides, as a pure machine, what may happen to a case.
//! - [`router`] opens and closes cases and brings people in; `moves` commits each change, `running` speaks with processes,
//!   `ways` records what they try past their two servers.
//! - [`ports`] are the security proxy and the launcher, as the router needs them.
//! - [`desk`] is the router as people ask it through the engine's methods, [`routes`] as a front end asks it.
//! - [`access`] reads from the ledger who held a case when and which people read it (`readings` records them), [`status`] shows what is open now.

pub mod access;
mod choice;
pub mod config;
pub mod desk;
pub mod error;
pub mod front_end;
pub mod launcher;
pub mod machine;
pub mod ports;
pub mod protocol;
pub mod proxy;
pub mod router;
pub mod routes;
pub mod server;
pub mod service;
pub mod status;

mod deployed;
mod ended;
mod list;
mod live;
mod moves;
mod orphans;
mod readings;
mod running;
mod socket;
mod state;
mod texts;
mod ways;
