//! Servers, devices and judges that tests alone need. The demo ships `writ-testkit`; nothing ships this.

pub mod trace_collector;

pub mod vault_server;

pub mod search_server;

pub mod forge_server;

mod forge_git;

pub mod embedding_server;

pub mod raw_server;

pub mod postgres_server;

pub mod docker_server;

pub mod schema_rules;

pub mod passkey;

pub mod clock;
