//! What tests and the demo run against: real parts that follow a script.

pub mod model_server;

pub mod trace_collector;

pub mod vault_server;

pub mod search_server;

pub mod raw_server;

pub mod schema_rules;

pub mod repo;

#[cfg(feature = "door")]
pub mod door;

pub mod passkey;

pub mod solver;

pub mod clock;

pub mod demo;
