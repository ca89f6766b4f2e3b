//! The configuration: defaults, the home's file, the project's, the environment and flags, in that order.
//!
//! [`schema`] lists every key, [`layer`] reads one source, [`merge`] lays them over each other, and [`load_config`]
//! turns the result into each crate's own `Config`. Only this module knows the files.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;
use toml::{Table, Value};
use writ_egress::deliver::Endpoint;
use writ_fleet::config::FleetConfig;
use writ_gateway::http::config::ServerConfig;
use writ_inspect::egress::credential;
use writ_inspect::gate::{EscalationConfigs, GateConfig, HookConfig};
use writ_memory::config::MemoryConfig;
use writ_models::config::ModelsConfig;
use writ_models::provider::{ModelsConfigError, Routes};
use writ_policy::access::AccessConfig;
use writ_policy::budget::BudgetConfig;
use writ_runtime::config::LedgerConfig;
use writ_sandbox::config::SandboxConfig;
use writ_search::config::SearchConfig;
use writ_secrets::backend::Backend;
use writ_tools::registry::{EmptyMeans, Registry};
use writ_types::error::{Exit, Report, ToReport};
use writ_types::quarantine::Quarantine;
use writ_types::zone::{TimeZone, UnknownTimeZone};

use crate::env::Env;
use crate::home::Home;

use assemble::assemble_config;
use egress::EgressLists;
use layer::{Finding, Layer};
use merge::{Effective, LayerSource};
use network::NetworkConfig;
use schema::KeyPath;
use worker::WorkerConfig;

mod assemble;

pub(crate) mod explained;

pub(crate) mod schema;

pub(crate) mod layer;

mod nearest;

pub(crate) mod named;

pub(crate) mod merge;

pub(crate) mod policies;

pub(crate) mod servers;

mod plain_text;

pub(crate) mod plugins;

pub(crate) mod egress;

mod gates;

mod general;

mod observe;

pub(crate) mod network;

mod tilde;

pub(crate) mod worker;

pub(crate) use general::General;
pub(crate) use observe::{LogConfig, TelemetryConfig};

/// The project's configuration, below the project.
pub(crate) const PROJECT_FILE: &str = ".writ/config.toml";
/// The home's configuration, below the home.
const HOME_FILE: &str = "config.toml";
/// The text of `config.example.toml`: every key with its default.
pub(crate) const EXAMPLE: &str = include_str!("../../../config.example.toml");
/// The most findings in one report; further ones are only counted.
const MAX_TOLD: usize = 100;

// tidy: plain state
/// The whole configuration, as each crate wants it.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Keys without a section.
    pub(crate) general: General,
    /// The log.
    pub(crate) log: LogConfig,
    /// Traces.
    pub(crate) telemetry: TelemetryConfig,
    /// The network's proxy and authorities.
    pub(crate) network: NetworkConfig,
    /// Models and providers.
    pub(crate) models: ModelsConfig,
    /// Limits on tokens, money and tool calls.
    pub(crate) budget: BudgetConfig,
    /// The gates in force, the shipped ones first.
    pub(crate) gates: Vec<GateConfig>,
    /// The hooks, in their order.
    pub(crate) hooks: Vec<HookConfig>,
    /// The escalations that may follow when a gate blocks.
    pub(crate) escalations: EscalationConfigs,
    /// The levels of access.
    pub(crate) access: AccessConfig,
    /// The sandbox.
    pub(crate) sandbox: SandboxConfig,
    /// A turn's context and limits.
    pub(crate) turn: writ_agent::config::AgentConfig,
    /// The hosts that may be reached.
    pub(crate) egress: EgressLists,
    /// The search provider.
    pub(crate) search: SearchConfig,
    /// The memory.
    pub(crate) memory: MemoryConfig,
    /// Retention of the ledger's payloads and heads.
    pub(crate) ledger: LedgerConfig,
    /// The routers of locked agents.
    pub(crate) fleet: FleetConfig,
    /// The one who does the autopilot's work.
    pub(crate) worker: WorkerConfig,
    /// Time limits of tools.
    pub(crate) timeouts: writ_tools::config::ToolTimeouts,
    /// The rule of withholding for results of each of our own tools.
    pub(crate) quarantine: BTreeMap<String, Quarantine>,
    /// The server of page and API.
    pub(crate) server: ServerConfig,
    /// Timeouts of the keys folder.
    pub(crate) secrets: writ_secrets::config::SecretsConfig,
    /// The place in which `init` stores secrets and keys; `None`: the keyring, else an encrypted file.
    pub(crate) backend: Option<Backend>,
    /// The owner's time zone; `Err`: the variable `TZ` names none, and UTC is used.
    pub(crate) time_zone: Result<TimeZone, UnknownTimeZone>,
    /// Every value with its origin.
    pub(crate) effective: Effective,
    home: PathBuf,
}

/// A configuration that cannot stand: everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    /// The errors; never empty.
    pub(crate) findings: Vec<Finding>,
}

impl ToReport for ConfigError {
    fn report(&self) -> Report {
        let mut texts = self.findings.iter().take(MAX_TOLD).map(ToString::to_string);
        let first = texts.next().unwrap_or_default();
        // One finding is reported with its hint, several with their number.
        let hint = match (self.findings.len(), self.findings.first()) {
            (0 | 1, Some(finding)) => finding.advice().to_owned(),
            (more, _) => format!("{} more; `writ config check` shows all", more.saturating_sub(1)),
        };
        Report::new(Exit::Config, "config.invalid", first).with_hint(hint)
    }
}

/// The sources of a configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfigSources<'a> {
    /// The home.
    pub(crate) home: &'a Home,
    /// The project's folder, if there is one.
    pub(crate) project: Option<&'a Path>,
    /// The environment.
    pub(crate) env: &'a Env,
    /// Settings from flags: dotted key and value.
    pub(crate) flags: &'a [(&'a str, Value)],
}

/// Reads, merges and checks the configuration. A home without a file has the defaults.
///
/// # Errors
///
/// Everything that is wrong, at once.
pub(crate) fn load_config(sources: &ConfigSources<'_>) -> Result<Config, ConfigError> {
    let (effective, mut findings) = read_layers(sources);
    // An error in one key would only be reported again as a missing part.
    let config = if findings.is_empty() {
        assemble_config(effective, sources.home.root(), &mut findings)
    } else {
        None
    };
    let config = config.map(|config| config.in_zone(sources.env.text_of("TZ"), &mut findings));
    match config {
        Some(config) if findings.is_empty() => Ok(config),
        Some(_) | None => {
            // Sorted by place, so that the report reads like the file.
            findings.sort_by(|a, b| a.origin.cmp(&b.origin).then_with(|| a.text.cmp(&b.text)));
            findings.dedup();
            Err(ConfigError { findings })
        }
    }
}

fn read_layers(sources: &ConfigSources<'_>) -> (Effective, Vec<Finding>) {
    let mut effective = Effective::new(default_values());
    let mut findings = Vec::new();
    let home = sources.env.path_of("HOME");
    // Later layers override earlier ones; a project's layer can only narrow.
    let mut lay = |which, layer: Layer| {
        findings.extend(layer.findings);
        let (settings, not_found) = tilde::expand_tilde(layer.settings, home.as_deref());
        findings.extend(not_found);
        findings.extend(effective.lay_over(which, settings));
    };
    lay(LayerSource::Home, read_file(&sources.home.config_file(), HOME_FILE));
    if let Some(project) = sources.project {
        lay(LayerSource::Project, read_file(&project.join(PROJECT_FILE), PROJECT_FILE));
    }
    lay(LayerSource::Environment, layer::from_env(&sources.env.with_prefix("WRIT_")));
    lay(LayerSource::Flags, layer::from_flags(sources.flags));
    (effective, findings)
}

fn read_file(path: &Path, name: &'static str) -> Layer {
    match layer::read_file(path, name) {
        Ok(Some(text)) => layer::from_file(name, &text),
        Ok(None) => Layer::default(),
        Err(finding) => Layer { settings: Vec::new(), findings: vec![finding] },
    }
}

/// The defaults of every crate, by key.
fn default_values() -> BTreeMap<KeyPath, Value> {
    let mut turn = table_of(&writ_agent::config::AgentConfig::default());
    // One setting, one name: the budget's key bounds the turn machine too.
    if let Some(Value::Table(limits)) = turn.get_mut("limits") {
        limits.remove(TOOL_CALLS);
    }
    let mut all = table_of(&General::default());
    all.extend(table_of(&ModelsConfig::default()));
    all.extend(turn);
    for (section, table) in [
        ("budget", table_of(&BudgetConfig::default())),
        ("sandbox", table_of(&SandboxConfig::default())),
        ("egress", table_of(&EgressLists::default())),
        ("search", table_of(&SearchConfig::default())),
        ("memory", table_of(&MemoryConfig::default())),
        ("timeouts", table_of(&writ_tools::config::ToolTimeouts::default())),
        ("secrets", table_of(&writ_secrets::config::SecretsConfig::default())),
        ("server", table_of(&ServerConfig::default())),
        ("log", table_of(&LogConfig::default())),
        ("telemetry", table_of(&TelemetryConfig::default())),
        ("network", table_of(&NetworkConfig::default())),
        ("ledger", table_of(&LedgerConfig::default())),
        ("fleet", table_of(&FleetConfig::default())),
        ("worker", table_of(&WorkerConfig::default())),
        ("access", table_of(&AccessConfig::default())),
    ] {
        all.insert(section.to_owned(), Value::Table(table));
    }
    let mut flat = BTreeMap::new();
    merge::flatten(&all, &mut Vec::new(), &mut flat);
    flat
}

/// The key that budget and turn limits share.
const TOOL_CALLS: &str = "max_tool_calls_per_turn";

/// A crate's settings as a table; they are plain data, so this cannot fail (a test holds it).
fn table_of(settings: &impl Serialize) -> Table {
    Table::try_from(settings).unwrap_or_default()
}

impl Config {
    /// Returns the security posture of a home with this configuration; docs/security-model.md explains each
    /// word.
    pub(crate) fn describe_posture(&self) -> serde_json::Value {
        let host = self.server.host;
        let reach =
            if host.is_loopback() { "this machine".to_owned() } else { format!("anyone who reaches {host}") };
        serde_json::json!({ "users": "single-user", "page": reach, "strict": self.general.strict })
    }

    /// Returns the path of the database.
    pub(crate) fn database(&self) -> PathBuf {
        self.data_dir().join("writ.db")
    }

    /// Returns the folder of the database and the overlays.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.home.join(&self.general.data_dir)
    }

    /// Returns the folder of sessions' overlays.
    pub(crate) fn overlays(&self) -> PathBuf {
        self.data_dir().join("overlays")
    }

    /// Returns the folder of servers of tools.
    pub(crate) fn servers(&self) -> PathBuf {
        self.data_dir().join("servers")
    }

    /// Returns the folder in which scripts of gates run.
    pub(crate) fn gate_folders(&self) -> PathBuf {
        self.data_dir().join("gates")
    }

    /// Returns the folder of files that agents send.
    pub(crate) fn sent(&self) -> PathBuf {
        self.data_dir().join("sent")
    }

    /// Returns the folder that is reserved for verification.
    pub(crate) fn verify_dir(&self) -> PathBuf {
        self.home.join(&self.general.verify_dir)
    }

    /// Returns the folder of customers' context.
    pub(crate) fn customer_context_dir(&self) -> PathBuf {
        self.home.join(&self.general.customer_context_dir)
    }

    /// Checks rules that concern several keys.
    fn check_values(&self, findings: &mut Vec<Finding>) {
        self.check_gates(findings);
        if let Err(error) = Registry::core_tools().allow_list(&self.general.tools, EmptyMeans::All) {
            findings.push(self.finding_of(error.to_string(), "tools"));
        }
        for name in self.timeouts.tools.keys().filter(|name| !Registry::core_tools().knows_name(name)) {
            findings
                .push(self.finding_of(format!("'timeouts.tools.{name}': there is no such tool"), "timeouts"));
        }
        for name in self.quarantine.keys().filter(|name| !Registry::can_be_kept(name)) {
            let text = format!(
                "'quarantine.{name}': there is no such tool, or what it returns is the harness's own"
            );
            findings.push(self.finding_of(text, "quarantine"));
        }
        if let Err(error) = self.turn.validate_config() {
            findings.push(self.finding_of(error.to_string(), "context"));
        }
        match Routes::new(&self.models) {
            // Without a model much still works; `chat` says how to get one.
            Ok(_) | Err(ModelsConfigError::MissingDefault) => {}
            Err(error) => {
                let mut finding = self.finding_of(error.to_string(), "models");
                // The cause's own hint is closer than the general one.
                finding.hint = error.report().hint;
                findings.push(finding);
            }
        }
        if let Err(error) = credential::check_bindings(&self.egress.credentials, &self.egress.pin) {
            findings.push(self.finding_of(error.to_string(), "egress.credentials"));
        }
        if let Err(error) = self.search.check_settings() {
            let mut finding = self.finding_of(error.to_string(), "search");
            finding.hint = error.report().hint;
            findings.push(finding);
        }
        if let Err(error) = self.memory.check_settings() {
            let mut finding = self.finding_of(error.to_string(), "memory");
            finding.hint = "see [memory] in config.example.toml".to_owned();
            findings.push(finding);
        }
        // The same check as at the start of the engine, so that `config check` finds it, too.
        if let Some(base) = &self.telemetry.otlp_endpoint
            && let Err(error) = Endpoint::path_below(base, writ_telemetry::otlp::PATH)
        {
            findings.push(self.finding_of(format!("'telemetry.otlp_endpoint': {error}"), "telemetry"));
        }
        if let Err(error) = self.server.check_base_path() {
            let report = error.report();
            let mut finding = self.finding_of(format!("'server.base_path': {}", report.outside), "server");
            finding.hint = report.hint;
            findings.push(finding);
        }
        if let Err(error) = self.network.check_settings() {
            let mut finding = self.finding_of(error.to_string(), "network");
            finding.hint = error.hint_text();
            findings.push(finding);
        }
        // Compared as real paths: two names can lead to one folder.
        if real_path(&self.verify_dir()) == real_path(&self.customer_context_dir()) {
            let mut finding = self
                .finding_of("verify_dir and customer_context_dir are the same folder".into(), "verify_dir");
            finding.hint = "verification must not see what is known of customers: choose two folders".into();
            findings.push(finding);
        }
    }

    /// A finding at the setting that a text names, else at `section`.
    fn finding_of(&self, text: String, section: &str) -> Finding {
        let origin = self.effective.blame_by_text(&text, section);
        Finding { origin, text, hint: String::new() }
    }
}

/// A path with all links followed as far as it exists, and without `.` and `..`.
fn real_path(path: &Path) -> PathBuf {
    // The folders need not exist yet, so the longest existing part is resolved.
    let existing = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let Some((above, mut whole)) = existing else { return path.to_owned() };
    for part in path.strip_prefix(above).unwrap_or(Path::new("")).components() {
        match part {
            Component::Normal(name) => whole.push(name),
            Component::ParentDir => {
                whole.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    whole
}

#[cfg(test)]
mod tests;
