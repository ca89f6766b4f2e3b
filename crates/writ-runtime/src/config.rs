//! What the runtime must be told.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use writ_agent::event::SystemText;
use writ_egress::proxy::ProxyConfig;
use writ_policy::access::Access;
use writ_policy::budget::BudgetConfig;
use writ_policy::egress::EgressScope;
use writ_policy::egress::credential::Binding;
use writ_types::id::InstallationId;
use writ_types::quarantine::Quarantine;
use writ_types::zone::TimeZone;

/// How long an ask lives unless configured otherwise (design 3.2).
pub const APPROVAL_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// How many turns run at once; more wait in the queue.
pub const MAX_RUNNING_TURNS: usize = 64;
/// How long running turns may take to end when the engine is told to stop.
pub const DRAIN_DEADLINE: Duration = Duration::from_secs(20);
/// How long running turns may take to stop once they were told to; the process ends without them then.
pub const STOP_DEADLINE: Duration = Duration::from_secs(10);
/// How long a lease holds: longer than any engine runs (a hundred years). The home has one engine, which makes
/// every lease of its forerunner free at its start; a lease that ran out while the machine slept, or while a
/// command took long, would start the same turn a second time beside the first.
pub const LEASE_TTL: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// A running turn's task key is renewed when less than this is left of it.
pub const RENEW_BEFORE: Duration = Duration::from_secs(5 * 60);
/// How often asks are looked at whose time may be over.
pub const EXPIRY_EVERY: Duration = Duration::from_secs(30);
/// The most sessions kept in memory; the least recently used ones without a turn are put aside.
pub const MAX_LOADED_SESSIONS: usize = 2_000;

/// The key of a session's metadata that says that its folder may hold changes that nobody was shown: nothing of it
/// is approved beforehand until a person has seen them.
pub const LEFT_BEHIND: &str = "left_behind";

/// Whether a model's wishes to run programs, write files and drive browsers need an approved plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    /// They do not: inside the sandbox they are free, and rules and labels decide about the rest.
    #[default]
    Free,
    /// They do.
    Planned,
}

/// What becomes of the ledger's payloads and heads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LedgerConfig {
    /// After how many days the payloads of entries are erased that nothing rests on. Default 0: never.
    pub retention_days: u32,
    /// Where signed heads are copied to: a file elsewhere than the home, best on another disk. Default: nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads_file: Option<PathBuf>,
    /// A git repository, used for nothing else, in which they are committed. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads_repository: Option<PathBuf>,
}

/// Settings of the runtime.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// The agent's name.
    pub agent: String,
    /// The installation.
    pub installation: InstallationId,
    /// The epoch in force.
    pub epoch: u64,
    /// What this engine trusts, as it is told with its status: `docs/security-model.md` says what each word means.
    pub posture: serde_json::Value,
    /// The user id that owns the home.
    pub home_uid: u32,
    /// Where sessions keep their overlays.
    pub overlays: PathBuf,
    /// Where servers of tools have their folders, by session.
    pub servers: PathBuf,
    /// The levels of access; `None`: they decide nothing.
    pub access: Option<Access>,
    /// Where the scripts of gates run; nothing stays there.
    pub gates: PathBuf,
    /// How long a server that nobody calls stays.
    pub server_idle: Duration,
    /// Where files are kept that agents send to their person.
    pub sent: PathBuf,
    /// How long an ask lives.
    pub approval_ttl: Duration,
    /// Whether an answer to a question whose turn has ended opens a turn.
    pub continue_after_answer: bool,
    /// Limits on tokens, money and tool calls.
    pub budget: BudgetConfig,
    /// Limits of a turn and of its context.
    pub agent_config: writ_agent::config::Config,
    /// The owner's time zone.
    pub time_zone: TimeZone,
    /// The pinned texts of the system zone.
    pub system: Vec<SystemText>,
    /// How many entries of the history a session begins with after a restart.
    pub max_chronicle_entries: usize,
    /// What every session may reach before anything is granted to it.
    pub egress: EgressScope,
    /// Limits and rates of the proxy.
    pub proxy: ProxyConfig,
    /// Secrets that programs use and never have.
    pub credentials: Vec<Binding>,
    /// How long tools may run.
    pub timeouts: writ_tools::config::Config,
    /// Names of the tools that may be used; empty: all.
    pub tools: Vec<String>,
    /// Which results of our own tools are kept back from models, by the tool's name.
    pub quarantine: BTreeMap<String, Quarantine>,
    /// Whether everything asks that would leave the sandbox after external content was read, whatever its arguments are.
    pub strict: bool,
    /// What is run and written without an approved plan.
    pub execution: Execution,
    /// What becomes of the ledger's payloads and heads.
    pub ledger: LedgerConfig,
}
