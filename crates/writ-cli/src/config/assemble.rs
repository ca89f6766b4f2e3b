//! The merged tree of settings becomes each crate's own `Config`.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::{Table, Value};
use writ_agent::config::AgentConfig;
use writ_fleet::config::FleetConfig;
use writ_inspect::gate::EscalationConfigs;
use writ_memory::config::MemoryConfig;
use writ_policy::access::AccessConfig;
use writ_policy::budget::BudgetConfig;
use writ_runtime::config::LedgerConfig;
use writ_types::zone::TimeZone;

use super::layer::Finding;
use super::merge::{Effective, in_list};
use super::schema::{self, KeyPath};
use super::{Config, General, gates};

/// Reads every section of the merged tree into its crate's own settings; `None`: a finding says why one does not fit.
pub(super) fn assemble_config(
    effective: Effective,
    home: &Path,
    findings: &mut Vec<Finding>,
) -> Option<Config> {
    let mut tree = effective.to_table();
    let gates = gates::read_list(("gates", gates::GATE_NEEDS), tree.remove("gates"), &effective, findings);
    let hooks = gates::read_list(("hooks", gates::HOOK_NEEDS), tree.remove("hooks"), &effective, findings);
    let models = take_named(&mut tree, ["models", "providers"]);
    let turn = take_named(&mut tree, ["context", "limits"]);
    let mut section = |name: &str| take_section(&mut tree, name);
    // The place of secrets is the command's own setting: the crate's settings do not know it.
    let mut secrets = section("secrets");
    let backend = secrets.remove("backend");
    let mut typed = Typed { effective: &effective, findings };
    let escalations: Option<EscalationConfigs> = typed.read_section("escalations", section("escalations"));
    let access: Option<AccessConfig> = typed.read_section("access", section("access"));
    let budget: Option<BudgetConfig> = typed.read_section("budget", section("budget"));
    let sandbox = typed.read_section("sandbox", section("sandbox"));
    let egress = typed.read_section("egress", in_list(in_list(section("egress"), "pin"), "credentials"));
    let search = typed.read_section("search", section("search"));
    let memory: Option<MemoryConfig> = typed.read_section("memory", section("memory"));
    let timeouts = typed.read_section("timeouts", section("timeouts"));
    let quarantine = typed.read_section("quarantine", section("quarantine"));
    let secrets = typed.read_section("secrets", secrets);
    let server = typed.read_section("server", section("server"));
    let log = typed.read_section("log", section("log"));
    let telemetry = typed.read_section("telemetry", section("telemetry"));
    let network = typed.read_section("network", section("network"));
    let ledger: Option<LedgerConfig> = typed.read_section("ledger", section("ledger"));
    let fleet: Option<FleetConfig> = typed.read_section("fleet", section("fleet"));
    let worker = typed.read_section("worker", section("worker"));
    let turn: Option<AgentConfig> = typed.read_section("", turn);
    let models = typed.read_section("", models);
    let general: Option<General> = typed.read_section("", tree);

    // From here a missing section means a finding that was already recorded.
    let budget = budget?;
    let mut config = Config {
        general: general?,
        log: log?,
        telemetry: telemetry?,
        network: network?,
        ledger: resolve_below(ledger?, home),
        fleet: fleet?,
        worker: worker?,
        models: models?,
        turn: bound_turn(turn?, &budget),
        budget,
        gates,
        hooks,
        escalations: escalations?,
        access: access?,
        sandbox: sandbox?,
        egress: egress?,
        search: search?,
        memory: resolve_model_folder(memory?, home),
        timeouts: timeouts?,
        quarantine: quarantine?,
        server: server?,
        secrets: secrets?,
        time_zone: Ok(TimeZone::UTC),
        backend: backend.as_ref().and_then(Value::as_str).and_then(|name| name.parse().ok()),
        effective,
        home: home.to_owned(),
    };
    config.add_shipped_gates();
    config.check_values(findings);
    Some(config)
}

/// Paths of the ledger's copies are relative to the home, as all others.
fn resolve_below(mut ledger: LedgerConfig, home: &Path) -> LedgerConfig {
    for path in [&mut ledger.heads_file, &mut ledger.heads_repository].into_iter().flatten() {
        *path = home.join(&path);
    }
    ledger
}

/// The folder of the local model is relative to the home, as all others.
fn resolve_model_folder(mut memory: MemoryConfig, home: &Path) -> MemoryConfig {
    if let Some(folder) = &mut memory.folder {
        *folder = home.join(&folder);
    }
    memory
}

/// The budget's limit of calls holds for the turn machine too: one setting, one name.
fn bound_turn(mut turn: AgentConfig, budget: &BudgetConfig) -> AgentConfig {
    turn.limits.max_tool_calls_per_turn = u32::try_from(budget.max_tool_calls_per_turn).unwrap_or(u32::MAX);
    turn
}

/// Takes a section out of the tree; one that is not there is empty.
fn take_section(tree: &mut Table, name: &str) -> Table {
    match tree.remove(name) {
        Some(Value::Table(table)) => table,
        // A value in place of a table was reported when its source was read.
        Some(_) | None => Table::new(),
    }
}

/// Takes two sections that one crate reads together, each under its name.
fn take_named(tree: &mut Table, names: [&str; 2]) -> Table {
    names.into_iter().map(|name| (name.to_owned(), Value::Table(take_section(tree, name)))).collect()
}

/// Reads tables into settings; what does not fit becomes a finding at the key that is to blame.
struct Typed<'a> {
    effective: &'a Effective,
    findings: &'a mut Vec<Finding>,
}

impl Typed<'_> {
    fn read_section<T: DeserializeOwned>(&mut self, section: &str, table: Table) -> Option<T> {
        match serde_path_to_error::deserialize(Value::Table(table)) {
            Ok(settings) => Some(settings),
            Err(error) => {
                let inner = error.path().to_string();
                let path: KeyPath =
                    [section, &inner].iter().flat_map(|part| part.split('.')).map(str::to_owned).collect();
                let path: KeyPath = path.into_iter().filter(|part| !part.is_empty() && part != ".").collect();
                let text = error.into_inner().message().trim().to_owned();
                // The error names the key, and the merged tree knows its file and line.
                let origin = self.effective.origin_of(&path);
                let text = format!("'{}': {text}", schema::dotted_path(&path));
                self.findings.push(Finding { origin, text, hint: String::new() });
                None
            }
        }
    }
}
