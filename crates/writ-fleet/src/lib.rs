//! The routers of a fleet: what agents that run locked in reach beside the security proxy.
//!
//! - [`config`] says which of them run;
//! - [`models`] is the model router: locked agents ask their models through it, and each call is in the ledger.

pub mod config;

pub mod models;
