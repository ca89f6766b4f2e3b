//! What a session may reach: its scope, its asks about hosts, and the records of its connections.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use writ_egress::connect::Later;
use writ_egress::credential::Credentials;
use writ_egress::gatekeeper::{Gatekeeper, NotAsked, NotRecorded};
use writ_policy::approval::{self, ApprovalToken};
use writ_policy::egress::host::{Host, HostPattern, Scheme, Target};
use writ_policy::egress::{EgressScope, WEB_PORTS};
use writ_policy::origin::Origins;
use writ_policy::prepared::{Prepared, Sink};
use writ_policy::reach::{self, Reach, asks_each_time};
use writ_store::approvals::AskState;
use writ_store::batch::{Batch, Op};
use writ_store::ledger::row::LedgerQuery;
use writ_types::action::{Action, Connect};
use writ_types::entry::{ConnectionRecord, Fact, MAX_CONNECTIONS};
use writ_types::id::{AskId, SessionId};
use writ_types::taint::{Label, Taint};

use crate::act::Place;
use crate::core::Core;
use crate::error::EngineError;
use crate::passage::{Passage, Standing};
use crate::session::{GRANTED_HOSTS, NEW_HOSTS, Session};

/// What the harness calls itself where it asks about a host.
const PROXY: &str = "proxy";
/// The most asks about hosts of one session that wait at once: more cannot be read in earnest.
const MAX_OPEN_ASKS: usize = 16;
/// The most asks that are looked through to count those of a session.
const MAX_ASKS_READ: usize = 1_000;
/// The most hosts that a session is granted.
const MAX_GRANTED: usize = 256;
/// The most hosts that no list names and that a session reads from because the owner wrote a URL there (design 3.7).
const MAX_NEW_HOSTS: usize = 30;
/// The most messages of a session, newest first, in which owner values are looked for.
const MAX_OWNER_TEXTS: usize = 500;

/// The gatekeeper of one piece of work: what its session may reach, and what was approved for it alone.
#[derive(Debug)]
pub(crate) struct Gate {
    place: Place,
    granted: Mutex<Vec<HostPattern>>,
    /// What it has asked about and is asked about each time. `None`: it asks about no such host.
    asked: Option<Mutex<BTreeSet<HostPattern>>>,
    /// What its placeholders stand for.
    credentials: Credentials,
    /// Nothing else is reached, and nobody is asked: what the session may reach is no business of this work.
    alone: bool,
}

impl Gate {
    /// For a program that was permitted to reach `hosts`; what is no host opens nothing. Hosts that are asked about
    /// each time, and were approved after the last program asked, are open to this one and to no other.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub(crate) async fn for_program(place: Place, hosts: &[String]) -> Result<Self, EngineError> {
        let mut granted: Vec<HostPattern> = hosts.iter().filter_map(|host| host.parse().ok()).collect();
        // What is open for as long as it is trusted is looked up anew with each connection: trust can be taken back.
        let trusted: BTreeSet<String> =
            place.core.trusted()?.iter().map(|one| one.host.to_string()).collect();
        granted.retain(|host| !is_trusted(host, &trusted));
        granted.extend(place.core.take_once(&place.session).await?);
        let credentials = place.core.credentials_of(&place.session).await;
        let asked = Some(Mutex::default());
        Ok(Self { place, granted: Mutex::new(granted), asked, credentials, alone: false })
    }

    /// For a fetch, whose permit opens its own host.
    pub(crate) async fn for_fetch(place: Place) -> Self {
        let credentials = place.core.credentials_of(&place.session).await;
        Self { place, granted: Mutex::default(), asked: None, credentials, alone: false }
    }

    /// For a server of tools: it reaches the hosts that its owner's file names, and no others.
    pub(crate) fn for_server(place: Place, hosts: &[String]) -> Self {
        let granted = hosts.iter().filter_map(|host| host.parse().ok()).collect();
        let credentials = Credentials::default();
        Self { place, granted: Mutex::new(granted), asked: None, credentials, alone: true }
    }

    /// What was approved for this work alone, also since it has begun.
    fn granted(&self) -> Vec<HostPattern> {
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asked) = &self.asked {
            let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            granted.extend(take(&mut self.place.session.state().granted, |host| asked.contains(host)));
        }
        granted.clone()
    }

    async fn open_ask(&self, target: &Target) -> Result<AskId, NotAsked> {
        if self.alone {
            return Err(NotAsked("the file of this server does not name the host".to_owned()));
        }
        let (core, session) = (&self.place.core, &self.place.session);
        let broken = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, "no person could be asked about a host");
            NotAsked("the engine cannot ask now".to_owned())
        };
        if asks_each_time(&core.config.egress, target) {
            let Some(asked) = &self.asked else {
                return Err(NotAsked("this host is asked about each time: fetch its own URL".to_owned()));
            };
            let host = HostPattern::exact(target.host.clone(), Some(target.port));
            asked.lock().unwrap_or_else(PoisonError::into_inner).insert(host);
        }
        let prepared = self.wish(target);
        let hash = prepared.hash(core.rules_of(Some(session)).digest()).map_err(|error| broken(&error))?;
        for state in [AskState::Open, AskState::Approved, AskState::Denied] {
            let asked = core.store.ask_for(hash, state).map_err(|error| broken(&error))?;
            match asked {
                Some(_) if state == AskState::Denied => return Err(NotAsked("a person refused".to_owned())),
                Some(ask) => return Ok(ask.card.ask_id),
                None => {}
            }
        }
        let open = core.store.asks(Some(AskState::Open), MAX_ASKS_READ).map_err(|error| broken(&error))?;
        let of_session = |ask: &&writ_store::approvals::Ask| {
            ask.prepared.tool == PROXY && ask.prepared.session == Some(session.id)
        };
        if open.iter().filter(of_session).count() >= MAX_OPEN_ASKS {
            return Err(NotAsked(format!("{MAX_OPEN_ASKS} hosts are asked about already")));
        }
        let standing = Standing {
            authority: &self.place.authority,
            spent: self.place.spent,
            approval: None,
            task: false,
            mode: session.mode(),
            origins: None,
        };
        match core.pass(prepared, standing).await.map_err(|error| broken(&error))? {
            Passage::Ask(ask) => {
                let opened = core.open_ask(session, *ask, "").await.map_err(|error| broken(&error))?;
                opened.map_err(NotAsked)
            }
            Passage::Denied(denial) => Err(NotAsked(denial.outside())),
            // Rules that permit it without a question would have to be performed here; nobody has said so.
            Passage::Permit(_) | Passage::Simulated(_) => {
                Err(NotAsked("list the host, or keep the rule that asks".to_owned()))
            }
        }
    }

    /// The same wish for the same host and port, whatever connects: so that there is one ask for it.
    fn wish(&self, target: &Target) -> Prepared {
        let (core, (host, port)) = (&self.place.core, (target.host.to_string(), target.port));
        let whom = if asks_each_time(&core.config.egress, target) {
            "one program of this session"
        } else {
            "this session"
        };
        Prepared {
            agent: core.config.agent.clone(),
            session: Some(self.place.session.id),
            turn: self.place.turn,
            turn_number: self.place.number,
            call: None,
            tool: PROXY.to_owned(),
            sinks: vec![Sink { argument: "host".to_owned(), value: format!("{host}:{port}") }],
            // Whatever runs in a sandbox may have read anything.
            label: Label::new(Taint::External),
            bindings: Default::default(),
            idempotent: true,
            intent: format!("let {whom} connect to {host}:{port}"),
            action: Action::Connect(Connect { host, port }),
        }
    }
}

/// Whether all that a pattern opens is trusted.
fn is_trusted(host: &HostPattern, trusted: &BTreeSet<String>) -> bool {
    match host.port() {
        Some(_) => trusted.contains(&host.to_string()),
        None => WEB_PORTS.iter().all(|port| trusted.contains(&format!("{host}:{port}"))),
    }
}

impl Gatekeeper for Gate {
    fn scope(&self) -> Arc<EgressScope> {
        let mut scope = if self.alone {
            let EgressScope { blocked, pins, opaque, own_addresses, .. } =
                self.place.core.config.egress.clone();
            let registries = BTreeSet::new();
            EgressScope { blocked, pins, opaque, own_addresses, registries, ..EgressScope::default() }
        } else {
            self.place.core.scope_of(&self.place.session)
        };
        scope.granted.extend(self.granted());
        Arc::new(scope)
    }

    fn credentials(&self) -> Credentials {
        self.credentials.clone()
    }

    fn ask<'a>(&'a self, target: &'a Target) -> Later<'a, Result<AskId, NotAsked>> {
        Box::pin(self.open_ask(target))
    }

    fn record<'a>(&'a self, batch: Vec<ConnectionRecord>) -> Later<'a, Result<(), NotRecorded>> {
        Box::pin(async move {
            let (core, session) = (&self.place.core, &self.place.session);
            let entries = batch.chunks(MAX_CONNECTIONS).map(|some| {
                core.entry(session.id, self.place.at(), Fact::Connected { connections: some.to_vec() })
            });
            let kept = core.store.commit(Batch::relaxed(entries.collect())).await;
            kept.map(|_| ()).map_err(|error| NotRecorded(error.to_string()))
        })
    }
}

/// Whether an approval of a host is good for one program only, because the owner wants to be asked each time.
fn is_once(scope: &EgressScope, host: &HostPattern) -> bool {
    // What names no one port was not granted by an approval.
    let target = Target::from_authority(Scheme::Https, &host.to_string(), None);
    target.map_or(true, |target| asks_each_time(scope, &target))
}

/// Takes those out that `is_meant`.
fn take(from: &mut BTreeSet<HostPattern>, is_meant: impl Fn(&HostPattern) -> bool) -> Vec<HostPattern> {
    let (taken, left): (Vec<_>, Vec<_>) = std::mem::take(from).into_iter().partition(is_meant);
    from.extend(left);
    taken
}

impl Core {
    /// What a session may reach: the owner's lists, the hosts that the owner trusts, and those that it was granted for as
    /// long as it lives.
    pub(crate) fn scope_of(&self, session: &Session) -> EgressScope {
        let mut scope = self.config.egress.clone();
        match self.trusted() {
            Ok(trusted) => scope.trusted.extend(trusted.iter().map(|trusted| trusted.host.clone())),
            Err(error) => tracing::warn!(%error, "the trusted hosts cannot be read: each is asked about"),
        }
        let state = session.state();
        let granted = state.granted.iter().filter(|host| !is_once(&self.config.egress, host));
        scope.granted.extend(granted.cloned());
        scope
    }

    /// Grants a session a host: for as long as it lives, or to its next program, where the owner wants to be asked each
    /// time. The latter is forgotten when the engine ends.
    ///
    /// # Errors
    ///
    /// If the store cannot be written. The inner error is in words: what is wrong with the host.
    pub(crate) async fn grant_host(
        &self,
        session: &Session,
        connect: &Connect,
    ) -> Result<Result<(), String>, EngineError> {
        let Ok(host) = connect.host.parse::<Host>() else {
            return Ok(Err(format!("'{}' is no host", connect.host)));
        };
        let _one_at_a_time = session.granting.lock().await;
        let host = HostPattern::exact(host, Some(connect.port));
        // Open everywhere for as long as it is trusted, and no longer here than there.
        if self.trusted()?.iter().any(|trusted| trusted.host == host) {
            return Ok(Ok(()));
        }
        let mut granted = session.state().granted.clone();
        granted.insert(host.clone());
        if granted.len() > MAX_GRANTED {
            return Ok(Err(format!("this session has {MAX_GRANTED} hosts already: list some of them")));
        }
        self.keep_granted(session, &granted).await?;
        // Inserted, not replaced: a program may have taken one meanwhile.
        session.state().granted.insert(host);
        Ok(Ok(()))
    }

    /// Writes down what a session was granted for as long as it lives. What is good once is left out: kept, it would be
    /// good once more after each restart.
    async fn keep_granted(
        &self,
        session: &Session,
        granted: &BTreeSet<HostPattern>,
    ) -> Result<(), EngineError> {
        let kept = granted.iter().filter(|host| !is_once(&self.config.egress, host));
        let texts: Vec<serde_json::Value> = kept.map(|host| host.to_string().into()).collect();
        let (key, value) = (GRANTED_HOSTS.to_owned(), Some(texts.into()));
        let op = Op::SetSessionMetadata { session: session.id, key, value };
        self.store.commit(Batch::synced(vec![op])).await?;
        Ok(())
    }

    /// Takes what was approved for one program. Written first: some may have been granted for good, before the owner
    /// wanted to be asked each time.
    async fn take_once(&self, session: &Session) -> Result<Vec<HostPattern>, EngineError> {
        let _one_at_a_time = session.granting.lock().await;
        let granted = session.state().granted.clone();
        if !granted.iter().any(|host| is_once(&self.config.egress, host)) {
            return Ok(Vec::new());
        }
        self.keep_granted(session, &granted).await?;
        Ok(take(&mut session.state().granted, |host| is_once(&self.config.egress, host)))
    }

    /// Notes that a session reads from a host that no list names.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub(crate) async fn note_new_host(&self, session: &Session, host: String) -> Result<(), EngineError> {
        let _one_at_a_time = session.granting.lock().await;
        let mut hosts = session.state().new_hosts.clone();
        if hosts.len() >= MAX_GRANTED || !hosts.insert(host) {
            return Ok(());
        }
        let texts: Vec<serde_json::Value> = hosts.iter().map(|host| host.as_str().into()).collect();
        let (key, value) = (NEW_HOSTS.to_owned(), Some(texts.into()));
        let op = Op::SetSessionMetadata { session: session.id, key, value };
        self.store.commit(Batch::relaxed(vec![op])).await?;
        session.state().new_hosts = hosts;
        Ok(())
    }

    /// Whether a fetch would be from one host too many that no list names: the owner has pasted a list of links, or
    /// somebody else has.
    fn is_one_too_many(&self, action: &Action, session: SessionId) -> Result<bool, EngineError> {
        let session = self.session(session)?;
        let scope = self.scope_of(&session);
        let unlisted = reach::of(action, &scope) == Reach::Unknown;
        let state = session.state();
        let known = url_of(action)
            .and_then(|url| Target::from_url(url).ok())
            .is_some_and(|to| state.new_hosts.contains(&to.host.to_string()));
        Ok(unlisted && !known && state.new_hosts.len() >= MAX_NEW_HOSTS)
    }

    /// What the arguments of an action may be made of: `known`, if the conversation has been looked through already.
    /// Nothing for what stays inside, and for one host too many.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be read.
    pub(crate) fn origins_of<'a>(
        &self,
        prepared: &Prepared,
        known: Option<&'a Origins>,
    ) -> Result<Cow<'a, Origins>, EngineError> {
        let (reads, searches) =
            (url_of(&prepared.action).is_some(), matches!(prepared.action, Action::Search(_)));
        let Some(session) = prepared.session else { return Ok(Cow::default()) };
        if reads && self.is_one_too_many(&prepared.action, session)? {
            return Ok(Cow::default());
        }
        match known {
            Some(known) => Ok(Cow::Borrowed(known)),
            None if reads || searches => Ok(Cow::Owned(self.owner_origins(session)?)),
            None => Ok(Cow::default()),
        }
    }

    /// Whether everything that says where an action leads stands in what the owner wrote in its session.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be read.
    pub(crate) fn is_owned(&self, prepared: &Prepared) -> Result<bool, EngineError> {
        let origins = self.origins_of(prepared, None)?;
        Ok(!prepared.sinks.is_empty() && origins.foreign(&prepared.sinks, &[]).is_none())
    }

    /// What the owner wrote and endorsed in a session.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be read.
    pub(crate) fn owner_origins(&self, session: SessionId) -> Result<Origins, EngineError> {
        let mut origins = Origins::new(self.owner_texts(session)?);
        let approvers = self.approvers()?;
        for (ask, token) in self.store.endorsements(Some(session))? {
            let Ok(token) = serde_json::from_value::<ApprovalToken>(token) else { continue };
            // As it was when it was given, by a key that still counts, in the present epoch.
            let checked = approval::verify(&token, &self.expected(&ask)?, &approvers, token.claims.issued_at);
            if checked.is_ok() && token.claims.values {
                origins.endorse(ask.prepared.sinks.into_iter().map(|sink| sink.value));
            }
        }
        Ok(origins)
    }

    /// What the owner wrote in a session, newest first.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be read.
    pub(crate) fn owner_texts(&self, session: SessionId) -> Result<Vec<String>, EngineError> {
        let query = LedgerQuery {
            event: Some("received".to_owned()),
            session: Some(session),
            limit: MAX_OWNER_TEXTS,
            ..LedgerQuery::default()
        };
        let texts = self.store.ledger_search(&query)?.into_iter().filter_map(|row| {
            let Fact::Received { record, text, .. } = row.entry()?.fact else { return None };
            (record.taint == Taint::Owner).then_some(text)
        });
        Ok(texts.collect())
    }
}

/// The URL that an action reads from, now or turn by turn.
fn url_of(action: &Action) -> Option<&str> {
    if let Action::Fetch(fetch) = action {
        return Some(&fetch.url);
    }
    if let Action::Subscribe(subscribe) = action { subscribe.url() } else { None }
}
