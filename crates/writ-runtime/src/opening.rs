//! Opening and finding sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use writ_policy::egress::host::HostPattern;
use writ_policy::order::Order;
use writ_store::batch::{Batch, NewSession, Op};
use writ_types::entry::HookEvent;
use writ_types::id::SessionId;

use crate::access::ACCESS;
use crate::config::LEFT_BEHIND;
use crate::core::Core;
use crate::engine::{Join, Surface};
use crate::error::EngineError;
use crate::hooks::STATE;
use crate::orders::{ORDER, Ordered, session_of};
use crate::session::{
    CLOSED_AT, CONVERSATION, GRANTED_HOSTS, NEW_HOSTS, RELAYED, SUBSCRIPTIONS, SURFACE, Session, State, Terms,
};
use crate::subscriptions;

/// How many of the newest sessions are looked at for one of the page or of a conversation.
const MAX_LOOKED_AT: usize = 500;

fn project_folder(path: &str) -> Result<PathBuf, EngineError> {
    let unusable = |why: String| EngineError::Project(why);
    let path = std::fs::canonicalize(path).map_err(|e| unusable(e.to_string()))?;
    if !path.is_dir() {
        return Err(unusable("it is not a folder".to_owned()));
    }
    if path.to_str().is_none_or(|text| text.chars().any(char::is_control)) {
        return Err(unusable("its path has characters that cannot be shown".to_owned()));
    }
    if path.parent().is_none() {
        return Err(unusable("it is the root of the file system".to_owned()));
    }
    Ok(path)
}

impl Core {
    /// The session for a client that names none.
    pub(crate) async fn opened(&self, join: &Join) -> Result<Arc<Session>, EngineError> {
        let shared = join.conversation.is_some() || (join.surface == Surface::Page && join.project.is_none());
        let _opening = if shared { Some(self.opening.lock().await) } else { None };
        let known = match (&join.conversation, join.surface) {
            (Some(name), _) => self.newest_with(CONVERSATION, name)?,
            (None, Surface::Page) if join.project.is_none() => {
                self.newest_with(SURFACE, Surface::Page.as_str())?
            }
            (None, Surface::Page | Surface::Local | Surface::Api) => None,
        };
        if let Some(id) = known {
            return self.session(id);
        }
        let project = join.project.as_deref();
        let session = self.open_session(project, join.write, join.dry_run, join.surface).await?;
        if let Some(name) = &join.conversation {
            let (key, value) = (CONVERSATION.to_owned(), Some(Value::from(name.as_str())));
            let op = Op::SetSessionMetadata { session: session.id, key, value };
            self.store.commit(Batch::relaxed(vec![op])).await?;
        }
        Ok(session)
    }

    /// The newest session that was not closed and of which this is known.
    fn newest_with(&self, key: &str, value: &str) -> Result<Option<SessionId>, EngineError> {
        let value = Value::from(value);
        let open = self
            .store
            .sessions(MAX_LOOKED_AT)?
            .into_iter()
            .find(|row| row.metadata.get(key) == Some(&value) && !row.metadata.contains_key(CLOSED_AT));
        Ok(open.map(|row| row.id))
    }

    /// A session that was not closed.
    ///
    /// # Errors
    ///
    /// If there is none, or it was closed.
    pub(crate) fn open_one(&self, id: SessionId) -> Result<Arc<Session>, EngineError> {
        let session = self.session(id)?;
        if session.state().closed {
            return Err(EngineError::SessionClosed(id));
        }
        Ok(session)
    }

    /// Opens a session.
    ///
    /// # Errors
    ///
    /// If the project's folder cannot be used, or the store cannot be written.
    pub(crate) async fn open_session(
        &self,
        project: Option<&str>,
        write: bool,
        dry_run: bool,
        surface: Surface,
    ) -> Result<Arc<Session>, EngineError> {
        let project = project.map(project_folder).transpose()?;
        let terms = Terms { project, write, dry_run, ..Terms::default() };
        self.open_as(self.ids.session(self.clock.now()), terms, surface).await
    }

    /// Opens the session of a standing order.
    ///
    /// # Errors
    ///
    /// As [`Self::open_session`].
    pub(crate) async fn open_under(&self, order: &Order) -> Result<Arc<Session>, EngineError> {
        let claims = order.claims();
        let project = claims.project.as_deref().map(project_folder).transpose()?;
        let ordered = Ordered { id: claims.order, claims: Some(Arc::new(claims.clone())) };
        let terms = Terms { project, order: Some(ordered), ..Terms::default() };
        self.open_as(session_of(claims.order)?, terms, Surface::Local).await
    }

    /// Opens a session in which others speak: nothing is approved beforehand in it.
    ///
    /// # Errors
    ///
    /// As [`Self::open_session`].
    pub(crate) async fn open_relayed(
        &self,
        project: Option<&str>,
        dry_run: bool,
        surface: Surface,
    ) -> Result<Arc<Session>, EngineError> {
        let project = project.map(project_folder).transpose()?;
        let terms = Terms { project, dry_run, relayed: true, ..Terms::default() };
        self.open_as(self.ids.session(self.clock.now()), terms, surface).await
    }

    async fn open_as(
        &self,
        id: SessionId,
        terms: Terms,
        surface: Surface,
    ) -> Result<Arc<Session>, EngineError> {
        let now = self.clock.now();
        let (write, dry_run, relayed) = (terms.write, terms.dry_run, terms.relayed);
        let rules = self.project_rules(terms.project.as_deref())?;
        let over = self.stop_now.child_token();
        let state = State { rules: rules.clone(), over, ..State::default() };
        let session = Session::new(id, terms, state);
        // Nobody is to find out with the first tool that the work folder cannot be opened.
        self.sandbox.check(&session.workspace_config(self))?;
        let mut metadata: BTreeMap<String, Value> =
            [("write", write), ("dry_run", dry_run), (RELAYED, relayed)]
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.into()))
                .collect();
        metadata.insert(SURFACE.to_owned(), surface.as_str().into());
        let order = session.terms.order.as_ref().map(|order| order.id.to_string().into());
        metadata.extend(order.map(|order| (ORDER.to_owned(), order)));
        let row = NewSession {
            id,
            created_at: now,
            project: session.terms.project.as_ref().map(|path| path.to_string_lossy().into_owned()),
            metadata,
        };
        let mut ops = vec![Op::OpenSession(row)];
        if let Some(rules) = &rules {
            ops.push(self.rules_entry(&session, rules, "the project narrows the rules"));
        }
        self.store.commit(Batch::relaxed(ops)).await?;
        let session = self.remember_session(Arc::new(session));
        self.tell_of_session(&session, HookEvent::SessionCreated).await?;
        Ok(session)
    }

    /// A session, from memory or from the store.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) fn session(&self, id: SessionId) -> Result<Arc<Session>, EngineError> {
        if let Some(session) = self.sessions().get(&id) {
            return Ok(Arc::clone(session));
        }
        let row = self.store.session(id)?.ok_or(EngineError::NoSession(id))?;
        let flag = |key: &str| row.metadata.get(key).and_then(serde_json::Value::as_bool).unwrap_or(false);
        let terms = Terms {
            project: row.project.as_ref().map(PathBuf::from),
            write: flag("write"),
            dry_run: flag("dry_run"),
            relayed: flag(RELAYED),
            order: row.metadata.get(ORDER).map(|id| self.ordered(id)).transpose()?.flatten(),
        };
        let rules = self.project_rules(terms.project.as_deref())?;
        let budget_base = row.metadata.get("budget_base").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let state = State {
            rehydrated: row.turn_number > 0,
            rules,
            closed: row.metadata.contains_key(CLOSED_AT),
            over: self.stop_now.child_token(),
            left_behind: row.metadata.contains_key(LEFT_BEHIND),
            granted: row.metadata.get(GRANTED_HOSTS).map(hosts).unwrap_or_default(),
            subscriptions: row.metadata.get(SUBSCRIPTIONS).map(subscriptions::read).unwrap_or_default(),
            new_hosts: row.metadata.get(NEW_HOSTS).map(texts).unwrap_or_default(),
            access: row
                .metadata
                .get(ACCESS)
                .and_then(|v| serde_json::from_value(v.clone()).ok())
                .unwrap_or_default(),
            hooks: row
                .metadata
                .iter()
                .filter_map(|(key, value)| Some((key.strip_prefix(STATE)?.to_owned(), value.clone())))
                .collect(),
            budget_base: writ_types::unit::Tokens::new(budget_base),
            ..State::default()
        };
        let session = Arc::new(Session::new(id, terms, state));
        Ok(self.remember_session(session))
    }

    /// Keeps a session in memory; puts idle ones aside when there are too many.
    pub(crate) fn remember_session(&self, session: Arc<Session>) -> Arc<Session> {
        let mut sessions = self.sessions();
        if sessions.len() >= crate::config::MAX_LOADED_SESSIONS {
            // Nobody else holds it, no turn runs, and nobody watches.
            sessions.retain(|_, held| Arc::strong_count(held) > 1 || held.hub.watched() || held.runs(None));
        }
        Arc::clone(sessions.entry(session.id).or_insert(session))
    }
}

/// The hosts of a list; what is none opens nothing.
fn hosts(list: &Value) -> BTreeSet<HostPattern> {
    texts(list).iter().filter_map(|text| text.parse().ok()).collect()
}

/// The texts of a list.
fn texts(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
