//! The sessions of an engine: created, and found in memory or in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use writ_inspect::egress::host::HostPattern;
use writ_sandbox::Sandbox;
use writ_store::batch::{Batch, NewSessionRow, Op, SessionOp};
use writ_store::reads::SessionReads as _;
use writ_store::sessions::SessionRow;
use writ_types::id::SessionId;
use writ_types::unit::{MicroUsd, Tokens};

use crate::config::{LEFT_BEHIND, MAX_LOADED_SESSIONS};
use crate::error::EngineError;
use crate::history::Histories;
use crate::journal::Journal;
use crate::keys::Keys;
use crate::profile::Answering;
use crate::rules::Rules;
use crate::session::topics::TOPICS;
use crate::session::{
    ACCESS, AGENT, BUDGET_BASE, BUDGET_COST_BASE, BUDGET_PAUSED, CLOSED_AT, CONTEXT_PINS, FORKED_FROM,
    GRANTED_HOSTS, HOOK_STATE, MODEL, NEW_HOSTS, ORDER, QUESTION, RELAYED, SUBSCRIPTIONS, SURFACE, Session,
    SessionBudget, SessionContext, SessionGates, SessionHosts, SessionRecovery, SessionState,
    SessionSubscriptions, SessionTerms, Surface, TITLE, TitleRecord, WORK_ITEM,
};
use crate::subscription;

/// The most sessions, newest first, among which that of the page or of a named conversation is searched.
const MAX_LOOKED_AT: usize = 500;

/// The keys of a session's metadata that a copy takes over: nothing that was granted.
const FORKED: [&str; 7] = ["dry_run", RELAYED, SURFACE, TITLE, AGENT, MODEL, CONTEXT_PINS];

/// The sessions of an engine.
#[derive(Debug)]
pub(crate) struct Sessions {
    journal: Arc<Journal>,
    keys: Arc<Keys>,
    rules: Arc<Rules>,
    sandbox: Arc<Sandbox>,
    /// The folder of the sessions' overlays.
    overlays: PathBuf,
    stop_now: CancellationToken,
    map: Mutex<BTreeMap<SessionId, Arc<Session>>>,
    /// Histories of sessions that are in use.
    pub(crate) histories: Mutex<Histories>,
    /// Held while a shared session is looked for or opened, so that clients do not open it twice.
    pub(crate) opening: tokio::sync::Mutex<()>,
}

impl Sessions {
    pub(crate) fn new(
        (journal, keys, rules): (Arc<Journal>, Arc<Keys>, Arc<Rules>),
        (sandbox, overlays): (Arc<Sandbox>, PathBuf),
        stop_now: CancellationToken,
    ) -> Self {
        let (map, histories) = (Mutex::default(), Mutex::default());
        let opening = tokio::sync::Mutex::default();
        Self { journal, keys, rules, sandbox, overlays, stop_now, map, histories, opening }
    }

    /// Returns the newest open session that has this value under this key of its metadata.
    pub(crate) async fn newest_with(&self, key: &str, value: &str) -> Result<Option<SessionId>, EngineError> {
        let value = Value::from(value);
        let open = self
            .journal
            .store
            .sessions(MAX_LOOKED_AT)
            .await?
            .into_iter()
            .find(|row| row.metadata.get(key) == Some(&value) && !row.metadata.contains_key(CLOSED_AT));
        Ok(open.map(|row| row.id))
    }

    /// Returns a session that is open.
    ///
    /// # Errors
    ///
    /// If there is none, or it was closed.
    pub(crate) async fn open_one(&self, id: SessionId) -> Result<Arc<Session>, EngineError> {
        let session = self.get(id).await?;
        if session.state().closed {
            return Err(EngineError::SessionClosed(id));
        }
        Ok(session)
    }

    pub(crate) async fn create(
        &self,
        id: SessionId,
        terms: SessionTerms,
        surface: Surface,
    ) -> Result<Arc<Session>, EngineError> {
        let now = self.journal.clock.now();
        let (write, dry_run, relayed) = (terms.write, terms.dry_run, terms.relayed);
        let rules = self.rules.session_rules(terms.project.as_deref(), None).await?;
        let over = self.stop_now.child_token();
        let state = SessionState { rules: rules.clone(), over, ..SessionState::default() };
        let session = Session::new(id, terms, state);
        // Reports a work folder that cannot be opened now, not at the first tool call.
        self.sandbox.check_project(&session.workspace_config(&self.overlays))?;
        let mut metadata: BTreeMap<String, Value> =
            [("write", write), ("dry_run", dry_run), (RELAYED, relayed)]
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.into()))
                .collect();
        metadata.insert(SURFACE.to_owned(), surface.as_str().into());
        let order = session.terms.order.as_ref().map(|order| order.id.to_string().into());
        metadata.extend(order.map(|order| (ORDER.to_owned(), order)));
        let work = session.terms.work.and_then(|work| serde_json::to_value(work).ok());
        metadata.extend(work.map(|work| (WORK_ITEM.to_owned(), work)));
        let question = session.terms.question.and_then(|question| serde_json::to_value(question).ok());
        metadata.extend(question.map(|question| (QUESTION.to_owned(), question)));
        let row = NewSessionRow {
            id,
            created_at: now,
            project: session.terms.project.as_ref().map(|path| path.to_string_lossy().into_owned()),
            metadata,
        };
        let mut ops = vec![Op::OpenSession(row)];
        if let Some(rules) = &rules {
            ops.push(self.rules.rules_entry(&session, rules, "the project narrows the rules"));
        }
        self.journal.store.commit(Batch::relaxed(ops)).await?;
        Ok(self.remember_session(Arc::new(session)))
    }

    /// Opens and returns a copy of a session, with its history up to a turn, its title and its settings, but without grants,
    /// approvals and the changes in its work folder.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or written, or the project's folder cannot be used any more.
    pub(crate) async fn fork(&self, row: &SessionRow, until: u64) -> Result<Arc<Session>, EngineError> {
        let now = self.journal.clock.now();
        let id = self.journal.ids.session(now);
        let mut metadata: BTreeMap<String, Value> = row
            .metadata
            .iter()
            .filter(|(key, _)| FORKED.contains(&key.as_str()) || key.starts_with(HOOK_STATE))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        metadata.insert("write".to_owned(), false.into());
        metadata.insert(FORKED_FROM.to_owned(), serde_json::json!([row.id, until]));
        let to = NewSessionRow { id, created_at: now, project: row.project.clone(), metadata };
        let fork = Op::Sessions(SessionOp::Fork { from: row.id, until, to });
        self.journal.store.commit(Batch::relaxed(vec![fork])).await?;
        let session = self.get(id).await?;
        let rules = session.state().rules.clone();
        if let Some(rules) = rules {
            let op = self.rules.rules_entry(&session, &rules, "rules of its project or agent are in force");
            self.journal.store.commit(Batch::relaxed(vec![op])).await?;
        }
        Ok(session)
    }

    /// Returns a session, from memory or from the store.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) async fn get(&self, id: SessionId) -> Result<Arc<Session>, EngineError> {
        if let Some(session) = self.loaded().get(&id) {
            return Ok(Arc::clone(session));
        }
        let row = self.journal.store.session(id).await?.ok_or(EngineError::NoSession(id))?;
        self.of_row(&row).await
    }

    /// Returns the session of a row, from memory if it is loaded.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn of_row(&self, row: &SessionRow) -> Result<Arc<Session>, EngineError> {
        let id = row.id;
        if let Some(session) = self.loaded().get(&id) {
            return Ok(Arc::clone(session));
        }
        let flag = |key: &str| row.metadata.get(key).and_then(serde_json::Value::as_bool).unwrap_or(false);
        let terms = SessionTerms {
            project: row.project.as_ref().map(PathBuf::from),
            write: flag("write"),
            dry_run: flag("dry_run"),
            relayed: flag(RELAYED),
            order: match row.metadata.get(ORDER) {
                Some(id) => self.keys.ordered(id).await?,
                None => None,
            },
            work: row.metadata.get(WORK_ITEM).and_then(|work| serde_json::from_value(work.clone()).ok()),
            question: row.metadata.get(QUESTION).and_then(|terms| serde_json::from_value(terms.clone()).ok()),
        };
        let agent = row.metadata.get(AGENT).and_then(Value::as_str);
        let described = agent.and_then(|name| self.rules.find_agent(name));
        let rules = self.rules.session_rules(terms.project.as_deref(), described).await?;
        let number = |key: &str| row.metadata.get(key).and_then(serde_json::Value::as_u64).unwrap_or(0);
        let budget = SessionBudget {
            base: Tokens::new(number(BUDGET_BASE)),
            cost_base: MicroUsd::new(number(BUDGET_COST_BASE)),
            note: None,
            paused: flag(BUDGET_PAUSED),
        };
        let pins = row.metadata.get(CONTEXT_PINS).and_then(|rows| serde_json::from_value(rows.clone()).ok());
        let topics = row.metadata.get(TOPICS).and_then(|topics| serde_json::from_value(topics.clone()).ok());
        let state = SessionState {
            rules,
            closed: row.metadata.contains_key(CLOSED_AT),
            title: TitleRecord::of_metadata(&row.metadata),
            answering: Answering {
                agent: agent.map(str::to_owned),
                model: row.metadata.get(MODEL).and_then(Value::as_str).map(str::to_owned),
            },
            over: self.stop_now.child_token(),
            recovery: SessionRecovery {
                rehydrated: row.turn_number > 0,
                left_behind: row.metadata.contains_key(LEFT_BEHIND),
            },
            hosts: SessionHosts {
                granted: row.metadata.get(GRANTED_HOSTS).map(hosts).unwrap_or_default(),
                unlisted: row.metadata.get(NEW_HOSTS).map(texts).unwrap_or_default(),
            },
            subscriptions: SessionSubscriptions {
                list: row.metadata.get(SUBSCRIPTIONS).map(subscription::read_all).unwrap_or_default(),
                ..SessionSubscriptions::default()
            },
            gates: gates_of(&row.metadata),
            budget,
            context: SessionContext {
                pins: pins.unwrap_or_default(),
                topics: topics.unwrap_or_default(),
                ..SessionContext::default()
            },
            ..SessionState::default()
        };
        let session = Arc::new(Session::new(id, terms, state));
        Ok(self.remember_session(session))
    }

    /// Keeps a session in memory; unloads idle ones when there are too many.
    pub(crate) fn remember_session(&self, session: Arc<Session>) -> Arc<Session> {
        let mut sessions = self.loaded();
        if sessions.len() >= MAX_LOADED_SESSIONS {
            // Drops sessions without another holder, a running turn or a watcher.
            sessions.retain(|_, held| Arc::strong_count(held) > 1 || held.hub.watched() || held.runs(None));
        }
        // Another task may have loaded it meanwhile: the first stays, so that all share its locks and its state.
        Arc::clone(sessions.entry(session.id).or_insert(session))
    }

    /// Drops the data in memory of a session that was erased.
    pub(crate) fn drop_loaded(&self, id: SessionId) {
        self.loaded().remove(&id);
        self.histories.lock().unwrap_or_else(PoisonError::into_inner).drop_history(id);
    }

    /// Notes whether the work folder may hold changes that no person has seen. While it does, from the next turn on, nothing of
    /// the session is applied before a person has seen all changes.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub(crate) async fn set_left_behind(&self, session: &Session, left: bool) -> Result<(), EngineError> {
        if session.state().recovery.left_behind == left {
            return Ok(());
        }
        let value = left.then(|| serde_json::Value::Bool(true));
        let (session_id, key) = (session.id, LEFT_BEHIND.to_owned());
        let op = Op::SetSessionMetadata { session: session_id, key, value };
        self.journal.store.commit(Batch::relaxed(vec![op])).await?;
        session.state().recovery.left_behind = left;
        Ok(())
    }

    /// Locks the sessions in memory. A panic elsewhere cannot leave the map half-written, so poison is ignored.
    pub(crate) fn loaded(&self) -> MutexGuard<'_, BTreeMap<SessionId, Arc<Session>>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the state of gates and hooks from a session's metadata; the question of a gate is not restored after a restart.
fn gates_of(metadata: &BTreeMap<String, Value>) -> SessionGates {
    SessionGates {
        access: metadata.get(ACCESS).and_then(|v| serde_json::from_value(v.clone()).ok()).unwrap_or_default(),
        hooks: metadata
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(HOOK_STATE)?.to_owned(), value.clone())))
            .collect(),
        ..SessionGates::default()
    }
}

/// The hosts of a list. An item that is not a host pattern is left out, so that it opens nothing.
fn hosts(list: &Value) -> BTreeSet<HostPattern> {
    texts(list).iter().filter_map(|text| text.parse().ok()).collect()
}

/// The texts of a list.
fn texts(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
