//! An engine in the test's own process, made of parts that it is handed: a clock that the test moves, a model that
//! follows its script.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use futures::future::BoxFuture;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use writ_egress::{Egress, EgressConfig};
use writ_inspect::gate::GateSet;
use writ_inspect::redact::{KnownSecret, Redactor};
use writ_models::config::{ModelTier, ModelsConfig, ProviderKind, ProviderTable};
use writ_models::credential::{CredentialError, CredentialSource};
use writ_models::{ModelRole, Models};
use writ_policy::principal::Evidence;
use writ_policy::rules::{RuleSet, RuleSource};
use writ_runtime::clock::{Clock, ClockWait};
use writ_runtime::config::{APPROVAL_TTL, DRAIN_DEADLINE, MAX_RUNNING_TURNS, RuntimeConfig};
use writ_runtime::engine::{Engine, Join, Joined};
use writ_runtime::home_files::NoHomeFiles;
use writ_runtime::keys::EngineKeys;
use writ_runtime::rules::RuleFiles;
use writ_runtime::secret::SecretSource;
use writ_runtime::services::EngineParts;
use writ_sandbox::Sandbox;
use writ_sandbox::config::SandboxConfig;
use writ_secrets::contents::ContentKey;
use writ_store::approvals::ApproverKey;
use writ_store::batch::{Batch, Op};
use writ_store::config::StoreConfig;
use writ_store::ledger::row::LedgerQuery;
use writ_store::store::Store;
use writ_testbed::clock::Hand;
use writ_testkit::model_server::{ModelServer, ParsedRequest, Reply};
use writ_tools::registry::Registry;
use writ_types::calendar::{DayTime, Recurrence};
use writ_types::credential::CredentialRef;
use writ_types::entry::{DenyReason, Entry, Fact};
use writ_types::error::{Exit, Report};
use writ_types::frame::ServerFrame;
use writ_types::id::{KeyId, SessionId};
use writ_types::taint::{Clearance, Taint};
use writ_types::unit::Timestamp;

/// The owner of the home.
pub(crate) const OWNER: Evidence = Evidence::PeerUid(4_242);
/// The time of the review of tools.
const MONTHLY: Recurrence = match DayTime::new(4, 0) {
    Some(four) => Recurrence::Monthly(1, four),
    None => Recurrence::Off,
};

/// What the clock says at first.
pub(crate) const BEGIN: Timestamp = Timestamp::from_millis(1_000_000_000_000);

/// The time that a test's hand says.
#[derive(Debug)]
pub(crate) struct Moved(pub(crate) Arc<Hand>);

impl Clock for Moved {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn wait(&self, now: Timestamp, _: Duration) -> ClockWait<'_> {
        Box::pin(self.0.wait_until_moved(now))
    }
}

/// The time, the provider and the model of most tests.
const UNPRICED: (Timestamp, &str, &str) = (BEGIN, "test", "scripted");

/// A time at which the price of this model is known: 1 December 2026.
pub(crate) const PRICED: (Timestamp, &str, &str) =
    (Timestamp::from_millis(1_796_083_200_000), "anthropic", "claude-opus-5");

/// Projects without rules of their own.
#[derive(Debug)]
struct NoFiles;

impl RuleFiles for NoFiles {
    fn of_project(&self, _: &Path) -> Result<Option<Vec<RuleSource>>, Box<Report>> {
        Ok(None)
    }

    fn of_home(&self) -> Result<Vec<RuleSource>, Box<Report>> {
        Ok(vec![RuleSource::shipped_rules()])
    }
}

/// A home without secrets.
#[derive(Debug)]
pub(crate) struct NoSecrets;

impl SecretSource for NoSecrets {
    fn known(&self) -> Result<Vec<KnownSecret>, Report> {
        Ok(Vec::new())
    }

    fn value(&self, _: &CredentialRef) -> Result<Option<SecretString>, Report> {
        Ok(None)
    }
}

impl CredentialSource for NoSecrets {
    fn resolve<'a>(&'a self, _: &'a CredentialRef) -> BoxFuture<'a, Result<SecretString, CredentialError>> {
        Box::pin(std::future::ready(Err(CredentialError::Missing)))
    }
}

/// Every memory is asked for: the cheapest action to ask about.
pub(crate) const ASK_REMEMBER: &str = r#"@id("ask-remember") @ask("Every memory is asked for.")
forbid (principal, action == Action::"remember", resource);"#;

/// The keys of the home: root, harness, approver.
pub(crate) fn keys() -> [SigningKey; 3] {
    [1, 2, 3].map(|n| SigningKey::from_bytes(&[n; 32]))
}

/// The key of the home's sealed contents.
pub(crate) fn contents() -> ContentKey {
    ContentKey::from_bytes([4; 32])
}

/// A sandbox, made before there is a runtime.
pub(crate) fn sandbox() -> Sandbox {
    let exe = Some(PathBuf::from(env!("CARGO_BIN_EXE_sandbox-helper")));
    Sandbox::start(SandboxConfig { exe, ..SandboxConfig::default() }).expect("starts")
}

/// The store of a home in `dir`.
pub(crate) fn store(dir: &Path) -> Store {
    let [_, harness, _] = keys();
    Store::open(&StoreConfig::new(dir.join("writ.db")), Arc::new(harness)).expect("opens")
}

/// The shipped rules, and the owner's beside them.
pub(crate) fn rules(own: &str) -> RuleSet {
    let own = RuleSource { origin: "own".to_owned(), text: own.to_owned(), ..RuleSource::shipped_rules() };
    RuleSet::load_rules(&[RuleSource::shipped_rules(), own]).expect("valid")
}

/// The parts of an engine in `dir`, without a model; `own` are the owner's rules.
pub(crate) fn parts(
    dir: &Path,
    clock: Arc<dyn Clock>,
    store: &Store,
    sandbox: Sandbox,
    own: &str,
) -> EngineParts {
    let [root, harness, _] = keys();
    let config = RuntimeConfig {
        named: Vec::new(),
        agent: "handed".to_owned(),
        installation: store.installation(),
        epoch: store.blocking().epoch().expect("reads"),
        posture: json!({}),
        home_uid: 4_242,
        overlays: dir.join("overlays"),
        sent: dir.join("sent"),
        memory: writ_runtime::config::MemorySettings::default(),
        credentials: Vec::new(),
        max_parallel: MAX_RUNNING_TURNS,
        begun: writ_runtime::live::ChangeableSettings { approval_ttl: APPROVAL_TTL, ..Default::default() },
        budget: Default::default(),
        time_zone: writ_types::zone::TimeZone::UTC,
        system: Vec::new(),
        first_run: String::new(),
        max_chronicle_entries: 50,
        servers: dir.join("servers"),
        plugins: dir.join("plugins"),
        quarantine: Default::default(),
        access: None,
        gates: dir.join("gates"),
        server_idle: writ_runtime::servers::SERVER_IDLE,
        egress: Default::default(),
        proxy: Default::default(),
        tools: Vec::new(),
        tool_review: MONTHLY,
        strict: false,
        execution: Default::default(),
        initiative: Default::default(),
        ledger: Default::default(),
    };
    let rules = rules(own);
    let keys = EngineKeys::mint(&config, &rules, &root, harness, clock.now()).expect("minted");
    EngineParts {
        agents: Vec::new(),
        channels: Vec::new(),
        models: None,
        setup: None,
        egress: Arc::new(Egress::new(&EgressConfig::default(), dir).expect("egress")),
        config,
        clock,
        store: store.clone(),
        rules,
        files: Arc::new(NoFiles),
        gates: GateSet::new(vec![GateSet::shipped_gate()]).expect("valid"),
        search: None,
        tools: Registry::core_tools(),
        servers: Arc::new(writ_runtime::servers::NoServers),
        sandbox,
        keys,
        seal: contents(),
        settings: Arc::new(writ_runtime::live::FixedSettings),
        home_files: Arc::new(NoHomeFiles),
        secrets: Arc::new(NoSecrets),
        redactor: Redactor::default(),
    }
}

fn copy_keys(keys: &EngineKeys) -> EngineKeys {
    EngineKeys {
        harness: keys.harness.clone(),
        base: keys.base.clone(),
        base_claims: keys.base_claims.clone(),
        root: keys.root,
    }
}

/// A running engine with a scripted model, an approver's key, and a clock that stands still.
pub(crate) struct TestEngine {
    pub(crate) clock: Arc<Hand>,
    pub(crate) store: Store,
    pub(crate) engine: Engine,
    pub(crate) server: ModelServer,
    dir: tempfile::TempDir,
    /// What the next engine of the home is made of.
    again: (EngineKeys, ModelsConfig),
    // Its tasks serve the others; dropped last.
    pub(crate) runtime: Runtime,
}

impl TestEngine {
    /// An engine whose model follows `script`, which may move the clock; `rules` are the owner's beside the shipped ones.
    pub(crate) fn new<S>(rules: &str, script: impl FnOnce(Arc<Hand>) -> S) -> Self
    where
        S: FnMut(&ParsedRequest) -> Reply + Send + 'static,
    {
        Self::after(&[], rules, script)
    }

    /// The same, where entries of these times are in its ledger already.
    pub(crate) fn after<S>(earlier: &[Timestamp], rules: &str, script: impl FnOnce(Arc<Hand>) -> S) -> Self
    where
        S: FnMut(&ParsedRequest) -> Reply + Send + 'static,
    {
        Self::build((earlier, rules), UNPRICED, |_| {}, |_| {}, script)
    }

    /// The same, whose model may read content of a clearance.
    pub(crate) fn cleared<S>(clearance: Clearance, script: impl FnOnce(Arc<Hand>) -> S) -> Self
    where
        S: FnMut(&ParsedRequest) -> Reply + Send + 'static,
    {
        let clear = |models: &mut ModelsConfig| {
            models.providers.values_mut().for_each(|provider| provider.clearance = clearance);
        };
        Self::build((&[], ""), UNPRICED, clear, |_| {}, script)
    }

    /// The same, with models of their own for some roles: `test/NAME`.
    pub(crate) fn with_roles<S>(roles: &[(ModelRole, &str)], script: impl FnOnce(Arc<Hand>) -> S) -> Self
    where
        S: FnMut(&ParsedRequest) -> Reply + Send + 'static,
    {
        let name = |models: &mut ModelsConfig| {
            models.models.roles =
                roles.iter().map(|(role, model)| (*role, format!("test/{model}"))).collect();
        };
        Self::build((&[], ""), UNPRICED, name, |_| {}, script)
    }

    /// The same, with models of their own for some roles, of parts that are changed first.
    pub(crate) fn with_roles_and<S>(
        roles: &[(ModelRole, &str)],
        change: impl FnOnce(&mut EngineParts),
        script: impl FnOnce(Arc<Hand>) -> S,
    ) -> Self
    where
        S: FnMut(&ParsedRequest) -> Reply + Send + 'static,
    {
        let name = |models: &mut ModelsConfig| {
            models.models.roles =
                roles.iter().map(|(role, model)| (*role, format!("test/{model}"))).collect();
        };
        Self::build((&[], ""), UNPRICED, name, change, script)
    }

    /// The same, with models of their own for some tiers: `test/NAME`.
    pub(crate) fn with_tiers<S>(tiers: &[(ModelTier, &str)], script: impl FnOnce(Arc<Hand>) -> S) -> Self
    where
        S: FnMut(&ParsedRequest) -> Reply + Send + 'static,
    {
        let name = |models: &mut ModelsConfig| {
            models.models.tiers =
                tiers.iter().map(|(tier, model)| (*tier, format!("test/{model}"))).collect();
        };
        Self::build((&[], ""), UNPRICED, name, |_| {}, script)
    }

    /// The same, of parts that are changed first.
    pub(crate) fn with<S>(change: impl FnOnce(&mut EngineParts), script: impl FnOnce(Arc<Hand>) -> S) -> Self
    where
        S: FnMut(&ParsedRequest) -> Reply + Send + 'static,
    {
        Self::build((&[], ""), UNPRICED, |_| {}, change, script)
    }

    /// The same, with another configuration of its models, and of parts that are changed first.
    pub(crate) fn shaped<S>(
        shape: impl FnOnce(&mut ModelsConfig),
        change: impl FnOnce(&mut EngineParts),
        script: impl FnOnce(Arc<Hand>) -> S,
    ) -> Self
    where
        S: FnMut(&ParsedRequest) -> Reply + Send + 'static,
    {
        Self::build((&[], ""), UNPRICED, shape, change, script)
    }

    /// The same, of parts that are changed first, at a time and with a model of which the price is known.
    pub(crate) fn priced<S>(
        change: impl FnOnce(&mut EngineParts),
        script: impl FnOnce(Arc<Hand>) -> S,
    ) -> Self
    where
        S: FnMut(&ParsedRequest) -> Reply + Send + 'static,
    {
        Self::build((&[], ""), PRICED, |_| {}, change, script)
    }

    fn build<S>(
        (earlier, rules): (&[Timestamp], &str),
        (begin, provider, model): (Timestamp, &str, &str),
        shape: impl FnOnce(&mut ModelsConfig),
        change: impl FnOnce(&mut EngineParts),
        script: impl FnOnce(Arc<Hand>) -> S,
    ) -> Self
    where
        S: FnMut(&ParsedRequest) -> Reply + Send + 'static,
    {
        let (dir, sandbox) = (tempfile::tempdir().expect("temp dir"), sandbox());
        let clock = Arc::new(Hand::at(begin));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let (store, engine, server, again) = runtime.block_on(async {
            let server = ModelServer::start(script(Arc::clone(&clock))).await.expect("serves");
            let store = store(dir.path());
            let [_, _, approver] = keys();
            let key = ApproverKey {
                id: KeyId::from_parts(BEGIN, 1),
                kind: "cli".to_owned(),
                label: "terminal".to_owned(),
                public_key: approver.verifying_key().as_bytes().to_vec(),
                enrolled_at: BEGIN,
                revoked_at: None,
            };
            let entry = |at: &Timestamp| {
                let fact = Fact::Checkpoint { name: "earlier".to_owned() };
                Op::Append(Box::new(Entry { at: *at, session: None, turn: None, turn_number: 0, fact }))
            };
            let ops = std::iter::once(Op::EnrollKey(key)).chain(earlier.iter().map(entry)).collect();
            store.commit(Batch::synced(ops)).await.expect("written");
            let mut parts = parts(dir.path(), Arc::new(Moved(Arc::clone(&clock))), &store, sandbox, rules);
            let mut models = ModelsConfig::default();
            models.models.default = Some(format!("{provider}/{model}"));
            let table = ProviderTable {
                kind: Some(ProviderKind::OpenAi),
                base_url: Some(server.base_url()),
                ..ProviderTable::default()
            };
            models.providers.insert(provider.to_owned(), table);
            shape(&mut models);
            let config = models;
            let models = Models::new(&config, Arc::new(NoSecrets), Arc::clone(&parts.egress));
            parts.models = Some(models.expect("models"));
            change(&mut parts);
            let again = (copy_keys(&parts.keys), config);
            (store, Engine::start(parts).await.expect("starts"), server, again)
        });
        Self { clock, store, engine, server, dir, again, runtime }
    }

    /// Ends the engine where it stands and starts another on its home, with the same keys and models.
    pub(crate) fn restarted(mut self) -> Self {
        self.engine = self.runtime.block_on(async {
            self.engine.drain(Duration::ZERO).await;
            let clock = Arc::new(Moved(Arc::clone(&self.clock)));
            let mut parts = parts(self.dir.path(), clock, &self.store, sandbox(), "");
            parts.keys = copy_keys(&self.again.0);
            let models = Models::new(&self.again.1, Arc::new(NoSecrets), Arc::clone(&parts.egress));
            parts.models = Some(models.expect("models"));
            Engine::start(parts).await.expect("starts again")
        });
        self
    }

    /// Says the first thing in a session, or in a new one, and waits for the end of the turn: how it ended, and what it said.
    pub(crate) async fn say(&self, session: Option<SessionId>, text: &str) -> (Exit, String) {
        let (_, exit, text) = self.send(session, "one", text).await;
        (exit, text)
    }

    /// Sends a message under an id in a session, or in a new one, and waits for the end of the turn. Returns the session,
    /// how the turn ended, and its answer.
    pub(crate) async fn send(
        &self,
        session: Option<SessionId>,
        id: &str,
        text: &str,
    ) -> (SessionId, Exit, String) {
        let join = Join { session, ..Join::default() };
        let mut joined = self.engine.join(OWNER, join).await.expect("joined");
        let (exit, text) = self.send_in(&mut joined, id, text).await;
        (joined.session, exit, text)
    }

    /// Sends a message in a session that the test has joined, and waits for the end of the turn. Returns how it ended, and its
    /// answer.
    pub(crate) async fn send_in(&self, joined: &mut Joined, id: &str, text: &str) -> (Exit, String) {
        let (session, text) = (joined.session, text.to_owned());
        self.engine.receive(OWNER, session, id.to_owned(), text, Taint::Owner).await.expect("stored");
        loop {
            let frame = joined.live.recv().await.expect("a frame").frame.clone();
            if let ServerFrame::Error { code, text, .. } = &frame {
                panic!("{code}: {text}");
            }
            if let ServerFrame::Message { text, exit, last: true, .. } = frame {
                return (exit, text);
            }
        }
    }

    /// What the engine answers to a question of its owner.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Result<Value, Report> {
        self.engine.call(OWNER, None, method, params).await
    }

    /// The facts of a kind, oldest first.
    pub(crate) fn facts(&self, event: &str) -> Vec<Fact> {
        let query = LedgerQuery { event: Some(event.to_owned()), limit: 100, ..LedgerQuery::default() };
        let mut rows = self.store.blocking().ledger_search(&query).expect("reads");
        rows.reverse();
        rows.iter().map(|row| row.entry().expect("kept").fact).collect()
    }

    /// The task keys and what became of them, oldest first.
    pub(crate) fn task_keys(&self) -> Vec<(KeyId, String)> {
        let of_tasks = |fact| {
            let Fact::Keyed { key, role, change, .. } = fact else { return None };
            (role == "task").then_some((key, change))
        };
        self.facts("keyed").into_iter().filter_map(of_tasks).collect()
    }

    /// What was denied, and why, oldest first.
    pub(crate) fn denials(&self) -> Vec<(&'static str, DenyReason)> {
        let denied = |fact| {
            let Fact::Denied { kind, reason, .. } = fact else { return None };
            Some((kind.as_str(), reason))
        };
        self.facts("denied").into_iter().filter_map(denied).collect()
    }

    /// The folder of its home.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Ends it.
    pub(crate) fn end(self) {
        assert!(self.runtime.block_on(self.engine.drain(DRAIN_DEADLINE)));
    }
}
