//! The trust ledger: hosts with a lasting approval by the owner. It is not a separate list but follows from
//! the signed approvals.

use std::sync::{Arc, MutexGuard, PoisonError};

use serde_json::Value;
use writ_inspect::egress::host::{HostPattern, Scheme, Target};
use writ_inspect::egress::{EgressScope, Judgement, WEB_PORTS, judge_connection};
use writ_inspect::{reach, show};
use writ_policy::approval::{self, ApprovalToken};
use writ_policy::door::Ask;
use writ_store::approvals::StoredAsk as AskRow;
use writ_store::reads::AskReads as _;
use writ_types::api::approval::{ApprovalInForce, HostApproval, HostList};
use writ_types::entry::{ApprovalScope, Risk};
use writ_types::id::{AskId, SessionId};
use writ_types::unit::Timestamp;

use crate::error::EngineError;
use crate::reach::Hosts;
use crate::session::Session;

/// The most trusted hosts; a longer list could not be overseen.
const MAX_TRUSTED: usize = 256;

/// A host that the owner trusts.
#[derive(Clone, Debug)]
pub(crate) struct TrustedHost {
    /// The host, with its port.
    pub(crate) host: HostPattern,
    ask: AskId,
    session: Option<SessionId>,
    intent: String,
    risk: Risk,
    by: String,
    at: Timestamp,
}

impl TrustedHost {
    /// As an approval that is in force, for people.
    pub(crate) fn in_force(&self) -> ApprovalInForce {
        ApprovalInForce {
            ask_id: self.ask.clone(),
            session: self.session,
            scope: ApprovalScope::Host.as_str().to_owned(),
            covers: reach::describe_trust(&self.host.to_string()),
            intent: show::escape_line(&self.intent),
            risk: self.risk,
            by: self.by.clone(),
            uses_left: None,
            total_left: None,
            expires_at: None,
            key: None,
            counts: None,
        }
    }
}

/// The trusted hosts, as they were last found.
#[derive(Debug, Default)]
pub(crate) struct Trusted {
    /// The store's version of what people have approved, as it was before they were found; `None`: they are found anew.
    version: Option<u64>,
    /// The answered asks and the valid keys that `hosts` was computed from.
    from: (Vec<AskId>, Vec<String>),
    hosts: Arc<Vec<TrustedHost>>,
}

impl Hosts {
    /// Returns the hosts that the owner trusts, each once, the latest first: those with an approval that
    /// counts now, by a key that is still enrolled, in the present epoch. Signatures are checked again only
    /// after approvals or keys have changed.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn trusted(&self) -> Result<Arc<Vec<TrustedHost>>, EngineError> {
        // Before anything is read: what is approved meanwhile is another version.
        let version = self.journal.store.consent_version();
        if let Some(hosts) = self.known_hosts(version) {
            return Ok(hosts);
        }
        let rows = self.journal.store.trusted_host_answers().await?;
        let approvers = self.keys.approvers().await?;
        let asks = rows.iter().map(|(ask, _)| ask.card.ask_id.clone()).collect();
        let keys = approvers.keys.keys().chain(approvers.passkeys.keys()).cloned().collect();
        let from = (asks, keys);
        let mut trusted = self.found();
        // Most changes of what people have approved concern other asks: equal answers and keys give equal hosts.
        if trusted.from == from {
            trusted.version = version;
            return Ok(Arc::clone(&trusted.hosts));
        }
        let mut hosts: Vec<TrustedHost> = Vec::new();
        for (ask, token) in rows {
            let Ok(token) = serde_json::from_value::<ApprovalToken>(token) else { continue };
            // As it was when it was given: trust has no end of its own.
            let checked = approval::verify_approval(
                &token,
                &self.keys.expected(&ask)?,
                &approvers,
                token.claims.issued_at,
            )
            .is_ok();
            let named = token.claims.host.as_deref().and_then(|host| host.parse::<HostPattern>().ok());
            let Some(host) = named.filter(|_| checked) else { continue };
            if hosts.iter().any(|known| known.host == host) {
                continue;
            }
            hosts.push(TrustedHost {
                host,
                ask: ask.card.ask_id,
                session: ask.card.session,
                intent: ask.card.intent,
                risk: ask.card.risk,
                by: ask.resolved_by,
                at: token.claims.issued_at,
            });
        }
        let hosts = Arc::new(hosts);
        *trusted = Trusted { version, from, hosts: Arc::clone(&hosts) };
        Ok(hosts)
    }

    /// Returns the hosts that were found last, if they are of this version.
    fn known_hosts(&self, version: Option<u64>) -> Option<Arc<Vec<TrustedHost>>> {
        let trusted = self.found();
        (version.is_some() && trusted.version == version).then(|| Arc::clone(&trusted.hosts))
    }

    /// Every holder leaves it whole, so poison is ignored.
    fn found(&self) -> MutexGuard<'_, Trusted> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the asks with an answer that trusts the host, even if they do not count any longer.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn trusted_by(&self, host: &str) -> Result<Vec<AskRow>, EngineError> {
        let rows = self.journal.store.trusted_host_answers().await?.into_iter();
        let named = |token: &Value| token.pointer("/claims/host").and_then(Value::as_str) == Some(host);
        Ok(rows.filter(|(_, token)| named(token)).map(|(ask, _)| ask).collect())
    }

    /// Returns the host that a yes to an ask may make trusted: one that is not listed yet, if one person
    /// decides and there is room.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn trustable(
        &self,
        session: &Session,
        ask: &Ask,
    ) -> Result<Option<String>, EngineError> {
        let host = reach::trustable_host(&ask.prepared.action, &self.scope_of(session).await);
        let Some(host) = host.filter(|_| ask.approvers == 1) else { return Ok(None) };
        let has_room = self.trusted().await?.len() < MAX_TRUSTED;
        Ok(has_room.then(|| host.to_string()))
    }

    /// Returns the hosts of the configuration and those that the owner trusts, each once and with its current
    /// state, for people to read.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn hosts(&self) -> Result<HostList, EngineError> {
        let (trusted, mut scope) = (self.trusted().await?, self.egress.clone());
        scope.trusted.extend(trusted.iter().map(|one| one.host.clone()));
        let row = |host: &HostPattern, by: &str, trusted: Option<&TrustedHost>| HostApproval {
            domain: host.to_string(),
            approved_by: by.to_owned(),
            state: state(host, &scope).to_owned(),
            approved_at: trusted.map(|one| one.at),
            by: trusted.map(|one| one.by.clone()),
            ask_id: trusted.map(|one| one.ask.clone()),
        };
        let listed = self.egress.allowed.iter();
        let mut hosts: Vec<_> = listed.clone().map(|host| row(host, "config", None)).collect();
        let others = trusted.iter().filter(|one| listed.clone().all(|host| *host != one.host));
        hosts.extend(others.map(|one| row(&one.host, "user", Some(one))));
        Ok(HostList { hosts })
    }
}

/// Returns the fate of a connection to a listed host: `open`, `asks` or `refused`. A pattern is as open as it
/// is written.
fn state(host: &HostPattern, scope: &EgressScope) -> &'static str {
    let target = Target::from_authority(Scheme::Https, &host.to_string(), Some(WEB_PORTS[1]));
    match target.map(|target| judge_connection(scope, &target, None)) {
        Ok(Judgement::Allow { .. }) | Err(_) => "open",
        Ok(Judgement::Ask { .. }) => "asks",
        Ok(Judgement::Deny { .. }) => "refused",
    }
}
