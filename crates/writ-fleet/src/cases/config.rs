//! The configuration of the case router.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use writ_policy::keys::KeyToken;

use crate::agents::DeployedAgent;
use crate::anomalies::AnomalyRule;

/// The most agents of a fleet.
pub const MAX_AGENTS: usize = 256;
/// The most roles of an agent.
pub const MAX_ROLES: usize = 32;
/// The time in which an agent must say something about a message, unless configured otherwise.
pub const SILENCE: Duration = Duration::from_secs(2 * 60);
/// A task key is renewed when it expires in less than this time.
pub const RENEW_BEFORE: Duration = Duration::from_secs(5 * 60);
/// The time that a process may run where the limits of its agent do not say: a case outlives several task keys.
pub const CASE_TIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The time for which a case waits for an agent without a base key in force: another version of it may have been
/// deployed, which is read every two seconds.
pub const DEPLOY_WAIT: Duration = Duration::from_secs(10);
/// The time for which a case waits that no known agent does the work of: one may have been deployed a moment ago.
pub const UNKNOWN_WAIT: Duration = Duration::from_secs(4);
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
    /// Its version, if it was deployed.
    pub version: Option<String>,
    /// The folder with its program, if it was deployed; it begins there and cannot change it.
    pub folder: Option<PathBuf>,
    /// The limits of each of its processes.
    pub limits: ProcessLimits,
}

/// The limits of a process of an agent. A limit that is not set has the default of `writ run`; the time has [`CASE_TIME`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessLimits {
    /// The time that it may run, in seconds.
    pub time: Option<u64>,
    /// The time that all of its processes may compute together, in seconds.
    pub cpu: Option<u64>,
    /// The memory of all of its processes together, in MiB.
    pub memory: Option<u64>,
    /// The processes and threads that it may have at once.
    pub processes: Option<u64>,
    /// The size of its temporary folder, in MiB.
    pub tmp: Option<u64>,
}

impl ProcessLimits {
    /// Returns the time that a process may run.
    pub fn run_time(&self) -> Duration {
        self.time.map_or(CASE_TIME, Duration::from_secs)
    }
}

/// The configuration of the case router.
#[derive(Clone, Debug)]
pub struct CasesConfig {
    /// The agents, in the order of preference.
    pub agents: Vec<FleetAgent>,
    /// Deployed agents, after them. Reading these again replaces both.
    pub deployed: Vec<DeployedAgent>,
    /// The time in which an agent must say something about a message.
    pub silence: Duration,
    /// The rules about anomalies.
    pub rules: Vec<AnomalyRule>,
}

impl Default for CasesConfig {
    fn default() -> Self {
        Self { agents: Vec::new(), deployed: Vec::new(), silence: SILENCE, rules: Vec::new() }
    }
}
