//! The routers of a fleet: what agents that run locked in reach beside the security proxy.
//!
//! - [`accept`] takes connections, for both routers;
//! - [`config`] says which of them run;
//! - [`models`] is the model router: locked agents ask their models through it, and each call is in the ledger.
//! - [`cases`] is the case router: it gives a customer's case to one agent after the other, each under a key of its own.
//! - [`agents`] are the folders that agents are deployed from, each approved by a person and bound to a base key.
//! - [`anomalies`] are the rules by which an agent that behaves strangely loses its case.

pub mod accept;

pub mod config;

pub mod models;

pub mod cases;

pub mod agents;

pub mod anomalies;
