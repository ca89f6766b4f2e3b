//! Settings of the runtime.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use writ_agent::event::SystemText;
use writ_egress::proxy::ProxyConfig;
use writ_inspect::egress::EgressScope;
use writ_inspect::egress::credential::Binding;
use writ_memory::config::MemoryConfig;
use writ_memory::embedder::SharedEmbedder;
use writ_policy::access::Access;
use writ_policy::budget::BudgetConfig;
use writ_types::calendar::Recurrence;
use writ_types::id::InstallationId;
use writ_types::interaction::Initiative;
use writ_types::quarantine::Quarantine;
use writ_types::zone::TimeZone;

use crate::live::ChangeableSettings;
use crate::profile::NamedAgent;

/// Default lifetime of an ask (design 3.2).
pub const APPROVAL_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The most turns that can be set to run at once, and the default; more wait in the queue.
pub const MAX_RUNNING_TURNS: usize = 64;
/// The time that running turns get to end when the engine is asked to stop.
pub const DRAIN_DEADLINE: Duration = Duration::from_secs(20);
/// The time that running turns get to stop once they are asked to; the process then ends without them.
pub const STOP_DEADLINE: Duration = Duration::from_secs(10);
/// Duration of a lease: longer than any engine runs (a hundred years). The home has one engine, which frees
/// every lease of its predecessor at its start; a lease that ran out while the machine slept, or while a
/// command took long, would start the same turn a second time beside the first.
pub const LEASE_TTL: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// A running turn's task key is renewed when less than this is left of it.
pub const RENEW_BEFORE: Duration = Duration::from_secs(5 * 60);
/// Interval between checks for asks that have expired.
pub const EXPIRY_EVERY: Duration = Duration::from_secs(30);
/// The most sessions held in memory; the least recently used ones without a turn are unloaded.
pub const MAX_LOADED_SESSIONS: usize = 2_000;

/// Key in a session's metadata that marks its folder as possibly holding changes that no person has seen.
/// Until a person has seen them, no earlier approval covers them.
pub const LEFT_BEHIND: &str = "left_behind";

/// Setting that decides if a model needs an approved plan to run programs, write files and drive browsers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    /// They do not: inside the sandbox they are free, and rules and labels decide about the rest.
    #[default]
    Free,
    /// They do.
    Planned,
}

/// Settings for the ledger: erasing of old payloads, and copies of signed heads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LedgerConfig {
    /// After how many days the payloads of entries are erased that nothing rests on. Default 0: never.
    pub retention_days: u32,
    /// The file to which signed heads are copied; it should be outside the home, best on another disk.
    /// Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads_file: Option<PathBuf>,
    /// A git repository, used for nothing else, in which they are committed. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads_repository: Option<PathBuf>,
}

/// Settings of the memory, and a local model if there is one.
#[derive(Clone, Debug, Default)]
pub struct MemorySettings {
    /// The table of the configuration.
    pub config: MemoryConfig,
    /// The model that was read from a folder.
    pub local: Option<SharedEmbedder>,
}

// tidy: plain state
/// Settings of the runtime.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// The agent's name.
    pub agent: String,
    /// The agents that may answer in its place, as the owner has described them.
    pub named: Vec<NamedAgent>,
    /// The installation.
    pub installation: InstallationId,
    /// The epoch in force.
    pub epoch: u64,
    /// The parties and parts that this engine trusts, as reported with its status: `docs/security-model.md`
    /// explains each word.
    pub posture: serde_json::Value,
    /// The user id that owns the home.
    pub home_uid: u32,
    /// The folder that holds the overlays of sessions.
    pub overlays: PathBuf,
    /// The folder that holds the folders of tool servers, by session.
    pub servers: PathBuf,
    /// The folder that holds the files of plugins, by name.
    pub plugins: PathBuf,
    /// The levels of access; `None`: they decide nothing.
    pub access: Option<Access>,
    /// The folder in which the scripts of gates run; no files remain there.
    pub gates: PathBuf,
    /// The time after which an unused server is stopped.
    pub server_idle: Duration,
    /// The folder that stores files that agents send to their person.
    pub sent: PathBuf,
    /// The most turns that run at once, over all sessions: from 1 to [`MAX_RUNNING_TURNS`].
    pub max_parallel: usize,
    /// The settings that may change while the engine runs, as they are at its start.
    pub begun: ChangeableSettings,
    /// Limits on tokens, money and tool calls.
    pub budget: BudgetConfig,
    /// The owner's time zone.
    pub time_zone: TimeZone,
    /// The pinned texts of the system zone.
    pub system: Vec<SystemText>,
    /// The introduction that a conversation has while there are neither memories nor tools of the owner's own; empty: none.
    pub first_run: String,
    /// The most history entries that a session begins with after a restart.
    pub max_chronicle_entries: usize,
    /// The hosts that every session may reach before anything is granted to it.
    pub egress: EgressScope,
    /// Limits and rates of the proxy.
    pub proxy: ProxyConfig,
    /// Secrets that programs use and never have.
    pub credentials: Vec<Binding>,
    /// Names of the tools that may be used; empty: all.
    pub tools: Vec<String>,
    /// The time at which the tools of other programs are reviewed.
    pub tool_review: Recurrence,
    /// Quarantine of results of our own tools, by the tool's name: these results are held back from models.
    pub quarantine: BTreeMap<String, Quarantine>,
    /// Makes every action that would leave the sandbox ask once external content was read, regardless of its
    /// arguments.
    pub strict: bool,
    /// Setting that decides if running and writing needs an approved plan.
    pub execution: Execution,
    /// The agent's initiative in turns about which nothing else decides.
    pub initiative: Initiative,
    /// Settings for the ledger's payloads and heads.
    pub ledger: LedgerConfig,
    /// Settings of the memory.
    pub memory: MemorySettings,
}
