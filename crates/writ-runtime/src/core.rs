//! What every part of the engine shares.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use ed25519_dalek::{SigningKey, VerifyingKey};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use writ_egress::Egress;
use writ_egress::connect::SystemResolver;
use writ_egress::proxy::Proxy;
use writ_models::Models;
use writ_policy::approval::Approvers;
use writ_policy::gate::GateSet;
use writ_policy::keys::grants::Grants;
use writ_policy::keys::{self, Authority, BaseClaims, TASK_KEY_TTL, TaskClaims, Token, Verifier};
use writ_policy::order::Order;
use writ_policy::redact::Redactor;
use writ_policy::rules::RuleSet;
use writ_policy::scope::{ANY, Dimension, WORK};
use writ_sandbox::Sandbox;
use writ_search::Search;
use writ_store::batch::{Batch, Op};
use writ_store::store::Store;
use writ_tools::registry::Registry;
use writ_types::action::ActionKind;
use writ_types::entry::{Entry, Fact};
use writ_types::error::{Report, ToReport};
use writ_types::id::{AskId, SessionId, TurnId};
use writ_types::unit::Timestamp;

use crate::asks::acting::Acting;
use crate::clock::{Clock, Floor, Ids};
use crate::config::{MAX_RUNNING_TURNS, RENEW_BEFORE, RuntimeConfig};
use crate::error::{EngineError, KeysError};
use crate::heads::Copied;
use crate::history::Histories;
use crate::metrics::Metrics;
use crate::passkeys::Waiting;
use crate::rules::{MAX_RULE_READS, RuleFiles};
use crate::secret::SecretSource;
use crate::servers::{ServerSource, Servers};
use crate::session::Session;
use crate::trust::Trusted;

/// The keys that the engine holds. Approver keys are not among them.
#[derive(Debug)]
pub struct EngineKeys {
    /// Signs task keys, records of messages and session approvals.
    pub harness: SigningKey,
    /// The base key of the agent.
    pub base: Token,
    /// What the base key says.
    pub base_claims: BaseClaims,
    /// The root key's public half.
    pub root: VerifyingKey,
}

impl EngineKeys {
    /// Makes the agent's base key for this run; the root key is not kept.
    ///
    /// # Errors
    ///
    /// If the key cannot be made.
    pub fn mint(
        config: &RuntimeConfig,
        rules: &RuleSet,
        root: &SigningKey,
        harness: SigningKey,
        now: Timestamp,
    ) -> Result<Self, EngineError> {
        let base_claims = BaseClaims {
            key: Ids.key(now),
            installation: config.installation,
            epoch: config.epoch,
            agent: config.agent.clone(),
            policy: rules.digest(),
            expires_at: now.plus(BASE_KEY_TTL),
            grants: base_grants(),
        };
        let base = keys::mint_base(&base_claims, root)?;
        Ok(Self { harness, base, base_claims, root: root.verifying_key() })
    }
}

/// How long a base key lives: an engine that runs longer makes a new one at its next start.
const BASE_KEY_TTL: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 60 * 60);

/// What the owner's own agent may do at all. Where, is said by each session's task key.
fn base_grants() -> Grants {
    Grants::default()
        .allow(ActionKind::Exec, [(Dimension::Profile, ANY), (Dimension::Host, ANY)])
        .allow(ActionKind::Fetch, [(Dimension::Host, ANY), (Dimension::Path, WORK)])
        .allow(ActionKind::Connect, [(Dimension::Host, ANY)])
        .allow(ActionKind::Search, [(Dimension::Host, ANY)])
        .allow(ActionKind::Plan, [])
        .allow(
            ActionKind::Subscribe,
            [(Dimension::Host, ANY), (Dimension::Path, WORK), (Dimension::Name, ANY)],
        )
        .allow(ActionKind::ReadFile, [(Dimension::Path, WORK)])
        .allow(ActionKind::WriteFile, [(Dimension::Place, ANY), (Dimension::Path, ANY)])
        .allow(ActionKind::Recall, [(Dimension::Memory, ANY)])
        .allow(ActionKind::Remember, [(Dimension::Memory, ANY)])
        .allow(ActionKind::Forget, [(Dimension::Memory, ANY)])
        .allow(ActionKind::Say, [(Dimension::Recipient, "owner")])
        .allow(ActionKind::SendFile, [(Dimension::Recipient, "owner"), (Dimension::Path, WORK)])
        .allow(ActionKind::ModelCall, [(Dimension::Provider, ANY)])
        .allow(ActionKind::CallTool, [(Dimension::Name, ANY), (Dimension::Host, ANY)])
}

/// The parts of an engine, made outside and handed in. A part that was forgotten is an error of the build:
///
/// ```compile_fail,E0063
/// use writ_runtime::core::Parts;
///
/// fn without_keys(parts: Parts) -> Parts {
///     let Parts { config, clock, store, rules, files, gates, models, egress, search, tools, servers, sandbox, keys: _, .. } =
///         parts;
///     let (secrets, redactor) = (parts.secrets, parts.redactor);
///     Parts { config, clock, store, rules, files, gates, models, egress, search, tools, servers, sandbox, secrets, redactor }
/// }
/// ```
#[derive(Debug)]
pub struct Parts {
    /// Settings.
    pub config: RuntimeConfig,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// The store; its lock is held by the caller.
    pub store: Store,
    /// The rules in force.
    pub rules: RuleSet,
    /// Where the rules of projects lie.
    pub files: Arc<dyn RuleFiles>,
    /// The gates in force.
    pub gates: GateSet,
    /// The models; `None`: none is configured.
    pub models: Option<Models>,
    /// The way out.
    pub egress: Arc<Egress>,
    /// Who searches the web; `None`: nobody is configured, and there is no such tool.
    pub search: Option<Search>,
    /// Our own tools.
    pub tools: Registry,
    /// Where the owner's servers of tools stand.
    pub servers: Arc<dyn ServerSource>,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// The keys.
    pub keys: EngineKeys,
    /// Which secrets must stand in no text.
    pub secrets: Arc<dyn SecretSource>,
    /// What masks them; its clones, such as the log's, learn what it learns.
    pub redactor: Redactor,
}

/// What every part of the engine shares.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: RuntimeConfig,
    pub(crate) clock: Arc<dyn Clock>,
    /// See [`Self::valid_now`].
    floor: Floor,
    pub(crate) ids: Ids,
    pub(crate) store: Store,
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) files: Arc<dyn RuleFiles>,
    pub(crate) rule_reads: Arc<Semaphore>,
    pub(crate) gates: GateSet,
    pub(crate) models: Option<Models>,
    pub(crate) egress: Arc<Egress>,
    /// The way out of sandboxes; clones share its rates.
    pub(crate) proxy: Proxy,
    pub(crate) search: Option<Search>,
    /// The tools: our own, and those of the owner's servers.
    pub(crate) servers: Servers,
    pub(crate) sandbox: Sandbox,
    pub(crate) keys: EngineKeys,
    pub(crate) secrets: Arc<dyn SecretSource>,
    pub(crate) redactor: Redactor,
    pub(crate) verifier: Verifier,
    pub(crate) sessions: Mutex<BTreeMap<SessionId, Arc<Session>>>,
    /// Wakes the dispatcher: something was enqueued, or a turn has ended.
    pub(crate) wake: Notify,
    pub(crate) histories: Mutex<Histories>,
    /// Places for turns that run.
    pub(crate) room: Arc<Semaphore>,
    /// No new turns and messages from here on.
    pub(crate) draining: CancellationToken,
    /// Running turns stop at their next step and are taken up again at the next start.
    pub(crate) stop_now: CancellationToken,
    pub(crate) turns: TaskTracker,
    /// The task that takes messages from the queue, until the engine drains.
    pub(crate) dispatcher: Mutex<Option<JoinHandle<()>>>,
    /// Approved asks that are being performed: their intents are open, but nothing of them is unknown.
    pub(crate) performing: Mutex<BTreeSet<AskId>>,
    /// What runs on an approval.
    pub(crate) acting: Acting,
    /// Enrolments and answers of passkeys that wait to be finished.
    pub(crate) waiting: Mutex<Waiting>,
    /// Held while an approver key is enrolled or removed.
    pub(crate) enrolling: tokio::sync::Mutex<()>,
    /// Held while a session that several clients may mean is looked for or opened: they meet in one.
    pub(crate) opening: tokio::sync::Mutex<()>,
    /// Clients that are connected; the engine is not idle while there are any.
    pub(crate) guests: watch::Sender<u64>,
    pub(crate) turns_finished: AtomicU64,
    pub(crate) metrics: Metrics,
    pub(crate) started_at: Timestamp,
    /// The hosts that are trusted, and what that was found from.
    pub(crate) trusted: Mutex<Trusted>,
    /// Which head was copied last.
    pub(crate) heads: Mutex<Option<Copied>>,
    /// Held while heads are copied.
    pub(crate) copying: tokio::sync::Mutex<()>,
}

impl Core {
    /// # Errors
    ///
    /// If what the owner says of servers cannot stand, or the store cannot be read.
    pub(crate) fn new(parts: Parts) -> Result<Self, EngineError> {
        let Parts {
            config,
            clock,
            store,
            rules,
            files,
            gates,
            models,
            egress,
            search,
            tools,
            servers,
            sandbox,
            ..
        } = parts;
        let (keys, secrets, redactor) = (parts.keys, parts.secrets, parts.redactor);
        let tools = if search.is_some() { tools.with_search() } else { tools };
        let tools = tools.with_quarantine(config.quarantine.clone());
        let servers = Servers::new(servers, tools, config.server_idle)
            .map_err(|report| EngineError::Server(Box::new(report)))?;
        let verifier = Verifier {
            root: keys.root,
            router: keys.harness.verifying_key(),
            installation: config.installation,
            epoch: config.epoch,
        };
        let proxy = Proxy::new(config.proxy.clone(), Arc::new(SystemResolver));
        Ok(Self {
            started_at: clock.now(),
            floor: Floor::new(store.not_before()?, clock.as_ref()),
            config,
            clock,
            ids: Ids,
            store,
            rules: Arc::new(rules),
            files,
            gates,
            models,
            proxy: proxy.with_authority(egress.authority()).with_routes(egress.routes()),
            egress,
            search,
            servers,
            sandbox,
            keys,
            secrets,
            redactor,
            verifier,
            sessions: Mutex::default(),
            wake: Notify::new(),
            histories: Mutex::default(),
            room: Arc::new(Semaphore::new(MAX_RUNNING_TURNS)),
            draining: CancellationToken::new(),
            stop_now: CancellationToken::new(),
            turns: TaskTracker::new(),
            dispatcher: Mutex::default(),
            rule_reads: Arc::new(Semaphore::new(MAX_RULE_READS)),
            copying: tokio::sync::Mutex::default(),
            performing: Mutex::default(),
            acting: Acting::default(),
            waiting: Mutex::default(),
            enrolling: tokio::sync::Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            guests: watch::Sender::new(0),
            turns_finished: AtomicU64::new(0),
            metrics: Metrics::new(),
            trusted: Mutex::default(),
            heads: Mutex::default(),
        })
    }

    /// The sessions in memory. A panic elsewhere cannot leave the map half-written, so poison is ignored.
    pub(crate) fn sessions(&self) -> std::sync::MutexGuard<'_, BTreeMap<SessionId, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the task that takes messages from the queue is kept.
    pub(crate) fn dispatcher(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.dispatcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is told of an error, without secrets.
    pub(crate) fn report(&self, error: &impl ToReport) -> Report {
        self.redactor.report(error.report())
    }

    /// A fact as it may be kept.
    pub(crate) fn scrubbed(&self, mut fact: Fact) -> Fact {
        for text in fact.texts_mut() {
            self.redactor.scrub(text);
        }
        fact
    }

    /// The time by which keys, asks and approvals are good; entries have the clock's.
    pub(crate) fn valid_now(&self) -> Timestamp {
        self.floor.valid(self.clock.as_ref())
    }

    /// A time on the UTC date by which the budget's day is counted.
    pub(crate) fn budget_day(&self, now: Timestamp) -> Timestamp {
        self.config.budget.date(now)
    }

    /// The authority for what the owner's authenticated word has asked for: that of the session's task key while it has
    /// time left, grants what the session grants and is not revoked; else that of a fresh one, with the entry to be
    /// written before it is used.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or the key cannot be made.
    pub(crate) fn authorise(
        &self,
        session: &Session,
        turn: Option<(TurnId, u64)>,
    ) -> Result<(Arc<Authority>, Option<Op>), EngineError> {
        let order = self.order_of(session, turn.map(|(_, number)| number))?;
        let held = session.state().authority.clone();
        if let Some(held) = held
            && held.task().grants == session.grants()
            && held.task().expires_at.since(self.valid_now()) >= RENEW_BEFORE
            && self.revoked(&held)?.is_empty()
        {
            return Ok((held, None));
        }
        let (authority, keyed) = self.minted(session, order.as_ref(), turn, "minted")?;
        Ok((Arc::new(authority), Some(keyed)))
    }

    /// Mints a task key for a session, because its owner's authenticated word came in, and verifies it.
    ///
    /// # Errors
    ///
    /// If the key cannot be made, or the ledger cannot be written.
    pub(crate) async fn grant(
        &self,
        session: &Session,
        turn: Option<(TurnId, u64)>,
    ) -> Result<Authority, EngineError> {
        self.mint(session, turn, "minted").await
    }

    /// The authority of a turn that still runs: the same one, or a fresh one where it is about to end. What was
    /// revoked, or ends with its order, is not renewed; the door says so then.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or written, or the key cannot be made.
    pub(crate) async fn renewed(
        &self,
        session: &Session,
        turn: Option<(TurnId, u64)>,
        authority: &Arc<Authority>,
    ) -> Result<Arc<Authority>, EngineError> {
        let left = authority.task().expires_at.since(self.valid_now());
        if left >= RENEW_BEFORE || !self.revoked(authority)?.is_empty() {
            return Ok(Arc::clone(authority));
        }
        let order = match self.order_of(session, None) {
            // What an order that has ended would renew ends with it.
            Err(EngineError::Keys(KeysError::Order(_))) => return Ok(Arc::clone(authority)),
            in_force => in_force?,
        };
        // In its last minutes an order has nothing to add.
        if order.is_some_and(|order| order.claims().expires_at <= authority.task().expires_at) {
            return Ok(Arc::clone(authority));
        }
        self.mint(session, turn, "renewed").await.map(Arc::new)
    }

    async fn mint(
        &self,
        session: &Session,
        turn: Option<(TurnId, u64)>,
        change: &str,
    ) -> Result<Authority, EngineError> {
        let order = self.order_of(session, None)?;
        let (authority, keyed) = self.minted(session, order.as_ref(), turn, change)?;
        self.store.commit(Batch::relaxed(vec![keyed])).await?;
        Ok(authority)
    }

    /// A fresh task key of a session, verified, and the entry to be written before it is used.
    ///
    /// # Errors
    ///
    /// If the session is closed, or the key cannot be made.
    fn minted(
        &self,
        session: &Session,
        order: Option<&Order>,
        turn: Option<(TurnId, u64)>,
        change: &str,
    ) -> Result<(Authority, Op), EngineError> {
        // Whatever is left of it, messages that wait and turns that a crash has cut off among it, acts no more; the hooks that
        // are told of its end do, outside turns.
        if turn.is_some() && session.state().closed {
            return Err(EngineError::SessionClosed(session.id));
        }
        let now = self.valid_now();
        let ends = now.plus(TASK_KEY_TTL);
        let order = order.map(Order::claims);
        let claims = TaskClaims {
            key: self.ids.key(now),
            base: self.keys.base_claims.key,
            session: session.id,
            not_before: now,
            expires_at: order.map_or(ends, |order| order.expires_at.min(ends)),
            grants: session.grants(),
            case: None,
            under: order.map(|order| order.order).into_iter().collect(),
            plan: None,
        };
        let token = keys::mint_task(&self.keys.base, &claims, &self.keys.root, &self.keys.harness)?;
        let authority = self.verifier.verify(&token)?;
        let kinds: Vec<&str> = claims.grants.kinds.keys().map(|kind| kind.as_str()).collect();
        let fact = Fact::Keyed {
            key: claims.key,
            role: "task".to_owned(),
            change: change.to_owned(),
            grants: format!("{} until {}", kinds.join(", "), claims.expires_at),
        };
        Ok((authority, self.entry(session.id, turn, fact)))
    }

    /// Appends one fact that need only survive the process.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be written.
    pub(crate) async fn append(
        &self,
        session: SessionId,
        turn: Option<(TurnId, u64)>,
        fact: Fact,
    ) -> Result<(), EngineError> {
        let entry = self.entry(session, turn, fact);
        self.store.commit(Batch::relaxed(vec![entry])).await?;
        Ok(())
    }

    /// An entry of now, as an operation.
    pub(crate) fn entry(&self, session: SessionId, turn: Option<(TurnId, u64)>, fact: Fact) -> Op {
        Op::Append(Box::new(Entry {
            at: self.clock.now(),
            session: Some(session),
            turn: turn.map(|(id, _)| id),
            turn_number: turn.map_or(0, |(_, number)| number),
            fact: self.scrubbed(fact),
        }))
    }

    /// Whose approvals count now.
    ///
    /// # Errors
    ///
    /// If the enrolled keys cannot be read.
    pub(crate) fn approvers(&self) -> Result<Approvers, EngineError> {
        let mut enrolled = BTreeMap::new();
        for key in self.store.approver_keys()? {
            let public = <[u8; 32]>::try_from(key.public_key.as_slice()).ok();
            let public = public.and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
            if let Some(public) = public.filter(|_| key.revoked_at.is_none()) {
                enrolled.insert(hex::encode(public.as_bytes()), public);
            }
        }
        let (passkeys, harness) = (self.by_credential()?, self.keys.harness.verifying_key());
        Ok(Approvers { keys: enrolled, passkeys, harness })
    }
}
