//! One request, from its keys to its answer.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ed25519_dalek::SigningKey;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;
use writ_inspect::redact::Redactor;
use writ_inspect::scope::Dimension;
use writ_operations::{Operation, OperationSet, Targets};
use writ_policy::budget::BudgetConfig;
use writ_policy::keys::grants::Grants;
use writ_policy::keys::{Authority, BaseClaims, mint_base};
use writ_policy::rules::{Authorship, RuleSet, RuleSource};
use writ_runtime::clock::{Clock, Ids};
use writ_runtime::door::{Door, DoorConfig};
use writ_runtime::journal::Journal;
use writ_runtime::keys::{EngineKeys, Keys};
use writ_store::batch::{Batch, Op};
use writ_store::store::Store;
use writ_types::action::ActionKind;
use writ_types::digest::Digest;
use writ_types::entry::{DenyReason, Entry, Fact, Requester};
use writ_types::id::{AttemptId, SessionId};

use crate::cases::Cases;
use crate::config::AgentConfig;
use crate::error::ProxyError;
use crate::events::{EventMeasure, EventRing, EventSubject};
use crate::keys::KeyCheck;
use crate::refusal::{ProxyRefusal, status};
use crate::secret::ProxySecret;
use crate::settle::settle_open;
use crate::trust::Trust;
use crate::unproven::UnprovenCount;

pub use admission::{Admission, FEW_AT_ONCE, MANY_AT_ONCE, MAX_AT_ONCE};
use admission::{BusyAgent, BusyPlace};

mod admission;

mod decide;

mod perform;

mod router;

/// The rules of the proxy's door: what the keys grant is permitted, and nothing else is.
const RULES: &str = r#"@id("operate") permit (principal, action == Action::"operate", resource);"#;
/// The longest name of an operation, in bytes.
const MAX_OPERATION_BYTES: usize = 128;

/// The parts that a proxy is made of.
#[derive(Debug)]
pub struct ProxyParts {
    /// Its own store, which nothing else writes.
    pub store: Store,
    /// The key that signs its ledger.
    pub signer: SigningKey,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The secret of its tokens.
    pub secret: ProxySecret,
    /// The installation of the accepted keys.
    pub trust: Trust,
    /// The folder with the operations.
    pub operations: PathBuf,
    /// The ways to databases, interfaces and mail.
    pub targets: Targets,
    /// The users that agents run as.
    pub agents: BTreeMap<String, AgentConfig>,
}

/// The other end of a connection, as far as the system names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine, of a user.
    Local(u32),
    /// A connection over TLS.
    Remote,
}

/// A request.
#[derive(Clone, Debug)]
pub struct ProxyRequest {
    /// The other end of its connection.
    pub peer: Peer,
    /// The base key, as text.
    pub base: Option<String>,
    /// The task key, as text.
    pub task: Option<String>,
    /// The name under which it is performed once.
    pub once: Option<String>,
    /// The operation.
    pub operation: String,
    /// The body, or why there is none that can be read.
    pub body: Result<Vec<u8>, String>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxyAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body, as JSON.
    pub body: Value,
}

/// The end of a request that is not performed.
enum RequestEnd {
    /// It is refused, and that is to be recorded.
    Refused(ProxyRefusal),
    /// The door has recorded the refusal.
    Recorded(ProxyRefusal),
    /// It is answered with an earlier outcome.
    Served(AttemptId, Value),
    /// Something cannot be read or written, so nothing is performed.
    Broken(ProxyError),
}

impl<E: Into<ProxyError>> From<E> for RequestEnd {
    fn from(error: E) -> Self {
        Self::Broken(error.into())
    }
}

impl From<ProxyRefusal> for RequestEnd {
    fn from(refusal: ProxyRefusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The security proxy. Clones share it.
#[derive(Clone, Debug)]
pub struct Proxy {
    state: Arc<ProxyState>,
}

#[derive(Debug)]
pub(crate) struct ProxyState {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) secret: Arc<ProxySecret>,
    pub(crate) redactor: Redactor,
    pub(crate) cases: Cases,
    pub(crate) events: EventRing,
    journal: Arc<Journal>,
    door: Door,
    pub(crate) rules: Arc<RuleSet>,
    keys: KeyCheck,
    declared: DeclaredOperations,
    pub(crate) targets: Targets,
    agents: BTreeMap<String, AgentConfig>,
    /// Requests that are under way, of each agent in each case.
    busy: Mutex<BTreeMap<BusyAgent, usize>>,
    /// Operations that run: a client that leaves does not end them.
    running: TaskTracker,
}

/// The operations in force, and the folder that they are read from.
#[derive(Debug)]
struct DeclaredOperations {
    folder: PathBuf,
    set: RwLock<Arc<OperationSet>>,
}

impl Proxy {
    /// Opens the proxy: what was cut off by its last end is recorded as unknown before the first request.
    ///
    /// # Errors
    ///
    /// If the store cannot be used, or an operation is malformed.
    pub async fn open(parts: ProxyParts) -> Result<Self, ProxyError> {
        let operations = load_operations(&parts.operations)?;
        for (operation, target) in parts.targets.find_missing(&operations) {
            tracing::warn!(
                operation,
                target,
                "the target of an operation is not configured; it cannot be performed"
            );
        }
        let rules = RuleSource { origin: "proxy".into(), authorship: Authorship::Home, text: RULES.into() };
        let rules = Arc::new(RuleSet::load_rules(&[rules])?);
        let redactor = Redactor::default();
        let clock = Arc::clone(&parts.clock);
        let journal =
            Journal::new(parts.store.clone(), clock, redactor.clone(), BudgetConfig::default()).await?;
        let journal = Arc::new(journal);
        let keys = own_keys(&parts, &journal, rules.digest())?;
        let secret = Arc::new(parts.secret);
        let state = ProxyState {
            events: EventRing::new(parts.clock.now()),
            cases: Cases::new(parts.store.clone(), Arc::clone(&secret)),
            door: Door::alone(Arc::clone(&journal), Arc::new(keys), DoorConfig::default()),
            keys: KeyCheck::new(parts.trust),
            store: parts.store,
            clock: parts.clock,
            secret,
            redactor,
            journal,
            rules,
            declared: DeclaredOperations { folder: parts.operations, set: RwLock::new(Arc::new(operations)) },
            targets: parts.targets,
            agents: parts.agents,
            busy: Mutex::new(BTreeMap::new()),
            running: TaskTracker::new(),
        };
        settle_open(&state.store, state.clock.as_ref()).await?;
        Ok(Self { state: Arc::new(state) })
    }

    /// Serves a request for an operation, to its end also if the client leaves.
    pub async fn operate(&self, request: ProxyRequest) -> ProxyAnswer {
        match self.admit(&request).await {
            Ok(admission) => self.operate_admitted(request, admission).await,
            Err(refused) => refused,
        }
    }

    /// Checks the keys of a request and takes its place among those of its agent, before its body is read: an agent with
    /// bodies that do not come has its share of open requests, and others have theirs.
    ///
    /// # Errors
    ///
    /// The answer to a request that is refused, which is recorded by then.
    pub async fn admit(&self, request: &ProxyRequest) -> Result<Admission, ProxyAnswer> {
        let (state, head) =
            (Arc::clone(&self.state), ProxyRequest { body: Ok(Vec::new()), ..request.clone() });
        let task = self.state.running.spawn(async move { state.admit_request(&head).await });
        task.await.unwrap_or_else(|_| Err(admission::answer_cut_off()))
    }

    /// Serves a request that was admitted, to its end also if the client leaves.
    pub async fn operate_admitted(&self, request: ProxyRequest, admission: Admission) -> ProxyAnswer {
        // In a task of its own: a permit that is dropped on its way would leave an intent without an outcome.
        let state = Arc::clone(&self.state);
        let task = self.state.running.spawn(async move { state.serve_request(request, admission).await });
        task.await.unwrap_or_else(|_| perform::unknown_answer())
    }

    /// Lists the operations that the keys of a request grant.
    pub async fn list_operations(&self, request: ProxyRequest) -> ProxyAnswer {
        let state = &self.state;
        let mut requester = Requester { operation: "operations".to_owned(), ..Requester::default() };
        let authority = match state.identify_agent(&request, &mut requester).await {
            Ok((authority, _)) => authority,
            Err(stop) => return state.answer_end(requester, request.peer, stop).await,
        };
        let operations = state.operations();
        let granted = operations.iter().filter(|operation| is_granted(&authority, operation.name()));
        let listed: Vec<Value> = granted.map(describe_operation).collect();
        let body = json!({ "operations": listed });
        // Each leaves an entry, so each counts.
        if let Some(subject) = state.find_subject(&requester).await {
            state.count_events(&subject, &[(EventMeasure::Requests, 1)]);
        }
        let served = Fact::Served { requester: Box::new(requester), attempt: None };
        match state.record_fact(served, None).await {
            Ok(()) => ProxyAnswer { status: 200, body },
            Err(error) => answer_unwritable(&error),
        }
    }

    /// Refuses a request that asks for no operation. It leaves an entry and counts, like each request.
    pub async fn refuse_path(&self, request: ProxyRequest, status: u16, error: &str) -> ProxyAnswer {
        let mut requester = Requester { operation: plain_name(&request.operation), ..Requester::default() };
        let stop = match self.state.identify_agent(&request, &mut requester).await {
            Ok(_) => ProxyRefusal::refuse_path(status, error).into(),
            Err(stop) => stop,
        };
        self.state.answer_end(requester, request.peer, stop).await
    }

    /// Reads the operations again. Those in force stay if one is malformed.
    ///
    /// # Errors
    ///
    /// What is malformed.
    pub fn reload_operations(&self) -> Result<(), ProxyError> {
        let declared = &self.state.declared;
        let operations = Arc::new(load_operations(&declared.folder)?);
        *declared.set.write().unwrap_or_else(PoisonError::into_inner) = operations;
        Ok(())
    }

    /// Waits until no operation runs, and records what was only counted.
    pub async fn drain(&self) {
        self.state.running.close();
        self.state.running.wait().await;
        self.state.record_unproven(self.state.keys.unproven.take_all()).await;
    }
}

/// Loads the operations of a folder; of several defects the first is reported.
fn load_operations(folder: &std::path::Path) -> Result<OperationSet, ProxyError> {
    OperationSet::load(folder).map_err(|errors| {
        let first = errors.into_iter().next();
        first.map_or_else(
            || ProxyError::Name("operations"),
            |error| ProxyError::Operation {
                file: error.file,
                line: error.line,
                what: error.what,
                hint: error.hint,
            },
        )
    })
}

/// Makes the keys that the door wants of its installation. They grant nothing.
fn own_keys(parts: &ProxyParts, journal: &Arc<Journal>, policy: Digest) -> Result<Keys, ProxyError> {
    let now = parts.clock.now();
    let installation = parts.trust.installation();
    let base_claims = BaseClaims {
        key: Ids.key(now),
        installation,
        epoch: 0,
        agent: "proxy".to_owned(),
        policy,
        expires_at: now,
        grants: Grants::default(),
    };
    let held = EngineKeys {
        base: mint_base(&base_claims, &parts.signer)?,
        base_claims,
        root: parts.signer.verifying_key(),
        harness: parts.signer.clone(),
    };
    Ok(Keys::new(Arc::clone(journal), held, installation, 0))
}

/// Describes an operation to an agent: its name and parameters, not what it does.
fn describe_operation(operation: &Operation) -> Value {
    let parameters: Vec<&str> = operation.parameters().map(|(name, _)| name).collect();
    json!({ "name": operation.name(), "description": operation.description(), "parameters": parameters })
}

fn is_granted(authority: &Authority, operation: &str) -> bool {
    [&authority.base().grants, &authority.task().grants]
        .iter()
        .all(|grants| grants.covers_value(ActionKind::Operate, Dimension::Name, operation))
}

/// Returns the name of an operation as it may stand in the ledger.
fn plain_name(name: &str) -> String {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if plain && name.len() <= MAX_OPERATION_BYTES { name.to_owned() } else { "?".to_owned() }
}

/// Answers where the ledger cannot be written: nothing was performed.
fn answer_unwritable(error: &ProxyError) -> ProxyAnswer {
    tracing::error!(%error, "a request was refused, since the ledger or the revocations cannot be used");
    ProxyAnswer {
        status: status::UNAVAILABLE,
        body: json!({ "error": "the ledger cannot be used; nothing was performed" }),
    }
}

/// Returns the entry about a refusal.
fn refusal_fact(refusal: &ProxyRefusal, requester: Box<Requester>) -> Fact {
    Fact::Denied {
        prepared: None,
        kind: ActionKind::Operate,
        reason: refusal.reason,
        rule: refusal.rule.clone(),
        text: refusal.text.clone(),
        outside: refusal.error.clone(),
        requester: Some(requester),
    }
}

impl ProxyState {
    pub(crate) fn operations(&self) -> Arc<OperationSet> {
        Arc::clone(&self.declared.set.read().unwrap_or_else(PoisonError::into_inner))
    }

    async fn admit_request(self: &Arc<Self>, request: &ProxyRequest) -> Result<Admission, ProxyAnswer> {
        let mut requester = Requester { operation: plain_name(&request.operation), ..Requester::default() };
        match self.identify_agent(request, &mut requester).await {
            Ok((authority, place)) => {
                Ok(Admission { authority, place, requester, since: self.clock.elapsed() })
            }
            Err(stop) => Err(self.answer_end(requester, request.peer, stop).await),
        }
    }

    async fn serve_request(self: &Arc<Self>, request: ProxyRequest, admission: Admission) -> ProxyAnswer {
        let mut requester = admission.requester.clone();
        match self.grant_request(&request, &mut requester, admission).await {
            Ok(granted) => {
                self.count_events(&granted.subject, &[(EventMeasure::Requests, 1)]);
                self.perform_granted(granted).await
            }
            Err(stop) => self.answer_end(requester, request.peer, stop).await,
        }
    }

    /// Counts what an agent did.
    pub(crate) fn count_events(&self, subject: &EventSubject, counts: &[(EventMeasure, u64)]) {
        self.events.add_events(self.clock.now(), subject, counts);
    }

    /// Returns who asked, as far as verified keys name an agent.
    async fn find_subject(&self, requester: &Requester) -> Option<EventSubject> {
        if requester.agent.is_empty() {
            return None;
        }
        let case_token = requester.data.get(1).cloned().unwrap_or_default();
        // Without its case, or where it cannot be read, the request still counts for its agent.
        let case = self.cases.find_case(&case_token).await.ok().flatten();
        let customer = case.map(|case| case.fingerprint.clone()).unwrap_or_default();
        Some(EventSubject { agent: requester.agent.clone(), case_token, customer })
    }

    /// Writes one entry of the decision about a request.
    async fn record_fact(&self, fact: Fact, session: Option<SessionId>) -> Result<(), ProxyError> {
        let entry = self.make_entry(fact, session);
        self.store.commit(Batch::relaxed(vec![entry])).await?;
        Ok(())
    }

    pub(crate) fn make_entry(&self, mut fact: Fact, session: Option<SessionId>) -> Op {
        for text in fact.texts_mut() {
            self.redactor.scrub_text(text);
        }
        Op::Append(Box::new(Entry { at: self.clock.now(), session, turn: None, turn_number: 0, fact }))
    }

    /// Counts a request that does not prove who asks. Returns true if it is to have an entry of its own.
    async fn has_entry(&self, peer: Peer) -> bool {
        self.record_unproven(self.keys.unproven.take_ended(self.clock.now())).await;
        self.keys.unproven.count_request(peer)
    }

    /// Records how many requests were only counted. Nothing rests on that, so nothing is refused if it cannot be written.
    async fn record_unproven(&self, counts: Vec<UnprovenCount>) {
        for one in counts {
            let (rule, text) = ("key.more".to_owned(), one.text());
            let refusal = ProxyRefusal {
                status: status::UNPROVEN,
                error: text.clone(),
                reason: DenyReason::Binding,
                rule,
                text,
            };
            if let Err(error) = self.record_fact(refusal_fact(&refusal, Box::default()), None).await {
                tracing::error!(%error, text = refusal.text, "refused requests could not be recorded");
            }
        }
    }

    /// Records why a request is not performed, and answers it.
    async fn answer_end(&self, requester: Requester, peer: Peer, stop: RequestEnd) -> ProxyAnswer {
        let counts: &[(EventMeasure, u64)] = match &stop {
            RequestEnd::Refused(_) | RequestEnd::Recorded(_) => {
                &[(EventMeasure::Requests, 1), (EventMeasure::Refused, 1)]
            }
            RequestEnd::Served(..) => &[(EventMeasure::Requests, 1)],
            RequestEnd::Broken(_) => &[],
        };
        if !counts.is_empty()
            && let Some(subject) = self.find_subject(&requester).await
        {
            self.count_events(&subject, counts);
        }
        let answer = |refusal: &ProxyRefusal| ProxyAnswer {
            status: refusal.status,
            body: json!({ "error": refusal.error }),
        };
        let requester = Box::new(requester);
        let (fact, answer) = match stop {
            RequestEnd::Recorded(refusal) => return answer(&refusal),
            RequestEnd::Broken(error) => return answer_unwritable(&error),
            RequestEnd::Served(attempt, mut body) => {
                if let Some(fields) = body.as_object_mut() {
                    fields.insert("repeated".to_owned(), Value::Bool(true));
                }
                let fact = Fact::Served { requester, attempt: Some(attempt) };
                (fact, ProxyAnswer { status: 200, body })
            }
            RequestEnd::Refused(refusal) => {
                if refusal.status == status::UNPROVEN && !self.has_entry(peer).await {
                    return answer(&refusal);
                }
                (refusal_fact(&refusal, requester), answer(&refusal))
            }
        };
        match self.record_fact(fact, None).await {
            Ok(()) => answer,
            Err(error) => answer_unwritable(&error),
        }
    }
}
