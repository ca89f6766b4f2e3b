//! The configuration of the case router.

use std::time::Duration;

use writ_policy::keys::KeyToken;

use crate::anomalies::AnomalyRule;

/// The most agents of a fleet.
pub const MAX_AGENTS: usize = 256;
/// The most roles of an agent.
pub const MAX_ROLES: usize = 32;
/// The time in which an agent must say something about a message, unless configured otherwise.
pub const SILENCE: Duration = Duration::from_secs(2 * 60);
/// The left time of a task key at which it is renewed.
pub const RENEW_BEFORE: Duration = Duration::from_secs(5 * 60);
/// The time for which ended cases are stored; the ledger has their holders still.
pub const STORED_AFTER_END: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// An agent that can be given cases.
#[derive(Clone, Debug)]
pub struct FleetAgent {
    /// Its name, as its base key has it.
    pub name: String,
    /// Names under which it is a target of escalations, besides its own: `manager`, for instance.
    pub roles: Vec<String>,
    /// Its base key.
    pub base: KeyToken,
    /// Its program and arguments.
    pub command: Vec<String>,
    /// The most cases that it has at once, each in a process of its own.
    pub max_cases: usize,
}

/// The configuration of the case router.
#[derive(Clone, Debug)]
pub struct CasesConfig {
    /// The agents, in the order of preference.
    pub agents: Vec<FleetAgent>,
    /// The time in which an agent must say something about a message.
    pub silence: Duration,
    /// The rules about anomalies.
    pub rules: Vec<AnomalyRule>,
}

impl Default for CasesConfig {
    fn default() -> Self {
        Self { agents: Vec::new(), silence: SILENCE, rules: Vec::new() }
    }
}
