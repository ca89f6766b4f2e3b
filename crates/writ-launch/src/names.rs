//! The names that an agent can reach, and the headers that say who it is.

/// The name of the router of models.
pub const ROUTER: &str = "llm-router.silo.internal";
/// The name of the security proxy.
pub const PROXY: &str = "security-proxy.silo.internal";
/// Both, in the order of the certificate.
pub const NAMES: [&str; 2] = [PROXY, ROUTER];
/// The port of plain HTTP, for the router alone.
pub const PLAIN_PORT: u16 = 80;
/// The port of HTTP over TLS, for both.
pub const TLS_PORT: u16 = 443;
/// The beginning of headers that say who an agent is: an agent's own are taken out.
pub const OWN_HEADERS: &str = "writ-";
/// The header of the base key.
pub const BASE_HEADER: &str = "writ-base-key";
/// The header of the task key.
pub const TASK_HEADER: &str = "writ-task-key";
