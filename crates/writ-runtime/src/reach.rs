//! The network reach of a session: its scope, its asks about hosts, and the records of its connections.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use writ_inspect::egress::EgressScope;
use writ_inspect::egress::host::{Host, HostPattern, Scheme, Target};
use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_inspect::reach::{self, Reach, asks_each_time};
use writ_policy::approval::{self, ApprovalToken};
use writ_store::batch::{Batch, Op};
use writ_store::ledger::row::LedgerQuery;
use writ_store::reads::{AskReads as _, LedgerReads as _};
use writ_types::action::{Action, Connect};
use writ_types::entry::Fact;
use writ_types::id::SessionId;
use writ_types::taint::Taint;

use crate::error::EngineError;
use crate::journal::Journal;
use crate::keys::Keys;
use crate::session::{GRANTED_HOSTS, NEW_HOSTS, Session};
use crate::trust::Trusted;

/// The most hosts that a session is granted.
const MAX_GRANTED: usize = 256;
/// The most hosts that no list names and that a session reads from because the owner wrote a URL there (design 3.7).
const MAX_NEW_HOSTS: usize = 30;
/// The most messages of a session, newest first, in which owner values are looked for.
const MAX_OWNER_TEXTS: usize = 500;

/// The hosts that sessions may reach.
#[derive(Debug)]
pub(crate) struct Hosts {
    pub(super) journal: Arc<Journal>,
    pub(super) keys: Arc<Keys>,
    /// The hosts of the configuration.
    pub(crate) egress: EgressScope,
    /// The hosts that the owner trusts, with what they were found from.
    pub(super) found: Mutex<Trusted>,
}

/// Reports whether an approval of a host covers one program only, because the owner wants to be asked each
/// time.
pub(crate) fn is_once(scope: &EgressScope, host: &HostPattern) -> bool {
    // A pattern without exactly one port does not come from an approval, so it is treated as asked about each time.
    let target = Target::from_authority(Scheme::Https, &host.to_string(), None);
    target.map_or(true, |target| asks_each_time(scope, &target))
}

/// Takes those out that `is_meant`.
pub(crate) fn take_hosts(
    from: &mut BTreeSet<HostPattern>,
    is_meant: impl Fn(&HostPattern) -> bool,
) -> Vec<HostPattern> {
    let (taken, left): (Vec<_>, Vec<_>) = std::mem::take(from).into_iter().partition(is_meant);
    from.extend(left);
    taken
}

impl Hosts {
    pub(crate) fn new(journal: Arc<Journal>, keys: Arc<Keys>, egress: EgressScope) -> Self {
        Self { journal, keys, egress, found: Mutex::default() }
    }

    /// Returns the owner's lists, the hosts that the owner trusts, and the hosts granted to the session for
    /// its lifetime.
    pub(crate) async fn scope_of(&self, session: &Session) -> EgressScope {
        let mut scope = self.egress.clone();
        match self.trusted().await {
            Ok(trusted) => scope.trusted.extend(trusted.iter().map(|trusted| trusted.host.clone())),
            Err(error) => tracing::warn!(%error, "the trusted hosts cannot be read: each is asked about"),
        }
        let state = session.state();
        let granted = state.hosts.granted.iter().filter(|host| !is_once(&self.egress, host));
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
        let host = HostPattern::exact_host(host, Some(connect.port));
        // Open everywhere for as long as it is trusted, and no longer here than there.
        if self.trusted().await?.iter().any(|trusted| trusted.host == host) {
            return Ok(Ok(()));
        }
        let mut granted = session.state().hosts.granted.clone();
        granted.insert(host.clone());
        if granted.len() > MAX_GRANTED {
            return Ok(Err(format!("this session has {MAX_GRANTED} hosts already: list some of them")));
        }
        self.keep_granted(session, &granted).await?;
        // Inserted, not replaced: a program may have taken one meanwhile.
        session.state().hosts.granted.insert(host);
        Ok(Ok(()))
    }

    /// Stores the hosts granted for the lifetime of a session. One-time grants are left out: stored, they
    /// would count once more after each restart.
    async fn keep_granted(
        &self,
        session: &Session,
        granted: &BTreeSet<HostPattern>,
    ) -> Result<(), EngineError> {
        let kept = granted.iter().filter(|host| !is_once(&self.egress, host));
        let texts: Vec<serde_json::Value> = kept.map(|host| host.to_string().into()).collect();
        let (key, value) = (GRANTED_HOSTS.to_owned(), Some(texts.into()));
        let op = Op::SetSessionMetadata { session: session.id, key, value };
        self.journal.store.commit(Batch::synced(vec![op])).await?;
        Ok(())
    }

    /// Takes the grants for one program. The store is written first, because it may hold some as lasting
    /// grants from before the owner wanted to be asked each time.
    pub(crate) async fn take_once(&self, session: &Session) -> Result<Vec<HostPattern>, EngineError> {
        let _one_at_a_time = session.granting.lock().await;
        let granted = session.state().hosts.granted.clone();
        if !granted.iter().any(|host| is_once(&self.egress, host)) {
            return Ok(Vec::new());
        }
        self.keep_granted(session, &granted).await?;
        Ok(take_hosts(&mut session.state().hosts.granted, |host| is_once(&self.egress, host)))
    }

    /// Notes that a session reads from a host that no list names.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub(crate) async fn note_new_host(&self, session: &Session, host: String) -> Result<(), EngineError> {
        let _one_at_a_time = session.granting.lock().await;
        let mut hosts = session.state().hosts.unlisted.clone();
        if hosts.len() >= MAX_GRANTED || !hosts.insert(host) {
            return Ok(());
        }
        let texts: Vec<serde_json::Value> = hosts.iter().map(|host| host.as_str().into()).collect();
        let (key, value) = (NEW_HOSTS.to_owned(), Some(texts.into()));
        let op = Op::SetSessionMetadata { session: session.id, key, value };
        // Only the bound on new hosts rests on it, so at worst a power failure allows a few more of them.
        self.journal.store.commit(Batch::relaxed(vec![op])).await?;
        session.state().hosts.unlisted = hosts;
        Ok(())
    }

    /// Reports whether a fetch would add an unlisted host beyond the limit of the session, for instance from
    /// a pasted list of links.
    async fn is_one_too_many(&self, action: &Action, session: &Session) -> bool {
        let scope = self.scope_of(session).await;
        let unlisted = reach::reach_of(action, &scope) == Reach::Unknown;
        let state = session.state();
        let known = url_of(action)
            .and_then(|url| Target::from_url(url).ok())
            .is_some_and(|to| state.hosts.unlisted.contains(&to.host.to_string()));
        unlisted && !known && state.hosts.unlisted.len() >= MAX_NEW_HOSTS
    }

    /// Returns the texts that the arguments of an action may come from: `known`, if the conversation was
    /// searched already. Empty for actions that stay inside, and for one host too many.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be read.
    pub(crate) async fn origins_of<'a>(
        &self,
        prepared: &Prepared,
        session: Option<&Session>,
        known: Option<&'a Origins>,
    ) -> Result<Cow<'a, Origins>, EngineError> {
        let (reads, searches) =
            (url_of(&prepared.action).is_some(), matches!(prepared.action, Action::Search(_)));
        let Some(session) = session else { return Ok(Cow::default()) };
        if reads && self.is_one_too_many(&prepared.action, session).await {
            // Without the owner's texts its URL is foreign, and a person is asked.
            return Ok(Cow::default());
        }
        match known {
            Some(known) => Ok(Cow::Borrowed(known)),
            None if reads || searches => Ok(Cow::Owned(self.owner_origins(session.id).await?)),
            None => Ok(Cow::default()),
        }
    }

    /// Reports whether every argument that decides the destination of an action appears in the owner's texts
    /// of the session.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be read.
    pub(crate) async fn is_owned(&self, prepared: &Prepared, session: &Session) -> Result<bool, EngineError> {
        let origins = self.origins_of(prepared, Some(session), None).await?;
        Ok(!prepared.sinks.is_empty() && origins.foreign_sink(&prepared.sinks, &[]).is_none())
    }

    /// Returns the texts that the owner wrote in a session and the values that the owner endorsed.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be read.
    pub(crate) async fn owner_origins(&self, session: SessionId) -> Result<Origins, EngineError> {
        let mut origins = Origins::new(self.owner_texts(session).await?);
        let approvers = self.keys.approvers().await?;
        for (ask, token) in self.journal.store.endorsements(Some(session)).await? {
            let Ok(token) = serde_json::from_value::<ApprovalToken>(token) else { continue };
            // As it was when it was given, by a key that still counts, in the present epoch.
            let checked = approval::verify_approval(
                &token,
                &self.keys.expected(&ask)?,
                &approvers,
                token.claims.issued_at,
            );
            if checked.is_ok() && token.claims.values {
                origins.endorse_values(ask.prepared.sinks.into_iter().map(|sink| sink.value));
            }
        }
        Ok(origins)
    }

    /// Returns the texts that the owner wrote in a session, newest first.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be read.
    pub(crate) async fn owner_texts(&self, session: SessionId) -> Result<Vec<String>, EngineError> {
        let query = LedgerQuery {
            event: Some("received".to_owned()),
            session: Some(session),
            limit: MAX_OWNER_TEXTS,
            ..LedgerQuery::default()
        };
        let texts = self.journal.store.ledger_search(&query).await?.into_iter().filter_map(|row| {
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
