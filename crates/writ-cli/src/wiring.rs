//! Wires an engine: every part is made here and handed to the others, and nothing else decides about the
//! connections between them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use writ_egress::Egress;
use writ_egress::authority::CertificateAuthority;
use writ_egress::deliver::Endpoint;
use writ_fleet::cases::service::CaseService;
use writ_fleet::models::server::RouterSocket;
use writ_gateway::control::{Control, OpenControl};
use writ_gateway::http::{Http, TakenPort};
use writ_inspect::redact::Redactor;
use writ_memory::config::MemoryConfig;
use writ_memory::embedder::SharedEmbedder;
use writ_memory::local::LocalModel;
use writ_models::Models;
use writ_models::detect;
use writ_models::provider::ModelsConfigError;
use writ_pilot::config::OWNER_FILE;
use writ_pilot::pilots::{OwnerFiles, Pilots};
use writ_policy::access::Access;
use writ_runtime::clock::{Clock as _, SystemClock};
use writ_runtime::config::{MemorySettings, RuntimeConfig};
use writ_runtime::engine::Engine;
use writ_runtime::keys::EngineKeys;
use writ_runtime::servers::SERVER_IDLE;
use writ_runtime::services::EngineParts;
use writ_sandbox::Sandbox;
use writ_search::{SearchClient, SearchKeys};
use writ_secrets::store::{EngineKey, SecretStore};
use writ_store::config::StoreConfig;
use writ_store::store::Store;
use writ_telemetry::collect::Collected;
use writ_telemetry::export::{END_LIMIT, Exporter};
use writ_telemetry::otlp::{self, TraceSource};
use writ_tools::registry::Registry;
use writ_types::credential::CredentialRef;
use writ_types::error::Exit;
use writ_types::id::RunId;
use writ_types::zone::TimeZone;

use crate::config::servers::OwnServers;
use crate::config::{Config, named, network, policies};
use crate::context::Context;
use crate::failure::Failure;
use crate::keyring;
use crate::ledger::{self, Locks};
use crate::page;

pub(crate) mod credentials;

mod fleet;

mod generated;

mod live;

mod setup;

mod texts;

mod vault;

pub(crate) use credentials::CredentialSources;
use credentials::{KnownSecrets, variable_names};

/// A running engine with its socket and the home's lock.
#[derive(Debug)]
pub(crate) struct Wired {
    pub(crate) engine: Engine,
    pub(crate) control: OpenControl,
    /// The server of the page, if one is wanted.
    pub(crate) http: Option<Http>,
    /// The socket of the model router, if locked agents may ask models.
    pub(crate) models: Option<RouterSocket>,
    /// The case router, if cases are given to agents.
    pub(crate) cases: Option<CaseService>,
    /// Released when the engine has ended.
    pub(crate) locks: Locks,
    /// The exporter of traces, if a collector is named.
    pub(crate) traces: Option<Traces>,
}

/// Makes the sandbox: before the async runtime has threads, because it starts a helper process.
///
/// # Errors
///
/// If the helper cannot be started.
pub(crate) fn build_sandbox(config: &Config) -> Result<Sandbox, Failure> {
    Ok(Sandbox::start(config.sandbox.clone())?)
}

/// The task that delivers traces, until `stop`.
#[derive(Debug)]
pub(crate) struct Traces {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Traces {
    fn begin_export(exporter: Exporter, collected: Collected) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(exporter.run_export(collected, stop.clone()));
        Self { stop, task }
    }

    /// Delivers the remaining spans, and ends; the time for this is bounded.
    pub(crate) async fn end_export(self) {
        // Twice the limit: one delivery may be under way when the stop is noticed.
        self.stop.cancel();
        let limit = END_LIMIT.saturating_mul(2);
        if tokio::time::timeout(limit, self.task).await.is_err() {
            tracing::warn!("the last traces could not be delivered in time");
        }
    }
}

/// Creates the exporter of traces.
///
/// # Errors
///
/// If the credential of the collector is missing, or there is no way out.
fn build_exporter(
    config: &Config,
    credentials: &Arc<CredentialSources>,
    egress: &Arc<Egress>,
    resource: TraceSource,
) -> Result<Option<Exporter>, Failure> {
    // No endpoint, no exporter: nothing is collected.
    let Some(base) = &config.telemetry.otlp_endpoint else { return Ok(None) };
    let wrong = |text: String, hint| Failure::new(Exit::Config, "telemetry.endpoint", text, hint);
    let bearer = match &config.telemetry.otlp_token {
        Some(key) => {
            let hint = "set it, or leave telemetry.otlp_token out";
            Some(
                credentials
                    .credential_value(key)
                    .map_err(|error| wrong(format!("telemetry.otlp_token: {error}"), hint))?,
            )
        }
        None => None,
    };
    let endpoint = Endpoint::path_below(base, otlp::PATH).map_err(|error| {
        let hint = "give the address of a collector, such as http://localhost:4318";
        wrong(format!("telemetry.otlp_endpoint: {error}"), hint)
    })?;
    // A token over plain HTTP could be read on the way.
    if bearer.is_some() && !endpoint.is_private() {
        let text = "telemetry.otlp_token would be sent where others can read it".to_owned();
        return Err(wrong(text, "give telemetry.otlp_endpoint an https address, or one of this machine"));
    }
    Ok(Some(Exporter { egress: Arc::clone(egress), endpoint, bearer, resource }))
}

/// Takes the lock, opens everything, and starts the engine; `serves` is set if it serves the page.
///
/// # Errors
///
/// If another engine runs, or any part cannot be made; nothing is left running then.
pub(crate) async fn build_engine(
    context: &Context,
    config: &Config,
    sandbox: Sandbox,
    serves: Option<TakenPort>,
    telling: Option<(Collected, RunId)>,
    redactor: Redactor,
) -> Result<Wired, Failure> {
    // The locks come first: everything below may change the home.
    let locks = ledger::take_locks(context, config)?;
    // A home that was set up has a database: a new one in its place would forget that there ever was another.
    ledger::require_database(&config.database())?;
    let secrets = Arc::new(keyring::open_secrets(context, config)?);
    let egress = way_out(context, config, &secrets)?;
    let credentials =
        CredentialSources::gather_sources(context, config, Arc::clone(&secrets), &egress).await?;
    // Before anything is recovered: an address that cannot be had ends the start.
    let http = serves.map(|taken| page::bind_server(context, config, &credentials, taken)).transpose()?;
    let (root, harness) = (secrets.signing_key(EngineKey::Root)?, secrets.signing_key(EngineKey::Harness)?);
    let store = Store::open(&store_config(context, config)?, Arc::new(harness.clone()))?;
    let rules = policies::load_trying(&context.home)?;
    let runtime = runtime_config(context, config, &store)?;
    let (collected, run) = telling.unzip();
    let exporter = build_exporter(config, &credentials, &egress, trace_source(run, &runtime))?;
    let clock = Arc::new(SystemClock);
    // Never earlier than the ledger's last entry, even if the clock was set back.
    let keys =
        EngineKeys::mint(&runtime, &rules, &root, harness, clock.now().max(store.blocking().not_before()?))?;
    drop(root);
    let servers = Arc::new(OwnServers { home: context.home.clone(), secrets: Arc::clone(&secrets) });
    // Before anyone can connect: a waiting client then gets the error, not a closed connection.
    check_servers(&servers)?;
    let models = build_models(config, Arc::clone(&credentials), Arc::clone(&egress)).await?;
    let settings = live::HomeSettings::of_home(context, config, models.is_some());
    let parts = EngineParts {
        agents: Vec::new(),
        channels: Vec::new(),
        secrets: Arc::new(KnownSecrets::of_config(config, &credentials)),
        redactor,
        search: build_search(config, &credentials, &egress).await?,
        setup: Some(setup::ConfigModels::of_home(context, config, &credentials, &egress, &settings)),
        models,
        egress,
        config: runtime,
        clock,
        store,
        rules,
        files: Arc::new(policies::ProjectRuleFiles { home: context.home.clone() }),
        gates: config.gate_set()?,
        tools: Registry::core_tools(),
        servers,
        sandbox,
        keys,
        settings,
        home_files: Arc::new(generated::GeneratedFiles::of_home(&context.home, config)),
        seal: secrets.content_key()?,
    };
    // Bound before the engine starts, opened after: clients wait instead of failing.
    let control = Control::bind(&context.home.socket())?;
    let traces =
        exporter.zip(collected).map(|(exporter, collected)| Traces::begin_export(exporter, collected));
    let engine = Engine::start(parts).await?;
    // Before clients connect: they find the routers or an error, never half of them.
    let (cases, models) = fleet::start_routers(context, config, &engine).await?;
    if let Some(agent) = config.worker.coding_agent() {
        engine.open_coding_agent(agent);
    }
    open_autopilot(context, &engine).await;
    Ok(Wired { control: control.open_socket()?, engine, http, models, cases, locks, traces })
}

fn check_servers(servers: &OwnServers) -> Result<(), Failure> {
    writ_runtime::servers::check(servers, &Registry::core_tools())
        .map_err(|report| Failure::Report(Box::new(report)))
}

fn trace_source(run: Option<RunId>, runtime: &RuntimeConfig) -> TraceSource {
    TraceSource {
        version: env!("CARGO_PKG_VERSION"),
        run: run.map(|run| run.to_string()).unwrap_or_default(),
        installation: runtime.installation.to_string(),
    }
}

/// Hands the autopilot to its engine; projects that ran when an earlier engine ended go on.
async fn open_autopilot(context: &Context, engine: &Engine) {
    let home = &context.home;
    let owner =
        OwnerFiles { settings: Some(home.root().join(OWNER_FILE)), hidden_tests: Some(home.hidden_tests()) };
    let pilots = Pilots::new(engine.pilot_hands(), owner);
    engine.open_autopilot(pilots.clone());
    pilots.resume_projects().await;
}

/// Returns the runtime's part of the configuration.
fn runtime_config(context: &Context, config: &Config, store: &Store) -> Result<RuntimeConfig, Failure> {
    Ok(RuntimeConfig {
        agent: config.general.agent.clone(),
        named: named::read_named(&context.home)?,
        installation: store.installation(),
        epoch: store.blocking().epoch()?,
        posture: config.describe_posture(),
        home_uid: nix::unistd::getuid().as_raw(),
        overlays: config.overlays(),
        sent: config.sent(),
        servers: config.servers(),
        plugins: context.home.plugins(),
        access: Access::new(&config.access, &config.gate_set()?)?,
        gates: config.gate_folders(),
        server_idle: server_idle(context),
        max_parallel: config.general.max_parallel,
        begun: live::live_settings(config),
        budget: config.budget.clone(),
        time_zone: config.time_zone.clone().unwrap_or(TimeZone::UTC),
        system: texts::system_texts(context),
        first_run: texts::first_run_text(config.general.first_run),
        max_chronicle_entries: config.general.rehydration.max_chronicle_entries,
        egress: config.egress.egress_scope(&config.models),
        proxy: config.egress.proxy.clone(),
        credentials: config.egress.credentials.clone(),
        tools: config.general.tools.clone(),
        tool_review: config.general.tool_review,
        quarantine: config.quarantine.clone(),
        strict: config.general.strict,
        execution: config.general.execution,
        initiative: config.general.initiative,
        ledger: config.ledger.clone(),
        memory: memory_settings(&config.memory)?,
    })
}

/// Reads the local model of the memory, if one is configured. A folder without a usable one ends the start.
fn memory_settings(config: &MemoryConfig) -> Result<MemorySettings, Failure> {
    let local: Option<SharedEmbedder> = match &config.folder {
        Some(folder) => Some(Arc::new(LocalModel::open(folder)?)),
        None => None,
    };
    Ok(MemorySettings { config: config.clone(), local })
}

#[cfg(debug_assertions)]
fn store_config(context: &Context, config: &Config) -> Result<StoreConfig, Failure> {
    let mut store = ledger::store_config(context, &config.database())?;
    // For tests that end the process at either side of a commit.
    store.kill_point = context.env.text_of("WRIT_KILL_POINT").and_then(|point| point.parse().ok());
    store.max_pages = context.env.text_of("WRIT_MAX_PAGES").and_then(|pages| pages.parse().ok());
    Ok(store)
}

#[cfg(not(debug_assertions))]
fn store_config(context: &Context, config: &Config) -> Result<StoreConfig, Failure> {
    ledger::store_config(context, &config.database())
}

/// Returns the time after which an unused server of tools is stopped.
#[cfg(debug_assertions)]
fn server_idle(context: &Context) -> Duration {
    // For tests that wait for the end of one.
    let wanted = context.env.text_of("WRIT_MCP_IDLE_MS").and_then(|ms| ms.parse().ok());
    wanted.map_or(SERVER_IDLE, Duration::from_millis)
}

#[cfg(not(debug_assertions))]
const fn server_idle(_: &Context) -> Duration {
    SERVER_IDLE
}

/// Returns true if any model is configured, or is to be searched for.
fn wants_models(config: &Config) -> bool {
    // A provider without a model is wanted, too: the model is then found by asking it.
    let models = &config.models.models;
    models.default.is_some() || !models.roles.is_empty() || detect::is_wanted(&config.models)
}

/// The way out for everything that the engine itself sends.
fn way_out(context: &Context, config: &Config, secrets: &SecretStore) -> Result<Arc<Egress>, Failure> {
    let egress = build_egress(context, config, secrets, &context.home.runtime())?;
    if config.egress.credentials.is_empty() {
        return Ok(Arc::new(egress));
    }
    let key = secrets.authority_key(|| CertificateAuthority::generate_key().map_err(Failure::from))?;
    Ok(Arc::new(egress.with_authority(&key)?))
}

/// Builds a way out with the network's settings; its sockets lie in `runtime`.
///
/// # Errors
///
/// If the settings of the network cannot be used, or the folder.
pub(crate) fn build_egress(
    context: &Context,
    config: &Config,
    secrets: &SecretStore,
    runtime: &Path,
) -> Result<Egress, Failure> {
    // Sockets of a process that was killed are removed first.
    remove_old_folders(runtime);
    let password = |reference: &CredentialRef| credentials::proxy_password(reference, secrets, &context.env);
    let routes = config.network.build_routes(&context.env, password)?;
    let trusted = config.network.trusted_authorities(&context.env)?;
    let egress = Egress::new(&config.egress.limits, runtime)?;
    Ok(egress.with_network(routes, trusted.added, &trusted.system)?)
}

/// The models, if any is configured, or else found.
async fn build_models(
    config: &Config,
    credentials: Arc<CredentialSources>,
    egress: Arc<Egress>,
) -> Result<Option<Models>, Failure> {
    if !wants_models(config) {
        return Ok(None);
    }
    let mut config = config.models.clone();
    let found = detect::detect_model(&config, credentials.as_ref(), &egress).await;
    if let Some(found) = &found {
        tracing::info!("no model is configured; found {found}");
        found.put_into(&mut config);
    }
    match Models::new(&config, credentials, egress) {
        Ok(models) => Ok(Some(models.with_found(found.map(|found| found.to_string())))),
        Err(ModelsConfigError::MissingDefault) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Creates the search provider, if one is configured. A provider without its key ends the start.
async fn build_search(
    config: &Config,
    credentials: &Arc<CredentialSources>,
    egress: &Arc<Egress>,
) -> Result<Option<SearchClient>, Failure> {
    let keys: Arc<dyn SearchKeys> = Arc::<CredentialSources>::clone(credentials);
    let found = SearchClient::new(&config.search, keys, Arc::clone(egress))?;
    // Checked at the start: a missing key would otherwise surface in the middle of a turn.
    if let Some(search) = &found
        && let Err(error) = search.check_key().await
    {
        let text = format!("search.api_key: {error}");
        return Err(Failure::new(
            Exit::Config,
            "search.key",
            text,
            "set it, or leave the table [search] out",
        ));
    }
    Ok(found)
}

/// Removes the socket folders that an engine left behind which was killed. The caller holds the home's lock.
fn remove_old_folders(runtime: &Path) {
    let Ok(entries) = std::fs::read_dir(runtime) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with("out-") {
            // A folder that cannot be removed does no harm: new folders have new names.
            let _removed = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// The variables that a detached engine is started with: what it needs, never everything.
pub(crate) fn engine_environment(context: &Context, config: &Config) -> BTreeMap<String, String> {
    let mut names: Vec<String> = [
        "HOME",
        "PATH",
        "LANG",
        "TZ",
        "DBUS_SESSION_BUS_ADDRESS",
        "XDG_RUNTIME_DIR",
        "CREDENTIALS_DIRECTORY",
    ]
    .map(str::to_owned)
    .to_vec();
    names.extend(network::VARIABLES.map(str::to_owned));
    names.extend(variable_names(config));
    if detect::is_wanted(&config.models) {
        names.extend(detect::key_variables().map(str::to_owned));
    }
    names.extend(context.env.with_prefix("WRIT_").into_iter().map(|(name, _)| name.to_owned()));
    names
        .into_iter()
        .filter_map(|name| Some((name.clone(), context.env.text_of(&name)?.to_owned())))
        .collect()
}
