//! The states of a case: a pure machine that never has two holders.

use std::collections::BTreeSet;

use writ_types::id::KeyId;

/// The most holders that a case has one after the other; after them only people hold it.
pub const MAX_HOLDERS: u32 = 64;
/// The longest reason of an escalation, in bytes.
pub const MAX_REASON_BYTES: usize = 2_000;
/// The target of an escalation that is a queue for people.
pub const HUMAN: &str = "human";

/// The word for a case that an agent holds.
pub const HELD: &str = "held";

/// The one who works on a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseHolder {
    /// An agent, under a task key of its own.
    Agent {
        /// The agent.
        agent: String,
        /// Its task key.
        key: KeyId,
    },
    /// A person.
    Person {
        /// The person's principal.
        name: String,
    },
}

/// The cause for which a case leaves its holder without the holder's asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// Its key was revoked.
    Revoked,
    /// Its process ended before the case did.
    Crash,
    /// It did not answer before its deadline.
    Silence,
    /// A rule about anomalies decided so.
    Anomaly,
    /// The router started again.
    Restart,
    /// Another version of its agent was deployed.
    Deployed,
    /// A person has taken the case.
    Taken,
    /// Its key, its base key or the time of its process has ended, or its agent was retired: not for what it did.
    Ended,
    /// Agents may add nothing more to the conversation.
    Full,
}

impl LossCause {
    /// All of them.
    pub(crate) const ALL: [Self; 9] = [
        Self::Revoked,
        Self::Crash,
        Self::Silence,
        Self::Anomaly,
        Self::Restart,
        Self::Deployed,
        Self::Taken,
        Self::Ended,
        Self::Full,
    ];

    /// Returns the word that stands in the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Crash => "crash",
            Self::Silence => "silence",
            Self::Anomaly => "anomaly",
            Self::Restart => "restart",
            Self::Deployed => "deployed",
            Self::Taken => "taken",
            Self::Ended => "ended",
            Self::Full => "full",
        }
    }
}

/// The state of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseState {
    /// It waits for its first holder.
    Open,
    /// One holder works on it.
    Held(CaseHolder),
    /// The last holder's key is revoked, and the next holder has none yet.
    Escalating {
        /// The agent, role or queue that is to be next; `None`: any agent with the capability.
        target: Option<String>,
    },
    /// It waits for a person.
    Queued,
    /// It has ended.
    Closed,
}

/// An event of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseEvent {
    /// The router gives it to an agent, with a fresh key.
    Assign {
        /// The agent.
        agent: String,
        /// Its key.
        key: KeyId,
    },
    /// The holder's key is replaced before it ends.
    Renew {
        /// The fresh key.
        key: KeyId,
    },
    /// The holder gives it up.
    Escalate {
        /// The next holder that it names.
        target: String,
        /// The reason.
        reason: String,
        /// The targets that its base key grants.
        allowed: BTreeSet<String>,
    },
    /// It is taken from its holder.
    Lose(LossCause),
    /// No agent is free, or a person is asked for.
    Queue,
    /// A person takes it over.
    Take {
        /// The person.
        person: String,
    },
    /// A person gives it back to agents.
    HandBack {
        /// The agent or role that is to be next; `None`: any agent with the capability.
        target: Option<String>,
    },
    /// It ends.
    Close,
}

/// The reason why an event does not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaseFault {
    /// The case is in another state.
    #[error("the case is {state}, and cannot be {verb}")]
    State {
        /// The state.
        state: &'static str,
        /// What was asked for.
        verb: &'static str,
    },
    /// The base key of the holder does not grant this target.
    #[error("the key does not grant escalating to '{target}'")]
    Target {
        /// The target.
        target: String,
    },
    /// An escalation has no reason, or a far too long one.
    #[error("an escalation needs a reason of 1 to {MAX_REASON_BYTES} bytes")]
    Reason,
    /// The case went through too many hands.
    #[error("the case had {MAX_HOLDERS} holders; a person must take it over")]
    TooMany,
}

/// The result of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseStep {
    /// The machine after it.
    pub next: CaseMachine,
    /// The holder that leaves; an agent's key is revoked in the same commit.
    pub ended: Option<CaseHolder>,
    /// The holder that begins, after that.
    pub began: Option<CaseHolder>,
}

/// A case as its router sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseMachine {
    state: CaseState,
    /// Agents that it was taken from; they do not get it again.
    lost: BTreeSet<String>,
    holders: u32,
}

impl Default for CaseMachine {
    fn default() -> Self {
        Self { state: CaseState::Open, lost: BTreeSet::new(), holders: 0 }
    }
}

impl CaseState {
    /// Returns the word that stands in rows and messages.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Held(CaseHolder::Agent { .. }) => HELD,
            Self::Held(CaseHolder::Person { .. }) => "held by a person",
            Self::Escalating { .. } => "escalating",
            Self::Queued => "queued",
            Self::Closed => "closed",
        }
    }
}

impl CaseMachine {
    /// Restores a machine from what was stored.
    pub const fn resume(state: CaseState, lost: BTreeSet<String>, holders: u32) -> Self {
        Self { state, lost, holders }
    }

    /// Returns the state.
    pub const fn state(&self) -> &CaseState {
        &self.state
    }

    /// Returns the agents that the case was taken from.
    pub const fn lost(&self) -> &BTreeSet<String> {
        &self.lost
    }

    /// Returns the number of agents that have held it.
    pub const fn holders(&self) -> u32 {
        self.holders
    }

    /// Returns the one who holds it now.
    pub const fn holder(&self) -> Option<&CaseHolder> {
        match &self.state {
            CaseState::Held(holder) => Some(holder),
            CaseState::Open | CaseState::Escalating { .. } | CaseState::Queued | CaseState::Closed => None,
        }
    }

    /// Returns the key of the agent that holds it now.
    pub const fn key(&self) -> Option<KeyId> {
        match self.holder() {
            Some(CaseHolder::Agent { key, .. }) => Some(*key),
            Some(CaseHolder::Person { .. }) | None => None,
        }
    }

    /// Applies an event.
    ///
    /// # Errors
    ///
    /// If the event does not apply in this state, or says what the holder may not.
    pub fn apply_event(&self, event: CaseEvent) -> Result<CaseStep, CaseFault> {
        match event {
            CaseEvent::Assign { agent, key } => self.assign_agent(agent, key),
            CaseEvent::Renew { key } => match &self.state {
                CaseState::Held(CaseHolder::Agent { agent, .. }) => {
                    Ok(self.begin_holder(CaseHolder::Agent { agent: agent.clone(), key }))
                }
                CaseState::Held(CaseHolder::Person { .. })
                | CaseState::Open
                | CaseState::Escalating { .. }
                | CaseState::Queued
                | CaseState::Closed => Err(self.state_fault("given a fresh key")),
            },
            CaseEvent::Escalate { target, reason, allowed } => self.escalate_case(target, &reason, &allowed),
            CaseEvent::Lose(cause) => self.lose_agent(cause),
            CaseEvent::Queue => match &self.state {
                CaseState::Open | CaseState::Escalating { .. } => Ok(self.end_holder(CaseState::Queued)),
                CaseState::Held(_) | CaseState::Queued | CaseState::Closed => Err(self.state_fault("queued")),
            },
            CaseEvent::Take { person } => match &self.state {
                CaseState::Queued => Ok(self.begin_holder(CaseHolder::Person { name: person })),
                CaseState::Open | CaseState::Held(_) | CaseState::Escalating { .. } | CaseState::Closed => {
                    Err(self.state_fault("taken over"))
                }
            },
            CaseEvent::HandBack { target } => match &self.state {
                CaseState::Queued | CaseState::Held(CaseHolder::Person { .. }) => {
                    let mut step = self.end_holder(CaseState::Escalating { target });
                    // A person decides anew: also an agent that failed with the case may have it again.
                    step.next.lost.clear();
                    Ok(step)
                }
                CaseState::Open
                | CaseState::Held(CaseHolder::Agent { .. })
                | CaseState::Escalating { .. }
                | CaseState::Closed => Err(self.state_fault("handed back")),
            },
            CaseEvent::Close => match &self.state {
                CaseState::Closed => Err(self.state_fault("closed")),
                CaseState::Open | CaseState::Held(_) | CaseState::Escalating { .. } | CaseState::Queued => {
                    Ok(self.end_holder(CaseState::Closed))
                }
            },
        }
    }

    fn assign_agent(&self, agent: String, key: KeyId) -> Result<CaseStep, CaseFault> {
        match &self.state {
            CaseState::Open | CaseState::Escalating { .. } => {}
            CaseState::Held(_) | CaseState::Queued | CaseState::Closed => {
                return Err(self.state_fault("assigned"));
            }
        }
        // Two agents that escalate to one another would go on without end.
        if self.holders >= MAX_HOLDERS {
            return Err(CaseFault::TooMany);
        }
        let mut step = self.begin_holder(CaseHolder::Agent { agent, key });
        step.next.holders = self.holders.saturating_add(1);
        Ok(step)
    }

    fn escalate_case(
        &self,
        target: String,
        reason: &str,
        allowed: &BTreeSet<String>,
    ) -> Result<CaseStep, CaseFault> {
        let Some(CaseHolder::Agent { .. }) = self.holder() else {
            return Err(self.state_fault("escalated"));
        };
        // The next holder has nothing else to go by.
        if reason.trim().is_empty() || reason.len() > MAX_REASON_BYTES {
            return Err(CaseFault::Reason);
        }
        // Byte for byte: a name that only looks alike is another one.
        if !allowed.contains(&target) {
            return Err(CaseFault::Target { target });
        }
        // A person is no agent that might be missing: the case waits in the queue at once.
        let next =
            if target == HUMAN { CaseState::Queued } else { CaseState::Escalating { target: Some(target) } };
        Ok(self.end_holder(next))
    }

    fn lose_agent(&self, cause: LossCause) -> Result<CaseStep, CaseFault> {
        let Some(CaseHolder::Agent { agent, .. }) = self.holder() else {
            return Err(self.state_fault("lost"));
        };
        let mut step = self.end_holder(CaseState::Escalating { target: None });
        match cause {
            // The agent did nothing wrong: it may have the case again.
            LossCause::Restart
            | LossCause::Deployed
            | LossCause::Taken
            | LossCause::Ended
            | LossCause::Full => {}
            LossCause::Revoked | LossCause::Crash | LossCause::Silence | LossCause::Anomaly => {
                step.next.lost.insert(agent.clone());
            }
        }
        Ok(step)
    }

    /// Ends the holder's time and begins another's.
    fn begin_holder(&self, holder: CaseHolder) -> CaseStep {
        let next = Self { state: CaseState::Held(holder.clone()), ..self.clone() };
        CaseStep { next, ended: self.holder().cloned(), began: Some(holder) }
    }

    /// Ends the holder's time.
    fn end_holder(&self, state: CaseState) -> CaseStep {
        CaseStep { next: Self { state, ..self.clone() }, ended: self.holder().cloned(), began: None }
    }

    const fn state_fault(&self, verb: &'static str) -> CaseFault {
        CaseFault::State { state: self.state.as_str(), verb }
    }
}

#[cfg(test)]
mod tests;
