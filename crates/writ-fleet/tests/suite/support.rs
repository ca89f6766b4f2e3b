//! A fleet over a store in a temporary folder, with a clock that a test moves and agents that are real processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ed25519_dalek::SigningKey;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tempfile::TempDir;
use writ_fleet::agents::DeployedAgent;
use writ_fleet::agents::deployed::read_agent;
use writ_fleet::agents::folder::FolderPlace;
use writ_fleet::agents::manifest::{AgentFolder, MANIFEST};
use writ_fleet::agents::place::AgentsPlace;
use writ_fleet::cases::access::{CaseAccess, read_access};
use writ_fleet::cases::config::{CasesConfig, FleetAgent, ProcessLimits};
use writ_fleet::cases::ports::{
    AgentHost, AgentProcess, CaseTokenSource, GuestNames, PortFault, StartOrder, StartedAgent, TokenPair,
    WaysOut,
};
use writ_fleet::cases::router::{CaseRouter, NewCase};
use writ_inspect::redact::Redactor;
use writ_policy::budget::BudgetConfig;
use writ_policy::keys::document::read_base;
use writ_policy::keys::{BaseClaims, KeyToken, Verifier, mint_base};
use writ_runtime::case_keys::CaseKeys;
use writ_runtime::clock::{Clock, ClockWait};
use writ_runtime::journal::Journal;
use writ_runtime::keys::{EngineKeys, Keys};
use writ_store::config::StoreConfig;
use writ_store::fleet::CaseMessage;
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::{FleetReads as _, LedgerReads as _};
use writ_store::store::Store;
use writ_testbed::clock::Hand;
use writ_types::digest::Digest;
use writ_types::entry::Fact;
use writ_types::id::{InstallationId, KeyId, SessionId};
use writ_types::unit::Timestamp;

/// The end of every base key, long after the hand's time.
const FAR: &str = "2030-01-01T00:00:00Z";

#[derive(Debug)]
struct HandClock(Arc<Hand>);

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn wait(&self, now: Timestamp, _time: Duration) -> ClockWait<'_> {
        Box::pin(self.0.wait_until_moved(now))
    }
}

/// Tokens as the proxy makes them: other texts than the names.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    pub(super) closed: Mutex<Vec<String>>,
    pub(super) revoked: Mutex<Vec<KeyId>>,
    /// True while the proxy is away.
    pub(super) away: AtomicBool,
    /// True while its tokens are longer than the store takes them, so that no case can be written.
    pub(super) too_long: AtomicBool,
    /// True while the proxy refuses to search texts.
    pub(super) searches_nothing: AtomicBool,
    /// True while the proxy takes requests and never answers them.
    pub(super) hangs: AtomicBool,
    /// Texts that were to be restored.
    pub(super) restores: AtomicUsize,
    /// True while the router is killed where it next hands out a key, or passes a revocation on.
    pub(super) router_dies: Arc<AtomicBool>,
}

/// Ends whatever has called it, as a process that is killed there.
pub(super) fn die_if(router_dies: &AtomicBool) {
    if router_dies.load(Ordering::SeqCst) {
        std::panic::resume_unwind(Box::new("killed"));
    }
}

impl CaseTokenSource for Tokens {
    fn open_tokens<'a>(&'a self, names: &'a GuestNames) -> BoxFuture<'a, Result<TokenPair, PortFault>> {
        let token = |kind: &str, name: &str| {
            format!("{kind}_tk_{}", &Digest::of_bytes(name.as_bytes()).to_string()[..16])
        };
        let rest = if self.too_long.load(Ordering::SeqCst) { "x".repeat(300) } else { String::new() };
        let pair = TokenPair {
            customer_token: token("cust", &names.customer),
            case_token: format!("{}{rest}", token("case", &names.case)),
            fingerprint: Digest::of_bytes(names.customer.as_bytes()).to_string(),
        };
        async move { Ok(pair) }.boxed()
    }

    fn mask_text<'a>(&'a self, _: &'a str, text: &'a str) -> BoxFuture<'a, Result<String, PortFault>> {
        if self.hangs.load(Ordering::SeqCst) {
            return std::future::pending().boxed();
        }
        if self.searches_nothing.load(Ordering::SeqCst) {
            return async { Err(PortFault("no search".into())) }.boxed();
        }
        async move { Ok(text.replace("Ada Real", "name_tk_ada")) }.boxed()
    }

    fn restore_text<'a>(&'a self, _: &'a str, text: &'a str) -> BoxFuture<'a, Result<String, PortFault>> {
        self.restores.fetch_add(1, Ordering::SeqCst);
        if self.away.load(Ordering::SeqCst) {
            return async { Err(PortFault("away".into())) }.boxed();
        }
        async move { Ok(text.replace("name_tk_ada", "Ada Real")) }.boxed()
    }

    fn close_tokens<'a>(&'a self, case_token: &'a str) -> BoxFuture<'a, Result<(), PortFault>> {
        if self.away.load(Ordering::SeqCst) {
            return async { Err(PortFault("away".into())) }.boxed();
        }
        self.closed.lock().expect("no panic").push(case_token.to_owned());
        async { Ok(()) }.boxed()
    }

    fn revoke_keys(&self, ids: &[KeyId]) {
        die_if(&self.router_dies);
        self.revoked.lock().expect("no panic").extend(ids);
    }
}

/// Starts agents as processes of this machine, and remembers the keys that each was handed.
#[derive(Debug, Default)]
pub(super) struct Processes {
    pub(super) handed: Mutex<Vec<(String, KeyToken)>>,
    pub(super) replaced: Mutex<Vec<KeyToken>>,
    /// The keys that were revoked by the time at which a process was handed another.
    pub(super) revoked_before: Mutex<Vec<KeyId>>,
    tokens: Arc<Tokens>,
    /// What the next agent that is looked at has tried past its servers.
    pub(super) tried: Mutex<WaysOut>,
}

#[derive(Debug)]
struct OneProcess {
    _child: tokio::process::Child,
    host: Arc<Processes>,
}

impl AgentProcess for OneProcess {
    fn replace_key(&mut self, task: &KeyToken) -> Result<(), PortFault> {
        self.host.replaced.lock().expect("no panic").push(task.clone());
        let revoked = self.host.tokens.revoked.lock().expect("no panic").clone();
        self.host.revoked_before.lock().expect("no panic").extend(revoked);
        Ok(())
    }

    fn take_ways_out(&mut self) -> WaysOut {
        std::mem::take(&mut self.host.tried.lock().expect("no panic"))
    }
}

/// A host whose processes are its own.
#[derive(Debug)]
pub(super) struct Host(pub(super) Arc<Processes>);

impl AgentHost for Host {
    #[expect(clippy::disallowed_types, reason = "the test starts the agents of the router that it tests")]
    fn start_agent(&self, order: StartOrder) -> BoxFuture<'_, Result<StartedAgent, PortFault>> {
        async move {
            self.0.handed.lock().expect("no panic").push((order.agent.clone(), order.task.clone()));
            let (program, args) =
                order.command.split_first().ok_or_else(|| PortFault("no program".into()))?;
            let mut child = tokio::process::Command::new(program)
                .args(args)
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .map_err(|error| PortFault(error.to_string()))?;
            let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
            let process = Box::new(OneProcess { _child: child, host: Arc::clone(&self.0) });
            Ok(StartedAgent { input: Box::new(input), output: Box::new(output), process })
        }
        .boxed()
    }
}

/// An installation with a fleet.
pub(super) struct Fleet {
    pub(super) folder: TempDir,
    pub(super) hand: Arc<Hand>,
    pub(super) tokens: Arc<Tokens>,
    pub(super) processes: Arc<Processes>,
    pub(super) keys: CaseKeys,
    root: SigningKey,
    harness: SigningKey,
    installation: InstallationId,
}

fn start_time() -> Timestamp {
    Timestamp::from_rfc_3339("2026-03-15T14:00:00Z").expect("a time")
}

impl Fleet {
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::within(folder, Arc::new(Hand::at(start_time()))).await
    }

    /// The same installation in a process that has just started.
    pub(super) async fn restarted(self) -> Self {
        let Self { folder, hand, keys, .. } = self;
        drop(keys);
        Self::within(folder, hand).await
    }

    async fn within(folder: TempDir, hand: Arc<Hand>) -> Self {
        let (root, harness) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let store = open_store(&folder.path().join("writ.db"), &harness).await;
        let installation = InstallationId::from_parts(start_time(), 1);
        let own = BaseClaims {
            key: KeyId::from_parts(start_time(), 1),
            installation,
            epoch: 1,
            agent: "writ".into(),
            policy: Digest::of_bytes(b""),
            expires_at: Timestamp::from_rfc_3339(FAR).expect("a time"),
            grants: Default::default(),
        };
        let base = mint_base(&own, &root).expect("mints");
        let held =
            EngineKeys { harness: harness.clone(), base, base_claims: own, root: root.verifying_key() };
        let clock = Arc::new(HandClock(Arc::clone(&hand)));
        let journal = Journal::new(store, clock, Redactor::default(), BudgetConfig::default()).await;
        let journal = Arc::new(journal.expect("reads"));
        let keys = Arc::new(Keys::new(Arc::clone(&journal), held, installation, 1));
        let keys = CaseKeys::new(journal, keys);
        let tokens = Arc::new(Tokens::default());
        let processes = Arc::new(Processes { tokens: Arc::clone(&tokens), ..Processes::default() });
        Self { folder, hand, tokens, processes, keys, root, harness, installation }
    }

    /// An agent that may escalate to a manager and to people, and refunds up to this amount.
    pub(super) fn agent(&self, name: &str, most: u64, program: &[&str]) -> FleetAgent {
        let document = serde_json::json!({
            "agent": name,
            "capabilities": {
                "refund": { "max_amount": most },
                "escalate_to": ["manager", "human"],
            },
            "expires": FAR,
        });
        let document = read_base(document).expect("a document");
        let claims = BaseClaims {
            key: KeyId::from_parts(start_time(), u128::from(most) + 1_000),
            installation: self.installation,
            epoch: 1,
            agent: name.into(),
            policy: Digest::of_bytes(b"policies"),
            expires_at: document.expires,
            grants: document.grants,
        };
        FleetAgent {
            name: name.into(),
            roles: Vec::new(),
            base: mint_base(&claims, &self.root).expect("mints"),
            command: program.iter().map(|word| (*word).to_owned()).collect(),
            max_cases: 10,
            version: None,
            folder: None,
            limits: ProcessLimits::default(),
        }
    }

    /// Deploys a version of an agent into a folder of this installation, as `writ agent bless` and `deploy` do.
    pub(super) fn deploy(&self, name: &str, version: u64, program: &[&str]) -> DeployedAgent {
        let source = self.folder.path().join("source");
        std::fs::create_dir_all(&source).expect("made");
        let manifest = format!(
            "name = \"{name}\"\nversion = \"{version}\"\nprogram = {program:?}\nmax_cases = 4\n\
             [capabilities]\nrefund = {{ max_amount = 500 }}\nescalate_to = [\"human\"]\n"
        );
        std::fs::write(source.join(MANIFEST), manifest).expect("written");
        let read = AgentFolder::read_folder(&source, FolderPlace::Source).expect("reads");
        let document = read.manifest.base_document(Path::new(MANIFEST), read.manifest.ends_at(start_time()));
        let document = document.expect("a document");
        let claims = BaseClaims {
            key: KeyId::from_parts(start_time(), u128::from(version) + 10),
            installation: self.installation,
            epoch: 1,
            agent: document.agent,
            policy: read.digest(),
            expires_at: document.expires,
            grants: document.grants,
        };
        let token = mint_base(&claims, &self.root).expect("mints");
        let place = AgentsPlace::lock_folder(&self.folder.path().join("agents")).expect("locked");
        let copy = place.copy_agent(&source, &read, &token).expect("copied");
        place.put_copy(copy, &self.verifier()).expect("placed");
        read_agent(&place.home_of(name), name, &self.verifier()).expect("deployed")
    }

    pub(super) fn host(&self) -> Arc<dyn AgentHost> {
        Arc::new(Host(Arc::clone(&self.processes)))
    }

    pub(super) async fn start(&self, agents: Vec<FleetAgent>, rules: &[&str]) -> CaseRouter {
        self.start_with(agents, rules, self.host()).await
    }

    pub(super) async fn start_with(
        &self,
        agents: Vec<FleetAgent>,
        rules: &[&str],
        host: Arc<dyn AgentHost>,
    ) -> CaseRouter {
        let rules = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
        let config = CasesConfig { agents, rules, ..CasesConfig::default() };
        let tokens: Arc<dyn CaseTokenSource> = Arc::clone(&self.tokens) as Arc<dyn CaseTokenSource>;
        CaseRouter::start(self.keys.clone(), config, tokens, host).await.expect("starts")
    }

    pub(super) fn verifier(&self) -> Verifier {
        Verifier {
            root: self.root.verifying_key(),
            router: self.harness.verifying_key(),
            installation: self.installation,
            epoch: 1,
        }
    }

    pub(super) async fn access(&self, id: SessionId) -> CaseAccess {
        read_access(self.keys.store(), &id.to_string()).await.expect("reads")
    }

    /// The facts of the ledger of one kind, oldest first.
    pub(super) async fn facts(&self, event: &str) -> Vec<Fact> {
        let query = LedgerQuery { event: Some(event.into()), limit: 500, ..LedgerQuery::default() };
        let mut rows = self.keys.store().ledger_search(&query).await.expect("reads");
        rows.reverse();
        rows.iter().map(|row| row.entry().expect("known").fact).collect()
    }

    pub(super) async fn messages(&self, id: SessionId) -> Vec<CaseMessage> {
        self.keys.store().fleet_messages(id, 0, 100).await.expect("reads")
    }

    /// Waits until the messages of a case are such.
    pub(super) async fn until(&self, id: SessionId, is: impl Fn(&[CaseMessage]) -> bool) -> Vec<CaseMessage> {
        loop {
            let messages = self.messages(id).await;
            if is(&messages) {
                return messages;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until this agent or person, or none, holds the case.
    pub(super) async fn until_held(&self, id: SessionId, name: Option<&str>) {
        loop {
            let holders = self.keys.store().fleet_holders(id).await.expect("reads");
            let held = holders.iter().find(|holder| holder.until.is_none());
            if held.map(|holder| holder.holder.as_str()) == name {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// The task keys that agents were handed, by agent.
    pub(super) fn handed(&self) -> BTreeMap<String, Vec<KeyToken>> {
        let mut handed: BTreeMap<String, Vec<KeyToken>> = BTreeMap::new();
        for (agent, key) in self.processes.handed.lock().expect("no panic").iter() {
            handed.entry(agent.clone()).or_default().push(key.clone());
        }
        handed
    }
}

/// The last process's writer may still be at its end when the next one opens the store.
async fn open_store(path: &Path, harness: &SigningKey) -> Store {
    loop {
        match Store::open(&StoreConfig::new(path.to_owned()), Arc::new(harness.clone())) {
            Ok(store) => return store,
            Err(error) => {
                assert!(error.to_string().contains("lock"), "{error}");
                tokio::task::yield_now().await;
            }
        }
    }
}

pub(super) fn refund_case(message: &str) -> NewCase {
    NewCase {
        names: GuestNames {
            customer: "Ada Real".into(),
            case: "order 17".into(),
            tenant: None,
            known: BTreeMap::new(),
        },
        capability: "refund".into(),
        message: message.into(),
    }
}
