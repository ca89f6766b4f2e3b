//! The router: opens cases, chooses agents, mints and revokes their keys, and takes what they say.
//!
//! Every change is one commit with the revocation, the holder's row and the entry of the ledger in it; the process of the
//! agent follows the commit and never comes before it. A method must run to its end: a surface runs it as a task of its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard, RwLock, watch};
use writ_runtime::case_keys::CaseKeys;
use writ_store::batch::Op;
use writ_store::fleet::{FleetCase, FleetOp, MAX_CASE_MESSAGE_BYTES, MAX_OPEN_CASES};
use writ_store::reads::FleetReads as _;
use writ_types::entry::CaseChange;
use writ_types::id::SessionId;

use super::config::CasesConfig;
use super::error::CaseError;
use super::list::AgentList;
use super::live::{LiveCase, person_record};
use super::machine::{CaseEvent, CaseFault, CaseMachine, CaseState, LossCause};
use super::moves::CaseMove;
use super::orphans::revoke_orphans;
use super::ports::{AgentHost, CaseTokenSource, GuestNames, TokenPair};
use super::protocol::message_line;
use super::state::StoredState;
use super::texts;
use super::ways::note_last_ways;
use crate::agents::DeployedAgent;
use crate::anomalies::{Anomaly, AnomalyWatch, FleetEvent, MAX_RULES, Measure, add_guess_rule};

/// The longest name of a customer, case, capability or person, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// The most anomalies that are shown; the ledger has them all.
pub const MAX_SEEN: usize = 100;
/// The open cases that are read at once.
const PAGE: usize = 256;
/// The sender of a guest's messages.
const GUEST: &str = "guest";

/// A request to open a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCase {
    /// Its names at the tenant.
    pub names: GuestNames,
    /// The operation that its agents must be able to do.
    pub capability: String,
    /// The guest's first message.
    pub message: String,
}

pub(crate) type HeldCase = OwnedMutexGuard<LiveCase>;

/// The router of a fleet's cases. Clones share it.
#[derive(Clone, Debug)]
pub struct CaseRouter(pub(crate) Arc<CaseRouterState>);

/// An open case, and the token under which others name it.
#[derive(Debug)]
struct OpenCase {
    token: String,
    live: Arc<Mutex<LiveCase>>,
}

#[derive(Debug)]
pub(crate) struct CaseRouterState {
    pub(crate) keys: CaseKeys,
    /// The agents.
    agents: StdMutex<AgentList>,
    pub(crate) silence: Duration,
    pub(crate) tokens: Arc<dyn CaseTokenSource>,
    pub(crate) host: Arc<dyn AgentHost>,
    /// Held to read while a case is opened at the security proxy, and to write while one is closed there.
    pub(crate) at_proxy: RwLock<()>,
    /// The tokens of cases that were opened at the proxy and not here; at most [`MAX_UNOPENED`](super::ended::MAX_UNOPENED).
    pub(crate) unopened: StdMutex<BTreeSet<String>>,
    /// Held while a person's reading is recorded, so that two at once are one entry.
    pub(crate) readings: Mutex<()>,
    /// The open cases; at most [`MAX_OPEN_CASES`].
    cases: StdMutex<BTreeMap<SessionId, OpenCase>>,
    /// The number of cases of each agent.
    pub(crate) loads: StdMutex<BTreeMap<String, usize>>,
    /// The agents that hold a case, by its token.
    pub(crate) holders: StdMutex<BTreeMap<String, String>>,
    rules: StdMutex<AnomalyWatch>,
    /// The last anomalies, newest first; at most [`MAX_SEEN`].
    seen: StdMutex<VecDeque<Anomaly>>,
}

impl CaseRouter {
    /// Starts a router, and takes up the cases that were open: what agents held goes to an agent again, under a fresh key.
    ///
    /// # Errors
    ///
    /// If the configuration is beyond its bounds, or the store cannot be read or written.
    pub async fn start(
        keys: CaseKeys,
        config: CasesConfig,
        tokens: Arc<dyn CaseTokenSource>,
        host: Arc<dyn AgentHost>,
    ) -> Result<Self, CaseError> {
        let CasesConfig { agents, deployed, silence, mut rules } = config;
        let agents = StdMutex::new(AgentList::check_list(agents, deployed)?);
        if rules.len() > MAX_RULES {
            return Err(CaseError::TooLarge { what: "rules about anomalies", limit: MAX_RULES });
        }
        add_guess_rule(&mut rules);
        let rules = StdMutex::new(AnomalyWatch::new(rules));
        let (cases, loads, seen) = (StdMutex::default(), StdMutex::default(), StdMutex::default());
        let (at_proxy, holders) = (RwLock::default(), StdMutex::default());
        let state = CaseRouterState {
            keys,
            agents,
            silence,
            tokens,
            host,
            at_proxy,
            unopened: StdMutex::default(),
            readings: Mutex::default(),
            cases,
            loads,
            holders,
            rules,
            seen,
        };
        let router = Self(Arc::new(state));
        router.resume_cases().await?;
        Ok(router)
    }

    /// Replaces the agents by deployed ones. Those that are not among them lose their cases when their keys are about to end, or before
    /// by revocation.
    ///
    /// # Errors
    ///
    /// If there are too many agents or roles; then the ones of before stay.
    pub fn replace_deployed(&self, agents: Vec<DeployedAgent>) -> Result<(), CaseError> {
        let agents = AgentList::check_list(Vec::new(), agents)?;
        *self.agents() = agents;
        Ok(())
    }

    /// Returns the agents. The guard is not held across an await.
    pub(crate) fn agents(&self) -> std::sync::MutexGuard<'_, AgentList> {
        self.0.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn resume_cases(&self) -> Result<(), CaseError> {
        self.prune_ended().await?;
        // All are counted before one is placed: an agent takes no more than it may, whatever the order of the cases is.
        let ids = self.restore_cases().await?;
        revoke_orphans(self, &ids).await?;
        for id in ids {
            let mut live = self.locked(id).await?;
            // Its process ended with the router before, or has no pipe to its router.
            if live.machine.key().is_some() {
                self.lose_case(&mut live, LossCause::Restart, "the router started again").await?;
            } else {
                self.place_case(&mut live).await?;
            }
        }
        Ok(())
    }

    /// Takes up the open cases with their holders. Returns their ids.
    async fn restore_cases(&self) -> Result<Vec<SessionId>, CaseError> {
        let state = &self.0;
        let (mut after, mut restored) = (None, Vec::new());
        loop {
            let page = state.keys.store().open_fleet_cases(after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(restored) };
            after = Some(last.id);
            for row in page {
                let id = row.id;
                // The last row is the holder, if it has no end.
                let last = state.keys.store().fleet_holders(id).await?.pop();
                match LiveCase::restore_case(row, last) {
                    Ok(live) => {
                        self.count_load(None, live.holder.as_ref());
                        self.keep_case(live);
                        restored.push(id);
                    }
                    // The others go on; the row stays as it is for a person to see.
                    Err(error) => tracing::error!(%error, "a case cannot be taken up"),
                }
            }
        }
    }

    /// Opens a case and gives it to an agent, or to people if none is free. Returns its id.
    ///
    /// # Errors
    ///
    /// If a text is beyond its bounds, there are too many cases, the proxy does not answer, or the ledger cannot be written.
    pub async fn open_case(&self, wanted: NewCase) -> Result<SessionId, CaseError> {
        let NewCase { names, capability, message } = wanted;
        check_text("name of the customer", &names.customer, MAX_NAME_BYTES)?;
        check_text("name of the case", &names.case, MAX_NAME_BYTES)?;
        check_text("capability", &capability, MAX_NAME_BYTES)?;
        check_text("message", &message, MAX_CASE_MESSAGE_BYTES)?;
        let state = &self.0;
        // An earlier case of this name that is being closed at the proxy would close this one, too.
        let opening = state.at_proxy.read().await;
        // Before the commit: from here on the names of customer and case are nowhere.
        let TokenPair { customer_token, case_token, fingerprint } =
            state.tokens.open_tokens(&names).await.map_err(CaseError::Proxy)?;
        let message = match texts::mask_text(&*state.tokens, &case_token, &message).await {
            Ok(message) => message,
            Err(error) => {
                drop(opening);
                state.close_unopened(case_token).await;
                return Err(error);
            }
        };
        let now = state.keys.now();
        let machine = CaseMachine::default();
        let row = FleetCase {
            id: state.keys.fresh_case(),
            case_token,
            customer_token,
            fingerprint,
            capability,
            is_open: true,
            version: 0,
            state: encode_state(&StoredState::new(&machine, None, String::new()))?,
            opened_at: now,
            changed_at: now,
        };
        let (id, token) = (row.id, row.case_token.clone());
        let mut live = LiveCase::open_new(row.clone());
        let noted = CaseMove::new(CaseChange::Opened, format!("for {}", row.capability));
        let said = FleetOp::AddMessage { id, sender: GUEST.to_owned(), text: message, at: now };
        let entry = noted.entry(&state.keys, &live, (None, None));
        let ops = vec![entry, Op::Fleet(FleetOp::Open(Box::new(row))), Op::Fleet(said)];
        let committed = state.keys.commit(ops).await;
        drop(opening);
        if let Err(error) = committed {
            return Err(state.refuse_opening(token, error.into()).await);
        }
        // The first message is owed an answer from the beginning.
        live.owes_since = Some(now);
        self.keep_case(live);
        let mut live = self.locked(id).await?;
        // It is open: an error would have the front end open it again.
        if let Err(error) = self.place_case(&mut live).await {
            tracing::error!(%error, case = %id, "a case that was opened waits for its first agent");
        }
        Ok(id)
    }

    /// Adds a message of the guest, and hands it to the agent that holds the case.
    ///
    /// # Errors
    ///
    /// If there is no such case, it has too many messages, or the store cannot be written.
    pub async fn add_message(&self, id: SessionId, text: &str) -> Result<(), CaseError> {
        check_text("message", text, MAX_CASE_MESSAGE_BYTES)?;
        let text = &self.mask_for(id, text).await?;
        let mut live = self.locked(id).await?;
        self.add_said(&live, GUEST, text).await?;
        if live.machine.key().is_some() {
            let now = self.0.keys.now();
            // The oldest message without an answer counts.
            live.owes_since.get_or_insert(now);
            self.send_line(&mut live, message_line(GUEST, text)).await?;
        }
        Ok(())
    }

    /// Returns a text for a case as its agents may read it. Nothing holds the case meanwhile: a proxy that does not answer
    /// keeps no key from being revoked.
    pub(crate) async fn mask_for(&self, id: SessionId, text: &str) -> Result<String, CaseError> {
        let case_token = self.locked(id).await?.row.case_token.clone();
        texts::mask_text(&*self.0.tokens, &case_token, text).await
    }

    /// Closes a case: its key is revoked at once, and its process ended.
    ///
    /// # Errors
    ///
    /// If there is no such case, or the ledger cannot be written.
    pub async fn close_case(&self, id: SessionId, reason: &str) -> Result<(), CaseError> {
        let mut live = self.locked(id).await?;
        self.end_case(&mut live, reason).await
    }

    pub(crate) async fn end_case(&self, live: &mut LiveCase, reason: &str) -> Result<(), CaseError> {
        let note = CaseMove::new(CaseChange::Closed, reason.to_owned());
        self.advance_case(live, CaseEvent::Close, note, None).await?;
        // Requests that wait for the lock see that it is closed.
        self.cases().remove(&live.row.id);
        // The key is dead already; the proxy forgets the customer's values now, or later if it is away.
        if let Err(error) = self.0.close_at_proxy(&live.row).await {
            tracing::warn!(%error, case = %live.row.case_token, "the security proxy still has a closed case");
        }
        Ok(())
    }

    /// Closes at the security proxy what has ended while it was away.
    ///
    /// # Errors
    ///
    /// If the proxy does not answer, or the store cannot be used; the rest is left for the next call.
    pub async fn close_ended(&self) -> Result<(), CaseError> {
        self.0.close_ended().await
    }

    /// Deletes what has ended long ago from the store; the ledger has the holders still.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub async fn prune_ended(&self) -> Result<(), CaseError> {
        self.0.prune_ended().await
    }

    /// Takes a case over for a person. One that an agent holds is taken from it first.
    ///
    /// # Errors
    ///
    /// If there is no such case, a person holds it, or the ledger cannot be written.
    pub async fn take_case(&self, id: SessionId, person: &str) -> Result<(), CaseError> {
        check_text("name of the person", person, MAX_NAME_BYTES)?;
        let mut live = self.locked(id).await?;
        if live.machine.key().is_some() {
            let note = CaseMove::new(CaseChange::Rerouted, format!("taken by {person}"));
            self.advance_case(&mut live, CaseEvent::Lose(LossCause::Taken), note, None).await?;
        }
        // One that waits for an agent, and has none yet or none any more.
        if matches!(live.machine.state(), CaseState::Open | CaseState::Escalating { .. }) {
            self.queue_case(&mut live, "a person takes it over").await?;
        }
        let note = CaseMove::new(CaseChange::Taken, format!("by {person}"));
        let event = CaseEvent::Take { person: person.to_owned() };
        self.advance_case(&mut live, event, note, Some(person_record(person))).await
    }

    /// Adds a person's answer to the guest. The case stays where it is.
    ///
    /// # Errors
    ///
    /// If there is no such case, an agent holds it, or the store cannot be written.
    pub async fn answer_case(&self, id: SessionId, person: &str, text: &str) -> Result<(), CaseError> {
        check_text("name of the person", person, MAX_NAME_BYTES)?;
        check_text("answer", text, MAX_CASE_MESSAGE_BYTES)?;
        let text = &self.mask_for(id, text).await?;
        let live = self.locked(id).await?;
        if live.machine.key().is_some() {
            let state = live.machine.state().as_str();
            return Err(CaseFault::State { state, verb: "answered by a person" }.into());
        }
        self.add_said(&live, &format!("person {person}"), text).await
    }

    /// Takes in what an agent did, as the proxy or the model router says, and does what the rules say about it.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be written.
    pub async fn observe_event(&self, event: &FleetEvent) -> Result<(), CaseError> {
        if !self.is_holder(&event.case, &event.agent) {
            // It has left the case: no rule can take it away, and the next time it begins anew.
            self.watch().add_totals(event);
            return Ok(());
        }
        let found = self.watch().observe_event(event);
        // The usual case, without a lock of any case.
        if found.is_empty() {
            return Ok(());
        }
        let Some(mut live) = self.case_of_token(&event.case).await else { return Ok(()) };
        for anomaly in found {
            self.apply_noted(&mut live, &anomaly).await?;
        }
        Ok(())
    }

    /// Counts what the router itself sees of an agent. The caller holds the case, so rules are applied at once.
    pub(crate) async fn count_measure(&self, live: &mut LiveCase, measure: Measure) -> Result<(), CaseError> {
        self.count_amount(live, measure, 1).await
    }

    /// The same for more than one.
    pub(crate) async fn count_amount(
        &self,
        live: &mut LiveCase,
        measure: Measure,
        amount: u64,
    ) -> Result<(), CaseError> {
        let Some(holder) = &live.holder else { return Ok(()) };
        let event = FleetEvent {
            at: self.0.keys.now(),
            agent: holder.name.clone(),
            case: live.row.case_token.clone(),
            customer: live.row.fingerprint.clone(),
            measure,
            amount,
        };
        let found = self.watch().observe_event(&event);
        for anomaly in found {
            self.apply_noted(live, &anomaly).await?;
        }
        Ok(())
    }

    /// Does what a rule says. Where that fails, the rule is met anew with the next event.
    async fn apply_noted(&self, live: &mut LiveCase, anomaly: &Anomaly) -> Result<(), CaseError> {
        let applied = self.apply_reaction(live, anomaly).await;
        match applied {
            Ok(()) => {
                self.watch().count_anomaly(anomaly);
                let mut seen = self.seen();
                seen.push_front(anomaly.clone());
                seen.truncate(MAX_SEEN);
            }
            Err(_) => self.watch().forget_anomaly(anomaly),
        }
        applied
    }

    /// Adds a message to the conversation.
    pub(crate) async fn add_said(&self, live: &LiveCase, sender: &str, text: &str) -> Result<(), CaseError> {
        let (id, at) = (live.row.id, self.0.keys.now());
        let said = FleetOp::AddMessage { id, sender: sender.to_owned(), text: text.to_owned(), at };
        self.0.keys.commit(vec![Op::Fleet(said)]).await?;
        live.said.send_modify(|count| *count = count.saturating_add(1));
        Ok(())
    }

    pub(crate) fn watch(&self) -> std::sync::MutexGuard<'_, AnomalyWatch> {
        self.0.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches the messages of an open case: the number changes with each of them, and ends with the case.
    pub(crate) async fn watch_said(&self, id: SessionId) -> Result<watch::Receiver<u64>, CaseError> {
        Ok(self.locked(id).await?.said.subscribe())
    }

    /// Ends the processes of all agents, for the end of the router; their cases go on with the next start.
    pub(crate) async fn end_agents(&self) {
        for id in self.open_ids() {
            if let Ok(mut live) = self.locked(id).await {
                note_last_ways(&self.0.keys, &mut live).await;
                live.agent = None;
            }
        }
    }

    /// Returns the last anomalies, newest first.
    pub(crate) fn seen(&self) -> std::sync::MutexGuard<'_, VecDeque<Anomaly>> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cases(&self) -> std::sync::MutexGuard<'_, BTreeMap<SessionId, OpenCase>> {
        self.0.cases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_case(&self, live: LiveCase) {
        let (id, token) = (live.row.id, live.row.case_token.clone());
        self.cases().insert(id, OpenCase { token, live: Arc::new(Mutex::new(live)) });
    }

    /// Returns the ids of the open cases, at most [`MAX_OPEN_CASES`].
    pub(crate) fn open_ids(&self) -> Vec<SessionId> {
        self.cases().keys().copied().take(MAX_OPEN_CASES).collect()
    }

    /// Locks a case, so that its changes come one after the other.
    pub(crate) async fn locked(&self, id: SessionId) -> Result<HeldCase, CaseError> {
        let unknown = || CaseError::Unknown(id.to_string());
        let found = self.cases().get(&id).map(|open| Arc::clone(&open.live)).ok_or_else(unknown)?;
        let live = found.lock_owned().await;
        // It may have ended while this waited.
        if *live.machine.state() == CaseState::Closed { Err(unknown()) } else { Ok(live) }
    }

    async fn case_of_token(&self, token: &str) -> Option<HeldCase> {
        let id = self.cases().iter().find(|(_, open)| open.token == token).map(|(id, _)| *id);
        self.locked(id?).await.ok()
    }
}

/// Writes a state for its row.
pub(crate) fn encode_state(state: &StoredState) -> Result<String, CaseError> {
    serde_json::to_string(state).map_err(|_| CaseError::Damaged("new".to_owned()))
}

pub(crate) fn check_text(what: &'static str, text: &str, limit: usize) -> Result<(), CaseError> {
    if text.trim().is_empty() || text.len() > limit { Err(CaseError::Text { what, limit }) } else { Ok(()) }
}
