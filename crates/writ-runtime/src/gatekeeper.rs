//! The gatekeeper of programs in sandboxes: it opens hosts, asks about others, and records connections.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use writ_egress::connect::Later;
use writ_egress::credential::Credentials;
use writ_egress::gatekeeper::{Gatekeeper, NotAsked, NotRecorded};
use writ_inspect::egress::host::{HostPattern, Target};
use writ_inspect::egress::{EgressScope, WEB_PORTS};
use writ_inspect::prepared::{Prepared, Sink};
use writ_inspect::reach::asks_each_time;
use writ_store::approvals::AskState;
use writ_store::batch::Batch;
use writ_store::reads::AskReads as _;
use writ_types::action::{Action, Connect};
use writ_types::entry::{ConnectionRecord, Fact, MAX_CONNECTIONS};
use writ_types::id::AskId;
use writ_types::taint::{Label, Taint};

use crate::door::RequestContext;
use crate::error::EngineError;
use crate::passage::QuestionResult;
use crate::place::CallPlace;
use crate::reach::take_hosts;
use crate::{asks, passage, secrets};

/// Tool name under which the harness asks about a host.
const PROXY: &str = "proxy";
/// The most asks about hosts of one session that wait at once: more cannot be read in earnest.
const MAX_OPEN_ASKS: usize = 16;
/// The most asks that are looked through to count those of a session.
const MAX_ASKS_READ: usize = 1_000;

/// The gatekeeper of one piece of work: what its session may reach, and what was approved for it alone.
#[derive(Debug)]
pub(crate) struct WorkGatekeeper {
    place: CallPlace,
    granted: Mutex<Vec<HostPattern>>,
    /// Hosts that this work has asked about and that need an ask each time. `None`: it never asks about such
    /// hosts.
    asked: Option<Mutex<BTreeSet<HostPattern>>>,
    /// The secrets that this work's placeholders stand for.
    credentials: Credentials,
    /// Limits this work to its granted hosts, without asks: hosts that the session may reach stay closed to
    /// it.
    alone: bool,
}

impl WorkGatekeeper {
    /// For a program that was permitted to reach `hosts`; what is no host opens nothing. Hosts that are asked about
    /// each time, and were approved after the last program asked, are open to this one and to no other.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub(crate) async fn for_program(place: CallPlace, hosts: &[String]) -> Result<Self, EngineError> {
        let mut granted: Vec<HostPattern> = hosts.iter().filter_map(|host| host.parse().ok()).collect();
        // Trusted hosts are looked up again for each connection, because trust can be revoked; they are not granted for the whole run.
        let trusted: BTreeSet<String> =
            place.services.reach.trusted().await?.iter().map(|one| one.host.to_string()).collect();
        granted.retain(|host| !is_trusted(host, &trusted));
        granted.extend(place.services.reach.take_once(&place.session).await?);
        let credentials = secrets::credentials_of(&place.services, &place.session).await;
        let asked = Some(Mutex::default());
        Ok(Self { place, granted: Mutex::new(granted), asked, credentials, alone: false })
    }

    /// Creates the gatekeeper for a fetch; the fetch's permit opens its own host.
    pub(crate) async fn for_fetch(place: CallPlace) -> Self {
        let credentials = secrets::credentials_of(&place.services, &place.session).await;
        Self { place, granted: Mutex::default(), asked: None, credentials, alone: false }
    }

    /// For a server of tools: it reaches the hosts that its owner's file names, and no others.
    pub(crate) fn for_server(place: CallPlace, hosts: &[String]) -> Self {
        let granted = hosts.iter().filter_map(|host| host.parse().ok()).collect();
        let credentials = Credentials::default();
        Self { place, granted: Mutex::new(granted), asked: None, credentials, alone: true }
    }

    /// Returns the hosts approved for this work alone, including those approved since it began.
    fn granted(&self) -> Vec<HostPattern> {
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asked) = &self.asked {
            let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            granted.extend(take_hosts(&mut self.place.session.state().hosts.granted, |host| {
                asked.contains(host)
            }));
        }
        granted.clone()
    }

    async fn open_ask(&self, target: &Target) -> Result<AskId, NotAsked> {
        if self.alone {
            return Err(NotAsked("the file of this server does not name the host".to_owned()));
        }
        let (services, session) = (&self.place.services, &self.place.session);
        let broken = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, "no person could be asked about a host");
            NotAsked("the engine cannot ask now".to_owned())
        };
        if asks_each_time(&services.config.egress, target) {
            let Some(asked) = &self.asked else {
                return Err(NotAsked("this host is asked about each time: fetch its own URL".to_owned()));
            };
            let host = HostPattern::exact_host(target.host.clone(), Some(target.port));
            asked.lock().unwrap_or_else(PoisonError::into_inner).insert(host);
        }
        let prepared = self.prepare_connect(target);
        let hash =
            prepared.hash(services.rules.rules_of(Some(session)).digest()).map_err(|error| broken(&error))?;
        // Answered questions count too: a program that connects again and again must not ask a person each time.
        for state in [AskState::Open, AskState::Approved, AskState::Denied] {
            let asked = services.journal.store.ask_for(hash, state).await.map_err(|error| broken(&error))?;
            match asked {
                Some(_) if state == AskState::Denied => return Err(NotAsked("a person refused".to_owned())),
                Some(ask) => return Ok(ask.card.ask_id),
                None => {}
            }
        }
        let open = services
            .journal
            .store
            .asks(Some(AskState::Open), MAX_ASKS_READ)
            .await
            .map_err(|error| broken(&error))?;
        let of_session = |ask: &&writ_store::approvals::StoredAsk| {
            ask.prepared.tool == PROXY && ask.prepared.session == Some(session.id)
        };
        if open.iter().filter(of_session).count() >= MAX_OPEN_ASKS {
            return Err(NotAsked(format!("{MAX_OPEN_ASKS} hosts are asked about already")));
        }
        let standing = RequestContext {
            mode: session.mode(),
            ..RequestContext::of(&self.place.authority, self.place.spent)
        };
        match passage::pass_to_person(services, prepared, standing).await.map_err(|error| broken(&error))? {
            QuestionResult::Ask(ask) => {
                let opened =
                    asks::open_ask(services, session, *ask, "").await.map_err(|error| broken(&error))?;
                opened.map_err(NotAsked)
            }
            QuestionResult::Denied(denial) => Err(NotAsked(denial.outside_text())),
            QuestionResult::Unasked => Err(NotAsked("list the host, or keep the rule that asks".to_owned())),
        }
    }

    /// Returns the same request for the same host and port, regardless of the program that connects, so that
    /// there is one ask for it.
    fn prepare_connect(&self, target: &Target) -> Prepared {
        let (services, (host, port)) = (&self.place.services, (target.host.to_string(), target.port));
        let whom = if asks_each_time(&services.config.egress, target) {
            "one program of this session"
        } else {
            "this session"
        };
        Prepared {
            agent: services.config.agent.clone(),
            session: Some(self.place.session.id),
            turn: self.place.turn,
            turn_number: self.place.number,
            call: None,
            tool: PROXY.to_owned(),
            sinks: vec![Sink { argument: "host".to_owned(), value: format!("{host}:{port}") }],
            // Programs in a sandbox may have read anything.
            label: Label::new(Taint::External),
            bindings: Default::default(),
            idempotent: true,
            intent: format!("let {whom} connect to {host}:{port}"),
            action: Action::Connect(Connect { host, port }),
        }
    }
}

/// Returns true if every host and port that the pattern opens is trusted.
fn is_trusted(host: &HostPattern, trusted: &BTreeSet<String>) -> bool {
    match host.port() {
        Some(_) => trusted.contains(&host.to_string()),
        None => WEB_PORTS.iter().all(|port| trusted.contains(&format!("{host}:{port}"))),
    }
}

impl Gatekeeper for WorkGatekeeper {
    fn current_scope(&self) -> Later<'_, Arc<EgressScope>> {
        Box::pin(async {
            // Of the owner's settings, only those that close or pin hosts are taken over: none that opens one.
            let mut scope = if self.alone {
                let EgressScope { blocked, pins, opaque, own_addresses, .. } =
                    self.place.services.config.egress.clone();
                let registries = BTreeSet::new();
                EgressScope { blocked, pins, opaque, own_addresses, registries, ..EgressScope::default() }
            } else {
                self.place.services.reach.scope_of(&self.place.session).await
            };
            scope.granted.extend(self.granted());
            Arc::new(scope)
        })
    }

    fn credentials(&self) -> Credentials {
        self.credentials.clone()
    }

    fn ask_person<'a>(&'a self, target: &'a Target) -> Later<'a, Result<AskId, NotAsked>> {
        Box::pin(self.open_ask(target))
    }

    fn store_records<'a>(&'a self, batch: Vec<ConnectionRecord>) -> Later<'a, Result<(), NotRecorded>> {
        Box::pin(async move {
            let (services, session) = (&self.place.services, &self.place.session);
            let entries = batch.chunks(MAX_CONNECTIONS).map(|some| {
                services.journal.entry(
                    session.id,
                    self.place.at(),
                    Fact::Connected { connections: some.to_vec() },
                )
            });
            let kept = services.journal.store.commit(Batch::relaxed(entries.collect())).await;
            kept.map(|_| ()).map_err(|error| NotRecorded(error.to_string()))
        })
    }
}
