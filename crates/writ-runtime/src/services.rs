//! The services of an engine, made of the parts that are handed in.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use writ_egress::Egress;
use writ_egress::connect::SystemResolver;
use writ_egress::proxy::Proxy;
use writ_inspect::gate::GateSet;
use writ_inspect::redact::Redactor;
use writ_models::{ModelRole, Models};
use writ_plan::order::MAX_PARALLEL;
use writ_policy::rules::RuleSet;
use writ_sandbox::{Sandbox, Workspace};
use writ_search::SearchClient;
use writ_secrets::contents::ContentKey;
use writ_store::store::Store;
use writ_tools::registry::Registry;
use writ_types::unit::Timestamp;

use crate::approved::Approved;
use crate::breaker::ScorerBreaker;
use crate::clock::Clock;
use crate::coding_agent::CodingAgent;
use crate::config::{Execution, MAX_RUNNING_TURNS, RuntimeConfig};
use crate::directory::Directory;
use crate::door::{Door, DoorConfig};
use crate::error::EngineError;
use crate::estimates::Estimates;
use crate::fleet::FleetDesk;
use crate::gates::{Gates, GatesConfig};
use crate::heads::Heads;
use crate::home_files::HomeFiles;
use crate::jobs::Jobs;
use crate::journal::Journal;
use crate::keys::{EngineKeys, Keys};
use crate::live::{SettingsInForce, SettingsSource};
use crate::memories::Memories;
use crate::metrics::Metrics;
use crate::outbox::{Channel, Outbox};
use crate::passkeys::Passkeys;
use crate::pilot_desk::PilotDesk;
use crate::plan_results::PlanResults;
use crate::profile::{AgentProfile, Profiles};
use crate::reach::Hosts;
use crate::rules::{RuleFiles, Rules};
use crate::secret::SecretSource;
use crate::servers::{ServerSource, Servers};
use crate::session::Session;
use crate::session_door::SessionDoor;
use crate::sessions::Sessions;
use crate::setup::{ModelSlot, ModelSource};
use crate::work_calls::WorkCalls;

// tidy: plain state
/// The parts of an engine, made outside and handed in. A part that was forgotten is an error of the build:
///
/// ```compile_fail,E0063
/// use writ_runtime::services::EngineParts;
///
/// fn without_keys(parts: EngineParts) -> EngineParts {
///     let EngineParts { config, agents, channels, clock, store, rules, files, gates, models, setup, egress, search, tools, servers, sandbox, keys: _, .. } =
///         parts;
///     let (seal, home_files, secrets, redactor) = (parts.seal, parts.home_files, parts.secrets, parts.redactor);
///     EngineParts { config, agents, channels, clock, store, rules, files, gates, models, setup, egress, search, tools, servers, sandbox, seal, home_files, secrets, redactor }
/// }
/// ```
#[derive(Debug)]
pub struct EngineParts {
    /// Settings.
    pub config: RuntimeConfig,
    /// Agents beside the one that answers people.
    pub agents: Vec<AgentProfile>,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The store; its lock is held by the caller.
    pub store: Store,
    /// The rules in force.
    pub rules: RuleSet,
    /// The source of the rules of projects.
    pub files: Arc<dyn RuleFiles>,
    /// The gates in force.
    pub gates: GateSet,
    /// The models; `None`: none is configured.
    pub models: Option<Models>,
    /// The way in which a first model is chosen; `None`: in the configuration alone.
    pub setup: Option<Arc<dyn ModelSource>>,
    /// The way out.
    pub egress: Arc<Egress>,
    /// The web search; `None` if none is configured, and then there is no such tool.
    pub search: Option<SearchClient>,
    /// Our own tools.
    pub tools: Registry,
    /// The source of the owner's tool servers.
    pub servers: Arc<dyn ServerSource>,
    /// Ways to the owner while no client is connected.
    pub channels: Vec<Arc<dyn Channel>>,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// The keys.
    pub keys: EngineKeys,
    /// Seals what programs outside say to models, and what they are answered.
    pub seal: ContentKey,
    /// The files that the engine writes into the home.
    pub home_files: Arc<dyn HomeFiles>,
    /// The owner's settings, read again when they change.
    pub settings: Arc<dyn SettingsSource>,
    /// The source of the secrets that must not appear in any text.
    pub secrets: Arc<dyn SecretSource>,
    /// The mask for secrets; its clones, such as the log's, learn every secret that it learns.
    pub redactor: Redactor,
}

/// The services of one engine. Each owns its state and holds the services that it needs; modules above them take this as
/// a whole.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) config: Arc<RuntimeConfig>,
    pub(crate) profiles: Profiles,
    pub(crate) journal: Arc<Journal>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) passkeys: Passkeys,
    pub(crate) rules: Arc<Rules>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) reach: Arc<Hosts>,
    pub(crate) door: Arc<SessionDoor>,
    pub(crate) gates: Gates,
    pub(crate) heads: Heads,
    pub(crate) memories: Memories,
    /// The tools: our own, and those of the owner's servers.
    pub(crate) servers: Servers,
    pub(crate) outside: Outside,
    pub(crate) life: Life,
}

/// The ways to what lies outside the engine.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) directory: Directory,
    pub(crate) models: ModelSlot,
    pub(crate) egress: Arc<Egress>,
    /// The way out of sandboxes; clones share its rates.
    pub(crate) proxy: Proxy,
    pub(crate) search: Option<SearchClient>,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) secrets: Arc<dyn SecretSource>,
    /// The files that the engine writes into the home.
    pub(crate) home_files: Arc<dyn HomeFiles>,
    /// The owner's settings that may change meanwhile.
    pub(crate) settings: SettingsInForce,
    /// Seals what programs outside say to models, and what they are answered.
    pub(crate) seal: ContentKey,
}

/// The intake of messages: the places for their turns, and the task that fills them.
#[derive(Debug)]
pub(crate) struct Intake {
    /// Places for turns that run.
    pub(crate) room: Arc<Semaphore>,
    /// The task that takes messages from the queue, until the engine drains.
    dispatcher: Mutex<Option<JoinHandle<()>>>,
}

impl Intake {
    fn new(max_parallel: usize) -> Self {
        // Without a place no turn would ever begin.
        let places = max_parallel.clamp(1, MAX_RUNNING_TURNS);
        Self { room: Arc::new(Semaphore::new(places)), dispatcher: Mutex::default() }
    }
}

/// The experience with models since the start of the engine.
#[derive(Debug, Default)]
pub(crate) struct ModelExperience {
    /// How far estimates of tokens are off.
    pub(crate) estimates: Estimates,
    /// Stops asking a scorer that fails.
    pub(crate) scorer: Mutex<ScorerBreaker>,
    /// The change of the experience with routes that was stored last.
    pub(crate) stored: AtomicU64,
}

/// The life of an engine: its turns, its jobs, its clients and its end.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) started_at: Timestamp,
    /// Wakes the dispatcher: something was enqueued, or a turn has ended.
    pub(crate) wake: Notify,
    /// Ends the intake of turns and messages.
    pub(crate) draining: CancellationToken,
    /// Stops running turns at their next step; the next start takes them up again.
    pub(crate) stop_now: CancellationToken,
    pub(crate) turns: TaskTracker,
    pub(crate) turns_finished: AtomicU64,
    pub(crate) intake: Intake,
    /// What is done again and again.
    pub(crate) jobs: Arc<Jobs>,
    /// Connected clients; the engine is not idle while there are any.
    pub(crate) guests: watch::Sender<u64>,
    pub(crate) experience: ModelExperience,
    pub(crate) metrics: Arc<Metrics>,
    /// The work items that are to be looked at.
    pub(crate) work: WorkCalls,
    /// The plans on their way to a person.
    pub(crate) results: PlanResults,
    /// What was approved and is being performed.
    pub(crate) approved: Approved,
    pub(crate) desks: Desks,
}

/// The parts that lie above the engine, and are handed in once it has started.
#[derive(Debug, Default)]
pub(crate) struct Desks {
    /// The case router.
    pub(crate) fleet: OnceLock<Arc<dyn FleetDesk>>,
    /// The owner's coding agent, where there is one.
    pub(crate) coding: OnceLock<Arc<CodingAgent>>,
    /// The autopilot, until the engine ends: it holds the services in turn.
    autopilot: Mutex<Option<Arc<dyn PilotDesk>>>,
}

impl Life {
    fn new(
        journal: &Arc<Journal>,
        (now, max_parallel): (Timestamp, usize),
        (stop_now, metrics): (CancellationToken, Arc<Metrics>),
    ) -> Self {
        Self {
            started_at: now,
            wake: Notify::new(),
            draining: CancellationToken::new(),
            stop_now,
            turns: TaskTracker::new(),
            turns_finished: AtomicU64::new(0),
            intake: Intake::new(max_parallel),
            jobs: Arc::new(Jobs::new(Arc::clone(journal))),
            guests: watch::Sender::new(0),
            experience: ModelExperience::default(),
            metrics,
            work: WorkCalls::default(),
            results: PlanResults::default(),
            approved: Approved::new(Arc::clone(journal)),
            desks: Desks::default(),
        }
    }

    /// The place of the autopilot.
    pub(crate) fn autopilot(&self) -> MutexGuard<'_, Option<Arc<dyn PilotDesk>>> {
        self.desks.autopilot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of the task that takes messages from the queue.
    pub(crate) fn dispatcher(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        // A panic elsewhere cannot leave it half-written.
        self.intake.dispatcher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lanes of work items: as many as steps of one item run at once.
fn lanes(config: &RuntimeConfig) -> Vec<AgentProfile> {
    (0..MAX_PARALLEL).map(|lane| AgentProfile::step_lane(config, lane)).collect()
}

/// Returns the profiles of an engine: the one that answers people, the planner, those of the lanes and those that were handed in.
///
/// # Errors
///
/// If two agents cannot stand beside each other.
fn profiles_of(config: &RuntimeConfig, handed: Vec<AgentProfile>) -> Result<Profiles, EngineError> {
    let others = [AgentProfile::planner(config)].into_iter().chain(handed).collect();
    let profiles = Profiles::new(AgentProfile::executor(config), others, lanes(config))?;
    Ok(profiles.with_named(&config.named))
}

/// Returns the proxy that sandboxes reach the network through.
fn outside_of(
    (models, search): (ModelSlot, Option<SearchClient>),
    (egress, proxy): (Arc<Egress>, Proxy),
    (sandbox, seal): (Arc<Sandbox>, ContentKey),
    (secrets, home_files, settings): (Arc<dyn SecretSource>, Arc<dyn HomeFiles>, SettingsInForce),
) -> Outside {
    let directory = Directory;
    Outside { directory, models, egress, proxy, search, sandbox, secrets, home_files, settings, seal }
}

fn proxy_of(config: &RuntimeConfig, egress: &Egress) -> Proxy {
    let proxy = Proxy::new(config.proxy.clone(), Arc::new(SystemResolver));
    proxy.with_authority(egress.get_authority()).with_routes(egress.proxy_routes())
}

/// Our own tools, with those that need a part which is there.
fn offered_tools(
    tools: Registry,
    config: &RuntimeConfig,
    (search, models): (Option<&SearchClient>, Option<&Models>),
) -> Registry {
    let tools = if search.is_some() { tools.with_search() } else { tools };
    // Without a model of its own the oracle would be the one that is at a loss.
    let has_oracle = models.is_some_and(|models| models.has_own_route(ModelRole::Oracle));
    let tools = if has_oracle { tools.with_oracle() } else { tools };
    tools.with_quarantine(config.quarantine.clone())
}

fn gates_config(config: &RuntimeConfig) -> GatesConfig {
    GatesConfig { access: config.access.clone(), folder: config.gates.clone(), agent: config.agent.clone() }
}

impl Services {
    /// Makes the services of an engine, each from those below it.
    ///
    /// # Errors
    ///
    /// If the agents or the configuration of servers cannot stand, or the store cannot be read.
    pub(crate) async fn new(parts: EngineParts) -> Result<Self, EngineError> {
        let EngineParts { config, clock, store, rules, files, gates, models, egress, search, .. } = parts;
        let EngineParts { agents, channels, tools, servers, sandbox, keys, seal, secrets, redactor, .. } =
            parts;
        let (config, sandbox) = (Arc::new(config), Arc::new(sandbox));
        let (stop_now, metrics) = (CancellationToken::new(), Arc::new(Metrics::new()));
        let settings = SettingsInForce::new(parts.settings, config.begun.clone());
        let tools = offered_tools(tools, &config, (search.as_ref(), models.as_ref()));
        let models = ModelSlot::new(models, parts.setup);
        let servers = Servers::new(servers, tools, config.server_idle)
            .map_err(|report| EngineError::Server(Box::new(report)))?;
        let (started_at, max_parallel) = (clock.now(), config.max_parallel);
        let journal = Journal::new(store, clock, redactor, config.budget.clone()).await?;
        let journal = Arc::new(journal.with_outbox(Outbox::new(channels)?));
        let keys = Arc::new(Keys::new(Arc::clone(&journal), keys, config.installation, config.epoch));
        let rules = Arc::new(Rules::new(Arc::clone(&journal), rules, files, config.named.clone()));
        let sessions = Arc::new(Sessions::new(
            (Arc::clone(&journal), Arc::clone(&keys), Arc::clone(&rules)),
            (Arc::clone(&sandbox), config.overlays.clone()),
            stop_now.clone(),
        ));
        let reach = Arc::new(Hosts::new(Arc::clone(&journal), Arc::clone(&keys), config.egress.clone()));
        let door = Door::new(
            (Arc::clone(&journal), Arc::clone(&keys)),
            DoorConfig { strict: config.strict, planned_only: config.execution == Execution::Planned },
            Arc::clone(&metrics),
        );
        let door = Arc::new(SessionDoor {
            door,
            keys: Arc::clone(&keys),
            rules: Arc::clone(&rules),
            sessions: Arc::clone(&sessions),
            reach: Arc::clone(&reach),
        });
        let gates = Gates {
            set: gates,
            config: gates_config(&config),
            journal: Arc::clone(&journal),
            keys: Arc::clone(&keys),
            sessions: Arc::clone(&sessions),
            door: Arc::clone(&door),
            sandbox: Arc::clone(&sandbox),
            metrics: Arc::clone(&metrics),
            stop_now: stop_now.clone(),
        };
        let proxy = proxy_of(&config, &egress);
        let profiles = profiles_of(&config, agents)?;
        Ok(Self {
            passkeys: Passkeys::new(Arc::clone(&journal), Arc::clone(&keys)),
            memories: Memories::new(Arc::clone(&journal), config.memory.clone()),
            heads: Heads::new(Arc::clone(&journal), config.ledger.clone()),
            outside: outside_of(
                (models, search),
                (egress, proxy),
                (sandbox, seal),
                (secrets, parts.home_files, settings),
            ),
            life: Life::new(&journal, (started_at, max_parallel), (stop_now, metrics)),
            profiles,
            config,
            journal,
            keys,
            rules,
            sessions,
            reach,
            door,
            gates,
            servers,
        })
    }

    /// Opens the work folder of a session, once.
    ///
    /// # Errors
    ///
    /// If the sandbox cannot be used here, or the project cannot be read.
    pub(crate) async fn workspace(&self, session: &Session) -> Result<Arc<Workspace>, EngineError> {
        session.workspace(&self.outside.sandbox, &self.config.overlays, &*self.outside.home_files).await
    }

    /// Measures how many subscriptions there are.
    pub(crate) fn count_subscriptions(&self) {
        let count =
            self.sessions.loaded().values().map(|session| session.state().subscriptions.list.len()).sum();
        self.life.metrics.subscriptions(count);
    }
}
